"""How many bytes of a log `--no-check-crc` reads, as counted by the operating system."""

from pathlib import Path
from typing import Final

from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import KINDS, write_segment
from tests.benchmarks.timing import clocked

COUNTERS: Final = Path("/proc/self/io")
KINDS_READ: Final = ("batches-1m", "batches-16k")
QUICK_BYTES: Final = 64 << 20


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page."""
    tell("headers only")
    folder = data / "quick" if quick else data
    rows = ["| segment | read of it | seconds | with every checksum |", "|---|---:|---:|---:|"]
    ratios = []
    for kind in (kind for kind in KINDS if kind.name in KINDS_READ):
        size_bytes = QUICK_BYTES if quick else None
        log = write_segment(kind, folder / "source", size_bytes=size_bytes).path
        read(log, check_crc=True)
        before = bytes_read()
        headers = clocked(lambda log=log: read(log, check_crc=False))()
        share = 100 * (bytes_read() - before) / log.stat().st_size
        whole = clocked(lambda log=log: read(log, check_crc=True))()
        rows.append(f"| {kind.title} | {share:.1f} % | {headers:.3f} | {whole:.3f} |")
        at_most = 2 if kind.name == "batches-1m" else None
        work = f"headers only (`--no-check-crc`), {kind.title}, local disk"
        ratios.append(Ratio(work, "the file's size", share, "% of bytes", at_least=at_most))
    return [Section("Headers only", rows, ratios)]


def read(log: Path, *, check_crc: bool) -> None:
    """Index a log; raise if it is not valid to its last byte."""
    settings = IndexSettings(check_crc=check_crc)
    index = index_file(Location.of(log), base_offset=0, topic="t", settings=settings)
    if index.status != "ok":
        raise ValueError(f"{log}: {index.status}, {index.error}")


def bytes_read() -> int:
    """Return how many bytes this process has read so far, from disk or from the page cache."""
    for line in COUNTERS.read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "rchar":
            return int(value)
    raise ValueError(f"{COUNTERS}: no rchar")
