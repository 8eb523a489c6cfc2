"""The build job on the demo archive and, where they are, on segments of real brokers."""

import csv
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
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
from kip33.errors import CatalogError, LocationError
from kip33.spark.build import build_index
from kip33.spark.catalog import load_catalog
from kip33.spark.spark_engine import SparkEngine
from tests.builders.plans import plan_build as plan_build_at
from tests.demo_archive import PREALLOCATED, make_archive
from tests.formats.real_segments import FOLDER, needs_real_segments

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000
FIRST = "00000000000000000000"
ORDERS = "broker-1/orders-0/00000000000000004000"
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


def problems_of(row: dict[str, Any]) -> str:
    return row["error"] or ""


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


@needs_real_segments
@pytest.mark.parametrize(("dialect", "count"), [("recover", 64), ("live", 70)])
def test_a_dialect_reproduces_exactly_the_files_that_the_manifest_marks(
    spark: Any, tmp_path: Path, dialect: str, count: int
) -> None:
    with (FOLDER / "MANIFEST.csv").open() as lines:
        marked = {row["segment"] for row in csv.DictReader(lines) if row[dialect]}

    build(spark, FOLDER, tmp_path, dialect=dialect)

    brokers = index_files(FOLDER)
    same = {
        name.removesuffix(".timeindex")
        for name, data in index_files(tmp_path).items()
        if data == brokers[name]
    }
    assert same == marked
    assert len(same) == count


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
    told: list[tuple[int, int]] = []
    plan = plan_build(str(unchanged_archive), str(tmp_path))
    execute_build(plan, SparkEngine(lambda: spark, 3, lambda *counts: told.append(counts)))
    assert told == sorted(told)
    assert (told[0], told[-1]) == ((0, 3), (3, 3))


def test_a_file_that_kip33_did_not_write_is_kept_until_overwrite_and_ours_from_then_on(
    spark: Any, archive: Path, tmp_path: Path
) -> None:
    catalog = tmp_path / "catalog"
    in_place = {"in_place": True, "catalog": str(catalog)}
    theirs = ("broker-1/orders-0/00000000000000004000", f"broker-2/orders-0/{FIRST}")
    before = index_files(archive)
    assert sorted(before) == [f"{name}.timeindex" for name in theirs]

    kept = build(spark, archive, None, **in_place)

    rows, files = rows_by_log(catalog, archive), index_files(archive)
    assert (kept.written, kept.kept, kept.failed) == (10, 2, 0)
    assert {name for name, row in rows.items() if row["index_file"] == "kept"} == set(theirs)
    for name in theirs:
        assert files[f"{name}.timeindex"] == before[f"{name}.timeindex"]
        assert f"kept {archive.as_uri()}/{name}.timeindex" in problems_of(rows[name])
        assert "--overwrite" in problems_of(rows[name])

    overwritten = build(spark, archive, None, overwrite=True, **in_place)

    assert (overwritten.written, overwritten.kept) == (12, 0)
    for name, data in index_files(archive).items():
        log = archive / name.replace(".timeindex", ".log")
        assert data == build_time_index(str(log)).time_index_data, name

    ours = build(spark, archive, None, index_interval_bytes=65_536, **in_place)

    assert (ours.written, ours.kept) == (12, 0)
    assert ours.entries < overwritten.entries
    log = archive / f"{ORDERS}.log"
    expected = build_time_index(str(log), index_interval_bytes=65_536).time_index_data
    assert log.with_suffix(".timeindex").read_bytes() == expected


def test_only_damaged_leaves_what_verify_calls_identical_or_consistent(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    build(spark, unchanged_archive, tmp_path, index_interval_bytes=1000)
    dense = index_files(tmp_path)
    missing, padded, incomplete, wrong, sparse = (
        f"broker-1/orders-0/{FIRST}.timeindex",
        "broker-1/orders-0/00000000000000004000.timeindex",
        f"broker-2/orders-0/{FIRST}.timeindex",
        "broker-2/orders-0/00000000000000004000.timeindex",
        "broker-2/orders-0/00000000000000008000.timeindex",
    )
    (tmp_path / missing).unlink()
    (tmp_path / padded).write_bytes(bytes(PREALLOCATED))
    (tmp_path / incomplete).write_bytes(dense[incomplete][:-12])
    (tmp_path / wrong).write_bytes(dense[wrong][:-1] + b"\x01")
    (tmp_path / sparse).write_bytes(dense[sparse][-12:])
    damaged = {missing, padded, incomplete, wrong, sparse}

    summary = build(spark, unchanged_archive, tmp_path, only_damaged=True)

    files = index_files(tmp_path)
    for name, data in files.items():
        log = unchanged_archive / name.replace(".timeindex", ".log")
        rebuilt = build_time_index(str(log)).time_index_data
        assert data == (rebuilt if name in damaged else dense[name]), name
    assert files[padded] != dense[padded]  # rebuilt with this build's interval
    assert summary.entries == sum(map(len, files.values())) // 12
    assert (summary.written, summary.kept, summary.failed) == (12, 0, 0)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"catalog": "archive/broker-1/_catalog"}, "the catalog is inside the log directory"),
        ({"catalog": "archive/broker-1"}, "the catalog is inside the log directory"),
        ({"catalog": "archive/broker-2/orders-0/c"}, "the catalog is inside the log directory"),
        ({"index_dir": "archive/broker-1/indexes"}, "the index directory is inside the log"),
        ({"index_dir": "archive"}, "the index directory contains SOURCE"),
        ({"index_dir": "."}, "the index directory contains SOURCE"),
        ({"index_dir": "a file"}, "the index directory is a file"),
        ({"index_dir": "indexes", "catalog": "a file"}, "the catalog is a file"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else "",
)
def test_a_place_that_a_broker_or_a_reader_would_trip_over_is_refused(
    archive: Path, tmp_path: Path, settings: dict[str, str], problem: str
) -> None:
    (tmp_path / "a file").touch()
    places = {name: str(tmp_path / place) for name, place in settings.items()}
    with pytest.raises(LocationError, match=problem):
        plan_build(str(archive), in_place="index_dir" not in settings, **places)


BROKERS_FILES = (
    *("meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"),
    *("log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"),
)


@pytest.mark.parametrize("of_a_broker", BROKERS_FILES)
@pytest.mark.parametrize("source", ["archive/broker-2/orders-0", "archive/broker-1"])
def test_no_folder_comes_into_a_log_directory_that_the_listing_does_not_show(
    archive: Path, tmp_path: Path, source: str, of_a_broker: str
) -> None:
    """SOURCE is one partition of it, or another log directory; and it may be behind a link."""
    log_dir = archive / "broker-2" if source.endswith("orders-0") else tmp_path / "empty"
    log_dir.mkdir(exist_ok=True)
    (log_dir / of_a_broker).touch()
    (tmp_path / "link").symlink_to(log_dir)
    outside = str(tmp_path / "outside")
    for place in (log_dir / "new", log_dir / "new/a/b", tmp_path / "link/new"):
        for places in ({"index_dir": str(place)}, {"index_dir": outside, "catalog": str(place)}):
            with pytest.raises(LocationError, match="is inside the log directory") as refusal:
                plan_build(str(tmp_path / source), **places)
            assert "\n" not in str(refusal.value)
    assert plan_build(str(tmp_path / source), outside).files.num_rows


def test_a_log_directory_as_source_keeps_its_catalog_outside(archive: Path, tmp_path: Path) -> None:
    source = archive / "broker-1"
    with pytest.raises(LocationError, match="is inside the log directory"):
        plan_build(str(source), in_place=True, catalog=str(source / "_catalog"))

    plan = plan_build(str(source), in_place=True, catalog=str(archive / "_catalog"))

    assert plan.files["log_dir"].to_pylist() == [""] * 5


@pytest.mark.parametrize(
    ("topics", "built"),
    [
        (["payments"], {"payments"}),
        (["pay*", "audit.v?"], {"payments", "audit.v1"}),
        (["[co]*s"], {"clicks", "orders"}),
        (["ORDERS", "metrics"], {"metrics"}),
    ],
    ids=lambda names: " ".join(sorted(names)),
)
def test_topics_chooses_by_glob(
    unchanged_archive: Path, tmp_path: Path, topics: list[str], built: set[str]
) -> None:
    plan = plan_build(str(unchanged_archive), str(tmp_path), topics=topics)
    assert set(plan.files["topic"].to_pylist()) == built


def test_other_topics_have_neither_files_nor_rows(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    summary = build(spark, unchanged_archive, tmp_path, topics=["payments"])
    assert summary.segments == 1
    assert list(rows_by_log(tmp_path / "_catalog", unchanged_archive)) == [
        f"broker-1/payments-0/{FIRST}"
    ]
    assert list(index_files(tmp_path)) == [f"broker-1/payments-0/{FIRST}.timeindex"]


def test_topics_that_nothing_matches_are_wrong_usage(
    unchanged_archive: Path, tmp_path: Path
) -> None:
    with pytest.raises(LocationError, match="no segments of topics nothing, 0 found"):
        plan_build(str(unchanged_archive), str(tmp_path), topics=["nothing", "0"])


def test_a_second_source_in_one_catalog_is_refused(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    build(spark, unchanged_archive / "broker-1", tmp_path, topics=["payments"])
    with pytest.raises(
        CatalogError, match=r"describes .*/broker-1, not .*/broker-2; a catalog has one"
    ):
        plan_build(str(unchanged_archive / "broker-2"), str(tmp_path))


def delete(log: Path) -> None:
    log.unlink()


def replace_by_directory(log: Path) -> None:
    log.unlink()
    log.mkdir()


def replace_by_dangling_link(log: Path) -> None:
    log.unlink()
    log.symlink_to("nowhere")


def cut_inside_a_batch(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:1000])


def empty(log: Path) -> None:
    log.write_bytes(b"")


def append_noise(log: Path) -> None:
    log.write_bytes(log.read_bytes() + bytes(range(1, 200)))


def overwrite_with_text(log: Path) -> None:
    log.write_text("no segment at all\n" * 100)


@pytest.mark.parametrize(
    "known_before", [False, True], ids=["in a first build", "in a second build"]
)
def test_a_file_that_changes_after_the_listing_is_a_row_and_the_job_goes_on(
    spark: Any, archive: Path, tmp_path: Path, known_before: bool
) -> None:
    changes: dict[str, tuple[Callable[[Path], None], str]] = {
        f"broker-1/orders-0/{FIRST}": (delete, "unreadable"),
        ORDERS: (replace_by_directory, "unreadable"),
        "broker-1/orders-0/00000000000000008000": (replace_by_dangling_link, "unreadable"),
        f"broker-1/payments-0/{FIRST}": (cut_inside_a_batch, "truncated"),
        f"broker-1/audit.v1-0/{FIRST}": (empty, "empty"),
        f"broker-2/orders-0/{FIRST}": (append_noise, "truncated"),
        "broker-2/orders-0/00000000000000004000": (overwrite_with_text, "truncated"),
    }
    index_dir = tmp_path / "indexes"
    if known_before:
        build(spark, archive, index_dir)
    indexes_before = index_files(index_dir)
    plan = plan_build(str(archive), str(index_dir), full=True)
    for name, (change, _) in changes.items():
        change(archive / f"{name}.log")

    summary = execute_build(plan, SparkEngine(lambda: spark))

    rows, files = rows_by_log(index_dir / "_catalog", archive), index_files(index_dir)
    assert len(rows) == summary.segments == 13
    for name, (change, status) in changes.items():
        row, index = rows[name], files.get(f"{name}.timeindex")
        assert row["status"] == status, (change.__name__, row)
        assert bool(row["error"]) == (status != "empty")
        if status == "unreadable":
            before = indexes_before.get(f"{name}.timeindex")
            assert index == before
            assert (row["valid_bytes"], row["index_file"]) == (None, "written" if before else None)
        else:
            log = archive / f"{name}.log"
            assert row["size_bytes"] == log.stat().st_size
            assert index == build_time_index(str(log)).time_index_data
    others = {name: row["status"] for name, row in rows.items() if name not in changes}
    assert others == {
        f"broker-2/clicks-0/{FIRST}": "truncated",
        f"broker-2/clicks-1/{FIRST}": "truncated",
        f"broker-2/clicks-2/{FIRST}": "invalid",
        f"broker-2/clicks-3/{FIRST}": "empty",
        f"broker-2/metrics-0/{FIRST}": "ok",
        "broker-2/orders-0/00000000000000008000": "ok",
    }


def test_a_directory_that_cannot_be_listed_is_a_row_whatever_the_topics(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    deep = source.joinpath("broker-1", *["d"] * 32, "orders-0")
    deep.mkdir(parents=True)
    (deep / f"{FIRST}.log").touch()
    (source / "orders-1").mkdir()
    (source / "orders-1" / f"{FIRST}.log").touch()

    summary = build(spark, source, tmp_path / "indexes", topics=["orders"])

    assert summary.by_status == {"empty": 1, "unreadable": 1}
    [row] = [
        row
        for row in rows_by_log(tmp_path / "indexes" / "_catalog", source).values()
        if row["status"] == "unreadable"
    ]
    assert "more than 32 directories deep" in problems_of(row)


def test_an_index_that_cannot_be_written_is_a_row_and_the_job_goes_on(
    spark: Any, unchanged_archive: Path, tmp_path: Path
) -> None:
    in_the_way = tmp_path / f"{ORDERS}.timeindex"
    in_the_way.mkdir(parents=True)

    summary = build(spark, unchanged_archive, tmp_path)

    row = rows_by_log(tmp_path / "_catalog", unchanged_archive)[ORDERS]
    assert (summary.written, summary.failed) == (11, 1)
    assert (row["status"], row["index_file"], row["index_uri"]) == ("ok", None, None)
    assert f"{in_the_way.as_uri()}: cannot be written" in problems_of(row)
    assert not list(in_the_way.parent.glob(".*.tmp"))


def test_our_index_is_deleted_if_its_log_no_longer_gives_one(
    spark: Any, archive: Path, tmp_path: Path
) -> None:
    log, index = archive / f"{ORDERS}.log", tmp_path / f"indexes/{ORDERS}.timeindex"
    build(spark, archive, tmp_path / "indexes")
    assert index.exists()
    backwards = archive / f"broker-2/clicks-2/{FIRST}.log"
    log.write_bytes(backwards.read_bytes())

    build(spark, archive, tmp_path / "indexes")

    assert rows_by_log(tmp_path / "indexes/_catalog", archive)[ORDERS]["status"] == "invalid"
    assert not index.exists()


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


def test_rows_below_a_directory_that_cannot_be_listed_any_more_are_carried_over(
    spark: Any, archive: Path, tmp_path: Path
) -> None:
    build(spark, archive, tmp_path / "indexes")
    lost = archive / "broker-2"
    lost.rename(archive / "broker-2 elsewhere")
    lost.symlink_to(archive)  # a loop: it cannot be entered

    summary = build(spark, archive, tmp_path / "indexes")

    rows = rows_by_log(tmp_path / "indexes/_catalog", archive)
    assert rows[f"broker-2/clicks-0/{FIRST}"]["status"] == "truncated", "as it was"
    assert summary.carried == 8
    assert [row["error"] for row in rows.values() if row["base_offset"] is None] == [
        "a link to a directory above itself"
    ]
