"""The functions of `kip33` take a path, a URI or a listed segment, and miss files alike."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kip33
from kip33.formats.times import iso_time, milliseconds_of
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case

NAME = "00000000000000000100.log"
T = 1_700_000_000_000
BATCHES = [v2_batch(100 + i, [Record(T + i)]) for i in range(5)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number in range(2):
        log = tmp_path / f"orders-{number}" / NAME
        log.parent.mkdir()
        log.write_bytes(b"".join(BATCHES))
        log.with_suffix(".timeindex").write_bytes(built_data(log))
    return tmp_path


def built_data(log: Path) -> bytes:
    data = kip33.build_time_index(log).time_index_data
    assert data
    return data


def test_every_listed_segment_can_be_built_verified_scanned_read_and_searched(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(archive.parent)
    segments = kip33.list_segments(Path(archive.name))  # a relative path
    assert [segment.log_uri for segment in segments] == [
        (archive / f"orders-{number}" / NAME).as_uri() for number in range(2)
    ]
    monkeypatch.chdir("/")
    for segment in segments:
        assert kip33.build_time_index(segment).status == "ok"
        assert kip33.verify_segment(segment).verdict == "identical"
        assert sum(len(batches) for batches in kip33.scan_batches(segment)) == 5
        assert [record.offset for record in kip33.read_records(segment, 102)] == [102, 103, 104]
        record = kip33.find_offset([segment], T + 3)
        assert record and record.offset == 103
        assert kip33.read_time_index(segment) == kip33.build_time_index(segment).time_index


@each_case("named", [str, Path, Path.as_uri])
def test_a_path_and_a_uri_are_as_good(archive: Path, named: Callable[[Path], str | Path]) -> None:
    log = named(archive / "orders-0" / NAME)
    assert kip33.build_time_index(log).valid_bytes == len(b"".join(BATCHES))
    assert kip33.verify_segment(log).verdict == "identical"
    assert len(list(kip33.scan_batches(log))) == 1
    assert len(list(kip33.read_records(log))) == 5
    assert kip33.find_offset(log, T)
    index = named(archive / "orders-0" / "00000000000000000100.timeindex")
    assert kip33.read_time_index(index).base_offset == 100


CALLS: list[Callable[[Any], object]] = [
    kip33.list_segments,
    kip33.build_time_index,
    kip33.verify_segment,
    kip33.read_time_index,
    lambda log: list(kip33.scan_batches(log)),
    lambda log: list(kip33.read_records(log)),
    lambda log: kip33.find_offset(log, iso_time(5)),
]


def test_a_missing_file_is_a_location_error(archive: Path) -> None:
    listed = kip33.list_segments(archive)[0]
    (archive / "orders-0" / NAME).unlink()
    (archive / "orders-0" / NAME).with_suffix(".timeindex").unlink()
    missing = archive / "none" / NAME
    names = [missing, missing.as_uri(), listed]
    for call, name in [*product(CALLS, names[:2]), *product(CALLS[1:], names[2:])]:
        with pytest.raises(kip33.LocationError) as error:
            call(name)
        assert "\n" not in str(error.value)


def test_a_listed_directory_that_cannot_be_read_is_a_status_and_a_verdict(archive: Path) -> None:
    (archive / "loop").symlink_to(archive)
    (segment,) = (one for one in kip33.list_segments(archive) if one.error)
    assert kip33.build_time_index(segment).status == "unreadable"
    assert kip33.verify_segment(segment).verdict == "unreadable"
    with pytest.raises(kip33.LocationError):
        kip33.read_records(segment)


def test_an_index_is_of_its_base_offset_and_its_bytes_are_the_file_s(archive: Path) -> None:
    log = archive / "orders-0" / NAME
    built = kip33.build_time_index(log, index_interval_bytes=1)
    assert isinstance(built.time_index, kip33.TimeIndex)
    assert isinstance(built.offset_index, kip33.OffsetIndex)
    assert [entry.offset for entry in built.time_index] == [101, 102, 103, 104]
    assert built.time_index.to_bytes() == built.time_index_data
    assert built.offset_index.to_bytes() == built.offset_index_data
    assert built.offset_index.base_offset == 100


@each_case("zone", [UTC, timezone(timedelta(hours=-5))])
def test_a_time_may_be_an_aware_datetime(archive: Path, zone: timezone) -> None:
    time = datetime.fromtimestamp((T + 2) / 1000, zone)
    record = kip33.find_offset(archive / "orders-0", time)
    assert record and record.offset == 102
    index = kip33.build_time_index(archive / "orders-0" / NAME, index_interval_bytes=1).time_index
    assert index and index.lookup(time) == (T + 2, 102)
    assert index.lookup_before(time) == (T + 1, 101)


@each_case(
    ("time", "ms"),
    [
        *(
            (f"2023-11-15{text}", 1_700_049_600_000)
            for text in ("T12:00Z", " 12:00", "T13:00+01:00")
        ),
        ("1700049600000", 1_700_049_600_000),
        (datetime(1970, 1, 1, 0, 0, 0, 1999, UTC), 1),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC), -1),
        (date(2023, 11, 15), 1_700_006_400_000),
        (pd.Timestamp("2023-11-15"), 1_700_006_400_000),
        (pd.Timestamp("2023-11-15 01:00:00.0019999", tz="+01:00"), 1_700_006_400_001),
        (np.datetime64("2023-11-15"), 1_700_006_400_000),
        (np.datetime64("1969-12-31T23:59:59.999999999"), -1),
        (pa.scalar(1_700_006_400_000_000_999, pa.timestamp("ns")), 1_700_006_400_000),
        (pa.scalar(1_700_006_400_000, pa.timestamp("ms", "UTC")), 1_700_006_400_000),
    ],
)
def test_a_time_may_be_of_any_kind_and_fractions_of_a_millisecond_are_cut_off(
    time: Any, ms: int
) -> None:
    assert milliseconds_of(time) == ms


@each_case(
    ("time", "message"),
    [
        *((time, "time zone") for time in (datetime(2024, 5, 1), None)),
        ("2024", "give the one you mean in ISO 8601"),
        ("noon", "expected ISO 8601"),
        ("", "ISO 8601"),
        *((time, "a time") for time in (pd.NaT, np.datetime64("NaT"), pa.scalar(None), b"x")),
        (1.5, "in seconds 1970-01-01T00:00:01"),
        (1_700_000_000.5, "in seconds 2023-11-14T22:13:20"),
        (np.int64(1_700_000_000), "in seconds 2023-11-14T22:13:20"),
    ],
)
def test_what_is_no_time_is_a_value_error_of_one_line(time: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        milliseconds_of(time)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
