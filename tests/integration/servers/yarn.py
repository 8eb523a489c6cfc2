"""Spark on a real YARN, whose containers have no kip33: `HdfsServer(folder, yarn=True)`.

    with HdfsServer(tmp_path, yarn=True) as server:
        job = submit_to_yarn(server, script)
        print(job.returncode, container_outputs(server))

`--deploy-mode cluster` runs a Python driver nowhere else.
"""

import os
import subprocess
from pathlib import Path

from tests.integration.servers.bare_python import write_bare_python
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.spark import SPARK_HOME

SMALL = ("--driver-memory", "512m", "--executor-memory", "512m", "--num-executors", "1")


def submit_to_yarn(
    server: HdfsServer,
    script: Path,
    *arguments: str | Path,
    options: tuple[str | Path, ...] = (),
    timeout: float = 600,
) -> "subprocess.CompletedProcess[str]":
    """Run `spark-submit --deploy-mode cluster` to its end; return what it printed.

    Its exit status is 0 or 1, whatever the driver's; what the driver prints is a container's.
    """
    python = server.folder / "python"
    write_bare_python(python)
    settings = {
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",  # else each job uploads 450 MB
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": str(python),
        "spark.executorEnv.PYSPARK_PYTHON": str(python),
    }
    confs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return subprocess.run(
        [
            *(SPARK_HOME / "bin" / "spark-submit", "--master", "yarn"),
            *("--deploy-mode", "cluster", *SMALL, *confs, *options),
            *(script, *arguments),
        ],
        env=os.environ | {"SPARK_HOME": str(SPARK_HOME), "HADOOP_CONF_DIR": str(server.conf_dir)},
        cwd=server.folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def container_outputs(server: HdfsServer, name: str = "stdout") -> str:
    """Return what all containers wrote so far to `stdout` or `stderr`, drivers' among it."""
    files = sorted(server.folder.glob(f"target/**/container_*/{name}"))
    return "".join(file.read_text(errors="replace") for file in files)
