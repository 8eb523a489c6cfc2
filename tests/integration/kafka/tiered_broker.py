"""Brokers with tiered storage, Kafka's own `LocalTieredStorage`: waited for, and asked.

    nodes = tiered_nodes(tmp_path)
    with nodes.running(**KEEP_LOCAL):
        nodes.run_steps([f"create orders 2 1 {TIERED} local.retention.ms=1000", ...])
        wait_for_uploads(nodes, {"orders": 2})
    with nodes.running():
        wait_until(lambda: base_offsets(nodes.log_dir(), "orders-0") == [16], "local retention")

All nodes upload to one directory, `tier_of(nodes)`: an archive of `--layout local-tiered`. The
newest segment of a partition is active and is never uploaded; nor is what follows the first record
of an open transaction. `ListOffsets(nodes)` asks a node for offsets of times.
"""

import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from kip33.rules.search import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from tests.integration.kafka.kafka_jars import TIERED_VERSION, kafka_or_skip
from tests.integration.kafka.nodes import Nodes, base_offsets, wait_until

TIERED: Final = "remote.storage.enable=true"  # a setting of a step `create`
KEEP_LOCAL: Final = {"log_retention_check_interval_ms": "86400000"}
"""Settings of a start in which no retention runs, after it did while there was no topic."""
SPECIAL: Final = (EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED)
TIMED_OUT: Final = 7  # also without a delay: DelayedRemoteListOffsets.tryComplete looks twice
REMOTE_STORAGE: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": (
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    ),
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "500",
    "rsm.config.delete.on.close": "false",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}

Question = tuple[str, int, int]  # topic, partition, timestamp or one of SPECIAL
Found = tuple[int, int]  # offset and timestamp, -1 without any


def tiered_nodes(
    root: Path,
    number: int = 1,
    *,
    version: str = TIERED_VERSION,
    settings: Mapping[str, str] | None = None,
    **more: Any,
) -> Nodes:
    """Return nodes with tiered storage; skip the test where Java or Maven is not there."""
    own: dict[str, str] = REMOTE_STORAGE | {"rsm.config.dir": str(root / "tier")}
    with kafka_or_skip():
        return Nodes(root, number, version=version, settings=own | dict(settings or {}), **more)


def tier_of(nodes: Nodes) -> Path:
    """Return where the nodes upload to."""
    return nodes.root / "tier" / "kafka-tiered-storage"


def wait_for_uploads(
    nodes: Nodes, topics: Mapping[str, int], *, node: int = 1, ends: Mapping[Any, int] | None = None
) -> None:
    """Wait until the last closed segment of each partition of these topics is in the tier.

    `topics` has the number of partitions, `node` leads them. `ends` has where uploads end for a
    (topic, partition) with an open transaction: at the base offset of the segment with it.
    """

    def is_uploaded(topic: str, number: int) -> bool:
        local = base_offsets(nodes.log_dir(node), f"{topic}-{number}")
        end = (ends or {}).get((topic, number), max(local))
        there = base_offsets(tier_of(nodes), f"{topic}-{number}")
        closed = [one for one in local if one < end]  # a leader uploads them in their order
        return not closed or closed[-1] in there

    for topic, count in topics.items():
        for number in range(count):
            wait_until(partial(is_uploaded, topic, number), f"the uploads of {topic}-{number}")


class ListOffsets:
    """The request ListOffsets, version 9, by the protocol: no client asks all of these times."""

    KEY, VERSION = 2, 9

    def __init__(self, nodes: Nodes, node: int = 1) -> None:
        """Ask this node, the leader of all partitions that are asked about."""
        self._nodes, self._node = nodes, node

    def __call__(self, questions: Iterable[Question]) -> list[Found]:
        """Return offset and timestamp for each question, in their order."""
        waiting: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        asked = list(questions)
        for number, (topic, partition, timestamp) in enumerate(asked):
            waiting[topic, partition].append((number, timestamp))
        answers: list[Found] = [(-1, -1)] * len(asked)
        with self._nodes.connect(self._node) as broker:
            while any(waiting.values()):  # a request has each partition once
                once = {where: left.pop() for where, left in waiting.items() if left}
                found = self._ask(broker, {where: time for where, (_, time) in once.items()})
                for where, question in once.items():
                    if where in found:
                        answers[question[0]] = found[where]
                    else:
                        waiting[where].append(question)
        return answers

    def wait_for_remote_tier(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Wait until the broker knows what is in the remote tier, some time after its start."""
        questions = [(*where, LATEST_TIERED) for where in partitions]
        wait_until(
            lambda: all(offset >= 0 for offset, _ in self(questions)),
            "the broker to know what is in the remote tier",
        )

    def _ask(
        self, broker: socket.socket, times: dict[tuple[str, int], int]
    ) -> dict[tuple[str, int], Found]:
        """Return an answer for each partition, but none where the broker says TIMED_OUT."""
        body = struct.pack(">hhihb", self.KEY, self.VERSION, 0, -1, 0)  # header: no client id
        body += struct.pack(">ib", -1, 0) + bytes([len(times) + 1])  # a consumer, uncommitted
        for (topic, partition), timestamp in times.items():
            body += bytes([len(topic) + 1]) + topic.encode() + bytes([2])
            body += struct.pack(">iiqbb", partition, -1, timestamp, 0, 0)
        body += b"\0"
        broker.sendall(struct.pack(">i", len(body)) + body)
        with broker.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            said = answer.read(size)
        found, at = {}, 4 + 1 + 4  # after correlation id, tags, throttle time
        topics, at = said[at] - 1, at + 1
        for _ in range(topics):
            end = at + said[at]
            topic, count = said[at + 1 : end].decode(), said[end] - 1
            at = end + 1
            for _ in range(count):
                partition, error, timestamp, offset, _ = struct.unpack_from(">ihqqi", said, at)
                assert error in (0, TIMED_OUT), (topic, partition, error)
                if error == 0:
                    found[topic, partition] = offset, timestamp
                at += 26 + 1
            at += 1
        return found
