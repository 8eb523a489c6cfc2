"""A segment as a caller names it: a path, a URI, or a `Segment` of `list_segments`."""

import os
from typing import TypeAlias

from kip33.archive.directory import Segment
from kip33.errors import LocationError
from kip33.stores.files import size_of
from kip33.stores.locations import Location

SegmentLike: TypeAlias = str | os.PathLike[str] | Segment
"""A log file's path or URI, or a listed segment."""


def log_of(segment: SegmentLike) -> Location:
    """Return where a segment's log is; ValueError for a `Segment` whose source is not known."""
    return Location.of(segment.log_uri if isinstance(segment, Segment) else segment)


def require_log(log: Location) -> None:
    """Raise LocationError where there is no such file; a store that fails is left to the reader."""
    try:
        is_missing = size_of(log) is None
    except OSError:
        return
    if is_missing:
        raise LocationError(f"{log.uri}: no such segment file; expected the path or URI of a log")
