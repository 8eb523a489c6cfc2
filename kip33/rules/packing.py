"""Divide work evenly: files over bins by their load, segments over days.

Starting a task, opening a file and reading a byte each have a cost. A bin has a GiB or 20,000 files
at most, so the last one to end is a short tail, whatever number of cores has come by then. Files
are assigned largest first, each to the lightest bin ("longest processing time", D12). This is
within a third of the optimum, and in practice within a percent.

A `DailyShare` takes all segments within a few days. A segment's part depends on its own path alone.
New and deleted segments change nothing for the others, so a segment that stays is taken once in
each round, whatever happens to the archive.
"""

import heapq
import re
import zlib
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

FILE_COST_BYTES: Final = 1 << 20  # cost of opening, publishing and one row, as bytes read
LEAST_BIN_COST: Final = 1 << 30  # a process's start costs about as much as reading this
BIN_BYTES: Final = 1 << 30
BIN_FILES: Final = 20_000
MOST_BINS: Final = 20_000  # a driver of Spark remembers each task
LIGHT_BINS: Final = 64  # this number is made for cores, however light they are
LIGHT_BIN_COST: Final = 256 << 20  # a task's start is a small part of it
ONE_DAY_MS: Final = 86_400_000
_MOST_PARTS: Final = 366  # of a daily share
_SHARE: Final = re.compile(r"([0-9]{1,3})/([0-9]{1,3})", re.ASCII)


def cost_bytes(sizes_bytes: npt.NDArray[np.int64]) -> int:
    """Return the cost of all files, as bytes read."""
    return int(sizes_bytes.sum()) + FILE_COST_BYTES * len(sizes_bytes)


def bin_count(sizes_bytes: npt.NDArray[np.int64], cores: int) -> int:
    """Return the number of bins: of at most BIN_BYTES and BIN_FILES each, and one for each core.

    Beyond LIGHT_BINS a core needs work for its start: `cores` may be those of executors that are
    allowed, not there. More bins than cores are whole rounds of them. At most one bin per file.

    >>> [bin_count(np.full(files, size), cores=2) for files, size in ((9, 5), (9, 1 << 30))]
    [2, 9]
    """
    files = len(sizes_bytes)
    least = max(_ceil(int(sizes_bytes.sum()), BIN_BYTES), _ceil(files, BIN_FILES))
    worth = min(cores, max(LIGHT_BINS, cost_bytes(sizes_bytes) // LIGHT_BIN_COST))
    wanted = least if least <= worth else _ceil(least, cores) * cores
    return max(1, min(max(wanted, worth), files, MOST_BINS))


def _ceil(amount: int, of: int) -> int:
    return -(-amount // of)


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


class DailyShare(NamedTuple):
    """`taken` of `parts` parts a day, the next ones on the next day."""

    taken: int
    parts: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the share in a text such as `1/7`; ValueError for another text.

        >>> DailyShare.of("1/7")
        DailyShare(taken=1, parts=7)
        """
        found = _SHARE.fullmatch(text.strip())
        share = cls(int(found[1]), int(found[2])) if found else None
        if share is None or not 1 <= share.taken <= share.parts <= _MOST_PARTS:
            raise ValueError(
                f"{text!r} found, expected a share such as 1/7, from 1/{_MOST_PARTS} to 1/1"
            )
        return share

    def parts_on(self, now_ms: int) -> frozenset[int]:
        """Return the parts of the day, in UTC, that a time is in.

        >>> [sorted(DailyShare(2, 7).parts_on(day * ONE_DAY_MS)) for day in range(4)]
        [[0, 1], [2, 3], [4, 5], [0, 6]]
        """
        first = now_ms // ONE_DAY_MS * self.taken
        return frozenset((first + number) % self.parts for number in range(self.taken))

    def part_of(self, path: str) -> int:
        """Return the part of a segment by the path of its log below SOURCE.

        >>> DailyShare(1, 7).part_of("orders-0/00000000000000000042.log")
        4
        """
        return zlib.crc32(path.encode()) % self.parts

    def __str__(self) -> str:
        return f"{self.taken}/{self.parts}"
