"""Two tiers put together: what both have, where they differ, where a remote segment ends."""

import numpy as np
import pytest

from kip33.rules.offset_holes import UNKNOWN_END
from kip33.rules.tiers import UNKNOWN_FIGURE, TierSegments, put_together

WHOLE, SECOND, DAMAGED, CUT = "whole", "second", "damaged", "cut"
NOT_COUNTED = "not counted"
FIGURES = {WHOLE: 7, SECOND: 8, DAMAGED: 7, CUT: 7, NOT_COUNTED: UNKNOWN_FIGURE}

Segment = tuple[int, int, str]  # base offset, end, what it is


def columns(local: list[Segment], remote: list[Segment], partition: int = 0) -> TierSegments:
    every = [*local, *remote]
    return TierSegments(
        np.full(len(every), partition, np.int64),
        np.array([base for base, _, _ in every], np.int64),
        np.array([end for _, end, _ in every], np.int64),
        np.arange(len(every)) >= len(local),
        np.array([what != DAMAGED for _, _, what in every], bool),
        np.array([what == CUT for _, _, what in every], bool),
        np.array([[FIGURES[what]] for _, _, what in every], np.int64).reshape(-1, 1),
    )


@pytest.mark.parametrize(
    ("local", "remote", "copies", "different", "until"),
    [
        pytest.param([(10, 20, WHOLE)], [(0, 10, WHOLE)], [], [], {}, id="apart"),
        pytest.param([(0, 10, WHOLE)], [(0, 10, WHOLE)], [0], [], {}, id="a copy"),
        pytest.param([(0, 10, WHOLE)], [(0, 10, NOT_COUNTED)], [0], [], {}, id="not counted"),
        pytest.param([(0, 10, WHOLE)], [(0, 10, SECOND)], [], [0], {}, id="a difference"),
        pytest.param(
            [(0, 7, WHOLE), (7, 20, WHOLE)], [(5, 10, WHOLE)], [0], [], {}, id="other boundaries"
        ),
        pytest.param(
            [(5, 20, WHOLE)], [(0, 10, WHOLE)], [], [], {0: 5}, id="reaches into the local tier"
        ),
        pytest.param(
            [(5, 7, WHOLE)], [(0, 10, WHOLE)], [], [], {}, id="has more than the local tier"
        ),
        pytest.param(
            [(5, 20, DAMAGED)], [(0, 10, WHOLE)], [], [], {}, id="the local one is damaged"
        ),
        pytest.param(
            [(0, 10, WHOLE), (10, 20, WHOLE)], [(0, 5, DAMAGED)], [0], [], {}, id="damaged copy"
        ),
        pytest.param(
            [(0, 10, WHOLE), (10, 20, WHOLE)],
            [(0, UNKNOWN_END, DAMAGED)],
            [0],
            [],
            {},
            id="unreadable copy",
        ),
        pytest.param(
            [(20, 30, WHOLE)],
            [(0, 5, DAMAGED), (10, 20, WHOLE)],
            [],
            [],
            {},
            id="damaged, and there is no other copy",
        ),
        pytest.param([], [(0, 10, WHOLE), (0, 10, WHOLE)], [1], [], {}, id="uploaded twice"),
        pytest.param([], [(0, 10, WHOLE), (0, 10, SECOND)], [], [1], {}, id="two differ"),
        pytest.param([], [], [], [], {}, id="nothing"),
    ],
)
def test_what_two_tiers_have(
    local: list[Segment],
    remote: list[Segment],
    copies: list[int],
    different: list[int],
    until: dict[int, int],
) -> None:
    found = put_together(columns(local, remote))
    places = range(len(local), len(local) + len(remote))
    assert not found.is_copy[: len(local)].any()
    assert [n for n, place in enumerate(places) if found.is_copy[place]] == copies
    assert [n for n, place in enumerate(places) if found.is_different[place]] == different
    ends = {n: int(found.until_offsets[place]) for n, place in enumerate(places)}
    assert {n: end for n, end in ends.items() if end != UNKNOWN_END} == until


@pytest.mark.parametrize(
    ("local", "remote", "copies"),
    [
        pytest.param([(0, 4, CUT), (10, 20, WHOLE)], [(0, 10, WHOLE)], [0], id="has all of it"),
        pytest.param(
            [(0, 4, CUT), (10, 20, WHOLE)], [(0, 3, WHOLE), (3, 12, WHOLE)], [0], id="in two"
        ),
        pytest.param([(0, 4, CUT), (10, 20, WHOLE)], [(0, 7, WHOLE)], [], id="not the last ones"),
        pytest.param([(0, 4, CUT), (10, 20, WHOLE)], [(4, 10, WHOLE)], [], id="not the first ones"),
        pytest.param([(0, 4, CUT), (10, 20, WHOLE)], [(0, 10, DAMAGED)], [], id="damaged, too"),
        pytest.param([(0, 4, CUT), (4, 20, WHOLE)], [(0, 4, WHOLE)], [2], id="nothing was lost"),
        pytest.param([(0, 4, CUT)], [(0, 10, WHOLE)], [0], id="the newest one"),
        pytest.param([(0, 4, CUT)], [(0, 4, WHOLE)], [1], id="the newest one, which has the same"),
        pytest.param([(0, UNKNOWN_END, CUT)], [(0, 4, WHOLE)], [0], id="the newest one, all of it"),
    ],
)
def test_a_cut_local_log_is_a_copy_if_the_remote_tier_has_what_it_lost(
    local: list[Segment], remote: list[Segment], copies: list[int]
) -> None:
    found = put_together(columns(local, remote))
    assert np.flatnonzero(found.is_copy).tolist() == copies
    assert not found.is_different.any()


def test_partitions_are_strangers() -> None:
    one = columns([(0, 10, WHOLE)], [])
    other = columns([], [(0, 10, WHOLE)], partition=1)
    both = TierSegments(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))
    assert not put_together(both).is_copy.any()
