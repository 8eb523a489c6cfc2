"""The ten worst inputs: small files that are expensive to read, with time and memory for each.

Each is read by its own process. Its cost must be proportional to its size: at most 400 MiB in
addition to one decompressed batch.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.builders.hostile_input import (
    bomb,
    control_batches,
    dense_time_index,
    large_bomb,
    large_legacy_bomb,
    log_path,
    lying_headers,
    many_headers,
    many_messages,
    many_records,
    markers_only,
    sparse_time_index,
    steps_of_one_batch,
)
from tests.measured_command import Measured, measured

MIB: Final = 1 << 20
MOST_MIB: Final = 400
SEARCH: Final = (
    "from kip33.search.partition_search import *; from kip33.search.offset_lookup import *; "
    "from kip33.archive.log_window import Meter; "
    "row = SearchedSegment({log!r}, 0, None, None, None, None, None, 'unverified', None); "
)


class Input(NamedTuple):
    """A hostile file, the arguments of a process that reads it, and the size of its batch."""

    title: str
    size_bytes: int
    arguments: list[str]
    batch_bytes: int = 0


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all inputs and return their part of the page."""
    tell("the ten worst inputs")
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    found: list[tuple[Input, Measured]] = []
    try:
        for hostile in inputs(scratch, 16 if quick else 1):
            measure = measured(*hostile.arguments)
            if measure.exit_code:
                raise ValueError(f"{hostile.title}: {measure.error}")
            tell(f"  {hostile.title}: {measure.seconds:.1f} s, {measure.peak_bytes // MIB} MiB")
            found.append((hostile, measure))
    finally:
        shutil.rmtree(scratch)
    beside = max((m.peak_bytes - one.batch_bytes) / MIB for one, m in found)
    work = "memory for the ten worst inputs, beside one decompressed batch"
    ratios = [Ratio(work, "", beside, "MiB", at_least=MOST_MIB)]
    return [Section("Hostile input", [*lines(found), "", *notes()], ratios)]


def inputs(folder: Path, divisor: int) -> Iterator[Input]:
    """Yield the inputs, one file at a time; all are smaller by `divisor`."""
    size = (1 << 30) // divisor - MIB
    yield dumped(folder, "a zstd batch that decompresses to 1 GiB", large_bomb(size, "zstd"), size)
    log = write(folder, large_legacy_bomb(size))
    call = f"import kip33; kip33.find_offset({str(log)!r}, 5)"
    title = "a compressed message of magic 1 of 1 GiB, `find_offset`"
    yield Input(title, log.stat().st_size, ["-c", call], size)
    size = 256 * MIB // divisor
    block = bomb(size, "snappy-raw")
    yield dumped(folder, "one snappy block of 256 MiB", block, 2 * size)
    yield dumped(
        folder, "compressed control batches, 256 KiB", control_batches(MIB // 4 // divisor)
    )
    noise = control_batches(MIB // divisor, damaged=True)
    yield dumped(folder, "a damaged control batch of zstd, 1 MiB", noise)
    log = sparse_time_index(folder, 300 * MIB // divisor)
    title = "a sparse `.timeindex` of 300 MiB, `verify`"
    yield Input(title, 300 * MIB // divisor, ["verify", str(log.with_suffix(".timeindex"))])
    log = dense_time_index(folder, 2 * MIB // divisor)
    title = "a `.timeindex` of 24 MiB without a true entry, `verify`"
    yield Input(title, 24 * MIB // divisor, ["verify", str(log.with_suffix(".timeindex"))])
    yield from searched(folder, divisor)
    yield from read_as_arrow(folder, divisor)


def searched(folder: Path, divisor: int) -> Iterator[Input]:
    """Yield the files that searches read."""
    for title, log_bytes, call in (
        (
            "20,000 headers that claim too much, `--time max-timestamp`",
            lying_headers(20_000 // divisor),
            "search_partition([row], [-3])",
        ),
        (
            "10,000 times in one batch of 100,000 records",
            steps_of_one_batch(100_000 // divisor),
            "search_partition([row], list(range(1000, 101000, 10)))",
        ),
        (
            "the last record before 1,000,000 markers, no `.index`",
            markers_only(1_000_000 // divisor),
            "record_before([row], 10**6, Meter())",
        ),
    ):
        log = write(folder, log_bytes)
        yield Input(title, len(log_bytes), ["-c", SEARCH.format(log=log.as_uri()) + call])


def read_as_arrow(folder: Path, divisor: int) -> Iterator[Input]:
    """Yield small files of many rows, and one large record, as `read_arrow` reads them."""
    call = "import kip33; print(sum(b.num_rows for b in kip33.read_arrow({log!r})))"
    records, headers, messages = 20_000_000 // divisor, 8_000_000 // divisor, 10**6 // divisor
    size = 900 * MIB // divisor
    for title, log_bytes, batch_bytes in (
        (f"{records:,} records in one batch", many_records(records), 7 * records),
        (f"{headers:,} headers of one record", many_headers(headers), 2 * headers),
        (f"{messages:,} messages of magic 1 in one", many_messages(messages), 34 * messages),
        ("one record of 900 MiB", large_bomb(size, "zstd"), size),
    ):
        log = write(folder, log_bytes)
        arguments = ["-c", call.format(log=str(log))]
        yield Input(f"{title}, `read_arrow`", len(log_bytes), arguments, batch_bytes)


def write(folder: Path, log_bytes: bytes) -> Path:
    """Write a log without other files."""
    log = log_path(folder)
    for file in log.parent.iterdir():
        file.unlink()
    log.write_bytes(log_bytes)
    return log


def dumped(folder: Path, title: str, log_bytes: bytes, batch_bytes: int = 0) -> Input:
    """Return a log that `dump --records` reads."""
    log = write(folder, log_bytes)
    how = ["dump", "--records", str(log)]
    return Input(f"{title}, `dump --records`", len(log_bytes), how, batch_bytes)


def lines(found: list[tuple[Input, Measured]]) -> list[str]:
    """Return the table."""
    rows = ["| input | size | time | peak | beside its batch |", "|---|---:|---:|---:|---:|"]
    for one, measure in found:
        kib, peak = one.size_bytes / 1024, measure.peak_bytes / MIB
        beside = peak - one.batch_bytes / MIB
        figures = f"{kib:,.0f} KiB | {measure.seconds:.1f} s | {peak:.0f} MiB | {beside:.0f} MiB"
        rows.append(f"| {one.title} | {figures} |")
    return rows


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- Each in a fresh process, its start (about a second) included; the peak is `VmHWM`.",
        "- A snappy block has no pieces: it is held beside its record, and counts twice.",
        "- The machine was in use by other work: times are no more than an order of magnitude.",
    ]
