"""Modification times with which a file may change, or have changed, undetected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.builds.reuse import SET_AHEAD_MS, SETTLED_MS, may_change_unseen

LISTED_MS = 1_800_000_000_000

TIMES = [
    pytest.param(-LISTED_MS, False, id="1970"),
    pytest.param(-SETTLED_MS - 1, False, id="more than 2 s before"),
    pytest.param(-SETTLED_MS, False, id="2 s before"),
    pytest.param(-SETTLED_MS + 1, True, id="less than 2 s before"),
    pytest.param(0, True, id="as the listing began"),
    pytest.param(60_000, True, id="since: a long listing, or a clock that is ahead"),
    pytest.param(SET_AHEAD_MS - 1, True, id="within a day ahead"),
    pytest.param(SET_AHEAD_MS, False, id="a day ahead: no clock's time"),
    pytest.param(2**62, False, id="hundreds of millions of years ahead"),
]


@pytest.mark.parametrize(("after_ms", "unseen"), TIMES)
def test_modified_before_or_after_the_listing(after_ms: int, unseen: bool) -> None:
    assert may_change_unseen(np.array([LISTED_MS + after_ms]), LISTED_MS).tolist() == [unseen]


def test_each_file_for_itself_and_none_for_none() -> None:
    times = np.array([0, LISTED_MS, LISTED_MS - 5000])
    assert may_change_unseen(times, LISTED_MS).tolist() == [False, True, False]
    assert may_change_unseen(times[:0], LISTED_MS).tolist() == []


@given(
    changed_ms=st.integers(-10_000, 10_000),
    listed_after_ms=st.integers(0, 10_000),
    tick_ms=st.sampled_from([1, 10, 1000, 2000]),
    changed_again_after_ms=st.integers(0, 10_000),
)
def test_no_clock_of_2_s_or_less_hides_a_change(
    changed_ms: int, listed_after_ms: int, tick_ms: int, changed_again_after_ms: int
) -> None:
    """A file changes, is listed, changes again: the times differ, or it was called in doubt."""
    listed_ms = changed_ms + listed_after_ms
    changed_again_ms = listed_ms + changed_again_after_ms

    def shown(time_ms: int) -> int:
        return time_ms // tick_ms * tick_ms

    first, second = shown(changed_ms), shown(changed_again_ms)
    in_doubt = bool(may_change_unseen(np.array([first]), listed_ms)[0])
    assert first != second or in_doubt
