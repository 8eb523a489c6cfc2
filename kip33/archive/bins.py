"""Bins: shares of a listing of even load, and what an engine does with them.

A plan knows what is to be done with each bin and what becomes of the results. An engine knows where
bins are worked on: `kip33.local` in processes of this machine, `kip33.spark` in tasks of a session.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.engine_name import EngineName
from kip33.rules.packing import bin_count, pack

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with (bins done, bins in all) while they are worked on."""


class Engine(Protocol):
    """What works on the bins of a plan."""

    name: EngineName
    workers: int  # that worked on bins side by side; 0 where there was nothing to do

    def run_on_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        reads_files: bool = True,
        parallelism: int | None = None,
        on_progress: Progress | None = None,
    ) -> list[Result]:
        """Call `run(bin number, its rows of files)` for each bin; return all results, bin by bin.

        `files` has a column `size_bytes`, which is what a file weighs if `run` reads it; otherwise
        all weigh the same. The heaviest bin starts first. `parallelism` is the number of bins,
        None: as the weights and the workers suggest. A bin whose worker is lost is tried again, so
        `run` may be called twice for one.
        """
        ...


def weights(files: pa.Table, *, reads_files: bool) -> npt.NDArray[np.int64]:
    """Return what each file of a listing weighs, in bytes to read."""
    sizes: npt.NDArray[np.int64] = pc.fill_null(files["size_bytes"], 0).to_numpy()
    return sizes if reads_files else np.zeros_like(sizes)


def rows_of_bins(
    sizes_bytes: npt.NDArray[np.int64], workers: int, parallelism: int | None
) -> list[npt.NDArray[np.int64]]:
    """Return the rows of each bin, the heaviest bin first."""
    bins = parallelism or bin_count(sizes_bytes, workers)
    return pack(sizes_bytes, max(1, min(bins, len(sizes_bytes))))
