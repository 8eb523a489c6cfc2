"""The roll audit of a catalog as a DataFrame: why segments ended, as SQL windows.

These are the rules of `kip33.rules.roll_verdicts.judge_rolls` as Spark expressions, for what a
catalog alone tells. Tests compare the two row by row.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from kip33.formats.batch import LEGACY_HEADER_BYTES, MAX_INT32
from kip33.rules.policies import Policies
from kip33.rules.retention import KEPT_STATUSES, NEVER_MS
from kip33.rules.roll_verdicts import EARLY_SHARE, EarlyRoll, NotSeen, RollDoubt
from kip33.rules.rolling import (
    GivenSettings,
    RollReading,
    RollReason,
    TopicRollSettings,
)
from kip33.spark.retention.evaluate import small_table
from kip33.spark.retention.rule import PARTITION

_SETTINGS: Final = (
    *("segment_ms", "segment_bytes", "_jitter_ms", "_interval_bytes", "_index_slots"),
    "_is_compacted",
)
_ADDED: Final = (
    *("segment_ms", "segment_bytes", "start_timestamp", "ended_by"),
    *("by_size", "by_time", "by_index", "by_offset_range", "doubt", "not_seen"),
    *("waited_ms", "waited_by_file_time", "rolls_at_ms", "overdue_ms", "oversize_bytes"),
    *("early", "early_ms"),
)


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
    `doubt`, `not_seen`, `rolls_at_ms`, `overdue_ms`, `early`, ... A small job reads the topics; the
    rest is lazy. Raises ValueError for an unknown reading, PolicyError for a wrong policy.
    """
    chosen = RollReading(reading)
    given = GivenSettings(
        segment_ms, segment_bytes, segment_jitter_ms, index_interval_bytes, segment_index_bytes
    )
    settings = TopicRollSettings(policies or Policies(), given)
    settings.require_valid()
    topics = [row.topic for row in catalog.select("topic").distinct().collect()]
    rows = _with_settings(catalog, topics, settings)
    rows = _with_neighbours(rows, chosen)
    rows = _with_conditions(rows)
    rows = _with_ends(rows)
    rows = _with_findings(rows, chosen)
    return rows.select(*catalog.columns, *_ADDED)


def _with_settings(
    catalog: DataFrame, topics: Iterable[str | None], settings: TopicRollSettings
) -> DataFrame:
    """Add the settings of each row's topic; a row without a topic has those of no topic."""
    named = [topic for topic in topics if topic]
    each = [settings.of(topic) for topic in (*named, None)]
    columns = {
        "topic": pa.array([*named, None], pa.string()),
        "segment_ms": pa.array([one.segment_ms for one in each], pa.int64()),
        "segment_bytes": pa.array([one.segment_bytes for one in each], pa.int64()),
        "_jitter_ms": pa.array([one.most_jitter_ms for one in each], pa.int64()),
        "_interval_bytes": pa.array([one.index_interval_bytes for one in each], pa.int64()),
        "_index_slots": pa.array(
            [min(one.offset_slots, one.time_slots) for one in each], pa.int64()
        ),
        "_is_compacted": pa.array([one.is_compacted for one in each], pa.bool_()),
    }
    table = small_table(catalog.sparkSession, pa.table(columns))
    of_topic = sf.broadcast(table.withColumnRenamed("topic", "_topic"))
    joined = catalog.join(of_topic, sf.col("topic").eqNullSafe(sf.col("_topic")), "left")
    return joined.select(*(catalog[name] for name in catalog.columns), *_SETTINGS)


def _with_neighbours(rows: DataFrame, reading: RollReading) -> DataFrame:
    """Add what the rule needs of the segments before and after each one."""
    in_order = Window.partitionBy(*PARTITION).orderBy(
        sf.col("base_offset").asc_nulls_first(), "log_uri"
    )
    starts = {
        RollReading.KAFKA: sf.col("first_batch_timestamp"),
        RollReading.KIP33: sf.lit(None).cast("bigint"),  # not in a catalog
        RollReading.LARGEST: sf.col("max_timestamp"),
    }
    following = {
        "_next_base": "base_offset",
        "_next_first": "first_batch_timestamp",
        "_next_bytes": "valid_bytes",
        "_next_count": "batch_count",
        "_next_last": "last_offset",
        "_next_max": "max_timestamp",
        "_next_smallest": "smallest_timestamp",
        "_next_modified": "last_modified_ms",
    }
    return rows.withColumns(
        {
            "start_timestamp": starts[reading],
            "_is_last": sf.lead(sf.lit(1)).over(in_order).isNull(),
            **{name: sf.lead(column).over(in_order) for name, column in following.items()},
            "_later_max": sf.lead("max_timestamp", 2).over(in_order),
            "_previous_modified": sf.lag("last_modified_ms").over(in_order),
            "_before_max": sf.lag("max_timestamp").over(in_order),
        }
    )


def _told(condition: Column) -> Column:
    """Return the condition, false where it is not known."""
    return sf.coalesce(condition, sf.lit(False))


def _ternary(is_true: Column, is_false: Column) -> Column:
    return sf.when(_told(is_true), True).when(_told(is_false), False)


def _waited() -> Column:
    """Return the next segment's first timestamp minus the start; it wraps as Java's long does."""
    start, following = sf.col("start_timestamp"), sf.col("_next_first")
    least = sf.lit(-NEVER_MS - 1)
    wrapped = (following - least) + (sf.lit(NEVER_MS) - start) + 1
    passed = sf.when(following >= least + start, following - start).otherwise(wrapped)
    return sf.when((start >= 0) & following.isNotNull(), passed)


def _doubt() -> Column:
    base, last = sf.col("base_offset"), sf.col("last_offset")
    step = sf.col("_next_base") - last
    return (
        sf.when(sf.col("status").isin(*map(str, KEPT_STATUSES)), sf.col("status"))
        .when(base.isNull(), RollDoubt.UNREADABLE.value)
        .when(_told(sf.col("_next_base") == base), RollDoubt.SAME_BASE_OFFSET.value)
        .when(_told(step < 1), RollDoubt.OVERLAP.value)
        .when(_told(step > 1), RollDoubt.HOLE.value)
        .when(sf.col("_is_compacted") & ~sf.col("_is_last"), RollDoubt.COMPACTED.value)
        .when(_told(last - base >= sf.col("record_count")), RollDoubt.OFFSETS_MISSING.value)
    )


def _with_conditions(rows: DataFrame) -> DataFrame:
    """Add the doubt, and Kafka's four conditions for rows without one."""
    size, most = sf.col("valid_bytes"), sf.col("segment_bytes")
    count, following = sf.col("_next_count"), sf.col("_next_bytes")
    least_batch = sf.when(_told(count == 1) & following.isNotNull(), following).otherwise(
        sf.lit(LEGACY_HEADER_BYTES)
    )
    most_batch = sf.when(count > 0, following - (count - 1) * LEGACY_HEADER_BYTES)
    limit, waited = sf.col("segment_ms"), sf.col("_waited")
    is_empty = _told(size == 0)
    entries = sf.least(
        sf.coalesce(sf.expr("valid_bytes div (_interval_bytes + 1)"), sf.lit(NEVER_MS)),
        sf.coalesce("batch_count", sf.lit(NEVER_MS)),
    )
    base = sf.col("base_offset")
    conditions = {
        "by_size": _ternary((size > most - least_batch) | (size > most), size <= most - most_batch),
        "by_time": _ternary(
            (waited > limit) & ~is_empty, (waited <= limit - sf.col("_jitter_ms")) | is_empty
        ),
        "by_index": _ternary(sf.lit(False), entries < sf.col("_index_slots")),
        "by_offset_range": _ternary(
            sf.col("_next_base") - base > MAX_INT32,
            (sf.col("_next_last") - base <= MAX_INT32) & sf.col("_next_base").isNotNull(),
        ),
    }
    rows = rows.withColumns({"_waited": _waited(), "doubt": _doubt()})
    rows = rows.withColumn("_is_told", ~sf.col("_is_last") & sf.col("doubt").isNull())
    return rows.withColumns(
        {name: sf.when(sf.col("_is_told"), one) for name, one in conditions.items()}
    )


def _with_ends(rows: DataFrame) -> DataFrame:
    """Add why each segment ended, and what was not seen."""
    start, told = sf.col("start_timestamp"), sf.col("_is_told")
    by_time = sf.col("by_time")
    others = [sf.col(name) for name in ("by_size", "by_index", "by_offset_range")]
    others_are_false = sf.lit(True)
    for one in others:
        others_are_false &= _told(~one)
    jitter = others_are_false & by_time.isNull() & sf.col("_waited").isNotNull()
    none = others_are_false & _told(~by_time)
    too_large = _told(sf.col("valid_bytes") + sf.col("_next_bytes") > sf.col("segment_bytes"))
    is_late = sf.col("_next_max") - start > sf.col("segment_ms")
    too_late = sf.when((start >= 0) & (sf.col("_next_max") >= 0), is_late)
    is_active = (
        sf.col("_is_last")
        & sf.col("base_offset").isNotNull()
        & ~sf.col("status").isin(*map(str, KEPT_STATUSES))
    )
    rows = rows.withColumn(
        "ended_by",
        sf.when(is_active, RollReason.ACTIVE.value)
        .when(~told, RollReason.UNKNOWN.value)
        .when(_told(sf.col("by_size")), RollReason.SIZE.value)
        .when(_told(by_time), RollReason.TIME.value)
        .when(_told(sf.col("by_index")), RollReason.INDEX_FULL.value)
        .when(_told(sf.col("by_offset_range")), RollReason.OFFSET_RANGE.value)
        .when(jitter, RollReason.JITTER.value)
        .when(none & (too_large | _told(too_late)), RollReason.SEVERAL_BATCHES.value)
        .when(none, RollReason.UNEXPLAINED.value)
        .otherwise(RollReason.UNKNOWN.value),
    )
    unseen = (
        sf.when(sf.col("_next_first").isNull(), NotSeen.NEXT_BATCH.value)
        .when(by_time.isNull() & start.isNull(), NotSeen.START_TIMESTAMP.value)
        .when(by_time.isNull() & (start < 0), NotSeen.CREATION_TIME.value)
        .when(sf.col("by_size").isNull(), NotSeen.NEXT_BATCH_BYTES.value)
        .when(sf.col("by_index").isNull(), NotSeen.INDEX_ENTRIES.value)
        .when(sf.col("by_offset_range").isNull(), NotSeen.NEXT_BATCH_LAST_OFFSET.value)
    )
    is_unknown = told & (sf.col("ended_by") == RollReason.UNKNOWN.value)
    return rows.withColumn("not_seen", sf.when(is_unknown, unseen))


def _with_findings(rows: DataFrame, reading: RollReading) -> DataFrame:
    """Add how long each segment waited, when it rolls, and what is overdue or early."""
    start, largest = sf.col("start_timestamp"), sf.col("max_timestamp")
    limit, told = sf.col("segment_ms"), sf.col("_is_told")
    is_dated = (start < 0) & ~sf.col("_is_last")
    by_file = sf.when(is_dated, sf.col("last_modified_ms") - sf.col("_previous_modified"))
    room = sf.lit(NEVER_MS) - limit - 1
    rolls_at = sf.when(start > room, sf.lit(NEVER_MS)).otherwise(start + limit + 1)
    outside = (RollDoubt.SAME_BASE_OFFSET, RollDoubt.OVERLAP, RollDoubt.HOLE)
    has_bounds = sf.col("doubt").isNull() | sf.col("doubt").isin(*map(str, outside))
    late = sf.when((start >= 0) & (largest > start) & has_bounds, largest - start - limit)
    overdue = sf.lit(None).cast("bigint") if reading == RollReading.LARGEST else late
    over = sf.col("valid_bytes") - sf.col("segment_bytes")
    return rows.withColumns(
        {
            "waited_ms": sf.coalesce(by_file, sf.when(told, sf.col("_waited"))),
            "waited_by_file_time": by_file.isNotNull(),
            "rolls_at_ms": sf.when(start >= 0, rolls_at),
            "overdue_ms": sf.when(overdue > 0, overdue),
            "oversize_bytes": sf.when(over > 0, over),
            "_early": _early(),
        }
    ).withColumns({"early": sf.col("_early.kind"), "early_ms": sf.col("_early.by_ms")})


def _early() -> Column:
    """Return which timestamp moved a roll by time, and by how much; null if none did."""
    start, ahead = sf.col("start_timestamp"), sf.col("_next_first")
    limit, least_ms = sf.col("segment_ms"), sf.expr(f"segment_ms div {EARLY_SHARE}")
    modified, before = sf.col("_next_modified"), sf.col("_before_max")
    later, small = sf.col("_later_max"), sf.col("_next_smallest")
    by_later = (later >= 0) & (later - start <= limit)
    by_small = (small >= 0) & (small - start <= limit)
    after = sf.when(_told(by_later), later).when(_told(by_small), small)
    in_order = (before >= 0) & (before <= ahead)
    is_old = in_order & (before - start > least_ms) & (ahead - before <= limit)

    def kind(early: EarlyRoll, by_ms: Column) -> Column:
        return sf.struct(sf.lit(early.value).alias("kind"), by_ms.alias("by_ms"))

    found = (
        sf.when(_told(ahead > modified), kind(EarlyRoll.FUTURE, ahead - modified))
        .when(_told(is_old), kind(EarlyRoll.OLD_START, before - start))
        .when(_told(ahead - after > least_ms), kind(EarlyRoll.AHEAD, ahead - after))
    )
    is_by_time_alone = _told(sf.col("by_time")) & ~_told(sf.col("by_size"))
    return sf.when(sf.col("_is_told") & is_by_time_alone, found)
