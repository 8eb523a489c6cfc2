"""The audit of timestamps as a job."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.archive.bins import Progress
from kip33.audits.timestamp_plan import (
    TIMESTAMPS,
    AuditClock,
    TimestampQuestion,
    execute_timestamps,
    is_catalog,
    plan_timestamps,
    timestamp_row,
)
from kip33.catalog.catalog import Catalog, choose
from kip33.rules.policies import Policies
from kip33.rules.timestamp_profile import LimitChoice
from kip33.spark.given_places import given_places
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import use_session
from kip33.stores.filesystem_option import Filesystem, StorageOptions
from kip33.stores.locations import Location


def timestamp_profile(  # parameters: a notebook user sees each option as a keyword
    spark: SparkSession,
    source: str,
    *,
    now_ms: int,
    before_max_ms: int | None = None,
    after_max_ms: int | None = None,
    difference_max_ms: int | None = None,
    policies: Policies | None = None,
    clock: str = AuditClock.FILE_TIME.value,
    snapshot: str | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    parallelism: int | None = None,
    on_progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> DataFrame:
    """Profile the timestamps of an archive or a catalog; return a row for each partition.

    The options are those of `kip33 timestamps`. `clock` is `file-time` or `now`: what CreateTime
    batches are compared with. The work is done when this returns; logs are read, but not
    decompressed. The columns are `timestamps` in `kip33/api/RESULTS.md`: times and durations are
    bigint, ms; histograms are arrays of (`up_to_ms`, `batches`). Raises LocationError for a missing
    directory or one without segments, CatalogError for a damaged catalog, ValueError for a wrong
    argument.
    """
    source, _ = given_places(spark, source, (), storage_options, filesystem)
    use_session(spark)
    limits = LimitChoice(before_max_ms, after_max_ms, difference_max_ms, policies)
    question = TimestampQuestion(limits, AuditClock(clock), now_ms)
    place = Location.of(source)
    found = choose(Catalog(place), snapshot).snapshot if is_catalog(place) else None
    plan = plan_timestamps(source, question, topics=topics, layout=layout, snapshot=found)
    profiles = execute_timestamps(plan, SparkEngine(lambda: spark, parallelism, on_progress))
    rows = [tuple(timestamp_row(one, question).values()) for one in profiles]
    return spark.createDataFrame(
        [tuple(map(_plain, row)) for row in rows], from_arrow_schema(TIMESTAMPS)
    )


def _plain(value: object) -> object:
    """Return histograms as tuples, which Spark takes for structs."""
    if isinstance(value, list):
        return [tuple(one.values()) if isinstance(one, dict) else one for one in value]
    return value
