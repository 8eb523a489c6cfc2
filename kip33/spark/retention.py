"""Retention of a catalog as DataFrames: what is deletable, why the rest is kept, and the sums.

`retention.evaluation` judges the rows of each task, as it does for the local engine.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.formats.times import Time, milliseconds_of
from kip33.retention.evaluated_tables import answer_columns
from kip33.retention.evaluation import RetentionRequest, evaluate_columns
from kip33.rules.policies import Policies
from kip33.rules.retention import (
    DOUBTFUL_STATUSES,
    RetentionReason,
    WhatIf,
)
from kip33.rules.retention_rows import MOST_SEGMENTS_NAMED
from kip33.rules.segment_summary import SegmentStatus, TimestampSource
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.spark.tasks import PARTITION, Judged, judge_in_tasks

MOST_HELD: Final = 20_000  # partitions whose rows the driver adds up by itself
_POLICY: Final = ("policy", "mode", "retention_ms", "retention_bytes")
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


def summarize_partitions(judged: DataFrame, *, now_ms: Time) -> DataFrame:
    """Return one row per partition from the result of `evaluate_retention` for `now_ms`, in order.

    - `segments`, `bytes`, `deletable_segments`, `deletable_bytes`; a log that is a link has its
      target's size here, and a plan leaves it out
    - `first_base_offset`, `first_kept_base_offset` (null: all are deletable), `log_end_offset`
    - `blocked_segments`, `blocked_bytes`: a check selects them, but an older segment stays;
      `kept_only_by_blocker_bytes`: only that one segment keeps them
    - `blocking_...`: that segment's base offset, reason to stay, timestamp, its offset, how far it
      is ahead of now (negative: before) and of the newest that it blocks; `block_ends_at_ms` is
      when the first blocked one becomes deletable by itself, null: never
    - `last_modified_segments`, `last_modified_base_offsets` (the first ten), `unverified_segments`,
      `doubtful_segments`: segments without a verified message timestamp; `deletable_...`: the
      number of them that are deletable; `tiered_segments`: of topics in tiered storage, which are
      not judged; `suspicions`: the number of segments of each kind
    - `active_expired_segments`: 1 if the last segment has expired and is kept as the active one
    - `log_start_offset`: the value that was used
    - with a what-if or a broker's view: their deletable segments and bytes; for the broker also the
      segments whose index has another timestamp, and those that it judges differently
    """
    aggregates = [
        *(sf.first(name).alias(name) for name in _POLICY),
        *_total("", sf.expr("true")),
        *_total("deletable_", sf.col("deletable")),
        sf.first("log_start_offset").alias("log_start_offset"),
        sf.min("base_offset").alias("first_base_offset"),
        _first_kept().alias("_kept"),
        _log_end().alias("log_end_offset"),
        *_total("blocked_", _blocked()),
        _sum_bytes(sf.col("kept_only_by_blocker")).alias("kept_only_by_blocker_bytes"),
        sf.max(sf.when(_blocked(), sf.col("largest_timestamp"))).alias("_newest_blocked"),
        sf.min(sf.when(_blocked(), sf.col("deletable_at_ms"))).alias("_block_ends_at_ms"),
        *_trust(),
        sf.count_if(
            (sf.col("reason") == RetentionReason.ACTIVE_SEGMENT) & sf.col("retention_ms_breached")
        ).alias("active_expired_segments"),
        _suspicions(),
    ]
    for prefix in ("what_if_", "broker_"):
        if f"{prefix}deletable" in judged.columns:
            aggregates += _total(f"{prefix}deletable_", sf.col(f"{prefix}deletable"))
    if "broker_deletable" in judged.columns:
        differs = sf.col("broker_deletable") != sf.col("deletable")
        misread = sf.col("broker_index_fault").isNotNull()
        aggregates.append(sf.count_if(misread).alias("broker_misread_segments"))
        aggregates.append(sf.count_if(differs).alias("broker_different_segments"))
    grouped = judged.groupBy(*PARTITION).agg(*aggregates)
    blocking = _blocking(milliseconds_of(now_ms))
    columns: list[Column] = []
    for name in grouped.columns:
        if name == "_kept":
            columns.append(sf.col("_kept.base_offset").alias("first_kept_base_offset"))
        elif name == "kept_only_by_blocker_bytes":
            columns += [sf.col(name), *blocking]
        elif not name.startswith("_"):
            columns.append(sf.col(name))
    return grouped.select(*columns).orderBy(*PARTITION)


def freed_by(judged: DataFrame, moments_ms: Sequence[Time]) -> DataFrame:
    """Return per topic what becomes deletable between each time and the previous one.

    Columns `at_ms`, `topic`, `segments`, `bytes`; times without a change have no row. New appends
    are ignored. The first time includes everything that was deletable before it.
    """
    bucket: Column = sf.lit(None).cast("bigint")
    for moment in sorted(set(map(milliseconds_of, moments_ms)), reverse=True):
        bucket = sf.when(sf.col("deletable_at_ms") <= moment, sf.lit(moment)).otherwise(bucket)
    freed = judged.withColumn("at_ms", bucket).where(sf.col("at_ms").isNotNull())
    rows = freed.groupBy("at_ms", "topic").agg(*_total("", sf.expr("true")))
    return rows.orderBy("at_ms", "topic")


def totals_of(partitions: DataFrame) -> dict[str, Any]:
    """Return the sums over the rows of `summarize_partitions`; runs a job."""
    kinds = [
        sf.coalesce(sf.sum(sf.col("suspicions")[kind]), sf.lit(0)).alias(f"_{kind}")
        for kind in SUSPICIONS
    ]
    row = partitions.agg(
        sf.count(sf.lit(1)).alias("partitions"),
        sf.count_if(sf.col("blocked_segments") > 0).alias("blocked_partitions"),
        *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in _summed(partitions)),
        *kinds,
    ).collect()[0]
    totals = {name: value for name, value in row.asDict().items() if not name.startswith("_")}
    return totals | _suspicions_found(row[f"_{kind}"] for kind in SUSPICIONS)


def worst_and_totals(partitions: DataFrame, most: int) -> tuple[list[Row], dict[str, Any]]:
    """Return rows of `summarize_partitions`, those with most bytes blocked first, and `totals_of`.

    At most `most` rows of MOST_HELD. One job fetches the rows and they are summed here, because a
    cold JVM takes twice as long for two jobs. Only for more than MOST_HELD a second job sums them.
    """
    worst_first = (sf.desc("blocked_bytes"), sf.desc("deletable_bytes"), *PARTITION)
    rows = partitions.orderBy(*worst_first).limit(MOST_HELD).collect()
    all_came = len(rows) < MOST_HELD
    return rows[:most], _added_up(partitions, rows) if all_came else totals_of(partitions)


def _added_up(partitions: DataFrame, rows: Sequence[Row]) -> dict[str, Any]:
    """Return `totals_of`, from all rows."""
    return {
        "partitions": len(rows),
        "blocked_partitions": sum(row.blocked_segments > 0 for row in rows),
        **{name: sum(row[name] for row in rows) for name in _summed(partitions)},
        **_suspicions_found(
            sum(row.suspicions.get(kind, 0) for row in rows) for kind in SUSPICIONS
        ),
    }


def _summed(partitions: DataFrame) -> list[str]:
    names = (name for name in partitions.columns if name.endswith(("segments", "bytes")))
    return [name for name in names if name != "retention_bytes"]


def _suspicions_found(counts: Iterable[int]) -> dict[str, Any]:
    found = zip(SUSPICIONS, counts, strict=True)
    return {"suspicions": {kind: count for kind, count in found if count}}


def _total(prefix: str, which: Column) -> list[Column]:
    return [
        sf.count_if(which).alias(f"{prefix}segments"),
        _sum_bytes(which).alias(f"{prefix}bytes"),
    ]


def _sum_bytes(which: Column) -> Column:
    size = sf.coalesce(sf.col("size_bytes"), sf.lit(0))
    return sf.sum(sf.when(which, size).otherwise(0))


def _blocked() -> Column:
    return sf.col("reason") == RetentionReason.BLOCKED


def _first_kept() -> Column:
    """Return the oldest row that stays: what is deletable is the run before it."""
    said = sf.struct(
        "base_offset", "reason", "largest_timestamp", "offset_of_max_timestamp", "log_uri"
    )
    # A directory that cannot be listed has no base offset and stands first.
    place = sf.struct(sf.coalesce(sf.col("base_offset"), sf.lit(-(2**63))), sf.col("log_uri"))
    return sf.min_by(said, sf.when(~sf.col("deletable"), place))


def _log_end() -> Column:
    """Return the end of the newest segment, or the start of an empty one; null: it was not read."""
    after = sf.try_add("last_offset", sf.lit(1))  # of a log that ends at 2^63 - 1: null
    end = sf.coalesce(
        after, sf.when(sf.col("status") == SegmentStatus.EMPTY, sf.col("base_offset"))
    )
    return sf.max_by(end, sf.struct("base_offset", "log_uri"))


def _blocking(now_ms: int) -> list[Column]:
    blocks = sf.col("blocked_segments") > 0
    timestamp = sf.col("_kept.largest_timestamp")
    columns = {
        "blocking_base_offset": sf.col("_kept.base_offset"),
        "blocking_reason": sf.col("_kept.reason"),
        "blocking_timestamp": timestamp,
        "blocking_offset_of_max_timestamp": sf.col("_kept.offset_of_max_timestamp"),
        "blocking_log_uri": sf.col("_kept.log_uri"),
        "blocking_ahead_of_now_ms": timestamp - now_ms,
        "blocking_ahead_of_blocked_ms": timestamp
        - sf.greatest(sf.lit(0), "_newest_blocked"),  # a file's time may be before 1970
        "block_ends_at_ms": sf.col("_block_ends_at_ms"),
    }
    return [sf.when(blocks, column).alias(name) for name, column in columns.items()]


def _trust() -> list[Column]:
    by_file = sf.col("largest_timestamp_source") == TimestampSource.LAST_MODIFIED
    unverified = sf.col("status") == SegmentStatus.UNVERIFIED
    named = sf.sort_array(sf.collect_list(sf.when(by_file, sf.col("base_offset"))))
    return [
        sf.count_if(by_file).alias("last_modified_segments"),
        sf.slice(named, 1, MOST_SEGMENTS_NAMED).alias("last_modified_base_offsets"),
        sf.count_if(by_file & sf.col("deletable")).alias("deletable_last_modified_segments"),
        sf.count_if(unverified).alias("unverified_segments"),
        sf.count_if(unverified & sf.col("deletable")).alias("deletable_unverified_segments"),
        sf.count_if(sf.col("status").isin(*DOUBTFUL_STATUSES)).alias("doubtful_segments"),
        sf.count_if(sf.col("reason") == RetentionReason.TIERED).alias("tiered_segments"),
    ]


def _suspicions() -> Column:
    counts = sf.create_map(
        *(
            piece
            for kind in SUSPICIONS
            for piece in (sf.lit(kind), sf.count_if(sf.col("suspicion") == kind))
        )
    )
    return sf.map_filter(counts, lambda _, count: count > 0).alias("suspicions")
