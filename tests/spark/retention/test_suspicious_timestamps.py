"""Suspicious timestamps as SQL: the rule's own table, row for row, at every boundary."""

from typing import Any, Final

import pytest

from kip33.rules.suspicious_timestamps import Suspicion
from kip33.spark.retention.evaluate import suspicion
from tests.rules.test_suspicious_timestamps import BACKFILLS, LIMITS, NOW, OLD, TIMES, WEEK

BACKFILL, FUTURE = Suspicion.BACKFILL, Suspicion.FUTURE

pytestmark = pytest.mark.spark

COLUMNS: Final = {
    "name": "string",
    "largest_timestamp": "bigint",
    "largest_timestamp_source": "string",
    "timestamp_types": "array<string>",
    "retention_ms": "bigint",
    "last_modified_ms": "bigint",
    "after_max_ms": "bigint",
}
CREATED, APPENDED = "CreateTime", "LogAppendTime"


def row(name: str, timestamp: int | None, **fields: Any) -> tuple[Any, ...]:
    given = {
        "name": name,
        "largest_timestamp": timestamp,
        "largest_timestamp_source": "log",
        "timestamp_types": [CREATED],
        "retention_ms": -1,
    } | fields
    return tuple(given.get(column) for column in COLUMNS)


def found(spark: Any, rows: list[tuple[Any, ...]]) -> dict[str, str | None]:
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    table = spark.createDataFrame(rows, schema).select("name", suspicion(NOW).alias("kind"))
    return {one.name: one.kind for one in table.collect()}


def test_spark_suspects_as_the_rules_table_says(spark: Any) -> None:
    rows, expected = [], {}
    for timestamp, kind, name in TIMES:
        if timestamp > -(2**63):  # no segment has it: what is negative is the file's time
            rows.append(row(name, timestamp))
            expected[name] = kind
    for timestamp, after_max_ms, kind, name in LIMITS:
        rows.append(row(name, timestamp, after_max_ms=after_max_ms))
        expected[name] = kind
    for timestamp, given, kind, name in BACKFILLS:
        fields = {"retention_ms": WEEK} | given
        types = [CREATED] if fields.pop("is_create_time", True) else [APPENDED]
        rows.append(row(name, timestamp, timestamp_types=types, **fields))
        expected[name] = kind
    assert found(spark, rows) == expected
    assert len(rows) == len(expected) == len(TIMES) + len(LIMITS) + len(BACKFILLS) - 1


LATER = {"last_modified_ms": NOW, "retention_ms": WEEK}
FILE = {"largest_timestamp_source": "last_modified"}
OTHERS = [
    ("no timestamp", None, {}, None),
    (
        "not known whose time it is: a client's",
        OLD,
        LATER | {"timestamp_types": None},
        BACKFILL,
    ),
    ("both", OLD, LATER | {"timestamp_types": [CREATED, APPENDED]}, BACKFILL),
    ("neither", OLD, LATER | {"timestamp_types": ["NoTimestampType"]}, None),
    ("no policy", OLD, LATER | {"retention_ms": None}, None),
    (
        "from a time index",
        OLD,
        LATER | {"largest_timestamp_source": "time_index"},
        BACKFILL,
    ),
    ("a file's time is no record's: old", OLD, LATER | FILE, None),
    ("seconds", NOW // 1_000, FILE, None),
    ("micros, which are ahead", NOW * 1_000, FILE, FUTURE),
    ("before 1990", 1, FILE, None),
    ("before 1970", -1, FILE, None),
    ("ahead", NOW + 3_600_001, FILE, FUTURE),
    ("not so far ahead", NOW + 3_600_000, FILE, None),
]


def test_what_only_rows_of_a_catalog_have(spark: Any) -> None:
    rows = [row(name, timestamp, **fields) for name, timestamp, fields, _ in OTHERS]
    assert found(spark, rows) == {name: kind for name, _, _, kind in OTHERS}
