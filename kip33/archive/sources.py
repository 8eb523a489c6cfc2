"""The input of a command: the segments of a SOURCE, and checks of where its output may be put.

A broker treats every folder of its log directory as a partition, and does not start if a folder has
another name (`LogManager.loadLogs`). It ignores files. So kip33 must not put a folder there, but
may put a file there. A log directory is detected by the files that brokers write there.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.directory import Segment
from kip33.archive.layouts import KAFKA, Layout
from kip33.archive.listing import Listing, directories_of, list_tree, segments_of
from kip33.errors import LocationError, LockedError
from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.partition_metadata import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kip33.rules.policies import TopicGlobs, nearest_topics
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import size_of
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

RESTORE_STAGING: Final = ".kip33-restore"  # there until a restore has ended
RESTORE_JOURNAL: Final = ".kip33-restore.json"
OF_A_BROKER: Final = "meta.properties"  # in every log directory formatted by a broker
_BROKERS_FILES: Final = (
    OF_A_BROKER,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
    ".kafka_cleanshutdown",
)
SegmentLike: TypeAlias = str | os.PathLike[str] | Segment
"""A log file's path or URI, or a listed segment."""


def matches(topic: str | None, topics: Sequence[str]) -> bool:
    """Return whether a topic matches the globs (`rules.policies`); an unknown topic does."""
    return not topics or topic is None or TopicGlobs.of(topics).matches(topic)


def require_segments(
    source: Location,
    topics: Sequence[str] = (),
    *,
    index_dir: Location | None = None,
    layout: Layout = KAFKA,
    time_index: str = TIME_INDEX_FILE,
    allow_empty: bool = False,
    if_empty: str = "",
    on_progress: OnProgress = tell_nobody,
) -> Listing:
    """Return the listing of `source`, limited to topics that match one of the globs, if any.

    It includes the sizes of the index files below `index_dir`, if given; the names of time indexes
    there end in a dot and `time_index`. Raises LocationError, one line for the user, if there is no
    such directory or, without `allow_empty`, no segment; where there is nothing at all, that
    line ends with `if_empty`.
    """
    may_be_empty = allow_empty or if_empty
    if not (may_be_empty and source.is_object_store):  # there an empty directory does not exist
        require_directory(source, "SOURCE")
    listing = list_tree(
        source, index_dir, layout=layout, time_index=time_index, on_progress=on_progress
    )
    for first in segments_of(listing.table.slice(length=1)):
        if first.error and not first.path:  # SOURCE itself: nothing below it was listed
            raise LocationError(f"{source.uri}: SOURCE cannot be listed: {first.error}")
    near = ""
    if topics:
        # A directory that could not be listed may contain any topic, whatever its own name is.
        column = listing.table["topic"]
        near = nearest_topics(topics, pc.unique(column).to_pylist())
        wanted_topics = [name for name in pc.unique(column).to_pylist() if matches(name, topics)]
        is_wanted = pc.is_in(column, value_set=pa.array(wanted_topics, pa.string()))
        is_unlistable = pc.is_null(listing.table["last_modified_ms"])
        listing.table = listing.table.filter(pc.or_(is_wanted, is_unlistable))
    if listing.table.num_rows == 0 and not allow_empty:
        wanted = f" of topics {', '.join(topics)}" if topics else ""
        raise LocationError(
            f"{source.uri}: no segments{wanted} found{near}; {layout.expected}"
            + _passed_over(listing)
            + ("" if near else if_empty)
        )
    return listing


def _passed_over(listing: Listing) -> str:
    """Return what was found instead of segments, in case the layout is the wrong one."""
    counts = ", ".join(f"{count} {what}" for what, count in sorted(listing.passed_over.items()))
    return f" (skipped: {counts})" if counts else ""


def partition_directories(listing: Listing) -> tuple[Location, ...]:
    """Return the directories of the listed segments."""
    segments = listing.table.filter(pc.is_valid(listing.table["last_modified_ms"]))
    directories = directories_of(segments["path"])
    return tuple(
        listing.source.child(path) if path else listing.source
        for path in pc.unique(directories).to_pylist()
    )


def require_no_file(place: Location, what: str) -> None:
    """Raise LocationError if a file has the name of a directory that will be written."""
    if size_of(place) is not None:
        raise LocationError(f"{place.uri}: {what} is a file, expected a directory")


def require_outside_log_dirs(place: Location, listing: Listing, what: str) -> None:
    """Raise LocationError if `place` would be inside a broker's log directory (D10).

    These are the directories with the listed partitions, and the parents of `place` that contain a
    broker's own files.
    """
    for log_dir in sorted(listing.log_dirs):
        root = listing.source.child(log_dir) if log_dir else listing.source
        if root.contains(place):
            raise _inside_log_dir(place, what, root)
    require_outside_brokers(place, what)


def require_outside_brokers(place: Location, what: str) -> None:
    """Raise LocationError if the folder `place` is, or would be in, a broker's log directory.

    Its parents are checked, both as named and with links resolved. Brokers use only local file
    systems, so other stores are not checked. `what` is the folder's name in the message.
    """
    if not place.is_local:
        return
    for path in dict.fromkeys((place.path, os.path.realpath(place.path))):
        folder, parent = Location(place.root, path), ""
        while folder.path != parent:
            for name in _BROKERS_FILES:
                if os.path.lexists(folder.child(name).path):
                    raise _inside_log_dir(place, what, folder, f", which holds {name}")
            parent = folder.path
            folder = folder.parent


def _inside_log_dir(place: Location, what: str, log_dir: Location, why: str = "") -> LocationError:
    """Return the error for a folder inside a log directory; `why` says how that was detected."""
    return LocationError(
        f"{place.uri}: {what} is inside the log directory {log_dir.uri}{why}; a broker "
        "does not start if its log directory has an unknown folder: choose a place "
        "outside"
    )


def require_no_restore(log_dir: Location) -> None:
    """Raise LockedError if a restore into a local log directory was begun and has not ended."""
    staged, _, below = log_dir.path.partition(f"/{RESTORE_STAGING}/")
    if below:  # a staged partition
        log_dir = log_dir._replace(path=staged)
    for name in (RESTORE_STAGING, RESTORE_JOURNAL):
        place = log_dir.child(name)
        if place.is_local and os.path.lexists(place.path):
            raise LockedError(
                f"{place.uri}: a restore into this log directory has not ended; end it with the "
                "same kip33 restore, or kip33 restore --to LOG_DIR --abandon"
            )


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
