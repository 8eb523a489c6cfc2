"""Rows that tasks judge are those that this process judges."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from kip33.catalog import ordered_parts
from kip33.catalog.catalog import Catalog
from kip33.catalog.partitions import names_in, topics_with_several_ids
from kip33.catalog.schema import TIME_COLUMNS
from kip33.retention.evaluated_tables import freed_table, partitions_table, segment_rows
from kip33.retention.evaluation import JudgedRows, RetentionRequest, judged_tables
from kip33.retention.snapshot_sums import SUMMED, sums_of, sums_of_all
from kip33.rules.policies import Policies, duration_ms
from kip33.rules.retention import WhatIf
from kip33.spark import retention
from kip33.spark.catalog import load_catalog
from kip33.spark.retention import evaluate_retention, freed_by, summarize_partitions
from tests.builders.broker_archive import rows_with_files
from tests.builders.judged_catalogs import judged_at_once
from tests.builders.random_catalogs import (
    DAY_MS,
    NOW_MS,
    POLICY,
    LogStartOffsets,
    random_catalogs,
)
from tests.builders.ranged_catalogs import ranged_catalog
from tests.builders.snapshots import write
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

SEED = 33
LOG_DIRECTORIES = 40
MOMENTS = [NOW_MS - DAY_MS, NOW_MS, NOW_MS + DAY_MS, NOW_MS + 40 * DAY_MS, 2**63 - 1]
POLICIES = Policies({**POLICY, "topics": {**POLICY["topics"], "hourly": {
    "retention.ms": 3_600_000, "message.timestamp.after.max.ms": 2 * DAY_MS}}})  # fmt: skip
QUESTIONS: list[dict[str, Any]] = [
    {"active_segment": "kafka", "boundary": "remote", "retention_ms": "1h", "ignore_future": "1h"},
    {},
    {"ignore_future": 0, "show_broker_view": True},
    {"retention_ms": 2**63 - 1, "boundary": "remote"},
]

IN_MS = ("retention_ms", "ignore_future")  # a what-if


class Archive(NamedTuple):
    """A catalog whose logs and index files are there, and log start offsets of some."""

    catalog: Catalog
    starts: LogStartOffsets


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    root = tmp_path_factory.mktemp("columns, 100% [x]")
    rows, starts = random_catalogs(LOG_DIRECTORIES, SEED, doubled=0.01)
    rows = rows_with_files(rows, root / "archive", SEED)
    for row in rows:
        if row["base_offset"] is not None and row["status"] != "unverified":
            row["last_offset"] = row["base_offset"] + 9
    nowhere = dict.fromkeys(rows[0]) | {"status": "unreadable"}
    rows += [nowhere | {"log_uri": f"file:///no/{name}"} for name in "ab"]
    rows += [nowhere | {"log_uri": "file:///no/c", "log_dir": "broker-1"}]
    catalog = Catalog.at(str(root / "catalog"))
    write(catalog, rows[:200], [], rows[200:])
    return Archive(catalog, starts)


class Answers(NamedTuple):
    """What both say."""

    judged: DataFrame
    evaluated: JudgedRows
    segments: pa.Table


@pytest.fixture(scope="module", params=one_in(4, QUESTIONS), ids=str)
def answers(request: pytest.FixtureRequest, archive: Archive, spark: SparkSession) -> Answers:
    asked: dict[str, Any] = request.param
    by_spark = evaluate_retention(
        load_catalog(spark, archive.catalog.location.uri).drop(*TIME_COLUMNS),
        POLICIES,
        now_ms=NOW_MS,
        log_start_offsets=archive.starts,
        **asked,
    ).persist()
    names = {"show_broker_view": "broker_view"}
    how = {names.get(name, name): one for name, one in asked.items() if name not in IN_MS}
    in_ms = [None if (one := asked.get(name)) is None else duration_ms(one) for name in IN_MS]
    how["what_if"] = None if in_ms == [None, None] else WhatIf(*in_ms)
    question = RetentionRequest(POLICIES, NOW_MS, archive.starts, **how)
    evaluated = judged_at_once(archive.catalog, question)
    return Answers(by_spark, evaluated, pa.concat_tables(segment_rows(evaluated)))


def differences(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[Any]:
    return [
        (number, name, row.get(name), wanted[name])
        for number, (row, wanted) in enumerate(zip(found, expected, strict=True))
        for name in wanted
        if row.get(name) != wanted[name]
    ]


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Spark's `asDict` has them."""
    rows = table.to_pylist()
    for row in rows:
        if "suspicions" in row:
            row["suspicions"] = dict(row["suspicions"])
    return rows


def test_every_segment_has_the_same_answer(answers: Answers) -> None:
    order = ("log_dir", "topic", "partition", "base_offset", "log_uri")
    expected = [row.asDict() for row in answers.judged.orderBy(*order).collect()]

    found = plain(answers.segments)

    assert not differences(found, expected)[:5]
    assert answers.segments.column_names == answers.judged.columns
    reasons = Counter(row["reason"] for row in found)
    assert len(reasons) >= 15, reasons


def test_the_same_is_freed_up_to_each_moment(answers: Answers) -> None:
    expected = [row.asDict() for row in freed_by(answers.judged, MOMENTS).collect()]
    assert plain(freed_table(answers.evaluated, MOMENTS)) == expected
    assert len({row["at_ms"] for row in expected}) > 3


def test_partitions_are_summed_as_in_this_process(answers: Answers) -> None:
    """`tests/retention/test_evaluation.py` has a loop over the rows of each partition."""
    found = summarize_partitions(answers.judged, now_ms=NOW_MS)
    expected = partitions_table(answers.evaluated)
    assert found.columns == expected.column_names
    assert [row.asDict() for row in found.collect()] == plain(expected)


def test_sums_and_holes_in_tasks_are_those_of_this_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered_parts, "ROWS_PER_PART", 70)  # partitions go on in other parts
    catalog, starts = ranged_catalog(tmp_path)
    snapshot = catalog.require_newest()
    assert len(snapshot.parts) > 10
    reborn = topics_with_several_ids(names_in(catalog, snapshot))
    for topics in ((), ("!hourly",), ("none",)):
        how = {"what_if": WhatIf(3_600_000), "moments_ms": MOMENTS, "reborn": reborn}
        asked = RetentionRequest(POLICIES, NOW_MS, starts, topics, **how)
        found = retention.sums_of_snapshot(spark, catalog, snapshot, asked)
        tables = judged_tables(catalog, snapshot, asked, SUMMED)
        here = [sums_of(judged, asked) for judged in tables]
        assert found == sums_of_all(catalog, snapshot, asked, here)
        assert found.partitions.num_rows > 100 or topics == ("none",)
