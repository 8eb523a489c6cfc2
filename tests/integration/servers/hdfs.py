"""A real HDFS on loopback: NameNodes and DataNodes of Hadoop 3.5 in one JVM.

    with HdfsServer(tmp_path) as server:
        client = hdfs_native.Client(server.uri, server.client_options)

`HADOOP_CONF_DIR=server.conf_dir` is what Spark and other clients need. The jars come by Maven once,
as Kafka's do for the oracle.
"""

import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

from tests.integration.servers.maven import resolved_jars
from tests.integration.servers.processes import ServerError, free_port, require_program, started

PROJECT = Path(__file__).with_name("hdfs")
HADOOP_VERSION = "3.5.0"
NAMESERVICE = "ha"
STARTS_WITHIN_S = 900
ANSWERS_WITHIN_S = 600
# Short lives: the first compiler only, one collector thread, little memory.
JVM = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Room for a driver and two executors; limits of memory and disk belong to the machine, not to YARN:
# it looks at its disks once even without the checker, and above 90 % runs no container.
YARN = {
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH",
    "yarn.nodemanager.delete.debug-delay-sec": "600",  # keeps the containers' logs for the tests
}
PROVIDER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"


def hadoop_jars() -> Path:
    """Return the folder of Hadoop's jars; the first call has Maven fill it.

    ServerMissingError where Java, Maven or a repository that answers is not there.
    """
    require_program("java")
    return resolved_jars(PROJECT, f"hadoop-{HADOOP_VERSION}")


class HdfsServer:
    """HDFS, its files in `folder`; with `ha` two NameNodes, with `yarn` YARN beside it.

    Ports of the NameNodes and the data live as long as this object: after `stop()` or `kill()`,
    `start()` goes on with them. `properties` go over those of hdfs-site.xml; `hadoop.*` among them
    into core-site.xml, too, where all of Hadoop looks. `java_options` are its JVM's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        datanodes: int = 1,
        ha: bool = False,
        yarn: bool = False,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.conf_dir = folder / "conf"
        self.ports = [free_port() for _ in range(2 if ha else 1)]
        self.uri = f"hdfs://{NAMESERVICE}" if ha else f"hdfs://127.0.0.1:{self.ports[0]}"
        self.folder = folder
        self._datanodes = datanodes
        self._yarn = yarn
        self._properties = dict(properties or {})
        self._java_options = java_options
        self._log = folder / "hdfs.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def client_options(self) -> dict[str, str]:
        """Return what a client must know besides the address, by Hadoop's names."""
        options = {"fs.defaultFS": self.uri, "dfs.replication": str(self._datanodes)}
        if len(self.ports) > 1:
            nodes = {f"nn{i}": port for i, port in enumerate(self.ports, start=1)}
            options["dfs.nameservices"] = NAMESERVICE
            options[f"dfs.ha.namenodes.{NAMESERVICE}"] = ",".join(nodes)
            options[f"dfs.client.failover.proxy.provider.{NAMESERVICE}"] = PROVIDER
            for name, port in nodes.items():
                options[f"dfs.namenode.rpc-address.{NAMESERVICE}.{name}"] = f"127.0.0.1:{port}"
        return options | self._properties

    def start(self) -> Self:
        """Start it and return it once DataNodes have reported and files can be written."""
        jars = hadoop_jars()
        self._write_conf()
        ports = ",".join(map(str, self.ports))
        command = [
            *(*JVM, *self._java_options),
            f"-Dlog4j.configuration=file:{PROJECT / 'log4j.properties'}",
            *("-cp", f"{self.conf_dir}:{jars}/*", str(PROJECT / "Cluster.java")),
            *(str(self.folder), str(self.conf_dir), str(self._datanodes), ports),
            *(["yarn"] if self._yarn else []),
        ]
        self._process = started(command, self._log, self.folder)
        self._expect("ready", seconds=STARTS_WITHIN_S)
        return self

    def stop(self) -> None:
        """End it; the data stays."""
        if self._process is not None and self._process.poll() is None:
            self._send("stop")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=ANSWERS_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """End it as a crash of the whole machine does."""
        if self._process is None:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._yarn:  # only it can end its containers
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=ANSWERS_WITHIN_S)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process = None

    def stop_datanode(self) -> None:
        """Stop one DataNode; with the last one no byte can be read or written."""
        self._order("stop datanode")

    def start_datanode(self) -> None:
        """Start the DataNode that was stopped last, and wait until it has reported."""
        self._order("start datanode")

    def failover(self) -> None:
        """Make the active NameNode standby and the standby one active."""
        self._order("failover")

    def logged(self) -> str:
        """Return the log of all its starts."""
        return self._log.read_text(errors="replace")

    def _order(self, command: str) -> None:
        self._send(command)
        self._expect("done", seconds=ANSWERS_WITHIN_S)

    def _send(self, command: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def _expect(self, answer: str, *, seconds: float) -> None:
        assert self._process is not None and self._process.stdout is not None
        said = "nothing"
        if select.select([self._process.stdout], [], [], seconds)[0]:
            said = self._process.stdout.readline().strip()
        if said != answer:
            self.kill()
            raise ServerError(f"HDFS says {said!r}, not {answer!r}: {self.logged()[-2000:]}")

    def _write_conf(self) -> None:
        self.conf_dir.mkdir(parents=True, exist_ok=True)
        core = {"fs.defaultFS": self.uri, "hadoop.tmp.dir": str(self.folder / "tmp")}
        core |= {key: value for key, value in self._properties.items() if key.startswith("hadoop.")}
        _write_site(self.conf_dir / "core-site.xml", core)
        _write_site(self.conf_dir / "hdfs-site.xml", self.client_options)
        if self._yarn:
            _write_site(self.conf_dir / "yarn-site.xml", YARN)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _write_site(path: Path, properties: Mapping[str, str]) -> None:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in properties.items()
    ]
    path.write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")
