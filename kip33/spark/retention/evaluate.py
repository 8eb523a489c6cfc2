"""Retention of a catalog as a DataFrame: what is deletable, why the rest is kept, and what-ifs.

`retention.evaluation` judges the rows of each task, as it does for the local engine.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.formats.times import Time, milliseconds_of
from kip33.retention.evaluated_tables import answer_columns
from kip33.retention.evaluation import RetentionRequest, evaluate_columns
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.spark.tasks import PARTITION, Judged, judge_in_tasks

LogStartOffsets = Mapping[tuple[str, str, int], int]
"""From (log_dir, topic, partition) to the partition's log start offset."""


def evaluate_retention(
    catalog: DataFrame,
    policies: Policies,
    *,
    now_ms: Time,
    active_segment: str = "keep",
    boundary: str = "local",
    log_start_offsets: LogStartOffsets | None = None,
    what_if: WhatIf | None = None,
    broker_view: bool = False,
) -> DataFrame:
    """Return the catalog's rows with the retention decision for each segment at `now_ms`.

    `now_ms` is in ms since 1970 or a `datetime` with a time zone.

    Adds `policy` (the section that applies), `mode`, `retention_ms`, `retention_bytes`,
    `log_start_offset`, then the fields of `kip33.rules.retention_rows.Decision`: `deletable`,
    `reason`, ...; `kept_only_by_blocker` and `suspicion` (`kip33.rules.suspicious_timestamps`).
    `what_if` adds `what_if_deletable` and `what_if_reason`. `broker_view` adds a broker's answer to
    the same question: `broker_largest_timestamp`, its `_source` (`BrokerTimestampSource`), what is
    wrong with the index (`broker_index_fault`), `broker_deletable` and `broker_reason`. For it, the
    tasks read the end of each `.timeindex`.

    `active_segment` "kafka" judges the last segment as a broker does, "keep" keeps it. `boundary`
    "remote" uses tiered storage's comparison before KAFKA-20091. Lazy: no job runs before the
    result is used. All columns go through Python: for sums alone, select COLUMNS_FOR_SUMS first.
    Raises ValueError for a wrong argument.
    """
    request = RetentionRequest(
        policies,
        milliseconds_of(now_ms),
        log_start_offsets or {},
        active_segment=active_segment,
        boundary=boundary,
        what_if=what_if,
        broker_view=broker_view,
    )
    request.require_valid()
    return evaluate(catalog, request)


_NEEDED: Final = (
    *("base_offset", "size_bytes", "log_uri", "status", "last_modified_ms", "timestamp_types"),
    *("largest_timestamp", "largest_timestamp_source"),
)
COLUMNS_FOR_SUMS: Final = (
    *PARTITION,
    *_NEEDED,
    *("max_timestamp", "last_offset", "offset_of_max_timestamp"),
)
"""The columns of a catalog that decisions and `summarize_partitions` need."""


def evaluate(catalog: DataFrame, asked: RetentionRequest) -> DataFrame:
    """Return what `evaluate_retention` does; the request's topics are not looked at."""
    needed = (*_NEEDED, "max_timestamp") if asked.broker_view else _NEEDED
    added = _judged(asked, SEGMENTS.empty_table()).answers.schema
    return judge_in_tasks(catalog, needed, partial(_judged, asked), added)


def _judged(asked: RetentionRequest, rows: pa.Table) -> Judged:
    columns = columns_of([rows])
    answers = answer_columns(evaluate_columns(columns, asked), 0, columns.size)
    return Judged(columns.order, pa.table(answers))
