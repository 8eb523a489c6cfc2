"""Missing offsets between two segments of a partition, as a restore judges them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kip33.rules.offset_holes import KINDS, HoleKind, SegmentEnds, find_holes


class SegmentEnd(NamedTuple):
    """Where a segment begins and ends, and how many records it has (None: not known)."""

    base_offset: int
    end_offset: int  # exclusive
    record_count: int | None

    @property
    def is_sparse(self) -> bool:
        """Return whether it has fewer records than offsets, as compaction leaves it."""
        if self.record_count is None:
            return False
        return self.record_count < self.end_offset - self.base_offset


def holes_between(segments: Sequence[SegmentEnd]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each hole, and whether records are certainly missing there.

    >>> list(holes_between([SegmentEnd(0, 10, 10), SegmentEnd(20, 30, 10)]))
    [('offsets 10 to 19 are missing: no segment has them', True)]
    """
    zeros = np.zeros(len(segments), np.int64)
    found = find_holes(
        SegmentEnds(
            zeros,
            zeros,
            np.array([one.base_offset for one in segments], np.int64),
            np.array([one.end_offset for one in segments], np.int64),
            np.zeros(len(segments), bool),
            np.array([one.is_sparse for one in segments], bool),
        )
    )
    for first, end, kind in zip(found.first_offsets, found.ends, found.kinds, strict=True):
        is_certain = KINDS[kind] == HoleKind.CERTAIN
        why = "no segment has them" if is_certain else "the topic is compacted"
        yield f"offsets {first} to {end - 1} are missing: {why}", is_certain
