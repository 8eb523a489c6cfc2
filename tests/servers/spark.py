"""A standalone Spark cluster on loopback whose machines have no kip33.

    with SparkCluster(tmp_path) as cluster:
        cluster.submit(script, "--py-files", wheel)

Master and workers run in folders of their own, with an environment of nothing but Java and a Python
that has kip33's dependencies and not kip33: what executors import must be shipped to them.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyspark

from tests.servers.bare_python import write_bare_python
from tests.servers.processes import ServerProcess, free_port, require_program

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
ELECTED = "New state: ALIVE"
REGISTERED = "Successfully registered with master"
STARTS_WITHIN_S = 90


class SparkCluster:
    """A master and `workers` workers, each with `cores` cores, their files in `folder`."""

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 2) -> None:
        self.port = free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.python = folder / "python"
        self._folder = folder
        self._workers = workers
        self._cores = cores
        self._processes: list[ServerProcess] = []

    @property
    def worker_environment(self) -> dict[str, str]:
        """Return all that masters and workers know of this machine's environment."""
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
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        try:
            self._daemon("master", f"{DEPLOY}.master.Master", *here, "--port", str(self.port))
            self._wait(self._processes[0], ELECTED)
            for number in range(self._workers):
                size = ("--cores", str(self._cores), "--memory", "1g")
                worker = f"{DEPLOY}.worker.Worker"
                self._daemon(f"worker-{number}", worker, *here, *size, self.master)
            for worker in self._processes[1:]:
                self._wait(worker, REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def kill_worker(self, number: int = 0) -> None:
        """End a worker and its executors as a crash of its machine does."""
        self._processes[1 + number].kill()

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

    def _daemon(self, name: str, main_class: str, *arguments: str) -> None:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        process = ServerProcess(
            [SPARK_HOME / "bin" / "spark-class", main_class, *arguments],
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
