"""The entry with a file's time, in the index of a closed segment without timestamps."""

from dataclasses import replace
from typing import NamedTuple

from kip33.archive.directory import Segment
from kip33.formats.batch import NO_TIMESTAMP
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.untimestamped import entry_offset, index_of_file_time

_HAS_BATCHES = (SegmentStatus.OK, SegmentStatus.TRUNCATED)


class FileTimeEntry(NamedTuple):
    """The entry that a segment gets if its log turns out to have no timestamps."""

    last_modified_ms: int
    offset: int

    @classmethod
    def of(cls, rule: str, segment: Segment) -> "FileTimeEntry | None":
        """Return the entry for a listed segment, None if the rule gives it none."""
        if segment.base_offset is None or segment.last_modified_ms is None:
            return None
        next_base_offset = None if segment.active_segment else segment.next_base_offset
        offset = entry_offset(rule, segment.base_offset, next_base_offset, segment.last_modified_ms)
        return None if offset is None else cls(segment.last_modified_ms, offset)


def with_file_time(index: BuiltIndexes, entry: FileTimeEntry | None) -> BuiltIndexes:
    """Return the indexes of a scanned log, with the entry if the log has batches but no times."""
    if entry is None or not has_no_timestamps(index):
        return index
    data = index_of_file_time(*entry, base_offset=index.base_offset)
    return replace(index, time_index_data=data)


def has_no_timestamps(index: BuiltIndexes) -> bool:
    """Return whether a log has batches, and none of them a timestamp."""
    is_read = index.status in _HAS_BATCHES and index.time_index_data is not None
    return bool(
        is_read
        and index.summary["batch_count"]
        and int(index.summary["max_timestamp"]) <= NO_TIMESTAMP
    )
