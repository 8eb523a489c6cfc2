"""A complete build that is interrupted, or whose processes are killed, on either engine."""

import os
import random
import signal
import time

import pytest

from tests.faults.processes import wait_until
from tests.faults.whole_builds import (
    BuildUnderWay,
    first_night,
    require_as_before,
    require_undisturbed,
    second_night,
    started,
)
from tests.faults.wrecks import Night, Place, Wreck, require_old_or_new
from tests.long_forms import one_in

SEED = 20_260_102
PARTITIONS = 40
FOUR_BINS = ("--parallelism", "4")
ON_SPARK = ("--master", "local[2]", *FOUR_BINS)
IN_WORKERS = ("--engine", "local", "--workers", "2", *FOUR_BINS)
IN_ONE_PROCESS = ("--engine", "local", "--workers", "1", *FOUR_BINS)
OF_SPARK = [pytest.mark.spark, pytest.mark.integration]
ENGINES = [
    pytest.param(ON_SPARK, id="spark", marks=OF_SPARK),
    pytest.param(IN_WORKERS, id="workers"),  # in one process: tests/faults/test_killed.py
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return first_night(tmp_path_factory.mktemp("drivers"), PARTITIONS)


@pytest.fixture(scope="module")
def night(place: Place) -> Night:
    return second_night(place, PARTITIONS)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that choose an engine."""
    options: tuple[str, ...] = request.param
    return options


@pytest.fixture(scope="module")
def seconds_to_first_file(place: Place, night: Night, engine: tuple[str, ...]) -> float:
    """Run a build that nobody disturbs; return after how long its tasks write."""
    begin = time.monotonic()
    with started(place, night, *engine) as build:
        build.wait_for_progress(0.01)
        seconds = time.monotonic() - begin
        done = build.finish()
    assert (done.exit_code, done.stderr) == (0, "")
    require_undisturbed(place, night)
    return seconds


def jvm_runs(build: BuildUnderWay) -> bool:
    return any("org.apache.spark.deploy.SparkSubmit" in one.command for one in build.processes)


@pytest.mark.integration
@pytest.mark.parametrize("fifth", one_in(2, range(5)))
def test_a_build_killed_at_any_moment_leaves_a_complete_snapshot_and_complete_files(
    place: Place,
    night: Night,
    engine: tuple[str, ...],
    seconds_to_first_file: float,
    fifth: int,
) -> None:
    """Two moments lie before the tasks, two among them and one at their end or behind it."""
    moment = random.Random(SEED + fifth).random()
    print(f"seed {SEED + fifth}")
    with started(place, night, *engine) as build:
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
    print(f"exit code {exit_code}; its processes ended {seconds:.1f} s later")

    require_old_or_new(Wreck.at(place.index_dir, night), night)
    assert place.build() == night.after


MOMENTS = ["as soon as the JVM starts", "while Spark starts", "in mid-task"]
INTERRUPTIONS = [
    *(pytest.param(ON_SPARK, signal.SIGINT, moment, marks=OF_SPARK) for moment in MOMENTS),
    pytest.param(ON_SPARK, signal.SIGTERM, MOMENTS[0], marks=OF_SPARK),
    pytest.param(ON_SPARK, signal.SIGTERM, MOMENTS[2], marks=OF_SPARK),
    pytest.param(IN_WORKERS, signal.SIGINT, MOMENTS[2]),
    pytest.param(IN_WORKERS, signal.SIGTERM, MOMENTS[2]),
    pytest.param(IN_ONE_PROCESS, signal.SIGTERM, MOMENTS[2], marks=pytest.mark.long),
]


def wait_for(moment: str, build: BuildUnderWay) -> None:
    if moment == "in mid-task":
        build.wait_for_progress(0.05)
        return
    wait_until("the JVM", lambda: jvm_runs(build))
    if moment == "while Spark starts":
        time.sleep(1.5)


@pytest.mark.parametrize(
    ("options", "number", "moment"),
    INTERRUPTIONS,
    ids=lambda value: " ".join(value[:4]) if isinstance(value, tuple) else str(value),
)
def test_an_interrupted_build_says_so_in_one_line_and_leaves_no_process(
    place: Place, night: Night, options: tuple[str, ...], number: signal.Signals, moment: str
) -> None:
    """Ctrl-C goes to every process of the group; SIGTERM in mid-task to the driver alone."""
    with started(place, night, *options) as build:
        wait_for(moment, build)
        if number == signal.SIGTERM and moment == "in mid-task":
            os.kill(build.pid, number)
        else:
            os.killpg(build.pid, number)
        done = build.finish()
        seconds = build.wait_until_all_are_gone()
    print(f"its processes ended {seconds:.1f} s after it")

    said = f"Error: interrupted by {number.name}; no file is half-written: run the command again\n"
    assert (done.exit_code, done.stdout, done.stderr) == (128 + number, "", said)
    require_as_before(place, night)
    assert place.build() == night.after


def test_a_worker_that_is_killed_is_replaced(place: Place, night: Night) -> None:
    with started(place, night, *IN_WORKERS) as build:
        build.wait_for_progress(0.05)
        workers = [process for process in build.processes if process.parent == build.pid]
        killed = [worker.signal(signal.SIGKILL) for worker in workers]
        done = build.finish()

    assert killed
    assert (done.exit_code, done.stderr) == (0, "")
    require_undisturbed(place, night)
