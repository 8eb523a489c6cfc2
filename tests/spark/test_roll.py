"""The roll audit as SQL: equal to the rule, row for row."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kip33.audits.roll_audit import FIGURES, ROLL, audit_columns, roll_table
from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.rules.policies import Policies
from kip33.rules.roll_verdicts import EarlyRoll, NotSeen, RollDoubt
from kip33.rules.rolling import GivenSettings, RollReading, RollReason, TopicRollSettings
from kip33.spark import audit_roll
from tests.builders.rolled_catalogs import POLICY, rolled_rows
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

PARTITIONS = 1000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.Table.from_pylist(rolled_rows(PARTITIONS, 33), schema=SEGMENTS)


@pytest.mark.parametrize("reading", one_in(3, RollReading))
def test_spark_says_what_the_rule_says(
    spark: SparkSession, rows: pa.Table, tmp_path: Path, reading: RollReading
) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    policies, given = Policies(POLICY), GivenSettings()
    columns = columns_of([rows], more=FIGURES)
    audit = audit_columns(columns, TopicRollSettings(policies, given).of, reading=reading)
    by_rule = {row["log_uri"]: row for row in roll_table(audit).to_pylist()}

    found = audit_roll(spark.read.parquet(str(tmp_path)), policies, reading=reading)
    assert found.columns[: len(rows.column_names)] == rows.column_names
    by_spark = {row["log_uri"]: row for row in (one.asDict() for one in found.collect())}

    assert by_spark.keys() == by_rule.keys()
    for uri, expected in by_rule.items():
        differences = {
            name: (by_spark[uri][name], value)
            for name, value in expected.items()
            if by_spark[uri][name] != value
        }
        assert not differences, (uri, differences)
    if reading == RollReading.KAFKA:
        _has_every_verdict(list(by_rule.values()))


def _has_every_verdict(rows: list[dict[str, Any]]) -> None:
    """Check that the rows are examples of all that a catalog alone can tell."""
    seen = {name: Counter(row[name] for row in rows) for name in ROLL.names[2:]}
    not_by_catalog = {RollReason.INDEX_FULL}  # entries are counted from headers
    assert set(seen["ended_by"]) == set(RollReason) - not_by_catalog
    assert set(seen["doubt"]) == {None, *RollDoubt}
    # Its start is known where the next batch is.
    assert set(seen["not_seen"]) - {NotSeen.START_TIMESTAMP} == (
        {None, *NotSeen} - {NotSeen.START_TIMESTAMP}
    )
    assert set(seen["early"]) == {None, *EarlyRoll}
    assert {True, False, None} <= set(seen["by_size"])
    assert any(row["overdue_ms"] for row in rows)
    assert any(row["waited_by_file_time"] for row in rows)


def test_settings_that_are_given_override_the_policy(spark: SparkSession, rows: pa.Table) -> None:
    some = rows.slice(0, 5).select(["log_dir", "topic", "partition", "base_offset", "log_uri"])
    frame = spark.createDataFrame(
        pa.Table.from_pylist(some.to_pylist(), schema=SEGMENTS).to_pylist(),
        "log_dir string, topic string, partition int, base_offset bigint, last_offset bigint, "
        "log_uri string, valid_bytes bigint, batch_count bigint, record_count bigint, "
        "first_batch_timestamp bigint, max_timestamp bigint, smallest_timestamp bigint, "
        "last_modified_ms bigint, status string",
    )
    found = audit_roll(frame, Policies(POLICY), segment_ms=7).select("segment_ms").distinct()
    assert [row.segment_ms for row in found.collect()] == [7]


def test_an_unknown_reading_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="'first' is not a valid RollReading"):
        audit_roll(spark.range(1), reading="first")
