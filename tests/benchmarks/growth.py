"""How cost grows: with segments, their size, their batches, partitions, cores and workers."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import SparkSession

from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.spark.build import build_index
from kip33.spark.session import create_session
from kip33.stores.locations import Location
from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.large_jobs import builder
from tests.benchmarks.page import Curves, Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import V2_LAYOUT, Kind, full_batch, write_segment
from tests.benchmarks.timing import clocked
from tests.benchmarks.whole_job import start_session
from tests.builders.segment_builder import Record, v2_batch
from tests.integration.servers.spark import SparkCluster

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NOW_MS: Final = 1_800_000_000_000
BEST_OF: Final = 3
SEGMENTS: Final = (100, 1_000, 10_000, 100_000)
SEGMENT_BYTES: Final = (MIB, 16 * MIB, 256 * MIB, GIB, 2 * GIB - 1)
BATCH_BYTES: Final = (100, KIB, 10 * KIB, 100 * KIB, MIB, 10 * MIB)
BATCHES_SEGMENT_BYTES: Final = 256 * MIB
PARTITIONS: Final = (1, 10, 100, 1_000, 10_000)
SEGMENTS_IN_PARTITIONS: Final = 10_000
SCALED: Final = Shape("64 segments of 64 MiB", "batches-16k", 64 * MIB, 4, 16)
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
Curve = list[tuple[float, float]]


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all curves and return their part of the page."""
    folder = data / "growth"
    folder.mkdir(exist_ok=True)
    spark, _seconds = start_session()
    try:
        panels = [*with_segments(spark, folder), *with_partitions(spark, folder)]
    finally:
        spark.stop()
    panels += [*with_size(folder), *with_batches(folder)]
    scaled = with_cores(folder)
    panels.append(scaled)
    ratios = [
        Ratio(f"whole Spark job, {SCALED.title}, {name}", "one", one / two)
        for name, ((_, one), (_, two)) in scaled.points.items()
    ]
    return [Section("How cost grows", lines(panels), ratios, panels)]


def with_segments(spark: SparkSession, folder: Path) -> Iterator[Curves]:
    """Yield seconds by number of small segments, in directories of up to a hundred."""
    shapes = [
        Shape(f"{count:,} segments of 4 KB", "batches-200", 4_000, 100, count // 100)
        for count in SEGMENTS
    ]
    points = nights(spark, folder, shapes, lambda shape: shape.segments)
    yield Curves("segments of 4 KB", "segments", "seconds", points)


def with_partitions(spark: SparkSession, folder: Path) -> Iterator[Curves]:
    """Yield seconds by number of partitions, with the same number of segments in total."""
    shapes = [
        Shape(f"{count:,} partitions", "batches-200", 4_000, SEGMENTS_IN_PARTITIONS // count, count)
        for count in PARTITIONS
    ]
    points = nights(spark, folder, shapes, lambda shape: shape.partitions)
    title = f"{SEGMENTS_IN_PARTITIONS:,} segments of 4 KB in partitions"
    yield Curves(title, "partitions", "seconds", points)


def nights(
    spark: SparkSession, folder: Path, shapes: Sequence[Shape], x: Callable[[Shape], int]
) -> dict[str, Curve]:
    """Return seconds of a first build and of an unchanged one for each shape."""
    first: Curve = []
    unchanged: Curve = []
    for shape in shapes:
        tell(f"growth: {shape.title}")
        archive = link_archive(shape, folder / f"{shape.files}-{shape.partitions}")
        with TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
            build = partial(build_index, spark, str(archive), scratch, now_ms=NOW_MS)
            first.append((x(shape), clocked(build)()))
            unchanged.append((x(shape), min(clocked(build)() for _ in range(2))))
    return {"first build": first, "unchanged build": unchanged}


def with_size(folder: Path) -> Iterator[Curves]:
    """Yield seconds by size of one segment, path to index, one thread."""
    kind = Kind("growing-16k", "", GIB, V2_LAYOUT, *full_batch(16 * KIB))
    curve = []
    for size_bytes in SEGMENT_BYTES:
        tell(f"growth: a segment of {size_bytes / MIB:,.0f} MiB")
        log = write_segment(kind, folder, size_bytes=size_bytes).path
        curve.append((size_bytes / MIB, seconds_to_index(log)))
    log.unlink()
    yield Curves("one segment, 16 KiB batches", "MiB", "seconds", {"path to index": curve})


def with_batches(folder: Path) -> Iterator[Curves]:
    """Yield seconds per GiB by size of batch."""
    curve = []
    for batch_bytes in BATCH_BYTES:
        tell(f"growth: batches of {batch_bytes:,} bytes")
        log = write_segment(kind_of(batch_bytes), folder, size_bytes=BATCHES_SEGMENT_BYTES).path
        seconds = seconds_to_index(log) * GIB / log.stat().st_size
        curve.append((float(batch_bytes), seconds))
        log.unlink()
    title = "one segment, by size of batch"
    yield Curves(title, "bytes a batch", "seconds a GiB", {"path to index": curve})


def kind_of(batch_bytes: int) -> Kind:
    """Return a kind with batches of about this size, with records of 100 bytes or one record."""
    name = f"growing-{batch_bytes}"
    if batch_bytes >= KIB:
        return Kind(name, "", GIB, V2_LAYOUT, *full_batch(batch_bytes))
    room = batch_bytes - len(v2_batch(0, [Record(0)], crc=0))

    def one_record(chance: random.Random) -> bytes:
        return v2_batch(0, [Record(0, value=chance.randbytes(room))], crc=0)

    return Kind(name, "", GIB, V2_LAYOUT, 1, one_record)


def seconds_to_index(log: Path) -> float:
    """Return the best time from a log to its indexes, read and checked to the last byte."""

    def run() -> None:
        settings = IndexSettings()
        index = index_file(
            Location.of(log), base_offset=0, topic="t", settings=settings, native=True
        )
        if index.status != "ok":
            raise ValueError(f"{log}: {index.error}")

    run()
    return min(clocked(run)() for _ in range(BEST_OF))


def with_cores(folder: Path) -> Curves:
    """Return seconds of one job on one and two cores, in a session and on a cluster's workers."""
    archive = link_archive(SCALED, folder / "scaled")
    points: dict[str, Curve] = {"cores of one machine": [], "workers of a cluster": []}
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
