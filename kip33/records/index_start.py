"""Where reading a log begins, by its index files.

An index is used only if the batches at the place that it names match it, as in a search. Otherwise
reading begins at the start of the log. Damage before the place is not found.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from kip33.archive.segment_paths import beside
from kip33.errors import CorruptIndexError, FileReadError, Kip33Error
from kip33.formats.batch import (
    HEADER_SIZE_UP_TO_MAGIC,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    decode_header,
)
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.draft_indexes import TIME_INDEX_FILE
from kip33.formats.index_pages import OFFSET_WIDTHS, TIME_WIDTHS, IndexPages, last_point
from kip33.formats.time_index import TimestampOffset
from kip33.formats.walk import COMPLETE, why_incomplete
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.read_segment import ReadSegment
from kip33.rules.search import Claim, bears_out, reach_of, require_order
from kip33.stores.files import opened
from kip33.stores.locations import Location

WALKED_WHOLE_BYTES: Final = 1 << 20  # is read from its start
_MOST_HEADERS: Final = 4096  # between an index point and an entry's batch


class _CheckedLog(NamedTuple):
    """A log up to the byte to which it is read."""

    read_into: ReadInto
    base_offset: int
    end: int

    def headers(self, position: int) -> Iterator[BatchHeader]:
        """Yield the headers of complete batches from a position on."""
        while position < self.end - HEADER_SIZE_UP_TO_MAGIC:
            count = min(RECORD_BATCH_OVERHEAD, self.end - position)
            head = read_fully(self.read_into, position, count)
            size = int.from_bytes(head[8:12], signed=True)
            is_v2 = 2 <= head[16] < 128
            if why_incomplete(size, is_v2, self.end - position) != COMPLETE:
                return
            header = decode_header(head, position)
            yield header
            position += header.size_bytes


def start_of(
    segment: ReadSegment, limits: RecordLimits, read_into: ReadInto, size_bytes: int
) -> int:
    """Return the position of a batch before which no record is inside the limits."""
    base_offset = segment.base_offset
    if base_offset is None or size_bytes < WALKED_WHOLE_BYTES:
        return 0
    end = size_bytes
    if segment.figures and segment.figures.valid_bytes is not None:
        end = min(end, segment.figures.valid_bytes)
    log = _CheckedLog(read_into, base_offset, end)
    with ExitStack() as files:
        try:
            return _start(segment, limits, log, files)
        except (FileReadError, Kip33Error):
            return 0


def offset_index_of(segment: ReadSegment, files: ExitStack) -> IndexPages | None:
    """Return the open `.index` of a segment, None without a readable one."""
    places = [beside(place, "index") for place in _time_indexes(segment)]
    return _pages(places, OFFSET_WIDTHS, files)


def _time_indexes(segment: ReadSegment) -> list[Location]:
    """Return where its time index may be: where the catalog says, and beside the log."""
    beside_log = beside(segment.log, "timeindex")
    named = Location.of(segment.index_uri) if segment.index_uri else beside_log
    return list(dict.fromkeys((named, beside_log)))


def _is_time_index(place: Location) -> bool:
    """Return whether a file has the name of a `.timeindex`, and is not that of a KIP-33 draft."""
    return (place.inside or place.path).endswith(TIME_INDEX_FILE)


def _start(segment: ReadSegment, limits: RecordLimits, log: _CheckedLog, files: ExitStack) -> int:
    places = _time_indexes(segment)
    offsets = offset_index_of(segment, files)
    if offsets is None:
        return 0
    start = 0
    if limits.first_offset > log.base_offset:
        start = _position_of(log, offsets, limits.first_offset)
    if limits.first_timestamp >= 0:
        times = _pages(list(filter(_is_time_index, places)), TIME_WIDTHS, files)
        if times is not None:
            start = max(start, _position_at(log, times, offsets, limits.first_timestamp))
    return start


def _position_of(log: _CheckedLog, offsets: IndexPages, offset: int) -> int:
    """Return the index point at or before an offset, 0 without one that the log confirms."""
    position = _point(log, offsets, offset)
    first = next(log.headers(position), None)
    return position if first and log.base_offset <= first.base_offset <= offset else 0


def _position_at(log: _CheckedLog, times: IndexPages, offsets: IndexPages, time_ms: int) -> int:
    """Return a position before which no record is at or after a time, 0 if none is confirmed."""
    slot = times.last(lambda stamp, relative: (stamp, relative) != (0, 0) and stamp < time_ms)
    around = [_entry(log, times, slot + step) for step in (-1, 0, 1)]
    require_order([e for e in around if e], base_offset=log.base_offset, last_offset=None)
    entry = around[1]
    if entry is None:
        return 0
    for claim in (Claim(entry, False, tight=False), Claim(entry, True, tight=True)):
        position = _point(log, offsets, reach_of(claim) - claim.next_offset)
        if bears_out(_until(log, position, reach_of(claim)), claim, time_ms):
            return position
    return 0


def _until(log: _CheckedLog, position: int, offset: int) -> list[BatchHeader]:
    """Return the headers from a position to the first batch that reaches an offset."""
    found = []
    for header in log.headers(position):
        found.append(header)
        if header.last_offset >= offset or len(found) == _MOST_HEADERS:
            break
    return found


def _entry(log: _CheckedLog, times: IndexPages, slot: int) -> TimestampOffset | None:
    if not 0 <= slot < len(times) or times[slot] == (0, 0):
        return None
    timestamp, relative = times[slot]
    return TimestampOffset(timestamp, log.base_offset + relative)


def _point(log: _CheckedLog, offsets: IndexPages, offset: int) -> int:
    """Return the position of the last index point at or before an offset, 0 without one."""
    slot = last_point(offsets, offset - log.base_offset)
    if slot < 0:
        return 0
    position = offsets[slot][1]
    if not 0 < position < log.end:
        raise CorruptIndexError(f".index: position {position} of {log.end} bytes")
    return position


def _pages(places: list[Location], widths: tuple[int, int], files: ExitStack) -> IndexPages | None:
    """Return the first of these index files that is there, None if none can be read."""
    for place in places:
        try:
            read_into, size_bytes = files.enter_context(opened(place))
        except (FileReadError, Kip33Error):
            continue
        return IndexPages(read_into, size_bytes, widths)
    return None
