"""A whole broker of Kafka 4.1, on loopback, with its own tools: started, asked, stopped.

    with running_broker(tmp_path) as broker:
        broker.run(TOPIC_COMMAND, "--create", "--topic", "orders", *broker.server)

One KRaft process is broker and controller. Its jars come by Maven, as the oracle's do.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.kafka.kafka_jars import PROJECT, JarFolder, OracleError, OracleMissingError

STORAGE_TOOL = "kafka.tools.StorageTool"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DELETE_RECORDS_COMMAND = "org.apache.kafka.tools.DeleteRecordsCommand"
GET_OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
GROUPS_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DATED_PRODUCER = str(PROJECT / "broker" / "DatedProducer.java")  # ours; Java runs it as it is
GROUP_MEMBER = str(PROJECT / "broker" / "GroupMember.java")

JARS = JarFolder.of_broker()
OUTPUT = "broker.out"
CLUSTER_ID = "kip33-broker-of-tests0"  # 16 bytes in base64
STARTS_WITHIN_S = 600
STOPS_WITHIN_S = 600
TOOL_ENDS_WITHIN_S = 900
# Short lives: the first compiler only, one collector thread, little memory.
JVM = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Broker:
    """A broker that runs; its partitions' directories lie in `log_dir`."""

    bootstrap: str
    log_dir: Path

    @property
    def server(self) -> tuple[str, str]:
        """Return the option by which most tools find the broker."""
        return "--bootstrap-server", self.bootstrap

    def run(self, main_class: str, *args: str) -> str:
        """Return what a tool of Kafka's prints; OracleError, with its complaints, if it fails."""
        return _run(main_class, *args)

    def complaints(self) -> str:
        """Return what it logged since it started: warnings, errors."""
        return (self.log_dir.parent / OUTPUT).read_text(errors="replace")


@contextmanager
def broker_or_skip(directory: Path, properties: Mapping[str, str]) -> Iterator[Broker]:
    """Do as `running_broker`, but skip a test where Java or Maven is not there.

    With KIP33_REQUIRE_KAFKA the test fails instead.
    """
    with ExitStack() as started:
        try:
            broker = started.enter_context(running_broker(directory, properties))
        except OracleMissingError as missing:
            if os.environ.get("KIP33_REQUIRE_KAFKA"):
                raise
            pytest.skip(f"Kafka cannot be asked: {missing}")
        yield broker


@contextmanager
def running_broker(
    directory: Path, properties: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """Start a broker whose files lie in `directory`, yield it when it listens, stop it in the end.

    Where a broker ran before, it goes on with that one's files. `properties` go over those of its
    configuration. OracleMissingError where Java or Maven is not there, OracleError where the broker
    does not start.
    """
    JARS.build()
    port, controller_port = _free_ports(2)
    log_dir = directory / "logs"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": str(log_dir),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **(properties or {}),
    }
    configuration = directory / "server.properties"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    if not (log_dir / "meta.properties").exists():
        _run(STORAGE_TOOL, "format", "--standalone", "-t", CLUSTER_ID, "-c", str(configuration))
    log = directory / OUTPUT
    with log.open("wb") as output:
        process = subprocess.Popen(
            _java("kafka.Kafka", str(configuration)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
    try:
        _wait_until_listening(process, port, log)
        yield Broker(f"127.0.0.1:{port}", log_dir)
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _java(main_class: str, *args: str) -> list[str]:
    jars = sorted(jar for jar in JARS.jars.glob("*.jar") if not jar.name.startswith("slf4j-nop"))
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [*JVM, level, "-cp", ":".join(map(str, jars)), main_class, *args]


def _run(main_class: str, *args: str) -> str:
    tool = subprocess.run(
        _java(main_class, *args),
        capture_output=True,
        text=True,
        timeout=TOOL_ENDS_WITHIN_S,
        check=False,
    )
    if tool.returncode != 0:
        raise OracleError(f"{main_class} {' '.join(args)}: {tool.stdout}{tool.stderr[-2000:]}")
    return tool.stdout


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace")[-2000:]
                raise OracleError(f"the broker does not start: {said}") from error
        time.sleep(0.1)
