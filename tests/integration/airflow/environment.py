"""A real Airflow in an environment of its own: made once, kept in the user's cache folder."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.console import PROJECT, VENV_BIN
from tests.integration.servers.environments import locked_python

LOCK = Path(__file__).with_name("requirements.lock")
IN_AIRFLOW = Path(__file__).with_name("in_airflow.py")
NAME = "airflow-3.3.2"
NOT_INHERITED = ("AIRFLOW", "PYSPARK", "PYTHON", "SPARK")
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # a job lives for seconds
SMALL_SPARK = """
spark.driver.host                  127.0.0.1
spark.sql.shuffle.partitions       2
spark.ui.enabled                   false
"""
# Where Spark is not to run, this is first in PATH as spark-submit and keeps what it was given.
RECORDER = """\
#!/bin/sh
exec {python} -c 'import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], "w"))' {record} "$@"
"""


def airflow_python() -> Path:
    """Return the Python that has Airflow; ServerMissingError where it cannot be installed."""
    return locked_python(NAME, LOCK)


class Airflow(NamedTuple):
    """An Airflow with a database, folders of DAGs and results, and a spark-submit."""

    python: Path
    home: Path

    @property
    def dags(self) -> Path:
        """Return the folder that DAGs are taken from."""
        return self.home / "dags"

    @property
    def record(self) -> Path:
        """Return where the recorder in place of spark-submit leaves its words."""
        return self.home / "record.json"

    def prepare(self) -> None:
        """Make the database and the folders, Spark's settings beside them."""
        self.dags.mkdir()
        conf = self.home / "conf"
        shutil.copytree(PROJECT / "conf", conf)
        with (conf / "spark-defaults.conf").open("a") as settings:
            settings.write(SMALL_SPARK)
        self.command("db", "migrate")

    def command(self, *arguments: str) -> None:
        """Run one of Airflow's own commands to its end."""
        self._run("-m", "airflow", *arguments, environment={})

    def ask(
        self,
        *question: str,
        variable: Mapping[str, str],
        spark_submit: bool = True,
        lineage: Path | None = None,
        connection: str | None = '{"conn_type": "spark", "host": "local[2]"}',
    ) -> dict[str, Any]:
        """Return what `in_airflow.py` answers; the Variable kip33 says where things are.

        Without `spark_submit` a recorder stands in for it. With `lineage` the provider of
        OpenLineage appends its events to this file, one a line. `connection` is spark_default.
        """
        answer = self.home / "answer.json"
        answer.unlink(missing_ok=True)
        programs = VENV_BIN if spark_submit else self._recorder()
        environment = {
            "PATH": f"{programs}:{VENV_BIN}:{os.environ['PATH']}",
            "AIRFLOW_VAR_KIP33": json.dumps(variable),
        }
        if connection:
            environment["AIRFLOW_CONN_SPARK_DEFAULT"] = connection
        if lineage:
            transport = {"type": "file", "log_file_path": str(lineage), "append": True}
            environment["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
            environment["AIRFLOW__OPENLINEAGE__DISABLED"] = "False"
        log = self._run(str(IN_AIRFLOW), str(answer), *question, environment=environment)
        assert answer.is_file(), log
        found: dict[str, Any] = json.loads(answer.read_text())
        return found | {"log": log}

    def _recorder(self) -> Path:
        folder = self.home / "recorder"
        folder.mkdir(exist_ok=True)
        script = folder / "spark-submit"
        script.write_text(RECORDER.format(python=sys.executable, record=self.record))
        script.chmod(0o755)
        return folder

    def _run(self, *arguments: str, environment: Mapping[str, str]) -> str:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)
        }
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.home,
            env=inherited
            | {
                "AIRFLOW_HOME": str(self.home),
                "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
                "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__OPENLINEAGE__DISABLED": "True",
                "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
                "JDK_JAVA_OPTIONS": QUICK_JVM,
                "SPARK_CONF_DIR": str(self.home / "conf"),
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, done.stdout[-4_000:]
        return done.stdout
