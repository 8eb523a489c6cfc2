"""The columns that are times: what pandas, Polars, DuckDB and Arrow show for each integer."""

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kip33
from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import PARTS, TIME_COLUMNS
from kip33.demo import make_archive
from tests.builders.changing_archive import ChangingArchive, batches
from tests.builders.snapshots import commit_path, part_path, row, write
from tests.pages import blocks_of, is_printed

PAGE = Path(kip33.__file__).with_name("docs") / "how-to" / "catalog.md"
LAST_MS = 9_214_646_399_999
SHOWN = {
    0: "1970-01-01T00:00:00",
    1: "1970-01-01T00:00:00.001",
    1_700_000_000: "1970-01-20T16:13:20",  # seconds taken for milliseconds
    1_679_794_200_000: "2023-03-26T01:30:00",  # clocks go forward in Europe half an hour before
    1_698_539_400_000: "2023-10-29T00:30:00",  # an hour that clocks there show twice
    1_698_543_000_000: "2023-10-29T01:30:00",
    1_700_000_000_123: "2023-11-14T22:13:20.123",
    LAST_MS: "2261-12-31T23:59:59.999",
}
NOT_SHOWN = [
    None,
    -1,  # no timestamp
    -2,
    -(10**12),
    -2_208_988_800_001,  # just before 1900
    -(2**63),
    LAST_MS + 1,
    2**63 // 10**6 + 1,  # its nanoseconds are beyond int64
    253_402_300_800_000,  # the year 10000
    1_700_000_000_000_000,  # microseconds taken for milliseconds
    2**63 // 1000 + 1,  # its microseconds are beyond int64
    1_700_000_000_000_000_000,  # nanoseconds
    2**63 - 1,
]
EVERY: list[int | None] = [*SHOWN, *NOT_SHOWN]

Times = list[datetime | None]


def expected(values: list[int | None]) -> Times:
    return [
        None if value not in SHOWN else datetime.fromisoformat(f"{SHOWN[value]}+00:00")
        for value in values
    ]


def with_times(values: list[int | None]) -> list[dict[str, Any]]:
    """Return rows with a value in each column that has a time column."""
    return [
        row(number, **dict.fromkeys(TIME_COLUMNS.values(), value))
        for number, value in enumerate(values)
    ]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "_catalog"))


@pytest.fixture
def folder(catalog: Catalog) -> str:
    """Return the folder of a snapshot with EVERY value, in two parts."""
    rows = with_times(EVERY)
    return catalog.snapshot_folder(write(catalog, rows[:9], rows[9:]).name).path


ZONES = ("UTC", "Europe/Berlin", "America/New_York")


@contextmanager
def zone(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a time zone: DuckDB and Python take it from the environment."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


def by_pandas(folder: str, column: str) -> Times:
    times = pd.read_parquet(folder).sort_values("partition")[column]
    assert str(times.dtype) == "datetime64[ms, UTC]"
    times.astype("datetime64[ns, UTC]")  # raises for a time beyond nanoseconds
    return [None if pd.isna(one) else one.to_pydatetime() for one in times]


def by_polars(folder: str, column: str) -> Times:
    frame = pl.read_parquet(folder).sort("partition")
    assert frame.schema[column] == pl.Datetime("ms", "UTC")
    frame[column].cast(pl.Datetime("ns", "UTC"))
    return frame[column].to_list()


def by_duckdb(folder: str, column: str) -> Times:
    found = duckdb.sql(f"select {column} from '{folder}/*.parquet' order by partition")
    assert [str(kind) for kind in found.types] == ["TIMESTAMP WITH TIME ZONE"]
    return [one for (one,) in found.fetchall()]


def by_arrow(folder: str, column: str) -> Times:
    table = ds.dataset(folder, format="parquet").to_table().sort_by("partition")
    assert table.schema == PARTS
    return table[column].to_pylist()


def test_tools_show_times(
    folder: str, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for read, name in product((by_pandas, by_polars, by_duckdb, by_arrow), ZONES):
        with subtests.test(f"{read.__name__} in {name}"), zone(name, monkeypatch):
            for column in TIME_COLUMNS:
                assert read(folder, column) == expected(EVERY), column


def test_the_integers_have_every_timestamp(catalog: Catalog) -> None:
    rows = with_times(EVERY)
    assert catalog.read(write(catalog, rows)).to_pylist() == rows


def test_each_time_column_shows_its_own_integer(catalog: Catalog) -> None:
    values = {name: 1_700_000_000_000 + number for number, name in enumerate(TIME_COLUMNS.values())}
    snapshot = write(catalog, [row(0, **values)])
    [found] = catalog.read(snapshot, PARTS.names).to_pylist()
    assert {name: found[name] for name in TIME_COLUMNS} == {
        name: datetime.fromtimestamp(values[integers] / 1000, UTC)
        for name, integers in TIME_COLUMNS.items()
    }


def test_a_filter_reads_only_row_groups_that_may_match(folder: str) -> None:
    """The Parquet files have the bounds of each time column."""
    for part in Path(folder).iterdir():
        group = pq.read_metadata(part).row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        times = [one for one in columns if one.path_in_schema in TIME_COLUMNS]
        assert len(times) == len(TIME_COLUMNS)
        assert all(one.statistics is not None for one in times)


def test_numbers_that_differ_take_less_space_than_with_dictionaries(
    catalog: Catalog, tmp_path: Path
) -> None:
    chance = Random(0)
    rows = with_times([chance.randrange(10**9) for _ in range(2000)])
    snapshot = write(catalog, rows)
    other = tmp_path / "other.parquet"
    pq.write_table(catalog.read(snapshot, PARTS.names), other, compression="zstd")
    assert snapshot.parts[0].size_bytes < 0.8 * other.stat().st_size


# A catalog of an earlier version


def as_version_2(archive: ChangingArchive) -> Catalog:
    """Rewrite the newest snapshot as kip33 wrote it before there were time columns."""
    catalog = Catalog.at(str(archive.catalog))
    snapshot = catalog.require_newest()
    commit = commit_path(catalog, snapshot)
    record = json.loads(commit.read_text())
    for number, (name, rows, _, _) in enumerate(record["parts"]):
        part = part_path(catalog, snapshot, number)
        pq.write_table(pq.read_table(part).drop_columns(list(TIME_COLUMNS)), part)
        data = part.read_bytes()
        record["parts"][number] = [name, rows, len(data), zlib.crc32(data)]
    commit.write_text(json.dumps(record | {"schema_version": 2}))
    return catalog


def times_of(catalog: Catalog) -> list[dict[str, Any]]:
    return kip33.open_catalog(catalog.location.uri).segments(columns=[*TIME_COLUMNS]).to_pylist()


def test_the_next_build_adds_the_times_without_reading_a_log(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for base_offset in (0, 20):
        archive.write(archive.log("b1/orders-0", base_offset), batches(base_offset, 20))
    archive.build()
    first = times_of(Catalog.at(str(archive.catalog)))
    catalog = as_version_2(archive)
    without = kip33.open_catalog(catalog.location.uri).segments()

    assert without.schema == PARTS
    assert times_of(catalog) == [dict.fromkeys(TIME_COLUMNS)] * 2

    summary = archive.build()

    assert (summary.reused, summary.indexed, summary.bytes_read) == (2, 0, 0)
    assert times_of(catalog) == first
    assert all(one["largest_time"] for one in first)
    folder = catalog.snapshot_folder(catalog.require_newest().name).path
    written = ds.dataset(folder).to_table()
    shown = pc.cast(written["largest_time"], "int64")
    assert shown.to_pylist() == written["largest_timestamp"].to_pylist()


@pytest.mark.slow  # two commands
def test_the_page_shows_what_the_tools_print(tmp_path: Path) -> None:
    [block] = [one for one in blocks_of(PAGE) if one.mark == "test: catalog_times"]
    make_archive(tmp_path / "archive")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert block.output is not None
    assert is_printed(block.output, done.stdout), done.stdout
