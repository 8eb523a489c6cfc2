"""Bins, which are parts of a listing with even load, and the engines that process them.

A plan defines the work on each bin and the use of the results. An engine decides where bins are
processed: `kip33.local` in processes of this machine, `kip33.spark` in tasks of a session.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.rules.packing import bin_count, pack

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with (finished bins, all bins) while they are processed."""


class EngineName(StrEnum):
    """The engine that processes bins."""

    LOCAL = "local"
    SPARK = "spark"


class Engine(Protocol):
    """Processes the bins of a plan: as many as it was told, or chosen by weights and workers."""

    name: EngineName
    workers: int  # workers that processed bins in parallel; 0 without bins

    def prepare(self, files: pa.Table) -> None:
        """Start what these files need. What does not start fails before anything is written."""
        ...

    def run_on_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        reads_files: bool = True,
    ) -> list[Result]:
        """Call `run(bin number, its rows of files)` for each bin; return all results, bin by bin.

        If `run` reads the files, a file's weight is its `size_bytes` in `files`; otherwise all have
        the same weight. The heaviest bin starts first. A bin whose worker is lost is tried again,
        so `run` may be called twice for it.
        """
        ...


def weights(files: pa.Table, *, reads_files: bool) -> npt.NDArray[np.int64]:
    """Return the weight of each file of a listing, in bytes to read."""
    sizes: npt.NDArray[np.int64] = pc.fill_null(files["size_bytes"], 0).to_numpy()
    return sizes if reads_files else np.zeros_like(sizes)


def rows_of_bins(
    sizes_bytes: npt.NDArray[np.int64], workers: int, parallelism: int | None
) -> list[npt.NDArray[np.int64]]:
    """Return the rows of each bin, the heaviest bin first."""
    bins = parallelism or bin_count(sizes_bytes, workers)
    return pack(sizes_bytes, max(1, min(bins, len(sizes_bytes))))
