"""The rule for rolling against Kafka: `LogSegment.shouldRoll`, and a `UnifiedLog` that rolls.

`KIP33_SEED` chooses other logs, `KIP33_ROLLED_LOGS` how many the long form has; a difference names
its log.
"""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kip33.audits.roll_what_if import Replay
from kip33.rules.roll_replay import REPLAY_ENDS, new_replay, replay_batches
from kip33.rules.rolling import (
    RollReading,
    RollReason,
    RollSettings,
)
from tests.builders.replayed_logs import (
    START_MS,
    NextBatch,
    OpenSegment,
    random_log,
    random_settings,
    scanned_columns,
    why_roll,
)
from tests.integration.kafka.oracle import Oracle, Request
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

CASES = 2000


def open_segment(log: bytes, settings: RollSettings, base_offset: int) -> OpenSegment:
    """Return a segment after its batches were appended, without rolling it."""
    batches, _ = scanned_columns(log)
    endless = settings._replace(segment_ms=2**62, segment_bytes=2**31 - 1)
    state = new_replay(RollReading.KAFKA, endless, base_offset)
    replay_batches(batches, 0, state, np.zeros(1, state.dtype))
    names = ("offset_entries", "time_entries")
    entries = [int(state[0][name]) for name in names]
    assert int(state[0]["batches"]) == batches.size
    return OpenSegment(base_offset, len(log), int(state[0]["start_timestamp"]), 0, *entries)


def test_should_roll(oracle: Oracle, tmp_path: Path) -> None:
    cases: list[Request] = []
    expected: list[RollReason | None] = []
    for number in range(CASES):
        chance = random.Random(f"{SEED}/should-roll/{number}")
        settings = random_settings(chance)
        base_offset = chance.choice([0, 7, 2**40])
        count = chance.randint(0, 3)
        batches = random_log(chance, base_offset=base_offset, batches=count, gaps=0)
        log = b"".join(batches)
        least = 24 if count < 3 else 36  # not so few that Kafka finds the index full on append
        index_bytes = chance.choice([least, settings.segment_index_bytes])
        settings = settings._replace(segment_index_bytes=max(least, index_bytes))
        segment = open_segment(log, settings, base_offset)
        created = START_MS - chance.choice([0, settings.segment_ms, settings.segment_ms + 1])
        segment = segment._replace(created_ms=created)
        start = max(0, segment.start_timestamp)
        size = chance.choice([61, 100, settings.segment_bytes - len(log) + chance.randint(-1, 1)])
        at_ms = chance.choice(
            [-1, 0, start, *(start + settings.segment_ms + d for d in (-1, 0, 1)), 2**63 - 1]
        )
        last = base_offset + chance.choice([-1, 0, 50, 2**31 - 2, 2**31 - 1, 2**31])
        batch = NextBatch(max(61, size), at_ms, last)
        file = tmp_path / f"{number}.batches"
        file.write_bytes(log)
        cases.append(
            {
                **settings._asdict(),
                **batch._asdict(),
                "base_offset": base_offset,
                "batches": str(file),
                "created_ms": created,
                "now_ms": START_MS,
            }
        )
        expected.append(why_roll(segment, batch, settings, now_ms=START_MS))
    found = oracle.should_roll(tmp_path, cases)
    for number, (kafka, ours) in enumerate(zip(found, expected, strict=True)):
        assert kafka == (ours is not None), (number, ours, cases[number])
    reasons = Counter(expected)
    assert min(reasons[one] for one in (None, RollReason.SIZE, RollReason.TIME)) > CASES // 20
    assert min(reasons[one] for one in (RollReason.INDEX_FULL, RollReason.OFFSET_RANGE)) > 10


@pytest.mark.parametrize("count", short_and_long(40, 200, "KIP33_ROLLED_LOGS"))
def test_a_log_of_kafka_has_the_segments_of_the_replay(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    reasons: Counter[RollReason] = Counter()
    for number in range(count):
        chance = random.Random(f"{SEED}/rolled/{number}")
        base_offset = chance.choice([0, 7, 2**40])
        entries = random_log(chance, base_offset=base_offset, batches=chance.randint(1, 120))
        settings = random_settings(chance)
        largest = max(map(len, entries))
        settings = settings._replace(segment_bytes=max(settings.segment_bytes, largest))
        log = b"".join(entries)
        batches, read_into = scanned_columns(log)
        replay = Replay(RollReading.KAFKA, settings, base_offset)
        replay.append(batches, read_into)
        ended = replay.ended().segments
        found = oracle.append(
            tmp_path / f"log{number}-0",
            log,
            base_offset=base_offset,
            segment_ms=settings.segment_ms,
            segment_bytes=settings.segment_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            segment_index_bytes=settings.segment_index_bytes,
        )
        names = ("base_offset", "size_bytes", "offset_entries")
        ours = [tuple(int(one[name]) for name in names) for one in ended]
        assert [tuple(one[name] for name in names) for one in found] == ours, (number, settings)
        closed = [int(entries) for entries in ended["time_entries"][:-1]]
        assert [one["time_entries"] for one in found[:-1]] == closed, (number, settings)
        reasons.update(REPLAY_ENDS[int(code)] for code in ended["reason"])
    assert all(reasons[one] > count // 50 for one in REPLAY_ENDS), reasons
