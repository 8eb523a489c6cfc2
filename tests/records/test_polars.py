"""`scan_polars` returns what `read_arrow` returns, whatever Polars lets the reader leave out."""

import inspect
import sys
from functools import reduce
from operator import and_
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import kip33
from kip33.errors import CorruptSegmentError, LocationError
from kip33.records import segment_reader
from kip33.records import segment_reader as index_start
from kip33.records.reading import ReadOptions
from tests.builders.log_file import write_log
from tests.builders.record_questions import (
    COLUMNS,
    plain_rows,
    random_archive,
    random_conditions,
    rows_of,
    those,
    time_of,
)
from tests.builders.segment_builder import Record, v2_batch, with_broken_crc
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long

T = 1_700_000_000_000


def rows(frame: pl.LazyFrame, engine: Any = "auto") -> Any:
    return plain_rows(frame.select(COLUMNS).collect(engine=engine).to_arrow())


@pytest.mark.parametrize("archives", short_and_long(1, 20, "KIP33_FRAMES"))
def test_random_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int) -> None:
    monkeypatch.setattr(index_start, "_SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(segment_reader, "LOCAL_WINDOW_BYTES", 500)
    for seed in seeds(archives):
        random = Random(seed)
        disorder_ms = random.choice((0, 500, 100_000))
        sources = random_archive(random, tmp_path / str(seed), disorder_ms=disorder_ms)
        for source in sources:
            every = rows_of(source)
            frame = kip33.scan_polars(source, on_error="row")
            promised = kip33.scan_polars(source, disorder=f"{disorder_ms}ms", on_error="row")
            by_workers = kip33.scan_polars(source, workers=2, on_error="row")
            assert rows(frame) == rows(by_workers) == every
            assert rows(by_workers.head(2)) == every[:2]
            for _ in range(10 if archives > 1 else 4):
                asked = random_conditions(random, every)
                condition = reduce(and_, (one.polars() for one in asked))
                expected = those(every, asked)
                assert rows(frame.filter(condition)) == expected, (seed, source.name, asked)
                assert rows(promised.filter(condition)) == expected, (seed, source.name, asked)
                assert rows(frame.filter(condition).head(2)) == expected[:2], (seed, asked)
                count = frame.filter(condition).select(pl.len()).collect().item()
                assert count == len(expected), (seed, asked)


def batch(base: int) -> bytes:
    return v2_batch(base, [Record(T + base + i, b"k", b"v") for i in range(2)])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The segments at offset 4 and those of the topic `broken` cannot be read."""
    write_log(tmp_path / "orders-0", 0, batch(0), batch(2))
    write_log(tmp_path / "orders-0", 4, with_broken_crc(batch(4)))
    write_log(tmp_path / "broken-0", 0, with_broken_crc(batch(0)))
    return tmp_path


ORDERS, OFFSET = pl.col("topic") == "orders", pl.col("offset")


EXCLUDING = [
    ORDERS & (OFFSET < 4),
    (pl.lit(3) >= OFFSET) & ORDERS,
    (pl.col("partition") == 0) & ORDERS & OFFSET.is_between(0, 3),
    pl.col("topic").is_in(["orders", "nothing"]) & OFFSET.is_in([0, 1, 2, 3]),
]


@each_case("condition", EXCLUDING)
def test_what_a_filter_excludes_is_not_read(condition: Any, archive: Path) -> None:
    frame = kip33.scan_polars(archive, on_error="fail")
    assert frame.filter(condition).select("offset").collect()["offset"].to_list() == [0, 1, 2, 3]
    with pytest.raises(CorruptSegmentError):
        frame.filter(ORDERS | condition).collect()


def test_reading_stops_at_the_limit(archive: Path) -> None:
    frame = kip33.scan_polars(archive, on_error="fail", topic="orders")
    assert frame.head(3).select("offset").collect()["offset"].to_list() == [0, 1, 2]
    assert frame.head(3).filter(OFFSET > 1).collect()["offset"].to_list() == [2]
    assert frame.head(0).collect().height == 0


OTHER_FILTERS = [
    OFFSET.is_null(),
    (OFFSET > 1) | (OFFSET < 1),
    OFFSET != 1,
    OFFSET + 1 > 3,
    OFFSET.eq_missing(2),
    pl.col("partition") < OFFSET,
    OFFSET.cast(pl.Float64) > 1.5,
    pl.col("timestamp") >= pl.lit(time_of(T + 2)).dt.cast_time_unit("us"),
    pl.col("timestamp").dt.epoch("ms") > T,
    pl.col("key") == b"k",
]


@each_case("condition", OTHER_FILTERS)
def test_other_filters_are_left_to_polars(condition: Any, archive: Path) -> None:
    frame = kip33.scan_polars(archive, on_error="row")
    assert rows(frame.filter(condition)) == rows(frame.collect().lazy().filter(condition))
    streamed = rows(frame.filter(condition), engine="streaming")
    assert sorted(streamed, key=str) == sorted(rows(frame.filter(condition)), key=str)


def test_columns_and_types(archive: Path) -> None:
    frame = kip33.scan_polars(archive, columns=["timestamp", "key", "headers"], on_error="row")
    assert frame.collect_schema() == {
        "timestamp": pl.Datetime("ms", "UTC"),
        "key": pl.Binary,
        "headers": pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
    }
    assert (
        kip33.scan_polars(archive, level="segments", on_error="row")
        .select(pl.len())
        .collect()
        .item()
        == 3
    )
    assert frame.select("key").collect().columns == ["key"]


def test_errors_are_one_line(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"scan_polars\(\) got an unexpected keyword .*'colour'"):
        kip33.scan_polars(archive, colour="red", on_error="row")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="on_error 'nothing': expected one of row"):
        kip33.scan_polars(archive, on_error="nothing")
    with pytest.raises(LocationError, match="does not exist"):
        kip33.scan_polars(archive / "nothing", on_error="row").collect()
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"polars is not installed.*'kip33\[polars\]'"):
        kip33.scan_polars(archive, on_error="row")


def test_skipped_lines(archive: Path) -> None:
    skipped: list[str] = []
    frame = kip33.scan_polars(archive, on_error="skip", skipped=skipped)
    assert frame.select(pl.len()).collect().item() == 4
    assert len(skipped) == 2


def test_options_are_those_of_read_arrow() -> None:
    parameters = inspect.signature(kip33.read_arrow).parameters
    assert inspect.signature(kip33.scan_polars).parameters == parameters
    own = {"source", "skipped", "storage_options", "filesystem", "workers"}
    assert ReadOptions.__annotations__.keys() == parameters.keys() - own
