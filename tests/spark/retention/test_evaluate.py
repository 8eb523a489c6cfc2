"""Retention of a DataFrame: its columns and arguments; `test_columns.py` has the decisions."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kip33.rules.policies import Policies
from kip33.rules.retention_rows import Decision
from kip33.spark.retention import evaluate_retention
from tests.builders.random_catalogs import NOW_MS, POLICY, random_catalogs, write_rows

pytestmark = pytest.mark.spark

SEED = 33
POLICIES = Policies(POLICY)
Row = dict[str, Any]


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> DataFrame:
    rows, _ = random_catalogs(5, SEED)
    return spark.read.parquet(str(write_rows(rows, tmp_path)))


def test_input_columns_are_kept_as_they_are(catalog: DataFrame) -> None:
    judged = evaluate_retention(catalog, POLICIES, now_ms=NOW_MS)

    assert judged.schema[: len(catalog.columns)] == catalog.schema
    assert judged.columns[len(catalog.columns) :] == [
        *("policy", "mode", "retention_ms", "retention_bytes", "log_start_offset"),
        *Decision._fields,
        *("kept_only_by_blocker", "suspicion"),
    ]


def test_wrong_arguments(spark: SparkSession) -> None:
    empty: DataFrame = spark.createDataFrame([], "topic string")
    with pytest.raises(ValueError, match="now_ms: -1 found, expected ISO 8601"):
        evaluate_retention(empty, POLICIES, now_ms=-1)
