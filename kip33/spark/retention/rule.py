"""The retention rule as SQL windows over (log_dir, topic, partition): no row leaves the JVM.

These are the rules of `kip33.rules.retention.judge_columns` as Spark expressions. Tests compare the
two. One sort serves two steps: the values of each segment by itself, then those that depend on the
older segments.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sf

from kip33.rules.retention import (
    KEPT_STATUSES,
    NEVER_MS,
    ActiveSegment,
    Boundary,
    RetentionMode,
    RetentionReason,
    RuleQuestion,
)

PARTITION: Final = ("log_dir", "topic", "partition")


class RuleColumns(NamedTuple):
    """The columns from which a decision is made, and the prefix of the columns that are added."""

    largest_timestamp: str = "largest_timestamp"
    retention_ms: str = "retention_ms"
    status: str = "status"
    prefix: str = ""


def with_decision(
    rows: DataFrame, question: RuleQuestion, names: RuleColumns | None = None
) -> DataFrame:
    """Return `rows` with the columns of a Decision and `kept_only_by_blocker`.

    `rows` needs the catalog's columns, `mode`, `retention_ms` and `retention_bytes` of the topic's
    policy, and `log_start_offset`. All of these but `mode` may be null.
    """
    names = names or RuleColumns()
    in_order = Window.partitionBy(*PARTITION).orderBy(
        sf.col("base_offset").asc_nulls_first(), "log_uri"
    )
    before = rows.columns
    rows = _with_own_figures(rows, question, names, in_order)
    up_to_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stays = sf.col("_kept_for").isNotNull() | sf.col("_wanted").isNull()
    kept = sf.when(stays, sf.struct("base_offset", sf.col(names.largest_timestamp).alias("at_ms")))
    rows = rows.withColumns(
        {
            "_stays": stays,
            "_kept_here": sf.sum(stays.cast("bigint")).over(up_to_here),
            "_blocker": sf.first(kept, ignorenulls=True).over(up_to_here),
            "_endless_here": sf.sum(sf.col("_own_at").isNull().cast("bigint")).over(up_to_here),
            "_at_here": sf.max("_own_at").over(up_to_here),
        }
    )
    blocked = (
        (sf.col("_kept_for").isNull()) & sf.col("_wanted").isNotNull() & (sf.col("_kept_here") > 0)
    )
    calm = (
        sf.when(sf.col("mode") == RetentionMode.COMPACT, RetentionReason.COMPACTED)
        .when(
            (sf.col(names.retention_ms) < 0) & (sf.col("retention_bytes") < 0),
            RetentionReason.NO_LIMIT,
        )
        .otherwise(RetentionReason.NOT_EXPIRED)
    )
    deletable = sf.col("_kept_here") == 0
    added = {
        "retention_ms_breached": sf.col("_breached"),
        "deletable": deletable,
        "reason": sf.coalesce(
            "_kept_for",
            sf.when(deletable, sf.col("_wanted")),
            sf.when(blocked, sf.lit(RetentionReason.BLOCKED)),
            calm,
        ),
        "expires_at_ms": sf.col("_expires_at"),
        "deletable_at_ms": sf.when(
            sf.col("_endless_here") == 0, sf.greatest(sf.lit(0), "_at_here")
        ),
        "blocked_by_base_offset": sf.when(blocked, sf.col("_blocker.base_offset")),
        "blocked_by_timestamp": sf.when(blocked, sf.col("_blocker.at_ms")),
        "kept_only_by_blocker": (sf.col("_kept_here") == 1) & ~sf.col("_stays"),
    }
    answer = {names.prefix + name: column for name, column in added.items()}
    return rows.withColumns(answer).select(*dict.fromkeys((*before, *answer)))


def _with_own_figures(
    rows: DataFrame, question: RuleQuestion, names: RuleColumns, in_order: WindowSpec
) -> DataFrame:
    """Add the values of each segment that do not depend on older segments.

    The check that selects it, the reason to keep it, whether and when it expires.
    """
    size = sf.coalesce("size_bytes", sf.lit(0))
    first, last = Window.unboundedPreceding, Window.unboundedFollowing
    rows = rows.withColumns(
        {
            "_is_last": sf.lead(sf.lit(1)).over(in_order).isNull(),
            "_next_base": sf.lead("base_offset").over(in_order),
            "_previous_base": sf.lag("base_offset").over(in_order),
            "_bytes_up_to_here": sf.sum(size).over(in_order.rowsBetween(first, Window.currentRow)),
            "_bytes": sf.sum(size).over(in_order.rowsBetween(first, last)),  # in the same pass
            "_first_directory": sf.min(_directory()).over(in_order.rowsBetween(first, last)),
            "_last_directory": sf.max(_directory()).over(in_order.rowsBetween(first, last)),
        }
    )
    largest, retention_ms = sf.col(names.largest_timestamp), sf.col(names.retention_ms)
    timed = (sf.col("mode") == RetentionMode.DELETE) & (retention_ms >= 0) & largest.isNotNull()
    untimed = sf.when(
        sf.col("mode").isin(RetentionMode.DELETE, RetentionMode.COMPACT)
        & (sf.col("_next_base") <= sf.col("log_start_offset")),
        RetentionReason.LOG_START_OFFSET,
    ).when(
        (sf.col("mode") == RetentionMode.DELETE)
        & (sf.col("retention_bytes") >= 0)
        & (sf.col("retention_bytes") <= sf.col("_bytes") - sf.col("_bytes_up_to_here")),
        RetentionReason.RETENTION_BYTES,
    )
    rows = rows.withColumns(
        {
            "_breached": sf.coalesce(
                timed & _is_breached(largest, retention_ms, question), sf.lit(False)
            ),
            "_expires_at": sf.when(timed, _expires_at_ms(largest, retention_ms, question)),
            "_untimed": untimed,
            "_kept_for": _kept_for(question, names),
        }
    )
    own_at = sf.when(sf.col("_untimed").isNotNull(), sf.lit(0)).otherwise(sf.col("_expires_at"))
    return rows.withColumns(
        {
            "_wanted": sf.coalesce(
                "_untimed", sf.when(sf.col("_breached"), sf.lit(RetentionReason.RETENTION_MS))
            ),
            "_own_at": sf.when(sf.col("_kept_for").isNull(), own_at),
        }
    )


def _is_breached(largest: Column, retention_ms: Column, question: RuleQuestion) -> Column:
    """Return whether time retention selects a segment, as in `rules.retention`."""
    now_ms = sf.lit(question.now_ms)
    if question.boundary == Boundary.REMOTE:
        return (now_ms >= retention_ms) & (largest <= now_ms - retention_ms)
    return now_ms - largest > retention_ms


def _expires_at_ms(largest: Column, retention_ms: Column, question: RuleQuestion) -> Column:
    """Return the first time of a breach; sums beyond int64 would raise and are avoided."""
    never = sf.lit(NEVER_MS)
    if question.boundary == Boundary.REMOTE:
        moment = sf.when(largest > never - retention_ms, never).otherwise(largest + retention_ms)
        return sf.greatest(moment, retention_ms)
    room = never - retention_ms - 1
    return sf.when(largest > room, never).otherwise(largest + retention_ms + 1)


def _directory() -> Column:
    """Return `formats.names.partition_dir_of` in SQL; null if it is not the row's partition."""
    name = sf.element_at(sf.split("log_uri", "/"), -2)
    plain = sf.regexp_replace(name, "-0*([0-9]+)$", "-$1")
    of_partition = sf.concat_ws("-", "topic", "partition")
    return sf.when((plain == of_partition) & sf.col("base_offset").isNotNull(), name)


def _kept_for(question: RuleQuestion, names: RuleColumns) -> Column:
    """Return why a segment is kept even if a check selects it; null if there is no such reason."""
    base_offset, status = sf.col("base_offset"), sf.col(names.status)
    neighbours = (sf.col("_previous_base"), sf.col("_next_base"))
    before, after = (sf.coalesce(base_offset == other, sf.lit(False)) for other in neighbours)
    is_doubled = (
        sf.col("_first_directory") != sf.col("_last_directory")
    ) & _directory().isNotNull()
    why = (
        sf.when(
            sf.col("mode").isin(
                RetentionMode.UNJUDGED, RetentionMode.NO_POLICY, RetentionMode.TIERED
            ),
            sf.col("mode"),
        )
        .when(status.isin(*KEPT_STATUSES), status)
        .when(sf.col(names.largest_timestamp).isNull(), RetentionReason.NO_TIMESTAMP)
        .when(is_doubled, RetentionReason.TWO_DIRECTORIES)
        .when(before | after, RetentionReason.SAME_BASE_OFFSET)
    )
    if question.active_segment == ActiveSegment.KEEP:
        return why.when(sf.col("_is_last"), RetentionReason.ACTIVE_SEGMENT)
    empty = sf.coalesce("size_bytes", sf.lit(0)) == 0
    return why.when(sf.col("_is_last") & empty, RetentionReason.EMPTY_ACTIVE_SEGMENT)
