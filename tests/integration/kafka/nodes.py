"""Brokers of one cluster that are stopped, lose their files and start again, at the same ports.

    nodes = Nodes(tmp_path)
    with nodes.running():
        nodes.run_steps(["create orders 2 1", "send a none orders 0 1700000000000 0 10 100 5"])

Node 1 is broker and controller, the others are brokers. The cluster's metadata have a directory of
their own, so a log directory can be lost and the topics stay known.
"""

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.integration.kafka.broker import (
    CLUSTER_ID,
    OWN_TOPICS,
    STORAGE_TOOL,
    free_ports,
    node_settings,
    run_steps,
    run_tool,
    start_node,
    stop_node,
    wait_until_listening,
    write_configuration,
)
from tests.integration.kafka.kafka_jars import KAFKA_VERSION, JarFolder

WAIT_S = 300
# What is said of logs while they are loaded, by 3.x and 4.x.
LOG_LOADING = ("kafka.log", "kafka.server.epoch", "org.apache.kafka.storage.internals")
SETTINGS = OWN_TOPICS | {
    "log.segment.bytes": "1048576",  # the least
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": "86400000",
    "group.initial.rebalance.delay.ms": "0",
}


class Produced(NamedTuple):
    """A broker's answer to one batch: Kafka's error code and the offset of its first record."""

    error: int
    offset: int


class Nodes:
    """The brokers of one cluster, below one folder."""

    def __init__(
        self,
        root: Path,
        number: int = 1,
        *,
        version: str = KAFKA_VERSION,
        settings: Mapping[str, str] | None = None,
        settings_of: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Choose ports; `settings_of` are settings of single nodes, over those of all.

        An empty setting takes one of SETTINGS away.
        """
        self.root = root
        self.jars = JarFolder.of_broker(version)
        self.jars.build()
        self.ids = range(1, number + 1)
        controller, *ports = free_ports(number + 1)
        self._controller = f"127.0.0.1:{controller}"
        self._ports = dict(zip(self.ids, ports, strict=True))
        self._settings = SETTINGS | dict(settings or {})
        self._settings_of = settings_of or {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._starts = count(1)
        self._steps = count(1)
        self._logs: dict[int, Path] = {}

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all nodes."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def log_dir(self, node: int = 1) -> Path:
        """Return where a node keeps its partitions."""
        return self.root / f"node-{node}" / "logs"

    def start(self, *nodes: int, **settings: str) -> None:
        """Start these nodes, or all; `log_retention_ms="1"` goes over the settings of before."""
        changed = {name.replace("_", "."): value for name, value in settings.items()}
        for node in nodes or self.ids:
            configuration = self._configure(node, changed)
            self._format(node, configuration)
            self._logs[node] = configuration.with_name(f"broker-{next(self._starts)}.out")
            self._running[node] = start_node(
                configuration, self._logs[node], jars=self.jars, informed=LOG_LOADING
            )
        for node in nodes or self.ids:
            wait_until_listening(self._running[node], self._ports[node], self._logs[node])

    def stop(self, *nodes: int) -> None:
        """End these nodes, or all, as an administrator does; the controller last."""
        for node in sorted(nodes or list(self._running), reverse=True):
            stop_node(self._running.pop(node))

    @contextmanager
    def running(self, **settings: str) -> Iterator[None]:
        """Start all nodes, and stop those that run in the end."""
        try:
            self.start(**settings)
            yield
        finally:
            self.stop()

    def logged(self, node: int = 1) -> list[str]:
        """Return the lines of a node's log since it was started last."""
        return self._logs[node].read_text(errors="replace").splitlines()

    def run_steps(self, steps: Iterable[str]) -> str:
        """Have LostAndFound.java run these steps; OracleError with its complaints if it fails."""
        file = self.root / f"steps-{next(self._steps)}"
        return run_steps(self.bootstrap, file, steps, jars=self.jars)

    def run(self, main_class: str, *args: str) -> str:
        """Return what a tool of Kafka's prints; OracleError, with its complaints, if it fails."""
        return run_tool(main_class, *args, jars=self.jars)

    @property
    def server(self) -> tuple[str, str]:
        """Return the option by which most tools find the cluster."""
        return "--bootstrap-server", self.bootstrap

    def lose_logs(self, node: int = 1) -> Path:
        """Give a stopped node a log directory without partitions; return where they are now.

        The directory's id stays: a broker whose directory has another id may get no leaders.
        """
        kept = self.log_dir(node).with_name(f"lost-{next(self._steps)}")
        self.log_dir(node).rename(kept)
        self.log_dir(node).mkdir()
        shutil.copy(kept / "meta.properties", self.log_dir(node))
        return kept

    def connect(self, node: int = 1) -> socket.socket:
        """Return a connection to a node, for requests by the protocol."""
        return socket.create_connection(("127.0.0.1", self._ports[node]), timeout=60)

    def produce(self, topic: str, partition: int, batch: bytes, *, node: int = 1) -> Produced:
        """Send one batch as it is, by the protocol; its first offset is 0 in there."""
        with self.connect(node) as broker:
            body = struct.pack(">hhih", 0, 3, 1, -1)  # Produce, version 3; no client id
            body += struct.pack(">hhi", -1, -1, 60_000)  # no transaction, all replicas
            body += struct.pack(">ih", 1, len(topic)) + topic.encode()
            body += struct.pack(">iii", 1, partition, len(batch)) + batch
            broker.sendall(struct.pack(">i", len(body)) + body)
            with broker.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                said = answer.read(size)
        at = 4 + 4 + 2 + len(topic) + 4 + 4
        return Produced(*struct.unpack_from(">hq", said, at))

    def _configure(self, node: int, changed: Mapping[str, str]) -> Path:
        folder = self.root / f"node-{node}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **node_settings(node, self._ports[node], self._controller, self.log_dir(node)),
            "metadata.log.dir": str(folder / "metadata"),
            **self._settings,
            **self._settings_of.get(node, {}),
            **changed,
        }
        return write_configuration(folder, {key: text for key, text in settings.items() if text})

    def _format(self, node: int, configuration: Path) -> None:
        if (configuration.parent / "metadata" / "meta.properties").exists():
            return
        who = ("--standalone",) if node == 1 else ()
        what = ("format", "-t", CLUSTER_ID, "-c", str(configuration), *who)
        run_tool(STORAGE_TOOL, *what, jars=self.jars)


def only_logs(lost: Path, archive: Path, *others: str) -> Path:
    """Copy nothing but segments out of a log directory, and `others` by their names."""
    for file in sorted(lost.rglob("*")):
        if file.suffix == ".log" or file.name in others:
            target = archive / file.relative_to(lost)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
    return archive


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Return when it is so; fail after WAIT_S seconds."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.2)


def base_offsets(directory: Path, partition: str) -> list[int]:
    """Return those of a partition's logs in a log directory, or in a remote tier.

    There the folder of `orders-1` has the topic's id at its end.
    """
    logs = [
        log for name in (partition, f"{partition}-*") for log in directory.glob(f"{name}/*.log")
    ]
    return sorted({int(log.name.partition("-")[0].removesuffix(".log")) for log in logs})
