"""The saved output of Kafka's own tools, and the settings read from it."""

import pytest

from kip33.errors import PolicyError
from kip33.formats.kafka_configs import TOPIC_KEYS, parse_kafka_configs, parse_properties
from tests.cases import each_case

# kafka-configs.sh --describe --entity-type topics --all, of a broker 4.1.1 with
# log.retention.hours=100; lines left out.
ALL_4_1 = """\
All configs for topic orders.eu_1 are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}
  flush.ms=9223372036854775807 sensitive=false synonyms={}
  follower.replication.throttled.replicas= sensitive=false synonyms={}
  min.insync.replicas=1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, DEFAULT_CONFIG:min.insync.replicas=1}
  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1}
All configs for topic plain are:
  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
  leader.replication.throttled.replicas=0:1,1:1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:leader.replication.throttled.replicas=0:1,1:1}
  retention.ms=360000000 sensitive=false synonyms={}
"""  # noqa: E501
ALL_TOPICS = {
    "orders.eu_1": {
        "cleanup.policy": "compact,delete",
        "flush.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
    },
    "plain": {
        "cleanup.policy": "delete",
        "leader.replication.throttled.replicas": "0:1,1:1",
        "retention.ms": "360000000",
    },
}

# The same without --all.
DYNAMIC_4_1 = """\
Dynamic configs for topic orders.eu_1 are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}
  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1}
Dynamic configs for topic plain are:
"""  # noqa: E501
DYNAMIC_TOPICS = {
    "orders.eu_1": {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
    "plain": {},
}

# kafka-topics.sh --describe of the same broker.
TOPICS_4_1 = (
    "Topic: orders.eu_1\tTopicId: k9kV3IvNQaqH3MlVTi0F6w\tPartitionCount: 1\tReplicationFactor: 1"
    "\tConfigs: min.insync.replicas=1,cleanup.policy=compact,delete,retention.ms=-1\n"
    "\tTopic: orders.eu_1\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
    "Topic: clicks\tTopicId: yPZxTqnbTJS4CBvP_XmjHw\tPartitionCount: 1\tReplicationFactor: 1"
    "\tConfigs: leader.replication.throttled.replicas=0:1,1:1,min.insync.replicas=1\n"
    "\tTopic: clicks\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
)
TOPICS_TOPICS = {
    "orders.eu_1": {
        "min.insync.replicas": "1",
        "cleanup.policy": "compact,delete",
        "retention.ms": "-1",
    },
    "clicks": {"leader.replication.throttled.replicas": "0:1,1:1", "min.insync.replicas": "1"},
}

HEAD = "All configs for topic t are:\n"
SAID = " sensitive=false synonyms={}\n"

TEXTS = {
    "kafka-configs 4.1 with --all": (ALL_4_1, ALL_TOPICS),
    "kafka-configs 4.1 without --all": (DYNAMIC_4_1, DYNAMIC_TOPICS),
    "kafka-topics 4.1": (TOPICS_4_1, TOPICS_TOPICS),
    "lines that end as on Windows": (ALL_4_1.replace("\n", "\r\n"), ALL_TOPICS),
    "no line break at the end": (ALL_4_1.rstrip(), ALL_TOPICS),
    "a value with equals signs and spaces": (
        f"{HEAD}  a.b=c = d, e=f{SAID}",
        {"t": {"a.b": "c = d, e=f"}},
    ),
    "a sensitive value": (
        f"{HEAD}  a.b=null sensitive=true synonyms={{}}\n",
        {"t": {"a.b": "null"}},
    ),
    "kafka-configs 2.4 with --zookeeper": (
        "Configs for topic 'orders' are retention.ms=-1,cleanup.policy=compact,delete\n"
        "Configs for topic 'plain' are \n",
        {"orders": {"retention.ms": "-1", "cleanup.policy": "compact,delete"}, "plain": {}},
    ),
    "kafka-topics 2.1: no spaces, no TopicId": (
        "Topic:orders\tPartitionCount:2\tReplicationFactor:1\tConfigs:retention.ms=5\n"
        "\tTopic: orders\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\n"
        "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 0\tIsr: \n",
        {"orders": {"retention.ms": "5"}},
    ),
    "kafka-topics without settings": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n",
        {"t": {}},
    ),
    "kafka-topics without settings, blanks at the line's end cut off": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:\n",
        {"t": {}},
    ),
    "a topic marked for deletion": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: retention.ms=5\t"
        "MarkedForDeletion: true\n",
        {"t": {"retention.ms": "5"}},
    ),
    "tabs pasted as blanks": (
        "Topic: t    PartitionCount: 1    ReplicationFactor: 1    Configs: retention.ms=5\n",
        {"t": {"retention.ms": "5"}},
    ),
    "a key that this Kafka has not ends the value before it": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\t"
        "Configs: cleanup.policy=compact,delete,vendor.tier.enable=true,preallocate=true\n",
        {
            "t": {
                "cleanup.policy": "compact,delete",
                "vendor.tier.enable": "true",
                "preallocate": "true",
            }
        },
    ),
    "a piece that only looks like a setting goes on the value": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: a.b=c,d=e,retention.ms=5\n",
        {"t": {"a.b": "c,d=e", "retention.ms": "5"}},
    ),
    "warnings saved along": (
        "[2024-05-01 12:00:00,000] WARN [AdminClient] slow (org.apache.kafka.Client)\n"
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported\n\n" + DYNAMIC_4_1,
        DYNAMIC_TOPICS,
    ),
    "a warning inside a block": (
        f"{HEAD}  retention.ms=5{SAID}SLF4J: no providers\n  segment.ms=6{SAID}",
        {"t": {"retention.ms": "5", "segment.ms": "6"}},
    ),
    "both tools in one text": (
        DYNAMIC_4_1 + TOPICS_4_1,
        {
            "orders.eu_1": DYNAMIC_TOPICS["orders.eu_1"] | TOPICS_TOPICS["orders.eu_1"],
            "plain": {},
            "clicks": TOPICS_TOPICS["clicks"],
        },
    ),
}


@each_case(("text", "topics"), TEXTS)
def test_what_the_tools_printed(text: str, topics: dict[str, dict[str, str]]) -> None:
    assert parse_kafka_configs(text) == topics


WRONG = {
    "nothing": ("", "line 1: no topic found, expected the output of kafka-configs.sh --describe"),
    "blank lines only": ("\n \n", "line 1: no topic found"),
    "another text": ("retention.ms=5\n", "line 1: 'retention.ms=5' found, expected the output of"),
    "partitions without their topic": (
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n",
        "line 1: no topic found",
    ),
    "a setting without its topic": (f"  retention.ms=5{SAID}", "line 1: '  retention.ms=5 sen"),
    "a setting cut short": (
        f"{HEAD}  retention.ms=5{SAID}  retention.bytes=10",
        "line 3: '  retention.bytes=10' found",
    ),
    "a value cut short": (f"{HEAD}  retention.ms=60480\n", "line 2: '  retention.ms=60480' found"),
    "a topic line cut short": (
        "Topic: t\tTopicId: abc\tPartitionCount: 1\n",
        r"line 1: 'Topic: t\tTopicId: abc\tPartitionCount: 1' found",
    ),
    "settings of brokers": (
        "All configs for broker 1 are:\n",
        "line 1: 'All configs for broker 1 are:' found",
    ),
    "a piece before any key": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: delete,retention.ms=5\n",
        "line 1: 'delete' found, expected KEY=VALUE",
    ),
    "a setting of kafka-configs below a line of kafka-topics": (
        f"{HEAD}Topic: u\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:\n"
        f"  retention.ms=5{SAID}",
        "line 3: '  retention.ms=5 sen",
    ),
    "an error of the tool: topics may be missing": (
        f"{DYNAMIC_4_1}Error while executing config command with args '--describe'\n",
        "line 5: \"Error while executing config command with args '--describe'\" found",
    ),
    "an error logged": (
        f"[2024-05-01 12:00:00,000] ERROR timed out\n{DYNAMIC_4_1}",
        "line 1: '[2024-05-01 12:00:00,000] ERROR timed out' found",
    ),
    "one topic, two values": (
        f"{HEAD}  retention.ms=5{SAID}{HEAD}  retention.ms=6{SAID}",
        "line 4: topic t: retention.ms=6 found, expected '5' as above",
    ),
    "a long line": ("x" * 1000, "x" * 80 + "...' found"),
}


@each_case(("text", "message"), WRONG)
def test_text_that_no_tool_printed(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_kafka_configs(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_keys_are_kafkas() -> None:
    """4.4 has 35 and two throttles; internal.segment.bytes is a test's; older ones had three."""
    assert len(TOPIC_KEYS) == 41
    assert {"retention.ms", "message.format.version", "internal.segment.bytes"} <= TOPIC_KEYS


# Property files: what Java's own reader makes of them.

CASES = {
    "a value": ("a", "value"),
    "a=value": ("a", "value"),
    "a = value ": ("a", "value "),
    "a:value": ("a", "value"),
    "a : b=c": ("a", "b=c"),
    "a\tvalue": ("a", "value"),
    "  a=1": ("a", "1"),
    "a": ("a", ""),
    "a=": ("a", ""),
    "=1": ("", "1"),
    "a==1": ("a", "=1"),
    "a\\=b=c": ("a=b", "c"),
    "a\\ b c": ("a b", "c"),
    "a=one \\\n   two": ("a", "one two"),
    "a=one\\\r\ntwo": ("a", "onetwo"),
    "a=one\\\\": ("a", "one\\"),
    "a=one\\\n#two": ("a", "one#two"),
    "a=\\u0041\\t\\q": ("a", "A\tq"),
    "a=1\\": ("a", "1"),
}


@each_case(("text", "pair"), CASES.items())
def test_a_pair_is_what_java_reads(text: str, pair: tuple[str, str]) -> None:
    assert parse_properties(f"# a comment\n! another\n\n{text}\n") == dict([pair])


def test_the_last_of_two_values_wins() -> None:
    assert parse_properties("a=1\na=2") == {"a": "2"}


@each_case("text", ["a=\\u12", "a=\\uXXXX", "a=\\\\\\u1"])
def test_an_escape_without_digits_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: .u without four hexadecimal digits"):
        parse_properties(f"\n{text}")
