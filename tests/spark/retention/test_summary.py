"""A partition's summary: every column against a plain loop over its judged rows.

What retention decides is `test_retention.py`; here it is taken as it is, and added up.
"""

from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.retention.evaluation import RetentionRequest
from kip33.retention.uploaded import Uploaded
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.spark.retention import evaluate, summarize_partitions
from kip33.stores.locations import Location
from tests.builders.random_catalogs import (
    NOW_MS,
    POLICY,
    random_catalogs,
    write_rows,
)
from tests.builders.summary_model import BROKER, COLUMNS, WHAT_IF, expected_of, partition_of, place

pytestmark = pytest.mark.spark

SEED = 7
POLICIES = Policies(POLICY)
UPLOADED = Uploaded(
    Location.of("/remote"), {("tiered", 0): (np.array([0, 30]), np.array([19, 2**41]))}, {}
)


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
    other = {(row["log_dir"], "tiered", row["partition"]): frozenset({20}) for row in rows}
    tier = replace(UPLOADED, different=other)
    asked = RetentionRequest(
        POLICIES, NOW_MS, starts, what_if=WhatIf(retention_ms=3_600_000), other_tier=tier
    )
    catalog = write_rows(rows, tmp_path_factory.mktemp("catalog"))
    judged = evaluate(spark.read.parquet(str(catalog)), asked)
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
    judged = {*COLUMNS[7:], *WHAT_IF, *BROKER} - {"tiered_segments"}  # it is known what is uploaded
    judged -= {"unreferenced_segments", "unreferenced_bytes"}  # of a remote tier only
    for name in judged:
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
