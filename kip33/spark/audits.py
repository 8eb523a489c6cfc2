"""The audits of rolling and of timestamps as jobs.

`audits.roll_audit` judges the rows of each task; timestamps are profiled in tasks, too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.audits.roll_answers import RollOptions, roll_settings
from kip33.audits.roll_audit import FIGURES, ROLL, audit_columns, roll_table
from kip33.audits.timestamp_plan import (
    TIMESTAMPS,
    AuditClock,
    TimestampQuestion,
    execute_timestamps,
    plan_timestamps,
    timestamp_row,
)
from kip33.catalog.catalog import catalog_unless_source, choose
from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.formats.times import Time, milliseconds_of
from kip33.options import takes
from kip33.rules.policies import Policies
from kip33.rules.rolling import RollReading, TopicRollSettings
from kip33.rules.timestamp_profile import LimitChoice
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import given_places, use_session
from kip33.spark.tasks import judge_in_tasks
from kip33.stores.filesystem_option import Filesystem, StorageOptions
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

_NEEDED: Final = (
    *("base_offset", "last_offset", "log_uri", "status", "max_timestamp", "last_modified_ms"),
    *FIGURES,
)
_ADDED: Final = pa.schema([field for field in ROLL if field.name not in SEGMENTS.names])


@takes(RollOptions)
def audit_roll(
    catalog: DataFrame, policies: Policies | None = None, **options: Unpack[RollOptions]
) -> DataFrame:
    """Return the catalog's rows with what the rule for rolling says of each segment.

    >>> from kip33.spark import load_catalog
    >>> rolled = audit_roll(load_catalog(spark, "indexes/_catalog"), segment_ms="1h")
    >>> rolled.where("ended_by = 'time'").count()
    4

    - `catalog`: what `load_catalog` returned, of the topics that are wanted
    - `policies`: settings of topics; without one of them and an option, Kafka's default
    - `options`: see `RollOptions`

    Adds the columns of `roll` in RESULTS.md that the catalog does not have: `ended_by` (why the
    segment ended), `by_size`, `by_time`, `by_index`, `by_offset_range` (null: not known), `doubt`,
    `not_seen`, `rolls_at_ms`, `overdue_ms`, `early`, ... Lazy: no job runs before the result is
    used. Raises ValueError for an unknown reading, PolicyError for a wrong policy.
    """
    settings, reading = roll_settings(options, policies), RollReading(options["reading"])
    return judge_in_tasks(catalog, _NEEDED, partial(_audit, settings, reading), _ADDED)


def _audit(settings: TopicRollSettings, reading: RollReading, rows: pa.Table) -> pa.Table:
    columns = columns_of(rows, more=FIGURES)
    return roll_table(audit_columns(columns, settings.of, reading=reading)).select(_ADDED.names)


def timestamp_profile(  # parameters: a notebook user sees each option as a keyword
    spark: SparkSession,
    source: str,
    *,
    now_ms: Time,
    before_max_ms: int | None = None,
    after_max_ms: int | None = None,
    difference_max_ms: int | None = None,
    policies: Policies | None = None,
    clock: str = AuditClock.FILE_TIME.value,
    snapshot: str | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    parallelism: int | None = None,
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> DataFrame:
    """Profile the timestamps of an archive or a catalog; return a row for each partition.

    >>> profile = timestamp_profile(spark, "archive", now_ms=1_702_000_000_000, topics=["orders"])
    >>> profile.select("topic", "partition").distinct().count()
    1

    The options are those of `kip33 timestamps`:

    - `before_max_ms`, `after_max_ms`, `difference_max_ms`: Kafka's limits of timestamps to test
    - `clock`: what CreateTime batches are compared with: `file-time` or `now`

    The work is done when this returns; logs are read, but not
    decompressed. The columns are `timestamps` in `kip33/api/RESULTS.md`: times and durations are
    bigint, ms; histograms are arrays of (`up_to_ms`, `batches`). Raises LocationError for a missing
    directory or one without segments, CatalogError for a damaged catalog, ValueError for a wrong
    argument.
    """
    source, _ = given_places(spark, source, (), storage_options, filesystem)
    use_session(spark)
    limits = LimitChoice(before_max_ms, after_max_ms, difference_max_ms, policies)
    question = TimestampQuestion(limits, AuditClock(clock), milliseconds_of(now_ms))
    catalog = catalog_unless_source(Location.of(source))
    plan = plan_timestamps(
        catalog.location.uri if catalog else source,
        question,
        topics=topics,
        layout=layout,
        snapshot=choose(catalog, snapshot).snapshot if catalog else None,
        on_progress=on_progress,
    )
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
