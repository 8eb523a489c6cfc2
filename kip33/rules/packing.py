"""Divide work: consecutive files into bins, and segments over days.

Starting a task, opening a file and reading a byte each have a cost. A bin is a range of consecutive
files. The first bins are large, so that few tasks are started. Later bins are smaller, so that all
workers end at about the same time, although some are slower than others.

A `DailyShare` takes all segments within a few days. A segment's part depends on its own path alone.
New and deleted segments change nothing for the others, so a segment that stays is taken once in
each round, whatever happens to the archive.
"""

import re
import zlib
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

FILE_COST_BYTES: Final = 1 << 20  # cost of opening, publishing and one row, as bytes read
LEAST_BIN_COST: Final = 1 << 30  # a process's start costs about as much as reading this
BIN_FILES: Final = 20_000
MOST_BIN_COST: Final = BIN_FILES * FILE_COST_BYTES  # 19.5 GiB, which a lost task repeats
MOST_BINS: Final = 20_000  # a driver of Spark remembers each task
LIGHT_BINS: Final = 64  # this number is made for cores, however light they are
LIGHT_BIN_COST: Final = 256 << 20  # a worker's start of a bin is a small part of it
ONE_DAY_MS: Final = 86_400_000
_ROUNDS: Final = 4  # bins of a core's share of the work that is left
_MOST_PARTS: Final = 366  # of a daily share
_SHARE: Final = re.compile(r"([0-9]{1,3})/([0-9]{1,3})", re.ASCII)

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers of a table."""


def cost_bytes(sizes_bytes: npt.NDArray[np.int64]) -> int:
    """Return the cost of all files, as bytes read."""
    return int(sizes_bytes.sum()) + FILE_COST_BYTES * len(sizes_bytes)


def consecutive_bins(
    sizes_bytes: npt.NDArray[np.int64], cores: int, least_cost_bytes: int
) -> list[Rows]:
    """Return the rows of each bin: consecutive ones, in order, in bins that become smaller.

    A bin has a fourth of a core's share of the work that is left, but at least `least_cost_bytes`.
    If these are few bins, they are even, in whole rounds of the cores. A bin costs at most
    MOST_BIN_COST, so it has at most BIN_FILES rows; bins are larger only where they would be more
    than MOST_BINS. A row is in the bin that contains the middle of its cost.

    >>> rows = consecutive_bins(np.full(100, 255 << 20), cores=2, least_cost_bytes=1 << 30)
    >>> [len(of_bin) for of_bin in rows]
    [12, 11, 10, 8, 8, 6, 6, 5, 4, 4, 4, 4, 4, 4, 4, 4, 2]
    """
    left = cost = cost_bytes(sizes_bytes)
    even = _even_bins_worth(cost, cores, least_cost_bytes)
    if even <= _ROUNDS * cores:
        return even_bins(sizes_bytes, min(even, MOST_BINS))
    ends: list[int] = []
    while left:
        bin_cost = min(max(left // (_ROUNDS * cores), least_cost_bytes), MOST_BIN_COST)
        left -= min(left, max(bin_cost, _ceil(left, MOST_BINS - len(ends))))
        ends.append(cost - left)
    bin_of = np.searchsorted(ends, _middles(sizes_bytes), side="right")
    return np.split(np.arange(len(sizes_bytes)), np.flatnonzero(np.diff(bin_of)) + 1)


def even_bins(sizes_bytes: npt.NDArray[np.int64], bins: int) -> list[Rows]:
    """Return the rows of each of `bins` even bins: consecutive ones, in order, at least one row.

    >>> [rows.tolist() for rows in even_bins(np.array([1, 9, 5, 4]) << 20, 2)]
    [[0, 1], [2, 3]]
    """
    files = len(sizes_bytes)
    bins = max(1, min(bins, files))
    numbers = np.arange(1, bins)
    starts = np.searchsorted(_middles(sizes_bytes), cost_bytes(sizes_bytes) / bins * numbers)
    starts = np.maximum.accumulate(np.maximum(starts - numbers, 0)) + numbers
    return np.split(np.arange(files), np.minimum(starts, files - bins + numbers))


def _even_bins_worth(cost: int, cores: int, least_cost_bytes: int) -> int:
    """Return into how many even bins work is divided: one for each core, if it is worth its start.

    Beyond LIGHT_BINS a core needs work for its start: `cores` may be those of executors that are
    allowed, not there. More bins than cores are whole rounds of them.
    """
    worth = min(cores, max(LIGHT_BINS, cost // LIGHT_BIN_COST))
    bins = max(worth, _ceil(cost, least_cost_bytes))
    return bins if bins <= cores else _ceil(bins, cores) * cores


def _middles(sizes_bytes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where the middle of each file's cost is in the sum of all costs."""
    costs = sizes_bytes + FILE_COST_BYTES
    middles: npt.NDArray[np.int64] = np.cumsum(costs) - costs // 2
    return middles


def _ceil(amount: int, of: int) -> int:
    return -(-amount // of)


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
