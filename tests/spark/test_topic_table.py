"""jobs/topic_table.py: what is new in a catalog goes to a table; errors are of one line.

`tests/spark/test_table_formats.py` kills it, with Iceberg and with Delta.
"""

import runpy
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.faults.builds import build_here

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 has no Python sources"),
]
JOB = Path(__file__).parents[2] / "jobs" / "topic_table.py"
T = 1_700_000_000_000


def add(place: Path, *options: str) -> None:
    """Run the job in this process, in the session of the tests."""
    command: Any = runpy.run_path(str(JOB))["topic_table"]
    given = (str(place / "indexes/_catalog"), "--checkpoint", str(place / "checkpoint"), *options)
    command.main([*given], standalone_mode=False)


def write_night(place: Path, topic: str, first: int, end: int) -> None:
    batches = [v2_batch(at, [Record(T + at, None, b"%d" % at)]) for at in range(first, end)]
    write_log(place / f"archive/{topic}-0", first, *batches)
    build_here(place / "archive", place / "indexes", offset_index=True)


def test_each_run_adds_what_is_new(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table"
    to = ("--path", str(table), "--topic", "orders", "--option", "columns=topic, offset")
    write_night(tmp_path, "clicks", 0, 3)
    write_night(tmp_path, "orders", 0, 5)
    add(tmp_path, *to)
    write_night(tmp_path, "orders", 5, 7)
    add(tmp_path, *to)
    add(tmp_path, *to)

    printed = [line.split(" to ")[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == [f"{count} records added" for count in (5, 2, 0)]
    rows = sorted(map(tuple, spark.read.parquet(str(table)).collect()))
    assert rows == [("orders", offset) for offset in range(7)]


def test_an_error_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    write_night(tmp_path, "orders", 0, 5)
    table = ("--path", str(tmp_path / "table"))
    add(tmp_path, *table)
    (tmp_path / "archive/orders-0" / f"{0:020}.log").unlink()  # retention ran too early
    write_night(tmp_path, "orders", 7, 9)
    for options, message in (
        ((), "^expected either --table NAME or --path FOLDER"),
        ((*table, "--option", "columns"), "^--option columns: expected NAME=VALUE"),
        ((*table, "--option", "column=key"), "^kafka-segments: option 'column' found"),
        ((*table, "--format", "iceberg"), r"^\[DATA_SOURCE_NOT_FOUND\] .* source: iceberg"),
        (table, "^orders-0: of offsets 5 to 8 offsets 7 to 8 found, expected all: retention ran"),
    ):
        with pytest.raises(Exception, match=rf"{message}[^\n]*$") as raised:
            add(tmp_path, *options)
        assert type(raised.value).__name__ in ("UsageError", "TableError")
