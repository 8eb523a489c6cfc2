"""The audits of rolling and of timestamps as jobs.

`audits.roll_audit` judges the rows of each task; timestamps are profiled in tasks, too.
"""

from functools import partial
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.archive.common_options import SparkRun
from kip33.archive.moments import moment_ms
from kip33.audits.roll_answers import RollOptions, roll_settings
from kip33.audits.roll_audit import FIGURES, ROLL, audit_columns, roll_table
from kip33.audits.timestamp_answers import TimestampOptions, TimestampRequest, profile_timestamps
from kip33.audits.timestamp_plan import TIMESTAMPS
from kip33.catalog.catalog import warn_caller
from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.formats.times import Time
from kip33.options import parsed, picked, takes
from kip33.rules.policies import Policies
from kip33.rules.rolling import RollReading, TopicRollSettings
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import given_places
from kip33.spark.tasks import judge_in_tasks

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


class SparkTimestampOptions(TimestampOptions, SparkRun, total=False):
    """The options of `timestamp_profile`."""


@takes(SparkTimestampOptions)
def timestamp_profile(
    spark: SparkSession,
    source: str,
    *,
    now_ms: Time,
    policies: Policies | None = None,
    **options: Unpack[SparkTimestampOptions],
) -> DataFrame:
    """Profile the timestamps of an archive or a catalog; return a row for each partition.

    >>> profile = timestamp_profile(spark, "archive", now_ms=1_702_000_000_000, topics=["orders"])
    >>> profile.select("topic", "partition").distinct().count()
    1

    - `now_ms`: the current time, for suspicious timestamps and `clock="now"`
    - `policies`: limits and types of topics, where no option gives one
    - `options`: see `TimestampOptions` and `SparkRun`

    The work is done when this returns; logs are read, but not decompressed. The columns are
    `timestamps` in `kip33/api/RESULTS.md`: times and durations are bigint, ms; histograms are
    arrays of (`up_to_ms`, `batches`). Raises LocationError for a missing directory or one without
    segments, CatalogError for a damaged catalog, ValueError for a wrong argument.
    """
    [source] = given_places(spark, [source], options)
    engine = SparkEngine.of(spark, options)
    request = picked(TimestampRequest, options, source=source)
    how = (parsed("now_ms", moment_ms, now_ms), lambda: engine, warn_caller, options["on_progress"])
    found = profile_timestamps(request, policies, *how)
    return spark.createDataFrame(
        [tuple(map(_plain, row.values())) for row in found.rows], from_arrow_schema(TIMESTAMPS)
    )


def _plain(value: object) -> object:
    """Return histograms as tuples, which Spark takes for structs."""
    if isinstance(value, list):
        return [tuple(one.values()) if isinstance(one, dict) else one for one in value]
    return value
