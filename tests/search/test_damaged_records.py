"""Records of damaged logs: an answer is right, or an error says where the log ends.

A bit or a few bytes change anywhere in random logs; what is read is compared with brute force.
"""

from pathlib import Path
from random import Random

import pytest

from kip33 import find_offset, read_records
from kip33.errors import CorruptSegmentError
from kip33.formats.times import iso_time
from tests.builders.damaged_logs import Remains, damaged, random_entries, remains_of
from tests.builders.generated_segments import wire_of
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record as Sent
from tests.builders.segment_builder import v1_message, v2_batch, wrapper
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long

Pairs = list[tuple[int, int]]


def within(records: Pairs, start: int, end: int | None) -> Pairs:
    return [pair for pair in records if pair[0] >= start and (end is None or pair[0] < end)]


def read(path: Path, start: int, end: int | None) -> tuple[Pairs, int | None]:
    """What is read, and where an error says that the log ends."""
    found: Pairs = []
    try:
        for record in read_records(path, start, end, include_control=True):
            found.append((record.offset, record.timestamp))
    except CorruptSegmentError as error:
        return found, error.valid_bytes
    return found, None


def first_at(remains: Remains, base: int, time: int) -> tuple[tuple[int, int] | None, int | None]:
    """The first record at or after a time, and where an error is due."""
    for entry in remains.entries:
        if entry.max_timestamp >= time and entry.last_offset >= base:
            if entry.records is None:
                return None, entry.position
            late = [pair for pair in entry.records if pair[1] >= time and pair[0] >= base]
            if late:
                return late[0], None
    return None, remains.damaged_at


def found(path: Path, time: int) -> tuple[tuple[int, int] | None, int | None]:
    try:
        record = find_offset(path, iso_time(time))
    except CorruptSegmentError as error:
        return None, error.valid_bytes
    return record and (record.offset, record.timestamp), None


def check_reading(path: Path, now: Remains, then: Remains, start: int, end: int | None) -> None:
    """Without an error all is there; with one, all that stands before the place it names."""
    records, valid_bytes = read(path, start, end)
    if valid_bytes is not None:
        assert valid_bytes in now.places_of_errors(int(path.stem))
        assert records == within(now.before(valid_bytes).records, start, end)
        return
    assert records in (within(now.records, start, end), within(then.records, start, end))
    if now.damaged_at is not None:  # what follows the range was not asked for
        assert end is not None
        is_empty = end <= int(path.stem)
        assert is_empty or any(entry.last_offset >= end - 1 for entry in now.entries)


@pytest.mark.parametrize("logs", short_and_long(12, 2_000, "KIP33_DAMAGED_RECORDS"))
def test_a_damaged_log_is_read_rightly_or_not_at_all(tmp_path: Path, logs: int) -> None:
    for seed in seeds(logs):
        chance = Random(seed)
        base = chance.choice((0, 0, 77))
        written = random_entries(chance, base)
        log = wire_of(written)
        path = tmp_path / f"{base:020d}.log"
        path.write_bytes(damaged(chance, log))
        now, then = remains_of(written, path.read_bytes()), remains_of(written, log)
        places = [base, *(o + step for o, _ in then.records for step in (0, 1))]
        try:
            for _ in range(4):
                start, end = chance.choice(places), chance.choice([*places, None])
                check_reading(path, now, then, start, end)
                time = chance.randrange(30)
                assert found(path, time) == first_at(now, base, time), time
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@each_case(("now", "ends_at"), ((100, 2), (464, 3), (16784, 3)))
def test_a_batch_with_a_damaged_offset_is_not_skipped(
    now: int, ends_at: int, tmp_path: Path
) -> None:
    """No CRC covers the offset: the offsets before and behind show that it is wrong."""
    batches = [v2_batch(200 * i, [Sent(i)], last_offset_delta=199) for i in range(4)]
    batches[2] = now.to_bytes(8) + batches[2][8:]
    log = write_log(tmp_path, 0, *batches)
    with pytest.raises(CorruptSegmentError, match="offsets go back") as raised:
        list(read_records(log, 400, 500))
    assert raised.value.valid_bytes == ends_at * len(batches[0])
    assert len(list(read_records(log))) == 4  # nothing is passed over


def test_what_is_found_is_returned_whatever_its_offset(tmp_path: Path) -> None:
    inner = [v1_message(i, 10 + i, None, b"%d" % i) for i in range(4)]
    log = write_log(tmp_path, 0, wrapper(0, inner))  # as librdkafka sends it
    assert [find_offset(log, iso_time(10 + i)) for i in range(4)] == list(read_records(log))
    assert [record.offset for record in read_records(log, 2)] == [2, 3]
    back = [
        v2_batch(5, [Sent(1, b"a")]),
        v2_batch(2, [Sent(9, b"b")]),
        v2_batch(5, [Sent(20, b"c")]),
    ]
    log = write_log(tmp_path, 0, *back)
    keys = [
        record.key if record else None
        for record in (find_offset(log, iso_time(t)) for t in (1, 5, 15))
    ]
    assert keys == [b"a", b"b", b"c"]
