"""Damaged index files of generated segments, and the expected verdict for each.

`expected_verdicts` follows the definitions, entry by entry over lists, and shares no code with
kip33: the bytes of an index, which entries are true, and how much log is between them.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import NamedTuple

from tests.builders.generated_segments import Written, random_segment

INDEX_BYTES = 24_000  # segment.index.bytes: large enough for every index here
PREALLOCATED = (INDEX_BYTES, 10_485_756, 10_485_760)
INTERVALS = (0, 60, 150, 400, 4096)
DIALECTS = ("recover", "live", "kip33")
Pairs = list[tuple[int, int]]


class Case(NamedTuple):
    """A segment and its index files after some damage."""

    entries: list[Written]
    base_offset: int
    interval: int
    dialect: str  # the dialect that verify uses
    time_index: bytes
    offset_index: bytes
    damage: tuple[str, str]


class Expected(NamedTuple):
    """The verdicts on the two files."""

    time: str
    offset: str


# What a broker writes.


def positions_of(entries: Sequence[Written]) -> list[int]:
    """Return where each entry begins, and the end of the last one."""
    positions = [0]
    for entry in entries:
        positions.append(positions[-1] + len(entry.wire))
    return positions


def indexes_of(entries: Sequence[Written], interval: int, dialect: str) -> tuple[Pairs, Pairs]:
    """Return the entries of both indexes with absolute offsets, from one pass without a restart."""
    times: Pairs = []
    offsets: Pairs = []
    largest, offset_of_largest, last_indexed = -1, 0, 0
    for entry, position in zip(entries, positions_of(entries), strict=False):
        if entry.max_timestamp > largest:
            largest = entry.max_timestamp
            live = dialect == "live"
            offset_of_largest = entry.first_offset_with_max if live else entry.last_offset
        if position - last_indexed > interval:
            offsets.append((entry.last_offset, position))
            last_indexed = position
            add_time(times, largest, offset_of_largest, entry, dialect)
    if entries:
        add_time(times, largest, offset_of_largest, entries[-1], dialect)
    return times, offsets


def add_time(times: Pairs, largest: int, offset: int, entry: Written, dialect: str) -> None:
    if largest > (times[-1][0] if times else -1):
        times.append((largest, entry.last_offset + 1 if dialect == "kip33" else offset))


def time_bytes(pairs: Pairs, base_offset: int) -> bytes:
    return b"".join(struct.pack(">qi", t, o - base_offset) for t, o in pairs)


def offset_bytes(pairs: Pairs, base_offset: int) -> bytes:
    return b"".join(struct.pack(">ii", o - base_offset, p) for o, p in pairs)


def appended_indexes(
    random: Random, entries: Sequence[Written], interval: int
) -> tuple[Pairs, Pairs]:
    """Return those of a broker before 3.9.1 that appends several batches at once, and restarts."""
    times: Pairs = []
    offsets: Pairs = []
    largest, offset_of_largest, since, at = -1, 0, 0, 0
    positions = positions_of(entries)
    while at < len(entries):
        stop = min(len(entries), at + random.choice((1, 1, 2, 5)))
        for entry in entries[at:stop]:
            if entry.max_timestamp > largest:
                largest, offset_of_largest = entry.max_timestamp, entry.last_offset
        if since > interval:
            offsets.append((entries[stop - 1].last_offset, positions[at]))
            add_time(times, largest, offset_of_largest, entries[stop - 1], "recover")
            since = 0
        since += positions[stop] - positions[at]
        if random.random() < 0.05:  # a clean restart
            add_time(times, largest, offset_of_largest, entries[stop - 1], "recover")
            since = 0
        at = stop
    if entries:
        add_time(times, largest, offset_of_largest, entries[-1], "recover")
    return times, offsets


def first_offsets(entries: Sequence[Written], offsets: Pairs) -> Pairs:
    """Return a leader's `.index` before Kafka 2.0: entries have the first offset of their batch."""
    firsts = dict(zip(positions_of(entries), (first_offset(e) for e in entries), strict=False))
    return [(firsts[position], position) for _, position in offsets]


def first_offset(entry: Written) -> int:
    return entry.records[0][0] if entry.records else entry.offset_field


# Damage.


def pieces(data: bytes, width: int) -> list[bytes]:
    return [data[at : at + width] for at in range(0, len(data), width)]


def flip_bit(random: Random, data: bytes, width: int) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def nudge(random: Random, data: bytes, width: int) -> bytes:
    """Change one field of one entry by a small or a large amount."""
    kept = pieces(data, width)
    if not kept or len(kept[-1]) < width:
        return data
    kind = ">qi" if width == 12 else ">ii"
    at = random.randrange(len(kept))
    fields = list(struct.unpack(kind, kept[at]))
    fields[random.randrange(2)] += random.choice((-1000, -20, -2, -1, 1, 2, 98, 1000, 2**31))
    kept[at] = struct.pack(kind, *(min(max(f, -(2**31)), 2**31 - 1) for f in fields))
    return b"".join(kept)


def drop_one(random: Random, data: bytes, width: int) -> bytes:
    kept = pieces(data, width)
    if kept:
        del kept[random.randrange(len(kept))]
    return b"".join(kept)


def drop_some(random: Random, data: bytes, width: int) -> bytes:
    return b"".join(piece for piece in pieces(data, width) if random.random() < 0.5)


def drop_middle(random: Random, data: bytes, width: int) -> bytes:
    """Keep some first entries, or none, and the last one."""
    kept = pieces(data, width)
    return b"".join(kept[: random.randint(0, len(kept))][:-1] + kept[-1:])


def swap(random: Random, data: bytes, width: int) -> bytes:
    kept = pieces(data, width)
    if len(kept) > 1:
        a, b = random.sample(range(len(kept)), 2)
        kept[a], kept[b] = kept[b], kept[a]
    return b"".join(kept)


def repeat(random: Random, data: bytes, width: int) -> bytes:
    kept = pieces(data, width)
    if kept:
        at = random.randrange(len(kept))
        kept.insert(at, kept[at])
    return b"".join(kept)


def invent(random: Random, data: bytes, width: int) -> bytes:
    """Remove some entries and invent as many, each right behind another one."""
    kind = ">qi" if width == 12 else ">ii"
    made = list(struct.iter_unpack(kind, data[: len(data) // width * width]))
    count, at = len(made), random.randrange(len(made) + 1)
    del made[at : at + random.randint(1, 3)]
    while made and len(made) < count:
        at = random.randrange(len(made))
        near = (min(number + random.randint(0, 2), 2**31 - 1) for number in made[at])
        made.insert(at + 1, tuple(near))
    return b"".join(struct.pack(kind, *one) for one in made)


def zero_tail(random: Random, data: bytes, width: int) -> bytes:
    full = INDEX_BYTES // width * width
    return data + bytes(random.choice((width, 5 * width, max(0, full - len(data)), 3)))


def stale_tail(random: Random, data: bytes, width: int) -> bytes:
    """Add stale entries, which a truncation leaves in a file of any size or a preallocated one."""
    full = INDEX_BYTES // width * width
    kind = ">qi" if width == 12 else ">ii"
    stale = b"".join(struct.pack(kind, 10_000 + i, 20_000 + i) for i in range(full // width))
    keep = random.randint(0, len(data) // width) * width
    return data[:keep] + random.choice((stale[: 3 * width], stale[: 2 * width] + bytes(width),
                                        stale[: max(0, full - keep)]))  # fmt: skip


DAMAGES: dict[str, Callable[[Random, bytes, int], bytes]] = {
    "none": lambda random, data, width: data,
    "emptied": lambda random, data, width: b"",
    "first half": lambda random, data, width: data[: len(data) // width // 2 * width],
    "second half": lambda random, data, width: data[len(data) // width // 2 * width :],
    "every other": lambda random, data, width: b"".join(pieces(data, width)[::2]),
    "one dropped": drop_one,
    "some dropped": drop_some,
    "middle dropped": drop_middle,
    "bit flipped": flip_bit,
    "field changed": nudge,
    "swapped": swap,
    "repeated": repeat,
    "invented": invent,
    "zero tail": zero_tail,
    "stale tail": stale_tail,
    "all zeros": lambda random, data, width: bytes(len(data)),
    "cut": lambda random, data, width: data[: random.randint(0, len(data))],
    "random": lambda random, data, width: random.randbytes(width * random.randint(1, 4)),
}


def damaged(
    random: Random, data: bytes, width: int, among: Collection[str] = DAMAGES
) -> tuple[bytes, str]:
    names = random.choices([*among], k=random.choice((0, 1, 1, 1, 2)))
    for name in names:
        data = DAMAGES[name](random, data, width)
    return data, ", ".join(names)


def random_case(seed: str) -> Case:
    """Return a segment with two index files from some broker or build, damaged."""
    random = Random(seed)
    base_offset = random.choice((0, 50, 5_000_000_000))
    entries = random_segment(random, base_offset=base_offset, entries=random.randint(0, 40))
    interval = random.choice(INTERVALS)
    written_at = random.choice((interval, interval, *INTERVALS))
    times, offsets = indexes_of(entries, written_at, random.choice(DIALECTS))
    kind = random.choice(("one pass", "one pass", "appends", "before 2.0"))
    if kind == "appends":
        times, offsets = appended_indexes(random, entries, written_at)
    elif kind == "before 2.0":
        offsets = first_offsets(entries, offsets)
    time_index, time_damage = damaged(random, time_bytes(times, base_offset), 12)
    offset_index, offset_damage = damaged(random, offset_bytes(offsets, base_offset), 8)
    asked = random.choice(DIALECTS)
    damage = (f"{kind}: {time_damage}", f"{kind}: {offset_damage}")
    return Case(entries, base_offset, interval, asked, time_index, offset_index, damage)


# The expected verdict for each file.


def expected_verdicts(case: Case) -> Expected:
    return Expected(expected_time(case), expected_offset(case))


def expected_time(case: Case) -> str:
    data = case.time_index
    if len(data) % 12:
        return "malformed"
    meaning = ("kip33",) if case.dialect == "kip33" else ("recover", "live")
    for dialect in meaning:
        times, _ = indexes_of(case.entries, case.interval, dialect)
        if data == time_bytes(times, case.base_offset):
            return "identical"
    pairs = [(t, case.base_offset + o) for t, o in struct.iter_unpack(">qi", data)]
    stairs = true_times(case.entries, "kip33" in meaning)
    last = (-1, -1)
    for number, (timestamp, offset) in enumerate(pairs):
        follows = timestamp > last[0] and offset >= last[1]
        if offset not in stairs.get(timestamp, ()) or not follows:
            return padded_or_wrong(data, number, 12)
        last = timestamp, offset
    if max(stairs, default=-1) > last[0]:
        return "incomplete"
    unseen = 2 * largest_append(case)
    gaps = time_gaps(case.entries, {timestamp for timestamp, _ in pairs}, case.interval)
    return "sparse" if is_sparse(gaps, len(pairs), case.interval, unseen) else "consistent"


def true_times(entries: Sequence[Written], next_offset: bool) -> dict[int, set[int]]:
    """Return the true offsets for each timestamp, in Kafka's meaning or the kip33 dialect's."""
    found: dict[int, set[int]] = {}
    for entry in entries:
        largest = max(found, default=-1)
        if entry.max_timestamp > largest:
            both = {entry.last_offset, entry.first_offset_with_max}
            found[entry.max_timestamp] = set() if next_offset else both
        if next_offset and found:
            found[max(found)].add(entry.last_offset + 1)
    return found


def padded_or_wrong(data: bytes, true_entries: int, width: int) -> str:
    tail = data[true_entries * width :]
    if not any(tail):
        return "padded"
    ends_as_padded = not any(data[-width:]) or len(data) in {
        size // width * width for size in PREALLOCATED
    }
    return "padded" if true_entries and ends_as_padded else "wrong"


def expected_offset(case: Case) -> str:
    data = case.offset_index
    if len(data) % 8:
        return "malformed"
    _, offsets = indexes_of(case.entries, case.interval, "recover")
    if data == offset_bytes(offsets, case.base_offset):
        return "identical"
    pairs = offset_pairs(case)
    untrue = first_untrue_offset(case, pairs)
    if untrue is not None:
        return padded_or_wrong(data, untrue, 8)
    gaps = offset_gaps(case.entries, pairs, case.interval)
    sparse = is_sparse(gaps, len(pairs), case.interval, largest_append(case))
    return "sparse" if sparse else "consistent"


def offset_pairs(case: Case) -> Pairs:
    whole = case.offset_index[: len(case.offset_index) // 8 * 8]
    return [(case.base_offset + o, p) for o, p in struct.iter_unpack(">ii", whole)]


def first_untrue_offset(case: Case, pairs: Pairs) -> int | None:
    positions = positions_of(case.entries)[:-1]
    end_of_append, last_offset = -1, None
    for number, (offset, position) in enumerate(pairs):
        if position not in positions:
            return number
        at = positions.index(position)
        entry = case.entries[at]
        before = case.entries[at - 1].last_offset if at else case.base_offset - 1
        is_set = entry.magic < 2 and entry.attributes & 7
        begins = entry.offset_field == offset or (is_set and before < offset <= entry.last_offset)
        ends = [positions[i] for i in range(at, len(positions))
                if case.entries[i].last_offset == offset]  # fmt: skip
        if not begins and not ends:
            return number
        if last_offset is not None and (offset <= last_offset or position <= end_of_append):
            return number
        last_offset = offset
        end_of_append = position if begins else ends[0]
    return None


def appends_of(entries: Sequence[Written], pairs: Pairs) -> list[tuple[int, int, int]]:
    """Return for each entry of a true `.index` its append's start, end and batches."""
    positions = positions_of(entries)
    found = []
    for offset, position in pairs:
        at = positions.index(position)
        last = next(i for i in range(at, len(entries)) if entries[i].last_offset >= offset)
        found.append((position, positions[last + 1], last + 1 - at))
    return found


def largest_append(case: Case) -> int:
    """Return the bytes of the largest append of several batches that a true `.index` has."""
    pairs = offset_pairs(case)
    if first_untrue_offset(case, pairs) is not None:
        return 0
    appends = appends_of(case.entries, pairs)
    return max((end - start for start, end, batches in appends if batches > 1), default=0)


Gaps = list[tuple[int, int]]
"""Of each gap its bytes and the entries that are missing in it."""


def missing_between(positions: list[int], point: int, first: int, stop: int, interval: int) -> int:
    """Return how many batches from `first` up to `stop` would get an index entry."""
    missing = 0
    for position in positions:
        if first <= position < stop and position - point > interval:
            missing += 1
            point = position
    return missing


def offset_gaps(entries: Sequence[Written], pairs: Pairs, interval: int) -> Gaps:
    *positions, end = positions_of(entries)
    starts = [(0, 0), *((start, stop) for start, stop, _ in appends_of(entries, pairs))]
    stops = [*(position for _, position in pairs), end]
    return [
        (stop - begin, missing_between(positions, point, begin, stop, interval))
        for (point, begin), stop in zip(starts, stops, strict=True)
    ]


def time_gaps(entries: Sequence[Written], timestamps: set[int], interval: int) -> Gaps:
    positions = positions_of(entries)[:-1]
    gaps: Gaps = []
    largest, begin = -1, None
    for entry, position in zip(entries, positions, strict=True):
        if entry.max_timestamp <= largest:
            continue
        largest = entry.max_timestamp
        if largest not in timestamps:
            begin = position if begin is None else begin
        elif begin is not None:
            missing = missing_between(positions, begin, begin, position, interval)
            gaps.append((position - begin, missing))
            begin = None
    return gaps


def is_sparse(gaps: Gaps, entries: int, interval: int, unseen: int) -> bool:
    explained = interval + unseen if unseen else 0
    if any(missing >= 2 and size > explained for size, missing in gaps):
        return True
    missing = sum(missing for _, missing in gaps)
    return not unseen and missing >= 3 and 2 * missing > entries
