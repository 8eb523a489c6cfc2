"""Brokers with tiered storage, Kafka's own `LocalTieredStorage`, whose uploads one can wait for.

    nodes = tiered_nodes(tmp_path)
    with nodes.running(**KEEP_LOCAL):
        nodes.run_steps([f"create orders 2 1 {TIERED} local.retention.ms=1000", ...])
        wait_for_uploads(nodes, {"orders": 2})
    with nodes.running():
        wait_until(lambda: base_offsets(nodes.log_dir(), "orders-0") == [16], "local retention")

All nodes upload to one directory, `tier_of(nodes)`: an archive of `--layout local-tiered`. The
newest segment of a partition is active and is never uploaded; nor is what follows the first record
of an open transaction.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.integration.kafka.kafka_jars import NEWEST, kafka_or_skip
from tests.integration.kafka.nodes import Nodes

TIERED: Final = "remote.storage.enable=true"  # a setting of a step `create`
KEEP_LOCAL: Final = {"log_retention_check_interval_ms": "86400000"}
"""Settings of a start in which no retention runs, after it did while there was no topic."""
WAIT_S: Final = 120
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


def tiered_nodes(
    root: Path,
    number: int = 1,
    *,
    version: str = NEWEST,
    settings: Mapping[str, str] | None = None,
) -> Nodes:
    """Return nodes with tiered storage; skip the test where Java or Maven is not there."""
    own: dict[str, str] = REMOTE_STORAGE | {"rsm.config.dir": str(root / "tier")}
    with kafka_or_skip():
        return Nodes(root, number, version=version, settings=own | dict(settings or {}))


def tier_of(nodes: Nodes) -> Path:
    """Return where the nodes upload to."""
    return nodes.root / "tier" / "kafka-tiered-storage"


def base_offsets(directory: Path, partition: str) -> list[int]:
    """Return those of a partition's logs in a log directory, or in the tier."""
    names = [log.name for name in (partition, f"{partition}-*") for log in _logs(directory, name)]
    return sorted({int(name.partition("-")[0].removesuffix(".log")) for name in names})


def _logs(directory: Path, name: str) -> list[Path]:
    """Return the logs of a partition; in the tier `orders-1-*` has the topic's id at the end."""
    return [log for one in directory.glob(name) for log in one.glob("*.log")]


def wait_for_uploads(
    nodes: Nodes, topics: Mapping[str, int], *, node: int = 1, ends: Mapping[Any, int] | None = None
) -> None:
    """Wait until each closed segment of these topics is in the tier.

    `topics` has the number of partitions, `node` leads them. `ends` has where uploads end for a
    (topic, partition) with an open transaction: at the base offset of the segment with it.
    """

    def is_uploaded(topic: str, number: int) -> bool:
        local = base_offsets(nodes.log_dir(node), f"{topic}-{number}")
        end = (ends or {}).get((topic, number), max(local))
        there = base_offsets(tier_of(nodes), f"{topic}-{number}")
        return {one for one in local if one < end} <= set(there)

    for topic, count in topics.items():
        for number in range(count):
            wait_until(partial(is_uploaded, topic, number), f"the uploads of {topic}-{number}")


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Return when it is so; fail after WAIT_S seconds."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.2)
