"""The replay of batches in one loop, against the rule applied to one batch after the other."""

import random
from collections import Counter

import numpy as np
import pytest

from kip33.audits.roll_what_if import Replay, Segments
from kip33.formats.native import compiled, plain
from kip33.formats.scan import read_header_at
from kip33.rules.roll_replay import REPLAY_ENDS
from kip33.rules.rolling import RollReading, RollReason, RollSettings
from tests.builders.replayed_logs import (
    RolledSegment,
    ToAppend,
    random_log,
    random_settings,
    rolled_one_by_one,
    scanned_columns,
)
from tests.builders.segment_builder import Record, v1_message, v2_batch, wrapper
from tests.cases import each_case
from tests.long_forms import short_and_long

HOUR_MS = 3_600_000


def rows_of(segments: Segments) -> list[RolledSegment]:
    names = ("base_offset", "last_offset", "size_bytes", "offset_entries", "time_entries")
    return [
        RolledSegment(*(int(one[name]) for name in names), REPLAY_ENDS[int(one["reason"])])
        for one in segments
    ]


def replayed(
    log: bytes,
    reading: RollReading,
    settings: RollSettings,
    base_offset: int = 0,
    *,
    is_compiled: bool = False,
    at_once: int = 10_000,
) -> list[RolledSegment]:
    batches, read_into = scanned_columns(log)
    replay = Replay(reading, settings, base_offset, compiled if is_compiled else plain)
    for first in range(0, batches.size, at_once):
        replay.append(batches[first : first + at_once], read_into)
    return rows_of(replay.ended().segments)


@pytest.mark.parametrize("logs", short_and_long(25, 600, "KIP33_REPLAYS"))
def test_the_replay_is_the_rule_for_each_batch(logs: int) -> None:
    seen: Counter[RollReason] = Counter()
    for number in range(logs):
        chance = random.Random(f"replay/{number}")
        base_offset = chance.choice([0, 7, 2**40])
        log = b"".join(random_log(chance, base_offset=base_offset, batches=60))
        batches, read_into = scanned_columns(log)
        settings = random_settings(chance)
        appended = [ToAppend(row, first_message_of(read_into, row)) for row in batches]
        for reading in RollReading:
            expected = rolled_one_by_one(appended, settings, reading, base_offset)
            how = {"is_compiled": number % 2 == 0, "at_once": 17}
            found = replayed(log, reading, settings, base_offset, **how)
            assert found == expected, (number, reading, settings)
            seen.update(one.ended_by for one in found)
    assert set(seen) == set(REPLAY_ENDS)


def first_message_of(read_into: object, row: np.void) -> int:
    """Return the first message's timestamp, as a reader of records would see it."""
    header = read_header_at(read_into, int(row["position"]))  # type: ignore[arg-type]
    is_stamped = header.timestamp_type == "LogAppendTime" or header.max_timestamp < 0
    return header.max_timestamp if is_stamped else header.base_timestamp


def at(offset: int, *timestamps: int) -> bytes:
    return v2_batch(offset, [Record(timestamp=one) for one in timestamps])


BATCH_BYTES = len(at(0, 1000))
LIMITS = {
    "it fills the segment exactly": (at(1, 1000), {"segment_bytes": 2 * BATCH_BYTES}, [0]),
    "one byte too large": (at(1, 1000), {"segment_bytes": 2 * BATCH_BYTES - 1}, [0, 1]),
    "each is too large": (at(1, 1000), {"segment_bytes": BATCH_BYTES - 1}, [0, 1]),
    "at the limit of segment.ms": (at(1, 2000), {"segment_ms": 1000}, [0]),
    "one ms later": (at(1, 2001), {"segment_ms": 1000}, [0, 1]),
    "the last offset that is an int32": (at(2**31 - 1, 1000), {}, [0]),
    "the first one that is not": (at(2**31, 1000), {}, [0, 2**31]),
    "of a wrapper the smallest base": (wrapper(2**31 + 5, [v1_message(0, 1000)]), {}, [0, 6]),
    "an index without room": (at(1, 1000), {"segment_index_bytes": 12}, [0, 1]),
}


@each_case(("second", "settings", "bases"), LIMITS)
def test_the_second_batch_at_a_limit(
    second: bytes, settings: dict[str, int], bases: list[int]
) -> None:
    found = replayed(at(0, 1000) + second, RollReading.KAFKA, RollSettings(**settings))
    assert [one.base_offset for one in found] == bases


def test_the_three_readings_differ_in_where_time_begins() -> None:
    log = at(0, 0, 900) + at(2, 1000) + at(3, 1500) + at(4, 2100) + at(5, 3050)
    bases = {
        reading: [one.base_offset for one in replayed(log, reading, RollSettings(segment_ms=1000))]
        for reading in RollReading
    }
    assert bases == {
        RollReading.KAFKA: [0, 4],  # 900 + 1000 < 2100
        RollReading.KIP33: [0, 3, 5],  # 0 + 1000 < 1500, 1500 + 1000 < 3050
        RollReading.LARGEST: [0],  # no step is longer than 1000
    }


def test_a_compressed_v1_message_hides_the_timestamp_of_its_first_message() -> None:
    inner = [v1_message(offset, timestamp=1000) for offset in range(2)]
    log = wrapper(1, inner, codec="gzip", timestamp=1000)
    batches, read_into = scanned_columns(log + v1_message(2, timestamp=HOUR_MS * 9))
    for reading, unknown, segments in ((RollReading.KIP33, 1, 1), (RollReading.KAFKA, 0, 2)):
        replay = Replay(reading, RollSettings(segment_ms=HOUR_MS), 0)
        replay.append(batches, read_into)
        ended = replay.ended()
        assert (ended.unknown_starts, ended.segments.size) == (unknown, segments)
