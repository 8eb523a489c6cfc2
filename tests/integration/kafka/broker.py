"""The process of a broker, and Kafka's own tools: started, run, stopped. `nodes.py` uses them."""

import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.integration.kafka.kafka_jars import JarFolder, OracleError, version_of
from tests.integration.servers.processes import free_port

STORAGE_TOOL = "kafka.tools.StorageTool"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"  # `java_command` knows its older name
DELETE_RECORDS_COMMAND = "org.apache.kafka.tools.DeleteRecordsCommand"
GET_OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"
GROUPS_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LOST_AND_FOUND, GROUP_MEMBER = "LostAndFound", "GroupMember"  # ours, in `oracle/broker`

JARS = JarFolder.of_broker()
OTHER_LOGGERS = ("slf4j-nop", "slf4j-reload4j")  # slf4j-simple says why a broker does not start
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
    if main_class == CONFIG_COMMAND and version_of(jars.version) < (4, 4):
        main_class = "kafka.admin.ConfigCommand"
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
                said = log.read_text(errors="replace")[-6000:]
                raise OracleError(f"the broker does not start: {said}") from error
        time.sleep(0.1)
