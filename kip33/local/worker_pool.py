"""Worker processes of this machine: how they start, answer, are watched and end.

SIGTERM ends a worker, after the file that it is writing. It ends immediately when its parent
process has ended for any reason. It ignores SIGINT: Ctrl-C at a terminal reaches all processes of a
command, and the parent ends the others.
"""

import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import reduction, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess, SpawnProcess
from multiprocessing.process import parent_process
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pyarrow import fs

from kip33.errors import WorkerLostError, WorkerStartError, counted
from kip33.stores.filesystems import filesystems_for_tasks, use_stores
from kip33.stores.own_files import end_process
from kip33.stores.progress import READ_SO_FAR, Read
from kip33.stores.settings import settings, settings_in_use
from kip33.stores.watch import tell_of_silence

_ATTEMPTS: Final = 2  # per bin or part, if its worker is killed
_FILES_OF_A_BIN: Final = 128  # open at once; a forked worker also has its parent's files
_SECONDS_TO_END: Final = 5.0  # grace period of a worker after it was told to end
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)  # they end a command


class Stores(NamedTuple):
    """Access to remote stores: settings, including keys, and filesystems by their root."""

    settings: Mapping[str, str]
    given: Mapping[str, fs.FileSystem]


class Said(NamedTuple):
    """A worker's line for the user."""

    line: str


class UnportableError(Exception):
    """The trace of an exception that cannot be sent between processes."""


class Link:
    """A worker's end of the pipe to its parent; any thread may send."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection."""
        self._connection, self._sending = connection, threading.Lock()

    def receive(self) -> Any:
        """Return what the parent sends next."""
        return self._connection.recv()

    def send(self, answer: object, descriptor: int | None = None) -> None:
        """Send an answer, and an open file with it."""
        with self._sending:
            self._connection.send_bytes(pickle.dumps(answer))
            if descriptor is not None:
                reduction.send_handle(self._connection, descriptor, os.getppid())


Serve: TypeAlias = Callable[[Link, BaseException | None], None]
"""What a worker does until its parent sends None; with the error of its own start, if any."""


class WorkerPool:
    """The processes of some work; closing the pool ends them."""

    def __init__(
        self,
        serve: Serve,
        workers: int,
        *,
        tell: Callable[[str], None] | None,
        silent_seconds: float,
    ) -> None:
        """Take what workers do, and how many there may be.

        `tell` gets one line on a worker that has used no CPU time for `silent_seconds`, in which no
        worker that is waited for answered.
        """
        self.most, self.tell = workers, tell
        self._serve, self._silent_seconds = serve, silent_seconds if tell else None
        self._stores = _stores_in_use()
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all workers: idle ones with a message, the others with SIGTERM, then SIGKILL."""
        for worker in self._workers:
            if worker.work is None:
                worker.send(None)  # nothing more comes
            else:
                worker.process.terminate()
        for worker in self._workers:
            worker.wait_for_end()

    def start(self) -> list["Worker"]:
        """Start all workers before the first work is sent: a large bin waits until it is read.

        Raises WorkerStartError if the machine's limits allow fewer processes or open files.
        """
        for _ in range(self.most):
            worker = self._new_worker()
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if worker.connection.fileno() >= limit - min(_FILES_OF_A_BIN, limit // 2):
                raise self._not_started(f"only {limit} open files are allowed")
        return list(self._workers)

    def replace(self, lost: "Worker", attempts: int, error: Exception) -> "Worker":
        """Return a new worker for one that has ended; WorkerLostError after the last attempt."""
        self._workers.remove(lost)
        lost.wait_for_end()
        if attempts >= _ATTEMPTS:
            raise WorkerLostError(_lost(lost.work or "", lost.process.exitcode)) from error
        return self._new_worker()

    def _new_worker(self) -> "Worker":
        try:
            worker = Worker(self._serve, self._stores)
        except OSError as error:
            raise self._not_started(str(error.strerror or error)) from error
        self._workers.append(worker)
        return worker

    def _not_started(self, why: str) -> WorkerStartError:
        return WorkerStartError(
            f"{self.most} worker processes cannot be started: {why}; no file is half-written: "
            "give fewer --workers, or raise this machine's limits (ulimit -n, ulimit -u), and run "
            "the command again"
        )

    def answered(
        self, workers: Iterable["Worker"], seconds: float, on_wait: Callable[[], None] | None = None
    ) -> list["Worker"]:
        """Return those of some busy workers that have answered, when there are some.

        Meanwhile `on_wait` is called each time after `seconds`, and workers that do nothing are
        named.
        """
        by_connection = {worker.connection: worker for worker in workers}
        seconds = min(seconds, self._silent_seconds or seconds)
        silent_seconds = 0.0
        while not (answered := wait(list(by_connection), seconds)):
            if on_wait:
                on_wait()
            silent_seconds += seconds
            if self._silent_seconds and silent_seconds >= self._silent_seconds:
                self._name_silent(by_connection.values())
                silent_seconds = 0.0
        return [by_connection[one] for one in answered if isinstance(one, Connection)]

    def _name_silent(self, workers: Iterable["Worker"]) -> None:
        for worker in workers:
            before, worker.cpu_time = worker.cpu_time, worker.read_cpu_time()
            if self.tell and before and before == worker.cpu_time and not worker.is_named:
                worker.is_named = True
                self.tell(_silent(worker.work or "", worker.process.pid, self._silent_seconds or 0))

    def receive(self, worker: "Worker") -> Any:
        """Return a worker's next answer, None for a line; EOFError or OSError if it has ended."""
        answer = pickle.loads(worker.connection.recv_bytes())
        if not isinstance(answer, Said):
            return answer
        if self.tell:
            self.tell(answer.line)
        return None


class Worker:
    """A process and the parent's end of its pipe."""

    def __init__(self, serve: Serve, stores: Stores | None) -> None:
        """Start the process."""
        # A store's client has threads and connections that do not survive a fork.
        is_forked = stores is None and sys.platform == "linux"
        context: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
        self.connection, theirs = context.Pipe()
        self._counts = context.RawArray("q", 2)  # what it reads for its bin: files, bytes
        self.process: ForkProcess | SpawnProcess = context.Process(
            target=_work,
            args=(theirs, serve, stores, self._counts),
            name="kip33-worker",
            daemon=True,
        )
        self.work: str | None = None  # its segments, as a line names them; None: it is idle
        self.released: deque[int] = deque()  # files in memory, not yet told; any thread adds some
        self.cpu_time = ""
        self.is_named = False  # as silent, with the work that it has
        if not is_forked:  # else the first spawned process starts it, which unblocks signals
            resource_tracker.ensure_running()
        with signals_wait():
            self.process.start()
        theirs.close()

    def begin(self, first: str, segments: int) -> None:
        """Note that it works on segments, of which this is the first, and has not begun yet."""
        others = f" and {counted(segments - 1, 'other segment')}" if segments > 1 else ""
        self.work, self.is_named = first + others, False
        self._counts[:] = [0, 0]
        self.cpu_time = self.read_cpu_time()

    def send(self, message: object) -> None:
        """Send a message; a worker that has ended is noticed when its answer is read."""
        with suppress(OSError):
            self.connection.send(message)

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

    def wait_for_end(self) -> None:
        """Wait until the process has ended; kill it if it takes too long."""
        self.process.join(_SECONDS_TO_END)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.connection.close()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait while a process starts; `_work` unblocks them in the process.

    They are blocked in this thread and, thereby, in the new process. Another thread may still take
    one: Python then calls the handler in the main thread, which may be here, with half of what a
    spawned process needs sent. So the handlers wait, too.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    is_main = threading.current_thread() is threading.main_thread()
    arrived: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        for number in _SIGNALS if is_main else ():
            signal.signal(number, lambda came, _: arrived.append(came))
        yield
    finally:
        for number, handler in before.items() if is_main else ():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for came in arrived:
            signal.raise_signal(came)


def _stores_in_use() -> Stores | None:
    """Return this process's access to remote stores; None if it has not used any."""
    given = filesystems_for_tasks()
    if settings_in_use() is None and not given:
        return None
    return Stores(settings(), given)


def _silent(work: str, pid: int | None, seconds: float) -> str:
    """Return one line on a worker that does nothing."""
    return (
        f"{work}: their worker process {pid} has done nothing for {seconds:g} s: it "
        "is stopped, or its disk or store does not answer; the command goes on waiting (kill -CONT "
        f"{pid} continues a stopped process)"
    )


def _lost(work: str, exit_code: int | None) -> str:
    """Return one line on work whose workers were killed."""
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        how = signal.Signals(-exit_code).name
    return (
        f"{work}: their worker process was ended by {how}, {_ATTEMPTS} times; "
        "no file is half-written: if memory ran out, give fewer --workers; run the command again"
    )


def _work(
    connection: Connection, serve: Serve, stores: Stores | None, counts: MutableSequence[int]
) -> None:
    """Serve the parent until it sends None."""
    # A progress bar replaces them with objects that have a lock; a fork may copy it locked.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    READ_SO_FAR.count_in(counts)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_process)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    failure: BaseException | None = None
    try:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if stores is not None:
            use_stores(*stores)
    except Exception as error:  # no thread is left, for example; the parent reports it
        failure = portable(error)
    link = Link(connection)
    with nullcontext() if stores is None else tell_of_silence(lambda line: link.send(Said(line))):
        serve(link, failure)


def portable(error: Exception) -> BaseException:
    """Return the exception in a form that can be sent, with its trace as a note."""
    trace = "".join(traceback.format_exception(error))
    try:
        arrived: BaseException = pickle.loads(pickle.dumps(error))
    except Exception:
        return UnportableError(trace)
    arrived.add_note(f"in a worker process:\n{trace}")
    return arrived


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
