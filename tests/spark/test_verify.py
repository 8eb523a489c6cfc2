"""The verify job: the verdicts of one segment at a time, over a tree."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from kip33 import list_segments, verify_segment
from kip33.demo import make_archive
from kip33.indexing.verification import SEGMENT_VERDICTS, SegmentVerdict
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.rules.index_builder import IndexSettings
from kip33.spark.build import verify_index
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import use_session
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import KIP33, subprocess_of
from tests.faults.builds import build_here
from tests.formats.real_segments import FOLDER, needs_real_segments

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000
FIRST = "00000000000000000000"
BUILT = {  # verdicts of .timeindex and .index on what `build` writes for the demo archive
    f"broker-1/audit.v1-0/{FIRST}": ("identical", "identical", "ok"),
    f"broker-1/orders-0/{FIRST}": ("identical", "identical", "ok"),
    "broker-1/orders-0/00000000000000004000": ("identical", "identical", "ok"),
    "broker-1/orders-0/00000000000000008000": ("identical", "identical", "ok"),
    f"broker-1/payments-0/{FIRST}": ("identical", "identical", "ok"),
    f"broker-2/clicks-0/{FIRST}": ("identical", "identical", "truncated"),
    f"broker-2/clicks-1/{FIRST}": ("identical", "identical", "truncated"),
    f"broker-2/clicks-2/{FIRST}": ("missing", "missing", "invalid"),
    f"broker-2/clicks-3/{FIRST}": ("identical", "identical", "empty"),
    f"broker-2/metrics-0/{FIRST}": ("identical", "identical", "ok"),
    f"broker-2/orders-0/{FIRST}": ("identical", "identical", "ok"),
    "broker-2/orders-0/00000000000000004000": ("identical", "identical", "ok"),
    "broker-2/orders-0/00000000000000008000": ("identical", "identical", "ok"),
}
BESIDE_THE_LOGS = dict.fromkeys(BUILT, "missing") | {
    "broker-1/orders-0/00000000000000004000": "padded",
    f"broker-2/orders-0/{FIRST}": "wrong",
}


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


def by_log(source: Path, verdicts: list[Any]) -> dict[str, Any]:
    prefix = f"{source.as_uri()}/"
    return {v.log_uri.removeprefix(prefix).removesuffix(".log"): v for v in verdicts}


def test_what_lies_beside_the_logs_of_the_demo_archive(spark: Any, archive: Path) -> None:
    verdicts = verdicts_of(spark, str(archive))
    assert {name: v.verdict for name, v in by_log(archive, verdicts).items()} == BESIDE_THE_LOGS
    assert [v.log_uri for v in verdicts] == sorted(v.log_uri for v in verdicts)


def test_verdicts_are_rows_of_a_data_frame(spark: Any, archive: Path, built: Path) -> None:
    rows = verify_index(spark, str(archive), str(built), topics=["!metrics"])
    assert rows.schema == from_arrow_schema(SEGMENT_VERDICTS)
    verdicts = verdicts_of(spark, str(archive), str(built))
    expected = [one.as_row() for one in verdicts if "metrics" not in one.log_uri]
    assert [row.asDict() for row in rows.collect()] == expected
    sparser = verify_index(spark, str(archive), str(built), index_interval_bytes=1)
    assert sparser.where("verdict = 'identical'").count() < len(verdicts)


def test_what_build_wrote_is_identical(spark: Any, archive: Path, built: Path) -> None:
    found = by_log(archive, verdicts_of(spark, str(archive), str(built)))
    assert {
        name: (v.verdict, v.offset_index_verdict, v.log_status) for name, v in found.items()
    } == BUILT
    assert {v.dialect for v in found.values()} == {"recover", None}
    assert {v.entries for v in found.values() if v.verdict == "missing"} == {None}


@pytest.mark.parametrize(
    "source_name",
    ["demo archive", pytest.param("real segments", marks=needs_real_segments)],
)
def test_a_tree_gets_the_verdicts_of_its_segments(
    spark: Any, archive: Path, source_name: str
) -> None:
    source = archive if source_name == "demo archive" else FOLDER
    one_by_one = [verify_segment(str(source / s.path)) for s in list_segments(str(source))]
    for parallelism in (1, 5):
        engine = SparkEngine(lambda: spark, parallelism)
        assert [*execute_verify(plan_verify(str(source)), engine)] == one_by_one


@pytest.mark.integration
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


def test_settings_and_topics_are_those_of_the_plan(spark: Any, archive: Path, built: Path) -> None:
    settings = IndexSettings(index_interval_bytes=65_536)
    plan = plan_verify(str(archive), str(built), settings=settings, topics=["orders"])
    verdicts = [*execute_verify(plan, SparkEngine(lambda: spark))]
    assert Counter(v.verdict for v in verdicts) == {"consistent": 6}
    assert all("/orders-0/" in v.log_uri for v in verdicts)


def test_an_index_beside_the_log_is_verified_if_the_index_directory_has_none(
    spark: Any, archive: Path, built: Path, tmp_path: Path
) -> None:
    source, index_dir = tmp_path / "source", tmp_path / "indexes"
    partition = "broker-1/orders-0"
    shutil.copytree(archive / partition, source / partition)
    shutil.copytree(built / partition, index_dir / partition)
    first, second, third = (f"{partition}/{offset:020d}" for offset in (0, 4000, 8000))
    (index_dir / f"{first}.index").rename(source / f"{first}.index")
    (source / f"{second}.index").write_bytes(b"not looked at")
    (index_dir / f"{third}.index").unlink()

    found = by_log(source, verdicts_of(spark, str(source), str(index_dir)))

    assert {name: v.offset_index_verdict for name, v in found.items()} == {
        first: "identical",
        second: "identical",
        third: "missing",
    }


def test_a_file_that_changes_after_the_listing_is_a_verdict_and_the_job_goes_on(
    spark: Any, archive: Path, built: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(archive, tmp_path / "source"))
    index_dir = Path(shutil.copytree(built, tmp_path / "indexes"))
    plan = plan_verify(str(source), str(index_dir))
    gone, cut = f"broker-1/orders-0/{FIRST}", f"broker-1/payments-0/{FIRST}"
    directory, torn = f"broker-2/orders-0/{FIRST}", f"broker-1/audit.v1-0/{FIRST}"
    (source / f"{gone}.log").unlink()
    (source / f"{cut}.log").write_bytes((source / f"{cut}.log").read_bytes()[:1000])
    (source / f"{directory}.log").unlink()
    (source / f"{directory}.log").mkdir()
    with (index_dir / f"{torn}.timeindex").open("ab") as index:
        index.write(b"\x00")

    found = by_log(source, [*execute_verify(plan, SparkEngine(lambda: spark))])

    assert {name: v.verdict for name, v in found.items()} == {
        name: verdict for name, (verdict, _, _) in BUILT.items()
    } | {gone: "unreadable", cut: "wrong", directory: "unreadable", torn: "malformed"}
    assert "the log cannot be read" in found[gone].problems[0]
    assert found[torn].problems == ("49 bytes found, expected a multiple of 12",)
    assert "at byte" in found[cut].log_error


def test_a_directory_that_cannot_be_listed_is_a_verdict(spark: Any, tmp_path: Path) -> None:
    deep = tmp_path.joinpath("broker-1", *["d"] * 32, "orders-0")
    deep.mkdir(parents=True)
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "orders-1" / f"{FIRST}.log").touch()
    verdicts = verdicts_of(spark, str(tmp_path))
    assert sorted(v.verdict for v in verdicts) == ["missing", "unreadable"]
    [unreadable] = [v for v in verdicts if v.verdict == "unreadable"]
    assert "cannot be listed: more than 32 directories deep" in unreadable.problems[0]
