"""A standalone cluster of two hosts on this machine.

Spark starts a speculative copy on another host only, and all of `local-cluster` is one host.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.jobs.test_spark_submit import daemon, free_port, wait_for

HOSTS = ("127.0.0.1", "127.0.0.2")
DEPLOY = "org.apache.spark.deploy"
NO_WEB_UI = ("--webui-port", "0")


@contextmanager
def two_hosts(logs: Path) -> Iterator[str]:
    """Run a master and a worker of one core on each host; yield the master's URL."""
    port = free_port()
    master = f"spark://{HOSTS[0]}:{port}"
    with ExitStack() as daemons:
        here = ("--host", HOSTS[0], "--port", str(port), *NO_WEB_UI)
        logs.mkdir()
        daemons.enter_context(daemon(f"{DEPLOY}.master.Master", *here, logs=logs))
        workers = []
        for host in HOSTS:
            (logs / host).mkdir()
            options = ("--host", host, *NO_WEB_UI, "--cores", "1", "--memory", "1g", master)
            worker = daemon(f"{DEPLOY}.worker.Worker", *options, logs=logs / host)
            workers.append(daemons.enter_context(worker))
        for log in workers:
            wait_for("Successfully registered with master", log)
        yield master
