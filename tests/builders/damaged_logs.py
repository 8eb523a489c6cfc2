"""Random logs of every kind of entry, damaged at random, and their remains by brute force.

The content of a damaged log is known from how it was made: an entry is intact if none of the bytes
that its checksum covers changed. Its offset field may have changed: no checksum covers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.builders.generated_segments import Written, random_segment
from tests.builders.segment_builder import LEGACY_CODECS, v1_message, wrapper


@dataclass(frozen=True)
class Left:
    """The content of an intact entry of a damaged log; `records` is None if unreadable."""

    position: int
    offset_field: int
    last_offset: int
    max_timestamp: int
    records: tuple[tuple[int, int], ...] | None


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
    if not base_offset and chance.random() < 0.2:  # as some clients wrote them
        times = [chance.randrange(30) for _ in range(chance.randint(1, 5))]
        inner = [v1_message(i, time, None, b"v" * 9) for i, time in enumerate(times)]
        wire = wrapper(0, inner, codec=chance.choice(LEGACY_CODECS))
        entries.append(Written(wire, 0, 0, max(times), (*enumerate(times),), 1, attributes=1))
        base_offset = len(times)
    others = random_segment(chance, base_offset=base_offset, entries=chance.randint(1, 9))
    entries += [one for one in others if one.magic or not one.attributes]  # v0 in a wrapper
    return entries or random_entries(chance, base_offset)


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
    return Left(position, offset, last, entry.max_timestamp, records)
