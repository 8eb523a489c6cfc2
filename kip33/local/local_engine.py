"""The local engine: small work in this process, other work in worker processes.

Starting a worker costs as much as reading a GiB, mainly for loading compiled code. So smaller work
is done in this process. Threads would share one interpreter: many small segments, and large ones
with small batches, hold its lock most of the time. A worker processes one bin at a time. A worker
that is killed is replaced.

SIGTERM ends a worker, after the file that it is writing. It ends immediately when its parent
process has ended for any reason. It ignores SIGINT: Ctrl-C at a terminal reaches all processes of a
command, and the parent ends the others.
"""

import math
import os
import pickle
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa
from pyarrow import fs

from kip33.archive.bins import (
    READING_LOGS,
    BinProgress,
    EngineName,
    Result,
    Work,
    rows_of_bins,
    weights,
)
from kip33.errors import ExitCode, Kip33Error, WorkerLostError, WorkerStartError, counted
from kip33.rules.packing import LEAST_BIN_COST, cost_bytes
from kip33.stores.filesystems import filesystems_for_tasks, use_stores
from kip33.stores.own_files import end_process
from kip33.stores.progress import (
    READ_SO_FAR,
    OnProgress,
    Read,
    called_until_the_end,
    tell_nobody,
)
from kip33.stores.settings import settings, settings_in_use
from kip33.stores.watch import tell_of_silence

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess, SpawnProcess

CGROUPS: Final = Path("/sys/fs/cgroup")
_TOLD_SECONDS: Final = 0.25  # between two calls of on_progress
_SILENT_SECONDS: Final = 60.0  # a worker that has done nothing for so long is named
_BIN_ATTEMPTS: Final = 2  # per bin, if its worker is killed
_FILES_OF_A_BIN: Final = 128  # open at once; a forked worker also has its parent's files
_SECONDS_TO_END: Final = 5.0  # grace period of a worker after it was told to end


class Bin(NamedTuple):
    """A number and its rows of files."""

    number: int
    files: pa.Table


class Stores(NamedTuple):
    """Access to remote stores: settings, including keys, and filesystems by their root."""

    settings: Mapping[str, str]
    given: Mapping[str, fs.FileSystem]


class Done(NamedTuple):
    """A worker's answer for a bin: results or the error."""

    number: int
    results: list[Any]
    error: BaseException | None = None


class Said(NamedTuple):
    """A worker's line for the user."""

    line: str


class BinError(Exception):
    """A plain ValueError of a bin: a bug, which a command must not take for wrong usage."""


class UnportableError(Exception):
    """The trace of an exception that cannot be sent between processes."""


class LocalEngine:
    """Processes bins in processes of this machine."""

    name: EngineName = EngineName.LOCAL

    def __init__(
        self,
        workers: int | None = None,
        parallelism: int | None = None,
        on_progress: OnProgress = tell_nobody,
        *,
        tell: Callable[[str], None] | None = None,
        silent_seconds: float = _SILENT_SECONDS,
    ) -> None:
        """Take the maximum number of workers; None: one for each core of this process.

        `parallelism` is the number of bins; None: chosen from their weights and the workers.
        `tell` gets a line on a worker that does nothing for `silent_seconds` (`WorkerPool`).
        """
        self._most_workers, self._parallelism = workers, parallelism
        self.on_progress = on_progress
        self._tell, self._silent_seconds = tell, silent_seconds
        self.workers = 0

    def prepare(self, files: pa.Table) -> None:
        """Do nothing: workers start with their bins."""

    def run_on_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        reads_files: bool = True,
        work: Work = READING_LOGS,
    ) -> list[Result]:
        """See `kip33.archive.bins.Engine`.

        Raises WorkerLostError if a worker is killed twice, and WorkerStartError if one cannot be
        started. Errors of `run` are raised here: a plain ValueError as BinError, a Kip33Error with
        exit code 1.
        """
        by_number = dict(self._done_bins(files, run, work, reads_files=reads_files))
        return [result for number in sorted(by_number) for result in by_number[number]]

    def stream_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        work: Work = READING_LOGS,
    ) -> Generator[Result, None, None]:
        """See `kip33.archive.bins.Engine`; errors are those of `run_on_bins`."""
        for _, results in self._done_bins(files, run, work, reads_files=True):
            yield from results

    def _done_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        work: Work,
        *,
        reads_files: bool,
    ) -> Iterator[tuple[int, list[Result]]]:
        """Yield the number and the results of each bin when it is done."""
        if not files.num_rows:
            return
        sizes = weights(files, reads_files=reads_files)
        most = self._most_workers or cores()
        is_small = self._most_workers is None and cost_bytes(sizes) <= LEAST_BIN_COST
        packed = rows_of_bins(sizes, 1 if is_small else most, self._parallelism)
        self.workers = 1 if is_small else min(most, len(packed))
        progress = BinProgress(sizes, packed, work, self.on_progress)
        progress.tell(())
        if self.workers == 1:
            for number, rows in enumerate(packed):
                tell = partial(_tell_of_bin, progress, number, READ_SO_FAR.total())
                with called_until_the_end(tell, _TOLD_SECONDS):
                    results = _results_of_bin(run, number, files.take(rows))
                progress.tell(range(number + 1))
                yield number, results
            return
        bins = (Bin(number, files.take(rows)) for number, rows in enumerate(packed))
        seconds = self._silent_seconds
        with _WorkerPool(run, self.workers, tell=self._tell, silent_seconds=seconds) as pool:
            yield from pool.done_bins(bins, len(packed), progress)


def cores() -> int:
    """Return how many cores this process may use: of those it may run on, its container's share."""
    found = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    return max(1, min(found, _quota_cores(CGROUPS) or found))


def _quota_cores(cgroups: Path) -> int | None:
    """Return the cores that the quota of control groups (version 2 or 1) allows, rounded up."""
    try:
        if (cgroups / "cpu.max").is_file():
            quota, period = (cgroups / "cpu.max").read_text().split()  # "max 100000": no limit
        else:
            quota = (cgroups / "cpu" / "cpu.cfs_quota_us").read_text()  # -1: no limit
            period = (cgroups / "cpu" / "cpu.cfs_period_us").read_text()
        microseconds, of = int(quota), int(period)
    except (OSError, ValueError):
        return None
    return math.ceil(microseconds / of) if microseconds > 0 and of > 0 else None


def _tell_of_bin(progress: BinProgress, number: int, before: Read) -> None:
    """Tell what this process reads for a bin, those before it being finished."""
    progress.tell(range(number), {number: READ_SO_FAR.total().less(before)})


class _WorkerPool:
    """Processes that work on bins; closing the pool ends them."""

    def __init__(
        self,
        run: Callable[[int, pa.Table], Iterable[Any]],
        workers: int,
        *,
        tell: Callable[[str], None] | None = None,
        silent_seconds: float = _SILENT_SECONDS,
    ) -> None:
        """Take the function for a bin. Workers are started when there are bins for them.

        `tell` gets one line on a worker that has used no CPU time for `silent_seconds`, in which no
        other worker answered.
        """
        self._run, self._most = run, workers
        self._tell, self._silent_seconds = tell, silent_seconds if tell else None
        self._stores = _stores_in_use()
        self._busy: dict[Connection, tuple[_Worker, Bin]] = {}
        self._idle: list[_Worker] = []
        self._attempts: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all workers: idle ones with a message, the others with SIGTERM, then SIGKILL."""
        for worker in self._idle:
            worker.ask_to_end()
        for busy, _bin in self._busy.values():
            busy.process.terminate()
        for worker in (*self._idle, *(busy for busy, _ in self._busy.values())):
            worker.wait_for_end()

    def done_bins(
        self, bins: Iterable[Bin], total: int, progress: BinProgress
    ) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the results of each bin when it is done.

        Raises errors of `run`, WorkerLostError for a bin whose workers are killed, and
        WorkerStartError if the machine's limits allow fewer processes or open files.
        """
        self._start(min(self._most, total))
        waiting = iter(bins)
        finished: set[int] = set()
        while len(finished) < total:
            while len(self._busy) < self._most and (work_bin := next(waiting, None)) is not None:
                self._begin(work_bin)
            answered = self._answered(lambda: progress.tell(finished, self._under_way()))
            for connection in answered:
                done = self._finish(connection)
                if done is not None:
                    finished.add(done.number)
                    progress.tell(finished, self._under_way())
                    yield done.number, done.results

    def _answered(self, tell_progress: Callable[[], None]) -> "list[Connection]":
        """Return the connections of workers that answered, when there are some.

        Meanwhile progress is told, and workers that do nothing are named.
        """
        from multiprocessing.connection import Connection, wait

        seconds = min(_TOLD_SECONDS, self._silent_seconds or _TOLD_SECONDS)
        silent_seconds = 0.0
        while not (answered := wait(list(self._busy), seconds)):
            tell_progress()
            silent_seconds += seconds
            if self._silent_seconds and silent_seconds >= self._silent_seconds:
                self._name_silent_workers()
                silent_seconds = 0.0
        return [one for one in answered if isinstance(one, Connection)]

    def _under_way(self) -> dict[int, Read]:
        """Return what was read for the bins that workers have."""
        return {work_bin.number: worker.read() for worker, work_bin in self._busy.values()}

    def _start(self, workers: int) -> None:
        """Start the workers before the first bin is sent: a large bin waits until it is read."""
        for _ in range(workers):
            worker = self._new_worker()
            self._idle.insert(0, worker)
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if worker.connection.fileno() >= limit - min(_FILES_OF_A_BIN, limit // 2):
                raise self._not_started(f"only {limit} open files are allowed")

    def _new_worker(self) -> "_Worker":
        try:
            return _Worker(self._run, self._stores)
        except OSError as error:
            raise self._not_started(str(error.strerror or error)) from error

    def _not_started(self, why: str) -> WorkerStartError:
        return WorkerStartError(
            f"{self._most} worker processes cannot be started: {why}; no file is half-written: "
            "give fewer --workers, or raise this machine's limits (ulimit -n, ulimit -u), and run "
            "the command again"
        )

    def _begin(self, work_bin: Bin) -> None:
        worker = self._idle.pop() if self._idle else self._new_worker()
        self._attempts[work_bin.number] = self._attempts.get(work_bin.number, 0) + 1
        self._busy[worker.connection] = worker, work_bin
        worker.send(work_bin)

    def _name_silent_workers(self) -> None:
        for worker, work_bin in self._busy.values():
            before, worker.cpu_time = worker.cpu_time, worker.read_cpu_time()
            if self._tell and before and before == worker.cpu_time and not worker.is_named:
                worker.is_named = True
                self._tell(_silent(work_bin, worker.process.pid, self._silent_seconds or 0))

    def _finish(self, connection: "Connection") -> Done | None:
        """Return a worker's answer; None for a line of it, or if another one got its bin."""
        worker, work_bin = self._busy[connection]
        try:
            answer: Done | Said = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:  # it has ended, perhaps in the middle of its answer
            del self._busy[connection]
            worker.wait_for_end()
            if self._attempts[work_bin.number] == _BIN_ATTEMPTS:
                raise WorkerLostError(_lost(work_bin, worker.process.exitcode)) from error
            self._begin(work_bin)
            return None
        if isinstance(answer, Said):
            if self._tell:
                self._tell(answer.line)
            return None
        del self._busy[connection]
        self._idle.append(worker)
        if answer.error:
            raise answer.error
        return answer


class _Worker:
    """A process and the parent's end of its pipe."""

    def __init__(
        self, run: Callable[[int, pa.Table], Iterable[Any]], stores: Stores | None
    ) -> None:
        import multiprocessing
        from multiprocessing import resource_tracker

        # A store's client has threads and connections that do not survive a fork.
        is_forked = stores is None and sys.platform == "linux"
        context: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
        self.connection, theirs = context.Pipe()
        self._counts = context.RawArray("q", 2)  # what it reads for its bin: files, bytes
        self.process: ForkProcess | SpawnProcess = context.Process(
            target=_work_on_bins,
            args=(theirs, run, stores, self._counts),
            name="kip33-worker",
            daemon=True,
        )
        self.cpu_time = ""
        self.is_named = False  # as silent, with the bin that it has
        if not is_forked:  # else the first spawned process starts it, which unblocks signals
            resource_tracker.ensure_running()
        with _signals_wait():
            self.process.start()
        theirs.close()

    def send(self, one: Bin) -> None:
        """Send a bin; a worker that has ended is noticed when its answer is read."""
        self._counts[:] = [0, 0]
        self.is_named = False
        with suppress(OSError):
            self.connection.send(one)
        self.cpu_time = self.read_cpu_time()

    def read_cpu_time(self) -> str:
        """Return the ticks that the process has used; empty where the system does not say."""
        try:
            status = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return ""
        return " ".join(status.rpartition(")")[2].split()[11:13])  # utime and stime

    def read(self) -> Read:
        """Return what was read for its bin."""
        return Read(*self._counts)

    def ask_to_end(self) -> None:
        """Tell an idle worker that no more bins come."""
        with suppress(OSError):
            self.connection.send(None)

    def wait_for_end(self) -> None:
        """Wait until the process has ended; kill it if it takes too long."""
        self.process.join(_SECONDS_TO_END)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.connection.close()


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Block SIGINT and SIGTERM: a process starts that way; `_work_on_bins` unblocks them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stores_in_use() -> Stores | None:
    """Return this process's access to remote stores; None if it has not used any."""
    given = filesystems_for_tasks()
    if settings_in_use() is None and not given:
        return None
    return Stores(settings(), given)


def _segments_of(work: Bin) -> str:
    name = "path" if "path" in work.files.column_names else "log_uri"
    first, others = work.files[name][0].as_py(), work.files.num_rows - 1
    return f"{first} and {counted(others, 'other segment')}" if others else f"{first}"


def _silent(work: Bin, pid: int | None, seconds: float) -> str:
    """Return one line on a worker that does nothing."""
    return (
        f"{_segments_of(work)}: their worker process {pid} has done nothing for {seconds:g} s: it "
        "is stopped, or its disk or store does not answer; the command goes on waiting (kill -CONT "
        f"{pid} continues a stopped process)"
    )


def _lost(work: Bin, exit_code: int | None) -> str:
    """Return one line on a bin whose workers were killed."""
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        how = signal.Signals(-exit_code).name
    return (
        f"{_segments_of(work)}: their worker process was ended by {how}, {_BIN_ATTEMPTS} times; "
        "no file is half-written: if memory ran out, give fewer --workers; run the command again"
    )


def _work_on_bins(
    connection: "Connection",
    run: Callable[[int, pa.Table], Iterable[Any]],
    stores: Stores | None,
    counts: MutableSequence[int],
) -> None:
    """Answer each Bin that `connection` sends with a Done; return when it sends None."""
    # A progress bar replaces them with objects that have a lock; a fork may copy it locked.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    READ_SO_FAR.count_in(counts)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_process)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    failure: BaseException | None = None
    try:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if stores is not None:
            use_stores(*stores)
    except Exception as error:  # no thread is left, for example; the parent reports it
        failure = _portable(error)
    sending = threading.Lock()

    def send(answer: Done | Said) -> None:
        with sending:
            connection.send_bytes(pickle.dumps(answer))

    with nullcontext() if stores is None else tell_of_silence(lambda line: send(Said(line))):
        while (work_bin := connection.recv()) is not None:
            send(Done(work_bin.number, [], failure) if failure else _answer(work_bin, run))


def _results_of_bin(
    run: Callable[[int, pa.Table], Iterable[Result]], number: int, files: pa.Table
) -> list[Result]:
    """Return a bin's results. Its errors end a command with exit code 1, as on Spark.

    Raises BinError for a plain ValueError.
    """
    try:
        return list(run(number, files))
    except Kip33Error as error:
        error.exit_code = ExitCode.INCOMPLETE
        raise
    except ValueError as error:
        if type(error) is ValueError:  # pyarrow's errors are subclasses
            raise BinError(str(error)) from error
        raise


def _answer(work_bin: Bin, run: Callable[[int, pa.Table], Iterable[Any]]) -> Done:
    try:
        return Done(work_bin.number, _results_of_bin(run, work_bin.number, work_bin.files))
    except Exception as error:
        return Done(work_bin.number, [], _portable(error))


def _portable(error: Exception) -> BaseException:
    """Return the exception in a form that can be sent, with its trace as a note."""
    trace = "".join(traceback.format_exception(error))
    try:
        arrived: BaseException = pickle.loads(pickle.dumps(error))
    except Exception:
        return UnportableError(trace)
    arrived.add_note(f"in a worker process:\n{trace}")
    return arrived


def _end_with_parent() -> None:
    from multiprocessing.connection import wait
    from multiprocessing.process import parent_process

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
