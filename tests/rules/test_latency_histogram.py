"""Percentiles of a histogram that adds up, against sorted lists."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.timestamp_profile import PERCENTILE_ERROR, LatencyHistogram

LONG_MAX = 2**63 - 1
durations = st.one_of(
    st.integers(-300, 300), st.integers(0, 10**7), st.integers(-LONG_MAX, LONG_MAX)
)
PERCENTS = (0, 1, 50, 90, 99, 100)


def histogram(values: list[int]) -> LatencyHistogram:
    made = LatencyHistogram()
    made.add(np.array(values, np.int64))
    return made


def exact(values: list[int], percent: float) -> int:
    """Return the nearest rank."""
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def test_no_durations() -> None:
    empty = histogram([])
    assert (empty.count, empty.smallest, empty.largest, empty.percentile(50)) == (
        0,
        None,
        None,
        None,
    )


@given(st.lists(durations, min_size=1, max_size=40))
def test_a_percentile_is_never_too_small_and_too_large_by_the_stated_bound(
    values: list[int],
) -> None:
    made = histogram(values)
    assert (made.count, made.smallest, made.largest) == (len(values), min(values), max(values))
    assert made.negative == sum(value < 0 for value in values)
    for percent in PERCENTS:
        true, found = exact(values, percent), made.percentile(percent)
        assert found is not None
        assert true <= found <= true + abs(true) * PERCENTILE_ERROR
        assert found == true or abs(true) >= 256


@given(st.lists(st.lists(durations, max_size=10), max_size=5))
def test_histograms_add_up(parts: list[list[int]]) -> None:
    total = LatencyHistogram()
    for part in parts:
        total.merge(histogram(part))
    at_once = histogram([value for part in parts for value in part])
    assert vars(total) == vars(at_once)


@pytest.mark.parametrize("value", [0, 1, 255, 256, 257, 511, 512, 513, 1023, 2**40, LONG_MAX])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_duration_is_its_own_percentile(value: int, sign: int) -> None:
    made = histogram([sign * value])
    assert [made.percentile(percent) for percent in PERCENTS] == [sign * value] * len(PERCENTS)
