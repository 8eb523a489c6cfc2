"""The roll audit of a catalog as a DataFrame: `audits.roll_audit` on the rows of each task."""

from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from kip33.audits.roll_audit import FIGURES, ROLL, audit_columns, roll_table
from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.rules.policies import Policies
from kip33.rules.rolling import GivenSettings, RollReading, TopicRollSettings
from kip33.spark.tasks import Judged, judge_in_tasks

_NEEDED: Final = (
    *("base_offset", "last_offset", "log_uri", "status", "max_timestamp", "last_modified_ms"),
    *FIGURES,
)
_ADDED: Final = pa.schema([field for field in ROLL if field.name not in SEGMENTS.names])


def audit_roll(
    catalog: DataFrame,
    policies: Policies | None = None,
    *,
    segment_ms: int | None = None,
    segment_bytes: int | None = None,
    segment_jitter_ms: int | None = None,
    index_interval_bytes: int | None = None,
    segment_index_bytes: int | None = None,
    reading: str = "kafka",
) -> DataFrame:
    """Return the catalog's rows with what the rule for rolling says of each segment.

    The settings are those given, else those of `policies`, else Kafka's defaults; times are ms,
    sizes bytes. Adds the columns of `roll` in RESULTS.md that the catalog does not have: `ended_by`
    (why the segment ended), `by_size`, `by_time`, `by_index`, `by_offset_range` (null: not known),
    `doubt`, `not_seen`, `rolls_at_ms`, `overdue_ms`, `early`, ... Lazy: no job runs before the
    result is used. Raises ValueError for an unknown reading, PolicyError for a wrong policy.
    """
    chosen = RollReading(reading)
    given = GivenSettings(
        segment_ms, segment_bytes, segment_jitter_ms, index_interval_bytes, segment_index_bytes
    )
    settings = TopicRollSettings(policies or Policies(), given)
    settings.require_valid()
    return judge_in_tasks(catalog, _NEEDED, partial(_audit, settings, chosen), _ADDED)


def _audit(settings: TopicRollSettings, reading: RollReading, rows: pa.Table) -> Judged:
    columns = columns_of([rows], more=FIGURES)
    answers = roll_table(audit_columns(columns, settings.of, reading=reading))
    return Judged(columns.order, answers.select(_ADDED.names))
