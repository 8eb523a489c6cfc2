"""Put the segments of two tiers together: which remote ones are copies, and which differ.

Brokers upload closed segments and keep them for a while, so both tiers have the newest of them.
Segments need not begin at the same offsets in both: after a change of leaders the new leader
uploads its own segments, which may begin in the middle of one that is there already. What the
local tier has whole is read there, as brokers do; a remote segment that reaches into the local log
ends where this begins. A local log that is cut is a copy if the remote tier has what it lost, too.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.rules.offset_holes import UNKNOWN_END, Int64s, Mask, Ranges, is_covered

UNKNOWN_FIGURE: Final = -(2**63)
_NO_BASE: Final = 2**63 - 1


class TierSegments(NamedTuple):
    """The segments of both tiers, in any order; one element for each in a column."""

    partitions: Int64s  # numbers, different for each local replica
    base_offsets: Int64s
    ends: Int64s  # exclusive; UNKNOWN_END
    is_remote: Mask
    is_whole: Mask  # all its batches are valid, up to its end
    is_cut: Mask  # of those, the local logs that go on after their end, with what is not valid
    figures: Int64s  # a row for each: what copies have in common; UNKNOWN_FIGURE


class PutTogether(NamedTuple):
    """What two tiers have twice; one element for each segment in a column."""

    is_copy: Mask  # other segments have its records, local ones if there are any
    is_different: Mask  # the same offsets as another segment, but not the same records
    until_offsets: Int64s  # from here on the local tier has its records; UNKNOWN_END: all are its


def put_together(segments: TierSegments) -> PutTogether:
    """Return which segments are copies and which differ from another with the same offsets.

    >>> of = TierSegments(
    ...     partitions=np.zeros(4, np.int64), base_offsets=np.array([0, 10, 10, 20]),
    ...     ends=np.array([10, 20, 20, 30]), is_remote=np.array([True, True, False, False]),
    ...     is_whole=np.ones(4, bool), is_cut=np.zeros(4, bool),
    ...     figures=np.array([[7], [8], [8], [9]]),
    ... )
    >>> put_together(of).is_copy.tolist()
    [False, True, False, False]
    """
    partitions, bases = segments.partitions, segments.base_offsets
    is_replaced = _is_replaced(segments)
    segments = segments._replace(is_whole=segments.is_whole & ~is_replaced)
    is_known = segments.ends != UNKNOWN_END
    is_local = ~segments.is_remote & segments.is_whole & is_known
    local = Ranges(partitions[is_local], bases[is_local], segments.ends[is_local])
    ends = _ends_of_damaged(segments)
    is_same, is_different = _compared(segments)
    is_covered_here = is_covered(Ranges(partitions, bases, ends), local)
    is_covered_here &= segments.is_remote & (ends > bases) & ~is_different
    first_local = _first_bases(local, partitions)
    reaches = segments.is_remote & (bases < first_local) & (first_local < ends) & ~is_different
    reaches &= is_covered(Ranges(partitions, np.minimum(first_local, ends), ends), local)
    until = np.where(reaches, first_local, UNKNOWN_END)
    return PutTogether(is_same | is_covered_here | is_replaced, is_different, until)


def _is_replaced(segments: TierSegments) -> Mask:
    """Return which local logs that are cut lost offsets that the remote tier has, as it has theirs.

    Without a next segment it is not known where one would end: the remote tier must have more.
    """
    bases, ends = segments.base_offsets, segments.ends
    local = np.flatnonzero(~segments.is_remote)
    next_bases = np.full(len(bases), UNKNOWN_END)
    next_bases[local] = _next_bases(segments.partitions[local], bases[local])
    reached = np.where(ends == UNKNOWN_END, bases, ends)
    lost_to = np.where(next_bases == UNKNOWN_END, reached + 1, next_bases)
    is_there = segments.is_remote & segments.is_whole & (ends != UNKNOWN_END)
    remote = Ranges(segments.partitions[is_there], bases[is_there], ends[is_there])
    is_cut = segments.is_cut & (lost_to > reached)
    return is_cut & is_covered(Ranges(segments.partitions, bases, lost_to), remote)


def _ends_of_damaged(segments: TierSegments) -> Int64s:
    """Return the ends; one that is not whole ends at the latest where another one begins."""
    next_bases = _next_bases(segments.partitions, segments.base_offsets)
    damaged_ends = np.where(next_bases == UNKNOWN_END, segments.base_offsets, next_bases)
    return np.where(segments.is_whole & (segments.ends != UNKNOWN_END), segments.ends, damaged_ends)


def _next_bases(partitions: Int64s, base_offsets: Int64s) -> Int64s:
    """Return for each segment where the next one of its partition begins, or UNKNOWN_END."""
    order = np.lexsort((base_offsets, partitions))
    partitions, bases = partitions[order], base_offsets[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (partitions[1:] != partitions[:-1]) | (bases[1:] != bases[:-1])
    starts = np.flatnonzero(begins)
    of_group = np.cumsum(begins) - 1
    following = np.append(starts[1:], -1)[of_group] if len(order) else starts
    is_inner = (following >= 0) & (partitions[following] == partitions)
    next_bases = np.empty(len(order), np.int64)
    next_bases[order] = np.where(is_inner, bases[following], UNKNOWN_END)
    return next_bases


def _compared(segments: TierSegments) -> tuple[Mask, Mask]:
    """Return which segments are the same as an earlier one, local before remote, and which differ.

    Only whole segments with the same first and last offset are compared.
    """
    rows = len(segments.partitions)
    is_same, is_different = np.zeros(rows, bool), np.zeros(rows, bool)
    whole = np.flatnonzero(segments.is_whole & (segments.ends != UNKNOWN_END))
    if not len(whole):
        return is_same, is_different
    columns = (segments.is_remote, segments.ends, segments.base_offsets, segments.partitions)
    order = whole[np.lexsort(tuple(column[whole] for column in columns))]
    keys = np.stack([column[order] for column in columns[1:]])
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    first = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    mine, theirs = segments.figures[order], segments.figures[first]
    is_unknown = (mine == UNKNOWN_FIGURE) | (theirs == UNKNOWN_FIGURE)
    is_equal = ((mine == theirs) | is_unknown).all(axis=1)
    is_compared = ~begins & segments.is_remote[order]
    is_same[order] = is_compared & is_equal
    is_different[order] = is_compared & ~is_equal
    return is_same, is_different


def _first_bases(local: Ranges, partitions: Int64s) -> npt.NDArray[np.int64]:
    """Return for each segment the first offset of the local tier, or a number beyond all."""
    if not len(local.partitions):
        return np.full(len(partitions), _NO_BASE)
    order = np.lexsort((local.first_offsets, local.partitions))
    numbers, first = np.unique(local.partitions[order], return_index=True)
    at = np.minimum(np.searchsorted(numbers, partitions), len(numbers) - 1)
    bases = local.first_offsets[order][first][at]
    return np.where(numbers[at] == partitions, bases, _NO_BASE)
