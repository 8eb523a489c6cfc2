"""The newest snapshot lost a part: what reads a catalog says that it reads an older one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kip33
from kip33.catalog.catalog import Catalog
from kip33.errors import CatalogError
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.snapshots import part_path
from tests.cases import each_case
from tests.faults.builds import build_here

T = 1_700_000_000_000
Read = Callable[..., Any]


def batch(offset: int) -> bytes:
    return v2_batch(offset, [Record(T + number, None, b"v") for number in range(100)])


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Return a catalog whose newest snapshot has 200 records, and the one before 100."""
    directory = tmp_path / "archive/t-0"
    place = tmp_path / "indexes/_catalog"
    for offset in (0, 100):
        write_log(directory, offset, batch(offset))
        build_here(tmp_path / "archive", tmp_path / "indexes")
    opened = Catalog.at(str(place))
    part_path(opened, opened.require_newest()).unlink()
    return place


def read_polars(catalog: Any, **options: Any) -> Any:
    return kip33.scan_polars(catalog, **({"on_error": "row"} | options)).collect().to_arrow()


def read_table(catalog: Any, **options: Any) -> Any:
    return kip33.read_arrow(catalog, **({"on_error": "row"} | options)).read_all()


def read_opened(catalog: Any, **options: Any) -> Any:
    return read_table(kip33.open_catalog(catalog), **options)


READS = [read_table, read_polars, read_opened]


@each_case("read", READS)
@each_case("on_error", ("row", "skip"))
def test_a_reader_warns(read: Any, on_error: str, catalog: Path) -> None:
    with pytest.warns(UserWarning, match=r"no bytes found, .*; this snapshot is ignored"):
        assert read(catalog, on_error=on_error).num_rows == 100


@each_case("read", READS)
def test_a_reader_that_may_miss_nothing_fails(read: Any, catalog: Path) -> None:
    problem = r'no bytes found, .*, and on_error="fail" takes no older one; run `kip33 build`'
    with pytest.raises((CatalogError, pl.exceptions.ComputeError), match=problem):
        read(catalog, on_error="fail")


def test_the_warning_names_the_line_of_the_caller(catalog: Path) -> None:
    with pytest.warns(UserWarning) as seen:
        kip33.read_arrow(catalog, on_error="row")
    assert [one.filename for one in seen] == [__file__]
