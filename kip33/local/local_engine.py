"""The local engine: small work in this process, other work in worker processes.

Starting a worker costs as much as reading a GiB, mainly for loading compiled code. So smaller work
is done in this process. Threads would share one interpreter: many small segments, and large ones
with small batches, hold its lock most of the time. A worker processes one bin at a time. A worker
that is killed is replaced.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.archive.bins import (
    READING_LOGS,
    BinProgress,
    EngineName,
    Result,
    Work,
    rows_of_bins,
    weights,
)
from kip33.archive.common_options import LocalEngineRun
from kip33.errors import ExitCode, Kip33Error
from kip33.rules.packing import LEAST_BIN_COST, cost_bytes
from kip33.stores.progress import (
    READ_SO_FAR,
    OnProgress,
    Read,
    called_until_the_end,
    tell_nobody,
)

if TYPE_CHECKING:
    from kip33.local.worker_pool import Link, Worker, WorkerPool

SILENT_SECONDS: Final = 60.0  # a worker that has done nothing for so long is named
CGROUPS: Final = Path("/sys/fs/cgroup")
_NAMES: Final = ("path", "log_uri", "index_uri")  # columns, of which a bin's files have one
_TOLD_SECONDS: Final = 0.25  # between two calls of on_progress
Part = TypeVar("Part")
Piece = TypeVar("Piece")


class Bin(NamedTuple):
    """A number and its rows of files."""

    number: int
    files: pa.Table


class BinError(Exception):
    """A plain ValueError of a bin: a bug, which a command must not take for wrong usage."""


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
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Take the maximum number of workers; None: one for each core of this process.

        `parallelism` is the number of bins; None: chosen from their weights and the workers.
        `tell` gets a line on a worker that does nothing for `silent_seconds` (`WorkerPool`).
        """
        self._most_workers, self._parallelism = workers, parallelism
        self.on_progress = on_progress
        self._tell, self._silent_seconds = tell, silent_seconds
        self.workers = 0

    @classmethod
    def of(cls, options: LocalEngineRun, tell: Callable[[str], None]) -> Self:
        """Return the engine of a function's options."""
        how = (options["workers"], options["parallelism"], options["on_progress"])
        return cls(*how, tell=tell)

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
        most = self.workers_for(sizes)
        bin_rows = rows_of_bins(sizes, most, self._parallelism)
        self.workers = min(most, len(bin_rows))
        progress = BinProgress(sizes, bin_rows, work, self.on_progress)
        progress.tell(())
        if self.workers == 1:
            for number, rows in enumerate(bin_rows):
                tell = partial(_tell_of_bin, progress, number, READ_SO_FAR.total())
                with called_until_the_end(tell, _TOLD_SECONDS):
                    results = _results_of_bin(run, number, files.take(rows))
                progress.tell(range(number + 1))
                yield number, results
            return
        bins = (Bin(number, files.take(rows)) for number, rows in enumerate(bin_rows))
        with self._pool(partial(_serve_bins, run), self.workers) as pool:
            yield from _bins_of_workers(pool, bins, len(bin_rows), progress)

    def workers_for(self, sizes_bytes: npt.NDArray[np.int64]) -> int:
        """Return the most workers for files of these sizes: 1 if a second one would not pay."""
        if self._most_workers is None and cost_bytes(sizes_bytes) <= LEAST_BIN_COST:
            return 1
        return self._most_workers or cores()

    def run_in_order(
        self,
        parts: Iterable[Part],
        run: Callable[[Part], Iterable[Piece]],
        workers: int,
        segments_of: Callable[[Part], tuple[str, int]],
    ) -> Generator[tuple[Part, Iterator[Piece]], None, None]:
        """Yield each part with the pieces that `run` gives for it in a worker, in order.

        Pieces that are not taken are dropped. A part whose worker is lost is tried again, so `run`
        must give the same pieces again. `segments_of` gives the name of a part's first segment, and
        how many it has. Errors of `run` are raised here, when the pieces before are taken;
        WorkerLostError and WorkerStartError as in `run_on_bins`. Closing it ends the workers.
        """
        from kip33.local.ordered_parts import OrderedRun, serve_parts

        self.workers = workers
        with self._pool(partial(serve_parts, run), workers) as pool:
            yield from OrderedRun(pool, segments_of).in_order(parts)

    def _pool(
        self, serve: "Callable[[Link, BaseException | None], None]", workers: int
    ) -> "WorkerPool":
        from kip33.local.worker_pool import WorkerPool

        return WorkerPool(serve, workers, tell=self._tell, silent_seconds=self._silent_seconds)


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


def _bins_of_workers(
    pool: "WorkerPool", bins: Iterable[Bin], total: int, progress: BinProgress
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the results of each bin when a worker has done it.

    Raises errors of `run`, WorkerLostError for a bin whose workers are killed, and WorkerStartError
    if the machine's limits allow fewer processes or open files.
    """
    waiting, idle = iter(bins), pool.start()[::-1]
    busy: dict[Worker, Bin] = {}
    attempts: Counter[int] = Counter()
    finished: set[int] = set()

    def begin(worker: "Worker", work_bin: Bin) -> None:
        number, files = work_bin
        attempts[number] += 1
        busy[worker] = work_bin
        name = next((one for one in _NAMES if one in files.column_names), files.column_names[0])
        worker.begin(str(files[name][0].as_py()), files.num_rows)
        worker.send(work_bin)

    def tell_progress() -> None:
        progress.tell(finished, {one.number: worker.read() for worker, one in busy.items()})

    while len(finished) < total:
        while idle and (work_bin := next(waiting, None)) is not None:
            begin(idle.pop(), work_bin)
        for worker in pool.answered(busy, _TOLD_SECONDS, tell_progress):
            work_bin = busy[worker]
            try:
                answer: list[Any] | BaseException | None = pool.receive(worker)
            except (EOFError, OSError) as error:  # it has ended, maybe inside its answer
                del busy[worker]
                begin(pool.replace(worker, attempts[work_bin.number], error), work_bin)
                continue
            if answer is None:  # it has said a line
                continue
            del busy[worker]
            worker.work = None
            idle.append(worker)
            if isinstance(answer, BaseException):
                raise answer
            finished.add(work_bin.number)
            tell_progress()
            yield work_bin.number, answer


def _serve_bins(
    run: Callable[[int, pa.Table], Iterable[Any]], link: "Link", failure: BaseException | None
) -> None:
    """Answer each Bin that the parent sends with results or an error, until it sends None."""
    from kip33.local.worker_pool import portable

    while (work_bin := link.receive()) is not None:
        answer: list[Any] | BaseException | None = failure
        try:
            if not failure:
                answer = _results_of_bin(run, *work_bin)
        except Exception as error:
            answer = portable(error)
        link.send(answer)


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
