"""`find_offset` and `read_records` from segment files, compared with the written records."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33 import find_offset, read_records
from kip33.archive import log_slice
from kip33.errors import CorruptSegmentError, LocationError, UnsupportedFormatError
from kip33.formats.times import iso_time
from kip33.search import read_records as reading
from kip33.stores.locations import Location
from tests.builders.generated_segments import plain_batch, wire_of
from tests.builders.log_file import write_log
from tests.builders.searched_segments import Partition, brute, partitions, write_segment
from tests.builders.segment_builder import Record as Sent
from tests.builders.segment_builder import (
    end_txn_marker,
    segment,
    v1_message,
    v2_batch,
    with_broken_crc,
)
from tests.cases import each_case
from tests.long_forms import examples

SENT = (
    Sent(1000, b"k", b"v", (("h", b"1"), ("h", None))),
    Sent(999, None, None),
    Sent(-1, b"", bytes(range(256))),
)


@settings(max_examples=examples(50))
@given(partitions(), st.booleans(), st.booleans(), st.data())
def test_any_range_over_any_borders(
    partition: Partition, index: bool, check_crc: bool, data: st.DataObject
) -> None:
    records = partition.records
    places = st.integers(0, (records[-1][0] if records else 0) + 3)
    times = st.sampled_from([0, *(t for _, t in records if t >= 0)])
    with tempfile.TemporaryDirectory() as folder:
        partition.write_to(Path(folder), interval_bytes=60, offset_index=index, time_index=index)
        for _ in range(4):
            start, end = data.draw(places), data.draw(places | st.none())
            found = read_records(folder, start, end, include_control=True, check_crc=check_crc)
            pairs = [(r.offset, r.timestamp) for r in found]
            assert pairs == [(o, t) for o, t in records if o >= start and (end is None or o < end)]
            time = data.draw(times)
            first = find_offset(folder, iso_time(time))
            assert (first and first[:2]) == (brute(records, time)[:2] if first else None)
            assert (first is None) == (brute(records, time)[0] is None)


def test_control_records_are_optional(tmp_path: Path) -> None:
    log = write_log(
        tmp_path,
        0,
        v2_batch(0, [Sent(10, b"k")], transactional=True, producer_id=5),
        end_txn_marker(1, 20, producer_id=5, commit=False),
        v2_batch(2, [Sent(30, b"l")]),
    )
    assert [r.offset for r in read_records(log)] == [0, 2]
    assert [r.offset for r in read_records(log, include_control=True)] == [0, 1, 2]
    marker = find_offset(log, iso_time(15))  # as Kafka
    assert marker is not None and (marker.offset, marker.key) == (1, bytes(4))


@pytest.fixture
def opened_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    opened: Callable[..., Any] = log_slice.opened

    @contextmanager
    def watched(location: Location) -> Iterator[Any]:
        names.append(location.name)
        with opened(location) as pair:
            yield pair

    monkeypatch.setattr(log_slice, "opened", watched)
    return names


def test_only_what_may_hold_the_offsets_is_opened(tmp_path: Path, opened_names: list[str]) -> None:
    for base in (0, 100, 200, 300):
        log = wire_of([plain_batch(base + i, [base]) for i in range(0, 90, 2)])
        write_segment(tmp_path, base, log, interval_bytes=0)
    found = list(read_records(tmp_path, 150, 202))
    assert [r.offset for r in found] == [*range(150, 190, 2), 200]
    assert opened_names == [f"{100:020d}.log", f"{100:020d}.index", f"{200:020d}.log"]


WRONG_INDEXES = {
    "empty": b"",
    "zeros": bytes(64),
    "0xff": b"\xff" * 64,
    "0x7f": b"\x7f" * 64,
    "no batch": b"\0\0\0\1\0\0\0\5" * 8,
    "a batch too far": bytes([0, 0, 0, 5, 0, 0, 2, 0xA8]) * 2,
    "too far": b"\0\0\0\1" + (2000).to_bytes(4),
    "torn": b"\1" * 11,
}


@each_case("index", WRONG_INDEXES)
def test_an_index_that_is_wrong_loses_nothing(index: Any, tmp_path: Path) -> None:
    log = write_log(tmp_path, 0, *(v2_batch(i, [Sent(i)]) for i in range(40)))
    log.with_suffix(".index").write_bytes(index)
    for start in (0, 1, 7, 39, 40):
        assert [r.offset for r in read_records(log, start)] == list(range(start, 40))


def test_a_batch_inside_a_value_is_not_read_as_a_batch(tmp_path: Path) -> None:
    """An index may lead into a record's value that looks like a batch; its CRC cannot be right."""
    fake = with_broken_crc(v2_batch(1, [Sent(5)]))
    log = write_log(tmp_path, 0, v2_batch(0, [Sent(1, None, fake)]), v2_batch(1, [Sent(2)]))
    at = log.read_bytes().index(fake)
    log.with_suffix(".index").write_bytes(b"\0\0\0\1" + at.to_bytes(4))
    assert [r.timestamp for r in read_records(log, 1)] == [2]


GOOD = v2_batch(0, [Sent(1), Sent(2)])
DAMAGE = {
    "torn": v2_batch(2, [Sent(3)])[:-1],
    "torn header": v2_batch(2, [Sent(3)])[:30],
    "a few bytes": bytes(5),
    "zeros": bytes(100),
    "broken crc": with_broken_crc(v2_batch(2, [Sent(3)])),
    "broken crc, v1": with_broken_crc(v1_message(2, 3)),
    "records that do not parse": v2_batch(2, [Sent(3)], records_count=7),
    "a codec that does not decode": v2_batch(2, [Sent(3)], codec="lz4", body=bytes(40)),
}


@each_case("damage", [*DAMAGE])
def test_damage_ends_the_reading_behind_the_good_records(damage: str, tmp_path: Path) -> None:
    log = write_log(tmp_path, 0, GOOD, DAMAGE[damage])
    records = read_records(tmp_path)
    assert next(records).offset == 0
    assert next(records).offset == 1
    with pytest.raises(CorruptSegmentError, match=r"0000\.log: ") as raised:
        list(records)
    assert raised.value.valid_bytes == len(GOOD)
    assert [r.offset for r in read_records(log, 0, 2)] == [0, 1]
    found = find_offset(log, iso_time(2))
    assert found is not None and found.offset == 1


def test_without_a_check_a_broken_crc_goes_unseen(tmp_path: Path) -> None:
    log = write_log(tmp_path, 0, GOOD, DAMAGE["broken crc"])
    assert [r.offset for r in read_records(log, check_crc=False)] == [0, 1, 2]


def test_a_codec_unknown_to_kafka(tmp_path: Path) -> None:
    log = write_log(tmp_path, 0, v2_batch(0, [Sent(3)], attributes=6))
    with pytest.raises(UnsupportedFormatError, match=r"\.log: batch at position 0: .*codec-6"):
        list(read_records(log))
    with pytest.raises(CorruptSegmentError, match="codec-6"):
        find_offset(log, iso_time(3))


def test_large_logs_are_checked_by_compiled_code(tmp_path: Path) -> None:
    value = bytes(range(256)) * 1200
    batches = [v2_batch(i, [Sent(i, None, value)]) for i in range(6)]
    log = write_log(tmp_path, 0, *batches)
    assert [(r.offset, r.value) for r in read_records(log)] == [(i, value) for i in range(6)]
    log.write_bytes(segment([*batches[:5], with_broken_crc(batches[5])]))
    with pytest.raises(CorruptSegmentError) as raised:
        list(read_records(log))
    assert raised.value.valid_bytes == sum(map(len, batches[:5]))


def test_a_batch_too_large_to_hold_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_HELD_BYTES", 100)
    log = write_log(tmp_path, 0, v2_batch(0, SENT, codec="gzip"), v2_batch(3, SENT))
    assert [r.offset for r in read_records(log)] == list(range(6))


def test_logs_may_be_named_one_by_one_in_any_order(tmp_path: Path) -> None:
    first, second = write_log(tmp_path, 0, GOOD), write_log(tmp_path, 2, v2_batch(2, [Sent(9)]))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n0\n")
    (tmp_path / f"{7:020d}.log.deleted").write_bytes(b"x")
    for named in (tmp_path, str(tmp_path), [second, str(first)], [Location.of(tmp_path).uri]):
        assert [r.offset for r in read_records(named)] == [0, 1, 2]
        found = find_offset(named, iso_time(5))
        assert found is not None and found.offset == 2
    assert [r.offset for r in read_records(second)] == [2]


def test_wrong_arguments(tmp_path: Path) -> None:
    log = write_log(tmp_path, 0, GOOD)
    (tmp_path / "other").mkdir()
    with pytest.raises(LocationError, match="no segments found"):
        read_records(tmp_path / "other")
    with pytest.raises(LocationError, match="no segments found"):
        read_records([])
    with pytest.raises(LocationError, match="neither a directory nor a log"):
        find_offset(tmp_path / "none", iso_time(5))
    with pytest.raises(LocationError, match="cannot be read"):
        find_offset(tmp_path / f"{9:020d}.log", iso_time(5))
    with pytest.raises(LocationError, match="cannot be read"):
        list(read_records(tmp_path / f"{9:020d}.log"))
    with pytest.raises(ValueError, match="the same base offset"):
        read_records([log, write_log(tmp_path / "other", 0, GOOD)])
    with pytest.raises(ValueError, match="milliseconds"):
        find_offset(log, -1)


@pytest.mark.parametrize("damage", ["torn", "zeros", "a codec that does not decode"])
def test_find_offset_does_not_skip_damage(tmp_path: Path, damage: str) -> None:
    write_log(tmp_path, 0, GOOD, DAMAGE[damage])
    write_log(tmp_path, 9, v2_batch(9, [Sent(4)]))
    with pytest.raises(CorruptSegmentError):
        find_offset(tmp_path, iso_time(3))
