"""What segments and index entries promise a search by time, as tables."""

import pytest

from kip33.errors import CorruptIndexError
from kip33.formats.batch import BatchHeader
from kip33.formats.time_index import TimestampOffset
from kip33.rules.search import (
    TRAPS,
    Claim,
    Trap,
    bears_out,
    choice_for_max,
    first_offset_after,
    kafkas_choice,
    largest_of,
    may_hold,
    reach_of,
    require_order,
    require_target,
    trap,
)
from tests.cases import each_case


@each_case(
    ("largest", "target", "choice"),
    [
        ([], 5, None),
        ([4], 5, None),
        ([5], 5, 0),
        ([4, 6, 5], 5, 1),
        ([None, 5], 5, 1),
        ([9, 5], 5, 0),
        ([None], 5, None),
    ],
)
def test_kafka_chooses_the_first_segment_that_is_late_enough(
    largest: list[int | None], target: int, choice: int | None
) -> None:
    assert kafkas_choice(largest, target) == choice


@each_case(
    ("maxima", "choice", "largest"),
    [
        ([], None, -1),
        ([-1, -1], 0, -1),
        ([None, -1], 1, -1),
        ([None], None, -1),
        ([0], 0, 0),
        ([3, 9, None, 9], 1, 9),
    ],
)
def test_the_largest_of_a_partition(
    maxima: list[int | None], choice: int | None, largest: int
) -> None:
    assert (choice_for_max(maxima), largest_of(maxima)) == (choice, largest)


def test_what_a_segment_may_hold() -> None:
    assert [may_hold(m, 5) for m in (None, -1, 4, 5, 6)] == [True, False, False, True, True]


@each_case(
    ("max_timestamp", "below", "name"),
    [
        (-1, False, Trap.FILE_TIME),
        (4, True, Trap.FILE_TIME),
        (5, True, Trap.BELOW_LOG_START),
        (5, False, Trap.EMPTIED),
    ],
)
def test_traps(max_timestamp: int, below: bool, name: str) -> None:
    assert trap(max_timestamp=max_timestamp, target_ms=5, begins_below_start=below) == name
    assert name in TRAPS


@each_case(("dialect", "offset"), [("recover", 42), ("live", 42), ("kip33", 41), (None, 41)])
def test_the_first_offset_after_an_entry(dialect: str | None, offset: int) -> None:
    assert first_offset_after(TimestampOffset(1000, 41), dialect) == offset


@each_case("target", [-6, -7, -(2**63)])
def test_texts_that_are_not_targets(target: int) -> None:
    with pytest.raises(ValueError, match=f"target {target}"):
        require_target(target)


@each_case("target", [-5, -4, -3, -2, -1, 0, 2**63 - 1])
def test_targets(target: int) -> None:
    require_target(target)


@each_case(
    ("entries", "fault"),
    [
        ([], None),
        ([(0, 100)], None),
        ([(1, 100), (2, 100), (3, 111)], None),
        ([(1, 100), (1, 101)], "out of order"),
        ([(2, 100), (1, 101)], "out of order"),
        ([(1, 101), (2, 100)], "out of order"),
        ([(1, 99)], "not belong to base offset 100"),
        ([(-5, 100)], "not belong to base offset 100"),
        ([(1, 112)], "after the last offset 110"),
    ],
)
def test_neighbours(entries: list[tuple[int, int]], fault: str | None) -> None:
    neighbours = [TimestampOffset(*entry) for entry in entries]
    if fault is None:
        require_order(neighbours, base_offset=100, last_offset=110)
    else:
        with pytest.raises(CorruptIndexError, match=fault):
            require_order(neighbours, base_offset=100, last_offset=110)
    if fault and fault.startswith("after the last"):
        require_order(neighbours, base_offset=100, last_offset=None)


def batch(first: int, last: int, time: int, *, magic: int = 2, attributes: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, magic, attributes, 0, first, last, time, time, 1)


# Batches from the place on; the entry; whether it is said of `kip33`, and tightly; the target.
CLAIMS = {
    "its batch": ([batch(5, 6, 90), batch(7, 9, 100)], (100, 9), "", 150, True),
    "a record inside its batch": ([batch(7, 9, 100)], (100, 8), "", 150, True),
    "another timestamp": ([batch(7, 9, 99)], (100, 9), "", 150, False),
    "a later batch before it": ([batch(5, 6, 101), batch(7, 9, 100)], (100, 9), "", 150, False),
    "a hole where it points": ([batch(5, 6, 90), batch(9, 9, 100)], (100, 8), "", 150, False),
    "a place behind it": ([batch(10, 12, 100)], (100, 9), "", 150, False),
    "no batch": ([], (100, 9), "", 150, False),
    "a wrapper": ([batch(9, 9, 100, magic=1, attributes=1)], (100, 9), "", 150, True),
    "inside a wrapper": ([batch(9, 9, 100, magic=1, attributes=1)], (100, 8), "", 150, False),
    "a message": ([batch(9, 9, 100, magic=1)], (100, 9), "", 150, True),
    "a message behind it": ([batch(9, 9, 100, magic=1)], (100, 8), "", 150, False),
    "kip33, a batch ends before it": ([batch(7, 9, 60)], (100, 10), "kip33", 150, True),
    "kip33, a batch ends elsewhere": ([batch(7, 9, 60)], (100, 9), "kip33", 150, False),
    "kip33, a later batch": ([batch(7, 9, 101)], (100, 10), "kip33", 150, False),
    "tight": ([batch(5, 6, 90), batch(7, 9, 100)], (100, 9), "tight", 95, True),
    "tight, first batch too late": (
        *([batch(5, 6, 97), batch(7, 9, 100)], (100, 9), "tight", 95),
        False,
    ),
    "tight, kip33": ([batch(5, 6, 90), batch(7, 9, 100)], (100, 10), "tight kip33", 95, True),
    "tight, kip33, timestamp elsewhere": (
        *([batch(5, 6, 90), batch(7, 9, 99)], (100, 10), "tight kip33", 95),
        False,
    ),
    "tight, kip33, earlier of two": (
        *([batch(5, 5, 1), batch(6, 6, 100), batch(7, 9, 9)], (100, 10), "tight kip33", 95),
        True,
    ),
}


@each_case("name", [*CLAIMS])
def test_claims(name: str) -> None:
    headers, entry, kind, target, expected = CLAIMS[name]
    claim = Claim(TimestampOffset(*entry), "kip33" in kind, "tight" in kind)
    assert bears_out(headers, claim, target) is expected
    assert reach_of(claim) == entry[1] - ("kip33" in kind)
