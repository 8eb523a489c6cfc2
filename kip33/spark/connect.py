"""Spark Connect: the same work per bin and per partition where a session has no RDDs.

Through `mapInArrow`, which is all of Python that Connect runs on executors beside UDFs; it wants
pandas installed (extra `connect`). Results travel as pickles in a binary column. Secrets travel as
a file of the session's artifacts: a plan, and with it a closure, is shown and logged.
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
    """Return whether a session is one of Connect's: no RDDs, no JVM to ask."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once: into so many partitions Spark cuts a range."""
    numbered = spark.range(10_000).select(sf.spark_partition_id().alias("number"))
    return numbered.distinct().count()


def map_bins(
    spark: SparkSession,
    work: Sequence[tuple[int, bytes]],
    run: Callable[[int, bytes], Iterable[Result]],
    settings: Mapping[str, str],
    on_done: Callable[[int], None] | None,
) -> list[Result]:
    """Return what `run(number, data)` gives for each of `work`, one task each, in its order.

    `on_done` is called with the tasks done so far, where the session tells (Spark 4).
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
    """Return a DataFrame of what `run` gives for the rows of each partition, of this schema."""
    handed = _hand_over(rows.sparkSession, settings)
    arrow = to_arrow_schema(schema)

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _take_over(handed)
        given = (row for batch in batches for row in batch.to_pylist())
        for result in run(given):
            one = dict(zip(arrow.names, result, strict=True))
            yield pa.RecordBatch.from_pylist([one], arrow)

    return rows.mapInArrow(run_partition, schema)


def _hand_over(spark: SparkSession, settings: Mapping[str, str]) -> str | None:
    """Send settings to where tasks can read them; return the file's name, None where none are."""
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
    """Let the settings that were sent hold in this worker, and none where none were."""
    use_settings(json.loads(Path(SparkFiles.get(handed)).read_text()) if handed else {})


@contextmanager
def _cut_into(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Let Spark cut rows of the driver's into so many partitions: one bin each."""
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
