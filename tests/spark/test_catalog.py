"""The catalog of the demo archive, row by row, and the engines that read the same folder."""

import json
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.sql import functions as sf

from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import PARTS, TIME_COLUMNS
from kip33.cli.main import kip33
from kip33.demo import START_MS, make_archive, orders
from kip33.errors import CatalogError
from kip33.rules.policies import Policies
from kip33.spark.audits import audit_roll
from kip33.spark.catalog import load_catalog
from kip33.spark.retention import evaluate_retention, summarize_partitions
from tests.builders.snapshots import part_path, write
from tests.builders.snapshots import row as row_of
from tests.catalog.test_time_columns import EVERY, SHOWN, with_times
from tests.faults.builds import build_here

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
NO_TIME = -1
SHOWN_MS = [value if value in SHOWN else None for value in EVERY]


class Expected(NamedTuple):
    """One row's columns as the comments of `make_archive` promise them."""

    status: str
    valid_bytes: int | None  # None: the whole file
    last_offset: int | None
    batch_count: int | None  # None, and all figures below: Kafka keeps no index
    record_count: int | None
    max_timestamp: int | None
    offset_of_max_timestamp: int | None
    largest_timestamp: int | None  # None here with the source last_modified: the file's own time
    largest_timestamp_source: str | None
    time_index_entries: int | None
    active_segment: bool
    timestamp_types: list[str] | None
    magics: list[int] | None
    codecs: list[str] | None
    out_of_order_batches: int | None


CREATE = ["CreateTime"]
LATE = {0: 1700000402941, 4000: 1700086794935, 8000: 1700172849724}  # max timestamps of orders-0


def whole_orders(base_offset: int, batches: int, entries: int, codec: str) -> Expected:
    is_last, latest = base_offset == 8000, LATE[base_offset]
    last = base_offset + 10 * batches - 1
    return Expected(
        *("ok", None, last, batches, 10 * batches, latest, last, latest, "log", entries, is_last),
        *(CREATE, [2], [codec], 0),
    )


TORN_BYTES = sum(map(len, orders(0, START_MS, 199)))
GOOD_BYTES = sum(map(len, orders(0, START_MS, 150, codec="gzip")))
# fmt: off
ROWS = {
    ("broker-1", "audit.v1", 0, 0): Expected(
        "ok", None, 209, 120, None, START_MS - DAY_MS + 59_500, 209, START_MS - DAY_MS + 59_500,
        "log", 4, True, ["NoTimestampType", "CreateTime"], [0, 1],
        ["none", "gzip", "snappy", "lz4"], 0,
    ),
    ("broker-1", "orders", 0, 0): whole_orders(0, 400, 103, "none"),
    ("broker-1", "orders", 0, 4000): whole_orders(4000, 400, 24, "lz4"),
    ("broker-1", "orders", 0, 8000): whole_orders(8000, 50, 3, "zstd"),
    ("broker-1", "payments", 0, 0): Expected(
        "ok", None, 239, 120, 240, START_MS + 59_005, 239, START_MS + 59_005, "log", 6, True,
        CREATE, [2], ["none"], 0,
    ),
    ("broker-2", "clicks", 0, 0): Expected(
        "truncated", TORN_BYTES, 1989, 199, 1990, 1700000198686, 1989, 1700000198686, "log", 51,
        True, CREATE, [2], ["none"], 0,
    ),
    ("broker-2", "clicks", 1, 0): Expected(
        "truncated", GOOD_BYTES, 1499, 150, 1500, 1700000149841, 1499, 1700000149841, "log", 8,
        True, CREATE, [2], ["gzip"], 0,
    ),
    ("broker-2", "clicks", 2, 0): Expected(
        "invalid", 130_752, None, None, None, None, None, None, None, None,
        True, None, None, None, None,
    ),
    ("broker-2", "clicks", 3, 0): Expected(
        "empty", 0, None, 0, 0, NO_TIME, None, None, "last_modified", 0, True, [], [], [], 0,
    ),
    ("broker-2", "metrics", 0, 0): Expected(
        "ok", 81, 0, 1, 1, NO_TIME, None, None, "last_modified", 0, True, CREATE, [2], ["none"], 0,
    ),
    ("broker-2", "orders", 0, 0): whole_orders(0, 400, 103, "none"),
    ("broker-2", "orders", 0, 4000): whole_orders(4000, 400, 24, "lz4"),
    ("broker-2", "orders", 0, 8000): whole_orders(8000, 50, 3, "zstd"),
}
# fmt: on


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "archive with spaces"
    make_archive(root)
    return root


@pytest.fixture(scope="module")
def catalog(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    index_dir = tmp_path_factory.mktemp("indexes")
    build_here(archive, index_dir, now_ms=NOW_MS, offset_index=True)
    return index_dir / "_catalog"


@pytest.fixture(scope="module")
def rows(spark: Any, catalog: Path) -> list[dict[str, Any]]:
    """Return the catalog as Spark reads it, by path."""
    loaded = load_catalog(spark, str(catalog)).orderBy("log_uri").collect()
    return [row.asDict(recursive=True) for row in loaded]


@pytest.fixture
def folder(catalog: Path) -> str:
    """Return what `kip33 catalog --path` prints."""
    result = CliRunner().invoke(kip33, ["catalog", str(catalog), "--path"])
    assert result.exit_code == 0, result.output
    return result.stdout.removesuffix("\n")


@pytest.mark.parametrize("key", list(ROWS), ids=lambda key: f"{key[0]} {key[1]}-{key[2]} {key[3]}")
def test_the_row_of(rows: list[dict[str, Any]], archive: Path, key: tuple[Any, ...]) -> None:
    [row] = [r for r in rows if (r["log_dir"], r["topic"], r["partition"], r["base_offset"]) == key]
    log_dir, topic, partition, base_offset = key
    log = archive / log_dir / f"{topic}-{partition}" / f"{base_offset:020d}.log"
    expected = ROWS[key]._asdict()
    if expected["valid_bytes"] is None:
        expected["valid_bytes"] = log.stat().st_size
    if expected["largest_timestamp_source"] == "last_modified":
        expected["largest_timestamp"] = log.stat().st_mtime_ns // 1_000_000

    assert {name: row[name] for name in expected} == expected
    assert row["log_uri"] == log.as_uri()
    assert row["size_bytes"] == log.stat().st_size
    assert row["last_modified_ms"] == log.stat().st_mtime_ns // 1_000_000
    assert bool(row["error"]) == (row["status"] in ("truncated", "invalid"))


def test_an_index_uri_names_the_file_that_was_written(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["status"] == "invalid":
            assert (row["index_uri"], row["index_file"]) == (None, None)
        else:
            index = Path(row["index_uri"].removeprefix("file://"))
            assert index.stat().st_size == 12 * row["time_index_entries"]
            assert row["index_file"] == "written"


def test_a_row_says_with_which_settings_it_was_built(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(settings) for settings in {row["build_settings"] for row in rows}] == [
        {
            "dialect": "recover",
            "index_interval_bytes": 4096,
            "segment_index_bytes": 10_485_760,
            "check_crc": True,
            "offset_index": True,
            "bytes_version": 1,
        }
    ]


def test_spark_has_the_columns_of_the_schema_in_their_order(spark: Any, catalog: Path) -> None:
    kinds = {
        pa.string(): "string",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.bool_(): "boolean",
        pa.list_(pa.string()): "array<string>",
        pa.list_(pa.int32()): "array<int>",
        pa.list_(pa.int64()): "array<bigint>",
        pa.timestamp("ms", "UTC"): "timestamp",
    }
    assert load_catalog(spark, str(catalog)).dtypes == [
        (field.name, kinds[field.type]) for field in PARTS
    ]


def test_pyarrow_reads_the_same_rows(rows: list[dict[str, Any]], folder: str) -> None:
    """`tests/catalog/test_catalog.py` has the other engines."""
    found = ds.dataset(folder).to_table().sort_by("log_uri").to_pylist()
    assert [list(row) for row in found] == [PARTS.names] * len(ROWS)
    assert found == [
        row | {name: row[name] and row[name].astimezone(UTC) for name in TIME_COLUMNS}
        for row in rows  # Spark collects times in the time zone of this machine
    ]


@pytest.mark.parametrize("mode", ["EXCEPTION", "CORRECTED"], ids=["Spark 3.5's", "Spark 4's"])
def test_no_timestamp_keeps_spark_from_reading_a_catalog(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    """`tests/catalog/test_time_columns.py` has the values; the mode is Spark's for old times."""
    catalog = Catalog.at(str(tmp_path / "catalog"))
    write(catalog, with_times(EVERY))
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    before = spark.conf.get(setting)
    spark.conf.set(setting, mode)
    try:
        loaded = load_catalog(spark, str(tmp_path / "catalog")).orderBy("partition")
        in_ms = [sf.unix_millis(name).alias(name) for name in TIME_COLUMNS]
        found = loaded.select(*in_ms).collect()
        frame = loaded.select(*TIME_COLUMNS).toPandas()
    finally:
        spark.conf.set(setting, before)
    for name in TIME_COLUMNS:
        assert [row[name] for row in found] == SHOWN_MS
        in_pandas = [None if pd.isna(one) else one.value // 10**6 for one in frame[name]]
        assert in_pandas == SHOWN_MS


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_rows_that_tasks_judge_keep_their_times(spark: Any, tmp_path: Path, zone: str) -> None:
    catalog = Catalog.at(str(tmp_path / "catalog"))
    write(catalog, with_times(EVERY))
    policies = Policies({"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}})
    setting = "spark.sql.session.timeZone"
    before = spark.conf.get(setting)
    spark.conf.set(setting, zone)
    try:
        loaded = load_catalog(spark, str(tmp_path / "catalog"))
        judged = evaluate_retention(loaded, policies, now_ms=NOW_MS)
        for rows in (judged, audit_roll(loaded)):
            in_ms = [sf.unix_millis(name).alias(name) for name in TIME_COLUMNS]
            found = rows.orderBy("partition").select(*in_ms).collect()
            assert [tuple(row) for row in found] == [(one,) * 5 for one in SHOWN_MS]
        assert summarize_partitions(judged, now_ms=NOW_MS).count() == len(EVERY)
    finally:
        spark.conf.set(setting, before)


def test_a_missing_catalog_is_reported(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=f"{tmp_path}: no committed snapshot found"):
        load_catalog(spark, str(tmp_path))


def test_flipped_bits_of_a_part_do_not_reach_spark(spark: Any, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path / "catalog"))
    snapshot = write(catalog, [row_of(number) for number in range(9)])
    part = part_path(catalog, snapshot)
    whole = part.read_bytes()
    for position in (4, len(whole) // 2, len(whole) - 9):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        part.write_bytes(flipped)
        with pytest.raises(CatalogError, match=r"the CRC does not match the commit file"):
            load_catalog(spark, str(tmp_path / "catalog"))
    part.write_bytes(whole)
    assert load_catalog(spark, str(tmp_path / "catalog")).count() == 9


@pytest.fixture
def two_parts(spark: Any, tmp_path: Path) -> tuple[str, Path]:
    """Return a catalog of two parts, and its second part."""
    catalog = Catalog.at(str(tmp_path / "catalog"))
    snapshot = write(catalog, [row_of(1)], [row_of(2)])
    return str(tmp_path / "catalog"), part_path(catalog, snapshot, 1)


def test_a_part_removed_before_spark_lists_it_is_an_error(
    spark: Any, two_parts: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a prune that has removed one of two files; the other one must not be all the rows."""
    catalog, part = two_parts
    read_pieces = Catalog.read_pieces

    def read_then_remove(*arguments: Any) -> Any:
        yield from read_pieces(*arguments)
        part.unlink()

    monkeypatch.setattr(Catalog, "read_pieces", read_then_remove)
    with pytest.raises(CatalogError, match=r"part-00001\S+: this part is missing: .*run the comm"):
        load_catalog(spark, catalog)


def test_a_part_removed_before_spark_reads_it_is_an_error_in_every_session(
    spark: Any, two_parts: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, part = two_parts
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        frame = load_catalog(spark, catalog)
        assert frame.count() == 2
        part.unlink()
        with pytest.raises(Exception, match=r"part-00001\S* does not exist"):
            frame.select("log_uri").collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
