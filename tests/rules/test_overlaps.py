"""Which rows have offsets of an earlier one: literal tables, and a loop over all pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.offset_holes import APART, OVERLAP, SAME_BASE, UNKNOWN_OFFSET, overlaps

FAR = 2**63 - 1
TABLE = [
    ("nothing", [], []),
    ("one", [(1, 0, 9)], [APART]),
    ("one after another", [(1, 0, 9), (1, 10, 19)], [APART, APART]),
    ("a hole", [(1, 0, 9), (1, 50, 59)], [APART, APART]),
    ("one uploaded twice", [(1, 0, 9), (1, 0, 9), (1, 10, 19)], [APART, SAME_BASE, APART]),
    ("the last offset of the one before", [(1, 0, 10), (1, 10, 19)], [APART, OVERLAP]),
    ("inside a long one", [(1, 0, 99), (1, 5, 9), (1, 50, 59)], [APART, OVERLAP, OVERLAP]),
    ("behind a long one", [(1, 0, 99), (1, 5, 9), (1, 100, 109)], [APART, OVERLAP, APART]),
    ("other partitions", [(1, 0, 9), (2, 0, 9), (5, 3, 4)], [APART] * 3),
    ("an empty one and its successor", [(1, 7, UNKNOWN_OFFSET), (1, 7, 9)], [APART, SAME_BASE]),
    ("an unreadable one inside", [(1, 0, 9), (1, 5, UNKNOWN_OFFSET)], [APART, OVERLAP]),
    ("an unreadable one covers nothing", [(1, 0, UNKNOWN_OFFSET), (1, 5, 9)], [APART, APART]),
    ("up to the last offset there is", [(1, 0, FAR), (1, FAR, FAR), (2, 0, 1)], [0, OVERLAP, 0]),
]


def found(rows: list[tuple[int, int, int]]) -> list[int]:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return overlaps(columns[0], columns[1], columns[2]).tolist()


@pytest.mark.parametrize(
    ("rows", "expected"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_overlaps(rows: list[tuple[int, int, int]], expected: list[int]) -> None:
    assert found(rows) == expected


ROW = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(-1, 15))


@given(st.lists(ROW, max_size=25))
def test_as_a_loop_over_all_earlier_rows(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[:2])
    expected = []
    for place, (partition, base, _) in enumerate(rows):
        earlier = [row for row in rows[:place] if row[0] == partition]
        overlapping = OVERLAP if any(base <= row[2] for row in earlier) else APART
        expected.append(SAME_BASE if any(base == row[1] for row in earlier) else overlapping)
    assert found(rows) == expected
