"""Records that the tasks of Spark write to a folder."""

from datetime import date
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import kip33
from kip33.errors import LocationError
from kip33.spark import write_records
from tests.builders.log_file import write_log
from tests.builders.record_questions import random_archive
from tests.builders.segment_builder import Record, v2_batch

pytestmark = pytest.mark.spark
T = 1_700_000_000_000


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


def test_spark_takes_topic_as_a_text_and_day_as_a_date(spark: SparkSession, tmp_path: Path) -> None:
    for topic in ("007", "42"):
        batches = [v2_batch(at, [Record(ms)]) for at, ms in enumerate((T, -1, T * 1000))]
        write_log(tmp_path / f"archive/{topic}-0", 0, *batches)
    kip33.build_index(tmp_path / "archive", tmp_path / "indexes")
    kip33.write_records(tmp_path / "indexes/_catalog", tmp_path / "to", workers=1)
    table = spark.read.parquet(str(tmp_path / "to")).select("topic", "day", "offset")
    days = (date(2023, 11, 14), None, None)
    expected = [(topic, day, at) for topic in ("007", "42") for at, day in enumerate(days)]
    assert sorted(map(tuple, table.collect()), key=lambda row: (row[0], row[2])) == expected
    assert table.filter("topic = '007' AND day = '2023-11-14'").count() == 1


def test_an_empty_folder_is_refused(spark: SparkSession) -> None:
    with pytest.raises(LocationError, match="the path is empty"):
        write_records(spark, "rows", "", now_ms=0)
