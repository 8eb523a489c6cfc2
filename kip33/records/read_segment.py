"""A segment to read, and what is known about it before its log is opened."""

from typing import Any, Final, NamedTuple

from kip33.stores.locations import Location


class ReadSegment(NamedTuple):
    """One segment of a partition; None: not known."""

    log: Location
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    next_base_offset: int | None = None  # of the partition's next segment
    last_offset: int | None = None
    size_bytes: int | None = None  # None: the size when the log is opened
    smallest_timestamp: int | None = None  # of all records
    max_timestamp: int | None = None  # of all records, -1: no record has a timestamp
    listed_bytes: int = 0  # to compare replicas
    error: str | None = None  # why the segment cannot be read

    def constant(self, column: str) -> Any:
        """Return the value that a column has in all rows of the segment, None for other columns."""
        return getattr(self, column) if column in _CONSTANT else None


_CONSTANT: Final = ("log_dir", "topic", "partition", "base_offset")
