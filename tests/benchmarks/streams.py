"""Records by a stream against the same records by the batch reader, in a session of two cores.

Both leave the rows to Spark's `noop` sink. The worker that plans a stream is started once for each
query: its seconds are a column of their own, and not part of the ratio.
"""

import json
import random
import shutil
import struct
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import kip33
from kip33.spark import register
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.records import START_MS
from tests.benchmarks.timing import Contestant, clocked, take_turns, times_faster
from tests.benchmarks.whole_job import start_session
from tests.builders.segment_builder import Record, v2_batch

ROUNDS: Final = 5
BATCHES, RECORDS = 6_000, 150  # of a segment: 110 MB
SEGMENTS, QUICK_SEGMENTS = 32, 8
COLUMNS: Final = "partition, offset, timestamp, key, value"
LEAST: Final = 0.9
BATCH, STREAM = "batch reader", "stream"


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Race on one archive; return this part of the page."""
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    spark, _ = start_session()
    try:
        register(spark)
        return [race(spark, scratch, QUICK_SEGMENTS if quick else SEGMENTS)]
    finally:
        spark.stop()
        shutil.rmtree(scratch)


def race(spark: SparkSession, folder: Path, segments: int) -> Section:
    records = segments * BATCHES * RECORDS
    tell(f"{records / 1e6:.1f} M records by a stream and by a query")
    size_bytes = write_archive(folder / "archive", segments)
    kip33.build_index(folder / "archive", folder / "indexes", offset_index=True)
    catalog = str(folder / "indexes/_catalog")
    starts: list[float] = []
    contestants = {
        BATCH: Contestant(clocked(partial(by_query, spark, catalog)), size_bytes, records),
        STREAM: Contestant(lambda: by_stream(spark, catalog, folder, starts), size_bytes, records),
    }
    times = take_turns(contestants, rounds=ROUNDS)
    speed = {name: found.million_batches_per_second for name, found in times.items()}
    lines = [
        "| million records a second | stream | batch reader | start of a stream (s) |",
        "|---|---|---|---|",
        f"| {COLUMNS} | {speed[STREAM]:.2f} | {speed[BATCH]:.2f} | {min(starts):.1f} |",
    ]
    faster = times_faster(times[STREAM], times[BATCH])
    return Section("Records by a stream", lines, [Ratio(STREAM, BATCH, faster, at_least=LEAST)])


def write_archive(folder: Path, segments: int) -> int:
    """Write a partition with these segments; return its bytes."""
    values = random.Random(33)
    sent = [
        Record(START_MS + number, b"customer-%08d" % number, values.randbytes(80))
        for number in range(RECORDS)
    ]
    rest = v2_batch(0, sent)[8:]
    partition = folder / "orders-0"
    partition.mkdir(parents=True)
    for first in range(0, segments * BATCHES * RECORDS, BATCHES * RECORDS):
        offsets = range(first, first + BATCHES * RECORDS, RECORDS)
        log = b"".join(struct.pack(">q", offset) + rest for offset in offsets)
        (partition / f"{first:020d}.log").write_bytes(log)
    return segments * BATCHES * (len(rest) + 8)


def by_query(spark: SparkSession, catalog: str) -> None:
    reader = (
        spark.read.format("kafka-segments").option("on_error", "row").option("columns", COLUMNS)
    )
    reader.load(catalog).write.format("noop").mode("overwrite").save()


def by_stream(spark: SparkSession, catalog: str, folder: Path, starts: list[float]) -> float:
    """Return the seconds of the stream's batches; those before them go to `starts`."""
    checkpoint = tempfile.mkdtemp(dir=folder)
    begin = time.perf_counter()
    stream = spark.readStream.format("kafka-segments").option("columns", COLUMNS).load(catalog)
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [json.loads(one.json) for one in query.recentProgress]
    took = sum(one["durationMs"]["triggerExecution"] for one in batches) / 1e3
    starts.append(time.perf_counter() - begin - took)
    return took
