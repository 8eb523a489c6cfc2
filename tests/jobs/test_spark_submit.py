"""`spark-submit jobs/...`: the same options, bytes and output as the `kip33` command."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.jobs.console import PROJECT, VENV_BIN, Command, Finished, subprocess_of

pytestmark = pytest.mark.spark

SPARK_HOME = Path(pyspark.__file__).parent
QUIET = (
    "--driver-java-options",
    f"-Dlog4j2.configurationFile={(PROJECT / 'conf' / 'log4j2.properties').as_uri()}",
)
LOCAL = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
OUR_CODE = f'File "{PROJECT / "kip33"}'  # in a trace; PySpark's workers may leave one of their own
RUN_OF_ITS_OWN = ("snapshot", "catalog", "seconds")


def spark_submit(job: str, *arguments: str, cwd: Path, master: str = "local[2]") -> Finished:
    options = ("--master", master, *LOCAL, *QUIET)
    script = PROJECT / "jobs" / job
    return subprocess_of(VENV_BIN / "spark-submit", *options, script, *arguments, cwd=cwd)


def files_below(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*index"))
        if path.is_file()
    }


def test_the_jobs_do_what_the_command_does(spark_command: Command, tmp_path: Path) -> None:
    options = ("--offset-index", "--dialect", "live", "--format", "json", "--fail-on", "invalid")
    here = spark_command("build", "archive", "--index-dir", "by-command", *options)

    built = spark_submit(
        "build_index.py", "archive", "--index-dir", "by-spark-submit", *options, cwd=tmp_path
    )

    assert built.exit_code == here.exit_code == 3
    assert OUR_CODE not in built.stderr
    [summary], [expected] = built.lines, here.lines
    assert list(summary) == list(expected)
    assert [summary[key] for key in summary if key not in RUN_OF_ITS_OWN] == [
        expected[key] for key in expected if key not in RUN_OF_ITS_OWN
    ]
    assert summary["catalog"] == (tmp_path / "by-spark-submit" / "_catalog").as_uri()
    files = files_below(tmp_path / "by-spark-submit")
    assert len(files) == 24
    assert files == files_below(tmp_path / "by-command")

    options = ("--topics", "clicks", "--format", "jsonl", "--fail-on", "missing")
    here = spark_command("verify", "archive", "--index-dir", "by-spark-submit", *options)
    verified = spark_submit(
        "verify.py", "archive", "--index-dir", "by-spark-submit", *options, cwd=tmp_path
    )
    assert verified.exit_code == here.exit_code == 3
    assert verified.lines == here.lines
    assert len(verified.lines) == 4


def test_wrong_usage_is_told_before_spark_starts(tmp_path: Path) -> None:
    done = spark_submit("build_index.py", "nowhere", "--index-dir", "indexes", cwd=tmp_path)
    error = f"Error: {(tmp_path / 'nowhere').as_uri()}: SOURCE does not exist\n"
    assert (done.exit_code, done.stdout) == (2, error)  # spark-submit joins a job's two outputs
    assert OUR_CODE not in done.stderr
    assert not (tmp_path / "indexes").exists()


@pytest.mark.integration
def test_a_standalone_cluster_writes_the_same_bytes(command: Command, tmp_path: Path) -> None:
    options = ("archive", "--offset-index", "--format", "json")
    with standalone_cluster(tmp_path / "cluster") as master:
        on_cluster = spark_submit(
            "build_index.py", "--index-dir", "cluster-made", *options, cwd=tmp_path, master=master
        )
        verified = spark_submit(
            *("verify.py", "archive", "--index-dir", "cluster-made", "--format", "json"),
            cwd=tmp_path,
            master=master,
        )
    local = spark_submit("build_index.py", "--index-dir", "local", *options, cwd=tmp_path)
    assert (on_cluster.exit_code, local.exit_code) == (0, 0), on_cluster.stderr
    assert on_cluster.lines[0]["by_status"] == local.lines[0]["by_status"]
    assert files_below(tmp_path / "cluster-made") == files_below(tmp_path / "local")
    assert verified.lines[0]["by_verdict"] == {"identical": 12, "missing": 1}


@contextmanager
def standalone_cluster(logs: Path) -> Iterator[str]:
    """Run a master and one worker of two cores; yield the master's URL."""
    logs.mkdir()
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    web_ui = ("--webui-port", "0")
    here = ("--host", "127.0.0.1")
    worker_only = ("--cores", "2", "--memory", "1g", master)
    with (
        daemon(f"{deploy}.master.Master", *here, "--port", str(port), *web_ui, logs=logs),
        daemon(f"{deploy}.worker.Worker", *here, *web_ui, *worker_only, logs=logs) as worker,
    ):
        wait_for("Successfully registered with master", worker)
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
    deadline = time.monotonic() + seconds
    while line not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
