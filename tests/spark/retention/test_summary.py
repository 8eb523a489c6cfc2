"""A partition's summary: every column against a plain loop over its judged rows.

What retention decides is `test_retention.py`; here it is taken as it is, and added up.
"""

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.catalog.schema import SEGMENTS
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.spark import retention as retention_summary
from kip33.spark.retention import (
    evaluate_retention,
    summarize_partitions,
    totals_of,
    worst_and_totals,
)
from tests.builders.random_catalogs import (
    DAY_MS,
    LONG_MAX,
    NOW_MS,
    POLICY,
    random_catalogs,
    write_rows,
)
from tests.builders.summary_model import BROKER, COLUMNS, WHAT_IF, expected_of, partition_of, place
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

SEED = 7
POLICIES = Policies(POLICY)
Row = dict[str, Any]


class Summed(NamedTuple):
    """What was judged, and its summary."""

    judged: DataFrame
    partitions: DataFrame


@pytest.fixture(scope="module")
def summed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Summed:
    """Random catalogs with a what-if, and an invented broker's view beside."""
    rows, starts = random_catalogs(300, SEED)
    for row in rows:
        if row["base_offset"] is not None:
            row["last_offset"] = row["base_offset"] + 9
    judged = evaluate_retention(
        spark.read.parquet(str(write_rows(rows, tmp_path_factory.mktemp("catalog")))),
        POLICIES,
        now_ms=NOW_MS,
        log_start_offsets=starts,
        what_if=WhatIf(retention_ms=3_600_000),
    )
    dice = sf.crc32("log_uri") % 3
    faults = sf.when(dice == 1, "missing").when(dice == 2, "zero_timestamp")
    judged = judged.withColumns({"broker_deletable": dice == 0, "broker_index_fault": faults})
    judged = judged.persist()
    return Summed(judged, summarize_partitions(judged, now_ms=NOW_MS))


def test_every_column_is_what_a_loop_finds(summed: Summed) -> None:
    rows = sorted(summed.judged.collect(), key=place)
    expected = [expected_of(list(group)) for _, group in groupby(rows, partition_of)]

    found = [row.asDict() for row in summed.partitions.collect()]

    differences = [
        (wanted["log_dir"], wanted["topic"], name, got[name], wanted[name])
        for got, wanted in zip(found, expected, strict=True)
        for name in wanted
        if got[name] != wanted[name]
    ]
    assert not differences[:5], f"seed {SEED}"
    assert {len(row["suspicions"]) for row in found} >= {0, 1, 2, 3}
    for name in (*COLUMNS[7:], *WHAT_IF, *BROKER):
        assert sum(row[name] not in (None, 0, [], {}) for row in found) > 1, name


def test_the_columns_and_their_order(summed: Summed) -> None:
    assert summed.partitions.columns == [*COLUMNS, *WHAT_IF, *BROKER]
    alone = summed.judged.drop("broker_deletable", "broker_index_fault")
    assert summarize_partitions(alone, now_ms=NOW_MS).columns == [*COLUMNS, *WHAT_IF]
    alone = alone.drop("what_if_deletable")
    assert summarize_partitions(alone, now_ms=NOW_MS).columns == COLUMNS


def test_partitions_are_in_order(summed: Summed) -> None:
    found = [partition_of(row) for row in summed.partitions.collect()]
    assert found == sorted(set(found))


def test_totals_are_the_sums_of_the_partitions(summed: Summed) -> None:
    found = summed.partitions.collect()
    totals = totals_of(summed.partitions)
    added = [*WHAT_IF, *BROKER, *COLUMNS]
    names = [name for name in added if name.endswith(("segments", "bytes"))]
    names.remove("retention_bytes")
    suspicions = Counter[str]()
    for row in found:
        suspicions.update(row.suspicions)
    assert totals == {
        "partitions": len(found),
        "blocked_partitions": sum(row.blocked_segments > 0 for row in found),
        **{name: sum(row[name] for row in found) for name in names},
        "suspicions": dict(suspicions),
    }


def test_totals_of_no_partitions(summed: Summed) -> None:
    totals = totals_of(summed.partitions.where("false"))
    assert totals.pop("suspicions") == {}
    assert set(totals.values()) == {0}
    assert {"partitions", "blocked_partitions", "segments", *WHAT_IF, *BROKER} <= totals.keys()


def test_the_worst_partitions_are_those_with_most_bytes_blocked_then_deletable(
    summed: Summed,
) -> None:
    found = summed.partitions.collect()
    worst, _ = worst_and_totals(summed.partitions, 20)
    in_order = sorted(
        found, key=lambda row: (-row.blocked_bytes, -row.deletable_bytes, partition_of(row))
    )
    assert worst == in_order[:20]


@pytest.mark.parametrize("held", [1, 20_000])
def test_totals_beside_the_worst_are_those_of_all_however_few_are_held(
    summed: Summed, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(retention_summary, "MOST_HELD", held)
    worst, totals = worst_and_totals(summed.partitions, 20)
    assert len(worst) == min(20, held)
    assert totals == totals_of(summed.partitions)
    assert list(totals) == list(totals_of(summed.partitions))


def test_there_is_no_worst_of_no_partitions(summed: Summed) -> None:
    none = summed.partitions.where("false")
    assert worst_and_totals(none, 20) == ([], totals_of(none))


def row(base_offset: int | None, last_offset: int | None, **fields: Any) -> Row:
    return dict.fromkeys(SEGMENTS.names) | {
        "log_dir": "broker-1",
        "topic": "default",
        "partition": 0,
        "base_offset": base_offset,
        "last_offset": last_offset,
        "log_uri": f"file:///archive/broker-1/default-0/{base_offset}.log",
        "size_bytes": 100,
        "largest_timestamp": NOW_MS - 9 * DAY_MS,
        "largest_timestamp_source": "log",
        "status": "ok",
        **fields,
    }


def summary_of(spark: SparkSession, folder: Path, *rows: Row) -> list[Any]:
    catalog = spark.read.parquet(str(write_rows(list(rows), folder)))
    judged = evaluate_retention(catalog, POLICIES, now_ms=NOW_MS)
    return summarize_partitions(judged, now_ms=NOW_MS).collect()


def test_only_the_first_ten_that_rest_on_the_files_time_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_file = {"largest_timestamp_source": "last_modified"}
    rows = [row(number, number, **(by_file if number % 2 else {})) for number in range(30, 0, -1)]
    [found] = summary_of(spark, tmp_path, *rows)
    assert found.last_modified_segments == 15
    assert found.last_modified_base_offsets == list(range(1, 20, 2))


def test_rows_of_no_partition_are_one_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = {"topic": None, "partition": None, "status": "unreadable", "size_bytes": None}
    found = summary_of(
        spark,
        tmp_path,
        row(None, None, **nowhere, log_uri="file:///archive/broker-1/a"),
        row(None, None, **nowhere, log_uri="file:///archive/broker-1/b"),
        row(0, 9),
    )
    assert [(one.topic, one.partition, one.segments, one.mode) for one in found] == [
        (None, None, 2, "no_policy"),
        ("default", 0, 1, "delete"),
    ]
    assert (found[0].bytes, found[0].doubtful_segments, found[0].first_base_offset) == (0, 2, None)


ENDS = {
    "after the last record": ([(0, 9), (10, 19)], 20),
    "records were compacted away before the next segment": ([(0, 7), (10, 12)], 13),
    "nothing is known of its last offset": ([(0, None)], None),
}


@pytest.mark.parametrize("name", one_in(3, ENDS))
def test_where_a_log_ends(name: str, spark: SparkSession, tmp_path: Path) -> None:
    segments, end = ENDS[name]
    [found] = summary_of(spark, tmp_path, *(row(*one) for one in segments))
    assert found.log_end_offset == end


def test_a_log_ends_where_its_empty_last_segment_begins(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As a broker has it: what was between was compacted, or lost with its segment."""
    [found] = summary_of(spark, tmp_path, row(0, 9), row(50, None, status="empty", size_bytes=0))
    assert found.log_end_offset == 50


def test_where_a_log_ends_is_not_known_if_its_end_was_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of `--read tail` have no last offset."""
    [found] = summary_of(spark, tmp_path, row(0, 9), row(10, None, status="unverified"))
    assert found.log_end_offset is None


def test_the_largest_offset_there_is_ends_no_job(spark: SparkSession, tmp_path: Path) -> None:
    other = {"topic": "hourly", "log_uri": "file:///archive/broker-1/hourly-0/0.log"}
    found = summary_of(spark, tmp_path, row(LONG_MAX, LONG_MAX), row(0, 9, **other))
    assert [one.topic for one in found] == ["default", "hourly"]
