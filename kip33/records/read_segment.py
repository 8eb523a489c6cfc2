"""A segment to read, and what is known about it before its log is opened."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import MAX_INT32
from kip33.rules.offset_holes import Extent
from kip33.rules.policies import MAX_INT64
from kip33.stores.locations import Location


class HeaderFigures(NamedTuple):
    """What a scan of a segment's headers gives."""

    size_bytes: int | None = None
    valid_bytes: int | None = None
    batch_count: int | None = None
    record_count: int | None = None  # None: a v0 or v1 wrapper hides it
    last_offset: int | None = None  # None: no batch
    max_timestamp: int | None = None  # -1: no record has a timestamp


class OffsetShare(NamedTuple):
    """The offsets of a segment that one task reads."""

    first_offset: int
    end_offset: int  # exclusive


class ReadSegment(NamedTuple):
    """One segment of a partition; None: not known."""

    log: Location
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    next_base_offset: int | None = None  # of the partition's next segment
    figures: HeaderFigures | None = None  # of a catalog
    smallest_timestamp: int | None = None  # of all records
    open_transactions: str | None = None  # at its end, see `rules.transaction_index`
    listed_bytes: int = 0  # to share the work of several tasks
    extent: Extent = Extent()  # to compare replicas
    first_new_offset: int = 0  # smaller ones are in earlier segments; 0: none is known to be
    index_uri: str | None = None  # of the catalog's .timeindex
    damage: str | None = None  # why a catalog's log is valid only in part
    error: str | None = None  # why the segment cannot be read
    only_v2: bool = False  # all its batches are complete and of magic 2, by a catalog
    share: OffsetShare | None = None  # None: the whole segment
    topic_id: str | None = None
    last_modified_ms: int | None = None  # of the log

    @property
    def last_offset(self) -> int | None:
        """Return its last offset."""
        return self.figures.last_offset if self.figures else None

    @property
    def max_timestamp(self) -> int | None:
        """Return the largest timestamp of all records, -1 if no record has one."""
        return self.figures.max_timestamp if self.figures else None

    def end_of(self, last_offsets: npt.NDArray[np.int64]) -> int:
        """Return the offset after the last one of some batches, 0 without any.

        What is 2^31 or more after the base offset is ignored: no valid segment has such an offset.
        """
        most = min((self.base_offset or 0) + MAX_INT32, MAX_INT64 - 1)
        return int(last_offsets[last_offsets <= most].max(initial=-1)) + 1

    def is_before(self, later: "ReadSegment") -> bool:
        """Return whether both are of one replica of a partition, in order."""
        if None in (self.base_offset, later.base_offset) or self.of_replica != later.of_replica:
            return False
        return (self.base_offset or 0) <= (later.base_offset or 0)

    @property
    def of_replica(self) -> tuple[str | None, str | int | None, int | None]:
        """Return what the segments of one replica have in common."""
        return self.log_dir, self.topic or self.log.parent.uri, self.partition

    def readable_bytes(self, size_bytes: int) -> int:
        """Return how much of a log of `size_bytes` is read: no more than its catalog describes."""
        known = self.figures.size_bytes if self.figures else None
        return size_bytes if known is None else min(size_bytes, known)

    def constant(self, column: str) -> Any:
        """Return the value that a column has in all rows of the segment, None for other columns."""
        return getattr(self, column) if column in _CONSTANT else None


_CONSTANT: Final = ("log_dir", "topic", "partition", "base_offset")
