"""What the tools and files of a real broker say, read by kip33: every topic, every value."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip33.archive.log_start_offsets import log_start_offsets
from kip33.formats.kafka_configs import TOPIC_KEYS, parse_kafka_configs
from kip33.formats.partition_metadata import LOG_START_OFFSET_CHECKPOINT
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import Policy
from kip33.rules.search import LIMITS_RECORDS
from kip33.stores.locations import Location
from tests.builders.segment_builder import Record, v2_batch
from tests.integration.kafka.broker import (
    CONFIG_COMMAND,
    TOPIC_COMMAND,
)
from tests.integration.kafka.kafka_jars import version_of
from tests.integration.kafka.lost_cluster import nodes_or_skip
from tests.integration.kafka.nodes import Nodes, wait_until

pytestmark = pytest.mark.kafka

INVALID = 87  # Kafka's error code: INVALID_RECORD
BROKER = {
    "log.retention.ms": "",
    "log.retention.hours": "100",
    "log.segment.bytes": "20000000",
}
TOPICS = {
    "orders.eu_1-x": {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
    "clicks": {
        "leader.replication.throttled.replicas": "0:1,1:1",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "1073741824",
        "segment.ms": "3600000",
    },
    "changelog": {"cleanup.policy": "compact"},
    "plain": {},
    "small": {"max.decompressed.message.bytes": "100"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    broker = nodes_or_skip(tmp_path_factory.mktemp("broker"), settings=BROKER)
    with broker.running():
        broker.run_steps(
            " ".join((f"create {topic} 1 1", *(f"{key}={said}" for key, said in settings.items())))
            for topic, settings in TOPICS.items()
        )
        yield broker


def describe_configs(broker: Nodes, *options: str) -> str:
    what = ("--describe", "--entity-type", "topics", *options)
    return broker.run(CONFIG_COMMAND, *what, *broker.server)


def test_kafka_configs_tells_every_setting(broker: Nodes, tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(describe_configs(broker, "--all"))

    printed = parse_kafka_configs((tmp_path / "all.txt").read_text())
    policies = load_policies(None, str(tmp_path / "all.txt"))

    assert printed.keys() == TOPICS.keys()
    assert {key for settings in printed.values() for key in settings} <= TOPIC_KEYS
    for topic, settings in TOPICS.items():
        assert settings.items() <= printed[topic].items()
        assert printed[topic].keys() == printed["plain"].keys()
    defaults = {
        "retention_ms": 360_000_000,
        "retention_bytes": -1,
        "cleanup_policy": ("delete",),
        "segment_ms": 604_800_000,
        "segment_jitter_ms": 0,
        "segment_bytes": 20_000_000,
        "message_timestamp_type": "CreateTime",
        "message_timestamp_after_max_ms": 3_600_000,
        "message_timestamp_before_max_ms": 2**63 - 1,
        "index_interval_bytes": 4096,
        "segment_index_bytes": 10_485_760,
        "max_compaction_lag_ms": 2**63 - 1,
    }
    plain = Policy("plain", **defaults)  # type: ignore[arg-type]
    assert policies.of("plain") == plain
    assert policies.of("orders.eu_1-x") == plain._replace(
        match="orders.eu_1-x", retention_ms=-1, cleanup_policy=("compact", "delete")
    )
    assert policies.of("clicks") == plain._replace(
        match="clicks",
        retention_bytes=2**30,
        segment_ms=3_600_000,
        message_timestamp_type="LogAppendTime",
    )
    modes = {topic: policies.of(topic).mode for topic in (*TOPICS, "unknown")}
    assert modes == {
        "orders.eu_1-x": "delete",
        "clicks": "delete",
        "changelog": "compact",
        "plain": "delete",
        "small": "delete",
        "unknown": "no_policy",
    }


def test_kafka_configs_without_all_tells_what_was_set(broker: Nodes) -> None:
    assert parse_kafka_configs(describe_configs(broker)) == TOPICS


def test_kafka_topics_tells_what_differs(broker: Nodes) -> None:
    printed = parse_kafka_configs(broker.run(TOPIC_COMMAND, "--describe", *broker.server))
    # Of the broker's own settings log.segment.bytes is shown, log.retention.hours is not.
    broker_wide = {"min.insync.replicas": "1", "segment.bytes": "20000000"}
    assert printed == {topic: settings | broker_wide for topic, settings in TOPICS.items()}


def test_a_broker_refuses_a_large_record_only_in_a_compressed_batch(broker: Nodes) -> None:
    """A limit of 4.4, max.decompressed.message.bytes."""
    if version_of(broker.jars.version) < LIMITS_RECORDS:
        pytest.skip("a limit of 4.4")
    of_size = {size: [Record(1_700_000_000_000, value=bytes(size))] for size in (50, 150)}
    assert broker.produce("small", 0, v2_batch(0, of_size[50], codec="gzip")).offset == 0
    assert broker.produce("small", 0, v2_batch(0, of_size[150], codec="gzip")).error == INVALID
    assert broker.produce("small", 0, v2_batch(0, of_size[150])).offset == 1


def test_a_log_start_offset_that_a_broker_wrote(broker: Nodes) -> None:
    broker.run_steps(["send p none clicks 0 1700000000000 0 10 9 1", "delete clicks 0 7"])
    checkpoint = broker.log_dir() / LOG_START_OFFSET_CHECKPOINT
    wait_until(lambda: "clicks" in checkpoint.read_text(), "the checkpoint of log starts")

    source = Location.of(broker.log_dir().parent)
    assert log_start_offsets(source, [broker.log_dir().name]) == {("logs", "clicks", 0): 7}
