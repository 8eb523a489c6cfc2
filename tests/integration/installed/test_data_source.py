"""Spark finds the data source of an installed wheel: classic, Connect and pipelines."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import kip33
from kip33.demo import make_archive
from tests.conftest import QUICK_JVM
from tests.integration.servers.fixtures import s3_server
from tests.integration.servers.processes import ServerProcess, free_port
from tests.integration.servers.s3 import S3Server
from tests.integration.servers.spark import SPARK_HOME

__all__ = ["s3_server"]
pytestmark = pytest.mark.integration
HERE = Path(__file__).parent
SESSIONS = HERE / "connect_sessions.py"
ORDERS = 8500
COUNT = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
print(spark.read.format("kafka-segments").option("topic", "orders").load(sys.argv[1]).count())
options = f"path '{sys.argv[1]}', on_error 'skip'"
spark.sql(f"CREATE TEMPORARY VIEW all USING `kafka-segments` OPTIONS ({options})")
print(spark.table("all").where("topic = 'orders'").count())
"""
PIPELINE = """\
name: history
storage: file://{folder}/storage
libraries: [{{glob: {{include: tables/**}}}}]
configuration: {{spark.sql.shuffle.partitions: "1"}}
"""
TABLE = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.materialized_view
def orders():
    reader = SparkSession.active().read.format("kafka-segments").option("topic", "orders")
    return reader.option("columns", "partition, offset, value").load("{archive}")
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    make_archive(folder)
    return folder


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return that of programs that have the wheel instead of this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, wheel)
    subprocess.run(pip, check=True)
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    spark = {"SPARK_HOME": str(SPARK_HOME), "JDK_JAVA_OPTIONS": QUICK_JVM}
    return os.environ | python | spark | {"PYTHONPATH": str(folder)}


class ConnectServer(NamedTuple):
    """A server that runs by itself."""

    url: str
    logged: Callable[[], str]


@pytest.fixture(scope="module")
def connect_server(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectServer]:
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    server = ServerProcess(
        [
            *(SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--conf", f"spark.connect.grpc.binding.port={port}"),
            *("--conf", "spark.ui.enabled=false", "spark-internal"),
        ],
        log=folder / "log",
        env=environment | {"AWS_EC2_METADATA_DISABLED": "true"},  # asked last for keys
        cwd=folder,
    )
    server.wait_until(lambda: "Spark Connect server started" in server.logged(), seconds=600)
    yield ConnectServer(f"sc://127.0.0.1:{port}", server.logged)
    server.kill()


def run(
    *command: str | Path, env: dict[str, str], cwd: Path, server: ConnectServer | None = None
) -> str:
    done = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=900, check=False
    )
    logged = server.logged()[-2000:] if server else ""
    assert done.returncode == 0, "\n".join((done.stdout[-2000:], done.stderr[-4000:], logged))
    return done.stdout


def test_a_classic_session_finds_it(
    environment: dict[str, str], archive: Path, tmp_path: Path
) -> None:
    found = run(sys.executable, "-c", COUNT, archive, env=environment, cwd=tmp_path)
    assert found.split() == [str(ORDERS)] * 2


def test_sessions_of_a_connect_server(
    environment: dict[str, str],
    connect_server: ConnectServer,
    archive: Path,
    s3_server: S3Server,
    tmp_path: Path,
) -> None:
    s3_server.make_bucket("connect")
    shutil.copytree(archive, s3_server.root / "connect" / "archive")
    keys = {
        "fs.s3a.endpoint": f"http://{s3_server.endpoint}",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": s3_server.access_key,
        "fs.s3a.secret.key": s3_server.secret_key,
    }
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    kip33.build_index(archive, tmp_path / "indexes", offset_index=True)
    catalog = tmp_path / "indexes/_catalog"
    places = (archive, catalog, "s3://connect/archive", tmp_path / "keys.json")
    sessions = (sys.executable, SESSIONS, connect_server.url)
    printed = run(*sessions, *places, env=environment, cwd=tmp_path, server=connect_server)
    result = json.loads(printed)
    assert result["found"] == [ORDERS, ORDERS, 5, ORDERS, ORDERS]
    assert "with Spark Connect, give keys as storage_options" in result["refused"]
    assert not result["has_secret"]


def test_a_pipeline_makes_a_table_of_a_topic(
    environment: dict[str, str], connect_server: ConnectServer, archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(PIPELINE.format(folder=tmp_path))
    (tmp_path / "tables" / "orders.py").write_text(TABLE.format(archive=archive))
    pipelines = (SPARK_HOME / "bin" / "spark-pipelines", "run", "--remote", connect_server.url)
    run(*pipelines, env=environment, cwd=tmp_path, server=connect_server)
    code = f"""
from pyspark.sql import SparkSession

with SparkSession.builder.remote('{connect_server.url}').getOrCreate() as spark:
    print(spark.table('orders').count())
"""
    assert run(sys.executable, "-c", code, env=environment, cwd=tmp_path).split() == [str(ORDERS)]
