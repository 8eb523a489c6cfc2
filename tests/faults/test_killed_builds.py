"""A Spark build whose driver is killed or interrupted at any moment."""

import os
import random
import signal
import time

import pytest

from tests.faults.builds import outcome
from tests.faults.processes import wait_until
from tests.faults.spark_builds import (
    SparkBuild,
    first_night,
    require_as_before,
    require_undisturbed,
    require_whole_files,
    second_night,
    started,
)
from tests.faults.wrecks import Night, Place

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SEED = 20_260_102
PARTITIONS = 40
TASKS = ("--master", "local[2]", "--parallelism", "4")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return first_night(tmp_path_factory.mktemp("drivers"), PARTITIONS)


@pytest.fixture(scope="module")
def night(place: Place) -> Night:
    return second_night(place, PARTITIONS)


@pytest.fixture(scope="module")
def seconds_to_first_file(place: Place, night: Night) -> float:
    """Run a build that nobody disturbs; return after how long its tasks write."""
    begin = time.monotonic()
    with started(place, night, *TASKS) as build:
        build.wait_for_progress(0.01)
        seconds = time.monotonic() - begin
        done = build.finish()
    assert (done.exit_code, done.stderr) == (0, "")
    require_undisturbed(place, night)
    return seconds


def jvm_runs(build: SparkBuild) -> bool:
    return any("org.apache.spark.deploy.SparkSubmit" in one.command for one in build.processes)


@pytest.mark.parametrize("fifth", range(5))
def test_a_driver_killed_at_any_moment_leaves_a_complete_snapshot_and_complete_files(
    place: Place, night: Night, seconds_to_first_file: float, fifth: int
) -> None:
    """Two moments lie before the tasks, two among them and one at their end or behind it."""
    moment = random.Random(SEED + fifth).random()
    print(f"seed {SEED + fifth}")
    with started(place, night, *TASKS) as build:
        if fifth < 2:
            time.sleep((fifth + moment) / 2 * seconds_to_first_file)
        elif fifth < 4:
            build.wait_for_progress((fifth - 2 + moment) / 2)
        else:
            build.wait_for_progress(1)
            time.sleep(moment / 2)
        os.kill(build.pid, signal.SIGKILL)
        exit_code = build.finish().exit_code
        seconds = build.wait_until_all_are_gone()
    print(f"exit code {exit_code}; JVM and workers ended {seconds:.1f} s later")

    left = outcome(place.index_dir)
    assert left.rows in (night.before.rows, night.after.rows)
    require_whole_files(left.files, night)
    assert place.build() == night.after


MOMENTS = ["as soon as the JVM starts", "while Spark starts", "in mid-task"]


def wait_for(moment: str, build: SparkBuild) -> None:
    if moment == "in mid-task":
        build.wait_for_progress(0.05)
        return
    wait_until("the JVM", lambda: jvm_runs(build))
    if moment == "while Spark starts":
        time.sleep(1.5)


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, moment) for moment in MOMENTS]
    + [(signal.SIGTERM, MOMENTS[0]), (signal.SIGTERM, MOMENTS[2])],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupted_build_says_so_in_one_line_and_leaves_no_process(
    place: Place, night: Night, number: signal.Signals, moment: str
) -> None:
    """Ctrl-C goes to every process of the group."""
    with started(place, night, *TASKS) as build:
        wait_for(moment, build)
        os.killpg(build.pid, number)
        done = build.finish()
        seconds = build.wait_until_all_are_gone()
    print(f"JVM and workers ended {seconds:.1f} s after the driver")

    said = f"Error: interrupted by {number.name}; no file is half-written: run the command again\n"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", said)
    require_as_before(place, night)
    assert place.build() == night.after


def test_a_driver_that_alone_is_told_to_end_takes_its_jvm_along(place: Place, night: Night) -> None:
    with started(place, night, *TASKS) as build:
        build.wait_for_progress(0.05)
        os.kill(build.pid, signal.SIGTERM)
        done = build.finish()
        build.wait_until_all_are_gone()

    said = "Error: interrupted by SIGTERM; no file is half-written: run the command again\n"
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", said)
    require_as_before(place, night)
    assert place.build() == night.after
