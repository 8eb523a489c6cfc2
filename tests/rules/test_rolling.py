"""When a segment is rolled, for one batch: a sentence for each case."""

import pytest

from kip33.errors import PolicyError
from kip33.rules.policies import Policies
from kip33.rules.rolling import GivenSettings, RollReason, RollSettings, TopicRollSettings
from tests.builders.replayed_logs import NextBatch, OpenSegment, why_roll
from tests.cases import each_case

DAY_MS = 86_400_000
SETTINGS = RollSettings(segment_ms=1000, segment_bytes=1000, segment_index_bytes=120)
NOW = 50_000
CASES = {
    "a batch that fills the segment exactly goes into it": (
        *(OpenSegment(0, 900, 5000), NextBatch(100, 5000, 9), None),
    ),
    "a batch that is one byte too large begins a new one": (
        *(OpenSegment(0, 900, 5000), NextBatch(101, 5000, 9), RollReason.SIZE),
    ),
    "at the limit of segment.ms the batch still goes into it": (
        *(OpenSegment(0, 10, 5000), NextBatch(10, 6000, 9), None),
    ),
    "one ms later it begins a new one": (
        *(OpenSegment(0, 10, 5000), NextBatch(10, 6001, 9), RollReason.TIME),
    ),
    "an empty segment does not end by time": (
        *(OpenSegment(0, 0, 5000), NextBatch(10, 9000, 9), None),
    ),
    "a batch without a timestamp never ends a segment that has one": (
        *(OpenSegment(0, 10, 5000), NextBatch(10, -1, 9), None),
    ),
    "an old batch does not end it": (*(OpenSegment(0, 10, 5000), NextBatch(10, 1, 9), None),),
    "the clock does not count where the first batch has a timestamp": (
        *(OpenSegment(0, 10, 5000, created_ms=0), NextBatch(10, 5001, 9), None),
    ),
    "without a timestamp the time since its creation counts": (
        *(OpenSegment(0, 10, -1, created_ms=NOW - 1001), NextBatch(10, 7, 9), RollReason.TIME),
    ),
    "without a timestamp, at the limit since its creation it stays": (
        *(OpenSegment(0, 10, -1, created_ms=NOW - 1000), NextBatch(10, 2**62, 9), None),
    ),
    "the largest possible timestamp ends it": (
        *(OpenSegment(0, 10, 0), NextBatch(10, 2**63 - 1, 9), RollReason.TIME),
    ),
    "a very negative timestamp wraps, as in Java": (
        *(OpenSegment(0, 10, 5000), NextBatch(10, -(2**63), 9), RollReason.TIME),
    ),
    "a full offset index ends it": (
        *(OpenSegment(0, 10, 5000, offset_entries=15), NextBatch(10, 5000, 9)),
        RollReason.INDEX_FULL,
    ),
    "a time index is full with one free slot": (
        *(OpenSegment(0, 10, 5000, time_entries=9), NextBatch(10, 5000, 9)),
        RollReason.INDEX_FULL,
    ),
    "with two free slots it is not": (
        *(OpenSegment(0, 10, 5000, time_entries=8), NextBatch(10, 5000, 9), None),
    ),
    "the last offset that fits in a relative int32": (
        *(OpenSegment(7, 10, 5000), NextBatch(10, 5000, 7 + 2**31 - 1), None),
    ),
    "the first one that does not": (
        *(OpenSegment(7, 10, 5000), NextBatch(10, 5000, 7 + 2**31), RollReason.OFFSET_RANGE),
    ),
    "an offset below the base": (
        *(OpenSegment(7, 10, 5000), NextBatch(10, 5000, 6), RollReason.OFFSET_RANGE),
    ),
}


@each_case(("segment", "batch", "reason"), CASES)
def test_a_batch_against_the_open_segment(
    segment: OpenSegment, batch: NextBatch, reason: RollReason | None
) -> None:
    assert why_roll(segment, batch, SETTINGS, now_ms=NOW) == reason


def test_jitter_makes_the_limit_earlier() -> None:
    segment, batch = OpenSegment(0, 10, 5000), NextBatch(10, 5901, 9)
    assert why_roll(segment, batch, SETTINGS, now_ms=NOW, jitter_ms=99) is None
    assert why_roll(segment, batch, SETTINGS, now_ms=NOW, jitter_ms=100) == RollReason.TIME


@each_case(("jitter_ms", "segment_ms", "most"), [(0, 10, 0), (1, 10, 0), (5, 10, 4), (99, 10, 9)])
def test_the_largest_jitter_is_below_both_settings(
    jitter_ms: int, segment_ms: int, most: int
) -> None:
    settings = RollSettings(segment_ms=segment_ms, segment_jitter_ms=jitter_ms)
    assert settings.most_jitter_ms == most


def test_a_topic_without_a_policy_has_the_defaults_of_kafka() -> None:
    assert TopicRollSettings().of("orders") == RollSettings()
    assert RollSettings().segment_ms == 7 * DAY_MS
    assert RollSettings().segment_bytes == 2**30


def test_an_option_overrides_the_policy_and_the_policy_the_default() -> None:
    policies = Policies(
        {
            "defaults": {"segment.ms": "1d", "segment.bytes": "1MiB"},
            "topics": {"orders": {"segment.jitter.ms": "1h", "index.interval.bytes": 100}},
        }
    )
    settings = TopicRollSettings(policies, GivenSettings(segment_bytes=77)).of("orders")
    assert settings == RollSettings(DAY_MS, 77, 3_600_000, 100)


@each_case(
    ("cleanup", "segment_ms"), [("compact", DAY_MS), ("compact,delete", DAY_MS), ("delete", 7)]
)
def test_compacted_topics_roll_at_their_max_compaction_lag(cleanup: str, segment_ms: int) -> None:
    said = {"cleanup.policy": cleanup, "max.compaction.lag.ms": "1d", "segment.ms": "2d"}
    if cleanup == "delete":
        said["segment.ms"] = "7"
    settings = TopicRollSettings(Policies({"topics": {"t": said}})).of("t")
    assert settings.segment_ms == segment_ms
    assert settings.is_compacted == (cleanup != "delete")


def test_an_index_without_room_for_an_entry_is_refused() -> None:
    policies = Policies({"topics": {"orders": {"segment.index.bytes": 11}}})
    with pytest.raises(PolicyError, match=r"orders: segment\.index\.bytes=11 found"):
        TopicRollSettings(policies).require_valid()
