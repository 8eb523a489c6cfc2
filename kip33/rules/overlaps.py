"""Segments of one partition that share offsets: repeated uploads, replicas in one place, or
segments that two leaders wrote differently.

Each of these segments may be correct, so this is a finding about the archive. Rows are compared
with earlier ones, by base offset:

    SAME_BASE   an earlier row begins at the same offset
    OVERLAP     it begins at or before the last offset of an earlier row
"""

from typing import Final

import numpy as np
import numpy.typing as npt

APART, SAME_BASE, OVERLAP = range(3)
NAMES: Final = {SAME_BASE: "same base offset", OVERLAP: "overlapping"}
UNKNOWN_OFFSET: Final = -1  # as last offset: the row covers no offsets

Int64s = npt.NDArray[np.int64]


def overlaps(
    partitions: Int64s, base_offsets: Int64s, last_offsets: Int64s
) -> npt.NDArray[np.uint8]:
    """Return for each row APART, SAME_BASE or OVERLAP.

    `partitions` are numbers. The rows of one partition are adjacent and sorted by base offset; of
    equal ones the first is the earlier. Last offsets are inclusive or UNKNOWN_OFFSET.

    >>> overlaps(np.array([1, 1, 1, 2]), np.array([0, 5, 5, 7]), np.array([5, 9, 9, 8])).tolist()
    [0, 2, 1, 0]
    """
    rows = len(partitions)
    found = np.full(rows, APART, np.uint8)
    if rows < 2:
        return found
    begins = np.ones(rows, bool)  # a partition
    begins[1:] = partitions[1:] != partitions[:-1]
    # The largest last offset so far, per partition: a rank and the partition's number fit an int64.
    values, ranks = np.unique(last_offsets, return_inverse=True)
    keys = np.cumsum(begins) * len(values) + ranks.reshape(-1)
    largest = values[np.maximum.accumulate(keys) % len(values)]
    before = ~begins[1:]
    found[1:][before & (base_offsets[1:] <= largest[:-1])] = OVERLAP
    found[1:][before & (base_offsets[1:] == base_offsets[:-1])] = SAME_BASE
    return found
