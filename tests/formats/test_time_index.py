"""The `.timeindex`: a table read both ways, properties against naive loops, damage by name."""

import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.errors import CorruptIndexError, IndexOffsetOverflowError
from kip33.formats import time_index as index_bytes
from kip33.formats.time_index import (
    IndexBytes,
    IndexBytesBuilder,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
)
from tests.cases import each_case
from tests.formats.real_segments import REAL_SEGMENTS, needs_real_segments
from tests.long_forms import short_and_long

BASE = 100
LONG_MAX = 2**63 - 1
T = 1_700_000_000_000


@each_case(
    ("wire", "base", "entries"),
    {
        "empty": ("", 100, []),
        "closing entry only": ("000000000000004d 00000000", 0, [(77, 0)]),
        "Kafka's worked example": (
            "00000000000003ea 00000002 00000000000003ec 00000004",
            0,
            [(1002, 2), (1004, 4)],
        ),
        "relative": ("0000018bcfe568fa 00000001", 100, [(1700000000250, 101)]),
        "timestamp 0 is a value": ("0000000000000000 00000000", 5, [(0, 5)]),
        "largest": ("7fffffffffffffff 7fffffff", 0, [(LONG_MAX, 2**31 - 1)]),
    },
)
def test_read_both_ways(wire: str, base: int, entries: list[tuple[int, int]]) -> None:
    data = bytes.fromhex(wire)
    index = TimeIndex.from_bytes(data, base_offset=base)
    assert list(index) == entries
    assert TimeIndex.from_entries(entries, base_offset=base) == index
    assert TimeIndex.from_entries(entries, base_offset=base).to_bytes() == data
    assert index.last_entry == (entries[-1] if entries else (-1, base))
    index.sanity_check()


entry_lists = st.lists(
    st.tuples(st.integers(0, LONG_MAX), st.integers(BASE, BASE + 2**31 - 1)), max_size=40
)
near = st.integers(-2, 30)
small_growing = st.lists(st.tuples(near, near.map(lambda n: n + 2 + BASE)), max_size=12).map(
    lambda pairs: list(
        zip(sorted({t for t, _ in pairs}), sorted(o for _, o in pairs), strict=False)
    )
)


@given(entry_lists)
def test_bytes_and_entries_invert_each_other(entries: list[tuple[int, int]]) -> None:
    index = TimeIndex.from_entries(entries, base_offset=BASE)
    assert list(index) == entries
    again = TimeIndex.from_bytes(index.to_bytes(), base_offset=BASE)
    assert again == index and hash(again) == hash(index)
    assert list(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True)) == entries


@given(small_growing, near)
def test_lookup_equals_a_loop(small: list[tuple[int, int]], near_ms: int) -> None:
    entries, target = [(T + ms, offset) for ms, offset in small], T + near_ms
    index = TimeIndex.from_entries(entries, base_offset=BASE)
    none = (-1, BASE)
    assert index.lookup(target) == max((e for e in entries if e[0] <= target), default=none)
    assert index.lookup_before(target) == max((e for e in entries if e[0] < target), default=none)


@given(small_growing, near)
def test_truncate_equals_a_loop(entries: list[tuple[int, int]], target: int) -> None:
    index = TimeIndex.from_entries(entries, base_offset=BASE)
    assert list(index.truncate_to(BASE + target)) == [e for e in entries if e[1] < BASE + target]


@each_case("offset", [BASE - 1, BASE + 2**31, -LONG_MAX - 1, LONG_MAX])
def test_offset_without_an_int32_form(offset: int) -> None:
    with pytest.raises(IndexOffsetOverflowError, match=f"offset {offset} .* {BASE}"):
        TimeIndex.from_entries([(1, BASE), (2, offset)], base_offset=BASE)


def test_offset_and_base_at_opposite_ends_do_not_wrap() -> None:
    with pytest.raises(IndexOffsetOverflowError):
        TimeIndex.from_entries([(1, -LONG_MAX - 1)], base_offset=LONG_MAX)


@each_case("size", [1, 11, 13, 31])
def test_length_inside_an_entry(size: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"{size} bytes? found, expected a multiple of 12"):
        TimeIndex.from_bytes(bytes(size), base_offset=0)


def wire(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


@each_case(
    ("data", "message"),
    {
        "last below first": (wire((5, 0), (4, 1)), "last timestamp 4 is before"),
        "zero tail": (wire((5, 0), (0, 0)), "last timestamp 0 is before"),
        "offset below base": (wire((5, 0), (6, -1)), "last offset 99 is below"),
        "0xff": (b"\xff" * 12, "last offset 99 is below"),
        "disorder in between is not seen": (wire((1, 0), (9, 5), (3, 2)), None),
        "zeros pass": (bytes(48), None),
    },
)
def test_sanity_check_as_kafka_does_it(data: bytes, message: str | None) -> None:
    index = TimeIndex.from_bytes(data, base_offset=100)
    if message is None:
        index.sanity_check()
    else:
        with pytest.raises(CorruptIndexError, match=message):
            index.sanity_check()


TRUE = [(5, 0), (7, 3), (9, 4)]


@each_case(
    ("tail", "last_offset", "kept"),
    {
        "no tail": ([], None, TRUE),
        "zeros": ([(0, 0)] * 1000, None, TRUE),
        "stale, earlier": ([(8, 5), (12, 8)], None, TRUE),
        "stale, same timestamp": ([(9, 5)], None, TRUE),
        "stale, offset falls": ([(10, 2)], None, TRUE),
        "stale, later than the log's end": ([(10, 7)], 106, TRUE),
        "stale but in order cannot be told": ([(10, 7)], None, [*TRUE, (10, 7)]),
        "same offset, later timestamp is true": ([(10, 4)], 104, [*TRUE, (10, 4)]),
        "log cut": ([], 103, TRUE[:2]),
        "log empty": ([], 99, []),
        "negative timestamp": ([(-3, 9)], None, TRUE),
    },
)
def test_tail_of_a_running_brokers_file(
    tail: list[tuple[int, int]], last_offset: int | None, kept: list[tuple[int, int]]
) -> None:
    index = TimeIndex.from_bytes(wire(*TRUE, *tail), base_offset=100)
    assert index.without_tail(last_offset=last_offset).to_bytes() == wire(*kept)


@each_case(
    ("data", "kept"),
    {
        "empty": (b"", 0),
        "preallocated, never written": (bytes(10485760 // 12 * 12), 0),
        "zeros": (bytes(24), 0),
        "one zero entry is a closing entry at timestamp 0": (bytes(12), 1),
        "timestamp 0, then more": (wire((0, 0), (4, 2)), 2),
        "first entry without timestamp": (wire((-1, 0), (4, 2)), 0),
        "first entry below base": (wire((4, -1)), 0),
    },
)
def test_tail_from_the_first_entry_on(data: bytes, kept: int) -> None:
    index = TimeIndex.from_bytes(data, base_offset=100).without_tail()
    assert len(index) == kept


@given(small_growing, st.integers(0, 50))
def test_zero_tail_never_costs_a_true_entry(entries: list[tuple[int, int]], slots: int) -> None:
    true = [entry for entry in entries if entry[0] > 0]
    index = TimeIndex.from_entries(true, base_offset=BASE)
    padded = TimeIndex.from_bytes(index.to_bytes() + bytes(12 * slots), base_offset=BASE)
    if true or slots != 1:
        assert padded.without_tail() == index


def test_an_index_is_a_value() -> None:
    index = TimeIndex.from_entries([(1, BASE), (5, BASE + 2)], base_offset=BASE)
    assert index != TimeIndex.from_bytes(index.to_bytes(), base_offset=0)
    assert index != index.to_bytes()
    assert repr(index) == (
        "<TimeIndex base_offset=100 entries=2 TimestampOffset(timestamp=5, offset=102)>"
    )
    with pytest.raises(ValueError):
        index.entries["timestamp"][0] = 9
    assert isinstance(next(iter(index)).timestamp, int)
    assert isinstance(index.lookup(T), TimestampOffset) and type(index.lookup(T).offset) is int


@needs_real_segments
@each_case("log", REAL_SEGMENTS)
def test_files_of_real_brokers(log: Path) -> None:
    path = log.with_suffix(".timeindex")
    index = TimeIndex.from_bytes(path.read_bytes(), base_offset=int(path.stem))
    index.sanity_check()
    assert index.to_bytes() == path.read_bytes()
    assert index.without_tail() == index
    assert TimeIndex.from_entries(index, base_offset=index.base_offset) == index


# An index file's bytes without the zeros at its end, compared with the bytes themselves.


def some_bytes(chance: Random) -> bytes:
    """Bytes with many zeros, at the end and between."""
    parts = (bytes(chance.randrange(30)), chance.randbytes(chance.randrange(20)))
    return b"".join(chance.choice(parts) for _ in range(chance.randrange(6)))


@pytest.mark.parametrize("count", short_and_long(60, 4_000, "KIP33_INDEX_BYTES"))
def test_index_bytes_are_sliced_and_compared_like_bytes(count: int) -> None:
    for seed in range(count):
        chance = Random(seed)
        data, other = some_bytes(chance), some_bytes(chance)
        held, builder = IndexBytes(data), IndexBytesBuilder()
        step = chance.randint(1, 9)
        for at in range(0, len(data), step):
            builder.append(data[at : at + step])
        start, stop = (chance.choice((None, chance.randint(-9, len(data) + 9))) for _ in "12")
        note = f"seed {seed}"
        assert builder.built() == held == data, note
        assert (held == other, held == IndexBytes(other)) == (data == other,) * 2, note
        assert (len(held), bytes(held), held.is_zeros) == (len(data), data, not any(data)), note
        assert bytes(held[start:stop]) == data[start:stop], note
        for width in (8, 12):
            entries, repeats = held.entries(width)
            whole = data[: len(data) // width * width]
            assert entries + bytes(repeats * width) == whole, note
            assert len(entries) <= len(held.kept) + 2 * width, note


@pytest.mark.parametrize("kind", [TimeIndex, OffsetIndex])
@pytest.mark.parametrize("count", short_and_long(60, 4_000, "KIP33_INDEX_PIECES"))
def test_entries_in_pieces_are_the_entries(
    kind: type[TimeIndex | OffsetIndex], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(count):
        chance, one, other = Random(seed), 0, 0
        pairs = []
        for _ in range(chance.randrange(12)):
            one += chance.choice((1, 1, 1, 1, 5, 0, -1))
            other += chance.choice((1, 1, 1, 1, 5, 0, -1))
            pairs.append((max(one, 0), max(other, 0)))
        index, last_offset = kind.from_entries(pairs, base_offset=0), chance.choice((None, 7))
        monkeypatch.setattr(index_bytes, "PIECE_ENTRIES", 1 << 16)
        kept = index.without_tail(last_offset=last_offset)
        monkeypatch.setattr(index_bytes, "PIECE_ENTRIES", chance.randint(1, 4))
        assert index.without_tail(last_offset=last_offset) == kept, f"seed {seed}"
        assert list(index) == pairs, f"seed {seed}"
