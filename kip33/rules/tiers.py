"""Segments of two tiers that have the same offsets: are they the same records?"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kip33.rules.offset_holes import UNKNOWN_END, Int64s, Mask

UNKNOWN_FIGURE: Final = -(2**63)
NO_NEXT: Final = 2**63 - 1


class TierSegments(NamedTuple):
    """The segments of both tiers; one element for each in a column."""

    partitions: Int64s  # numbers, different for each local replica
    base_offsets: Int64s
    ends: Int64s  # exclusive; UNKNOWN_END
    is_remote: Mask
    is_whole: Mask  # all its batches are valid, or it is valid up to its end
    figures: Int64s  # a row for each: what copies have in common; UNKNOWN_FIGURE
    latest_epochs: Int64s  # UNKNOWN_FIGURE


def compared(segments: TierSegments) -> tuple[Mask, Mask]:
    """Return which segments are the same as an earlier one, local before remote, and which differ.

    Only whole segments with the same first and last offset and the same latest leader epoch, as far
    as it is known, are compared.
    """
    rows = len(segments.partitions)
    is_same, is_different = np.zeros(rows, bool), np.zeros(rows, bool)
    whole = np.flatnonzero(segments.is_whole & (segments.ends != UNKNOWN_END))
    if not len(whole):
        return is_same, is_different
    columns = [segments.is_remote, segments.ends, segments.base_offsets, segments.partitions]
    latest = segments.latest_epochs.copy()
    order, begins = _grouped(columns, whole)
    of_group = np.maximum.reduceat(latest[order], np.flatnonzero(begins))[np.cumsum(begins) - 1]
    latest[order] = np.where(latest[order] == UNKNOWN_FIGURE, of_group, latest[order])
    order, begins = _grouped([segments.is_remote, latest, *columns[1:]], whole)
    first = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    mine, theirs = segments.figures[order], segments.figures[first]
    is_unknown = (mine == UNKNOWN_FIGURE) | (theirs == UNKNOWN_FIGURE)
    is_equal = ((mine == theirs) | is_unknown).all(axis=1)
    is_compared = ~begins & segments.is_remote[order]
    is_same[order] = is_compared & is_equal
    is_different[order] = is_compared & ~is_equal
    return is_same, is_different


def _grouped(columns: Sequence[Any], rows: Int64s) -> tuple[Int64s, Mask]:
    """Return rows sorted by columns, the last one first, and where all but the first one change."""
    order = rows[np.lexsort(tuple(column[rows] for column in columns))]
    keys = np.stack([column[order] for column in columns[1:]])
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return order, begins


def next_bases(partitions: Int64s, bases: Int64s) -> Int64s:
    """Return for each segment where the next one of its partition begins; NO_NEXT without one.

    Those that begin at one offset have the same next one.
    """
    changes = (np.diff(partitions, prepend=-1) != 0) | (np.diff(bases, prepend=-1) != 0)
    begins = np.flatnonzero(changes)  # of those that begin at one offset
    is_inner = np.diff(partitions[begins]) == 0
    nexts = np.append(np.where(is_inner, bases[begins[1:]], NO_NEXT), NO_NEXT)[: len(begins)]
    return np.repeat(nexts, np.diff(begins, append=len(bases)))
