"""How cost grows: with segments, cores and workers."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

from pyspark.sql import SparkSession

from kip33.spark.build import build_index
from kip33.spark.session import create_session
from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.large_jobs import builder
from tests.benchmarks.local_builds import build_locally
from tests.benchmarks.page import Curves, Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.timing import clocked
from tests.benchmarks.whole_job import start_session
from tests.integration.servers.spark import SparkCluster

MIB: Final = 1 << 20
NOW_MS: Final = 1_800_000_000_000
BEST_OF: Final = 3
SEGMENTS: Final = (100, 1_000, 10_000, 100_000)
SCALED: Final = Shape("64 segments of 64 MiB", "batches-16k", 64 * MIB, 4, 16)
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
LOCAL: Final = "workers of the local engine"
WORK: Final = {LOCAL: "`kip33 build`"}
Curve = list[tuple[float, float]]


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all curves and return their part of the page."""
    folder = data / "growth"
    folder.mkdir(exist_ok=True)
    spark, _seconds = start_session()
    try:
        # One folder for all index files: their inodes are free again only after all builds.
        with TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
            panels = list(with_segments(spark, folder, Path(scratch)))
    finally:
        spark.stop()
    scaled = with_cores(folder)
    panels.append(scaled)
    ratios = [
        Ratio(f"{WORK.get(name, 'whole Spark job')}, {SCALED.title}, {name}", "one", one / two)
        for name, ((_, one), (_, two)) in scaled.points.items()
    ]
    return [Section("How cost grows", [*lines(panels), *notes()], ratios, panels)]


def with_segments(spark: SparkSession, folder: Path, scratch: Path) -> Iterator[Curves]:
    """Yield seconds by number of small segments, in directories of up to a hundred."""
    shapes = [
        Shape(f"{count:,} segments of 4 KB", "batches-200", 4_000, 100, count // 100)
        for count in SEGMENTS
    ]
    points = nights(spark, folder, scratch, shapes)
    yield Curves("segments of 4 KB", "segments", "seconds", points)


def nights(
    spark: SparkSession,
    folder: Path,
    scratch: Path,
    shapes: Sequence[Shape],
) -> dict[str, Curve]:
    """Return seconds of a first build and of an unchanged one for each shape, on both engines."""
    curves: dict[str, Curve] = {}
    for shape in shapes:
        tell(f"growth: {shape.title}")
        archive = link_archive(shape, folder / f"{shape.files}-{shape.partitions}")
        for name, seconds in seconds_of_nights(spark, shape, archive, scratch).items():
            curves.setdefault(name, []).append((shape.segments, seconds))
    return curves


def seconds_of_nights(
    spark: SparkSession, shape: Shape, archive: Path, scratch: Path
) -> dict[str, float]:
    """Return the seconds of each build of one archive."""
    place = Path(mkdtemp(dir=scratch))
    job = partial(build_index, spark, str(archive), str(place / "spark"), now_ms=NOW_MS)
    one, two = (
        partial(build_locally, archive, place / f"local-{n}", shape.segments, workers=n)
        for n in (1, 2)
    )
    return {
        "first, Spark": clocked(job)(),
        "unchanged, Spark": min(clocked(job)() for _ in range(2)),
        "first, local, 1 worker": clocked(one)(),
        "first, local, 2 workers": clocked(two)(),
        "unchanged, local": min(clocked(two)() for _ in range(2)),
    }


def with_cores(folder: Path) -> Curves:
    """Return seconds of one build on one and two cores: in a session, a cluster, and locally."""
    archive = link_archive(SCALED, folder / "scaled")
    names = "cores of one machine", "workers of a cluster", LOCAL
    points: dict[str, Curve] = {name: [] for name in names}
    for number in (1, 2):
        tell(f"growth: {number} cores, {number} workers")
        with TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
            with session(f"local[{number}]") as spark:
                points["cores of one machine"].append(
                    (number, seconds_of_job(spark, archive, Path(scratch, "local")))
                )
            logs = Path(scratch, "logs")
            hosts = HOSTS[:number]
            with (
                SparkCluster(logs, hosts=hosts, cores=1, has_kip33=True) as cluster,
                session(cluster.master) as spark,
            ):
                points["workers of a cluster"].append(
                    (number, seconds_of_job(spark, archive, Path(scratch, "cluster")))
                )
            points[LOCAL].append((number, seconds_of_command(archive, Path(scratch), number)))
    return Curves(f"whole job, {SCALED.title}", "cores or workers", "seconds", points)


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """Run a session on this master."""
    spark = create_session(master=master)
    try:
        yield spark
    finally:
        spark.stop()


def seconds_of_job(spark: SparkSession, archive: Path, folder: Path) -> float:
    """Return the best time of a complete build into a new directory, in a warm session."""
    build = builder(spark, archive, SCALED)
    places = itertools.count()
    build(folder / "warm")
    return min(clocked(lambda: build(folder / str(next(places))))() for _ in range(BEST_OF))


def seconds_of_command(archive: Path, folder: Path, workers: int) -> float:
    """Return the best time of `kip33 build` into a new directory, from its start to its end."""
    places = (folder / f"command-{number}" for number in itertools.count())

    def run() -> None:
        build_locally(archive, next(places), SCALED.segments, workers=workers)

    return min(clocked(run)() for _ in range(BEST_OF))


def lines(panels: Sequence[Curves]) -> list[str]:
    """Return every point, in one table per panel."""
    rows = []
    for panel in panels:
        names = list(panel.points)
        rows += [f"| {panel.x}, {panel.title} | {' | '.join(names)} |"]
        rows += [f"|---:|{'---:|' * len(names)}"]
        for points in zip(*panel.points.values(), strict=True):
            seconds = " | ".join(f"{y:.3g} s" for _, y in points)
            rows.append(f"| {points[0][0]:,.0f} | {seconds} |")
        rows.append("")
    return rows


def notes() -> list[str]:
    """Return an explanation of the engines."""
    return [
        "- *Spark*, *cores of one machine*, *workers of a cluster*: jobs in a session that is up,",
        "  its start not counted. *local*: `kip33 build` from the start of its process to its end.",
    ]
