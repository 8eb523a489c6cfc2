"""The columns that are times: what pandas, Polars, DuckDB and Arrow show for each integer."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kip33
from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import PARTS, TIME_COLUMNS
from kip33.demo import make_archive
from tests.builders.snapshots import row, write
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


def test_tools_show_times(folder: str) -> None:
    """Those of the page `catalog` print them below; each reads these types and UTC."""
    table = ds.dataset(folder, format="parquet").to_table().sort_by("partition")
    assert table.schema == PARTS
    for column in TIME_COLUMNS:
        assert table[column].to_pylist() == expected(EVERY), column


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
    rows = with_times([chance.randrange(10**9) for _ in range(4000)])
    snapshot = write(catalog, rows)
    other = tmp_path / "other.parquet"
    pq.write_table(catalog.read(snapshot, PARTS.names), other, compression="zstd")
    assert snapshot.parts[0].size_bytes < 0.8 * other.stat().st_size


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
