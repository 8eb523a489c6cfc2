"""Retention as SQL: equal to the rule, row for row."""

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kip33.rules.policies import Policies
from kip33.rules.retention import DELETABLE_REASONS, KEPT_REASONS, WhatIf
from kip33.rules.retention_rows import Decision, Limits, judge
from kip33.rules.suspicious_timestamps import DEFAULT_AFTER_MAX_MS, SUSPICIONS
from kip33.spark.retention.evaluate import evaluate_retention
from kip33.spark.retention.summary import freed_by, summarize_partitions, totals_of
from tests.builders.random_catalogs import (
    DAY_MS,
    NOW_MS,
    POLICY,
    figures_of,
    random_catalogs,
    write_rows,
)
from tests.builders.retention_model import suspicion_of_one

pytestmark = pytest.mark.spark

SEED = 33
CATALOGS = 1_000
POLICIES = Policies(POLICY)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row], dict[Any, int]]:
    """A thousand random catalogs in one folder, their rows, and log start offsets."""
    rows, starts = random_catalogs(CATALOGS, SEED, doubled=0.01)
    return write_rows(rows, tmp_path_factory.mktemp("catalogs")), rows, starts


def partitions_of(rows: list[Row]) -> dict[tuple[str, str, int], list[Row]]:
    """Return the rows of each partition, oldest first."""

    def key(row: Row) -> tuple[str, str, int]:
        return row["log_dir"], row["topic"], row["partition"]

    def place(row: Row) -> tuple[Any, ...]:
        base_offset = row["base_offset"]
        return *key(row), base_offset is not None, base_offset or 0, row["log_uri"]

    return {k: list(v) for k, v in groupby(sorted(rows, key=place), key)}


def by_the_rule(
    rows: list[Row], starts: dict[Any, int], *, now_ms: int, **how: str
) -> dict[str, Decision]:
    """Return the rule's decision for every log, by its URI."""
    decided = {}
    for (log_dir, topic, partition), segments in partitions_of(rows).items():
        policy = POLICIES.of(topic)
        limits = Limits(
            policy.retention_ms,
            policy.retention_bytes,
            policy.mode,
            starts.get((log_dir, topic, partition)),
            **how,
        )
        figures = [figures_of(row) for row in segments]
        decisions = judge(figures, limits, now_ms=now_ms)
        decided |= {row["log_uri"]: d for row, d in zip(segments, decisions, strict=True)}
    return decided


@pytest.mark.integration  # `make test` compares Spark with the local engine, and that with the rule
@pytest.mark.parametrize(
    ("active_segment", "boundary"),
    [
        ("keep", "local"),
        ("kafka", "remote"),
        ("keep", "remote"),
        ("kafka", "local"),
    ],
)
def test_spark_decides_as_the_rule_does(
    active_segment: str,
    boundary: str,
    spark: SparkSession,
    catalogs: tuple[Path, list[Row], dict[Any, int]],
) -> None:
    folder, rows, starts = catalogs
    how = {"active_segment": active_segment, "boundary": boundary}

    judged = evaluate_retention(
        spark.read.parquet(str(folder)), POLICIES, now_ms=NOW_MS, log_start_offsets=starts, **how
    )
    spark_says = {
        row.log_uri: Decision(*(row[name] for name in Decision._fields)) for row in judged.collect()
    }

    rule_says = by_the_rule(rows, starts, now_ms=NOW_MS, **how)
    differences = {
        uri: (spark_says.get(uri), decision)
        for uri, decision in rule_says.items()
        if spark_says.get(uri) != decision
    }
    assert not differences, f"seed {SEED}"
    assert len(spark_says) == len(rows)
    reasons = Counter(decision.reason for decision in rule_says.values())
    expected = {*DELETABLE_REASONS, *KEPT_REASONS} - {"no_policy"}
    expected -= {"empty_active_segment" if active_segment == "keep" else "active_segment"}
    assert {reason for reason, count in reasons.items() if count >= 10} >= expected, reasons


def test_input_columns_are_kept_as_they_are(
    spark: SparkSession, catalogs: tuple[Path, list[Row], dict[Any, int]]
) -> None:
    catalog = spark.read.parquet(str(catalogs[0]))

    judged = evaluate_retention(catalog, POLICIES, now_ms=NOW_MS)

    assert judged.schema[: len(catalog.columns)] == catalog.schema
    assert judged.columns[len(catalog.columns) :] == [
        *("policy", "mode", "retention_ms", "retention_bytes", "log_start_offset"),
        *Decision._fields,
        *("kept_only_by_blocker", "suspicion"),
    ]


@pytest.mark.integration
def test_spark_suspects_what_the_rule_suspects(
    spark: SparkSession, catalogs: tuple[Path, list[Row], dict[Any, int]]
) -> None:
    judged = evaluate_retention(spark.read.parquet(str(catalogs[0])), POLICIES, now_ms=NOW_MS)

    found: Counter[str | None] = Counter()
    for row in judged.collect():
        expected = None
        if row.largest_timestamp is not None and row.largest_timestamp_source != "last_modified":
            expected = suspicion_of_one(
                row.largest_timestamp,
                now_ms=NOW_MS,
                last_modified_ms=row.last_modified_ms,
                retention_ms=-1 if row.retention_ms is None else row.retention_ms,
                is_create_time=row.timestamp_types in (None, ["CreateTime"]),
            )
        elif row.largest_timestamp and row.largest_timestamp - NOW_MS > DEFAULT_AFTER_MAX_MS:
            expected = "future"
        assert row.suspicion == expected, row
        found[expected] += 1
    assert {kind for kind, count in found.items() if count > 5} >= {*SUSPICIONS, None} - {
        "nanoseconds"
    }, found


@pytest.mark.integration
def test_what_if_the_future_were_not_believed_and_the_limit_another(
    spark: SparkSession, catalogs: tuple[Path, list[Row], dict[Any, int]]
) -> None:
    folder, rows, _ = catalogs
    what_if = WhatIf(retention_ms=3_600_000, ignore_future_ms=3_600_000)

    judged = evaluate_retention(
        spark.read.parquet(str(folder)), POLICIES, now_ms=NOW_MS, what_if=what_if
    ).collect()

    decided = {}
    for (_, topic, _), segments in partitions_of(rows).items():
        policy = POLICIES.of(topic)
        limits = Limits(3_600_000, policy.retention_bytes, policy.mode)
        figures = []
        for row in segments:
            figure = figures_of(row)
            largest = figure.largest_timestamp
            if largest is not None and largest > NOW_MS + 3_600_000:
                figure = figure._replace(largest_timestamp=row["last_modified_ms"])
            figures.append(figure)
        decisions = judge(figures, limits, now_ms=NOW_MS)
        decided |= {row["log_uri"]: d for row, d in zip(segments, decisions, strict=True)}
    assert {row.log_uri: (row.what_if_deletable, row.what_if_reason) for row in judged} == {
        uri: (decision.deletable, decision.reason) for uri, decision in decided.items()
    }
    real = by_the_rule(rows, {}, now_ms=NOW_MS)
    assert all(row.deletable == real[row.log_uri].deletable for row in judged)
    assert any(row.what_if_deletable and not row.deletable for row in judged)


@pytest.mark.integration
def test_the_summary_adds_up(
    spark: SparkSession, catalogs: tuple[Path, list[Row], dict[Any, int]]
) -> None:
    folder, rows, starts = catalogs
    judged = evaluate_retention(
        spark.read.parquet(str(folder)), POLICIES, now_ms=NOW_MS, log_start_offsets=starts
    )

    partitions = summarize_partitions(judged, now_ms=NOW_MS)

    rule_says = by_the_rule(rows, starts, now_ms=NOW_MS)
    expected = partitions_of(rows)
    summed = partitions.collect()
    assert [(row.log_dir, row.topic, row.partition) for row in summed] == sorted(expected)
    for row in summed:
        segments = expected[row.log_dir, row.topic, row.partition]
        check_partition(row.asDict(), segments, [rule_says[s["log_uri"]] for s in segments])
    totals = totals_of(partitions)
    assert totals["partitions"] == len(summed)
    assert totals["segments"] == len(rows)
    assert totals["bytes"] == sum(row["size_bytes"] or 0 for row in rows)
    assert totals["deletable_segments"] == sum(d.deletable for d in rule_says.values())
    assert totals["blocked_partitions"] == sum(row.blocked_segments > 0 for row in summed) > 20


def check_partition(found: Row, segments: list[Row], decisions: list[Decision]) -> None:
    """Hold one summary row against a plain loop over the partition's decisions."""
    sizes = [row["size_bytes"] or 0 for row in segments]
    deletable = sum(decision.deletable for decision in decisions)
    blocked = [i for i, decision in enumerate(decisions) if decision.reason == "blocked"]
    assert found["segments"] == len(segments)
    assert (found["deletable_segments"], found["deletable_bytes"]) == (
        deletable,
        sum(sizes[:deletable]),
    )
    assert (found["blocked_segments"], found["blocked_bytes"]) == (
        len(blocked),
        sum(sizes[i] for i in blocked),
    )
    kept = segments[deletable] if deletable < len(segments) else None
    assert found["first_kept_base_offset"] == (kept["base_offset"] if kept else None)
    only = 0
    for size, decision in list(zip(sizes, decisions, strict=True))[deletable + 1 :]:
        if decision.reason != "blocked":
            break
        only += size
    assert found["kept_only_by_blocker_bytes"] == only
    assert found["last_modified_segments"] == sum(
        row["largest_timestamp_source"] == "last_modified" for row in segments
    )
    if not blocked or kept is None:
        assert found["blocking_reason"] is None
        assert found["blocking_base_offset"] is None
        return
    newest = [
        segments[i]["largest_timestamp"]
        for i in blocked
        if segments[i]["largest_timestamp"] is not None
    ]
    largest = kept["largest_timestamp"]
    assert found["blocking_base_offset"] == kept["base_offset"]
    assert found["blocking_reason"] == decisions[deletable].reason
    assert found["blocking_timestamp"] == largest
    assert found["blocking_offset_of_max_timestamp"] == kept["offset_of_max_timestamp"]
    assert found["block_ends_at_ms"] == decisions[blocked[0]].deletable_at_ms
    if largest is not None:
        assert found["blocking_ahead_of_now_ms"] == largest - NOW_MS
        assert found["blocking_ahead_of_blocked_ms"] == largest - max(0, *newest)


@pytest.mark.integration
def test_what_is_freed_by_a_moment_is_what_is_deletable_then(
    spark: SparkSession, catalogs: tuple[Path, list[Row], dict[Any, int]]
) -> None:
    folder, rows, starts = catalogs
    moments = [NOW_MS - DAY_MS, NOW_MS, NOW_MS + DAY_MS, NOW_MS + 40 * DAY_MS]
    judged = evaluate_retention(
        spark.read.parquet(str(folder)), POLICIES, now_ms=NOW_MS, log_start_offsets=starts
    )

    freed = freed_by(judged, moments).collect()

    sizes = {row["log_uri"]: row["size_bytes"] or 0 for row in rows}
    topics = {row["log_uri"]: row["topic"] for row in rows}
    for moment in moments:
        then = by_the_rule(rows, starts, now_ms=moment)
        for topic in {*topics.values()}:
            gone = [u for u, d in then.items() if d.deletable and topics[u] == topic]
            so_far = [row for row in freed if row.at_ms <= moment and row.topic == topic]
            assert sum(row.segments for row in so_far) == len(gone)
            assert sum(row.bytes for row in so_far) == sum(sizes[uri] for uri in gone)


def test_a_topic_without_policy_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    rows, _ = random_catalogs(5, SEED)
    catalog = spark.read.parquet(str(write_rows(rows, tmp_path)))
    policies = Policies({"topics": {"hourly": {"retention.ms": 1}}})

    judged = evaluate_retention(catalog, policies, now_ms=NOW_MS)

    others = judged.where("topic not in ('hourly', '__consumer_offsets', '__cluster_metadata')")
    assert {row.reason for row in others.select("reason").distinct().collect()} == {"no_policy"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"now_ms": -1}, "now_ms -1: expected milliseconds since 1970"),
        ({"now_ms": 1, "boundary": "far"}, "boundary 'far': expected one of local, remote"),
        ({"now_ms": 1, "active_segment": "x"}, "active_segment 'x': expected one of keep, kafka"),
    ],
)
def test_wrong_arguments(given: Row, says: str, spark: SparkSession) -> None:
    empty: DataFrame = spark.createDataFrame([], "topic string")
    with pytest.raises(ValueError, match=says):
        evaluate_retention(empty, POLICIES, **given)
