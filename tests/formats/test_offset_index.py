"""The `.index`: a table read both ways, properties against naive loops, damage by name."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.errors import CorruptIndexError
from kip33.formats.time_index import OffsetIndex
from tests.cases import each_case

BASE = 100
INT_MAX = 2**31 - 1


@each_case(
    ("wire", "base", "entries"),
    {
        "empty": ("", 100, []),
        "Kafka's worked example": ("00000002 000000c4 00000004 00000188", 0, [(2, 196), (4, 392)]),
        "last offset of a whole append": ("00000009 000001ea", 100, [(109, 490)]),
        "largest": ("7fffffff 7fffffff", 5, [(INT_MAX + 5, INT_MAX)]),
    },
)
def test_read_both_ways(wire: str, base: int, entries: list[tuple[int, int]]) -> None:
    data = bytes.fromhex(wire)
    index = OffsetIndex.from_bytes(data, base_offset=base)
    assert list(index) == entries
    assert OffsetIndex.from_entries(entries, base_offset=base) == index
    assert OffsetIndex.from_entries(entries, base_offset=base).to_bytes() == data
    assert index.last_entry == (entries[-1] if entries else (base, 0))
    index.sanity_check()


near = st.integers(0, 30)
growing = st.lists(st.tuples(near, st.integers(1, INT_MAX)), max_size=12).map(
    lambda pairs: list(
        zip(sorted({BASE + o for o, _ in pairs}), sorted(p for _, p in pairs), strict=False)
    )
)


@given(growing, st.one_of(st.integers(BASE - 2, BASE + 32), st.integers(-(2**70), 2**70)))
def test_lookup_equals_a_loop(entries: list[tuple[int, int]], target: int) -> None:
    index = OffsetIndex.from_entries(entries, base_offset=BASE)
    expected = max((e for e in entries if e[0] <= target), default=(BASE, 0))
    assert index.lookup(target) == expected


@each_case("position", [-1, 2**31])
def test_position_beyond_any_segment(position: int) -> None:
    with pytest.raises(ValueError, match="position"):
        OffsetIndex.from_entries([(BASE, position)], base_offset=BASE)


def wire(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


@each_case(
    ("data", "corrupt"),
    {
        "last offset below base": (wire((1, 80), (-1, 90)), True),
        "0xff": (b"\xff" * 8, True),
        "disorder is not seen": (wire((9, 80), (1, 10)), False),
        "zeros pass": (bytes(48), False),
    },
)
def test_sanity_check_as_kafka_does_it(data: bytes, corrupt: bool) -> None:
    index = OffsetIndex.from_bytes(data, base_offset=100)
    if not corrupt:
        index.sanity_check()
        return
    with pytest.raises(CorruptIndexError, match="last offset 99 is below the base offset 100"):
        index.sanity_check()


TRUE = [(2, 196), (4, 392)]


@each_case(
    ("tail", "limits", "kept"),
    {
        "no tail": ([], {}, TRUE),
        "zeros": ([(0, 0)] * 1000, {}, TRUE),
        "stale, earlier offset": ([(3, 500), (7, 800)], {}, TRUE),
        "stale, same offset": ([(4, 500)], {}, TRUE),
        "stale, same position": ([(5, 392)], {}, TRUE),
        "stale, beyond the last offset": ([(9, 800)], {"last_offset": 108}, TRUE),
        "stale, beyond the log": ([(9, 800)], {"size_bytes": 800}, TRUE),
        "stale but in order cannot be told": ([(9, 800)], {}, [*TRUE, (9, 800)]),
        "log cut": ([], {"last_offset": 102}, TRUE[:1]),
        "log empty": ([], {"size_bytes": 0}, []),
    },
)
def test_tail_of_a_running_brokers_file(
    tail: list[tuple[int, int]], limits: dict[str, int], kept: list[tuple[int, int]]
) -> None:
    index = OffsetIndex.from_bytes(wire(*TRUE, *tail), base_offset=100)
    assert index.without_tail(**limits).to_bytes() == wire(*kept)


@each_case("data", [b"", bytes(8), bytes(1310720 * 8)])
def test_preallocated_file_never_written(data: bytes) -> None:
    assert len(OffsetIndex.from_bytes(data, base_offset=0).without_tail()) == 0


@given(growing, st.integers(0, 50))
def test_zero_tail_never_costs_a_true_entry(entries: list[tuple[int, int]], slots: int) -> None:
    true = [entry for at, entry in enumerate(entries) if at == 0 or entries[at - 1][1] < entry[1]]
    index = OffsetIndex.from_entries(true, base_offset=BASE)
    padded = OffsetIndex.from_bytes(index.to_bytes() + bytes(8 * slots), base_offset=BASE)
    assert padded.without_tail() == index
