"""The engine of this machine: bins in order, errors as they are, workers that are killed."""

import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import StringIO
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest

from kip33.cli.main import run as run_command
from kip33.errors import CatalogError, PublishError, WorkerLostError
from kip33.local.local_engine import Bin, BinError, LocalEngine, _serve_bins, cores
from kip33.local.worker_pool import Stores, Worker, signals_wait
from kip33.rules.packing import LEAST_BIN_COST
from kip33.stores import watch
from kip33.stores.locations import Location
from kip33.stores.own_files import publish
from kip33.stores.progress import READ_SO_FAR, Phase, Progress
from kip33.stores.settings import use_settings
from kip33.stores.watch import SILENT_TICKS, StoreName
from tests.cases import each_case


def files_of(*sizes: int) -> pa.Table:
    return pa.table(
        {
            "path": [f"orders-0/{number:020d}.log" for number in range(len(sizes))],
            "size_bytes": pa.array(sizes, pa.int64()),
        }
    )


def pid_of_bin(number: int, files: pa.Table) -> Iterator[tuple[int, list[str], int]]:
    yield number, files["path"].to_pylist(), os.getpid()


def killed_at_first(folder: Path, number: int, files: pa.Table) -> Iterator[tuple[int, int]]:
    """Kill this worker in each bin, unless a worker has been killed there before."""
    mark = folder / str(number)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield number, files.num_rows


def killed_always(number: int, files: pa.Table) -> Iterator[int]:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    yield number


def refused(number: int, files: pa.Table) -> Iterator[int]:
    raise PublishError(f"bin {number}: the disk is full")
    yield number


def foreign(number: int, files: pa.Table) -> Iterator[int]:
    raise CatalogError(f"bin {number}: not a catalog")
    yield number


def buggy(number: int, files: pa.Table) -> Iterator[int]:
    raise ValueError("not a wrong argument")
    yield number


class UnpicklableError(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(one + other)


def broken(number: int, files: pa.Table) -> Iterator[int]:
    raise UnpicklableError(1, 2)
    yield number


def test_small_work_is_done_in_this_process() -> None:
    engine = LocalEngine()

    found = engine.run_on_bins(files_of(5, 9, 7), pid_of_bin)

    assert found == [(0, files_of(5, 9, 7)["path"].to_pylist(), os.getpid())]
    assert engine.workers == 1


def test_without_files_nothing_is_run() -> None:
    engine = LocalEngine(2)

    assert engine.run_on_bins(files_of(), killed_always) == []
    assert engine.workers == 0


def test_large_work_is_done_in_a_process_for_each_core() -> None:
    engine = LocalEngine()

    found = engine.run_on_bins(files_of(*[LEAST_BIN_COST] * 2 * cores()), pid_of_bin)

    assert engine.workers == cores()
    if cores() > 1:
        assert os.getpid() not in {pid for *_, pid in found}


def test_results_are_in_the_order_of_bins_and_every_file_is_in_one() -> None:
    told: list[Progress] = []
    engine = LocalEngine(2, 7, told.append)

    found = engine.run_on_bins(files_of(*range(50)), pid_of_bin)

    assert [number for number, *_ in found] == list(range(7))
    paths = [path for _, paths, _ in found for path in paths]
    assert sorted(paths) == files_of(*range(50))["path"].to_pylist()
    assert len({pid for *_, pid in found}) <= 2
    assert told == sorted(told)
    total_bytes = sum(range(50))
    assert told[0] == Progress(Phase.READING_LOGS, 0, 50, 0, total_bytes)
    assert told[-1] == Progress(Phase.READING_LOGS, 50, 50, total_bytes, total_bytes)


def read_until_told(mark: Path, number: int, files: pa.Table) -> Iterator[int]:
    """Read 7 bytes of a log, and wait until the parent process knows it."""
    READ_SO_FAR.add(7, files=1)
    while not mark.exists():
        time.sleep(0.01)
    yield number


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_read_of_a_bin_is_told_before_its_end(workers: int, tmp_path: Path) -> None:
    mark = tmp_path / "told"

    def on_progress(progress: Progress) -> None:
        if progress.done_bytes in (7, 14) and progress.done:
            mark.touch()

    engine = LocalEngine(workers, 2, on_progress)

    found = engine.run_on_bins(files_of(100, 100), partial(read_until_told, mark))

    assert found == [0, 1]


def silent_store(number: int, files: pa.Table) -> Iterator[int]:
    """Wait for a store for as long as its silence is told."""
    told = watch._Watching.watch
    assert told is not None
    with told.waiting(StoreName("http://store:9000", ""), "opening s3a://archive/0.log"):
        for _ in range(SILENT_TICKS):
            told.tick()
    yield number


def test_a_worker_whose_store_does_not_answer_says_so() -> None:
    lines: list[str] = []
    use_settings({"fs.s3a.endpoint": "http://store:9000"})
    try:
        found = LocalEngine(2, 2, tell=lines.append).run_on_bins(files_of(1, 2), silent_store)
    finally:
        use_settings({})

    assert found == [0, 1]
    assert lines.count("http://store:9000 answers again after 5 s") == 2
    assert sum("still trying: opening s3a://archive/0.log" in line for line in lines) == 2


def test_a_bin_whose_worker_is_killed_is_tried_again(tmp_path: Path) -> None:
    run = partial(killed_at_first, tmp_path)

    found = LocalEngine(2, 4).run_on_bins(files_of(1, 2, 3, 4, 5), run)

    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert sum(rows for _, rows in found) == 5


def test_a_bin_whose_worker_is_killed_twice_is_named_in_one_line() -> None:
    with pytest.raises(WorkerLostError) as lost:
        LocalEngine(2, 2).run_on_bins(files_of(1, 1, 1, 1), killed_always)

    line = str(lost.value)
    assert line.startswith("orders-0/00000000000000000002.log")
    assert "1 other segment" in line and "SIGKILL, 2 times" in line
    assert "\n" not in line


@each_case("workers", [1, 2])
def test_an_error_of_a_bin_is_the_error_of_all(workers: int) -> None:
    with pytest.raises(PublishError) as found:
        LocalEngine(workers, 2).run_on_bins(files_of(1, 2), refused)
    assert re.fullmatch(r"bin \d: the disk is full", str(found.value))

    with pytest.raises(CatalogError) as other:
        LocalEngine(workers, 2).run_on_bins(files_of(1, 2), foreign)
    assert (other.value.exit_code, CatalogError.exit_code) == (1, 2), "1 in a bin, 2 elsewhere"


@click.command()
@click.option("--workers", type=int)
def of_a_bug(workers: int) -> None:
    LocalEngine(workers, 2).run_on_bins(files_of(1, 2), buggy)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_in_a_bin_is_a_crash_with_its_trace_not_wrong_usage(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kip33", "--workers", str(workers)])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command replaces it

    with pytest.raises(BinError, match="not a wrong argument") as found:
        run_command(of_a_bug)

    assert "in buggy" in "".join(traceback.format_exception(found.value))


def test_the_trace_of_a_bug_arrives_from_a_worker() -> None:
    with pytest.raises(Exception, match="UnpicklableError") as found:
        LocalEngine(2, 2).run_on_bins(files_of(1, 2), broken)

    assert "in broken" in str(found.value)


def test_workers_have_ended_when_the_work_has() -> None:
    found = LocalEngine(2, 3).run_on_bins(files_of(1, 2, 3), pid_of_bin)

    for *_, pid in found:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def half_written(folder: Path, threads: int, number: int, files: pa.Table) -> Iterator[int]:
    """Fail in bin 0 as soon as bin 1 has temporary files."""
    if number == 0:
        while len(list(folder.glob("*.tmp"))) < threads:
            time.sleep(0.01)
        raise PublishError("the disk is full")

    def write(name: int) -> None:
        for again in range(10_000):
            place = Location.of(str(folder / f"{name}-{again}"))
            publish(place, b"whole", before_rename=lambda _: time.sleep(0.5))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(threads)))
    yield number


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no worker be killed because its machine is slow."""
    monkeypatch.setattr("kip33.local.worker_pool._SECONDS_TO_END", 600)


@pytest.mark.usefixtures("patient")
def test_a_worker_that_is_stopped_finishes_the_files_that_it_writes(
    tmp_path: Path,
) -> None:
    threads = 3
    run = partial(half_written, tmp_path, threads)
    with pytest.raises(PublishError, match="the disk is full"):
        LocalEngine(2, 2).run_on_bins(files_of(1, 2), run)

    left = list(tmp_path.iterdir())
    assert len(left) >= threads
    assert {path.read_bytes() for path in left} == {b"whole"}
    assert {path.suffix for path in left} == {""}


QUOTAS = [
    ({"cpu.max": "max 100000\n"}, None),
    ({"cpu.max": "200000 100000\n"}, 2),
    ({"cpu.max": "50000 100000\n"}, 1),
    ({"cpu.max": "150000 100000\n"}, 2),
    ({"cpu.max": "a word\n"}, None),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ({}, None),
]


@each_case(("texts", "expected"), QUOTAS)
def test_the_quota_of_a_container_limits_the_cores(
    texts: Any, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr("kip33.local.local_engine.CGROUPS", tmp_path)
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cores() == (expected or 64)


@pytest.mark.usefixtures("patient")
def test_signals_stay_blocked_while_a_worker_is_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first spawned process of a process also starts Python's resource tracker."""
    if resource_tracker._resource_tracker._fd is not None:
        resource_tracker._resource_tracker._stop()
    blocked = []
    start = SpawnProcess.start

    def start_and_look(process: SpawnProcess) -> None:
        start(process)
        blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    monkeypatch.setattr(SpawnProcess, "start", start_and_look)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    worker = Worker(partial(_serve_bins, pid_of_bin), Stores({}, {}))
    worker.send(None)
    worker.wait_for_end()

    assert blocked and blocked[0] >= {signal.SIGINT, signal.SIGTERM}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert worker.process.exitcode == 0


def outputs_of_bin(number: int, files: pa.Table) -> Iterator[bool]:
    yield sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__


def test_a_signal_that_another_thread_takes_waits_until_a_worker_has_started() -> None:
    """The mask is one thread's; Python raises in the main thread whatever thread took it."""
    end, steps = threading.Event(), []
    taker = threading.Thread(target=end.wait)
    taker.start()
    with pytest.raises(KeyboardInterrupt):
        with signals_wait():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            steps.append("started")
        steps.append("after it")
    end.set()
    taker.join()
    assert steps == ["started"]


def test_a_worker_does_not_write_to_the_outputs_of_a_progress_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, StringIO())

    found = LocalEngine(2, 2).run_on_bins(files_of(1, 2), outputs_of_bin)

    assert found == [True, True]


def test_all_workers_are_started_before_a_bin_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large bin fills its pipe: sending it waits until its worker has started and reads it."""
    alive: list[int] = []
    send = Worker.send

    def count_and_send(worker: Worker, one: Bin | None) -> None:
        if one is not None:  # else the worker is told that nothing more comes
            alive.append(len(multiprocessing.active_children()))
        send(worker, one)

    monkeypatch.setattr(Worker, "send", count_and_send)
    files = files_of(*range(40_000))

    found = LocalEngine(3, 3).run_on_bins(files, pid_of_bin)

    assert alive == [3, 3, 3]
    assert min(len(pickle.dumps(paths)) for _, paths, _ in found) > 200_000
    assert len({pid for *_, pid in found}) == 3


def stopped_in_the_second_bin(number: int, files: pa.Table) -> Iterator[int]:
    if number == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    yield os.getpid()


def test_a_stopped_worker_is_named_once_and_waited_for() -> None:
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        threading.Timer(1.0, go_on, (line,)).start()  # it is silent for several more periods

    def go_on(line: str) -> None:
        os.kill(int(re.findall(r"worker process (\d+)", line)[0]), signal.SIGCONT)

    engine = LocalEngine(2, 2, tell=tell, silent_seconds=0.2)
    files = files_of(1, 1, 1, 1)

    _, stopped = engine.run_on_bins(files, stopped_in_the_second_bin)

    (line,) = [one for one in lines if f"process {stopped} " in one]
    assert re.fullmatch(
        rf"orders-0/\d{{20}}\.log and 1 other segment: their worker process {stopped} has done "
        r"nothing for 0\.2 s: .*; the command goes on waiting .*",
        line,
    )


def busy(number: int, files: pa.Table) -> Iterator[int]:
    end = time.process_time() + 2
    while time.process_time() < end:
        pass
    yield number


@pytest.mark.slow
def test_a_worker_that_works_is_not_named() -> None:
    lines: list[str] = []
    engine = LocalEngine(2, 2, tell=lines.append, silent_seconds=1)

    assert engine.run_on_bins(files_of(1, 1), busy) == [0, 1]
    assert lines == []


WITH_FEW_FILES = """
import multiprocessing, resource, sys
from kip33.errors import WorkerStartError
from kip33.local.local_engine import LocalEngine
from tests.cases import each_case
from tests.local.test_local_engine import files_of, pid_of_bin

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
try:
    LocalEngine(int(sys.argv[2]), 200).run_on_bins(files_of(*range(200)), pid_of_bin)
except WorkerStartError as error:
    print(f"{error.exit_code}: {error}")
print(len(multiprocessing.active_children()), "left")
"""


def test_workers_that_the_limit_of_open_files_does_not_allow_are_one_line() -> None:
    files, workers = 80, 100
    done = subprocess.run(
        [sys.executable, "-c", WITH_FEW_FILES, str(files), str(workers)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    line, left = done.stdout.splitlines()
    assert re.fullmatch(
        rf"1: {workers} worker processes cannot be started: only {files} open files are allowed; "
        r"no file is half-written: give fewer --workers, .*",
        line,
    )
    assert left == "0 left"
