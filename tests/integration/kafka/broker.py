"""A whole broker of Kafka 4.1, on loopback, with its own tools: started, asked, stopped.

    with running_broker(tmp_path) as broker:
        broker.run_steps(["create orders 2 1", "send p none orders 0 1700000000000 0 10 100 5"])
        broker.run(TOPIC_COMMAND, "--describe", *broker.server)

One KRaft process is broker and controller. Its jars come by Maven, as the oracle's do.
"""

import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.kafka.kafka_jars import JarFolder, OracleError, kafka_or_skip
from tests.integration.servers.processes import free_port

STORAGE_TOOL = "kafka.tools.StorageTool"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
DELETE_RECORDS_COMMAND = "org.apache.kafka.tools.DeleteRecordsCommand"
GET_OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"
GROUPS_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LOST_AND_FOUND, GROUP_MEMBER = "LostAndFound", "GroupMember"  # ours, in `oracle/broker`

JARS = JarFolder.of_broker()
OTHER_LOGGERS = ("slf4j-nop", "slf4j-reload4j")  # slf4j-simple says why a broker does not start
OUTPUT = "broker.out"
CLUSTER_ID = "kip33-broker-of-tests0"  # 16 bytes in base64
STARTS_WITHIN_S = 600
STOPS_WITHIN_S = 600
TOOL_ENDS_WITHIN_S = 900
# Kafka's own topics; in a cluster each would have three replicas.
OWN_TOPICS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
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
        return run_tool(main_class, *args)

    def run_steps(self, steps: Iterable[str]) -> None:
        """Have LostAndFound.java run these steps; OracleError, with its complaints, if it fails."""
        run_steps(self.bootstrap, self.log_dir.with_name("steps"), steps)

    def complaints(self) -> str:
        """Return what it logged since it started: warnings, errors."""
        return (self.log_dir.parent / OUTPUT).read_text(errors="replace")


@contextmanager
def broker_or_skip(directory: Path, properties: Mapping[str, str]) -> Iterator[Broker]:
    """Do as `running_broker`, but skip a test where Java or Maven is not there."""
    with ExitStack() as started:
        with kafka_or_skip():
            broker = started.enter_context(running_broker(directory, properties))
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
    port, controller_port = free_ports(2)
    log_dir = directory / "logs"
    settings = node_settings(1, port, f"127.0.0.1:{controller_port}", log_dir)
    settings |= {**OWN_TOPICS, **(properties or {})}
    configuration = write_configuration(directory, settings)
    if not (log_dir / "meta.properties").exists():
        run_tool(STORAGE_TOOL, "format", "--standalone", "-t", CLUSTER_ID, "-c", str(configuration))
    log = directory / OUTPUT
    process = start_node(configuration, log)
    try:
        wait_until_listening(process, port, log)
        yield Broker(f"127.0.0.1:{port}", log_dir)
    finally:
        stop_node(process)


def node_settings(node: int, port: int, controller: str, log_dir: Path) -> dict[str, str]:
    """Return what a broker needs; node 1 is the controller, too, and listens at that address."""
    listeners = [f"PLAINTEXT://127.0.0.1:{port}"]
    listeners += [f"CONTROLLER://{controller}"] if node == 1 else []
    return {
        "process.roles": "broker,controller" if node == 1 else "broker",
        "node.id": str(node),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": str(log_dir),
    }


def write_configuration(directory: Path, settings: Mapping[str, str]) -> Path:
    """Return the file, in a broker's directory, with its settings."""
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def start_node(
    configuration: Path, log: Path, *, jars: JarFolder = JARS, informed: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a broker; it runs beside its configuration and writes what it says to `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            java_command("kafka.Kafka", str(configuration), jars=jars, informed=informed),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=configuration.parent,
        )


def stop_node(process: subprocess.Popen[bytes]) -> None:
    """End a broker as an administrator does; kill it if that takes too long."""
    process.terminate()
    try:
        process.wait(timeout=STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def java_command(
    main_class: str, *args: str, jars: JarFolder = JARS, informed: Sequence[str] = ()
) -> list[str]:
    """Return the command of a program of Kafka's; loggers below `informed` say more."""
    found = sorted(jar for jar in jars.jars.glob("*.jar") if not jar.name.startswith(OTHER_LOGGERS))
    logger = "-Dorg.slf4j.simpleLogger"
    levels = [f"{logger}.defaultLogLevel=warn", *(f"{logger}.log.{name}=info" for name in informed)]
    return [*JVM, *levels, "-cp", ":".join(map(str, [jars.classes, *found])), main_class, *args]


def run_tool(main_class: str, *args: str, jars: JarFolder = JARS) -> str:
    """Return what a tool of Kafka's prints; OracleError, with its complaints, if it fails."""
    tool = subprocess.run(
        java_command(main_class, *args, jars=jars),
        capture_output=True,
        text=True,
        timeout=TOOL_ENDS_WITHIN_S,
        check=False,
    )
    if tool.returncode != 0:
        raise OracleError(f"{main_class} {' '.join(args)}: {tool.stdout}{tool.stderr[-2000:]}")
    return tool.stdout


def run_steps(bootstrap: str, file: Path, steps: Iterable[str], *, jars: JarFolder = JARS) -> str:
    """Have LostAndFound.java run these steps, written to a file; return what it prints."""
    file.write_text("".join(f"{step}\n" for step in steps))
    return run_tool(LOST_AND_FOUND, bootstrap, str(file), jars=jars)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that no program listens on."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


def wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when a broker listens; OracleError, with the end of its log, if it does not start."""
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
