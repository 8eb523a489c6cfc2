"""A job in a session that is the user's: its name, who may cancel it, and what it leaves."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kip33.demo import make_archive
from kip33.errors import Kip33Error
from kip33.spark import build_index, read_segments, timestamp_profile, verify_index
from kip33.spark.jobs import UNKNOWN_CORES, cores_to_come, named, run_job
from tests.cases import each_case
from tests.cli.conftest import command, spark_command  # noqa: F401 - fixtures
from tests.cli.console import Command
from tests.faults.processes import wait_until

pytestmark = pytest.mark.spark

NOW_MS = 1_800_000_000_000
SETTINGS = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
ALL_LEFT = (*SETTINGS, "spark.job.tags", "callSite.short")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "archive"
    make_archive(root)
    return root


@pytest.fixture
def group(spark: SparkSession) -> Iterator[str]:
    """Set a job group as a notebook does for a cell; take it away afterwards."""
    context = spark.sparkContext
    context.setJobGroup("the cell", "my night", interruptOnCancel=True)
    yield "the cell"
    for key in SETTINGS:
        unset: Any = None
        context.setLocalProperty(key, unset)


def left(spark: SparkSession) -> list[str | None]:
    return [spark.sparkContext.getLocalProperty(key) for key in ALL_LEFT]


def names_of_jobs(spark: SparkSession, group: str) -> set[str]:
    """Return the descriptions of a group's jobs, as the UI shows them, with their stages' names."""
    ids = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    jobs = map(spark._jsc.sc().statusStore().job, ids)
    return {f"{job.description().get()} / {job.name()}" for job in jobs}


def test_the_callers_group_and_description_are_there_afterwards(
    spark: SparkSession, archive: Path, tmp_path: Path, group: str
) -> None:
    before = left(spark)
    assert before[:3] == ["the cell", "my night", "true"]
    indexes = str(tmp_path / "indexes")

    build_index(spark, str(archive), indexes, now_ms=NOW_MS)
    assert left(spark) == before
    verify_index(spark, str(archive), indexes)
    assert left(spark) == before
    timestamp_profile(spark, str(archive), now_ms=NOW_MS)
    assert left(spark) == before
    read_segments(spark, str(archive), topic="orders", end_offset=1, on_error="row").count()
    assert left(spark) == before

    wait_until("the listeners", lambda: len(names_of_jobs(spark, group)) >= 3)
    names = [name for name in names_of_jobs(spark, group) if "kip33 build" in name]
    assert len(names) == 1
    shown, _, stage = names[0].partition(" / ")
    assert shown == f"my night: {stage}"
    assert stage.startswith("kip33 build: ")
    assert stage.endswith(f" of {archive.as_uri()}")


def test_every_job_of_verify_and_retention_has_a_name(
    spark: SparkSession,
    tmp_path: Path,
    group: str,
    spark_command: Command,  # noqa: F811
) -> None:
    build_index(spark, "archive", "indexes", now_ms=NOW_MS)
    spark.sparkContext.setJobGroup("verify and retention", "my night")
    output = ("--format", "jsonl", "--show-broker-view", "--retention-ms", "7d")

    verified = spark_command("verify", "archive", "--index-dir", "indexes")
    judged = spark_command("retention", "indexes/_catalog", *output)

    assert (verified.exit_code, judged.exit_code) == (0, 0)
    wait_until("the listeners", lambda: len(names_of_jobs(spark, "verify and retention")) >= 3)
    names = {
        name.replace((tmp_path / "archive").as_uri(), "SOURCE")
        for name in names_of_jobs(spark, "verify and retention")
    }
    verify = "kip33 verify: 2 bins, 1.4 MiB of SOURCE"
    assert names == {
        f"my night: {name} / {name}"
        for name in (verify, f"{verify}: results", "kip33 retention: 13 segments of SOURCE")
    }


def test_they_are_there_after_an_error_too(
    spark: SparkSession, archive: Path, tmp_path: Path, group: str
) -> None:
    before = left(spark)
    with pytest.raises(Kip33Error):
        build_index(spark, str(archive), str(tmp_path), now_ms=NOW_MS, catalog="/proc/none")
    with pytest.raises(ZeroDivisionError):
        run_job(spark, "a job that fails", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError), named(spark, "a job that fails"):
        assert left(spark) != before
        raise ZeroDivisionError
    assert left(spark) == before


def sleeping(spark: SparkSession, folder: Path) -> Any:
    """Return an action whose tasks note their begin and sleep for an hour."""

    def sleep(tasks: Iterator[int]) -> Iterator[int]:
        for task in tasks:
            (folder / str(task)).touch()
            time.sleep(3_600)
            yield task

    return spark.sparkContext.parallelize(range(2), 2).mapPartitions(sleep).collect


def require_idle(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    wait_until("the tasks' end", lambda: not tracker.getActiveJobsIds())
    assert spark.sparkContext.parallelize([1], 1).collect() == [1], "the session goes on"


def test_an_interrupted_caller_cancels_the_tasks(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    before = left(spark)

    def interrupt() -> None:
        if list(tmp_path.iterdir()):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_job(spark, "a long job", sleeping(spark, tmp_path), interrupt)
    assert left(spark) == before
    require_idle(spark)


def test_cancelling_the_callers_group_cancels_the_tasks(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    cancelled = threading.Event()

    def cancel() -> None:
        if not cancelled.is_set() and list(tmp_path.iterdir()):
            cancelled.set()
            spark.sparkContext.cancelJobGroup(group)

    with pytest.raises(Exception, match="cancelled"):
        run_job(spark, "a long job", sleeping(spark, tmp_path), cancel)
    require_idle(spark)


class Session:
    """A session of nothing but settings."""

    def __init__(self, text: str) -> None:
        conf = dict(pair.split("=") for pair in f"spark.master={text}".split())
        self.sparkContext = SimpleNamespace(getConf=lambda: conf)


DYNAMIC = "spark.dynamicAllocation.enabled=true spark.dynamicAllocation.maxExecutors"


CORES = [
    ("local[8]", 1),
    ("yarn", 2),
    ("yarn spark.executor.instances=10 spark.executor.cores=4", 40),
    ("yarn spark.executor.instances=10 spark.executor.cores=4 spark.task.cpus=2", 20),
    (f"yarn spark.executor.cores=4 {DYNAMIC}=50", 200),
    (f"yarn {DYNAMIC}=50 spark.executor.instances=3", 50),
    ("yarn spark.dynamicAllocation.enabled=true", UNKNOWN_CORES),
    (f"yarn {DYNAMIC}=2147483647", UNKNOWN_CORES),
    ("k8s://https://host:6443 spark.executor.instances=3", 3),
    (f"k8s://https://host:6443 spark.executor.cores=4 {DYNAMIC}=5", 20),
    ("spark://host:7077", UNKNOWN_CORES),
    ("spark://host:7077 spark.cores.max=12", 12),
    (f"spark://host:7077 spark.executor.cores=2 {DYNAMIC}=4", 8),
    (f"spark://host:7077 spark.cores.max=6 spark.executor.cores=2 {DYNAMIC}=4", 6),
    (f"spark://host:7077 {DYNAMIC}=4", UNKNOWN_CORES),
]


@each_case(("settings", "expected"), CORES)
def test_the_cores_that_may_come(settings: str, expected: Any) -> None:
    session: Any = Session(settings)
    assert cores_to_come(session) == expected
