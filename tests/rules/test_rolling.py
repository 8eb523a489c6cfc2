"""When a segment is rolled, for one batch: a sentence for each case."""

import pytest

from kip33.errors import PolicyError
from kip33.rules.policies import Policies
from kip33.rules.rolling import GivenSettings, RollSettings, TopicRollSettings
from tests.cases import each_case

DAY_MS = 86_400_000


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
