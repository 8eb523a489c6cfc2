"""Records from raw segment files, without a broker, a catalog or Spark."""

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from kip33.archive.directory import Segment
from kip33.archive.log_slice import LogSlice
from kip33.archive.log_window import Damage, LogWindow, Meter
from kip33.archive.moments import moment_ms
from kip33.archive.segment_paths import base_offset_in, list_partition
from kip33.archive.sources import SegmentLike, log_of
from kip33.errors import (
    CorruptSegmentError,
    FileReadError,
    LocationError,
    UnsupportedFormatError,
)
from kip33.formats.batch import CONTROL, BatchHeader, has_any_offset
from kip33.formats.byte_sources import pieces_of
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES, Record, iterate_records
from kip33.formats.times import Time
from kip33.options import number_of
from kip33.rules.search import Exactness
from kip33.search.searched_segment import SearchedSegment
from kip33.search.segment_search import opened_search
from kip33.stores.files import one_line
from kip33.stores.filesystem_option import Filesystem, StorageOptions
from kip33.stores.locations import Location

Segments: TypeAlias = SegmentLike | Iterable[SegmentLike]
"""A partition's directory, a log, or several of these from one partition.

Each is a path, a URI or a `Segment`.
"""

_HELD_BYTES: Final = 1 << 25  # larger batches are read from the file twice


class _ReadOptions(NamedTuple):
    include_control: bool
    check_crc: bool
    max_batch_bytes: int


def find_offset(
    segments: Segments,
    time: Time,
    *,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Record | None:
    """Return the first record, by offset, at or after a time; None if there is no such record.

    >>> log = "archive/broker-1/orders-0/00000000000000000000.log"
    >>> record = find_offset(log, 1_700_000_300_000)
    >>> record.offset, record.timestamp
    (2970, 1700000300046)

    `time` is ISO 8601, `now-3h`, a `datetime` with a time zone, a time of pandas, NumPy or pyarrow,
    or ms since 1970; ValueError for another, such as a number of seconds. Control records are
    included, as in Kafka. An index beside a log is used if the log agrees with it. Every batch
    on the way is checked against its CRC before its header is used. Raises LocationError if a file
    cannot be read. Raises CorruptSegmentError, with `valid_bytes`, if an earlier batch cannot be
    read, because a record there could be the first. Raises BatchTooLargeError if the record's batch
    decompresses to more than `max_batch_bytes`.
    """
    number_of("max_batch_bytes", max_batch_bytes, least=1)
    timestamp_ms = moment_ms(time)
    for log in _logs_of(segments, storage_options, filesystem):
        row = SearchedSegment(log.log.uri, log.base_offset)
        try:
            with opened_search(row, log, Meter(max_batch_bytes), check_crc=True) as search:
                hit = search.find(timestamp_ms)
                if hit and hit.exactness == Exactness.BATCH:
                    raise CorruptSegmentError(hit.note or "", hit.position)
                if hit:
                    batches = _Batches(log, search.log, max_batch_bytes)
                    return _record_of(log, batches, hit.position, timestamp_ms)
                damage = search.log.damage
        except FileReadError as error:
            raise _unreadable(log, error) from error
        if damage:
            raise _corrupt(log, damage)
    return None


def _record_of(log: LogSlice, batches: "_Batches", position: int, timestamp_ms: int) -> Record:
    for record in batches.records(batches.at(position)):
        if record.timestamp >= timestamp_ms and record.offset >= log.base_offset:
            return record
    raise CorruptSegmentError(
        f"{log.log.uri}: at byte {position}: the log changed while it was read", position
    )


def read_records(
    segments: Segments,
    start: int = 0,
    end: int | None = None,
    *,
    include_control: bool = False,
    check_crc: bool = True,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Iterator[Record]:
    """Yield the records with `start` <= offset < `end`, across segments.

    >>> log = "archive/broker-1/orders-0/00000000000000000000.log"
    >>> [record.offset for record in read_records(log, 7, 10)]
    [7, 8, 9]

    Keys and values are bytes or None, as they were sent. Offsets without a record, because of
    compaction or a transaction's marker, are skipped. Control records are left out by default, as
    consumers do not see them. Records of aborted transactions are included, as for
    `read_uncommitted`.

    Only segments that may contain these offsets are opened, at the position from an `.index` beside
    the log; damage before that position is not detected. From there every batch is checked against
    its CRC before its header is used. If a log ends in damage, the records before it are yielded,
    as recovery would keep them, then CorruptSegmentError is raised, with `valid_bytes`. No CRC
    covers a batch's offset. So CorruptSegmentError is also raised if offsets decrease at a batch
    that would be skipped, or right after the last one that is read. Raises LocationError if a file
    cannot be read, BatchTooLargeError if a batch decompresses to more than `max_batch_bytes`,
    ValueError for two segments with one base offset.
    """
    first = number_of("start", start)
    last = None if end is None else number_of("end", end)
    number_of("max_batch_bytes", max_batch_bytes, least=1)
    logs = _logs_of(segments, storage_options, filesystem)
    how = _ReadOptions(include_control, check_crc, max_batch_bytes)
    return _over_borders(logs, first, last, how)


def _over_borders(
    logs: list[LogSlice], start: int, end: int | None, how: _ReadOptions
) -> Iterator[Record]:
    for place, log in enumerate(logs):
        if end is not None and log.base_offset >= end:
            return
        if place + 1 == len(logs) or logs[place + 1].base_offset > start:
            yield from _records(log, start, end, how)


def _given(segments: Segments) -> list[SegmentLike]:
    if isinstance(segments, str | os.PathLike | Segment):
        return [segments]
    return list(segments)


def _logs_of(
    segments: Segments, options: StorageOptions | None, filesystem: Filesystem | None
) -> list[LogSlice]:
    """Return the logs by base offset; LocationError if there are no logs."""
    given = _given(segments)
    logs = []
    for segment in given:
        location = log_of(segment, options, filesystem)
        if isinstance(segment, Segment):
            if segment.error or segment.base_offset is None:
                raise LocationError(f"{location.uri}: cannot be read: {segment.error}")
            base_offset: int | None = segment.base_offset
        else:
            base_offset = base_offset_in(location.name)
        if base_offset is not None:
            logs.append(_whole(location, base_offset))
            continue
        try:
            listed = list_partition(location)
        except FileReadError as error:
            what = "neither a directory nor a log: expected '<base offset>.log'"
            raise LocationError(f"{location.uri}: {what}: {one_line(error)}") from error
        if unrenamed := listed.unrenamed():
            raise LocationError(f"{location.uri}/{unrenamed}")
        for offset, files in listed.segments.items():
            named = (location.child(f.name) for f in files if f.name.endswith(".log"))
            logs += [_whole(log, offset) for log in named]
    if not logs:
        raise LocationError(
            f"{', '.join(map(_shown, given)) or 'nothing'}: no segments found; give the directory "
            "of a partition, or logs"
        )
    logs.sort(key=lambda log: (log.base_offset, log.log))
    for log, next_log in pairwise(logs):
        if log.base_offset == next_log.base_offset:
            raise ValueError(
                f"{log.log.uri}, {next_log.log.uri}: both have the same base offset; give "
                "the segments of one partition"
            )
    return logs


def _whole(log: Location, base_offset: int) -> LogSlice:
    return LogSlice(log, from_offset=base_offset, base_offset=base_offset)


def _shown(segment: SegmentLike) -> str:
    return segment.log_uri if isinstance(segment, Segment) else str(segment)


def _records(log: LogSlice, start: int, end: int | None, how: _ReadOptions) -> Iterator[Record]:
    try:
        with log.opened(Meter(), check_crc=how.check_crc) as opened:
            batches = _Batches(log, opened.window, how.max_batch_bytes)
            position = opened.position_for(start)
            for header in batches.between(position, start, end, in_order=how.check_crc):
                if how.include_control or header.magic < 2 or not header.attributes & CONTROL:
                    for record in batches.records(header):
                        if record.offset >= start and (end is None or record.offset < end):
                            yield record
    except FileReadError as error:
        raise _unreadable(log, error) from error


class _Batches:
    """The batches of one open log."""

    def __init__(self, log: LogSlice, window: LogWindow, max_batch_bytes: int) -> None:
        self._log, self._window, self._max_batch_bytes = log, window, max_batch_bytes

    def at(self, position: int) -> BatchHeader:
        """Return the header of the batch at a position where a batch was found before."""
        for header in self._window.walk(position):
            return header
        raise _corrupt(self._log, self._window.damage or "the log became shorter while it was read")

    def between(
        self, position: int, start: int, end: int | None, *, in_order: bool
    ) -> Iterator[BatchHeader]:
        """Yield the headers from `position` on that may contain an offset from `start` to `end`.

        Raises CorruptSegmentError at damage. With `in_order` also if offsets decrease at a skipped
        batch or after the last one: no CRC covers offsets, so they may be wrong there.
        """
        last_offset = self._log.base_offset - 1
        is_past_end = False
        for header in self._window.walk(position):
            goes_back = header.base_offset <= last_offset and not has_any_offset(header)
            if is_past_end and not goes_back:
                return
            is_before = header.last_offset < start and not has_any_offset(header)
            if goes_back and in_order and (is_before or is_past_end):
                what = f"offset {header.base_offset} comes after {last_offset}: offsets go back"
                what = f"at byte {header.position} of {self._window.end}: {what}"
                raise _corrupt(self._log, Damage(what, header.position))
            if is_past_end:
                return
            last_offset = max(last_offset, header.last_offset)
            if not is_before and (end is None or header.magic < 2 or header.base_offset < end):
                yield header
            is_past_end = end is not None and last_offset >= end - 1
        if self._window.damage and not is_past_end:  # later batches are not needed, damaged or not
            raise _corrupt(self._log, self._window.damage)

    def records(self, header: BatchHeader) -> Iterator[Record]:
        """Yield a batch's records; CorruptSegmentError, UnsupportedFormatError name the file."""
        self._window.seek(header.position)
        try:
            yield from iterate_records(
                self._held(header),
                position=header.position,
                max_batch_bytes=self._max_batch_bytes,
            )
        except CorruptSegmentError as error:
            raise _corrupt(self._log, Damage(str(error), header.position)) from error
        except UnsupportedFormatError as error:
            raise type(error)(f"{self._log.log.uri}: {error}") from error

    def _held(self, header: BatchHeader) -> bytes | LogWindow:
        """Return a batch's bytes, or the file at its position if it is too large for memory."""
        if header.size_bytes > _HELD_BYTES:
            return self._window
        end = header.position + header.size_bytes
        return b"".join(pieces_of(self._window, header.position, end))


def _corrupt(log: LogSlice, damage: str) -> CorruptSegmentError:
    position = damage.position if isinstance(damage, Damage) else 0
    return CorruptSegmentError(f"{log.log.uri}: {damage}", position)


def _unreadable(log: LogSlice, error: OSError) -> LocationError:
    return LocationError(f"{log.log.uri}: cannot be read: {one_line(error)}")
