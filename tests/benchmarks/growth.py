"""How cost grows with segments, on both engines."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

from pyspark.sql import SparkSession

from kip33.spark.build import build_index
from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.local_builds import build_locally
from tests.benchmarks.page import Curves, Section, tell
from tests.benchmarks.timing import clocked
from tests.benchmarks.whole_job import start_session

NOW_MS: Final = 1_800_000_000_000
SEGMENTS: Final = (100, 1_000, 10_000, 100_000)
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
    return [Section("How cost grows", [*lines(panels), *notes()], [], panels)]


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
        "- *Spark*: jobs in a session that is up, its start not counted. *local*: `kip33 build`,",
        "  from the start of its process to its end.",
    ]
