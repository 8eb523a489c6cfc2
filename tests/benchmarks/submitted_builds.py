"""Builds by spark-submit, beyond what spark-submit itself takes: unchanged ones and first ones.

`spark-submit` starts a JVM, which starts Python. A submitted file without a line of code takes the
same, so the difference is what kip33 adds. A build with nothing to do starts no SparkContext. First
builds take turns with `kip33 build` on the local engine: what Spark costs for the same work.
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.local_builds import build_locally
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns
from tests.benchmarks.whole_commands import MANY, WORKERS, demo_archive
from tests.integration.servers.spark import SPARK_HOME

ROUNDS: Final = 5
JOB: Final = Path(__file__).parents[2] / "jobs" / "run_kip33.py"
NOTHING: Final = "a file without code"
SMALL: Final = "24 segments"
AT_MOST_S: Final = {SMALL: 1.0}
FIRST: Final = (
    Shape("5,000 segments of 40 KiB", "batches-200", 40 << 10, 100, 50),
    Shape("50 segments of 256 MiB", "batches-16k", 256 << 20, 5, 10),
)
FIRST_ROUNDS: Final = 3


class Submitted(NamedTuple):
    """An archive and its index directory, in which a build finds nothing to do."""

    title: str
    segments: int
    archive: Path
    indexes: Path


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page; nothing if `quick`, as it takes a minute."""
    if quick:
        return []
    with TemporaryDirectory(prefix="scratch-", dir=data) as folder:
        scratch = Path(folder)
        nothing = scratch / "nothing.py"
        nothing.touch()
        submitted = small(scratch), many(data, scratch)
        contestants = {NOTHING: partial(submit, nothing)}
        for one in submitted:
            tell(f"spark-submit of an unchanged build, {one.title}")
            submit_build(one)
            require_nothing_to_do(one)
            contestants[one.title] = partial(submit_build, one)
        times = take_turns(
            {name: Contestant(clocked(run), 1, 1) for name, run in contestants.items()},
            rounds=ROUNDS,
        )
    ratios = [
        Ratio(
            f"unchanged build by `spark-submit`, {one.title}",
            "spark-submit's own time",
            beyond(times[one.title], times[NOTHING]),
            "s",
            AT_MOST_S.get(one.title),
        )
        for one in submitted
    ]
    first = [first_builds(data, shape) for shape in FIRST]
    ratios += [ratio for one in first for ratio in ratios_of(one)]
    tables = [line for one in first for line in ("", *lines(one.times))]
    return [Section("Builds by spark-submit", [*lines(times), *tables, "", *notes()], ratios)]


class FirstBuilds(NamedTuple):
    """Rounds of first builds of one archive, by the titles of `first_builds`."""

    title: str
    times: dict[str, Times]


def first_builds(data: Path, shape: Shape) -> FirstBuilds:
    """Measure first builds of an archive into new directories, on both engines."""
    tell(f"spark-submit of a first build, {shape.title}")
    archive = link_archive(shape, data / f"submitted-{shape.segments}")
    with TemporaryDirectory(prefix="scratch-", dir=data) as folder:
        scratch, places = Path(folder), (Path(folder) / str(n) for n in itertools.count())
        nothing = scratch / "nothing.py"
        nothing.touch()

        def locally(place: Path) -> None:
            build_locally(archive, place, shape.segments, workers=WORKERS)

        def by_submit(place: Path) -> None:
            submit_build(Submitted(shape.title, shape.segments, archive, place))

        contestants = {
            NOTHING: clocked(partial(submit, nothing)),
            f"first build, {shape.title}": in_new_places(by_submit, places),
            f"{shape.title}, `kip33 build`, local": in_new_places(locally, places),
        }
        runs = {name: Contestant(run, 1, 1) for name, run in contestants.items()}
        return FirstBuilds(shape.title, take_turns(runs, rounds=FIRST_ROUNDS))


def in_new_places(build: Callable[[Path], None], places: Iterator[Path]) -> Callable[[], float]:
    """Return a timed build into the next place, which is removed afterwards."""

    def run() -> float:
        place = next(places)
        os.sync()
        took = clocked(partial(build, place))()
        shutil.rmtree(place)
        return took

    return run


def ratios_of(first: FirstBuilds) -> Iterator[Ratio]:
    """Yield what Spark takes of the local engine's time, beyond spark-submit's own."""
    nothing, submitted, local = first.times.values()
    rounds = zip(submitted.seconds, nothing.seconds, local.seconds, strict=True)
    share = statistics.median((mine - own) / theirs for mine, own, theirs in rounds)
    yield Ratio(
        f"first build by `spark-submit`, {first.title}, beyond spark-submit's own time",
        "`kip33 build`, 2 local workers",
        share,
        "times",
        1.2,
    )


def small(scratch: Path) -> Submitted:
    """Return the archive of `make demo`; a first build is yet to come."""
    return Submitted(SMALL, 24, demo_archive(scratch / "demo"), scratch / "demo-indexes")


def many(data: Path, scratch: Path) -> Submitted:
    """Return the archive of many segments, built once."""
    archive = link_archive(MANY, data / f"nightly-{MANY.segments}")
    build_locally(archive, scratch / "many", MANY.segments, workers=WORKERS)
    return Submitted(MANY.title, MANY.segments, archive, scratch / "many")


def submit(script: Path, *arguments: object) -> None:
    """Run a script to its end by spark-submit."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", script, *map(str, arguments)],
        env=os.environ | python | {"SPARK_HOME": str(SPARK_HOME)},
        capture_output=True,
        check=True,
    )


def submit_build(one: Submitted, *options: object) -> None:
    """Build by spark-submit, as a scheduler does."""
    submit(JOB, "build", one.archive, "--index-dir", one.indexes, *options)


def require_nothing_to_do(one: Submitted) -> None:
    """Raise if a build on Spark reads a segment or starts an executor."""
    file = one.indexes.with_suffix(".json")
    submit_build(one, "--summary", file)
    summary = json.loads(file.read_text())
    done = summary["reused"], summary["indexed"], summary["workers"], summary["engine"]
    if done != (one.segments, 0, 0, "spark"):
        raise ValueError(f"{one.title}: {summary}")


def beyond(build: Times, nothing: Times) -> float:
    """Return the median of the differences, round by round."""
    pairs = zip(build.seconds, nothing.seconds, strict=True)
    return statistics.median(mine - own for mine, own in pairs)


def lines(times: dict[str, Times]) -> list[str]:
    """Return the table."""
    return [
        "| submitted | median | all rounds |",
        "|---|---:|---|",
        *(
            f"| {name} | {own.median:.2f} s | {seconds_of(own.seconds)} |"
            for name, own in times.items()
        ),
    ]


def seconds_of(seconds: Sequence[float]) -> str:
    """Return the seconds in increasing order."""
    return ", ".join(f"{one:.2f}" for one in sorted(seconds))


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- `spark-submit` in client mode, from its start to its end, in turns. The ratio is the",
        f"  median of the differences to *{NOTHING}* in the same round.",
        "- The archives of unchanged builds are those of the complete commands. First builds of",
        f"  the others take turns in new directories, {FIRST_ROUNDS} rounds after one that is not",
        "  counted.",
    ]
