"""jobs/topic_table.py with Iceberg and with Delta, killed in two nights: each record is there once.

Each runs with the PySpark that it is made for, put before the one of the tests.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import PROJECT
from tests.conftest import QUICK_JVM
from tests.faults.builds import build_here
from tests.faults.processes import wait_until
from tests.integration.servers import maven
from tests.integration.servers.environments import pyspark_folder
from tests.integration.servers.fixtures import or_skip

pytestmark = pytest.mark.integration
JOB = PROJECT / "jobs" / "topic_table.py"
LOG4J2 = (PROJECT / "conf" / "log4j2.properties").as_uri()
T = 1_700_000_000_000
SHARES = 4  # files of a batch: a kill after the first comes before the last
SHARE_OFFSETS = 50
NIGHT = SHARES * SHARE_OFFSETS
# Spark waits ten seconds for the Python that plans a stream; on a busy machine that is too short.
# A job that ends so is started again, as whoever runs it each night would do.
SPARK_DID_NOT_WAIT = "Python worker failed to connect back"
STARTS = 5
RUN_TWICE = """
import json, pathlib, runpy, sys
from kip33.spark import create_session
session = create_session()
sys.argv.pop(0)
for run in range(2):
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
    if run == 0:  # what Spark notes after a batch is lost: it repeats one that the table has
        newest = max(pathlib.Path("checkpoint/commits").glob("[0-9]*"))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink()
by_name, name = sys.argv[2:4]
rows = session.table(name) if by_name == "--table" else session.read.format("delta").load(name)
print(json.dumps([row.offset for row in rows.select("offset").collect()]))
"""


class TableFormat(NamedTuple):
    """A library of tables, the PySpark that it is made for, and what it needs to be given."""

    name: str
    pyspark: str
    table: tuple[str, str]
    conf: tuple[str, ...]


ICEBERG = TableFormat(
    "iceberg",
    "4.1.4",
    ("--table", "lake.kafka.orders"),
    (
        "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type=hadoop",
        "spark.sql.catalog.lake.warehouse=warehouse",
    ),
)
DELTA = TableFormat(
    "delta",
    "4.2.1",
    ("--path", "warehouse"),
    (
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions=1",
    ),
)


class Lake:
    """A folder with an archive that grows, and the table of its topic."""

    def __init__(self, folder: Path, kind: TableFormat) -> None:
        self._folder, self._kind = folder, kind
        self._log = folder / "log"
        with or_skip(f"{kind.name} with PySpark {kind.pyspark}"):
            self._pyspark = pyspark_folder(kind.pyspark)
            jars = maven.resolved_jars(Path(maven.__file__).parent / kind.name, kind.name)
        self._jars = ",".join(map(str, sorted(jars.glob("*.jar"))))

    def grow(self, first: int) -> None:
        """Write the records of a night, and build."""
        records = range(first, first + NIGHT)
        batches = [v2_batch(at, [Record(T + at, None, b"%d" % at)]) for at in records]
        write_log(self._folder / "archive/orders-0", first, *batches)
        build_here(self._folder / "archive", self._folder / "indexes", offset_index=True)

    def run_and_kill(self, batch: int) -> None:
        """Run the job; when the first task of a batch has written its file, kill it."""
        checkpoint = self._folder / "checkpoint"
        job = self._started()

        def runs_until(happened: object) -> bool:
            nonlocal job
            if job.poll() is not None:
                printed = self._log.read_text()
                assert SPARK_DID_NOT_WAIT in printed, printed[-2000:]
                job = self._started()
            return bool(happened)

        wait_until("a plan", lambda: runs_until((checkpoint / f"offsets/{batch}").exists()))
        before = self._files()
        wait_until("a file", lambda: runs_until(self._files() - before))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        assert len(self._files() - before) < SHARES
        assert not (checkpoint / f"commits/{batch}").exists()

    def run(self) -> list[int]:
        """Run the job to its end, and again without its last commit; return the table's offsets."""
        script = self._folder / "run_twice.py"
        script.write_text(RUN_TWICE)
        for _ in range(STARTS):
            done = subprocess.run(
                self._spark_submit(script, JOB), capture_output=True, text=True, **self._place()
            )
            if SPARK_DID_NOT_WAIT not in done.stdout + done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return sorted(json.loads(done.stdout.splitlines()[-1]))

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._spark_submit(JOB),
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._place(),
            )

    def _files(self) -> set[Path]:
        return set((self._folder / "warehouse").rglob("*.parquet"))

    def _place(self) -> dict[str, Any]:
        packages = {"PYTHONPATH": f"{self._pyspark}:{PROJECT}", "PYSPARK_PYTHON": sys.executable}
        home = {"SPARK_HOME": str(self._pyspark / "pyspark")}
        return {"cwd": self._folder, "env": os.environ | packages | home}

    def _spark_submit(self, *script: Path) -> list[str]:
        java = f"-Dlog4j2.configurationFile={LOG4J2} {QUICK_JVM}"
        conf = (*self._kind.conf, "spark.ui.enabled=false", "spark.driver.host=127.0.0.1")
        return [
            *(str(self._pyspark / "pyspark/bin/spark-submit"), "--master", "local[1]"),
            *("--jars", self._jars, "--driver-java-options", java),
            *(word for pair in conf for word in ("--conf", pair)),
            *map(str, script),
            *("indexes/_catalog", *self._kind.table, "--format", self._kind.name),
            *("--checkpoint", "checkpoint", "--topic", "orders"),
            *("--option", f"maxRecordsPerPartition={SHARE_OFFSETS}"),
        ]


@pytest.mark.parametrize("kind", [ICEBERG, DELTA], ids=lambda kind: kind.name)
def test_a_table_that_was_killed_in_two_nights_has_each_record_once(
    kind: TableFormat, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, kind)
    for night in range(2):
        lake.grow(night * NIGHT)
        lake.run_and_kill(batch=night)
        assert lake.run() == [*range((night + 1) * NIGHT)]
