"""What a row depends on, and times with which a file may change undetected."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kip33.builds.reuse import DEPENDS_ON, SET_AHEAD_MS, SETTLED_MS, Cause, may_change_unseen
from kip33.catalog.schema import SEGMENTS


def test_each_column_says_what_it_depends_on_and_each_cause_has_columns() -> None:
    assert DEPENDS_ON.keys() == set(SEGMENTS.names)
    assert set().union(*DEPENDS_ON.values()) == set(Cause)


LISTED_MS = 1_800_000_000_000

TIMES = {
    # ms after the listing began -> whether the file may change unseen
    -LISTED_MS: False,
    -SETTLED_MS - 1: False,
    -SETTLED_MS: False,
    -SETTLED_MS + 1: True,
    0: True,
    60_000: True,  # a long listing, or a clock that is ahead
    SET_AHEAD_MS - 1: True,
    SET_AHEAD_MS: False,  # no clock's time
    2**62: False,
}


def test_modified_before_or_after_the_listing() -> None:
    times = LISTED_MS + np.array(list(TIMES))
    assert may_change_unseen(times, LISTED_MS).tolist() == list(TIMES.values())
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
