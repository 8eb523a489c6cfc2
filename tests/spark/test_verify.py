"""The verify job: the verdicts of one segment at a time, over a tree."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import kip33
from kip33 import list_segments, verify_segment
from kip33.demo import make_archive
from kip33.indexing.verification import SEGMENT_VERDICTS, SegmentVerdict
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.spark.build import verify_index
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import use_session
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import KIP33, subprocess_of
from tests.faults.builds import build_here

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "archive"
    make_archive(root)
    return root


@pytest.fixture(scope="module")
def built(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    index_dir = tmp_path_factory.mktemp("indexes")
    build_here(archive, index_dir, now_ms=NOW_MS, offset_index=True)
    return index_dir


def verdicts_of(spark: Any, source: str, index_dir: str | None = None) -> list[SegmentVerdict]:
    use_session(spark)
    return [*execute_verify(plan_verify(source, index_dir), SparkEngine(lambda: spark))]


def test_verdicts_are_rows_of_a_data_frame(spark: Any, archive: Path, built: Path) -> None:
    rows = verify_index(spark, str(archive), str(built), topics=["!metrics"])
    assert rows.schema == from_arrow_schema(SEGMENT_VERDICTS)
    verdicts = verdicts_of(spark, str(archive), str(built))
    expected = [one.as_row() for one in verdicts if "metrics" not in one.log_uri]
    assert [row.asDict() for row in rows.collect()] == expected
    sparser = verify_index(spark, str(archive), str(built), index_interval_bytes=1)
    assert sparser.where("verdict = 'identical'").count() < len(verdicts)


def test_a_share_is_that_of_a_day(spark: Any, archive: Path) -> None:
    how = {"share": "2/3", "as_of": "2024-05-01"}
    rows = verify_index(spark, str(archive), **how).collect()
    assert [row.asDict() for row in rows] == kip33.verify_index(archive, **how).to_pylist()
    with pytest.raises(ValueError, match="share requires as_of"):
        verify_index(spark, str(archive), share="2/3")


def test_a_tree_gets_the_verdicts_of_its_segments(spark: Any, archive: Path) -> None:
    one_by_one = [verify_segment(str(archive / s.path)) for s in list_segments(str(archive))]
    for parallelism in (1, 5):
        engine = SparkEngine(lambda: spark, parallelism)
        assert [*execute_verify(plan_verify(str(archive)), engine)] == one_by_one


@pytest.mark.long
def test_verdicts_of_many_segments_are_no_large_result_of_a_job(tmp_path: Path) -> None:
    """One object each, those of 5,000 segments are 1.9 MB."""
    for number in range(5_000):
        log = tmp_path / f"orders-{number % 50}" / f"{number:020d}.log"
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(v2_batch(number, [Record(1_000 + number, None, b"v")]))
    command = (KIP33, "verify", tmp_path, "--format", "jsonl")

    local = subprocess_of(*command, "--engine", "local", cwd=tmp_path)
    limited = ("--master", "local[2]", "--conf", "spark.driver.maxResultSize=1m")
    on_spark = subprocess_of(*command, *limited, cwd=tmp_path)

    assert on_spark.stdout == local.stdout
    assert on_spark.exit_code == 0 and local.stdout.count("\n") == 5_000
