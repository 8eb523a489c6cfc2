"""Retention of very many segments: seconds, rows a second and the driver's memory."""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.driver_memory import MIB, mib
from tests.benchmarks.made_catalogs import make_catalog
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import Measured, run_measured
from tests.benchmarks.ratios import Ratio

SEGMENTS: Final = (10_000, 100_000, 1_000_000)
SEGMENTS_EACH: Final = 200  # in a partition
SPARK: Final = "tests.benchmarks.retention_driver"
PLAIN: Final = "tests.benchmarks.retention_plan_driver"
AIM_SECONDS: Final = 15


class Row(NamedTuple):
    """One catalog judged by Spark's SQL, and by Python for a plan."""

    segments: int
    catalog_bytes: int
    spark: Measured
    plain: Measured

    @property
    def seconds(self) -> dict[str, float]:
        """Return what Spark's driver says it took, by what it did."""
        found: dict[str, float] = json.loads(self.spark.output)
        return found


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure catalogs of all sizes and return their part of the page."""
    rows = [measure(segments) for segments in SEGMENTS]
    largest = rows[-1]
    work = f"retention of {largest.segments:,} segments"
    ratios = [
        Ratio(f"{work}, beyond Spark's start", "", largest.seconds["cold"], "s", AIM_SECONDS),
        Ratio(f"{work}, again in one session", "", largest.seconds["warm"], "s"),
    ]
    title = "Retention of a catalog that was made"
    return [Section(title, [*lines(rows), "", *notes()], ratios)]


def measure(segments: int) -> Row:
    """Make a catalog and judge it, in one driver after another."""
    tell(f"{segments:,} segments: retention")
    scratch = Path(tempfile.mkdtemp(prefix="kip33-bench-"))
    try:
        folder = scratch / "catalog"
        make_catalog(folder, segments=segments, partitions=segments // SEGMENTS_EACH)
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        spark = [sys.executable, "-m", SPARK, str(folder), str(scratch / "output")]
        plain = [sys.executable, "-m", PLAIN, str(folder)]
        return Row(segments, size, run_measured(spark), run_measured(plain))
    finally:
        shutil.rmtree(scratch)


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the table."""
    return [
        "| segments | catalog | first | again | segments/s | 30 days' forecast | as Parquet "
        "| driver, Python | JVM | both at once | for a plan, Python alone | its memory |",
        f"|---:|{'---:|' * 11}",
        *map(row_line, rows),
    ]


def row_line(row: Row) -> str:
    """Return one catalog's line."""
    seconds, peak = row.seconds, row.spark.peak
    times = " | ".join(
        f"{seconds[name]:.1f} s" if name else f"{row.segments / seconds['warm']:,.0f}"
        for name in ("cold", "warm", "", "forecast", "written")
    )
    memory = " | ".join(map(mib, (peak.python, peak.jvm, peak.driver)))
    plain = f"{float(row.plain.output):.1f} s | {mib(row.plain.peak.python)}"
    return (
        f"| {row.segments:,} | {row.catalog_bytes / MIB:.1f} MiB | {times} | {memory} | {plain} |"
    )


def notes() -> list[str]:
    """Say what the rows mean."""
    return [
        "- *first* is the first judgement of a session with all sums, as a nightly audit runs it;",
        "  *again* the best of three more. SQL alone: no row reaches Python but the sums.",
        "- 200 segments an hour apart in each partition, one in a thousand a year ahead.",
        "- *for a plan*: the same rule in Python on the same rows, as `--plan` and `--apply` do.",
    ]
