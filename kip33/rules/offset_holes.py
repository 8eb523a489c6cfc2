"""Compare the segments and replicas of a partition by their offsets.

Holes: a broker's log has every offset from its first segment to its end, because a segment begins
where the one before it ends. Only compaction removes offsets. What is missing at the front was
deleted by retention, which is normal. `find_holes` finds offsets that no segment of a replica has,
between two segments that it has.

Overlaps: segments of one partition that share offsets are repeated uploads, replicas in one place,
or segments that two leaders wrote differently. Each of them may be correct, so this is a finding
about the archive.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.errors import counted
from kip33.rules.retention import running_max

UNKNOWN_END: Final = -1  # as end: it is not known where the segment ends
UNKNOWN_OFFSET: Final = -1  # as last offset: the row covers no offsets
APART, SAME_BASE, OVERLAP = range(3)
NAMES: Final = {SAME_BASE: "same base offset", OVERLAP: "overlapping"}

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class HoleKind(StrEnum):
    """How sure it is that records are missing; each member is its own text."""

    CERTAIN = "certain"  # no segment has these offsets
    POSSIBLE = "possible"  # the topic is compacted, so there may never have been a segment
    AFTER_DAMAGE = "after damage"  # the segment before is damaged, so its end is not known
    FILLED = "filled"  # the segments of other replicas have all of them


class Hole(NamedTuple):
    """Offsets that no segment of a replica has, between two that it has."""

    first_offset: int
    end: int  # exclusive
    kind: HoleKind

    def __str__(self) -> str:
        """What is said of the segment after it."""
        return f"offsets {self.first_offset} to {self.end - 1} are missing before it"


def is_compacted(hole: Hole | None) -> bool:
    """Whether compaction may have left a hole; False without one."""
    return hole is not None and hole.kind == HoleKind.POSSIBLE


KINDS: Final = tuple(HoleKind)
MISSING: Final = (HoleKind.CERTAIN, HoleKind.POSSIBLE, HoleKind.AFTER_DAMAGE)


class HoleTotals(NamedTuple):
    """Numbers of holes by kind, and offsets that are or may be missing: those not filled."""

    by_hole: dict[str, int]
    missing_offsets: int

    def as_text(self) -> str:
        """Return one line for a table.

        >>> HoleTotals({"certain": 2, "filled": 1}, 70).as_text()
        '2 certain, 1 filled; 70 offsets missing'
        """
        counts = ", ".join(f"{count:,} {hole}" for hole, count in self.by_hole.items())
        return f"{counts}; {counted(self.missing_offsets, 'offset')} missing"


def missing_holes(by_hole: Mapping[str, int]) -> int:
    """Return the number of holes that are not filled."""
    return sum(by_hole.get(kind, 0) for kind in MISSING)


class SegmentEnds(NamedTuple):
    """Segments of one replica after another, by base offset; one element for each in a column."""

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


class OffsetSpan(NamedTuple):
    """What is read of a segment: offsets, and the least number of records that they have."""

    base_offset: int
    end: int  # exclusive; UNKNOWN_END
    records: int | None  # None: not known
    is_damaged: bool = False

    @classmethod
    def of(
        cls,
        base_offset: int,
        last_offset: int | None,
        until_offset: int | None,
        record_count: int | None,
        *,
        is_empty: bool,
        is_damaged: bool = False,
    ) -> Self:
        """Return the span of a row up to an offset; `is_empty`: without a last offset, too.

        >>> OffsetSpan.of(0, 9, 8, 10, is_empty=False)
        OffsetSpan(base_offset=0, end=8, records=8, is_damaged=False)
        """
        if last_offset is None:
            return cls(base_offset, base_offset if is_empty else UNKNOWN_END, None, is_damaged)
        end = last_offset + 1
        until = end if until_offset is None else min(end, until_offset)
        records = None if record_count is None else record_count - (end - until)
        return cls(base_offset, until, records, is_damaged)


def holes_between(spans: Sequence[OffsetSpan]) -> Iterator[tuple[int, int, int, HoleKind]]:
    """Yield the holes of one replica alone: number of the segment before, offset, end, kind.

    Fewer records than offsets are left by compaction: then records may never have been there.

    >>> [(after, first, end, kind)] = holes_between([OffsetSpan(0, 10, 10), OffsetSpan(20, 30, 10)])
    >>> after, first, end, kind.value
    (0, 10, 20, 'certain')
    """
    bases, ends = (np.array([span[at] for span in spans], np.int64) for at in (0, 1))
    damaged = np.array([span.is_damaged for span in spans], bool)
    sparse = [one.records is not None and one.records < one.end - one.base_offset for one in spans]
    zeros = np.zeros(len(spans), np.int64)
    found = find_holes(SegmentEnds(zeros, zeros, bases, ends, damaged, np.array(sparse, bool)))
    for after, _, first, end, kind in zip(*(column.tolist() for column in found), strict=True):
        yield after, first, end, KINDS[kind]


def _largest_so_far(groups: Int64s, ends: Int64s) -> Int64s:
    """Return for each row the largest end up to it, of its replica or another number."""
    return running_max(ends, np.flatnonzero(np.diff(groups, prepend=-1)))


def _is_filled(segments: SegmentEnds, ends: Int64s, holes: Holes) -> Mask:
    """Return which holes are filled by all replicas of the partition together."""
    of_holes = Ranges(segments.partitions[holes.after], holes.first_offsets, holes.ends)
    return is_covered(of_holes, Ranges(segments.partitions, segments.base_offsets, ends))


class Ranges(NamedTuple):
    """Ranges of offsets, in any order; one element for each in a column."""

    partitions: Int64s  # numbers
    first_offsets: Int64s
    ends: Int64s  # exclusive; up to the first offset: an empty range


def is_covered(asked: Ranges, by: Ranges) -> Mask:
    """Return which ranges have no offset that all ranges of `by` together lack.

    >>> by = Ranges(np.array([1, 1]), np.array([0, 10]), np.array([10, 20]))
    >>> asked = Ranges(np.array([1, 1, 2]), np.array([5, 15, 5]), np.array([20, 21, 6]))
    >>> is_covered(asked, by).tolist()
    [True, False, False]
    """
    wanted = np.isin(by.partitions, np.unique(asked.partitions))
    chosen = np.flatnonzero(wanted & (by.ends > by.first_offsets))
    if not len(chosen):
        return np.zeros(len(asked.partitions), bool)
    order = chosen[np.lexsort((by.first_offsets[chosen], by.partitions[chosen]))]
    partitions, bases = by.partitions[order], by.first_offsets[order]
    largest = _largest_so_far(partitions, by.ends[order])
    begins = np.ones(len(order), bool)  # of an interval without a gap
    begins[1:] = (partitions[1:] != partitions[:-1]) | (bases[1:] > largest[:-1])
    interval = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    # The last range that begins at or before the asked one: a rank and the partition fit an int64.
    values = np.unique(bases)
    keys = partitions * (len(values) + 1) + np.searchsorted(values, bases)
    ranks = np.searchsorted(values, asked.first_offsets, side="right") - 1
    at = np.searchsorted(keys, asked.partitions * (len(values) + 1) + ranks, side="right") - 1
    is_there = at >= 0
    at = np.maximum(at, 0)
    reached: Mask = largest[last[interval[at]]] >= asked.ends
    found: Mask = is_there & (partitions[at] == asked.partitions) & reached
    return found


def overlaps(
    partitions: Int64s, base_offsets: Int64s, last_offsets: Int64s
) -> npt.NDArray[np.uint8]:
    """Compare each row with earlier ones of its partition; return APART, SAME_BASE or OVERLAP.

    SAME_BASE: an earlier row begins at the same offset. OVERLAP: it begins at or before the last
    offset of an earlier row.

    `partitions` are numbers. The rows of one partition are adjacent and sorted by base offset; of
    equal ones the first is the earlier. Last offsets are inclusive or UNKNOWN_OFFSET.

    >>> overlaps(np.array([1, 1, 1, 2]), np.array([0, 5, 5, 7]), np.array([5, 9, 9, 8])).tolist()
    [0, 2, 1, 0]
    """
    rows = len(partitions)
    found = np.full(rows, APART, np.uint8)
    if rows < 2:
        return found
    largest = _largest_so_far(partitions, last_offsets)
    before = partitions[1:] == partitions[:-1]
    found[1:][before & (base_offsets[1:] <= largest[:-1])] = OVERLAP
    found[1:][before & (base_offsets[1:] == base_offsets[:-1])] = SAME_BASE
    return found
