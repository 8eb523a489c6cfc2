"""Spark Connect: the same work per bin and per partition in a session without RDDs.

It uses `mapInArrow`, which besides UDFs is the only way to run Python on executors with Connect. It
needs pandas (extra `connect`). Results are sent as pickles in a binary column. Secrets are sent as
a file of the session's artifacts, because plans with their closures are displayed and logged.
"""

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kip33.stores.settings import use_settings

Result = TypeVar("Result")

_PARTITIONS: Final = "spark.sql.leafNodeDefaultParallelism"
_RESULT: Final = "result binary"


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Connect session, without RDDs and JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once: the number of partitions of a range in Spark."""
    numbered = spark.range(10_000).select(sf.spark_partition_id().alias("number"))
    return numbered.distinct().count()


def map_bins(
    spark: SparkSession,
    work: Sequence[tuple[int, bytes]],
    run: Callable[[int, bytes], Iterable[Result]],
    settings: Mapping[str, str],
    on_done: Callable[[int], None] | None,
) -> list[Result]:
    """Return the results of `run(number, data)` for each of `work`, one task each, in order.

    `on_done` is called with the number of finished tasks, if the session reports it (Spark 4).
    """
    handed = _hand_over(spark, settings)

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _take_over(handed)
        for batch in batches:
            for one in batch.to_pylist():
                for result in run(one["number"], one["data"]):
                    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})

    with _cut_into(spark, len(work)), _progress(spark, on_done):
        bins = spark.createDataFrame(list(work), "number int, data binary")
        rows = bins.mapInArrow(run_partition, _RESULT).collect()
    return [pickle.loads(row.result) for row in rows]


def map_rows(
    rows: DataFrame,
    run: Callable[[Iterable[dict[str, Any]]], Iterable[Sequence[Any]]],
    schema: StructType,
    settings: Mapping[str, str],
) -> DataFrame:
    """Return a DataFrame, with this schema, of the results of `run` for each partition's rows."""
    handed = _hand_over(rows.sparkSession, settings)
    arrow = to_arrow_schema(schema)

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _take_over(handed)
        given = (row for batch in batches for row in batch.to_pylist())
        for result in run(given):
            one = dict(zip(arrow.names, result, strict=True))
            yield pa.RecordBatch.from_pylist([one], arrow)

    return rows.mapInArrow(run_partition, schema)


def map_in_arrow(
    spark: SparkSession,
    work: Sequence[bytes],
    run: Callable[[bytes], Iterable[pa.RecordBatch]],
    schema: StructType,
    settings: Mapping[str, str],
) -> DataFrame:
    """Return a DataFrame, with this schema, of the batches of `run` for each of `work`."""
    handed = _hand_over(spark, settings)

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _take_over(handed)
        for batch in batches:
            for one in batch.to_pylist():
                yield from run(one["data"])

    bins = spark.createDataFrame(list(enumerate(work)), "number int, data binary")
    shared = bins.repartitionByRange(max(1, len(work)), "number")
    return shared.mapInArrow(run_partition, schema)


def _hand_over(spark: SparkSession, settings: Mapping[str, str]) -> str | None:
    """Send settings to the tasks in a file; return its name, None without settings."""
    if not settings:
        return None
    name = f"kip33-{uuid4().hex}.json"
    with tempfile.TemporaryDirectory(prefix="kip33-") as folder:
        file = Path(folder) / name
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(dict(settings), stream)
        spark.addArtifacts(str(file), file=True)
    return name


def _take_over(handed: str | None) -> None:
    """Apply the settings that were sent to this worker, or no settings."""
    use_settings(json.loads(Path(SparkFiles.get(handed)).read_text()) if handed else {})


@contextmanager
def _cut_into(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Make Spark split rows of the driver into this number of partitions, one per bin."""
    before = spark.conf.get(_PARTITIONS, None)
    spark.conf.set(_PARTITIONS, str(partitions))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_PARTITIONS)
        else:
            spark.conf.set(_PARTITIONS, before)


@contextmanager
def _progress(spark: SparkSession, on_done: Callable[[int], None] | None) -> Iterator[None]:
    if on_done is None or not hasattr(spark, "registerProgressHandler"):
        yield
        return

    def tell(stages: Any, **_: Any) -> None:
        on_done(sum(stage.num_completed_tasks for stage in stages or ()))

    handler: Any = tell
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
