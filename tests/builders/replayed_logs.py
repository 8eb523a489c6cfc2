"""Random batches to append, and the rule for one batch, applied to one after the other."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kip33.formats.batch import MAX_INT32, NO_TIMESTAMP, BatchColumns
from kip33.formats.byte_sources import ReadInto
from kip33.formats.crc import java_sum
from kip33.rules.rolling import RollReading, RollReason, RollSettings
from tests.builders.logs_in_memory import columns_of, read_into_of
from tests.builders.segment_builder import Record, v2_batch

START_MS = 1_700_000_000_000


class OpenSegment(NamedTuple):
    """What the rule needs of the active segment."""

    base_offset: int
    size_bytes: int
    start_timestamp: int = NO_TIMESTAMP  # by the reading; below 0: its first batch has none
    created_ms: int = 0  # when the broker created the segment object
    offset_entries: int = 0
    time_entries: int = 0


class NextBatch(NamedTuple):
    """What the rule needs of the batches that are to be appended at once."""

    size_bytes: int
    max_timestamp: int
    last_offset: int


def waited_ms(segment: OpenSegment, batch: NextBatch, now_ms: int) -> int:
    """Return the time that counts against `segment.ms`: `LogSegment.timeWaitedForRoll`."""
    if segment.start_timestamp >= 0:
        return int(java_sum(batch.max_timestamp, -segment.start_timestamp))
    return now_ms - segment.created_ms


def why_roll(
    segment: OpenSegment,
    batch: NextBatch,
    settings: RollSettings,
    *,
    now_ms: int,
    jitter_ms: int = 0,
) -> RollReason | None:
    """Return why the segment is rolled before the batch, None if it is not.

    `LogSegment.shouldRoll`. `now_ms` counts only in a segment that begins without a timestamp;
    `jitter_ms` is what the broker drew for this segment.
    """
    waited = waited_ms(segment, batch, now_ms)
    if segment.size_bytes > settings.segment_bytes - batch.size_bytes:
        return RollReason.SIZE
    if segment.size_bytes > 0 and waited > settings.segment_ms - jitter_ms:
        return RollReason.TIME
    if (
        segment.offset_entries >= settings.offset_slots
        or segment.time_entries >= settings.time_slots
    ):
        return RollReason.INDEX_FULL
    if not 0 <= batch.last_offset - segment.base_offset <= MAX_INT32:
        return RollReason.OFFSET_RANGE
    return None


class RolledSegment(NamedTuple):
    """A segment that came out."""

    base_offset: int
    last_offset: int
    size_bytes: int
    offset_entries: int
    time_entries: int  # with the closing one
    ended_by: RollReason


class ToAppend(NamedTuple):
    """A batch, and the timestamp of its first message."""

    row: Any
    first_message: int


def random_settings(chance: random.Random) -> RollSettings:
    return RollSettings(
        segment_ms=chance.choice([1, 50, 1000, 1000, 10_000]),
        segment_bytes=chance.choice([200, 1000, 1000, 5000, 100_000]),
        index_interval_bytes=chance.choice([0, 100, 400, 4096]),
        segment_index_bytes=chance.choice([24, 36, 60, 240, 10_485_760]),
    )


def random_log(
    chance: random.Random, *, base_offset: int, batches: int, gaps: float = 0.01
) -> list[bytes]:
    """Return batches whose timestamps rise, stand still, jump, go back and are missing."""
    found, offset, now_ms = [], base_offset, START_MS
    for _ in range(batches):
        now_ms += chance.choice([0, 1, 30, 30, 400, 1100])
        jump = chance.choice([0, 0, 0, 0, -5000, 5000, 86_400_000])
        records = []
        for _ in range(chance.randint(1, 3)):
            is_without = chance.random() < 0.03
            at_ms = -1 if is_without else now_ms + jump + chance.randint(-40, 40)
            records.append(Record(timestamp=at_ms, value=b"v" * chance.randint(0, 60)))
        if chance.random() < 0.05:
            records = [replace(record, timestamp=-1) for record in records]
        stamped = now_ms if chance.random() < 0.1 else None
        found.append(v2_batch(offset, records, log_append_time=stamped))
        offset += len(records)
        if chance.random() < gaps:
            offset += chance.choice([1, 2**31 - 2, 2**31])
    return found


def scanned_columns(log: bytes) -> tuple[BatchColumns, ReadInto]:
    """Return a log's batches as columns, and what reads it."""
    return columns_of(log, check_crc=False, native=False), read_into_of(log)


def rolled_one_by_one(
    batches: Sequence[ToAppend], settings: RollSettings, reading: RollReading, base_offset: int
) -> list[RolledSegment]:
    """Apply `why_roll` and the append of `LogSegment` to each batch, in plain Python."""
    found: list[RolledSegment] = []
    log = _Segment(base_offset)
    end_offset = base_offset
    for batch in batches:
        size, at_ms, last = (
            int(batch.row[name]) for name in ("size_bytes", "max_timestamp", "last_offset")
        )
        start = log.start(reading)
        state = OpenSegment(
            *(log.base_offset, log.size, start), 0, log.offset_entries, log.time_entries
        )
        reason = why_roll(state, NextBatch(size, at_ms, last), settings, now_ms=0)
        if log.size == 0 and reason == RollReason.SIZE:  # Kafka refuses so large a batch
            reason = why_roll(state, NextBatch(0, at_ms, last), settings, now_ms=0)
        base = max(end_offset, int(batch.row["base_offset"]))
        if reason:
            if base != log.base_offset:
                found.append(log.closed(reason, end_offset - 1))
            log = _Segment(base)
        log.append(size, at_ms, batch.first_message, settings)
        end_offset = last + 1
    return [*found, log.closed(RollReason.ACTIVE, end_offset - 1)]


class _Segment:
    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.size = self.since_entry = self.offset_entries = self.time_entries = 0
        self.first = self.first_message = self.largest = self.last_entry = -1

    def start(self, reading: RollReading) -> int:
        if reading == RollReading.KAFKA:
            return self.first
        return self.first_message if reading == RollReading.KIP33 else self.largest

    def append(self, size: int, at_ms: int, first_message: int, settings: RollSettings) -> None:
        if self.size == 0:
            self.first, self.first_message = at_ms, first_message
        self.largest = max(self.largest, at_ms)
        if self.since_entry > settings.index_interval_bytes:
            self.offset_entries += 1
            if self.largest > self.last_entry:
                self.time_entries += 1
                self.last_entry = self.largest
            self.since_entry = 0
        self.since_entry += size
        self.size += size

    def closed(self, reason: RollReason, last_offset: int) -> RolledSegment:
        closing = int(self.largest > self.last_entry)
        return RolledSegment(
            *(self.base_offset, max(last_offset, self.base_offset - 1), self.size),
            *(self.offset_entries, self.time_entries + closing, reason),
        )
