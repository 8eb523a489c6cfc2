"""The memory of a task's process for each size of segment: it must not depend on the size.

As a program this module is that process: it plans a build of one segment, builds its bin, commits,
and prints its peak resident size in bytes.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kip33.archive.listing import list_tree
from kip33.stores import settings as store_settings
from kip33.stores.locations import Location
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import segment_name
from tests.builders.large_segments import LARGEST_SEGMENT_BYTES, filling, write_hollow_segment
from tests.faults.builds import build_here

KIB, MIB = 1 << 10, 1 << 20
BATCH_SIZES: Final = {
    "64 KiB, batches of 16 KiB": filling(64 * KIB, 16 * KIB),
    "2^31 - 1 bytes, batches of 64 KiB": filling(LARGEST_SEGMENT_BYTES, 64 * KIB),
    "one batch of 256 MiB": [256 * MIB],
}
MOST_APART_BYTES: Final = 64 * MIB
MOST_MIB: Final = 400


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all sizes and return their part of the page."""
    tell("memory of a worker")
    peaks = measured_peaks(BATCH_SIZES)
    largest = max(peaks.values()) / MIB
    work = "memory of a worker, whatever the segment's size"
    ratios = [Ratio(work, "", largest, "MiB", at_least=MOST_MIB)]
    return [Section("Memory of a worker", [*lines(peaks), "", *notes()], ratios)]


def measured_peaks(batch_sizes: Mapping[str, list[int]]) -> dict[str, int]:
    """Return peak resident bytes by name of segment.

    The first process is not counted: it may have compiled the code that the others load.
    """
    peaks = {}
    with tempfile.TemporaryDirectory(prefix="kip33-bench-") as scratch:
        for number, (name, sizes) in enumerate(batch_sizes.items()):
            log = Path(scratch, str(number), "large-0", segment_name())
            log.parent.mkdir(parents=True)
            write_hollow_segment(log, sizes)
            if not number:
                peak_of_build(log)
            peaks[name] = peak_of_build(log)
            log.unlink()
    return peaks


def peak_of_build(log: Path) -> int:
    """Build one segment in a new process; return its peak resident bytes."""
    return peak_of_builds(str(log.parent))


def peak_of_builds(source: str, settings: Mapping[str, str] | None = None) -> int:
    """Build everything below `source` in a new process; return its peak resident bytes."""
    command = [sys.executable, "-m", __name__, source, json.dumps(settings or {})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def lines(peaks: Mapping[str, int]) -> list[str]:
    """Return the table; each peak is compared with the first one."""
    base = next(iter(peaks.values()))
    rows = ["| segment | peak | beyond the smallest | aim | |", "|---|---:|---:|---:|---|"]
    for name, peak in peaks.items():
        beyond = peak - base
        met = "met" if abs(beyond) < MOST_APART_BYTES else "missed"
        figures = f"{peak / MIB:.0f} MiB | {beyond / MIB:.1f} MiB | < {MOST_APART_BYTES // MIB} MiB"
        rows.append(f"| {name} | {figures} | {met} |")
    return rows


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- Peak resident size (`VmHWM`) of a fresh process that plans, builds and commits that one",
        "  segment, compiled code loaded from its cache; every checksum is checked.",
    ]


def peak_resident_bytes() -> int:
    """Return the peak resident bytes of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB
    raise ValueError("/proc/self/status: no VmHWM")


def main() -> None:
    source, settings = sys.argv[1], json.loads(sys.argv[2])
    store_settings.use_settings(settings)
    with tempfile.TemporaryDirectory(prefix="kip33-bench-") as index_dir:
        summary = build_here(source, Path(index_dir), offset_index=True)
    size_bytes = list_tree(Location.of(source)).table["size_bytes"].to_pylist()
    if set(summary.by_status) != {"ok"} or summary.bytes_read != sum(size_bytes):
        raise ValueError(f"{source}: {summary}")
    print(peak_resident_bytes())


if __name__ == "__main__":
    main()
