"""Records as a folder of Parquet files, which the tasks of a Spark session write."""

from collections.abc import Sequence
from typing import Unpack

from pyspark.sql import SparkSession

from kip33.archive.common_options import SparkRun
from kip33.archive.moments import moment_ms
from kip33.catalog.catalog import warn_caller
from kip33.formats.times import Time
from kip33.options import Path, parsed, picked, takes
from kip33.records.partitions import places_of
from kip33.records.reading import ReadOptions
from kip33.records.written_records import WriteRequest, WrittenRecords, write_new_records
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import given_places


class SparkWriteOptions(ReadOptions, SparkRun, total=False):
    """The options of `write_records`."""


@takes(SparkWriteOptions, on_error="skip")
def write_records(
    spark: SparkSession,
    source: Path | Sequence[Path],
    to: Path,
    *,
    now_ms: Time,
    **options: Unpack[SparkWriteOptions],
) -> WrittenRecords:
    """Add the new records of a catalog's logs to a folder of Parquet files.

    >>> from kip33.spark import build_index
    >>> now_ms = 1_702_000_000_000
    >>> build = build_index(spark, "archive", index_files=False, catalog="rows-1", now_ms=now_ms)
    >>> written = write_records(spark, build.catalog, "spark-tables", now_ms=now_ms, topic="orders")
    >>> spark.read.parquet(written.to).count() == written.records
    True

    - `source`: a catalog; with tiered storage, the catalogs of both tiers
    - `to`: the folder, which all machines see at this place
    - `now_ms`: when the run begins; what killed runs left a week before is removed
    - `options`: see `ReadOptions`; `on_error` is `skip` or `fail`

    It is `kip33.write_records` in tasks. They write the files themselves, in less than half the CPU
    time of a DataFrame's writer.

    Raises LocationError, CatalogError, PublishError and ValueError as `kip33.write_records` does.
    """
    *places, target = given_places(spark, [*places_of(source), to], options, writes=True)
    request = WriteRequest.of(places, target, **picked(ReadOptions, options))
    engine = SparkEngine.of(spark, options)
    return write_new_records(
        request, engine, now_ms=parsed("now_ms", moment_ms, now_ms), warn=warn_caller
    )
