"""Offsets that no segment of a replica has, between two segments that it has.

A broker's log has every offset from its first segment to its end: a segment begins where the one
before it ends. Only compaction removes offsets. What is missing at the front was deleted by
retention, which is normal.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

UNKNOWN_END: Final = -1  # as end: it is not known where the segment ends

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class HoleKind(StrEnum):
    """How sure it is that records are missing; each member is its own text."""

    CERTAIN = "certain"  # no segment has these offsets
    POSSIBLE = "possible"  # the topic is compacted, so there may never have been a segment
    AFTER_DAMAGE = "after damage"  # the segment before is damaged, so its end is not known
    FILLED = "filled"  # the segments of other replicas have all of them


KINDS: Final = tuple(HoleKind)
MISSING: Final = (HoleKind.CERTAIN, HoleKind.POSSIBLE, HoleKind.AFTER_DAMAGE)


class HoleTotals(NamedTuple):
    """Numbers of holes by kind, and offsets that are or may be missing: those not filled."""

    by_hole: dict[str, int]
    missing_offsets: int

    def as_text(self) -> str:
        """Return one line for a table.

        >>> HoleTotals({"certain": 2, "filled": 1}, 70).as_text()
        '2 certain, 1 filled; 70 offsets are missing'
        """
        counts = ", ".join(f"{count:,} {hole}" for hole, count in self.by_hole.items())
        return f"{counts}; {self.missing_offsets:,} offsets are missing"


def missing_holes(by_hole: Mapping[str, int]) -> int:
    """Return the number of holes that are not filled."""
    return sum(by_hole.get(kind, 0) for kind in MISSING)


class SegmentEnds(NamedTuple):
    """Segments, sorted by partition, replica and base offset; one element for each in a column."""

    partitions: Int64s  # numbers; the replicas of a partition have the same one
    replicas: Int64s  # numbers, different for each replica of each partition
    base_offsets: Int64s
    ends: Int64s  # exclusive; UNKNOWN_END
    damaged: Mask  # the log is not valid to its end
    compacted: Mask  # its topic is compacted, or the segment has fewer records than offsets


class Holes(NamedTuple):
    """Holes, in the order of the segments; one element for each in a column."""

    after: Int64s  # the segment before the hole: its position in the columns
    before: Int64s  # the segment after it
    first_offsets: Int64s
    ends: Int64s  # exclusive
    kinds: npt.NDArray[np.uint8]  # positions in KINDS


def find_holes(segments: SegmentEnds) -> Holes:
    """Return the holes of all replicas.

    A segment whose end is not known gives no hole, unless it is damaged: then it ends nowhere, and
    what follows its base offset is the hole.

    >>> of = SegmentEnds(
    ...     partitions=np.array([0, 0, 0]), replicas=np.array([0, 0, 0]),
    ...     base_offsets=np.array([10, 20, 35]), ends=np.array([20, 30, 40]),
    ...     damaged=np.zeros(3, bool), compacted=np.zeros(3, bool),
    ... )
    >>> found = find_holes(of)
    >>> found.first_offsets.tolist(), found.ends.tolist(), KINDS[found.kinds[0]].value
    ([30], [35], 'certain')
    """
    bases, replicas = segments.base_offsets, segments.replicas
    rows = len(bases)
    is_open = (segments.ends == UNKNOWN_END) & ~segments.damaged
    ends = np.where(segments.ends == UNKNOWN_END, bases, segments.ends)
    so_far = _largest_so_far(replicas, ends)
    after = np.arange(rows - 1) if rows else np.zeros(0, np.int64)
    before = after + 1
    is_hole = (replicas[after] == replicas[before]) & (so_far[after] < bases[before])
    is_hole &= ~is_open[after]
    after, before = after[is_hole], before[is_hole]
    kinds = np.full(len(after), KINDS.index(HoleKind.CERTAIN), np.uint8)
    sparse = np.unique(replicas[segments.compacted])
    kinds[np.isin(replicas[after], sparse)] = KINDS.index(HoleKind.POSSIBLE)
    kinds[segments.damaged[after]] = KINDS.index(HoleKind.AFTER_DAMAGE)
    found = Holes(after, before, so_far[after], bases[before], kinds)
    found.kinds[_is_filled(segments, ends, found)] = KINDS.index(HoleKind.FILLED)
    return found


def _largest_so_far(replicas: Int64s, ends: Int64s) -> Int64s:
    """Return for each segment the largest end of its replica up to it."""
    if not len(ends):
        return ends
    begins = np.ones(len(ends), bool)
    begins[1:] = replicas[1:] != replicas[:-1]
    # A rank and the replica's number fit an int64.
    values, ranks = np.unique(ends, return_inverse=True)
    keys = np.cumsum(begins) * len(values) + ranks.reshape(-1)
    largest: Int64s = values[np.maximum.accumulate(keys) % len(values)]
    return largest


def _is_filled(segments: SegmentEnds, ends: Int64s, holes: Holes) -> Mask:
    """Return which holes are filled by all replicas of the partition together."""
    wanted = np.unique(segments.partitions[holes.after])
    chosen = np.flatnonzero(np.isin(segments.partitions, wanted) & (ends > segments.base_offsets))
    order = chosen[np.lexsort((segments.base_offsets[chosen], segments.partitions[chosen]))]
    partitions, bases = segments.partitions[order], segments.base_offsets[order]
    largest = _largest_so_far(partitions, ends[order])
    begins = np.ones(len(order), bool)  # of an interval without a gap
    begins[1:] = (partitions[1:] != partitions[:-1]) | (bases[1:] > largest[:-1])
    interval = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    # The last segment that begins at or before a hole: a rank and the partition fit an int64.
    values = np.unique(bases)
    keys = partitions * (len(values) + 1) + np.searchsorted(values, bases)
    of_holes = segments.partitions[holes.after]
    ranks = np.searchsorted(values, holes.first_offsets, side="right") - 1
    at = np.searchsorted(keys, of_holes * (len(values) + 1) + ranks, side="right") - 1
    is_there = at >= 0
    at = np.maximum(at, 0)
    if not len(order):
        return np.zeros(len(at), bool)
    reached: Mask = largest[last[interval[at]]] >= holes.ends
    found: Mask = is_there & (partitions[at] == of_holes) & reached
    return found
