"""A standalone Spark cluster on this machine: a master, and a worker on each of some hosts."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
NO_WEB_UI = ("--webui-port", "0")


@contextmanager
def standalone_cluster(
    logs: Path, *, hosts: tuple[str, ...] = ("127.0.0.1",), cores: int = 2
) -> Iterator[str]:
    """Run the cluster, `cores` on each host; yield the master's URL."""
    port = free_port()
    master = f"spark://{hosts[0]}:{port}"
    with ExitStack() as daemons:
        here = ("--host", hosts[0], "--port", str(port), *NO_WEB_UI)
        logs.mkdir()
        daemons.enter_context(daemon(f"{DEPLOY}.master.Master", *here, logs=logs))
        workers = []
        for host in hosts:
            (logs / host).mkdir()
            options = ("--host", host, *NO_WEB_UI, "--cores", str(cores), "--memory", "1g", master)
            worker = daemon(f"{DEPLOY}.worker.Worker", *options, logs=logs / host)
            workers.append(daemons.enter_context(worker))
        for log in workers:
            wait_for("Successfully registered with master", log)
        yield master


@contextmanager
def daemon(name: str, *arguments: str, logs: Path) -> Iterator[Path]:
    """Run one of Spark's daemons; yield the file it logs to."""
    log = logs / f"{name}.log"
    environment = os.environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_WORKER_DIR": str(logs)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", name, *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for(line: str, log: Path, *, seconds: float = 60) -> None:
    """Wait until a line is in a log."""
    deadline = time.monotonic() + seconds
    while line not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
