"""The local engine: small work in this process, other work in worker processes.

Starting a worker costs as much as reading a GiB, mainly for loading compiled code. So smaller work
is done in this process. Threads would share one interpreter: many small segments, and large ones
with small batches, hold its lock most of the time.
"""

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa

from kip33.archive.bins import EngineName, Progress, Result, rows_of_bins, weights
from kip33.local.worker import Bin, results_of_bin
from kip33.local.worker_pool import SILENT_SECONDS, WorkerPool
from kip33.rules.packing import LEAST_BIN_COST, cost_bytes

CGROUPS: Final = Path("/sys/fs/cgroup")


class LocalEngine:
    """Processes bins in processes of this machine."""

    name: EngineName = EngineName.LOCAL

    def __init__(
        self,
        workers: int | None = None,
        *,
        tell: Callable[[str], None] | None = None,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Take the maximum number of workers; None: one for each core of this process.

        `tell` gets a line on a worker that does nothing for `silent_seconds` (`WorkerPool`).
        """
        self._most_workers = workers
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
        parallelism: int | None = None,
        on_progress: Progress | None = None,
    ) -> list[Result]:
        """See `kip33.archive.bins.Engine`.

        Raises WorkerLostError if a worker is killed twice, and WorkerStartError if one cannot be
        started. Errors of `run` are raised here: a plain ValueError as BinError, a Kip33Error with
        exit code 1.
        """
        if not files.num_rows:
            return []
        sizes = weights(files, reads_files=reads_files)
        most = self._most_workers or cores()
        is_small = self._most_workers is None and cost_bytes(sizes) <= LEAST_BIN_COST
        packed = rows_of_bins(sizes, 1 if is_small else most, parallelism)
        self.workers = 1 if is_small else min(most, len(packed))
        on_progress = on_progress or _tell_nobody
        on_progress(0, len(packed))
        if self.workers == 1:
            results: list[Result] = []
            for number, rows in enumerate(packed):
                results += results_of_bin(run, number, files.take(rows))
                on_progress(number + 1, len(packed))
            return results
        bins = (Bin(number, files.take(rows)) for number, rows in enumerate(packed))
        seconds = self._silent_seconds
        with WorkerPool(run, self.workers, tell=self._tell, silent_seconds=seconds) as pool:
            return pool.results_of(bins, len(packed), on_progress)


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


def _tell_nobody(done: int, total: int) -> None:
    pass
