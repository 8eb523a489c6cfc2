"""The driver's memory during builds of archives with very many empty segments."""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.archives import touch_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import Measured, run_measured
from tests.benchmarks.ratios import Ratio

PLAN, FIRST, UNCHANGED = "plan alone, no Spark", "first build", "unchanged build"
COMMANDS: Final = {PLAN: "plan", FIRST: "build", UNCHANGED: "build"}
SEGMENTS: Final = (50_000, 100_000, 200_000)
SEGMENTS_EACH: Final = 200  # per partition
MILLION: Final = 1_000_000
DRIVER: Final = "tests.benchmarks.driver"
AIM_MIB: Final = 2048
MIB: Final = 1 << 20


class Row(NamedTuple):
    """One run of a driver."""

    segments: int
    what: str
    measured: Measured

    @property
    def seconds(self) -> float:
        """Return the seconds that the run itself printed, without imports and Spark's start."""
        return float(self.measured.output)


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure archives of all sizes and return their part of the page."""
    rows = [row for segments in SEGMENTS for row in measure(segments, data)]
    ratios = [
        Ratio(f"memory of the driver, a million segments, {what}", "", peak / MIB, "MiB", AIM_MIB)
        for what, (_, peak) in millions(rows).items()
    ]
    return [Section("Memory of the driver", [*lines(rows), "", *notes()], ratios)]


def measure(segments: int, data: Path) -> list[Row]:
    """Plan a build, run it, and run it again: three drivers, one after another."""
    tell(f"{segments:,} segments: memory of the driver")
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    try:
        source = touch_archive(
            scratch, partitions=segments // SEGMENTS_EACH, segments_each=SEGMENTS_EACH
        )
        rows = []
        for what, command in COMMANDS.items():
            driver = [sys.executable, "-m", DRIVER, command, str(source), str(scratch / "indexes")]
            rows.append(Row(segments, what, run_measured(driver)))
        return rows
    finally:
        shutil.rmtree(scratch)


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the table of measurements, and the one of estimates for a million segments."""
    return [
        "| segments | what | Python | JVM | both at once | workers | seconds |",
        "|---:|---|---:|---:|---:|---:|---:|",
        *map(row_line, rows),
        "",
        "| a million segments | bytes a segment | both at once |",
        "|---|---:|---:|",
        *(
            f"| {what} | {each:,.0f} | {mib(peak)} |"
            for what, (each, peak) in millions(rows).items()
        ),
    ]


def row_line(row: Row) -> str:
    """Return one run's line."""
    peak = row.measured.peak
    sizes = " | ".join(map(mib, (peak.python, peak.jvm, peak.driver, peak.workers)))
    return f"| {row.segments:,} | {row.what} | {sizes} | {row.seconds:.1f} |"


def millions(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return bytes per segment and bytes for a million, by command.

    The estimate extrapolates from the smallest and the largest archive.
    """
    found = {}
    for what in COMMANDS:
        least, *_, most = (row for row in rows if row.what == what)
        growth = most.measured.peak.driver - least.measured.peak.driver
        each = growth / (most.segments - least.segments)
        found[what] = each, most.measured.peak.driver + each * (MILLION - most.segments)
    return found


def mib(size_bytes: float) -> str:
    """Return a size as a whole number of MiB."""
    return f"{size_bytes / MIB:,.0f} MiB"


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- Largest resident sizes, sampled every 50 ms; the JVM's heap is Spark's default, 1 GiB.",
        "- *workers* are executors, no part of the driver; pages they share count once for each.",
        "- *seconds* are without imports and Spark's start. Segments are empty files, 200 in a",
        "  partition. A million is not measured: the largest, and what a segment more took.",
    ]
