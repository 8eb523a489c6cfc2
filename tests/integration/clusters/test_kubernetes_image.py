"""The image for Spark on Kubernetes: its steps and its entry point, without Docker."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.clusters.conftest import PROJECT, index_files
from tests.integration.servers.processes import ServerProcess, free_port
from tests.integration.servers.spark import SparkCluster

pytestmark = pytest.mark.integration
DOCKER = PROJECT / "conf" / "docker"
HOME = "/opt/kip33"  # in the image
STARTS_WITHIN_S = 300


class Image:
    """What the Dockerfile's steps leave, below another folder."""

    def __init__(self, root: Path) -> None:
        self.home = root / "kip33"
        self.entrypoint = DOCKER / "entrypoint.sh"
        self._settings = dict(re.findall(r"^ENV (\w+)=(.*)$", dockerfile(), re.M))

    def environment(self, **more: str) -> dict[str, str]:
        """Return what a container's process gets: the image's variables and the pod's."""
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        found = java | {"HOME": str(self.home.parent), "LANG": "C.UTF-8"} | more
        for name, value in self._settings.items():
            here = value.replace(HOME, str(self.home)).replace("$PATH", os.environ["PATH"])
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            found[name] = here.replace("python3.11", f"python{version}")
        return found


def dockerfile() -> str:
    return (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


@pytest.fixture(scope="module")
def image(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Return the image after the step that needs no root: the installation of kip33."""
    root = tmp_path_factory.mktemp("image")
    [wheel] = dist.glob(f"kip33-*_{os.uname().machine}.whl")
    shutil.copy(wheel, root)
    [step] = [step for step in re.findall(r"^RUN (.*)$", dockerfile(), re.M) if "-m venv" in step]
    here = step.replace("/tmp/kip33-", f"{root}/kip33-").replace(HOME, str(root / "kip33"))
    subprocess.run(["bash", "-euc", here], check=True, capture_output=True)
    return Image(root)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Return a cluster without workers: executors come from the entry point."""
    cluster = SparkCluster(tmp_path_factory.mktemp("master"), hosts=()).start()
    yield cluster
    cluster.stop()


def test_a_driver_of_the_image_runs_a_job(image: Image, archive: Path, tmp_path: Path) -> None:
    job = image.home / "jobs" / "run_kip33.py"
    done = subprocess.run(
        [
            *(image.entrypoint, "driver"),
            *("--properties-file", image.home / "conf" / "spark-defaults.conf"),
            *("--master", "local[2]", job, "build", archive, "--index-dir", tmp_path / "indexes"),
            *("--summary", tmp_path / "summary.json"),
        ],
        env=image.environment(SPARK_DRIVER_BIND_ADDRESS="127.0.0.1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert json.loads((tmp_path / "summary.json").read_text())["engine"] == "spark"
    assert index_files(tmp_path / "indexes")


def test_an_executor_of_the_image_does_the_work_of_a_driver(
    image: Image, master: SparkCluster, archive: Path, tmp_path: Path
) -> None:
    port = free_port()
    variables = image.environment(
        SPARK_DRIVER_URL=f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        SPARK_EXECUTOR_ID="1",
        SPARK_EXECUTOR_CORES="2",
        SPARK_EXECUTOR_MEMORY="1g",
        SPARK_APPLICATION_ID="app-of-this-test",
        SPARK_EXECUTOR_POD_IP="127.0.0.1",
        SPARK_EXECUTOR_POD_NAME="pod-1",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_JAVA_OPT_0="-Dkip33.of=this test",
        SPARK_JAVA_OPT_1="-Djava.io.tmpdir=" + str(tmp_path),
    )
    driver = ServerProcess(
        [
            *(image.home / "environment/bin/spark-submit", "--master", master.master),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", f"spark.driver.port={port}"),
            *("--conf", f"spark.pyspark.python={variables['PYSPARK_PYTHON']}"),
            *(image.home / "jobs" / "run_kip33.py", "build", archive),
            *("--index-dir", tmp_path / "indexes", "--summary", tmp_path / "summary.json"),
        ],
        log=tmp_path / "driver.log",
        env=variables,
        cwd=tmp_path,
    )
    try:
        driver.wait_until(lambda: _listens(port), seconds=STARTS_WITHIN_S)
        executor = ServerProcess(
            [image.entrypoint, "executor"], log=tmp_path / "executor.log", env=variables
        )
        try:
            driver.wait_until((tmp_path / "summary.json").exists, seconds=STARTS_WITHIN_S)
        finally:
            executor.kill()
    finally:
        driver.kill()
    assert json.loads((tmp_path / "summary.json").read_text())["segments"] == 25
    assert "KubernetesExecutorBackend" in executor.logged()
    assert index_files(tmp_path / "indexes")


def _listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
