"""Rows of segments whose log is not read, because a `.timeindex` can be trusted: `--read tail`."""

from typing import Any

from kip33.archive.directory import Segment
from kip33.archive.segment_paths import beside
from kip33.builds.build_spec import BuildSpec
from kip33.builds.catalog_row import tail_row
from kip33.indexing.segment import TailIndexes, read_tail
from kip33.stores.locations import Location


def row_without_reading(build: BuildSpec, segment: Segment, log: Location) -> dict[str, Any] | None:
    """Return the row from the end of a `.timeindex`, None if no `.timeindex` can be trusted.

    The file of the index directory is tried first, then the one beside the log.
    """
    at_target = TailIndexes(
        build.index_location(segment),
        segment.target_time_index_bytes,
        segment.target_time_index_modified_ms,
        segment.target_offset_index_bytes,
        segment.target_offset_index_modified_ms,
    )
    beside_log = TailIndexes(
        beside(log, "timeindex"),
        segment.beside_time_index_bytes,
        segment.beside_time_index_modified_ms,
        segment.beside_offset_index_bytes,
        segment.beside_offset_index_modified_ms,
    )
    places = (
        [at_target] if at_target.time_index == beside_log.time_index else [at_target, beside_log]
    )
    for files in places:
        if _is_older(files.time_index_modified_ms, log, segment):
            continue  # the log may have grown since: the last entry may be stale
        tail = read_tail(
            log,
            files,
            base_offset=segment.base_offset or 0,
            next_base_offset=segment.next_base_offset,
            segment_index_bytes=build.settings.segment_index_bytes,
            offset_index=build.offset_index,
        )
        if tail:
            return tail_row(build, segment, log, tail)
    return None


def _is_older(index_modified_ms: int | None, log: Location, segment: Segment) -> bool:
    """Return whether an index is older than its log; unknown times prove nothing."""
    if index_modified_ms is None or segment.last_modified_ms is None:
        return True
    ticks_ms = 1000 if log.is_object_store else 1
    return index_modified_ms // ticks_ms < segment.last_modified_ms // ticks_ms
