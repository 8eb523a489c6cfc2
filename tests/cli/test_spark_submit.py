"""`spark-submit jobs/...`: the same options, bytes and output as the `kip33` command."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.console import PROJECT, VENV_BIN, Command, Finished, subprocess_of
from tests.cli.test_engine_option import files_below, of_the_work

pytestmark = pytest.mark.spark

QUIET = (
    "--driver-java-options",
    f"-Dlog4j2.configurationFile={(PROJECT / 'conf' / 'log4j2.properties').as_uri()}",
)
LOCAL = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
OUR_CODE = f'File "{PROJECT / "kip33"}'  # in a trace; PySpark's workers may leave one of their own
BY_ITSELF = {"KIP33_ENGINE": "auto"}  # the fixture `command` has another one for itself


def spark_submit(*arguments: str, cwd: Path, master: str = "local[2]") -> Finished:
    options = ("--master", master, *LOCAL, *QUIET)
    script = PROJECT / "jobs" / "run_kip33.py"
    given = (VENV_BIN / "spark-submit", *options, script, *arguments)
    return subprocess_of(*given, cwd=cwd, **BY_ITSELF)


@pytest.mark.integration
def test_a_job_does_what_the_command_does(command: Command, tmp_path: Path) -> None:
    """The other jobs are run by `tests/integration/airflow/test_nightly.py`."""
    options = ("--offset-index", "--dialect", "live", "--format", "json", "--fail-on", "invalid")
    here = command("build", "archive", "--index-dir", "by-command", *options)

    built = spark_submit(
        "build", "archive", "--index-dir", "by-spark-submit", *options, cwd=tmp_path
    )

    assert built.exit_code == here.exit_code == 3
    assert OUR_CODE not in built.stderr
    *rows, example, because = built.stdout.splitlines()  # spark-submit joins a job's two outputs
    assert (example, because) == tuple(here.stderr.splitlines()[-2:])
    built = built._replace(stdout="\n".join(row for row in rows if row.startswith("{")))
    [summary], [expected] = built.lines, here.lines
    assert list(summary) == list(expected)
    assert of_the_work(built) == of_the_work(here)
    assert (summary["engine"], expected["engine"]) == ("spark", "local")
    assert summary["catalog"] == (tmp_path / "by-spark-submit" / "_catalog").as_uri()
    files = files_below(tmp_path / "by-spark-submit")
    assert len(files) == 25
    assert files == files_below(tmp_path / "by-command")

    written = spark_submit(
        "records", "by-command/_catalog", "--to", "tables", "--format", "json", cwd=tmp_path
    )
    added = json.loads(written.stdout.splitlines()[-1])  # with standard error before it
    assert (written.exit_code, added["engine"]) == (0, "spark")
    assert added["records"] == len(pq.read_table(tmp_path / "tables", columns=["offset"])) > 0


@pytest.mark.integration
def test_wrong_usage_is_told_before_spark_starts(tmp_path: Path) -> None:
    done = spark_submit("build", "nowhere", "--index-dir", "indexes", cwd=tmp_path)
    error = f"Error: {(tmp_path / 'nowhere').as_uri()}: SOURCE does not exist\n"
    assert (done.exit_code, done.stdout) == (2, error)  # spark-submit joins a job's two outputs
    assert OUR_CODE not in done.stderr
    assert not (tmp_path / "indexes").exists()
