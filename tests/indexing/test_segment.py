"""One segment end to end: every status. Memory: tests/builds/test_worker_memory.py."""

import os
from pathlib import Path

import pytest

from kip33.errors import CorruptSegmentError
from kip33.indexing.segment import BuiltIndexes, index_file, index_segment
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from tests.builders.logs_in_memory import read_into_of
from tests.builders.segment_builder import (
    Record,
    v2_batch,
    with_broken_crc,
)
from tests.cases import each_case

LARGEST_SEGMENT_BYTES = 2**31 - 1


def batch(offset: int, timestamp: int = 1000, **fields: object) -> bytes:
    return v2_batch(offset, [Record(timestamp, b"k", b"v")], **fields)  # type: ignore[arg-type]


def index_of(
    data: bytes, *, base_offset: int = 0, native: bool | None = None, **settings: object
) -> BuiltIndexes:
    return index_segment(
        read_into_of(data),
        len(data),
        base_offset=base_offset,
        topic="orders",
        settings=IndexSettings(**settings),  # type: ignore[arg-type]
        native=native,
    )


GOOD = batch(0) + batch(1, 2000)
ONE_ENTRY = bytes.fromhex("00000000000007d0 00000001")
SHORT_KEY = v2_batch(2, [Record(9, b"")], control=True, producer_id=1)
NO_KEY = v2_batch(2, [Record(9, None)], control=True, producer_id=1)
INSIDE = {"producer_id": 5, "transactional": True}
STATUSES = {
    "ok": (GOOD, "ok", None, len(GOOD)),
    "empty": (b"", "empty", None, 0),
    "torn": (GOOD + batch(2)[:-1], "truncated", "points past the end", len(GOOD)),
    "17 bytes more": (GOOD + bytes(17), "truncated", "17 bytes left", len(GOOD)),
    "zeros": (GOOD + bytes(900), "truncated", "smaller than any", len(GOOD)),
    "bad crc": (GOOD + with_broken_crc(batch(2)) + batch(3), "truncated", "CRC", len(GOOD)),
    "no batch at all": (b"garbage" * 9, "truncated", "points past the end", 0),
    "row 33: a control batch that recovery stops after": (GOOD + SHORT_KEY + batch(3),
        *("truncated", "control batch", len(GOOD + SHORT_KEY))),
    "row 34: a control batch that fails to load": (GOOD + NO_KEY + batch(3),
        *("invalid", "Kafka fails to load", len(GOOD + NO_KEY))),
    "row 36: data outside the open transaction": (
        GOOD + batch(2, **INSIDE) + batch(3, producer_id=5),
        *("invalid", "outside its open transaction", len(GOOD) + len(batch(2)))),
    "row 40": (GOOD + batch(-7), "invalid", "below the segment's base", len(GOOD)),
    "row 42": (GOOD + batch(2**31), "invalid", "Kafka splits", len(GOOD)),
    "row 42: the last batch is in range": (GOOD + batch(2**31) + batch(9),
        *("invalid", "splits the segment or fails", len(GOOD))),
    "a leader epoch that begins below 0": (batch(-1, last_offset_delta=1),
        *("invalid", "leader epoch 0 begins at offset -1", 0)),
}  # fmt: skip


@each_case("native", [False, True])
@each_case(("data", "status", "says", "valid_bytes"), STATUSES)
def test_status(data: bytes, status: str, says: str | None, valid_bytes: int, native: bool) -> None:
    index = index_of(data, native=native)
    assert (index.status, index.valid_bytes, index.size_bytes) == (status, valid_bytes, len(data))
    assert (index.error is None) == (says is None)
    assert says is None or says in (index.error or "")
    leaves_none = status == "invalid"
    assert (index.time_index_data is None, index.offset_index_data is None) == (
        leaves_none,
        leaves_none,
    )
    if valid_bytes == len(GOOD) and not leaves_none:
        assert (index.time_index_data, index.offset_index_data) == (ONE_ENTRY, b"")


@each_case(
    ("settings", "says"),
    [
        ({"dialect": "kip-33"}, "dialect 'kip-33'"),
        ({"index_interval_bytes": -1}, r"index\.interval\.bytes=-1"),
        ({"segment_index_bytes": 11}, r"segment\.index\.bytes=11"),
    ],
)
def test_settings_that_kafka_would_refuse(settings: dict[str, object], says: str) -> None:
    IndexSettings(index_interval_bytes=0, segment_index_bytes=12).require_valid()
    with pytest.raises(ValueError, match=says):
        IndexSettings(**settings).require_valid()  # type: ignore[arg-type]


def index_path(path: Path, base_offset: int = 0) -> BuiltIndexes:
    return index_file(
        Location.of(path), base_offset=base_offset, topic="orders", settings=IndexSettings()
    )


def test_a_file_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    index = index_path(tmp_path / "0.log")
    assert (index.status, index.time_index_data, index.size_bytes) == ("unreadable", None, 0)
    assert "No such file" in (index.error or "") or "does not exist" in (index.error or "")


def test_a_directory_named_as_a_segment_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "0.log").mkdir()
    index = index_path(tmp_path / "0.log")
    assert index.status == "unreadable"
    assert index.error and "\n" not in index.error


def test_a_file_that_shrinks_while_it_is_read_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(GOOD)

    def shrinking(*_: object, **__: object) -> BuiltIndexes:
        raise CorruptSegmentError("the file ended at byte 5 while it was read", 0)

    monkeypatch.setattr("kip33.indexing.segment.index_segment", shrinking)
    index = index_path(log)
    assert (index.status, index.size_bytes) == ("unreadable", len(GOOD))
    assert "ended at byte 5" in (index.error or "")


def test_index_segment_leaves_faults_of_reading_to_the_caller() -> None:
    def broken(position: int, view: memoryview) -> int:
        raise OSError("connection reset")

    def empty(position: int, view: memoryview) -> int:
        return 0

    settings = IndexSettings()
    with pytest.raises(OSError, match="connection reset"):
        index_segment(broken, 99, base_offset=0, topic="t", settings=settings)
    with pytest.raises(CorruptSegmentError, match="ended at byte 0"):
        index_segment(empty, 99, base_offset=0, topic="t", settings=settings)


def test_a_segment_above_2_gib_is_invalid_and_not_read(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(GOOD)
    os.truncate(log, LARGEST_SEGMENT_BYTES + 1)
    index = index_path(log)
    assert (index.status, index.valid_bytes, index.bytes_read) == ("invalid", 0, 0)
    assert index.time_index_data is None
    assert str(LARGEST_SEGMENT_BYTES) in (index.error or "")


def test_a_segment_of_the_largest_size_is_read(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(GOOD)
    os.truncate(log, LARGEST_SEGMENT_BYTES)
    index = index_path(log)
    assert (index.status, index.valid_bytes) == ("truncated", len(GOOD))
    assert index.time_index_data == ONE_ENTRY


@each_case(
    ("is_understated", "fields"),
    [
        (True, {"max_timestamp": 999}),
        (True, {"max_timestamp": -1}),
        (False, {}),
        (False, {"delete_horizon": 5000}),
        (False, {"log_append_time": 999}),
    ],
)
def test_a_header_that_claims_less_than_its_first_record_is_seen(
    is_understated: bool, fields: dict[str, int]
) -> None:
    assert index_of(GOOD + batch(2, **fields)).is_understated == is_understated
