"""Find the record that a group reads next, at an offset of a partition, and the last one it read.

Control records are skipped, as consumers skip them. A segment's `.index` says where to begin; it is
used only if the batch there begins at or before the offset. Every batch on the way is checked
against its CRC before its header is used.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final, NamedTuple

from kip33.archive.log_slice import OpenSlice
from kip33.archive.log_window import LogWindow, Meter
from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import (
    CODEC_MASK,
    CONTROL,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
)
from kip33.formats.records import Record
from kip33.rules.search import may_lack_timestamps
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.answers import joined_notes
from kip33.search.searched_segment import SearchedSegment, losses_of
from kip33.stores.files import one_line

_UINT32: Final = 2**32 - 1
_WALKED_BYTES: Final = 1 << 20  # a log up to here is read for what the catalog does not tell


class FoundRecord(NamedTuple):
    """A record without its key and value, None if not found; `note` says what was skipped.

    `passed_over`: the right record could be among those that cannot be read.
    """

    record: Record | None
    note: str | None = None
    passed_over: bool = False


def record_from(segments: Sequence[SearchedSegment], offset: int, meter: Meter) -> FoundRecord:
    """Return the first record at or after an offset; `segments` of one partition, in order."""
    notes: list[str] = []
    for segment, loss in zip(segments, losses_of(segments, offset), strict=True):
        lost = [f"{segment.log_uri}: {loss}, skipped"] if loss else []
        last_offset = segment.last_offset  # 0: perhaps a wrapper without known offsets
        is_earlier = last_offset is not None and 0 < last_offset < offset
        if segment.is_bare or segment.doubt or is_earlier:
            notes += lost
            continue
        try:
            with segment.between(offset).opened(meter, check_crc=True) as log:
                for header in log.headers():
                    if _may_have_records(header):
                        for record in log.window.records(header):
                            return _located(record, notes)
                notes += _damage(segment, log)
            notes += lost
        except (FileReadError, Kip33Error) as error:
            notes.append(f"{segment.log_uri}: cannot be read: {one_line(error)}")
    return _located(None, notes)


def record_before(segments: Sequence[SearchedSegment], offset: int, meter: Meter) -> FoundRecord:
    """Return the last record before an offset; `segments` of one partition, in order."""
    notes: list[str] = []
    for segment, loss in zip(reversed(segments), reversed(losses_of(segments)), strict=True):
        if segment.is_bare or segment.begin_offset >= offset:
            continue
        if loss and (segment.doubt or segment.end_offset < offset):
            notes.append(f"{segment.log_uri}: {loss}, skipped")
        if segment.doubt:
            continue
        try:
            with segment.between(0, offset).opened(meter, check_crc=True) as log:
                for position in sorted({log.position_for(offset - 1), 0}, reverse=True):
                    record = _last_from(log.window, position)
                    if record:
                        if record.offset < offset - 1:
                            notes += _damage(segment, log)
                        return _located(record, notes)
                notes += _damage(segment, log)
        except (FileReadError, Kip33Error) as error:
            notes.append(f"{segment.log_uri}: cannot be read: {one_line(error)}")
    return _located(None, notes)


class WithoutTimestamp(NamedTuple):
    """The first offset that may have a record without a timestamp, None without one.

    `note` says which logs could not be read for it.
    """

    offset: int | None
    note: str | None = None


def first_without_timestamp(
    segments: Sequence[SearchedSegment], before: int | None, meter: Meter
) -> WithoutTimestamp:
    """Return where the first batch without a timestamp begins, if that is before an offset.

    A position behind it would count its records as older than every time. `before` None: the log's
    end is such a position. Headers are walked where the catalog does not tell; before an offset
    those of large logs only after their largest timestamp, because all segments there would be
    read. So between records with timestamps a large log may have others that are not found.
    """
    notes = []
    for segment in segments:
        if before is not None and segment.begin_offset >= before:
            break
        if segment.doubt or segment.is_bare or segment.record_count == 0:
            continue
        lacks = None
        if segment.status != SegmentStatus.UNVERIFIED:
            lacks = may_lack_timestamps(segment.max_timestamp, segment.smallest_timestamp)
        is_large = segment.size_bytes is not None and segment.size_bytes > _WALKED_BYTES
        if lacks is False:
            continue
        is_tail_enough = lacks is None and is_large and before is not None
        try:
            offset = _first_untimed(segment, before, meter, is_tail_enough=is_tail_enough)
        except (FileReadError, Kip33Error) as error:
            notes.append(f"{segment.log_uri}: cannot be read: {one_line(error)}")
            continue
        if offset is not None:
            return WithoutTimestamp(offset, joined_notes(*notes))
    return WithoutTimestamp(None, joined_notes(*notes))


def _first_untimed(
    segment: SearchedSegment, before: int | None, meter: Meter, *, is_tail_enough: bool
) -> int | None:
    """Return the first offset of the first batch with records and without a timestamp.

    None if it is not before an offset. `is_tail_enough`: begin after the largest timestamp.
    """
    next_offset = segment.begin_offset
    if is_tail_enough:
        next_offset = max(next_offset, _after_largest_timestamp(segment, meter))
        if segment.last_offset is not None and next_offset > segment.last_offset:
            return None
    of_log = segment.between(next_offset, before)
    if of_log.until_offset is not None and next_offset >= of_log.until_offset:
        return None
    with of_log.opened(meter, check_crc=True) as log:
        for header in log.headers():
            if header.last_offset < next_offset:
                continue
            is_wrapper = header.magic < 2 and header.attributes & CODEC_MASK
            first = next_offset if is_wrapper else header.base_offset
            if header.max_timestamp == NO_TIMESTAMP and _may_have_records(header):
                return first
            next_offset = max(next_offset, header.last_offset + 1)
    return None


def _after_largest_timestamp(segment: SearchedSegment, meter: Meter) -> int:
    """Return the offset after the largest timestamp, 0 if it is not known.

    A `.timeindex` ends with it, unless it has the time of the log file in place of a missing one.
    """
    if segment.offset_of_max_timestamp is not None:
        return segment.offset_of_max_timestamp + 1
    with ExitStack() as files:
        times = segment.between().time_index_pages(files, meter)
        if times is None or not len(times) or segment.has_file_time:
            return 0
        return segment.base_offset + times[len(times) - 1][1]


def _located(record: Record | None, notes: list[str]) -> FoundRecord:
    """Return the found record; every note is about something that was skipped."""
    return FoundRecord(record, "; ".join(notes) or None, bool(notes))


def _damage(segment: SearchedSegment, log: OpenSlice) -> list[str]:
    """Return notes on the damage that ended a walk before the log's end."""
    damage = log.window.damage
    return [f"{segment.log_uri}: {damage}; the rest was not read"] if damage else []


def _last_from(window: LogWindow, position: int) -> Record | None:
    """Return the last record of a slice, from the batches at or after `position`.

    Only positions are kept, in 4 bytes each; of a batch that certainly has a record, none before.
    """
    places = array("I" if window.end <= _UINT32 else "Q")
    for header in window.headers(position):
        if header.magic < 2 and not header.attributes & CODEC_MASK:  # it is such a record
            del places[:]
        if _may_have_records(header):
            places.append(header.position)
    for place in reversed(places):
        window.expect(RECORD_BATCH_OVERHEAD)  # one header is enough for a walk backwards
        for header in islice(window.headers(place), 1):
            if last := deque(window.records(header), 1):
                return last[0]
    return None


def _may_have_records(header: BatchHeader) -> bool:
    is_control = header.magic >= 2 and header.attributes & CONTROL
    return header.records_count != 0 and not is_control
