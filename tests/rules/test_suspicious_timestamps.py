"""Timestamps that their writer hardly meant, one case per row."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kip33.rules.retention_rows import int64_column
from kip33.rules.suspicious_timestamps import (
    DEFAULT_AFTER_MAX_MS,
    SUSPICIONS,
    YEAR_1990_MS,
    YEAR_MS,
    TimestampColumns,
    suspicions_of,
)
from tests.builders.retention_model import suspicion_of_one
from tests.cases import each_case

FUTURE, SECONDS, MICROSECONDS, NANOSECONDS, BEFORE_1990, BACKFILL = SUSPICIONS
NOW: Final = 1_700_000_000_250  # a November day in 2023
HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
LONG_MAX: Final = 2**63 - 1
IN_A_YEAR: Final = NOW + 366 * DAY  # no unit goes further
FIRST: Final = 631_152_000_000  # 1990-01-01T00:00:00Z


def suspicion_of(
    timestamp: int,
    *,
    now_ms: int,
    last_modified_ms: int | None = None,
    retention_ms: int = -1,
    is_create_time: bool = True,
    after_max_ms: int = DEFAULT_AFTER_MAX_MS,
) -> str | None:
    """Return what the columns say of one segment, after a comparison with the plain rule."""
    if last_modified_ms is not None:
        last_modified_ms = max(-(2**63), min(LONG_MAX, last_modified_ms))
    columns = TimestampColumns(
        int64_column([timestamp]),
        np.array([True]),
        np.array([is_create_time]),
        int64_column([last_modified_ms]),
        np.array([retention_ms]),
        np.array([after_max_ms]),
    )
    [code] = suspicions_of(columns, now_ms=now_ms)
    found = None if code < 0 else SUSPICIONS[code]
    assert found == suspicion_of_one(
        timestamp,
        now_ms=now_ms,
        last_modified_ms=last_modified_ms,
        retention_ms=retention_ms,
        is_create_time=is_create_time,
        after_max_ms=after_max_ms,
    )
    return found


TIMES = [
    (NOW, None, "now"),
    (NOW + HOUR, None, "an hour ahead, as far as a broker lets a timestamp be"),
    (NOW + HOUR + 1, FUTURE, "a millisecond further"),
    (NOW + 730 * DAY, FUTURE, "two years ahead"),
    (FIRST * 1_000 - 1, FUTURE, "the last before what micros begin with"),
    (FIRST * 1_000, MICROSECONDS, "1990 in micros"),
    (NOW * 1_000, MICROSECONDS, "now in micros"),
    (IN_A_YEAR * 1_000 - 1, MICROSECONDS, "the last micro before a year from now"),
    (IN_A_YEAR * 1_000, FUTURE, "a year from now in micros"),
    (FIRST * 1_000_000 - 1, FUTURE, "the last before what nanos begin with"),
    (FIRST * 1_000_000, NANOSECONDS, "1990 in nanos"),
    (NOW * 1_000_000, NANOSECONDS, "now in nanos"),
    (IN_A_YEAR * 1_000_000 - 1, NANOSECONDS, "the last nano before a year from now"),
    (IN_A_YEAR * 1_000_000, FUTURE, "a year from now in nanos"),
    (LONG_MAX, FUTURE, "the largest there is"),
    (FIRST, None, "the first moment of 1990"),
    (FIRST - 1, BEFORE_1990, "the last moment of 1989"),
    (IN_A_YEAR // 1_000, BEFORE_1990, "a year from now in seconds"),
    (IN_A_YEAR // 1_000 - 1, SECONDS, "the last second before a year from now"),
    (NOW // 1_000, SECONDS, "now in seconds"),
    (FIRST // 1_000, SECONDS, "1990 in seconds"),
    (FIRST // 1_000 - 1, BEFORE_1990, "the last second of 1989"),
    (DAY, BEFORE_1990, "a clock that starts in 1970"),
    (0, BEFORE_1990, "zero"),
    (-1, BEFORE_1990, "a millisecond before 1970"),
    (-(2**63), BEFORE_1990, "the smallest there is"),
]


@each_case(("timestamp", "kind"), {name: (t, kind) for t, kind, name in TIMES})
def test_a_timestamp_alone(timestamp: int, kind: str | None) -> None:
    assert suspicion_of(timestamp, now_ms=NOW) == kind


LIMITS = [
    (NOW, 0, None, "now, and none ahead is let through"),
    (NOW + 1, 0, FUTURE, "a millisecond ahead, and none is let through"),
    (NOW + DAY, DAY, None, "a day ahead, and a day is let through"),
    (NOW + DAY + 1, DAY, FUTURE, "a day and a millisecond, and a day is let through"),
    (NOW + 730 * DAY, LONG_MAX, None, "two years ahead, and all is let through (Kafka 3.6 to 3.9)"),
    (LONG_MAX, LONG_MAX, None, "the largest there is, and all is let through"),
    (NOW * 1_000, LONG_MAX, MICROSECONDS, "a unit is no matter of what is let through: micros"),
    (NOW * 1_000_000, LONG_MAX, NANOSECONDS, "nanos"),
    (NOW // 1_000, LONG_MAX, SECONDS, "seconds"),
]


@each_case(("timestamp", "after_max_ms", "kind"), {name: row for *row, name in LIMITS})
def test_how_far_ahead_a_broker_lets_a_timestamp_be(
    timestamp: int, after_max_ms: int, kind: str | None
) -> None:
    assert suspicion_of(timestamp, now_ms=NOW, after_max_ms=after_max_ms) == kind


OLD: Final = NOW - 90 * DAY
BACKFILLS: list[tuple[int, dict[str, Any], str | None, str]] = [
    (OLD, {"last_modified_ms": OLD + WEEK + 1}, BACKFILL, "all had expired when it was written"),
    (OLD, {"last_modified_ms": OLD + WEEK}, None, "its newest record had not, by a millisecond"),
    (OLD, {"last_modified_ms": OLD}, None, "written as it happened"),
    (OLD, {"last_modified_ms": OLD - 1}, None, "written before it happened"),
    (OLD, {"last_modified_ms": -1}, None, "a file from before 1970"),
    (OLD, {"last_modified_ms": NOW, "is_create_time": False}, None, "a broker's own time"),
    (OLD, {"last_modified_ms": NOW, "retention_ms": -1}, None, "no limit"),
    (OLD, {"last_modified_ms": NOW, "retention_ms": 0}, BACKFILL, "a limit of nothing"),
    (OLD, {"last_modified_ms": OLD, "retention_ms": 0}, None, "nothing, and written at once"),
    (OLD, {"last_modified_ms": NOW, "retention_ms": LONG_MAX}, None, "the largest limit"),
    (OLD, {}, None, "nobody knows when it was written"),
    (FIRST, {"last_modified_ms": NOW}, BACKFILL, "1990, copied today"),
    (FIRST - 1, {"last_modified_ms": NOW}, BEFORE_1990, "1989, copied today"),
    (NOW // 1_000, {"last_modified_ms": NOW}, SECONDS, "seconds, as old as they look"),
    (NOW + DAY, {"last_modified_ms": NOW + 30 * DAY}, FUTURE, "ahead, the file further"),
]


@pytest.mark.parametrize(
    ("timestamp", "given", "kind"), [pytest.param(*row, id=name) for *row, name in BACKFILLS]
)
def test_expired_on_arrival(timestamp: int, given: dict[str, Any], kind: str | None) -> None:
    assert suspicion_of(timestamp, now_ms=NOW, **({"retention_ms": WEEK} | given)) == kind


def test_the_limits_are_those_of_kafka_and_of_the_calendar() -> None:
    assert (YEAR_1990_MS, YEAR_MS, DEFAULT_AFTER_MAX_MS) == (FIRST, 366 * DAY, HOUR)
    told = {kind for _, kind, _ in TIMES} | {kind for *_, kind, _ in BACKFILLS}
    assert told == {*SUSPICIONS, None}


moments = st.integers(0, 9_000_000_000_000)  # to the year 2255, so that its nanos are an int64
near = st.integers(-2, 2)


@st.composite
def timestamps(draw: st.DrawFn, now_ms: int) -> int:
    """Any int64, and rather one near a limit."""
    limits = [0, FIRST // 1_000, FIRST, FIRST * 1_000, FIRST * 1_000_000]
    limits += [(now_ms + YEAR_MS) * scale for scale in (1, 1_000, 1_000_000)]
    limits += [(now_ms + YEAR_MS) // 1_000, now_ms, now_ms + HOUR, now_ms - WEEK]
    at_a_limit = st.builds(lambda limit, by: limit + by, st.sampled_from(limits), near)
    timestamp = draw(st.one_of(st.integers(-(2**63), LONG_MAX), at_a_limit))
    return min(LONG_MAX, timestamp)


UNITS: list[tuple[str | None, Callable[[int], int]]] = [
    (SECONDS, lambda moment_ms: moment_ms // 1_000),
    (None, lambda moment_ms: moment_ms),
    (MICROSECONDS, lambda moment_ms: moment_ms * 1_000),
    (NANOSECONDS, lambda moment_ms: moment_ms * 1_000_000),
]


@given(moment_ms=st.integers(FIRST, NOW + HOUR), later_ms=st.integers(0, 100 * 365 * DAY))
@example(moment_ms=FIRST, later_ms=0)
@example(moment_ms=NOW + HOUR, later_ms=0)
def test_a_real_moment_is_told_by_its_unit(moment_ms: int, later_ms: int) -> None:
    """Whatever is written when, in the wrong unit, is known for it for a hundred years."""
    told = [suspicion_of(unit(moment_ms), now_ms=NOW + later_ms) for _, unit in UNITS]
    assert told == [kind for kind, _ in UNITS]


@given(data=st.data(), now_ms=moments, later_ms=st.integers(0, 100 * 365 * DAY))
def test_no_timestamp_moves_into_the_future(
    data: st.DataObject, now_ms: int, later_ms: int
) -> None:
    timestamp = data.draw(timestamps(now_ms))
    if suspicion_of(timestamp, now_ms=now_ms) != FUTURE:
        assert suspicion_of(timestamp, now_ms=now_ms + later_ms) != FUTURE
