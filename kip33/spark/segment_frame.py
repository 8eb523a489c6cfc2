"""An archive as a DataFrame: `read_segments`, and `register` for the data source of a session.

PySpark 3.5 has no data sources in Python. So what needs them is in `spark.segment_source`, which
`register` imports with PySpark 4 only.
"""

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Reading, ReadOptions
from kip33.rules.packing import cost_bytes, pack
from kip33.spark.jobs import cores, cores_to_come
from kip33.spark.store_settings import given_places, is_connect, use_session
from kip33.spark.tasks import arrow_schema, run_in_arrow
from kip33.stores.filesystem_option import Filesystem, StorageOptions, use_storage_options

FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
TASK_BYTES: Final = 128 << 20  # as Spark's own files sources
LEAST_TASK_BYTES: Final = 8 << 20  # less is not shared by more tasks
_PARTS_OF_A_CORE: Final = 4  # with more parts, cores are used evenly without dividing segments
_MOST_MS: Final = (2**63 - 1) // 1000  # a timestamp of Spark is microseconds in 64 bits


def register(
    spark: SparkSession,
    *,
    push_filters: bool = False,
    storage_options: StorageOptions | None = None,
) -> None:
    """Let a session read archives: `spark.read.format("kafka-segments").load(SOURCE)`.

    >>> from pathlib import Path
    >>> register(spark)
    >>> reader = spark.read.format("kafka-segments").option("topic", "orders")
    >>> reader.option("end_offset", 3).load(str(Path("archive").absolute())).count()
    3

    - `push_filters`: let filters of a query choose what is read, too

    Options are those of `kip33.read_arrow` as texts; lists have commas. Columns are chosen by the
    option `columns` or by `.schema("offset long, timestamp timestamp")`. In SQL: `CREATE TEMPORARY
    VIEW orders USING `kafka-segments` OPTIONS (path '...', topic 'orders')`. Options choose what is
    read. Rows have no order. Of a catalog, a large segment may be read by several tasks. A
    timestamp that Spark cannot have becomes its latest one.

    With `push_filters`, comparisons of `topic`, `partition`, `offset` and `timestamp` with
    constants choose, too, if PySpark is 4.1 or later and lets this function set
    `spark.sql.python.filterPushdown.enabled`. Then call `load` for each use in a query: Spark 4.3
    reads a DataFrame that a query uses twice with the filters of one use, and rows are missing.

    If the newest snapshot of a catalog is damaged, an older one is read, with a warning on the
    driver's standard error; with `on_error` "fail" the query fails.

    Tasks use the session's settings of stores as they are now, with `storage_options` (Hadoop's
    keys). Call it again after a change. Raises ValueError for PySpark 3.5 and for a session of
    Spark Connect; `read_segments` supports both.
    """
    if int(pyspark.__version__.partition(".")[0]) < 4:
        raise ValueError(
            f"register: PySpark {pyspark.__version__} found, expected 4.0 or later; use "
            "kip33.spark.read_segments"
        )
    if is_connect(spark):
        raise ValueError(
            "register: a session of Spark Connect found, expected one with a SparkContext; use "
            "kip33.spark.read_segments"
        )
    from kip33.spark.segment_source import SegmentSource, SessionStores  # not with PySpark 3.5

    use_storage_options(storage_options, [])
    facts = {
        "stores": SessionStores.of(spark),
        "cores": max(cores(spark), cores_to_come(spark)),
        "takes_filters": push_filters and _filters_are_pushed(spark),
    }
    spark.dataSource.register(type("SessionSegmentSource", (SegmentSource,), facts))


def read_segments(
    spark: SparkSession,
    source: str | os.PathLike[str],
    *,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Return what `kip33.read_arrow` returns as a DataFrame; arguments and columns are the same.

    >>> read_segments(spark, "archive", topic="orders", end_offset=3).count()
    3

    - `options`: those of `kip33.read_arrow`

    It works with PySpark 3.5 and Spark Connect, too, and needs pandas. The source is listed now;
    its segments are read when the DataFrame is used. Rows have no order. Of a catalog, a large
    segment may be read by several tasks. A filter of the DataFrame does not change what is read;
    options do. A timestamp that Spark cannot have becomes its latest one.

    Raises ValueError for a wrong argument, ImportError without pandas, LocationError if there are
    no segments, CatalogError if the catalog is damaged.
    """
    if find_spec("pandas") is None:
        raise ImportError(
            "read_segments: pandas is not installed, expected 2.2 or later; run pip install "
            "pandas, or use kip33.spark.register"
        )
    reading = Reading.of(**options)
    name, _ = given_places(spark, os.fspath(source), (), storage_options, filesystem)
    use_session(spark)
    most = max(cores(spark), cores_to_come(spark))
    tasks = tasks_of(reading, reading.partitions(name), most)
    work = [pickle.dumps(one) for one in tasks]
    schema = spark_schema(reading)

    def run(data: bytes) -> Iterator[pa.RecordBatch]:
        return rows_of(reading, pickle.loads(data), schema)

    return run_in_arrow(spark, work, run, schema)


def _filters_are_pushed(spark: SparkSession) -> bool:
    """Set what lets filters reach a reader; return whether they will."""
    with suppress(PySparkException):
        spark.conf.set(FILTER_PUSHDOWN, "true")
    return spark.conf.get(FILTER_PUSHDOWN, "false") == "true"


def tasks_of(
    reading: Reading, partitions: Sequence[PartitionSegments], cores: int
) -> list[list[PartitionSegments]]:
    """Return the parts of each task. Large segments are divided if all are few."""
    parts = reading.parts(partitions)
    if parts and len(parts) < _PARTS_OF_A_CORE * cores:
        sizes = _sizes(parts)
        even_bytes = int(sizes.sum()) // _tasks(sizes, cores)
        parts = reading.shared(parts, max(even_bytes, LEAST_TASK_BYTES))
    return bins_of(parts, cores)


def bins_of(parts: Sequence[PartitionSegments], cores: int) -> list[list[PartitionSegments]]:
    """Return the parts of each task: even in bytes, in order."""
    if not parts:
        return []
    sizes = _sizes(parts)
    count = min(_tasks(sizes, cores), len(parts))
    return [[parts[row] for row in rows] for rows in pack(sizes, count)]


def _sizes(parts: Sequence[PartitionSegments]) -> npt.NDArray[np.int64]:
    return np.array([sum(one.listed_bytes for one in part) for part in parts], np.int64)


def _tasks(sizes: npt.NDArray[np.int64], cores: int) -> int:
    """Return how many tasks are worth their start."""
    cost = cost_bytes(sizes)
    return max(-(-cost // TASK_BYTES), min(cores, -(-cost // LEAST_TASK_BYTES)), 1)


def spark_schema(reading: Reading) -> StructType:
    """Return the columns in Spark's types."""
    schema: StructType = from_arrow_schema(reading.schema)
    return schema


def with_schema(reading: Reading, schema: StructType) -> Reading:
    """Return the reading with the columns of a user's schema; ValueError for another column."""
    types = {field.name: field.dataType.simpleString() for field in spark_schema(reading)}
    for field in schema:
        expected, found = types.get(field.name), field.dataType.simpleString()
        if expected is None:
            raise ValueError(
                f"kafka-segments: column {field.name!r} found, expected some of {', '.join(types)}"
            )
        if found != expected:
            raise ValueError(
                f"kafka-segments: column {field.name!r} of type {found} found, expected {expected}"
            )
    return reading.with_columns(schema.names)


def rows_of(
    reading: Reading, parts: Sequence[PartitionSegments], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some parts; a timestamp that Spark cannot have becomes its latest."""
    arrow = arrow_schema(schema)
    for batch in reading.read(parts):
        columns = [_cast(*pair) for pair in zip(batch.columns, arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _cast(column: Any, field: "pa.Field[Any]") -> Any:
    if not pa.types.is_timestamp(field.type):
        return column.cast(field.type)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        in_ms = column.cast(pa.int64())
        above = pc.max_element_wise(in_ms, -_MOST_MS, skip_nulls=False)
        within = pc.min_element_wise(above, _MOST_MS, skip_nulls=False)
        return within.cast(column.type).cast(field.type)
