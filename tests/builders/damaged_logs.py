"""Random logs of every kind of entry, damaged at random, and their remains by brute force.

The content of a damaged log is known from how it was made: an entry is intact if none of the bytes
that its checksum covers changed. Its offset field may have changed: no checksum covers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.builders.generated_segments import Written
from tests.builders.segment_builder import (
    LEGACY_CODECS,
    V2_CODECS,
    Record,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
)


@dataclass(frozen=True)
class Left:
    """The content of an intact entry of a damaged log; `records` is None if unreadable."""

    position: int
    offset_field: int
    last_offset: int
    max_timestamp: int
    records: tuple[tuple[int, int], ...] | None
    says_no_offset: bool = False  # a compressed message with offset 0


@dataclass(frozen=True)
class Remains:
    """The intact entries from the start on, and where the first damaged one begins."""

    entries: tuple[Left, ...]
    damaged_at: int | None

    @property
    def records(self) -> list[tuple[int, int]]:
        return [pair for entry in self.entries for pair in entry.records or ()]

    def places_of_errors(self, base_offset: int) -> set[int]:
        """Return where an error may say that the log ends: damage, bad records, falling offsets."""
        places, last_offset = {self.damaged_at}, base_offset - 1
        for entry in self.entries:
            if entry.records is None or entry.offset_field <= last_offset:
                places.add(entry.position)
            last_offset = max(last_offset, entry.last_offset)
        return {place for place in places if place is not None}

    def before(self, position: int) -> "Remains":
        return Remains(tuple(e for e in self.entries if e.position < position), position)


def random_entries(chance: Random, base_offset: int) -> list[Written]:
    """Return entries of every kind, with offsets from `base_offset` on."""
    entries: list[Written] = []
    offset = base_offset
    if not base_offset and chance.random() < 0.2:
        entries.append(_wrapper(chance, 0, counts_from_0=True))
        offset = len(entries[0].records)
    for _ in range(chance.randint(1, 9)):
        offset += chance.choice((0, 0, 0, 3))
        entry = _entry(chance, offset)
        entries.append(entry)
        offset = max(entry.last_offset, *(o for o, _ in entry.records), offset) + 1
    return entries


def _entry(chance: Random, offset: int) -> Written:
    kind = chance.choice(("v2", "v2", "v2", "stamped", "emptied", "v0", "v1", "wrapper", "marker"))
    if kind in ("v2", "stamped"):
        times = [chance.randrange(-1, 30) for _ in range(chance.randint(1, 5))]
        stamp = 25 if kind == "stamped" else None
        sent = [Record(time, None, chance.randbytes(chance.randrange(40))) for time in times]
        wire = v2_batch(offset, sent, codec=chance.choice(V2_CODECS), log_append_time=stamp)
        seen = [stamp or time for time in times]
        pairs = tuple((offset + i, time) for i, time in enumerate(seen))
        return Written(wire, offset, pairs[-1][0], max(seen), pairs)
    if kind == "emptied":
        return Written(
            v2_batch(offset, last_offset_delta=2, max_timestamp=9), offset, offset + 2, 9, ()
        )
    if kind == "marker":
        wire = end_txn_marker(offset, 12, producer_id=5)
        return Written(wire, offset, offset, 12, ((offset, 12),))
    if kind == "wrapper":
        return _wrapper(chance, offset)
    time = -1 if kind == "v0" else chance.randrange(30)
    value = chance.randbytes(chance.randrange(40))
    wire = v0_message(offset, b"k", value) if time < 0 else v1_message(offset, time, None, value)
    return Written(wire, offset, offset, time, ((offset, time),), 0 if time < 0 else 1)


def _wrapper(chance: Random, offset: int, *, counts_from_0: bool = False) -> Written:
    times = [chance.randrange(30) for _ in range(chance.randint(1, 5))]
    inner = [v1_message(i, time, None, b"v" * 9) for i, time in enumerate(times)]
    last = 0 if counts_from_0 else offset + len(times) - 1
    wire = wrapper(last, inner, codec=chance.choice(LEGACY_CODECS))
    pairs = tuple((offset + i, time) for i, time in enumerate(times))
    return Written(wire, last, last, max(times), pairs, 1, attributes=1)


def damaged(chance: Random, log: bytes) -> bytes:
    """Return the log with a flipped bit, a few replaced bytes, or its end cut off."""
    at, kind = chance.randrange(len(log)), chance.randrange(10)
    if kind < 6:
        return log[:at] + bytes([log[at] ^ 1 << chance.randrange(8)]) + log[at + 1 :]
    if kind < 9:
        junk = chance.choice((chance.randbytes(1), chance.randbytes(4), bytes(4), b"\xff" * 8))
        return log[:at] + junk[: len(log) - at] + log[at + len(junk) :]
    return log[:at]


def remains_of(written: Sequence[Written], log: bytes) -> Remains:
    """Return the remains of a log that had the entries `written` and now has these bytes."""
    position, left = 0, []
    for entry in written:
        wire = log[position : position + len(entry.wire)]
        if not wire:
            return Remains(tuple(left), None)
        is_v2 = entry.wire[16] == 2
        covered = 17 if is_v2 else 8
        sound = wire[covered:] == entry.wire[covered:] and wire[8:12] == entry.wire[8:12]
        if is_v2:
            sound = sound and wire[16] in range(2, 128)
        if len(wire) < len(entry.wire) or not sound:
            return Remains(tuple(left), position)
        left.append(_left(entry, position, int.from_bytes(wire[:8], signed=True)))
        position += len(entry.wire)
    return Remains(tuple(left), None)


def _left(entry: Written, position: int, offset: int) -> Left:
    is_wrapper = entry.magic == 1 and entry.attributes != 0
    first = entry.records[0][0] if entry.records else 0
    moved = offset - entry.offset_field
    records: tuple[tuple[int, int], ...] | None
    if not is_wrapper:
        records = tuple((o + moved, t) for o, t in entry.records)
    else:
        base = 0 if offset == 0 else offset - (len(entry.records) - 1)
        shifted = tuple((base + o - first, t) for o, t in entry.records)
        records = shifted if base >= 0 else None
    last = entry.last_offset + moved
    return Left(position, offset, last, entry.max_timestamp, records, is_wrapper and offset == 0)
