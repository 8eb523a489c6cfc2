"""The build job on the demo archive and, where they are, on segments of real brokers."""

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD

from kip33.builds.commit import execute_build
from kip33.builds.plan import BuildPlan
from kip33.builds.task import TaskResult
from kip33.catalog.catalog import Catalog
from kip33.demo import make_archive
from kip33.spark.build import build_index
from kip33.spark.catalog import load_catalog
from kip33.spark.spark_engine import SparkEngine
from kip33.stores.progress import Phase, Progress
from tests.builders.plans import plan_build as plan_build_at
from tests.faults.builds import build_here

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000
FIRST = "00000000000000000000"


@pytest.fixture(scope="module")
def unchanged_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "archive"
    make_archive(root)
    return root


@pytest.fixture
def archive(unchanged_archive: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unchanged_archive, tmp_path / "archive"))


def build(spark: Any, source: Path, index_dir: Path | None, **settings: Any):
    where = str(index_dir) if index_dir else None
    return build_index(spark, str(source), where, now_ms=NOW_MS, **settings)


def plan_build(*places: str, **settings: Any) -> BuildPlan:
    return plan_build_at(*places, now_ms=NOW_MS, **settings)


def index_files(root: Path) -> dict[str, bytes]:
    """Return every file below `root` that is neither a log nor in a catalog, by its path."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".log" and "_catalog" not in path.parts
    }


def rows_by_log(index_dir: Path, source: Path) -> dict[str, dict[str, Any]]:
    """Return the newest snapshot's rows by log, without what depends on where and when."""
    opened = Catalog.at(str(index_dir / "_catalog"))
    rows = opened.read(opened.require_newest()).to_pylist()
    for row in rows:
        uri = row.pop("index_uri")
        row["index"] = uri and uri.removeprefix(index_dir.as_uri())
        for name in [name for name in row if name.endswith("_index_modified_ms")]:
            del row[name]
    return {row["log_uri"].removeprefix(source.as_uri()): row for row in rows}


def test_rows_and_files_are_those_of_a_build_in_this_process_in_any_number_of_tasks(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    build_here(unchanged_archive, tmp_path / "here", now_ms=NOW_MS, offset_index=True)
    expected = index_files(tmp_path / "here")
    rows = rows_by_log(tmp_path / "here", unchanged_archive)
    for parallelism in (1, 7):
        index_dir = tmp_path / str(parallelism)
        build(spark, unchanged_archive, index_dir, parallelism=parallelism, offset_index=True)
        assert index_files(index_dir) == expected
        assert rows_by_log(index_dir, unchanged_archive) == rows

    again = build(spark, unchanged_archive, tmp_path / "7", parallelism=7, offset_index=True)

    assert index_files(tmp_path / "7") == expected
    assert (again.written, again.kept, again.failed) == (12, 0, 0)


def test_tasks_return_what_they_did_and_never_a_row(
    spark: Any, unchanged_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[Any] = []
    original = RDD.collect

    def collect(rdd: Any) -> Any:
        collected.extend(original(rdd))
        return collected

    monkeypatch.setattr(RDD, "collect", collect)
    summary = build(spark, unchanged_archive, tmp_path, parallelism=2)
    assert summary.segments == sum(result.part.rows for result in collected) == 13
    assert [type(result) for result in collected] == [TaskResult, TaskResult]
    assert max(len(pickle.dumps(result)) for result in collected) < 500


def test_progress_is_told_from_nothing_to_all_tasks(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    told: list[Progress] = []
    plan = plan_build(str(unchanged_archive), str(tmp_path))
    execute_build(plan, SparkEngine(lambda: spark, 3, told.append))
    read = [one for one in told if one.phase == Phase.READING_LOGS]
    assert read == sorted(read)
    assert (read[0].done, read[-1].done, read[0].total) == (0, 13, 13)
    assert read[-1].done_bytes == read[-1].total_bytes
    assert list(dict.fromkeys(one.phase for one in told)) == [
        Phase.STARTING_SPARK,
        Phase.WRITING_CATALOG,
        Phase.READING_LOGS,
    ]


def test_a_build_after_another_leaves_the_loaded_catalog_as_it_was(
    spark: Any, archive: Path, tmp_path: Path
) -> None:
    build(spark, archive, tmp_path / "indexes", topics=["orders"])
    loaded = load_catalog(spark, str(tmp_path / "indexes/_catalog"))
    summary = build(spark, archive, tmp_path / "indexes", topics=["payments"])
    assert {row.topic for row in loaded.collect()} == {"orders"}
    newer = load_catalog(spark, str(tmp_path / "indexes/_catalog"))
    topics = Counter(row.topic for row in newer.collect())
    assert topics == {"orders": 6, "payments": 1}, "rows of other topics are carried over"
    assert (summary.segments, summary.carried) == (7, 6)


def test_a_catalog_may_be_anywhere(spark: Any, archive: Path, tmp_path: Path) -> None:
    name = "100%25 [old] {a,b}*? grüße"
    build(spark, archive, tmp_path / name, topics=["metrics"])
    [row] = load_catalog(spark, str(tmp_path / name / "_catalog")).collect()
    assert row.index_uri == (tmp_path / name / f"broker-2/metrics-0/{FIRST}.timeindex").as_uri()
