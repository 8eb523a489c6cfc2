"""kip33 on clusters whose machines do not have it: standalone, YARN, Spark Connect."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.spark import build_index
from tests.cli.console import subprocess_of
from tests.integration.clusters.conftest import PROJECT, index_files
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.spark import SparkCluster
from tests.integration.servers.yarn import container_outputs, submit_to_yarn
from tests.integration.stores.places import in_hdfs

pytestmark = pytest.mark.integration
JOB = PROJECT / "jobs" / "run_kip33.py"
NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def expected(
    spark: Any, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """Return what a build here, in one process, leaves."""
    folder = tmp_path_factory.mktemp("expected")
    build_index(spark, str(archive), str(folder), now_ms=NOW_MS)
    return index_files(folder)


def without_kip33() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_driver_and_executors_get_kip33_by_py_files(
    spark_cluster: SparkCluster,
    dist: Path,
    archive: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
) -> None:
    done = spark_cluster.submit(
        *(JOB, "build", archive, "--index-dir", tmp_path, "--summary", tmp_path / "summary.json"),
        options=(
            *("--py-files", dist / "kip33.zip"),
            *("--conf", f"spark.pyspark.driver.python={spark_cluster.python}"),
        ),
        env=without_kip33(),
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert index_files(tmp_path) == expected
    assert json.loads((tmp_path / "summary.json").read_text())["segments"] == 25


def test_without_it_the_job_says_in_one_line_what_is_missing(
    spark_cluster: SparkCluster, archive: Path, tmp_path: Path
) -> None:
    done = spark_cluster.submit(JOB, "build", archive, "--index-dir", tmp_path)
    assert done.returncode == 1
    said = (done.stdout + done.stderr).splitlines()  # spark-submit merges a job's streams
    [line] = [line for line in said if line.startswith("Error: ")]
    assert "executors do not have kip33" in line
    assert "--py-files dist/kip33.zip" in line
    assert not index_files(tmp_path)


def test_executors_run_a_packed_environment(
    spark_cluster: SparkCluster,
    dist: Path,
    archive: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
) -> None:
    done = spark_cluster.submit(
        *(JOB, "build", archive, "--index-dir", tmp_path),
        options=(
            *("--archives", f"{dist / 'kip33-env.tar.gz'}#environment"),
            *("--conf", "spark.pyspark.python=./environment/bin/python"),
        ),
        env=without_kip33(),
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert index_files(tmp_path) == expected


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[HdfsServer]:
    server = HdfsServer(tmp_path / "yarn", yarn=True)
    with or_skip("YARN"):
        server.start()
    yield server
    server.stop()


def test_yarn_runs_driver_and_executors(
    yarn: HdfsServer, dist: Path, archive: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = in_hdfs(tmp_path, yarn, "archive")
    place.put(archive, "logs")
    done = submit_to_yarn(
        yarn,
        *(JOB, "build"),
        *(f"{place.uri}/logs", "--index-dir", f"{place.uri}/indexes"),
        *("--summary", f"{place.uri}/summary.json"),
        options=("--py-files", dist / "kip33.zip"),
    )
    assert done.returncode == 0, done.stderr[-2000:] + container_outputs(yarn, "stderr")[-2000:]
    indexes = place.files("indexes").items()
    written = {path: data for path, data in indexes if path.endswith("index")}
    assert written == expected, (done.stdout + done.stderr)[-3000:]
    assert json.loads(place.files("")["summary.json"])["segments"] == 25


def night(folder: Path, archive: Path, *remote: str) -> dict[str, Any]:
    """Run a night in a process of its own; return what it wrote down."""
    folder.mkdir()
    script, result = Path(__file__).with_name("nights.py"), folder / "result.json"
    command = (sys.executable, script, archive, folder / "indexes", result, *remote)
    done = subprocess_of(*command, cwd=folder, PYSPARK_PYTHON=sys.executable)
    assert done.exit_code == 0, (done.stdout + done.stderr)[-3000:]
    record: dict[str, Any] = json.loads(result.read_text().replace(str(folder), "FOLDER"))
    return record


def test_spark_connect_gives_what_a_session_with_rdds_gives(archive: Path, tmp_path: Path) -> None:
    connect = night(tmp_path / "connect", archive, "local[2]")
    classic = night(tmp_path / "classic", archive)
    assert connect.pop("kind").startswith("pyspark.sql.connect")
    assert not classic.pop("kind").startswith("pyspark.sql.connect")
    assert connect == classic
    begun, ended = connect["progress"]
    assert (begun[0], ended[0]) == (0, begun[1])
    assert index_files(tmp_path / "connect") == index_files(tmp_path / "classic")
