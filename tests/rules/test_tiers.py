"""Segments of two tiers with the same offsets: equal, different, or not to be compared."""

from typing import Any

import numpy as np

from kip33.rules.offset_holes import UNKNOWN_END
from kip33.rules.tiers import NO_NEXT, UNKNOWN_FIGURE, TierSegments, compared, next_bases
from tests.cases import each_case

Segment = tuple[int, int, int, int]  # base offset, end, figure, latest leader epoch
NONE = UNKNOWN_FIGURE


@each_case(
    ("local", "remote", "same", "different"),
    {
        "apart": ([(10, 20, 7, 0)], [(0, 10, 7, 0)], [], []),
        "a copy": ([(0, 10, 7, 0)], [(0, 10, 7, 0)], [0], []),
        "not counted": ([(0, 10, 7, 0)], [(0, 10, NONE, 0)], [0], []),
        "other records": ([(0, 10, 7, 0)], [(0, 10, 8, 0)], [], [0]),
        "of another leader": ([(0, 10, 7, 0)], [(0, 10, 8, 1)], [], []),
        "an unknown leader": ([(0, 10, 7, 0)], [(0, 10, 8, NONE)], [], [0]),
        "other boundaries": ([(0, 7, 7, 0)], [(0, 10, 7, 0)], [], []),
        "an unknown end": ([(0, 10, 7, 0)], [(0, UNKNOWN_END, 7, 0)], [], []),
        "uploaded twice": ([], [(0, 10, 7, 0), (0, 10, 7, 0)], [1], []),
        "nothing": ([], [], [], []),
    })  # fmt: skip
def test_remote_segments_are_compared_with_the_first_of_their_offsets(
    local: list[Segment], remote: list[Segment], same: list[int], different: list[int]
) -> None:
    columns: Any = np.array([*local, *remote], np.int64).reshape(-1, 4).T
    count = columns.shape[1]
    segments = TierSegments(
        *(np.zeros(count, np.int64), columns[0], columns[1]),
        *(np.arange(count) >= len(local), np.ones(count, bool)),
        *(columns[2].reshape(-1, 1), columns[3]),
    )
    found = [np.flatnonzero(mask[len(local) :]).tolist() for mask in compared(segments)]
    assert found == [same, different]
    strangers = compared(segments._replace(partitions=np.arange(count)))
    assert not np.any(strangers)


def test_segments_that_begin_together_have_one_next_offset() -> None:
    found = next_bases(np.array([0, 0, 0, 1]), np.array([0, 10, 10, 0]))
    assert found.tolist() == [10, NO_NEXT, NO_NEXT, NO_NEXT]
