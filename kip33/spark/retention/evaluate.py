"""Retention of a catalog as a DataFrame: what is deletable, why the rest is kept, and what-ifs.

The rule is in `kip33.spark.retention.rule`. This module adds policies and what-ifs.

A broker's decisions beside ours: retention by the index files that are beside the logs.

The input of `kafka-delete-records.sh --offset-json-file` for deletable segments.

Send small tables from Python to the JVM.

Suspicious timestamps of a catalog: `kip33.rules.suspicious_timestamps` as a Spark expression.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kip33.formats.kafka_configs import delete_records_object
from kip33.formats.times import Time, milliseconds_of
from kip33.retention.broker_files import BrokerViewRow, SeenByBroker, seen_by_broker
from kip33.retention.evaluated_tables import INTERNAL
from kip33.rules.policies import Policies
from kip33.rules.retention import RetentionMode, RuleQuestion, WhatIf, require_question
from kip33.rules.segment_summary import TimestampSource
from kip33.rules.suspicious_timestamps import (
    DEFAULT_AFTER_MAX_MS,
    YEAR_1990_MS,
    YEAR_MS,
    Suspicion,
)
from kip33.spark.retention.rule import PARTITION, RuleColumns, with_decision
from kip33.spark.tasks import run_on_rows

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
    return _with_broker_view(rows, question) if broker_view else rows


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


_SEEN: Final = StructType(
    [
        StructField("log_uri", StringType()),
        StructField("broker_largest_timestamp", LongType()),
        StructField("broker_largest_timestamp_source", StringType()),
        StructField("broker_index_fault", StringType()),
    ]
)
ADDED: Final = (*SeenByBroker._fields[1:], "broker_deletable", "broker_reason")


def _with_broker_view(judged: DataFrame, question: RuleQuestion) -> DataFrame:
    """Return what `evaluate_retention` returned, with a broker's answer to the same question.

    Adds `broker_largest_timestamp`, its `_source` (`BrokerTimestampSource`), what is wrong with the
    index (`broker_index_fault`), `broker_deletable` and `broker_reason`. A task reads the end of
    each `.timeindex` in the directories of its partitions. A broker trusts what it reads. So it has
    doubts only about segments whose timestamp is unknown.
    """
    columns = ("log_dir", "topic", "partition", "log_uri", "max_timestamp")
    segments = judged.where(sf.col("base_offset").isNotNull()).select(*columns)
    grouped = segments.repartition(*columns[:3]).sortWithinPartitions(*columns[:4])
    seen = run_on_rows(grouped, _seen, _SEEN)
    rows = judged.join(seen, "log_uri", "left").withColumn(
        "_broker_status",
        sf.when(sf.col("broker_largest_timestamp").isNull(), "unreadable").otherwise("ok"),
    )
    names = RuleColumns("broker_largest_timestamp", status="_broker_status", prefix="broker_")
    answered = with_decision(rows, question, names)
    return answered.select(*judged.columns, *ADDED)


def _seen(rows: Iterable[dict[str, Any]]) -> Iterator[SeenByBroker]:
    yield from seen_by_broker(BrokerViewRow(row["log_uri"], row["max_timestamp"]) for row in rows)


def delete_records(
    partitions: DataFrame,
    *,
    trust_last_modified: bool = False,
    left_out: Collection[tuple[str, int]] = (),
) -> dict[str, Any]:
    """Return the file's JSON (`DeleteRecordsCommand`, version 1); runs a job.

    It has the offset of the first kept record of each partition; a broker deletes the records
    before it. With replicas in several log directories, the one that keeps most is used.

    Left out are partitions without deletable segments; partitions with an unverified deletable
    segment, or with one judged by its file's time (unless `trust_last_modified`); those in
    `left_out` (`kip33.retention.make_plan`); and compacted and internal topics, whose records
    Kafka does not delete.
    """
    first_kept = sf.coalesce("first_kept_base_offset", "log_end_offset")
    doubted = sf.col("deletable_unverified_segments")
    if not trust_last_modified:
        doubted = doubted + sf.col("deletable_last_modified_segments")
    loses = (sf.col("deletable_segments") > 0) & (doubted == 0)
    replicas = partitions.where(
        (sf.col("mode") == RetentionMode.DELETE) & ~sf.col("topic").isin(*INTERNAL)
    ).select("topic", "partition", sf.when(loses, first_kept).alias("offset"))  # null: all are kept
    rows = (
        replicas.groupBy("topic", "partition")
        .agg(sf.min("offset").alias("offset"), sf.bool_or(sf.isnull("offset")).alias("any_keeps"))
        .where("not any_keeps")
        .orderBy("topic", "partition")
        .collect()
    )
    return delete_records_object(
        (row["topic"], row["partition"], row["offset"])
        for row in rows
        if (row["topic"], row["partition"]) not in left_out
    )


_TAKES_ARROW: Final = int(pyspark.__version__.partition(".")[0]) >= 4


def small_table(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame whose rows are in the JVM.

    For a list of rows Spark starts Python workers, which takes seconds the first time (Spark 3.5
    has no other way).
    """
    if _TAKES_ARROW:
        with suppress(ImportError):  # this PySpark needs a newer pyarrow
            return spark.createDataFrame(table)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return spark.createDataFrame(rows, from_arrow_schema(table.schema))


def suspicion(now_ms: int) -> Column:
    """Return what is suspicious about a row's largest timestamp, null if nothing is.

    For rows with `retention_ms` and `after_max_ms`. A file's time that stands in for a missing
    timestamp can only be in the future.
    """
    largest = sf.col("largest_timestamp")
    of_record = sf.col("largest_timestamp_source") != TimestampSource.LAST_MODIFIED
    create_time = sf.coalesce(
        sf.array_contains("timestamp_types", "CreateTime"),
        sf.lit(True),  # a tail row: not known
    )
    expired_on_arrival = (
        create_time
        & (sf.col("retention_ms") >= 0)
        & (largest < sf.greatest(sf.lit(0), "last_modified_ms") - sf.col("retention_ms"))
    )
    return (
        sf.when(of_record & _between_now_and_1990(largest, now_ms, 1_000), Suspicion.MICROSECONDS)
        .when(of_record & _between_now_and_1990(largest, now_ms, 1_000_000), Suspicion.NANOSECONDS)
        .when(
            largest - sf.lit(now_ms)
            > sf.coalesce(sf.col("after_max_ms"), sf.lit(DEFAULT_AFTER_MAX_MS)),
            Suspicion.FUTURE,
        )
        .when(
            of_record
            & (largest >= YEAR_1990_MS // 1_000)
            & (largest < (now_ms + YEAR_MS) // 1_000),
            Suspicion.SECONDS,
        )
        .when(of_record & (largest < YEAR_1990_MS), Suspicion.BEFORE_1990)
        .when(of_record & expired_on_arrival, Suspicion.BACKFILL)
    )


def _between_now_and_1990(timestamp: Column, now_ms: int, scale: int) -> Column:
    return (timestamp >= sf.lit(YEAR_1990_MS * scale)) & (
        timestamp < sf.lit(min(2**63 - 1, (now_ms + YEAR_MS) * scale))
    )
