"""Topic settings in the saved output of two of Kafka's own tools.

    kafka-configs.sh --describe --entity-type topics --all     every effective setting
        All configs for topic orders are:
          cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:...}
    without --all: only what was set for the topic itself
        Dynamic configs for topic orders are:
          retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1, ...}
    with --zookeeper, before Kafka 3.0: the same on one line
        Configs for topic 'orders' are retention.ms=-1,cleanup.policy=compact,delete
    kafka-topics.sh --describe                                 what differs from Kafka's defaults
        Topic: orders   TopicId: ...    PartitionCount: 1  ReplicationFactor: 1  Configs: k=v,k=v
            Topic: orders   Partition: 0    Leader: 1  Replicas: 1  Isr: 1

A key that is not listed is unknown: only `--all` lists every key. kafka-topics.sh shows a broker's
log.segment.bytes as a topic setting, but not its log.retention.hours. One text may mix the forms.
Values are kept as printed: they may contain `=`, `,` and spaces, or be empty.
Kafka: `ConfigCommand.describeResourceConfig`, `TopicCommand.TopicDescription.printDescription`.
"""

import re
from collections.abc import Iterator
from typing import Final

from kip33.errors import PolicyError

# org.apache.kafka.common.config.TopicConfig of 4.1, the throttles of LogConfig, and three keys of
# older versions at the end.
TOPIC_KEYS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    }
)

EXPECTED_OUTPUT: Final = (
    "the output of kafka-configs.sh --describe --entity-type topics --all "
    "or of kafka-topics.sh --describe"
)
_LONGEST_QUOTE: Final = 80

_BLOCK = re.compile(r"(?:All|Dynamic) configs for topic (\S+) are:\s*")
_SETTING = re.compile(r"\s+([^=\s]+)=(.*?) sensitive=(?:true|false) synonyms=\{.*\}\s*")
_ZOOKEEPER = re.compile(r"Configs for topic '?([^'\s]+)'? are\s*(.*)")
_TOPIC = re.compile(
    r"\s*Topic:\s*(\S+)\s+(?:TopicId:\s*\S+\s+)?PartitionCount:\s*\d+"
    r"\s+ReplicationFactor:\s*\d+\s+Configs:\s*(.*?)(?:\s*MarkedForDeletion:\s*\w+)?\s*"
)
_PARTITION = re.compile(r"\s*Topic:\s*\S+\s+Partition:\s*\d+\s+Leader:.*")
# Warnings of a logger or JVM in the saved text. Errors are not ignored: topics may be missing then.
_NOISE = re.compile(
    r"\s*|\[\d{4}-[^\]]*\] (?:DEBUG|INFO|WARN) .*|(?:SLF4J|log4j):.*|Picked up .*"
    r"|(?i:.*\bwarning: .*)"
)
_DOTTED_KEY = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)+")


def parse_kafka_configs(text: str) -> dict[str, dict[str, str]]:
    """Return each topic's settings as printed, empty for a topic without settings.

    Every line must have one of the forms above. Raises PolicyError, with the line's number, for
    another line, for a setting with two different values, and for a text without topics.

    >>> parse_kafka_configs("Topic: t\\tPartitionCount: 1\\tReplicationFactor: 1\\t"
    ...                     "Configs: cleanup.policy=compact,delete,retention.ms=-1")
    {'t': {'cleanup.policy': 'compact,delete', 'retention.ms': '-1'}}
    """
    topics: dict[str, dict[str, str]] = {}
    block: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        settings: Iterator[tuple[str, str]] = iter(())
        if found := _BLOCK.fullmatch(line):
            topic = block = found[1]
        elif block and (found := _SETTING.fullmatch(line)):
            topic, settings = block, iter([(found[1], found[2])])
        elif found := _TOPIC.fullmatch(line) or _ZOOKEEPER.fullmatch(line):
            topic, block = found[1], None
            settings = _pieces(found[2], number)
        elif _PARTITION.fullmatch(line) or _NOISE.fullmatch(line):
            continue
        else:
            raise PolicyError(f"line {number}: {_quoted(line)} found, expected {EXPECTED_OUTPUT}")
        said = topics.setdefault(topic, {})
        for key, value in settings:
            if said.setdefault(key, value) != value:
                raise PolicyError(
                    f"line {number}: topic {topic}: {key}={value} found, expected "
                    f"{said[key]!r} as above: give the output of one run on one cluster"
                )
    if not topics:
        raise PolicyError(f"line 1: no topic found, expected {EXPECTED_OUTPUT}")
    return topics


def _pieces(text: str, number: int) -> Iterator[tuple[str, str]]:
    """Yield the settings of `k=v,k=v`; a piece without a key continues the value before it.

    A key is one of Kafka's or any dotted name: keys of a newer Kafka or of a vendor must not become
    part of the value before them.
    """
    if not text:
        return
    key, value = "", ""
    for piece in text.split(","):
        name, sign, rest = piece.partition("=")
        if sign and (name in TOPIC_KEYS or _DOTTED_KEY.fullmatch(name)):
            if key:
                yield key, value
            key, value = name, rest
        elif key:
            value += "," + piece
        else:
            raise PolicyError(f"line {number}: {_quoted(piece)} found, expected KEY=VALUE")
    yield key, value


def _quoted(line: str) -> str:
    if len(line) > _LONGEST_QUOTE:
        line = line[:_LONGEST_QUOTE] + "..."
    return repr(line)
