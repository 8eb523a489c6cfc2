"""Executors that come and go: dynamic allocation on a standalone cluster, and none at the start."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.large_segments import filling, write_hollow_segment
from tests.cli.console import KIP33, subprocess_of
from tests.integration.clusters.conftest import index_files
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.spark import SparkCluster

pytestmark = pytest.mark.integration
MIB = 1 << 20
HOSTS = tuple(f"127.0.0.{number}" for number in range(1, 5))
SEGMENTS = 12
HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Return a cluster of four machines of one core."""
    place = SparkCluster(tmp_path_factory.mktemp("spark"), hosts=HOSTS, cores=1, has_kip33=True)
    with or_skip("a cluster"):
        place.start()
    yield place
    place.stop()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of twelve segments of half a GiB."""
    root = tmp_path_factory.mktemp("archive")
    for number in range(SEGMENTS):
        log = root / f"large-{number}" / f"{0:020d}.log"
        log.parent.mkdir()
        write_hollow_segment(log, filling(512 * MIB, 64 << 10))
    return root


def build(cluster: SparkCluster, source: Path, folder: Path, **conf: str) -> dict[str, Any]:
    """Build on the cluster, with an event log; return the summary."""
    events = folder / "events"
    events.mkdir(parents=True)
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    confs = [
        text for pair in (HERE | log | conf).items() for text in ("--conf", f"{pair[0]}={pair[1]}")
    ]
    where = ("build", source, "--index-dir", folder / "indexes")
    how = ("--master", cluster.master, "--format", "json", *confs)
    done = subprocess_of(KIP33, *where, *how, cwd=folder, PYSPARK_PYTHON=sys.executable)
    assert done.exit_code == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def events_of(folder: Path) -> list[dict[str, Any]]:
    [log] = (folder / "events").iterdir()
    return [json.loads(line) for line in log.read_text().splitlines()]


def tasks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["Task Info"] for one in events if one["Event"] == "SparkListenerTaskEnd"]


def test_bins_are_for_the_executors_that_may_come(
    cluster: SparkCluster, source: Path, tmp_path: Path
) -> None:
    summary = build(cluster, source, tmp_path, **DYNAMIC)

    assert summary["by_status"] == {"ok": SEGMENTS}
    assert len(index_files(tmp_path / "indexes")) == SEGMENTS
    events = events_of(tmp_path)
    [job] = [one for one in events if one["Event"] == "SparkListenerJobStart"]
    name = f"kip33 build: 4 bins, 6.0 GiB of {source.as_uri()}"
    assert job["Properties"]["spark.job.description"] == name
    assert [stage["Stage Name"] for stage in job["Stage Infos"]] == [name]
    tasks = tasks_of(events)
    assert len({task["Index"] for task in tasks}) == 4, "one for each core that may come"
    used = {task["Executor ID"] for task in tasks}
    assert len(used) > 1, "no executor was there at the start"
    assert summary["workers"] <= 4
    assert summary["workers"] >= len(used)


def test_a_cluster_that_does_not_say_its_size_gets_work_for_late_executors(
    cluster: SparkCluster, source: Path, tmp_path: Path
) -> None:
    summary = build(cluster, source, tmp_path, **{"spark.executor.memory": "512m"})

    tasks = tasks_of(events_of(tmp_path))
    assert len({task["Index"] for task in tasks}) == SEGMENTS, "one each: it may have 32 cores"
    assert summary["workers"] == len({task["Executor ID"] for task in tasks})
