"""The input of a command: the segments of a SOURCE, and the places of their indexes."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.broker_log_dirs import inside_log_dir, require_outside_brokers
from kip33.archive.layouts import KAFKA, Layout
from kip33.archive.listing import Listed, Listing, list_tree, segments_of
from kip33.archive.uri_columns import directories_of
from kip33.errors import LocationError
from kip33.formats.draft_indexes import TIME_INDEX_FILE
from kip33.rules.policies import TopicGlobs, nearest_topics
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import size_of
from kip33.stores.locations import Location


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
    on_listed: Listed | None = None,
) -> Listing:
    """Return the listing of `source`, limited to topics that match one of the globs, if any.

    It includes the sizes of the index files below `index_dir`, if given; the names of time indexes
    there end in a dot and `time_index`. Raises LocationError, one
    line for the user, if there is no such directory or no segment.
    """
    require_directory(source, "SOURCE")
    listing = list_tree(
        source, index_dir, layout=layout, time_index=time_index, on_listed=on_listed
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
    if listing.table.num_rows == 0:
        wanted = f" of topics {', '.join(topics)}" if topics else ""
        raise LocationError(
            f"{source.uri}: no segments{wanted} found{near}; {layout.expected}"
            + _passed_over(listing)
        )
    return listing


def partition_directories(listing: Listing) -> tuple[Location, ...]:
    """Return the directories of the listed segments."""
    segments = listing.table.filter(pc.is_valid(listing.table["last_modified_ms"]))
    directories = directories_of(segments["path"])
    return tuple(
        listing.source.child(path) if path else listing.source
        for path in pc.unique(directories).to_pylist()
    )


def _passed_over(listing: Listing) -> str:
    """Return what was found instead of segments, in case the layout is the wrong one."""
    counts = ", ".join(f"{count} {what}" for what, count in sorted(listing.passed_over.items()))
    return f" (skipped: {counts})" if counts else ""


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
            raise inside_log_dir(place, what, root)
    require_outside_brokers(place, what)
