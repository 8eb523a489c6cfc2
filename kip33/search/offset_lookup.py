"""Find the record that a group reads next, at an offset of a partition, and the last one it read.

Control records are skipped, as consumers skip them. A segment's `.index` says where to begin; it is
used only if the batch there begins at or before the offset. Every batch on the way is checked
against its CRC before its header is used.
"""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Final, NamedTuple

from kip33.archive.log_window import (
    LogWindow,
    Meter,
    checked_position,
    opened_index,
    opened_window,
)
from kip33.archive.segment_paths import beside
from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error
from kip33.formats.batch import (
    CODEC_MASK,
    CONTROL,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    has_any_offset,
)
from kip33.formats.index_pages import OFFSET_WIDTHS, IndexPages
from kip33.formats.records import Record, iterate_records
from kip33.rules.search import may_lack_timestamps
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.answers import joined_notes
from kip33.search.searched_segment import SearchedSegment, losses_of, next_bases_of
from kip33.stores.files import one_line
from kip33.stores.locations import Location

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
    losses = losses_of(segments)
    next_bases = next_bases_of(segments)
    for segment, loss, next_base in zip(segments, losses, next_bases, strict=True):
        is_lost = loss is not None and (next_base is None or next_base > offset)
        last_offset = segment.last_offset  # 0: perhaps a wrapper without known offsets
        is_earlier = last_offset is not None and 0 < last_offset < offset
        if segment.is_bare or segment.doubt or is_earlier:
            notes += [f"{segment.log_uri}: {loss}, skipped"] if is_lost else []
            continue
        try:
            with _opened(segment, meter) as log:
                for header in log.window.headers(log.position_for(offset)):
                    if header.last_offset >= offset or has_any_offset(header):
                        for record in _records(log.window, header):
                            if record.offset >= offset:
                                return _located(record, notes)
                notes += log.damage(segment)
            notes += [f"{segment.log_uri}: {loss}, skipped"] if is_lost else []
        except (FileReadError, Kip33Error) as error:
            notes.append(f"{segment.log_uri}: cannot be read: {one_line(error)}")
    return _located(None, notes)


def record_before(segments: Sequence[SearchedSegment], offset: int, meter: Meter) -> FoundRecord:
    """Return the last record before an offset; `segments` of one partition, in order."""
    notes: list[str] = []
    for segment, loss in zip(reversed(segments), reversed(losses_of(segments)), strict=True):
        if segment.is_bare or segment.base_offset >= offset:
            continue
        if loss and (segment.doubt or segment.end_offset < offset):
            notes.append(f"{segment.log_uri}: {loss}, skipped")
        if segment.doubt:
            continue
        try:
            with _opened(segment, meter) as log:
                for position in sorted({log.position_for(offset - 1), 0}, reverse=True):
                    record = _last_before(log.window, position, offset)
                    if record:
                        if record.offset < offset - 1:
                            notes += log.damage(segment)
                        return _located(record, notes)
                notes += log.damage(segment)
        except (FileReadError, Kip33Error) as error:
            notes.append(f"{segment.log_uri}: cannot be read: {one_line(error)}")
    return _located(None, notes)


def counts_from(segment: SearchedSegment, offset: int, meter: Meter) -> bool:
    """Return whether a segment has a record, or control record, at or after an offset.

    Those that the local tier has, too, do not count.
    Raises CorruptSegmentError if damage hides it, and the OSError of the store.
    """
    with _opened(segment, meter) as log:
        for header in log.window.headers(log.position_for(offset)):
            if segment.until_offset is not None and header.last_offset >= segment.until_offset:
                return False
            if log.window.has_record_from(header, offset):
                return True
        if log.window.damage:
            raise CorruptSegmentError(log.window.damage)
    return False


def has_timestamp_from(segment: SearchedSegment, offset: int, meter: Meter) -> bool:
    """Return whether a batch that ends at or after an offset has a timestamp.

    Damage ends the walk; OSError as the store does.
    """
    with _opened(segment, meter) as log:
        return any(
            header.max_timestamp >= 0 and header.last_offset >= offset
            for header in log.window.headers(log.position_for(offset))
        )


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
    only those of small logs, because all segments there would be read.
    """
    notes = []
    for segment in segments:
        if before is not None and segment.base_offset >= before:
            break
        if segment.is_copy or segment.doubt or segment.is_bare or segment.record_count == 0:
            continue
        lacks = None
        if segment.status != SegmentStatus.UNVERIFIED:
            lacks = may_lack_timestamps(segment.max_timestamp, segment.smallest_timestamp)
        is_large = segment.size_bytes is not None and segment.size_bytes > _WALKED_BYTES
        if lacks is False or (lacks is None and is_large and before is not None):
            continue
        try:
            offset = _first_untimed(segment, meter)
        except (FileReadError, Kip33Error) as error:
            notes.append(f"{segment.log_uri}: cannot be read: {one_line(error)}")
            continue
        if offset is not None and (before is None or offset < before):
            return WithoutTimestamp(offset, joined_notes(*notes))
    return WithoutTimestamp(None, joined_notes(*notes))


def _first_untimed(segment: SearchedSegment, meter: Meter) -> int | None:
    """Return the first offset of the first batch with records and without a timestamp."""
    next_offset = segment.base_offset
    with _opened(segment, meter) as log:
        for header in log.window.headers(0):
            is_wrapper = header.magic < 2 and header.attributes & CODEC_MASK
            first = next_offset if is_wrapper else header.base_offset
            if segment.until_offset is not None and first >= segment.until_offset:
                break
            if header.max_timestamp == NO_TIMESTAMP and _may_have_records(header):
                return first
            next_offset = max(next_offset, header.last_offset + 1)
    return None


def _located(record: Record | None, notes: list[str]) -> FoundRecord:
    """Return the found record; every note is about something that was skipped."""
    return FoundRecord(record, "; ".join(notes) or None, bool(notes))


def _last_before(window: LogWindow, position: int, offset: int) -> Record | None:
    """Return the last record before an offset, from the batches at or after `position`.

    Only the positions of batches that may contain it are kept, and only those after the last batch
    that certainly contains a record before the offset.
    """
    places = array("I" if window.end <= _UINT32 else "Q")
    for header in window.headers(position):
        if _surely_before(header, offset):
            del places[:]
        if _may_have_records(header):
            places.append(header.position)
        if header.last_offset >= offset - 1 and not has_any_offset(header):
            break
    for place in reversed(places):
        window.expect(RECORD_BATCH_OVERHEAD)  # one header is enough for a walk backwards
        last: Record | None = None
        for again in islice(window.headers(place), 1):
            for record in _records(window, again):
                if record.offset < offset:
                    last = record
        if last:
            return last
    return None


def _may_have_records(header: BatchHeader) -> bool:
    is_control = header.magic >= 2 and header.attributes & CONTROL
    return header.records_count != 0 and not is_control


def _surely_before(header: BatchHeader, offset: int) -> bool:
    """Return whether the header alone proves a record before the offset: a plain v0, v1 message."""
    is_plain = header.magic < 2 and not header.attributes & CODEC_MASK
    return is_plain and header.last_offset < offset


def _records(window: LogWindow, header: BatchHeader) -> Iterator[Record]:
    """Yield a batch's records without keys and values; a control batch yields no records."""
    if header.magic >= 2 and header.attributes & CONTROL:
        return
    window.seek(header.position)
    yield from iterate_records(
        window,
        position=header.position,
        skip_key_value=True,
        max_batch_bytes=window.max_batch_bytes,
    )


class _LogAndIndex(NamedTuple):
    """An open log and its `.index`, if any."""

    window: LogWindow
    base_offset: int
    offsets: IndexPages | None

    def damage(self, segment: SearchedSegment) -> list[str]:
        """Return notes on the damage that ended a walk before the log's end."""
        damage = self.window.damage
        return [f"{segment.log_uri}: {damage}; the rest was not read"] if damage else []

    def position_for(self, offset: int) -> int:
        """Return a position at or before an offset where a walk can begin: an index point, or 0."""
        return checked_position(
            self.window, self.offsets, base_offset=self.base_offset, offset=offset
        )


@contextmanager
def _opened(segment: SearchedSegment, meter: Meter) -> Iterator[_LogAndIndex]:
    """Open a log, and the `.index` beside the catalog's `.timeindex`, else beside the log."""
    log = Location.of(segment.log_uri)
    places = [Location.of(segment.index_uri)] if segment.index_uri else []
    with ExitStack() as files:
        window = opened_window(log, segment.valid_bytes, files, meter, check_crc=True)
        named = [beside(place, "index") for place in (*places, log)]
        index = opened_index(named, OFFSET_WIDTHS, files, meter)
        yield _LogAndIndex(window, segment.base_offset, index)
