"""An archive as a DataFrame: `read_segments`, and `register` for the data source of a session.

PySpark 3.5 has no data sources in Python. So what needs them is in `spark.segment_source`, which
`register` imports with PySpark 4 only.
"""

import pathlib
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Final, Unpack

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kip33.archive import common_options as common
from kip33.options import Path, picked, takes
from kip33.records.partitions import places_of, source_at
from kip33.records.reading import Reading, ReadOptions
from kip33.spark.jobs import cores, cores_to_come
from kip33.spark.segment_tasks import rows_of, spark_schema, tasks_of
from kip33.spark.store_settings import SessionStores, given_places
from kip33.spark.tasks import run_in_arrow
from kip33.stores.filesystem_option import StorageOptions, use_storage_options

FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(
    spark: SparkSession,
    *,
    push_filters: bool = False,
    storage_options: StorageOptions | None = None,
) -> None:
    """Let a session read archives: `spark.read.format("kafka-segments").load(SOURCE)`.

    >>> register(spark)
    >>> reader = spark.read.format("kafka-segments").option("topic", "orders")
    >>> reader.option("end_offset", 3).load("archive").count()
    3

    - `push_filters`: let filters of a query choose what is read, too

    **Name the columns you need.** Spark 4.3 does not leave out columns of a Python source: with
    `columns` and without `headers` a query is 1.3 to 2.6 times faster.

    Options are those of `kip33.read_arrow` as texts; lists have commas. Columns are chosen by the
    option `columns` or by `.schema("offset long, timestamp timestamp")`. With tiered storage,
    `load` one catalog and give that of the other tier as `remote`. In SQL: `CREATE TEMPORARY
    VIEW orders USING `kafka-segments` OPTIONS (path '...', topic 'orders')`. Options choose what is
    read. Rows have no order. Of a catalog, a large segment may be read by several tasks. A
    timestamp that Spark cannot have becomes its latest one.

    A stream (`readStream`) takes a catalog and the same options; `kip33.spark.segment_stream` says
    what it does with them.

    A relative path is below the folder in which this is called. Where the wheel is installed, Spark
    finds the source by itself (package `pyspark_kip33`): then call this only for `push_filters`,
    relative paths with Spark Connect, or settings of stores, because without it each worker uses
    those of its machine (environment, `spark-defaults.conf`, role).

    With `push_filters`, comparisons of `topic`, `partition`, `offset` and `timestamp` with
    constants choose, too, if PySpark is 4.1 or later and lets this function set
    `spark.sql.python.filterPushdown.enabled`. Then call `load` for each use: Spark 4.3 reads a
    DataFrame that was used before with the filters of that use, and rows are missing.

    If the newest snapshot of a catalog is damaged, the query fails; with `on_error` "row" or "skip"
    an older one is read, with a warning on the driver's standard error.

    Tasks use the session's settings of stores as they are now, with `storage_options` (Hadoop's
    keys). Call it again after a change. A session of Spark Connect does not return
    `fs.s3a.access.key` and `secret.key` from 4.3 on: give them as `storage_options`. Raises
    ValueError for PySpark 3.5, which has no Python sources; `read_segments` supports it.
    """
    if int(pyspark.__version__.partition(".")[0]) < 4:
        raise ValueError(
            f"register: PySpark {pyspark.__version__} found, which has no data sources in Python; "
            "expected 4.0 or later, or use kip33.spark.read_segments"
        )
    from kip33.spark.segment_source import SegmentSource  # not with PySpark 3.5

    use_storage_options(storage_options, [])
    facts = {
        "stores": SessionStores.of(spark, for_planning=True),
        "cores": max(cores(spark), cores_to_come(spark)),
        "takes_filters": push_filters and _filters_are_pushed(spark),
        "folder": str(pathlib.Path.cwd()),
    }
    spark.dataSource.register(type("SessionSegmentSource", (SegmentSource,), facts))


class SparkReadOptions(ReadOptions, total=False):
    """The options of `read_segments`."""

    storage_options: common.StoreSettings
    filesystem: common.GivenFilesystem


@takes(SparkReadOptions)
def read_segments(
    spark: SparkSession, source: Path | Sequence[Path], **options: Unpack[SparkReadOptions]
) -> DataFrame:
    """Return what `kip33.read_arrow` returns as a DataFrame; arguments and columns are the same.

    >>> read_segments(spark, "archive", topic="orders", end_offset=3).count()
    3

    - `source`: an archive or a catalog; with tiered storage, the catalogs of both tiers
    - `options`: see `ReadOptions`

    **Name the columns you need.** Spark 4.3 does not leave out columns of a Python function: with
    `columns` and without `headers` a query is 1.3 to 2.6 times faster.

    It works with PySpark 3.5 and Spark Connect, too, and needs pandas. With Connect, give keys of
    stores as `storage_options`: a session does not return them from 4.3 on. The source is listed
    now; its segments are read when the DataFrame is used. Rows have no order. Of a catalog, a large
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
    reading = Reading.of(**picked(ReadOptions, options))
    places = given_places(spark, places_of(source), options)
    most = max(cores(spark), cores_to_come(spark))
    tasks = tasks_of(reading, reading.partitions(source_at(places)), most)
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
