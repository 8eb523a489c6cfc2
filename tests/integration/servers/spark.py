"""A standalone Spark cluster on loopback, by default of machines that have no kip33.

    with SparkCluster(tmp_path) as cluster:
        cluster.submit(script, "--py-files", wheel)

Master and workers run in folders of their own, with an environment of nothing but Java and a Python
that has kip33's dependencies and not kip33: what executors import must be shipped to them. Those of
`SparkCluster(folder, has_kip33=True)` run in the environment that the tests run in.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pyspark

from tests.integration.servers.bare_python import write_bare_python
from tests.integration.servers.processes import (
    ServerMissingError,
    ServerProcess,
    free_port,
    require_program,
)

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
ELECTED = "New state: ALIVE"
REGISTERED = "Successfully registered with master"
STARTS_WITHIN_S = 600
LOOPBACK = "127.0.0.1"


class SparkCluster:
    """A master, and a worker of `cores` cores on each of `hosts`; their files lie in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        hosts: Sequence[str] = (LOOPBACK,),
        cores: int = 2,
        has_kip33: bool = False,
        hidden: Sequence[Path] = (),
    ) -> None:
        """Take the places of the cluster; the last worker sees an empty directory at `hidden`."""
        self.port = free_port()
        self.master = f"spark://{LOOPBACK}:{self.port}"
        self.python = folder / "python"
        self._folder = folder
        self._hosts = hosts
        self._cores = cores
        self._has_kip33, self._hidden = has_kip33, hidden
        self._processes: list[ServerProcess] = []

    @property
    def worker_environment(self) -> dict[str, str]:
        """Return all that masters and workers know of this machine's environment."""
        if self._has_kip33:
            return os.environ | {"SPARK_HOME": str(SPARK_HOME)}
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        return kept | {
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self.python),
        }

    def start(self) -> Self:
        """Start it and return it once all workers have registered."""
        require_program("java")
        self._folder.mkdir(parents=True, exist_ok=True)
        write_bare_python(self.python)
        no_page = ("--webui-port", "0")
        here = ("--host", LOOPBACK, "--port", str(self.port), *no_page)
        try:
            self._daemon("master", f"{DEPLOY}.master.Master", *here)
            self._wait(self._processes[0], ELECTED)
            for number, host in enumerate(self._hosts):
                size = ("--cores", str(self._cores), "--memory", "1g")
                worker = f"{DEPLOY}.worker.Worker"
                options = ("--host", host, *no_page, *size)
                is_last = number == len(self._hosts) - 1
                hidden = self._hidden if is_last else ()
                self._daemon(f"worker-{number}", worker, *options, self.master, hidden=hidden)
            for worker in self._processes[1:]:
                self._wait(worker, REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End workers, their executors and the master."""
        for process in reversed(self._processes):
            process.kill()
        self._processes.clear()

    def submit(
        self,
        script: Path,
        *arguments: str | Path,
        options: tuple[str | Path, ...] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> "subprocess.CompletedProcess[str]":
        """Run `spark-submit` of the script in client mode to its end; return what it printed."""
        return subprocess.run(
            [
                *(SPARK_HOME / "bin" / "spark-submit", "--master", self.master),
                *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
                *("--conf", f"spark.pyspark.python={self.python}"),
                *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
                *options,
                *(script, *arguments),
            ],
            env={"SPARK_HOME": str(SPARK_HOME), **(os.environ if env is None else env)},
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def logged(self) -> str:
        """Return what master and workers logged, one after another."""
        return "".join(process.logged() for process in self._processes)

    def _daemon(
        self, name: str, main_class: str, *arguments: str, hidden: Sequence[Path] = ()
    ) -> None:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        process = ServerProcess(
            [*_hiding(hidden), SPARK_HOME / "bin" / "spark-class", main_class, *arguments],
            log=folder / "daemon.log",
            env=self.worker_environment | {"SPARK_WORKER_DIR": str(folder)},
            cwd=folder,
        )
        self._processes.append(process)

    @staticmethod
    def _wait(process: ServerProcess, line: str) -> None:
        process.wait_until(lambda: line in process.logged(), seconds=STARTS_WITHIN_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _hiding(places: Sequence[Path]) -> list[str]:
    """Return the start of a command that sees an empty directory at each of these places."""
    if not places:
        return []
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        raise ServerMissingError("this user may not make a mount namespace (unshare --mount)")
    mounts = " && ".join(f"mount -t tmpfs hidden {shlex.quote(str(place))}" for place in places)
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
