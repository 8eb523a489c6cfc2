"""The section that applies to a topic, its settings, and settings that are refused."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.errors import PolicyError
from kip33.formats.kafka_configs import TOPIC_KEYS
from kip33.rules.policies import BUILT_IN_TOPICS, Policies, Policy, TopicGlobs
from tests.cases import each_case

DAY_MS = 86_400_000
WEEK = {"cleanup.policy": "delete", "retention.ms": "7d"}


def policies_of(defaults: dict[str, Any] | None = None, **topics: dict[str, Any]) -> Policies:
    return Policies({"defaults": defaults or {}, "topics": topics})


def by_match(*matches: str) -> Policies:
    """Return sections that say nothing but which one they are."""
    return Policies({"topics": {m: {"segment.ms": n} for n, m in enumerate(matches, 1)}})


# Sections in their order in the file, a topic, the one that applies.
MATCHES = {
    "nothing matches": (["a"], "b", ""),
    "the exact name": (["orders"], "orders", "orders"),
    "a name is no prefix": (["orders"], "orders.eu", ""),
    "names differ by case": (["Orders", "ORDERS*"], "orders", ""),
    "a glob": (["orders*"], "orders.eu", "orders*"),
    "a star takes dots and dashes": (["*"], "a.b-c_d", "*"),
    "a star may be empty": (["orders*"], "orders", "orders*"),
    "a question mark is one character": (["orders?"], "orders", ""),
    "a class": (["shard-[0-4]"], "shard-3", "shard-[0-4]"),
    "a negated class": (["shard-[!0-4]"], "shard-7", "shard-[!0-4]"),
    "an exact name before a glob": (["orders*", "orders", "*"], "orders", "orders"),
    "an exact name before a glob that stands later": (["orders", "orders*"], "orders", "orders"),
    "more literal characters": (["*", "orders.*", "orders*"], "orders.eu", "orders.*"),
    "more literal characters, wherever they are": (["o*", "*eu"], "orders.eu", "*eu"),
    "a class has no literal characters": (["s-1*", "s-[0123456789]2"], "s-12", "s-[0123456789]2"),
    "however many it holds": (["s-1*", "s-[0123456789]*"], "s-12", "s-1*"),
    "a class is one wildcard, as a question mark": (["a?c*", "a[b-d]c*"], "abcd", "a[b-d]c*"),
    "as many literal characters, fewer wildcards": (["a*c*", "ac*"], "acd", "ac*"),
    "fewer wildcards, standing earlier": (["ac*", "a*c*"], "acd", "ac*"),
    "equals: the later one": (["*b", "a*"], "ab", "a*"),
    "equals in the other order: the later one": (["a*", "*b"], "ab", "*b"),
    "a class that opens with a bracket": (["a[]x]*"], "ax", "a[]x]*"),
}  # fmt: skip


@each_case(("matches", "topic", "match"), MATCHES)
def test_the_section_that_applies(matches: list[str], topic: str, match: str) -> None:
    policy = by_match(*matches).of(topic)
    assert policy.match == match
    assert policy.segment_ms == (matches.index(match) + 1 if match else None)


MERGED = {
    "nobody said anything": (policies_of(), Policy(""), "no_policy"),
    "defaults alone": (
        policies_of({"retention.ms": "7d"}), Policy("defaults", 7 * DAY_MS), "delete",
    ),
    "a section without defaults": (
        policies_of(orders={"retention.bytes": "1KiB"}), Policy("orders", -1, 1024), "delete",
    ),
    "an empty section: somebody said it is judged, and nothing more": (
        policies_of(orders={}), Policy("orders"), "delete",
    ),
    "a section over the defaults, key by key": (
        policies_of({"retention.ms": "7d", "retention.bytes": 5}, orders={"retention.ms": -1}),
        Policy("orders", -1, 5),
        "delete",
    ),
    "one section only: a less specific one says nothing": (
        Policies({"topics": {"*": {"retention.ms": 1}, "orders": {"retention.bytes": 2}}}),
        Policy("orders", -1, 2),
        "delete",
    ),
    "every setting": (
        policies_of(
            orders={
                "retention.ms": "15m",
                "retention.bytes": "2TiB",
                "cleanup.policy": "compact, delete",
                "segment.ms": "36h",
                "segment.jitter.ms": "30s",
                "segment.bytes": "1048576",
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.after.max.ms": "500ms",
                "message.timestamp.before.max.ms": 2**63 - 1,
            }
        ),
        Policy(
            "orders", 900_000, 2**41, ("compact", "delete"), 129_600_000, 30_000, 1_048_576,
            "LogAppendTime", 500, 2**63 - 1,
        ),
        "delete",
    ),
    "tiered storage": (
        policies_of(orders={**WEEK, "remote.storage.enable": True, "local.retention.ms": "1d"}),
        Policy(
            "orders", 7 * DAY_MS, cleanup_policy=("delete",), local_retention_ms=DAY_MS,
            is_tiered=True,
        ),
        "tiered",
    ),
    "tiered storage, where nothing is copied": (
        policies_of(
            orders={**WEEK, "remote.storage.enable": True, "remote.log.copy.disable": True}
        ),
        Policy("orders", 7 * DAY_MS, cleanup_policy=("delete",)),
        "delete",
    ),
    "the archive is tiered storage": (
        policies_of(orders={**WEEK, "remote.storage.enable": True}).of_remote_tier(),
        Policy("orders", 7 * DAY_MS, cleanup_policy=("delete",)),
        "delete",
    ),
    "an empty list: Kafka 4.2": (
        policies_of(orders={"cleanup.policy": "", "retention.ms": 5}),
        Policy("orders", 5, cleanup_policy=()),
        "compact",
    ),
    "the older limit of both sides: until Kafka 3.5": (
        policies_of(orders={"message.timestamp.difference.max.ms": 9}),
        Policy("orders", message_timestamp_after_max_ms=9, message_timestamp_before_max_ms=9),
        "delete",
    ),
    "the older limit for the side that has none: Kafka 3.6 to 3.9": (
        policies_of(
            orders={
                "message.timestamp.difference.max.ms": 9,
                "message.timestamp.after.max.ms": 2**63 - 1,
                "message.timestamp.before.max.ms": 8,
            }
        ),
        Policy("orders", message_timestamp_after_max_ms=9, message_timestamp_before_max_ms=8),
        "delete",
    ),
    "settings that retention does not read": (
        policies_of(orders={"preallocate": True, "min.cleanable.dirty.ratio": 0.5, "flush.ms": 7}),
        Policy("orders"),
        "delete",
    ),
}  # fmt: skip


@each_case(("policies", "policy", "mode"), MERGED)
def test_the_policy_of_a_topic(policies: Policies, policy: Policy, mode: str) -> None:
    assert policies.of("orders") == policy
    assert policies.of("orders").mode == mode


LOCAL = {
    "its own limits": (
        {"local.retention.ms": "1d", "local.retention.bytes": "1GiB"}, (DAY_MS, 2**30),
    ),
    "without own limits, those of the topic": ({}, (7 * DAY_MS, 2**40)),
    "-2: those of the topic": (
        {"local.retention.ms": -2, "local.retention.bytes": "-2"}, (7 * DAY_MS, 2**40),
    ),
    "an own limit where the topic has none": (
        {"retention.ms": -1, "local.retention.ms": "1d"}, (DAY_MS, 2**40),
    ),
    "the largest own limits": (
        {"local.retention.ms": "7d", "local.retention.bytes": "1TiB"}, (7 * DAY_MS, 2**40),
    ),
}  # fmt: skip


@each_case(("settings", "expected"), LOCAL)
def test_the_limits_of_a_brokers_disk(settings: dict[str, Any], expected: tuple[int, int]) -> None:
    whole = {**WEEK, "retention.bytes": "1TiB", "remote.storage.enable": True, **settings}
    policy = policies_of(orders=whole).of("orders")

    local = policy.of_local_tier()

    assert (local.retention_ms, local.retention_bytes) == expected
    assert (local.mode, local.upload_within_ms) == ("local_tier", policy.retention_ms)
    assert Policies.from_record(policies_of(orders=whole).to_record()).of("orders") == policy


def test_a_lag_of_minus_one_is_the_limit_of_a_brokers_disk() -> None:
    tiered = {**WEEK, "remote.storage.enable": True, "local.retention.ms": "2d"}
    lags = {"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": 7}
    local = policies_of(orders={**tiered, **lags}).of("orders").of_local_tier()
    assert (local.remote_copy_lag_ms, local.remote_copy_lag_bytes) == (2 * DAY_MS, 7)
    at_once = policies_of(orders=tiered).of("orders").of_local_tier()
    assert at_once.remote_copy_lag_ms == 0


REFUSED_LOCAL = {
    "longer than retention.ms": ({"local.retention.ms": "8d"}, "expected -2 or at most 604800000"),
    "no limit beside retention.ms": ({"local.retention.ms": -1}, "-1 found, expected -2 or at"),
    "more than retention.bytes": (
        {"retention.bytes": 5, "local.retention.bytes": 6}, "local.retention.bytes: 6 found",
    ),
    "other than retention.ms, where nothing is copied": (
        {"local.retention.ms": "1d", "remote.log.copy.disable": True}, "copy.disable is true",
    ),
    "an upload after it went": (
        {"remote.copy.lag.ms": "8d"}, "remote.copy.lag.ms: 691200000 found, expected at most 6048",
    ),
    "bytes after which it went": (
        {"local.retention.bytes": 5, "remote.copy.lag.bytes": 6}, "6 found, expected at most 5, as",
    ),
}  # fmt: skip


@each_case(("settings", "expected"), REFUSED_LOCAL)
def test_limits_of_a_brokers_disk_that_kafka_refuses(
    settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        policies_of(orders={**WEEK, "remote.storage.enable": True, **settings})
    assert str(refused.value).startswith(
        ('[topics."orders"] local.ret', '[topics."orders"] remote.copy')
    )
    assert expected in str(refused.value)


BUILT_IN = {
    "the metadata log, whatever anybody says": (
        {"__cluster_metadata": WEEK}, "__cluster_metadata",
        Policy("built in", is_judged=False), "unjudged",
    ),
    "consumer offsets, whatever globs and defaults say": (
        {}, "__consumer_offsets",
        Policy("built in", cleanup_policy=("compact",)), "compact",
    ),
    "consumer offsets, with a section of their own": (
        {"__consumer_offsets": WEEK}, "__consumer_offsets",
        Policy("__consumer_offsets", 7 * DAY_MS, cleanup_policy=("delete",)), "delete",
    ),
    "consumer offsets, with a section that has no cleanup.policy": (
        {"__consumer_offsets": {"retention.ms": "7d"}}, "__consumer_offsets",
        Policy("__consumer_offsets", 7 * DAY_MS, cleanup_policy=("compact",)), "compact",
    ),
    "transactions": (
        {}, "__transaction_state",
        Policy("built in", cleanup_policy=("compact",)), "compact",
    ),
    "remote log metadata": (
        {}, "__remote_log_metadata",
        Policy("built in", cleanup_policy=("delete",)), "delete",
    ),
    "a topic that is only called so": (
        {}, "__consumer_offsets_copy",
        Policy("__*", 1, 2, ("delete",)), "delete",
    ),
}  # fmt: skip


@each_case(("sections", "topic", "policy", "mode"), BUILT_IN)
def test_kafkas_own_topics(sections: dict[str, Any], topic: str, policy: Policy, mode: str) -> None:
    defaults = {"cleanup.policy": "delete", "retention.ms": 1}
    policies = Policies(
        {"defaults": defaults, "topics": {"__*": {"retention.bytes": 2}, **sections}}
    )
    assert policies.of(topic) == policy
    assert policies.of(topic).mode == mode


KEEPS = {
    "nothing said": (Policies(), True),
    "no limits": (policies_of({"retention.ms": -1, "retention.bytes": -1}), True),
    "a size in the defaults": (policies_of({"retention.bytes": 0}), False),
    "compacted": (policies_of({"retention.ms": 5, "cleanup.policy": "compact"}), True),
    "compacted by default, a section deletes": (
        policies_of(
            {"retention.ms": 5, "cleanup.policy": "compact"},
            orders={"cleanup.policy": "compact,delete"},
        ),
        False,
    ),
    "consumer offsets stay compacted": (
        Policies({"topics": {"__consumer_offsets": {"retention.ms": 5}}}),
        True,
    ),
    "the metadata log is not judged": (
        Policies({"topics": {"__cluster_metadata": {"retention.ms": 5}}}),
        True,
    ),
}


@each_case(("policies", "keeps"), KEEPS)
def test_keeps_everything(policies: Policies, keeps: bool) -> None:
    assert policies.keeps_everything() is keeps


TIME = "expected 7d, 36h, 15m, 30s, 500ms or milliseconds, from"
SIZE = "expected 2TiB, 10GiB, 5MiB, 1KiB or bytes, from"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a typing error": ({"retention.sm": 1}, "retention.sm: not a topic setting of Kafka; "
                       "did you mean retention.ms?"),
    "a broker's name of it": ({"log.retention.ms": 1}, "did you mean retention.ms?"),
    "nothing like it": ({"zzz": 1}, "zzz: not a topic setting of Kafka"),
    "a part of the topic's name": ({"eu.retention.ms": 1}, "for retention.ms, quote a name with "
                                   'dots: [topics."orders.eu"]'),
    "a time below -1": ({"retention.ms": -2}, f"retention.ms: -2 found, {TIME} -1 to 2^63 - 1"),
    "a time beyond int64": ({"retention.ms": 2**63}, f"retention.ms: {2**63} found, {TIME}"),
    "a bool is no number": ({"retention.ms": True}, f"retention.ms: True found, {TIME}"),
    "a time for a size": ({"retention.bytes": "7d"}, f"retention.bytes: '7d' found, {SIZE} any"),
    "a size beyond int64": ({"retention.bytes": -(2**63) - 1}, f"{SIZE} any negative number to 2^"),
    "no message": ({"flush.messages": 0}, "flush.messages: 0 found, expected an integer, from 1"),
    "half a replica": ({"min.insync.replicas": "1.5"}, "'1.5' found, expected an integer, from 1"),
    "a ratio above 1": ({"min.cleanable.dirty.ratio": 1.1}, "expected a number from 0 to 1"),
    "no boolean": ({"preallocate": "yes"}, "preallocate: 'yes' found, expected true or false"),
    "a segment beyond int32": ({"segment.bytes": "2GiB"}, f"{SIZE} 14 to 2^31 - 1"),
    "a segment of no time": ({"segment.ms": 0}, f"segment.ms: 0 found, {TIME} 1 to"),
    "an unread setting is checked, too": ({"local.retention.ms": -3}, f"-3 found, {TIME} -2 to"),
    "an unread list": ({"compression.type": ["lz4"]}, "['lz4'] found, expected one value"),
    "an unknown policy": ({"cleanup.policy": "compact,purge"}, "cleanup.policy: 'purge' found, "
                          "expected delete, compact or both"),
    "a policy of another case": ({"cleanup.policy": "Delete"}, "'Delete' found, expected delete"),
    "a list of policies": ({"cleanup.policy": ["delete"]}, "['delete'] found, expected text"),
    "an unknown type": ({"message.timestamp.type": "createtime"}, "message.timestamp.type: "
                        "'createtime' found, expected CreateTime or LogAppendTime"),
}  # fmt: skip


@each_case(("settings", "message"), WRONG)
def test_settings_that_a_section_refuses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as raised:
        policies_of(orders=settings)
    assert str(raised.value).startswith('[topics."orders"] ')
    assert message in str(raised.value)


def test_the_defaults_are_checked_as_sections_are() -> None:
    with pytest.raises(PolicyError, match=r"^\[defaults\] retention.ms: -2 found"):
        policies_of({"retention.ms": -2})
    with pytest.raises(PolicyError, match=r"^\[defaults\] eu.retention.ms: .* did you mean"):
        policies_of({"eu.retention.ms": 1})


@each_case("name", ["", ".", "a b", "a/b", "ü", "a" * 250, "a,b"])
def test_a_name_that_no_topic_has(name: str) -> None:
    with pytest.raises(PolicyError, match="not the name of a topic"):
        by_match(name)


def test_an_unknown_section() -> None:
    with pytest.raises(PolicyError, match=r"\[topic\]: unknown section, expected \[defaults\]"):
        Policies({"topic": {}})


@each_case("key", sorted(TOPIC_KEYS))
def test_every_key_of_kafka_is_taken(key: str) -> None:
    texts = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
    }
    is_flag = key.endswith((".disable", ".enable", "preallocate"))
    policies_of(orders={key: texts.get(key, "True" if is_flag else "20")})


def test_any_negative_size_is_no_limit_as_for_kafka() -> None:
    for value in (-2, "-1", str(-(2**63))):
        assert policies_of(orders={"retention.bytes": value}).of("orders").retention_bytes == -1


TOPIC_NAMES = st.one_of(
    st.text("ab.-_", min_size=1, max_size=5).filter(lambda name: name not in (".", "..")),
    st.sampled_from(sorted(BUILT_IN_TOPICS)),
)
GLOBS = st.text("ab*?", min_size=1, max_size=5).filter(lambda glob: not glob.isalpha())
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.sampled_from([-1, 0, "7d", "500", 2**63 - 1]),
        "retention.bytes": st.sampled_from([-1, 0, "10GiB", "-1"]),
        "cleanup.policy": st.sampled_from(["delete", "compact", "delete,compact", ""]),
        "segment.ms": st.sampled_from([1, "36h"]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "message.timestamp.difference.max.ms": st.integers(0, 2**63 - 1),
    },
)
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "defaults": SETTINGS,
        "topics": st.dictionaries(st.one_of(TOPIC_NAMES, GLOBS), SETTINGS, max_size=5),
    },
)


@given(TABLES)
def test_records_are_the_policies_again(tables: dict[str, Any]) -> None:
    policies = Policies(tables)
    through_json = json.loads(json.dumps(policies.to_record(), sort_keys=True))
    assert Policies.from_record(through_json) == policies
    assert hash(Policies.from_record(through_json)) == hash(policies)
    assert pickle.loads(pickle.dumps(policies)) == policies


@given(TABLES, TOPIC_NAMES)
def test_what_keeps_everything_deletes_nothing(tables: dict[str, Any], topic: str) -> None:
    policies = Policies(tables)
    policy = policies.of(topic)
    deletes = policy.mode == "delete" and max(policy.retention_ms, policy.retention_bytes) >= 0
    assert not (policies.keeps_everything() and deletes)


# The topics selected by `--topic`, including `!GLOB`.

NAMES = ("orders", "orders-test", "clicks", "clicks-changelog", "a.b", "ORDERS")
CASES = [
    # globs, topics asked for
    ([], NAMES),
    (["orders*"], ("orders", "orders-test")),
    (["!*-changelog"], ("orders", "orders-test", "clicks", "a.b", "ORDERS")),
    (["orders*", "!*-test"], ("orders",)),
    (["!*-test", "orders*"], ("orders",)),
    (["clicks", "orders", "!orders"], ("clicks",)),
    (["!*"], ()),
    (["a?b", "![A-Z]*"], ("a.b",)),
]


@each_case(("globs", "wanted"), CASES)
def test_topics_that_globs_ask_for(globs: list[str], wanted: tuple[str, ...]) -> None:
    asked = TopicGlobs.of(globs)
    assert tuple(name for name in NAMES if asked.matches(name)) == wanted


def test_an_exclamation_mark_alone_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"expected a glob after !, such as '!\*-changelog'"):
        TopicGlobs.of(["orders", "!"])
