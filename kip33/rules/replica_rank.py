"""Which of a partition's replicas is read: the most complete one."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from kip33.rules.segment_status import NOT_READ, SegmentStatus


class Extent(NamedTuple):
    """How much of a partition a segment has."""

    valid_bytes: int = 0
    last_offset: int | None = None  # None: not known

    @classmethod
    def of(
        cls,
        status: str | None,
        size_bytes: int | None,
        valid_bytes: int | None,
        last_offset: int | None,
    ) -> Self:
        """Return the extent that a catalog row shows; an unverified log counts with its size.

        >>> Extent.of("unverified", 100, None, 9)
        Extent(valid_bytes=100, last_offset=9)
        """
        if status in (SegmentStatus.INVALID, *NOT_READ):
            return cls(0, last_offset)
        counted = size_bytes if status == SegmentStatus.UNVERIFIED else valid_bytes
        return cls(counted or 0, last_offset)


def most_complete_of(replicas: Mapping[str, Iterable[Extent]]) -> str | None:
    """Return the log directory with most valid bytes, then the latest end, then the first name.

    None without replicas. A copy with damage, or with segments deleted by retention, has fewer
    valid bytes.

    >>> most_complete_of({"b2": [Extent(10, 5)], "b1": [Extent(4, 2), Extent(6, 5)]})
    'b1'
    """
    return min(replicas, key=lambda log_dir: _rank(log_dir, [*replicas[log_dir]]), default=None)


def _rank(log_dir: str, extents: list[Extent]) -> tuple[int, int, str]:
    valid_bytes = sum(one.valid_bytes for one in extents)
    last_offsets = [one.last_offset for one in extents if one.last_offset is not None]
    return -valid_bytes, -max(last_offsets, default=-1), log_dir
