"""The build job on the demo archive and, where they are, on segments of real brokers."""

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD
from pyspark.sql import DataFrame

from kip33 import build_time_index, list_segments
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
from tests.formats.real_segments import FOLDER, needs_real_segments

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000
FIRST = "00000000000000000000"
ABORTS = {f"broker-1/payments-0/{FIRST}.txnindex"}
WHAT_RECOVERY_LEAVES = ABORTS | {
    f"{segment}{suffix}"
    for segment in (
        f"broker-1/audit.v1-0/{FIRST}",
        f"broker-1/orders-0/{FIRST}",
        "broker-1/orders-0/00000000000000004000",
        "broker-1/orders-0/00000000000000008000",
        f"broker-1/payments-0/{FIRST}",
        f"broker-2/clicks-0/{FIRST}",
        f"broker-2/clicks-1/{FIRST}",
        f"broker-2/clicks-3/{FIRST}",
        f"broker-2/metrics-0/{FIRST}",
        f"broker-2/orders-0/{FIRST}",
        "broker-2/orders-0/00000000000000004000",
        "broker-2/orders-0/00000000000000008000",
    )
    for suffix in (".timeindex", ".index")
}


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


def rows_by_log(catalog: Path, source: Path) -> dict[str, dict[str, Any]]:
    """Return the newest snapshot's rows by the log's path below `source`, without `.log`."""
    opened = Catalog.at(str(catalog))
    rows = opened.read(opened.require_newest()).to_pylist()
    prefix = f"{source.as_uri()}/"
    return {row["log_uri"].removeprefix(prefix).removesuffix(".log"): row for row in rows}


@pytest.mark.parametrize(
    "source_name",
    ["demo archive", pytest.param("real segments", marks=needs_real_segments)],
)
def test_every_row_and_file_is_what_build_time_index_gives(
    spark: Any, unchanged_archive: Path, tmp_path: Path, source_name: str
) -> None:
    source = unchanged_archive if source_name == "demo archive" else FOLDER
    summary = build(spark, source, tmp_path, offset_index=True)

    segments = list_segments(str(source))
    rows, files = rows_by_log(tmp_path / "_catalog", source), index_files(tmp_path)
    expected_files, expected_aborts = {}, []
    for segment in segments:
        name = segment.path.removesuffix(".log")
        index, row = build_time_index(str(source / segment.path)), rows.pop(name)
        assert (row["status"], row["error"]) == (index.status, index.error), name
        assert (row["size_bytes"], row["valid_bytes"]) == (index.size_bytes, index.valid_bytes)
        assert row["base_offset"] == segment.base_offset
        if row["transaction_index_bytes"]:
            expected_aborts.append(f"{name}.txnindex")
        if index.time_index_data is None:
            assert (row["index_uri"], row["time_index_entries"]) == (None, None)
            assert row["max_timestamp"] is None
        else:
            assert row["max_timestamp"] == index.summary["max_timestamp"]
            assert row["index_uri"] == (tmp_path / f"{name}.timeindex").as_uri()
            assert row["time_index_entries"] == len(index.time_index_data) // 12
            expected_files[f"{name}.timeindex"] = index.time_index_data
            expected_files[f"{name}.index"] = index.offset_index_data
    assert rows == {}
    assert summary.segments == len(segments)
    assert summary.index_bytes == sum(map(len, files.values()))
    aborts = {name: data for name, data in files.items() if name.endswith(".txnindex")}
    assert {name: files.pop(name) for name in aborts} == aborts
    assert files == expected_files
    assert sorted(aborts) == sorted(expected_aborts)
    assert source_name != "demo archive" or set(aborts) == ABORTS
    times = [data for name, data in files.items() if name.endswith(".timeindex")]
    assert summary.entries == sum(map(len, times)) // 12


def test_neither_the_number_of_tasks_nor_a_second_run_changes_a_byte(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    by_parallelism = {}
    for parallelism in (1, 2, 7):
        index_dir = tmp_path / str(parallelism)
        build(spark, unchanged_archive, index_dir, parallelism=parallelism, offset_index=True)
        newest = Catalog.at(str(index_dir / "_catalog")).require_newest()
        assert len(newest.parts) == parallelism + 1, "one more for rows with transactions"
        by_parallelism[parallelism] = index_files(index_dir)
    first = by_parallelism[1]
    assert set(first) == WHAT_RECOVERY_LEAVES
    assert by_parallelism == dict.fromkeys((1, 2, 7), first)

    again = build(spark, unchanged_archive, tmp_path / "1", parallelism=7, offset_index=True)

    assert index_files(tmp_path / "1") == first
    assert (again.written, again.kept, again.failed) == (12, 0, 0)
    assert len(Catalog.at(str(tmp_path / "1" / "_catalog")).snapshots()) == 2


def test_the_files_travel_through_one_map_partitions(
    spark: Any, unchanged_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[RDD[Any]] = []
    original = RDD.mapPartitions

    def map_partitions(rdd: Any, *arguments: Any, **keywords: Any) -> Any:
        jobs.append(rdd)
        return original(rdd, *arguments, **keywords)

    monkeypatch.setattr(RDD, "mapPartitions", map_partitions)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("another way to the executors")

    for name in ("mapInArrow", "mapInPandas", "groupBy", "toPandas"):
        monkeypatch.setattr(DataFrame, name, refuse)

    build(spark, unchanged_archive, tmp_path, topics=["clicks"], parallelism=3)

    assert [rdd.getNumPartitions() for rdd in jobs] == [3]


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


@pytest.mark.parametrize("name", ["two words", "100%25 [old] {a,b}*?", "grüße"])
def test_a_catalog_may_be_anywhere(spark: Any, archive: Path, tmp_path: Path, name: str) -> None:
    build(spark, archive, tmp_path / name, topics=["metrics"])
    [row] = load_catalog(spark, str(tmp_path / name / "_catalog")).collect()
    assert row.index_uri == (tmp_path / name / f"broker-2/metrics-0/{FIRST}.timeindex").as_uri()
