"""The status of a segment's log as found by a build: the column `status` of the catalog."""

from enum import StrEnum
from typing import Final


class SegmentStatus(StrEnum):
    """The status of a segment's log; each member is its own text.

    >>> SegmentStatus.TRUNCATED == "truncated"
    True
    """

    OK = "ok"
    EMPTY = "empty"  # no bytes
    TRUNCATED = "truncated"  # recovery cuts the log to its valid bytes
    INVALID = "invalid"  # recovery fails, or empties or splits the segment
    UNREADABLE = "unreadable"  # the file could not be read
    UNVERIFIED = "unverified"  # judged by the end of its index, the log was not read
    ARCHIVED = "archived"  # in S3 Glacier: it cannot be read until it is restored


NOT_READ: Final = (SegmentStatus.UNREADABLE, SegmentStatus.ARCHIVED)
"""Of these a build knows only what the listing says: size and modification time."""
