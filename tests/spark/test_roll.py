"""The roll audit as a DataFrame: the rows of `audits.roll_audit`, judged in tasks."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.pandas import functions

from kip33.audits.roll_audit import FIGURES, audit_columns, roll_table
from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import in_order
from kip33.rules.policies import Policies
from kip33.rules.rolling import GivenSettings, RollReading, TopicRollSettings
from kip33.spark import audit_roll
from tests.builders.snapshots import row

pytestmark = pytest.mark.spark

POLICY = {
    "defaults": {"segment.ms": 1000, "segment.bytes": 1000},
    "topics": {"jitter": {"segment.jitter.ms": 300}},
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Sixty partitions of four segments, in no order, with figures beside the limits."""
    chance = Random(33)
    rows = [
        row(
            number, topic=chance.choice(("plain", "jitter")), log_uri=f"file:///{number}/{base}.log"
        )
        | {"base_offset": base, "last_offset": base + 9, "record_count": 10, "log_dir": ""}
        | dict.fromkeys(("size_bytes", "valid_bytes"), chance.choice((300, 900, 1000, 1001)))
        | {"first_batch_timestamp": 90 * base, "max_timestamp": 90 * base + chance.randrange(2000)}
        | {"status": chance.choice(("ok", "ok", "ok", "truncated", "unverified"))}
        for number in range(60)
        for base in range(0, 40, 10)
    ]
    chance.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=SEGMENTS)


def test_each_task_judges_its_partitions(
    spark: SparkSession, rows: pa.Table, tmp_path: Path
) -> None:
    pq.write_table(rows.slice(0, 100), tmp_path / "0.parquet")
    pq.write_table(rows.slice(100), tmp_path / "1.parquet")
    policies, reading = Policies(POLICY), RollReading.LARGEST
    settings = TopicRollSettings(policies, GivenSettings())
    audit = audit_columns(columns_of(in_order(rows), more=FIGURES), settings.of, reading=reading)
    expected = {row["log_uri"]: row for row in roll_table(audit).to_pylist()}

    found = audit_roll(spark.read.parquet(str(tmp_path)), policies, reading=reading)

    assert found.columns[: len(rows.column_names)] == rows.column_names
    judged = {row["log_uri"]: row for row in (one.asDict() for one in found.collect())}
    assert {uri: {name: judged[uri][name] for name in row} for uri, row in expected.items()} == (
        expected
    )
    given = {row["log_uri"]: row for row in rows.to_pylist()}
    assert {uri: {name: row[name] for name in SEGMENTS.names} for uri, row in judged.items()} == (
        given
    )


def test_no_job_runs_before_the_rows_are_used(
    spark: SparkSession, rows: pa.Table, tmp_path: Path
) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    catalog = spark.read.parquet(str(tmp_path))
    spark.sparkContext.setJobGroup("a roll audit that is not used", "")
    audit_roll(catalog, Policies(POLICY))
    tracker = spark.sparkContext.statusTracker()
    assert not tracker.getJobIdsForGroup("a roll audit that is not used")


def test_pandas_is_not_asked_for(
    spark: SparkSession, rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("this test has no pandas")

    monkeypatch.setattr(functions, "require_minimum_pandas_version", missing)
    pq.write_table(rows.slice(0, 5), tmp_path / "rows.parquet")
    audit = audit_roll(spark.read.parquet(str(tmp_path)), Policies(POLICY))
    assert audit.count() == 5
    with pytest.raises(ImportError):  # and for others it is as before
        audit.mapInArrow(iter, audit.schema)


def test_a_missing_column_is_named(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="log_dir"):
        audit_roll(spark.range(1))
