"""Nightly builds of one archive: how much time reuse saves.

first        into an empty index directory: every log is read, every .timeindex published
unchanged    repeated at once: every row is carried over, no byte of a log is read
full         `--full`, in the same place: every log is read, the index files are already correct
tail         `--read tail` into an empty catalog: the .timeindex beside each log is trusted
"""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from kip33.builds.commit import BuildSummary
from kip33.spark.build import build_index
from tests.benchmarks.archives import BROKER, Shape, link_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.timing import Times, clocked, times_faster
from tests.benchmarks.whole_job import CORES, start_session

MIB: Final = 1 << 20
ROUNDS: Final = 2
NOW_MS: Final = 1_800_000_000_000
FIRST, UNCHANGED, FULL, TAIL = "first", "unchanged", "full", "tail"
# Which build is compared with which.
AIMS: Final = {UNCHANGED: FIRST, TAIL: FULL}

LARGE: Final = Shape("2,000 segments of 64 MiB", "batches-16k", 64 * MIB, 5, 400)
SMALL: Final = Shape("20,000 segments of 4 KB", "batches-200", 4_000, 100, 200)
QUICK: Final = Shape("200 segments of 64 MiB", "batches-16k", 64 * MIB, 5, 40)
WANTED: Final = {(LARGE, TAIL): 20.0, (LARGE, UNCHANGED): 10.0}  # required, times faster


class Builds(NamedTuple):
    """The four builds of one archive, in turns: seconds, and the bytes of logs that each read."""

    shape: Shape
    times: dict[str, Times]
    bytes_read: dict[str, int]


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure the archives and return their part of the page."""
    shapes = (QUICK,) if quick else (LARGE, SMALL)
    spark, _seconds = start_session()
    try:
        results = [race(spark, shape, data, rounds=ROUNDS) for shape in shapes]
    finally:
        spark.stop()
    return [Section("Night after night", [*lines(results), "", *notes()], ratios_of(results))]


def race(spark: SparkSession, shape: Shape, data: Path, *, rounds: int) -> Builds:
    """Time the four builds in turns, each round in an index directory of its own."""
    tell(f"{shape.title}: night after night")
    archive = link_archive(shape, data / f"nightly-{shape.segments}")
    seconds: dict[str, list[float]] = {}
    bytes_read: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=data) as scratch:
        partition = next((archive / BROKER).iterdir())
        for build in builds(spark, partition, Path(scratch) / "warm").values():
            build()
        for number in range(rounds):
            for name, build in builds(spark, archive, Path(scratch) / str(number)).items():
                summaries: list[BuildSummary] = []
                took = clocked(lambda build=build, out=summaries: out.append(build()))()
                require_all(name, summaries[0], shape)
                seconds.setdefault(name, []).append(took)
                bytes_read[name] = summaries[0].bytes_read
    total = shape.segments * shape.segment_bytes, shape.segments
    return Builds(shape, {n: Times(s, *total) for n, s in seconds.items()}, bytes_read)


def builds(
    spark: SparkSession, source: Path, scratch: Path
) -> dict[str, Callable[[], BuildSummary]]:
    """Return the four builds by name; the order matters."""
    nights = itertools.count()

    def build(place: str, **settings: Any) -> Callable[[], BuildSummary]:
        return lambda: build_index(
            spark, str(source), str(scratch / place), now_ms=NOW_MS + next(nights), **settings
        )

    return {
        FIRST: build("read"),
        UNCHANGED: build("read"),
        FULL: build("read", full=True),
        TAIL: build("believed", read="tail"),
    }


def require_all(name: str, summary: BuildSummary, shape: Shape) -> None:
    """Raise if a build did not do what its name says: wrong results are not timed."""
    status = "unverified" if name == TAIL else "ok"
    reused = shape.segments if name == UNCHANGED else 0
    right = (
        summary.by_status == {status: shape.segments}
        and summary.reused == reused
        and summary.failed == 0
        and (name != UNCHANGED or summary.bytes_read == 0)
    )
    if not right:
        raise ValueError(f"{shape.title}, {name}: {summary}")


def lines(results: Sequence[Builds]) -> list[str]:
    """Return the table: each build, and the aim if there is one."""
    rows = [
        "| archive | build | seconds | ms a segment | logs read | |",
        "|---|---|---:|---:|---:|---|",
    ]
    for shape, times, bytes_read in results:
        title = shape.title
        for name, own in times.items():
            ms = own.median / shape.segments * 1e3
            read = f"{bytes_read[name] / 1e6:,.1f} MB"
            cells = (f"{own.median:.2f}", f"{ms:.3f}", read, faster(name, times))
            rows.append(f"| {title} | {name} | {' | '.join(cells)} |")
            title = ""
    return rows


def faster(name: str, times: dict[str, Times]) -> str:
    """Return how many times faster it is than which build: the median of the rounds' ratios."""
    if name not in AIMS:
        return ""
    return f"{times_faster(times[name], times[AIMS[name]]):.1f} x *{AIMS[name]}*"


def ratios_of(results: Sequence[Builds]) -> list[Ratio]:
    """Return the required and the measured ratios."""
    titles = {UNCHANGED: "unchanged build", TAIL: "`--read tail`"}
    return [
        Ratio(
            f"{titles[name]}, {shape.title}",
            f"{other} build",
            times_faster(times[name], times[other]),
            at_least=WANTED.get((shape, name)),
        )
        for shape, times, _ in results
        for name, other in AIMS.items()
    ]


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        f"- Medians of {ROUNDS} rounds of all four builds in one session on {CORES} cores whose",
        "  workers are up; Spark's start is not counted, plan and commit are. Warm page cache.",
        "- *first* reads every log and publishes every `.timeindex`; *unchanged* comes right",
        "  after it; *full* is `--full` in the same place; *tail* is `--read tail` into an empty",
        "  catalog, with good `.timeindex` files beside the logs.",
        "- The segments are hard links of a few files, modified long ago.",
    ]
