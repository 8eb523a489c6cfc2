"""Records that the tasks of Spark write to a folder."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import kip33
from kip33.errors import LocationError
from kip33.spark import write_records
from tests.builders.record_questions import random_archive

pytestmark = pytest.mark.spark


@pytest.mark.filterwarnings("ignore:.*(are missing before it|records are not read)")
def test_tasks_write_what_one_process_writes_and_spark_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, catalog = random_archive(Random(3), tmp_path / "logs", disorder_ms=500)
    names = ["topic", "partition", "offset", "value"]

    by_tasks = write_records(spark, catalog, tmp_path / "tasks", now_ms=0, parallelism=4)
    here = kip33.write_records(catalog, tmp_path / "here", workers=1)
    again = write_records(spark, catalog, tmp_path / "tasks", now_ms=0)

    tasks, one = (
        sorted(map(tuple, spark.read.parquet(str(tmp_path / name)).select(names).collect()))
        for name in ("tasks", "here")
    )
    assert tasks == one
    assert (by_tasks.records, by_tasks.damaged) == (here.records, here.damaged)
    assert (again.records, again.commit) == (0, None)


def test_an_empty_folder_is_refused(spark: SparkSession) -> None:
    with pytest.raises(LocationError, match="the path is empty"):
        write_records(spark, "rows", "", now_ms=0)
