"""A cluster that lost its log directory, what it answered before, and commands on what is left."""

import time
from pathlib import Path
from typing import Any, NamedTuple

from kip33.formats.partition_metadata import parse_offset_checkpoint
from tests.cli.console import KIP33, Finished, subprocess_of
from tests.integration.kafka.batches import batch
from tests.integration.kafka.broker import TOPIC_COMMAND
from tests.integration.kafka.cluster_answers import Answers, TopicPartition
from tests.integration.kafka.kafka_jars import kafka_or_skip
from tests.integration.kafka.lost_topics import PARTITIONS, first_part, put_far_log, second_part
from tests.integration.kafka.nodes import Nodes, Produced, base_offsets, wait_until

TOPICS = " ".join(PARTITIONS)
LOG_STARTS = "log-start-offset-checkpoint"
RAW_PRODUCER = 4_000_000_000  # an id that no broker gives
RAW_BATCHES = {("orders", 0): 3, ("orders", 4): 1}


class Lost(NamedTuple):
    """A stopped cluster without logs."""

    nodes: Nodes
    logs: Path  # where they are now
    before: Answers
    described: str  # its topics

    def kip33(self, *arguments: Any, **environment: str) -> Finished:
        """Run a command in the cluster's folder."""
        return subprocess_of(KIP33, *arguments, cwd=self.nodes.root, **environment)

    def restore(self, *arguments: Any) -> Finished:
        """Run `kip33 restore` to the log directory, with the ids of the cluster's topics."""
        ids = self.nodes.root / "topics.txt"
        ids.write_text(self.described)
        to = ("--to", self.nodes.log_dir(), "--topic-ids", ids)
        return self.kip33("restore", *arguments, *to)

    def ask(self, name: str, topics: str = TOPICS) -> Answers:
        """Return the answers of the running cluster, about the same times as before."""
        return asked(self.nodes, name, self.nodes.root / "times", topics)


def asked(nodes: Nodes, name: str, times: Path, topics: str) -> Answers:
    """Return a running cluster's answers about some topics."""
    file = nodes.root / name
    nodes.run_steps([f"ask {file} {times} {topics}"])
    return Answers.read(file)


def send_raw(nodes: Nodes, where: TopicPartition, sequence: int) -> Produced:
    """Send a batch of one record as a producer of our own, which no client's retry changes."""
    now_ms = time.time_ns() // 1_000_000
    ids = {"producer_id": RAW_PRODUCER, "producer_epoch": 3, "base_sequence": sequence}
    return nodes.produce(*where, batch(0, now_ms, **ids))


def nodes_or_skip(root: Path, number: int = 1, **options: Any) -> Nodes:
    """Return nodes; skip the test where Java or Maven is not there."""
    with kafka_or_skip():
        return Nodes(root, number, **options)


def wait_for_compaction(nodes: Nodes) -> None:
    """Wait until the cleaner has cleaned all of topic profiles but its active segment."""
    last = base_offsets(nodes.log_dir(), "profiles-0")[-1]
    checkpoint = nodes.log_dir() / "cleaner-offset-checkpoint"

    def is_cleaned() -> bool:
        cleaned = parse_offset_checkpoint(checkpoint.read_text()) if checkpoint.exists() else {}
        return cleaned.get(("profiles", 0), -1) >= last

    wait_until(is_cleaned, "compaction")


def lost_cluster(root: Path, **options: Any) -> Lost:
    """Return a cluster that was filled, asked and stopped, and then lost its logs."""
    nodes = nodes_or_skip(root, **options)
    now_ms = time.time_ns() // 1_000_000
    with nodes.running():
        nodes.run_steps(first_part(now_ms))
    put_far_log(nodes, now_ms)
    with nodes.running():
        nodes.run_steps(second_part(now_ms))
        for where, count in RAW_BATCHES.items():
            for sequence in range(count):
                assert send_raw(nodes, where, sequence).error == 0
        wait_for_compaction(nodes)  # which changes answers
        before = asked(nodes, "before", root / "times", TOPICS)
        described = nodes.run(TOPIC_COMMAND, "--describe", *nodes.server)
    return Lost(nodes, nodes.lose_logs(), before, described)
