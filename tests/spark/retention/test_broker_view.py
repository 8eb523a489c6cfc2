"""A broker's answer beside ours: real index files, read by Spark, against a plain loop."""

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import SparkSession

from kip33.catalog.schema import SEGMENTS
from kip33.rules.broker_start import BrokerTimestampSource, IndexFault, broker_view, last_entry_at
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.rules.retention_rows import Limits, SegmentFigures, judge
from kip33.spark.retention.evaluate import ADDED, evaluate_retention
from kip33.stores.locations import Location
from tests.builders.broker_archive import rows_with_files
from tests.builders.random_catalogs import (
    DAY_MS,
    NOW_MS,
    POLICY,
    LogStartOffsets,
    figures_of,
    random_catalogs,
    write_rows,
)

pytestmark = pytest.mark.spark

SEED: Final = 33
LOG_DIRECTORIES: Final = 150
POLICIES = Policies(POLICY)
Row = dict[str, Any]


class Archive(NamedTuple):
    """A catalog of logs whose files are there, its rows, and log start offsets of some."""

    catalog: str
    rows: list[Row]
    starts: LogStartOffsets


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Random partitions with an index file of some state beside each log."""
    root = tmp_path_factory.mktemp("broker view, 100% [x]")
    rows, starts = random_catalogs(LOG_DIRECTORIES, SEED)
    rows = rows_with_files(rows, root / "archive", SEED)
    return Archive(str(write_rows(rows, tmp_path_factory.mktemp("catalog"))), rows, starts)


def by_the_rules(archive: Archive, **how: str) -> dict[str, tuple[Any, ...]]:
    """Return the broker's columns of every row, by its URI, in a plain loop over files."""

    def key(row: Row) -> tuple[str, str]:
        return row["log_dir"], row["topic"]

    def place(row: Row) -> tuple[Any, ...]:
        base_offset = row["base_offset"]
        return *key(row), base_offset is not None, base_offset or 0, row["log_uri"]

    expected: dict[str, tuple[Any, ...]] = {}
    for (log_dir, topic), group in groupby(sorted(archive.rows, key=place), key):
        rows = list(group)
        views = [read_beside(row) for row in rows]
        policy = POLICIES.of(topic)
        limits = Limits(
            policy.retention_ms,
            policy.retention_bytes,
            policy.mode,
            archive.starts.get((log_dir, topic, 0)),
            **how,
        )
        decisions = judge(
            [as_figures(*pair) for pair in zip(rows, views, strict=True)], limits, now_ms=NOW_MS
        )
        for row, view, decision in zip(rows, views, decisions, strict=True):
            expected[row["log_uri"]] = (*view, decision.deletable, decision.reason)
    return expected


def as_figures(row: Row, view: tuple[int | None, str | None, str | None]) -> SegmentFigures:
    status = "unreadable" if view[0] is None else "ok"
    return figures_of(row)._replace(largest_timestamp=view[0], status=status)


def read_beside(row: Row) -> tuple[int | None, str | None, str | None]:
    if row["base_offset"] is None:
        return None, None, None
    log = Path(Location.of(row["log_uri"]).path)
    index, has_offset_index = log.with_suffix(".timeindex"), log.with_suffix(".index").exists()
    max_timestamp = row["max_timestamp"]
    if not log.exists() or (max_timestamp is None and not has_offset_index):
        return None, None, IndexFault.UNREADABLE
    data = index.read_bytes() if index.exists() else None
    at = last_entry_at(len(data or b""))
    return broker_view(
        time_index_bytes=None if data is None else len(data),
        last_entry=b"" if at is None else (data or b"")[at : at + 12],
        has_offset_index=has_offset_index,
        max_timestamp=-1 if max_timestamp is None else max_timestamp,
        last_modified_ms=log.stat().st_mtime_ns // 1_000_000,
    )


@pytest.mark.integration  # `make test` compares Spark with the local engine (`test_columns.py`)
@pytest.mark.parametrize(("active_segment", "boundary"), [("keep", "local"), ("kafka", "remote")])
def test_spark_answers_as_a_loop_over_the_files(
    active_segment: str, boundary: str, spark: SparkSession, archive: Archive
) -> None:
    how = {"active_segment": active_segment, "boundary": boundary}

    judged = evaluate_retention(
        spark.read.parquet(archive.catalog),
        POLICIES,
        now_ms=NOW_MS,
        log_start_offsets=archive.starts,
        broker_view=True,
        **how,
    ).collect()

    expected = by_the_rules(archive, **how)
    assert len(judged) == len(archive.rows) == len(expected)
    found = {row.log_uri: tuple(row[name] for name in ADDED) for row in judged}
    differences = {
        uri: (found.get(uri), columns)
        for uri, columns in expected.items()
        if found.get(uri) != columns
    }
    assert not differences, f"seed {SEED}"
    faults = Counter(row.broker_index_fault for row in judged)
    assert {fault for fault, count in faults.items() if count > 5} == {None, *IndexFault}
    assert {row.broker_largest_timestamp_source for row in judged} == {None, *BrokerTimestampSource}
    otherwise = Counter((row.deletable, row.broker_deletable) for row in judged)
    assert min(otherwise[True, False], otherwise[False, True]) > 20, otherwise


@pytest.mark.integration
def test_our_own_answer_stays_as_it_is(spark: SparkSession, archive: Archive) -> None:
    catalog = spark.read.parquet(archive.catalog)
    what_if = WhatIf(retention_ms=DAY_MS)

    alone = evaluate_retention(catalog, POLICIES, now_ms=NOW_MS, what_if=what_if)
    beside = evaluate_retention(catalog, POLICIES, now_ms=NOW_MS, what_if=what_if, broker_view=True)

    assert beside.columns == [*alone.columns, *ADDED]
    assert beside.schema[: len(alone.columns)] == alone.schema
    kept = sorted(beside.select(alone.columns).collect(), key=lambda row: row.log_uri)
    assert kept == sorted(alone.collect(), key=lambda row: row.log_uri)


def test_a_directory_that_cannot_be_listed_stands_first_to_a_broker_too(
    spark: SparkSession, archive: Archive
) -> None:
    judged = evaluate_retention(
        spark.read.parquet(archive.catalog), POLICIES, now_ms=NOW_MS, broker_view=True
    ).collect()

    directories = [row for row in judged if row.base_offset is None]
    assert len(directories) > 5
    assert {tuple(row[name] for name in ADDED) for row in directories} <= {
        (None, None, None, False, "unreadable"),
        (None, None, None, False, "unjudged"),
    }
    shut = {(row.log_dir, row.topic) for row in directories}
    behind = [row for row in judged if (row.log_dir, row.topic) in shut]
    assert not any(row.broker_deletable for row in behind)
    assert any(row.broker_reason == "blocked" for row in behind)


def test_a_row_that_belongs_to_no_partition(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = dict.fromkeys(SEGMENTS.names) | {"log_uri": "file:///no", "status": "unreadable"}
    catalog = spark.read.parquet(str(write_rows([nowhere], tmp_path)))
    [row] = evaluate_retention(catalog, POLICIES, now_ms=NOW_MS, broker_view=True).collect()
    assert tuple(row[name] for name in ADDED) == (None, None, None, False, "no_policy")
