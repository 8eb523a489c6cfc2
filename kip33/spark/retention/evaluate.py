"""Retention of a catalog as a DataFrame: what is deletable, why the rest is kept, and what-ifs.

The rule is in `kip33.spark.retention.rule`. This module adds policies and what-ifs.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from kip33.formats.times import Time, milliseconds_of
from kip33.rules.policies import Policies
from kip33.rules.retention import RetentionMode, RuleQuestion, WhatIf, require_question
from kip33.spark.retention.broker_view import with_broker_view
from kip33.spark.retention.rule import PARTITION, RuleColumns, with_decision
from kip33.spark.retention.small_tables import small_table
from kip33.spark.retention.suspicious_timestamps import suspicion

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
    `what_if` adds `what_if_deletable` and `what_if_reason`; `broker_view` adds the columns of
    `with_broker_view`.

    `active_segment` "kafka" judges the last segment as a broker does, "keep" keeps it. `boundary`
    "remote" uses tiered storage's comparison before KAFKA-20091. A small job reads the topics; the
    rest is lazy. Raises ValueError for a wrong argument.
    """
    question = question_of(milliseconds_of(now_ms), active_segment, boundary)
    found = catalog.select("topic").distinct().collect()
    return evaluate_topics(
        catalog,
        (row.topic for row in found),
        policies,
        question,
        log_start_offsets=log_start_offsets,
        what_if=what_if,
        broker_view=broker_view,
    )


def question_of(now_ms: int, active_segment: str, boundary: str) -> RuleQuestion:
    """Return the settings that are the same for all partitions; ValueError for a wrong argument."""
    question = RuleQuestion(now_ms, active_segment, boundary)
    require_question(question)
    return question


def evaluate_topics(
    catalog: DataFrame,
    topics: Iterable[str | None],
    policies: Policies,
    question: RuleQuestion,
    *,
    log_start_offsets: LogStartOffsets | None = None,
    what_if: WhatIf | None = None,
    broker_view: bool = False,
) -> DataFrame:
    """Return what `evaluate_retention` does, without a job; `topics` are all of the catalog's."""
    rows = _with_policies(catalog, topics, policies)
    rows = _with_log_start_offsets(rows, log_start_offsets or {})
    # Before the windows, so that they sort and copy one word and not the columns it is made from.
    rows = rows.withColumn("suspicion", suspicion(question.now_ms)).drop("after_max_ms")
    rows = with_decision(rows, question)
    rows = rows.select(*(name for name in rows.columns if name != "suspicion"), "suspicion")
    if what_if is not None:
        rows = _with_what_if(rows, question, what_if)
    return with_broker_view(rows, question) if broker_view else rows


def _with_policies(
    catalog: DataFrame, topics: Iterable[str | None], policies: Policies
) -> DataFrame:
    """Add the policy values for each row's topic; a row without a topic has no policy."""
    named = [topic for topic in topics if topic]
    said = [policies.of(topic) for topic in named]
    after_max_ms = [policy.message_timestamp_after_max_ms for policy in said]
    columns = {
        "topic": pa.array(named, pa.string()),
        "policy": pa.array([policy.match for policy in said], pa.string()),
        "mode": pa.array([policy.mode for policy in said], pa.string()),
        "retention_ms": pa.array([policy.retention_ms for policy in said], pa.int64()),
        "retention_bytes": pa.array([policy.retention_bytes for policy in said], pa.int64()),
        "after_max_ms": pa.array(after_max_ms, pa.int64()),
    }
    table = small_table(catalog.sparkSession, pa.table(columns))
    rows = catalog.join(sf.broadcast(table), "topic", "left")
    rows = rows.withColumn("mode", sf.coalesce("mode", sf.lit(RetentionMode.NO_POLICY)))
    order = [*catalog.columns, *(name for name in table.columns if name != "topic")]
    return rows.select(*order)


def _with_log_start_offsets(rows: DataFrame, offsets: LogStartOffsets) -> DataFrame:
    if not offsets:
        return rows.withColumn("log_start_offset", sf.lit(None).cast("bigint"))
    columns = {
        "log_dir": pa.array([log_dir for log_dir, _, _ in offsets], pa.string()),
        "topic": pa.array([topic for _, topic, _ in offsets], pa.string()),
        "partition": pa.array([partition for _, _, partition in offsets], pa.int32()),
        "log_start_offset": pa.array(offsets.values(), pa.int64()),
    }
    table = small_table(rows.sparkSession, pa.table(columns))
    joined = rows.join(sf.broadcast(table), list(PARTITION), "left")
    return joined.select(*rows.columns, "log_start_offset")


def _with_what_if(rows: DataFrame, question: RuleQuestion, what_if: WhatIf) -> DataFrame:
    """Add the decisions with another limit, or with future timestamps ignored."""
    largest, retention_ms = sf.col("largest_timestamp"), sf.col("retention_ms")
    if what_if.ignore_future_ms is not None:
        ahead = largest - sf.lit(question.now_ms) > sf.lit(what_if.ignore_future_ms)
        largest = sf.when(ahead, sf.col("last_modified_ms")).otherwise(largest)
    if what_if.retention_ms is not None:
        retention_ms = sf.lit(what_if.retention_ms).cast("bigint")
    before = rows.columns
    rows = rows.withColumns({"_if_largest": largest, "_if_retention_ms": retention_ms})
    names = RuleColumns("_if_largest", "_if_retention_ms", prefix="what_if_")
    answered = with_decision(rows, question, names)
    return answered.select(*before, "what_if_deletable", "what_if_reason")
