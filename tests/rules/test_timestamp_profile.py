"""The profile of timestamps: a case a sentence, and sums of profiles against one pass."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kip33.formats.batch import BATCH
from kip33.rules.policies import Policies
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import (
    CLASSES,
    DISTANCES,
    PERCENTILE_ERROR,
    LatencyHistogram,
    LimitChoice,
    ProfileQuestion,
    TimestampLimits,
    TimestampProfile,
)
from tests.builders.generated_segments import Written, rows_of, segments
from tests.cases import each_case

NOW = 1_700_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
LONG_MAX = 2**63 - 1
STAMPED, TRANSACTION_MARKER, HORIZON = 0x08, 0x30, 0x40


def batch(
    timestamp: int,
    *,
    first: int | None = None,
    attributes: int = 0,
    magic: int = 2,
    records: int = 1,
) -> Any:
    row = np.zeros(1, BATCH)
    row["max_timestamp"], row["magic"], row["attributes"] = timestamp, magic, attributes
    row["base_timestamp"] = timestamp if first is None else first
    row["records_count"] = records
    return row


def question(**given: Any) -> ProfileQuestion:
    limits = TimestampLimits(given.pop("before", None), given.pop("after", HOUR))
    defaults = {"now_ms": NOW, "clock_ms": NOW, "file_ms": NOW}
    return ProfileQuestion(limits, **(defaults | given))


def profile(*batches: Any, **given: Any) -> TimestampProfile:
    made = TimestampProfile()
    made.append(np.concatenate([np.zeros(0, BATCH), *batches]), question(**given))
    return made


def as_record(made: TimestampProfile) -> dict[str, Any]:
    """Return all that a profile says, in a form that can be compared."""
    record = dict(vars(made)) | {"latency": dict(vars(made.latency))}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in record.items()}


def test_no_batches() -> None:
    made = profile()
    assert (made.batches, made.timestamp_type, made.out_of_order) == (0, "none", 0)


@each_case(
    ("batches", "expected"),
    {
        "v0 has no timestamps": ([batch(-1, magic=0)], "none"),
        "CreateTime, but the producer sent no timestamp": ([batch(-1)], "none"),
        "one batch without a timestamp": ([batch(NOW), batch(-1)], "CreateTime"),
        "v1": ([batch(NOW, magic=1)], "CreateTime"),
        "stamped": ([batch(NOW, attributes=STAMPED)], "LogAppendTime"),
        "wrapper": ([batch(NOW, attributes=STAMPED | 1, magic=1)], "LogAppendTime"),
        "both types": ([batch(NOW), batch(NOW, attributes=STAMPED)], "mixed"),
        "an upgrade from v0": ([batch(-1, magic=0), batch(NOW)], "mixed"),
    },
)
def test_timestamp_type(batches: list[Any], expected: str) -> None:
    assert profile(*batches).timestamp_type == expected


def test_a_batch_is_as_far_behind_as_the_largest_timestamp_before_it() -> None:
    made = profile(*map(batch, (NOW, NOW - 5, NOW + 7, NOW + 7, NOW - DAY, NOW + 8)))
    assert (made.out_of_order, made.furthest_behind_ms) == (2, DAY + 7)
    classes = dict(zip((*DISTANCES, None), made.behind.tolist(), strict=True))
    assert {k: v for k, v in classes.items() if v} == {0: 4, 10: 1, 7 * DAY: 1}


def test_what_an_earlier_segment_had_counts() -> None:
    assert profile(batch(NOW), largest_before=NOW + 20).furthest_behind_ms == 20
    assert profile(batch(NOW), largest_before=NOW).out_of_order == 0


def test_each_distance_is_in_the_class_of_its_upper_end() -> None:
    for number, upper in enumerate(DISTANCES):
        for distance, expected in ((upper, number), (upper + 1, number + 1)):
            made = profile(batch(0), largest_before=distance)
            assert made.behind.tolist() == [int(n == expected) for n in range(CLASSES)]


def test_distances_from_the_file_are_told_apart_by_side() -> None:
    made = profile(batch(NOW - 10), batch(NOW), batch(NOW + 10), batch(NOW + 11))
    assert (made.before_file[:2].tolist(), made.after_file[:3].tolist()) == ([1, 1], [0, 1, 1])


def test_without_a_file_time_nothing_is_said_of_it() -> None:
    made = profile(batch(NOW), file_ms=None)
    assert made.before_file.sum() == made.after_file.sum() == 0


REJECTED = {
    "before by exactly the limit": (batch(NOW - DAY), (0, 0)),
    "before by more": (batch(NOW - DAY - 1), (1, 0)),
    "after by exactly the limit": (batch(NOW + HOUR), (0, 0)),
    "after by more": (batch(NOW + HOUR + 1), (0, 1)),
    "the first record is old": (batch(NOW, first=NOW - DAY - 1, records=2), (1, 0)),
    "both": (batch(NOW + 2 * HOUR, first=0, records=2), (1, 1)),
    "emptied by compaction": (batch(NOW, first=-1, records=0), (0, 0)),
    "a delete horizon is no timestamp": (batch(NOW, first=0, attributes=HORIZON), (0, 0)),
    "a marker is not produced": (batch(0, attributes=TRANSACTION_MARKER), (0, 0)),
    "LogAppendTime: 5 ms before its own append, whatever the file's time is": (
        batch(NOW - 9 * DAY, first=NOW - 9 * DAY - 5, attributes=STAMPED),
        (0, 0),
    ),
    "a day before its append": (batch(NOW, first=NOW - DAY - 1, attributes=STAMPED), (1, 0)),
    "an hour after its append": (batch(NOW, first=NOW + HOUR + 1, attributes=STAMPED), (0, 1)),
    "the largest timestamp there is": (batch(LONG_MAX), (0, 1)),
    "the largest distance there is": (batch(LONG_MAX, first=0), (1, 1)),
}


@each_case(("one", "expected"), REJECTED)
def test_what_the_limits_reject(one: Any, expected: tuple[int, int]) -> None:
    made = profile(one, before=DAY)
    assert (made.rejected_before, made.rejected_after) == expected


def test_without_limits_nothing_is_rejected() -> None:
    made = profile(batch(0), batch(LONG_MAX), before=None, after=None)
    assert (made.rejected_before, made.rejected_after, made.judged_by_clock) == (0, 0, 2)


def test_without_a_clock_only_append_times_are_compared() -> None:
    made = profile(batch(0), batch(NOW, first=5, attributes=STAMPED), before=1, clock_ms=None)
    assert (made.judged_by_clock, made.judged_by_append_time, made.rejected_before) == (0, 1, 1)


LATENCIES = {
    "70 ms": (batch(NOW, first=NOW - 70, attributes=STAMPED), [70]),
    "a clock that is ahead": (batch(NOW, first=NOW + 9, attributes=STAMPED), [-9]),
    "CreateTime: two records, no append time": (batch(NOW, first=NOW - 70), []),
    "v1 does not keep it": (batch(NOW, attributes=STAMPED, magic=1), []),
    "the producer sent none": (batch(NOW, first=-1, attributes=STAMPED), []),
    "emptied": (batch(NOW, first=7, attributes=STAMPED, records=0), []),
    "a delete horizon": (batch(NOW, first=7, attributes=STAMPED | HORIZON), []),
    "a control batch": (batch(NOW, first=7, attributes=STAMPED | 0x20), []),
}


@each_case(("one", "expected"), LATENCIES)
def test_latency(one: Any, expected: list[int]) -> None:
    latency = profile(one).latency
    assert latency.count == len(expected)
    assert [latency.smallest, latency.largest] == (expected * 2 or [None, None])


def test_suspicious_timestamps_are_those_of_retention() -> None:
    timestamps = (NOW // 1000, NOW * 1000, NOW * 1_000_000, 5, NOW + HOUR + 1, NOW, -1)
    made = profile(*map(batch, timestamps))
    found = dict(zip(SUSPICIONS, made.suspicious.tolist(), strict=True))
    assert found == {
        "future": 1, "seconds": 1, "microseconds": 1, "nanoseconds": 1, "before_1990": 1,
        "backfill": 0,
    }  # fmt: skip


def test_the_first_timestamp_of_a_batch_may_be_the_suspicious_one() -> None:
    year_1 = -62_135_596_800_000
    of_first = (
        batch(NOW, first=year_1),
        batch(-1, first=year_1),  # brokers write no largest timestamp before 1970
        batch(NOW, first=NOW // 1000),
        batch(5, first=year_1),  # counts once
        batch(-1, first=-1),
    )
    made = profile(*of_first)
    found = dict(zip(SUSPICIONS, made.suspicious.tolist(), strict=True))
    assert (found["before_1990"], found["seconds"], sum(found.values())) == (3, 1, 4)
    assert (made.without_timestamp, made.timestamp_type) == (1, "CreateTime")


pieces = st.lists(segments(), min_size=1, max_size=4)


def columns(entries: Sequence[Written]) -> Any:
    return np.array(rows_of(entries), BATCH)


@given(pieces, st.integers(1, 3))
def test_profiles_of_segments_add_up_to_one_pass(parts: list[list[Written]], step: int) -> None:
    asked = question(before=7, after=9, now_ms=40, clock_ms=20, file_ms=15)
    at_once, total, largest = TimestampProfile(), TimestampProfile(), -1
    at_once.append(np.concatenate([columns(part) for part in parts]), asked)
    for part in parts:
        one, rows = TimestampProfile(), columns(part)
        for at in range(0, len(rows), step):
            one.append(rows[at : at + step], asked._replace(largest_before=largest))
        largest = max(largest, one.largest_timestamp)
        total.merge(one)
    assert as_record(total) == as_record(at_once)


POLICY = Policies(
    {
        "defaults": {"message.timestamp.before.max.ms": "3d"},
        "topics": {
            "old": {"message.timestamp.difference.max.ms": "2d"},
            "both": {
                "message.timestamp.difference.max.ms": "2d",
                "message.timestamp.after.max.ms": "5m",
            },
            "free": {
                "message.timestamp.before.max.ms": LONG_MAX,
                "message.timestamp.after.max.ms": LONG_MAX,
            },
        },
    }
)


@each_case(
    ("choice", "topic", "expected"),
    {
        "Kafka 4 has an hour after": (LimitChoice(), "any", (None, HOUR)),
        "the defaults": (LimitChoice(policies=POLICY), "any", (3 * DAY, HOUR)),
        "KIP-32's name": (LimitChoice(policies=POLICY), "old", (3 * DAY, 2 * DAY)),
        "newer wins": (LimitChoice(policies=POLICY), "both", (3 * DAY, 300_000)),
        "2^63 - 1 is none": (LimitChoice(policies=POLICY), "free", (None, None)),
        "options win": (LimitChoice(5, 6, None, POLICY), "old", (5, 6)),
        "the older option": (LimitChoice(None, 6, 7, POLICY), "old", (7, 6)),
        "0 is a limit": (LimitChoice(0, 0), None, (0, 0)),
    },
)
def test_which_limits_apply(
    choice: LimitChoice, topic: str | None, expected: tuple[int | None, int | None]
) -> None:
    assert choice.of(topic) == TimestampLimits(*expected)


# Percentiles of a histogram that adds up, against sorted lists.

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
    assert empty.count == 0
    assert empty.smallest is empty.largest is empty.percentile(50) is None


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


@each_case("value", [0, 1, 255, 256, 257, 511, 512, 513, 1023, 2**40, LONG_MAX])
@each_case("sign", [1, -1])
def test_one_duration_is_its_own_percentile(value: int, sign: int) -> None:
    made = histogram([sign * value])
    assert [made.percentile(percent) for percent in PERCENTS] == [sign * value] * len(PERCENTS)
