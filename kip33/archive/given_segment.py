"""A segment given by a caller: a path, a URI, or a `Segment` of `list_segments`."""

import os
from typing import TypeAlias

from kip33.archive.directory import Segment
from kip33.errors import LocationError
from kip33.stores.files import size_of
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on
from kip33.stores.locations import Location

SegmentLike: TypeAlias = str | os.PathLike[str] | Segment
"""A log file's path or URI, or a listed segment."""


def log_of(
    segment: SegmentLike,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Location:
    """Return the location of a segment's log; ValueError for a `Segment` without a source.

    `storage_options` and `filesystem` apply from now on (`stores.filesystem_option`).
    """
    named = segment.log_uri if isinstance(segment, Segment) else segment
    return place_on(named, storage_options, filesystem)


def require_log(log: Location) -> None:
    """Raise LocationError if the file is missing; other errors are left to the reader."""
    try:
        is_missing = size_of(log) is None
    except OSError:
        return
    if is_missing:
        raise LocationError(f"{log.uri}: no such segment file; expected the path or URI of a log")
