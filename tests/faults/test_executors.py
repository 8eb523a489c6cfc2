"""Executors and Python workers that die, hang or wake up too late, below a real `kip33 build`."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.faults.processes import (
    Process,
    ancestors,
    executors,
    python_workers,
    running,
    wait_until,
)
from tests.faults.whole_builds import (
    BuildUnderWay,
    first_night,
    require_as_before,
    require_nothing_staged,
    require_undisturbed,
    second_night,
    started,
)
from tests.faults.wrecks import Night, Place
from tests.integration.servers.spark import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SEED = 20_260_101
PARTITIONS = 300
TWO_HOSTS = ("127.0.0.1", "127.0.0.2")  # Spark starts a speculative copy on another host only
SOME = 0.01  # of the index files: a task has begun and has most of its work before it


@pytest.fixture
def chance() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return first_night(tmp_path_factory.mktemp("executors"), PARTITIONS)


@pytest.fixture(scope="module")
def night(place: Place) -> Night:
    return second_night(place, PARTITIONS)


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A SPARK_HOME of links: a local cluster keeps its workers' folders in there."""
    for name in ("bin", "jars"):
        (tmp_path / name).symlink_to(Path(pyspark.__file__).parent / name)
    return tmp_path


def a_worker_in_mid_task(build: BuildUnderWay, chance: random.Random) -> Process:
    """Return a Python worker whose task has written index files and no part."""
    build.wait_for_progress(SOME)
    worker = chance.choice(python_workers(build.processes))
    worker.signal(signal.SIGSTOP)  # a later signal finds it where it is now
    assert not build.staged_parts, "no task has ended"
    return worker


def test_an_executor_killed_in_mid_task_changes_nothing(
    place: Place, night: Night, spark_home: Path, chance: random.Random
) -> None:
    options = ("--master", "local-cluster[2,1,1024]", "--parallelism", "2")
    with started(place, night, *options, spark_home=spark_home) as build:
        worker = a_worker_in_mid_task(build, chance)
        [executor] = executors(ancestors(worker))
        assert executor.signal(signal.SIGKILL)
        worker.signal(signal.SIGCONT)

        done = build.finish()

    assert (done.exit_code, done.stderr) == (0, "")
    require_undisturbed(place, night)
    require_nothing_staged(place)


def test_a_task_whose_python_worker_is_killed_is_tried_again_and_changes_nothing(
    place: Place, night: Night, chance: random.Random
) -> None:
    with started(place, night, "--master", "local[2,4]", "--parallelism", "2") as build:
        worker = a_worker_in_mid_task(build, chance)
        assert worker.signal(signal.SIGKILL)

        done = build.finish()

    assert (done.exit_code, done.stderr) == (0, "")
    require_undisturbed(place, night)
    require_nothing_staged(place)


def test_a_task_that_fails_at_every_attempt_leaves_the_snapshot_before_and_says_so_in_one_line(
    place: Place, night: Night
) -> None:
    killed: set[int] = set()
    with started(place, night, "--master", "local[2,3]", "--parallelism", "2") as build:
        build.wait_for_progress(SOME)
        while not build.ended:
            workers = python_workers(build.processes)
            killed |= {worker.pid for worker in workers if worker.signal(signal.SIGKILL)}
        done = build.finish()
        build.wait_until_all_are_gone()

    assert len(killed) >= 3, "attempts"
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: the Spark job failed: ")
    assert "Caused by" not in line
    assert "Lost task" in line, "which task, and where"
    assert line.endswith("; no file is half-written: run the command again")
    require_as_before(place, night)
    assert place.build() == night.after


def test_a_jvm_that_is_killed_leaves_the_snapshot_before_and_says_so_in_one_line(
    place: Place, night: Night
) -> None:
    """As the kernel does when memory runs out."""
    with started(place, night, "--master", "local[2]", "--parallelism", "2") as build:
        build.wait_for_progress(SOME)
        [jvm] = [one for one in build.processes if one.parent == build.pid]
        assert jvm.signal(signal.SIGKILL)
        done = build.finish()
        build.wait_until_all_are_gone()

    said = (
        "its JVM ended: it was killed or ran out of memory; "
        "no file is half-written: run the command again"
    )
    error = f"Error: the Spark job failed: {said}\n"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", error)
    require_as_before(place, night)
    assert place.build() == night.after


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    place = tmp_path / "cluster"
    with SparkCluster(place, hosts=TWO_HOSTS, cores=1, has_kip33=True) as cluster:
        yield cluster.master


def test_a_straggler_that_wakes_up_after_the_commit_changes_nothing(
    place: Place, night: Night, cluster: str, chance: random.Random
) -> None:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.task.duration.threshold": "20s",
    }
    confs = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    catalog = place.index_dir / "_catalog"
    with started(place, night, "--master", cluster, "--parallelism", "1", *confs) as build:
        wait_until("a task", lambda: workers_of(cluster))
        [straggler] = workers_of(cluster)
        build.wait_for_progress(SOME)
        assert straggler.signal(signal.SIGSTOP)
        daemon, executor, host, *_ = ancestors(straggler)
        assert executors([executor])
        frozen = [daemon, straggler]
        try:
            assert daemon.signal(signal.SIGSTOP), "it would end the straggler when the copy wins"
            assert not build.staged_parts, "in mid-task"
            reached = build.progress
            wait_until("a copy", lambda: len(workers_of(cluster)) > 1)
            # A copy that works asks the straggler's executor for no broadcast any more.
            wait_until("the copy's work", lambda: build.progress > reached)
            frozen += [executor, host]  # their end would be the straggler's
            assert all(process.signal(signal.SIGSTOP) for process in frozen)

            done = build.finish()

            assert (done.exit_code, done.stderr) == (0, "")
            require_undisturbed(place, night)
            require_nothing_staged(place)
            committed = files_below(catalog)
            assert straggler.signal(signal.SIGCONT)
            wait_until("the straggler's part", lambda: files_below(catalog) != committed)
        finally:
            host.signal(signal.SIGCONT)
            for process in (straggler, daemon, executor):
                process.signal(signal.SIGKILL)

    now = files_below(catalog)
    late = now.keys() - committed.keys()
    assert [path.partition("/")[0] for path in late] == ["staging"], "where no reader looks"
    assert {path: now[path] for path in committed} == committed
    require_undisturbed(place, night)


def workers_of(cluster: str) -> list[Process]:
    """Return the Python workers of a cluster, on any host."""
    return [
        worker
        for worker in python_workers(running().values())
        if any(cluster in ancestor.command for ancestor in ancestors(worker))
    ]


def files_below(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file's inode, time of its last change and bytes, by path; no hidden ones."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            path.read_bytes(),
        )
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
