"""Bins, which are ranges of consecutive rows of a listing, and the engines that process them.

A plan defines the work on each bin and the use of the results. An engine decides where bins are
processed: `kip33.local` in processes of this machine, `kip33.spark` in tasks of a session.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.errors import NotSeenError, counted, without_secrets
from kip33.rules.packing import LIGHT_BIN_COST, Rows, consecutive_bins, even_bins
from kip33.rules.policies import human_bytes
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, Phase, Progress, Read

Result = TypeVar("Result")
_MOST_LOOKED_AT: Final = 100  # files, for one that the driver sees
# What is read in ten times the seconds that a task of Spark takes to start.
_LOCAL_TASK_COST: Final = 4 << 30
_OBJECT_STORE_TASK_COST: Final = 128 << 20
_TASK_COST: Final = 1 << 30  # of HDFS and other stores


class EngineName(StrEnum):
    """The engine that processes bins."""

    LOCAL = "local"
    SPARK = "spark"


class Work(NamedTuple):
    """What is done in bins: as progress names it, and what each machine must see for it."""

    phase: Phase
    unit: str = "segment"  # of which a row of the bins' table is one
    has_bytes: bool = True  # the rows' sizes are bytes that are read
    source: Location | None = None  # below which the rows' `path`s are; or they have a `log_uri`
    marks: tuple[Location, ...] = ()  # files that the driver sees, so each machine must
    command: str = ""  # for whom it is done

    def text(self, bins: int, size_bytes: int) -> str:
        """Return what Spark's UI shows: `kip33 build: 120 bins, 300.0 GiB of hdfs:///archive`."""
        parts = [counted(bins, "bin")]
        if size_bytes:
            where = f" of {without_secrets(self.source.uri)}" if self.source else ""
            parts.append(human_bytes(size_bytes) + where)
        return f"kip33 {self.command or self.phase}: {', '.join(parts)}"

    @property
    def counts_files(self) -> bool:
        """Return whether a file that was read is a row of the table."""
        return self.unit == "segment"


READING_LOGS: Final = Work(Phase.READING_LOGS)


class Engine(Protocol):
    """Processes the bins of a plan: as many as it was told, or chosen by weights and workers."""

    name: EngineName
    workers: int  # workers that processed bins in parallel; 0 without bins
    on_progress: OnProgress

    def prepare(self, files: pa.Table) -> None:
        """Start what these files need. What does not start fails before anything is written."""
        ...

    def run_on_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        reads_files: bool = True,
        work: Work = READING_LOGS,
    ) -> list[Result]:
        """Call `run(bin number, its rows of files)` for each bin; return all results, bin by bin.

        A bin has consecutive rows of `files`, and bins start in the order of the table. If `run`
        reads the files, a file's weight is its `size_bytes` in `files`; otherwise all have the same
        weight. A bin whose worker is lost is tried again, so `run` may be called twice for it.
        `on_progress` is told how far the `work` is.
        """
        ...

    def stream_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        work: Work = READING_LOGS,
    ) -> Generator[Result, None, None]:
        """Yield what `run_on_bins` returns in any order; no more than a bin's results are held."""
        ...


def require_seen(work: Work, files: pa.Table) -> None:
    """Raise NotSeenError, with this machine's name, if it lacks what the driver has listed.

    Each task on a cluster asks this first: a log on a disk that is not mounted is no damaged log.
    All marks must be there and, of the directories of the bin's logs in one log directory, at least
    one: a log or a partition may have been deleted since. Stores are the same everywhere.
    """
    missing = [mark.path for mark in work.marks if mark.is_local and not os.path.lexists(mark.path)]
    by_log_dir: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for directory in _directories(work, files):
        by_log_dir[directory.parent.path][directory.path] = None
    for paths in by_log_dir.values():
        if not any(map(os.path.isdir, paths)):
            missing.append(min(paths))
    if missing:
        raise NotSeenError(
            f"machine {socket.gethostname()} does not see {missing[0]}, which the driver sees: "
            "mount it at the same path on all machines that run tasks, or give --engine local"
        )


def first_seen(uris: Iterable[str | None]) -> tuple[Location, ...]:
    """Return the first local file of the first hundred that is there, as a mark; or none."""
    places = map(Location.of, islice(filter(None, uris), _MOST_LOOKED_AT))
    return tuple(islice((one for one in places if one.is_local and os.path.lexists(one.path)), 1))


def _directories(work: Work, files: pa.Table) -> Iterator[Location]:
    """Yield the local directory of each log of a bin."""
    if "log_uri" in files.column_names:
        logs = map(Location.of, filter(None, files["log_uri"].to_pylist()))
    elif work.source:
        logs = map(work.source.child, filter(None, files["path"].to_pylist()))
    else:
        return
    for log in logs:
        if log.is_local:
            yield log.parent


class BinProgress:
    """Adds up how far the bins of some work are, in files and bytes, and tells it."""

    def __init__(
        self,
        sizes_bytes: npt.NDArray[np.int64],
        bin_rows: Sequence[npt.NDArray[np.int64]],
        work: Work,
        on_progress: OnProgress,
    ) -> None:
        """Take the weight of each file, the files of each bin, and who is told."""
        self._work, self._on_progress = work, on_progress
        loads = [int(sizes_bytes[rows].sum()) if work.has_bytes else 0 for rows in bin_rows]
        self._bins = [Read(len(rows), load) for rows, load in zip(bin_rows, loads, strict=True)]
        self._total = _sum_of(self._bins)
        self._most = Read()

    def tell(self, finished: Collection[int], under_way: Mapping[int, Read] | None = None) -> None:
        """Tell how far all is: the finished bins, and what was read for others.

        A bin that is begun again takes nothing back, and one that reads a file twice counts no more
        than its size.
        """
        parts = [self._bins[number] for number in finished]
        for number, read in (under_way or {}).items():
            files = read.files if self._work.counts_files else 0
            parts.append(Read(*map(min, self._bins[number], (files, read.size_bytes))))
        self._most = Read(*map(max, self._most, _sum_of(parts)))
        total_bytes = self._total.size_bytes or None
        self._on_progress(
            Progress(
                self._work.phase,
                self._most.files,
                self._total.files,
                self._most.size_bytes if total_bytes else 0,
                total_bytes,
                self._work.unit,
            )
        )


def _sum_of(parts: Iterable[Read]) -> Read:
    files = size_bytes = 0
    for part in parts:
        files, size_bytes = files + part.files, size_bytes + part.size_bytes
    return Read(files, size_bytes)


def weights(files: pa.Table, *, reads_files: bool) -> npt.NDArray[np.int64]:
    """Return the weight of each file of a listing, in bytes to read."""
    import pyarrow.compute as pc

    sizes: npt.NDArray[np.int64] = pc.fill_null(files["size_bytes"], 0).to_numpy()
    return sizes if reads_files else np.zeros_like(sizes)


def rows_of_bins(
    sizes_bytes: npt.NDArray[np.int64],
    workers: int,
    parallelism: int | None,
    least_cost_bytes: int = LIGHT_BIN_COST,
) -> list[Rows]:
    """Return the rows of each bin, in order; `parallelism` is the number of bins."""
    if parallelism:
        return even_bins(sizes_bytes, parallelism)
    return consecutive_bins(sizes_bytes, workers, least_cost_bytes)


def least_task_cost(files: pa.Table, work: Work, *, reads_files: bool) -> int:
    """Return the work for which a task of Spark is worth its start, by the store of the logs.

    >>> def of(log: str) -> int:
    ...     files = pa.table({"log_uri": [log]})
    ...     return least_task_cost(files, READING_LOGS, reads_files=True) >> 20
    >>> of("/archive/t-0/0.log"), of("hdfs:///archive/t-0/0.log"), of("s3://bucket/t-0/0.log")
    (4096, 1024, 128)
    """
    log = work.source
    if not log and "log_uri" in files.column_names and files["log_uri"][0].is_valid:
        log = Location.of(files["log_uri"][0].as_py())
    if not log or not reads_files:
        return LIGHT_BIN_COST
    if log.is_local:
        return _LOCAL_TASK_COST
    return _OBJECT_STORE_TASK_COST if log.is_object_store else _TASK_COST
