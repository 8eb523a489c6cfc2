"""Builds over S3 and HDFS against reading the same bytes with the store's client alone.

Servers and clients share this machine's cores, so the ratio counts and not the rate. A build reads,
verifies every CRC, and publishes; the other side only reads, as fast as two processes can.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.compute as pc
from pyarrow import fs

from kip33.archive.listing import list_tree
from kip33.spark.build import build_index
from kip33.stores import settings as store_settings
from kip33.stores.concurrently import LARGE_FILES_AT_ONCE
from kip33.stores.locations import Location
from tests.benchmarks.archives import BROKER, Shape, link_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import segment_name
from tests.benchmarks.whole_job import CORES, start_session
from tests.benchmarks.worker_memory import MOST_MIB, peak_of_builds
from tests.builders.large_segments import filling, write_hollow_segment
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.s3 import S3Server

MIB: Final = 1 << 20
RANGE_BYTES: Final = 8 * MIB
ROUNDS: Final = 2
NOW_MS: Final = 1_800_000_000_000
LARGE: Final = Shape("32 segments of 64 MiB", "batches-16k", 64 * MIB, 4, 8)
SMALL: Final = Shape("400 segments of 64 KiB", "batches-16k", 64 << 10, 20, 20)
S3, HDFS = "S3 (versitygw)", "HDFS"
MOST_MS: Final = {S3: 2.5, HDFS: 6.0}  # for each of the small segments


class Store(NamedTuple):
    """A running server and the settings to reach it."""

    name: str
    uri: str
    settings: dict[str, str]


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page."""
    rows, ratios = [], []
    for shape in (LARGE, SMALL):
        archive = link_archive(shape, data / f"remote-{shape.segments}")
        for start in (in_s3, in_hdfs):
            with start(archive) as store:
                tell(f"{shape.title} in {store.name}")
                row, of_store = measure(shape, store)
                rows.append(row)
                ratios += of_store
                tell(row)
    head = [
        "| archive | store | build | reading alone | build's share | listing | unchanged build |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    rows.append("")
    for store, peak in peaks(data / "remote-hollow"):
        what = f"builds {LARGE_FILES_AT_ONCE} segments of 256 MiB at once over {store}"
        rows.append(f"- Most that is resident of a process that {what}: {peak:.0f} MiB.")
        ratios.append(Ratio(f"memory of a worker, {store}", "", peak, "MiB", at_least=MOST_MIB))
    return [Section("Remote stores", [*head, *rows, *notes()], ratios)]


def peaks(archive: Path) -> Iterator[tuple[str, float]]:
    """Yield the peak resident MiB of a process that builds large segments concurrently."""
    for number in range(LARGE_FILES_AT_ONCE):
        log = archive / BROKER / f"large-{number}" / segment_name()
        log.parent.mkdir(parents=True, exist_ok=True)
        write_hollow_segment(log, filling(256 * MIB, 64 << 10))
    for start in (in_s3, in_hdfs):
        with start(archive) as store:
            tell(f"memory of a worker, {store.name}")
            yield store.name, peak_of_builds(f"{store.uri}/logs", store.settings) / MIB
    shutil.rmtree(archive)


def measure(shape: Shape, store: Store) -> tuple[str, list[Ratio]]:
    """Return a row and its ratios: the best of several rounds in turns."""
    store_settings.use_settings(store.settings)
    source = f"{store.uri}/logs"
    begin = time.perf_counter()
    listing = list_tree(Location.of(source))
    listed = time.perf_counter() - begin
    total = pc.sum(listing.table["size_bytes"]).as_py()
    places = [segment.log(Location.of(source)).uri for segment in listing.segments()]
    spark, _ = start_session()
    for key, value in store.settings.items():
        spark._jsc.hadoopConfiguration().set(key, value)
    built, read, unchanged = [], [], []
    try:
        build_index(spark, source, f"{store.uri}/warm", now_ms=NOW_MS)
        with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
            halves = [(places[number::CORES], store.settings) for number in range(CORES)]
            list(pool.map(read_all, [([], store.settings)] * CORES))  # imports
            for number in range(ROUNDS):
                begin = time.perf_counter()
                assert sum(pool.map(read_all, halves)) == total
                read.append(time.perf_counter() - begin)
                indexes = f"{store.uri}/indexes-{number}"
                begin = time.perf_counter()
                build_index(spark, source, indexes, now_ms=NOW_MS)
                built.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                assert build_index(spark, source, indexes, now_ms=NOW_MS).indexed == 0
                unchanged.append(time.perf_counter() - begin)
    finally:
        spark.stop()
    build_s, read_s = min(built), min(read)
    work = f"build over {store.name}, {shape.title}"
    ratios = [Ratio(work, "reading the same bytes alone", 100 * read_s / build_s, "%")]
    if shape is SMALL:
        each_ms = 1e3 * build_s / shape.segments
        ratios.append(Ratio(f"{work}, each", "", each_ms, "ms", MOST_MS[store.name]))
    row = (
        f"| {shape.title} | {store.name} | {build_s:.1f} s, {total / build_s / MIB:,.0f} MiB/s "
        f"| {read_s:.1f} s, {total / read_s / MIB:,.0f} MiB/s | {read_s / build_s:.0%} "
        f"| {listed:.2f} s | {min(unchanged):.2f} s |"
    )
    return row, ratios


def read_all(work: tuple[list[str], dict[str, str]]) -> int:
    """Return the bytes of these files, read one after another by the store's client alone."""
    places, settings = work
    store_settings.use_settings(settings)
    count = 0
    for uri in places:
        place = Location.of(uri)
        with place.filesystem().open_input_file(place.path) as file:
            while data := file.read(RANGE_BYTES):
                count += len(data)
    return count


@contextmanager
def in_s3(archive: Path) -> Iterator[Store]:
    """Serve the archive from a bucket."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="kip33-bench-")))
        server = undo.enter_context(S3Server(folder))
        shutil.copytree(archive, server.make_bucket("archive") / "logs")
        yield Store(
            S3,
            "s3a://archive",
            {
                "fs.s3a.endpoint": f"http://{server.endpoint}",
                "fs.s3a.access.key": server.access_key,
                "fs.s3a.secret.key": server.secret_key,
            },
        )


@contextmanager
def in_hdfs(archive: Path) -> Iterator[Store]:
    """Serve the archive from HDFS."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="kip33-bench-")))
        server = undo.enter_context(HdfsServer(folder))
        store_settings.use_settings(server.client_options)
        target = Location.of(f"{server.uri}/logs").filesystem()
        for partition in sorted((archive / BROKER).iterdir()):
            target.create_dir(f"/logs/{BROKER}/{partition.name}", recursive=True)
        fs.copy_files(
            str(archive),
            "/logs",
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=target,
        )
        yield Store(HDFS, server.uri, server.client_options)


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- *Reading alone*: two processes, ranges of 8 MiB, the store's client as the build uses",
        "  it (pyarrow, hdfs-native), nothing looked at; the server is on this machine, too.",
        "- *Build* is listing, reading, every CRC, a `.timeindex` each, and the catalog, on Spark",
        f"  with {CORES} cores in a session that is up; best of {ROUNDS} rounds in turns.",
        "- Small segments are a matter of requests: a build makes three a segment, reading two.",
    ]
