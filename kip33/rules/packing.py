"""Pack files into a few bins of even load, the heaviest first (D12).

Starting a task, opening a file and reading a byte each have a cost. Files are assigned largest
first, each to the lightest bin ("longest processing time"). This is within a third of the optimum,
and in practice within a percent.
"""

import heapq
from typing import Final

import numpy as np
import numpy.typing as npt

FILE_COST_BYTES: Final = 1 << 20  # cost of opening, publishing and one row, as bytes read
BINS_PER_CORE: Final = 3  # a core that finishes early gets another bin
LEAST_BIN_COST: Final = 1 << 30  # a task's start costs about as much as reading this
BIN_BYTES: Final = 16 << 30


def cost_bytes(sizes_bytes: npt.NDArray[np.int64]) -> int:
    """Return the cost of all files, as bytes read."""
    return int(sizes_bytes.sum()) + FILE_COST_BYTES * len(sizes_bytes)


def bin_count(sizes_bytes: npt.NDArray[np.int64], cores: int) -> int:
    """Return the number of bins: three per core, fewer if they would be light, more if they would
    exceed 16 GiB, and at most one per file.

    >>> [bin_count(np.full(files, size), cores=2) for files, size in ((9, 5), (9, 1 << 30))]
    [2, 6]
    """
    light = min(max(cost_bytes(sizes_bytes) // LEAST_BIN_COST, cores), BINS_PER_CORE * cores)
    wanted = max(light, -(-int(sizes_bytes.sum()) // BIN_BYTES))
    return max(1, min(wanted, len(sizes_bytes)))


def pack(sizes_bytes: npt.NDArray[np.int64], bins: int) -> list[npt.NDArray[np.int64]]:
    """Return the row numbers of each bin, heaviest bin first; rows of a bin in the given order.

    >>> [rows.tolist() for rows in pack(np.array([1, 9, 5, 4]) << 20, 2)]
    [[0, 1], [2, 3]]
    """
    loads = [(0, number) for number in range(bins)]
    bin_of = np.empty(len(sizes_bytes), np.int64)
    costs = sizes_bytes + FILE_COST_BYTES
    for row in np.argsort(-costs, kind="stable").tolist():
        load, number = loads[0]
        bin_of[row] = number
        heapq.heapreplace(loads, (load + int(costs[row]), number))
    by_load = sorted(loads, key=lambda item: (-item[0], item[1]))
    rows_by_bin = np.split(
        np.argsort(bin_of, kind="stable"), np.cumsum(np.bincount(bin_of, minlength=bins))[:-1]
    )
    return [rows_by_bin[number] for _, number in by_load]
