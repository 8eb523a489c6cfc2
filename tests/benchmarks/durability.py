"""The cost of flushing index files to the disk before the commit: builds with and without it.

Pairs of builds into new directories. The disk is flushed before the clock of each build starts, so
that no build has to write data of the previous one. The two take turns in beginning a pair.
"""

import itertools
import os
import statistics
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from kip33.spark.build import build_index
from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.timing import clocked
from tests.benchmarks.whole_job import CORES, start_session

PAIRS: Final = 5
QUICK_PAIRS: Final = 2
NOW_MS: Final = 1_800_000_000_000
MOST_PERCENT: Final = 105.0  # in percent of the time without flushes
SHAPES: Final = (
    Shape("20,000 segments of 4 KB", "batches-200", 4_000, 100, 200),
    Shape("20,000 segments of 15 KB", "batches-200", 15_000, 100, 200),
)
QUICK_SHAPES: Final = (Shape("2,000 segments of 4 KB", "batches-200", 4_000, 100, 20),)


class Pairs(NamedTuple):
    """Seconds of the builds of one archive; a pair has the same index in both lists."""

    shape: Shape
    flushed: list[float]
    not_flushed: list[float]

    @property
    def percents(self) -> list[float]:
        """Return the time of each flushed build in percent of its partner's."""
        pairs = zip(self.flushed, self.not_flushed, strict=True)
        return [100 * mine / other for mine, other in pairs]


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure the archives and return their part of the page."""
    spark, _seconds = start_session()
    try:
        shapes, pairs = (QUICK_SHAPES, QUICK_PAIRS) if quick else (SHAPES, PAIRS)
        results = [race(spark, shape, data, pairs=pairs) for shape in shapes]
    finally:
        spark.stop()
    return [Section("Flushing to the disk", [*lines(results), "", *notes()], ratios_of(results))]


def race(spark: SparkSession, shape: Shape, data: Path, *, pairs: int) -> Pairs:
    """Build with and without flushes in turns, after a first pair that is not counted."""
    tell(f"{shape.title}: flushed and not flushed")
    archive = link_archive(shape, data / f"durability-{shape.segments}-{shape.segment_bytes}")
    result = Pairs(shape, [], [])
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=data) as scratch:
        places = itertools.count()

        def seconds(*, fsync: bool) -> float:
            target = Path(scratch) / str(next(places))
            os.sync()
            return clocked(lambda: build(spark, archive, target, shape, fsync=fsync))()

        for number in range(pairs + 1):
            order = (True, False) if number % 2 else (False, True)
            took = {fsync: seconds(fsync=fsync) for fsync in order}
            if number:
                result.flushed.append(took[True])
                result.not_flushed.append(took[False])
                tell(f"  {took[True]:.2f} s flushed, {took[False]:.2f} s not")
    return result


def build(spark: SparkSession, archive: Path, target: Path, shape: Shape, *, fsync: bool) -> None:
    """Build every segment; raises if one is not built."""
    summary = build_index(spark, str(archive), str(target), now_ms=NOW_MS, fsync=fsync)
    if summary.by_status != {"ok": shape.segments} or summary.written != shape.segments:
        raise ValueError(f"{archive}: {summary}")


def lines(results: list[Pairs]) -> list[str]:
    """Return the table."""
    rows = [
        "| archive | flushed, s | not flushed, s | % of the time, each pair |",
        "|---|---:|---:|---:|",
    ]
    for pairs in results:
        cells = (
            pairs.shape.title,
            f"{statistics.median(pairs.flushed):.2f}",
            f"{statistics.median(pairs.not_flushed):.2f}",
            ", ".join(f"{percent:.0f}" for percent in sorted(pairs.percents)),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def ratios_of(results: list[Pairs]) -> list[Ratio]:
    """Return the required and the measured ratios."""
    return [
        Ratio(
            f"build of {pairs.shape.title}, flushed to the disk",
            "`--no-fsync`",
            statistics.median(pairs.percents),
            "% of time",
            at_least=MOST_PERCENT,
        )
        for pairs in results
    ]


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        f"- Builds into new directories in one session on {CORES} cores, by turns in pairs; the",
        "  median of the pairs' ratios. All disks are flushed before each clock starts.",
    ]
