"""The catalog of the demo archive, row by row, and the engines that read the same folder."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as sf

from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import PARTS, TIME_COLUMNS
from kip33.demo import make_archive
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
SHOWN_MS = [value if value in SHOWN else None for value in EVERY]


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


def test_the_rows_are_those_of_the_catalog(rows: list[dict[str, Any]], catalog: Path) -> None:
    """`tests/catalog/test_catalog.py` has what other engines read."""
    opened = Catalog.at(str(catalog))
    table = opened.read(opened.require_newest(), PARTS.names)
    assert rows == [
        row
        | {name: row[name] and row[name].astimezone().replace(tzinfo=None) for name in TIME_COLUMNS}
        for row in table.sort_by("log_uri").to_pylist()
    ]


def test_no_timestamp_keeps_spark_from_reading_a_catalog(spark: Any, tmp_path: Path) -> None:
    """`tests/catalog/test_time_columns.py` has the values; the mode is that of Spark 3.5."""
    catalog = Catalog.at(str(tmp_path / "catalog"))
    write(catalog, with_times(EVERY))
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "EXCEPTION")
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


def test_rows_that_tasks_judge_keep_their_times(spark: Any, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path / "catalog"))
    write(catalog, with_times(EVERY))
    policies = Policies({"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}})
    setting = "spark.sql.session.timeZone"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "Europe/Berlin")
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
