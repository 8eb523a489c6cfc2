"""Segments for property tests; each entry has the records that were put into it.

`segments()` draws lists of `Written`. The expected results of a scan and of a reader of records are
known from how an entry was made: nothing here is read back from bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from tests.builders.segment_builder import (
    CODEC_BITS,
    LOG_APPEND_TIME,
    Record,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
)

LONG_MAX = 2**63 - 1


@dataclass(frozen=True)
class Written:
    """One entry of a log: its bytes, what its header says, and its records (offset, timestamp)."""

    wire: bytes
    offset_field: int
    last_offset: int
    max_timestamp: int
    records: tuple[tuple[int, int], ...]
    magic: int = 2
    attributes: int = 0
    records_count: int = 1
    producer_id: int = -1
    control: int = 0

    @property
    def first_offset_with_max(self) -> int:
        """Return what a leader of 0.11 to 3.6 recorded; it parsed only plain CreateTime batches."""
        if self.magic == 2 and self.attributes & 0x0F == 0:
            for offset, timestamp in self.records:
                if timestamp == self.max_timestamp:
                    return offset
        return self.last_offset

    def row(self, position: int, *, seek: bool = False) -> tuple[int, ...]:
        """Return what a scan reports, in the order of `kip33.formats.batch.BATCH`."""
        of_max = self.first_offset_with_max if seek else self.last_offset
        epoch = 0 if self.magic == 2 else -1
        return (
            *(position, len(self.wire), self.offset_field, self.last_offset, self.max_timestamp),
            *(of_max, self.producer_id, epoch, self.records_count, self.attributes, self.magic),
            *(self.control, self.base_timestamp, self.crc),
        )

    @property
    def crc(self) -> int:
        """Return the CRC field."""
        at = 17 if self.magic == 2 else 12
        return int.from_bytes(self.wire[at : at + 4])

    @property
    def base_timestamp(self) -> int:
        """Return what the header says of the first record; of v0 and v1 the only timestamp."""
        of_v2 = int.from_bytes(self.wire[27:35], signed=True)
        return of_v2 if self.magic == 2 else self.max_timestamp


def rows_of(entries: Sequence[Written], *, seek: bool = False) -> list[tuple[int, ...]]:
    """Return what a scan reports for a log."""
    rows, position = [], 0
    for entry in entries:
        rows.append(entry.row(position, seek=seek))
        position += len(entry.wire)
    return rows


def wire_of(entries: Sequence[Written]) -> bytes:
    return b"".join(entry.wire for entry in entries)


def record_pairs(entries: Sequence[Written]) -> list[tuple[int, int]]:
    """Return every record of a log, (offset, timestamp), in order."""
    return [record for entry in entries for record in entry.records]


def plain_batch(first_offset: int, timestamps: Sequence[int], value: bytes = b"") -> Written:
    """Return an uncompressed v2 batch in the form of a current producer."""
    return _v2(first_offset, timestamps, value)


def _v2(
    first_offset: int,
    timestamps: Sequence[int],
    value: bytes,
    *,
    codec: str = "none",
    log_append_time: int | None = None,
    gap: int = 0,
) -> Written:
    last_offset = first_offset + len(timestamps) - 1 + gap
    wire = v2_batch(
        first_offset,
        [Record(timestamp, None, value) for timestamp in timestamps],
        codec=codec,
        log_append_time=log_append_time,
        last_offset_delta=last_offset - first_offset,
    )
    stamped = log_append_time is not None
    seen = [log_append_time] * len(timestamps) if stamped else list(timestamps)
    return Written(
        wire,
        first_offset,
        last_offset,
        max(seen),
        tuple((first_offset + i, timestamp) for i, timestamp in enumerate(seen)),
        attributes=CODEC_BITS[codec] | (LOG_APPEND_TIME if stamped else 0),
        records_count=len(timestamps),
    )


def _compacted(first_offset: int, max_timestamp: int, gap: int) -> Written:
    """Return a batch whose records compaction removed; its header remains."""
    last_offset = first_offset + gap
    wire = v2_batch(first_offset, last_offset_delta=gap, max_timestamp=max_timestamp)
    return Written(wire, first_offset, last_offset, max_timestamp, (), records_count=0)


def _wrapper_v0(first_offset: int, count: int, codec: str) -> Written:
    """Return a wrapper with absolute inner offsets and no timestamps."""
    offsets = range(first_offset, first_offset + count)
    wire = wrapper(offsets[-1], [v0_message(o) for o in offsets], magic=0, codec=codec)
    return Written(
        wire,
        offsets[-1],
        offsets[-1],
        -1,
        tuple((offset, -1) for offset in offsets),
        magic=0,
        attributes=CODEC_BITS[codec],
        records_count=-1,
    )


def _wrapper(
    first_offset: int, timestamps: Sequence[int], codec: str, log_append_time: int | None
) -> Written:
    last_offset = first_offset + len(timestamps) - 1
    stamped = log_append_time is not None
    wire = wrapper(
        last_offset,
        [v1_message(i, timestamp) for i, timestamp in enumerate(timestamps)],
        codec=codec,
        timestamp=log_append_time,
        log_append_time=stamped,
    )
    seen = [log_append_time] * len(timestamps) if stamped else list(timestamps)
    return Written(
        wire,
        last_offset,
        last_offset,
        max(seen),
        tuple((first_offset + i, timestamp) for i, timestamp in enumerate(seen)),
        magic=1,
        attributes=CODEC_BITS[codec] | (LOG_APPEND_TIME if stamped else 0),
        records_count=-1,
    )


def _message(offset: int, timestamp: int | None, value: bytes) -> Written:
    if timestamp is None:
        return Written(v0_message(offset, None, value), offset, offset, -1, ((offset, -1),), 0)
    wire = v1_message(offset, timestamp, None, value)
    return Written(wire, offset, offset, timestamp, ((offset, timestamp),), 1)


def _marker(offset: int, timestamp: int, commit: bool) -> Written:
    wire = end_txn_marker(offset, timestamp, producer_id=9, commit=commit)
    pairs = ((offset, timestamp),)
    return Written(
        *(wire, offset, offset, timestamp, pairs),
        attributes=0x30,
        producer_id=9,
        control=2 if commit else 1,
    )


KINDS = ("plain", "packed", "stamped", "compacted", "v0", "v1", "wrapper", "wrapper v0", "marker")
timestamps = st.one_of(st.integers(-1, 30), st.integers(0, LONG_MAX), st.just(-1))
values = st.integers(0, 120).map(bytes)


@st.composite
def entries_at(draw: st.DrawFn, first_offset: int) -> Written:
    """Draw one entry of any kind that any broker has written, from `first_offset` on."""
    kind = draw(st.sampled_from(("plain", *KINDS)))
    times = draw(st.lists(timestamps, min_size=1, max_size=5))
    codec = draw(
        st.sampled_from(("gzip", "zstd", "lz4") if kind == "packed" else ("gzip", "snappy"))
    )
    when = draw(st.integers(0, 30))
    random = draw(st.randoms(use_true_random=False))
    return _random_entry(random, kind, first_offset, times, draw(values), codec=codec, when=when)


@st.composite
def segments(
    draw: st.DrawFn, *, base_offset: int = 0, min_size: int = 0, max_size: int = 12
) -> list[Written]:
    """Draw a log with increasing offsets, perhaps with gaps, from `base_offset` on."""
    entries: list[Written] = []
    offset = base_offset
    for _ in range(draw(st.integers(min_size, max_size))):
        offset += draw(st.sampled_from((0, 0, 0, 2)))
        entries.append(draw(entries_at(offset)))
        offset = entries[-1].last_offset + 1
    return entries


def random_segment(random: Random, *, base_offset: int, entries: int) -> list[Written]:
    """Return a log of entries of one kind or of all kinds, with timestamps in order or not."""
    kinds = random.choice((KINDS, ("plain",), ("v0", "v1", "wrapper", "wrapper v0")))
    grows = random.random() < 0.6
    written: list[Written] = []
    offset = base_offset
    for number in range(entries):
        offset += random.choice((0, 0, 0, 2))
        times = [
            number * 10 + random.randrange(8) if grows else random.choice((-1, 0, 5, number))
            for _ in range(random.randint(1, 4))
        ]
        value = bytes(random.choice((0, 20, 60, 300)))
        written.append(_random_entry(random, random.choice(kinds), offset, times, value))
        offset = written[-1].last_offset + 1
    return written


def _random_entry(
    random: Random,
    kind: str,
    offset: int,
    times: list[int],
    value: bytes,
    *,
    codec: str = "gzip",
    when: int | None = None,
) -> Written:
    when = max(0, *times) if when is None else when
    if kind == "plain":
        return _v2(offset, times, value, gap=random.choice((0, 0, 3)))
    if kind == "packed":
        return _v2(offset, times, value, codec=codec)
    if kind == "stamped":
        return _v2(offset, times, value, log_append_time=when)
    if kind == "compacted":
        return _compacted(offset, times[0], random.choice((0, 3)))
    if kind == "wrapper":
        return _wrapper(offset, times, codec, random.choice((None, when)))
    if kind == "wrapper v0":
        return _wrapper_v0(offset, len(times), codec)
    if kind == "marker":
        return _marker(offset, times[0], random.random() < 0.5)
    return _message(offset, None if kind == "v0" else times[0], value)
