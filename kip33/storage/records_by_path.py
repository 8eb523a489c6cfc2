"""Records from raw segment files, without a broker, a catalog or Spark."""

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, Kip33Error, LocationError, UnsupportedFormatError
from kip33.formats.batch import CONTROL, LEGACY_CRC_START, V2_CRC_START, BatchHeader
from kip33.formats.crc import crc32, crc32c
from kip33.formats.pieces import pieces_of
from kip33.formats.records import Record, iterate_records
from kip33.formats.scan import SMALL_BYTES
from kip33.rules.search import BATCH
from kip33.storage.files import opened, reason
from kip33.storage.index_pages import OFFSET_WIDTHS, IndexPages
from kip33.storage.locations import Location
from kip33.storage.log_window import LOCAL_BYTES, REMOTE_BYTES, LogWindow, Meter
from kip33.storage.partition_files import list_partition
from kip33.storage.searched import SearchedSegment
from kip33.storage.segment_files import base_offset_in, beside
from kip33.storage.segment_search import opened_search

Segments: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A partition's directory, a `.log` file, or several of either of one partition: paths or URIs."""

_HELD_BYTES: Final = 1 << 25  # a larger batch is read from the file twice


class _Log(NamedTuple):
    base_offset: int
    place: Location


def find_offset(segments: Segments, timestamp_ms: int) -> Record | None:
    """Return the first record, by offset, at or after a time; None where there is none.

    Control records count, as for Kafka. An index beside a log shortens the way where the log bears
    it out. Raises LocationError where a file cannot be read, and CorruptSegmentError where a batch
    that comes first cannot be: a record there could be earlier.
    """
    if timestamp_ms < 0:
        raise ValueError(f"timestamp {timestamp_ms}: milliseconds since epoch expected")
    for log in _logs_of(segments):
        row = SearchedSegment(
            log_uri=log.place.uri,
            base_offset=log.base_offset,
            last_offset=None,
            size_bytes=None,
            valid_bytes=None,
            max_timestamp=None,
            largest_timestamp=None,
            status="unverified",
            index_uri=None,
            dialect=None,
        )
        try:
            with opened_search(row, Meter(), start_offset=log.base_offset) as search:
                hit = search.find(timestamp_ms)
        except OSError as error:
            raise _unreadable(log, error) from error
        if hit and hit.exactness == BATCH:
            raise CorruptSegmentError(hit.note or "")
        if hit:
            return next(
                _records(log, hit.offset, hit.offset + 1, include_control=True, check_crc=False)
            )
        if search.log.damage:
            raise CorruptSegmentError(f"{row.log_uri}: {search.log.damage}")
    return None


def read_records(
    segments: Segments,
    start: int = 0,
    end: int | None = None,
    *,
    include_control: bool = False,
    check_crc: bool = True,
) -> Iterator[Record]:
    """Yield the records with `start` <= offset < `end`, over the borders of segments.

    Keys and values are bytes or None, as they were sent; offsets that compaction or a transaction's
    marker took are passed over. Control records are left out unless asked for: no consumer sees
    them. Records of aborted transactions are there, for `read_uncommitted`.

    Only the segments that may hold such offsets are opened, from the place that an `.index` beside
    the log names. Where a log ends in damage its records up to there are yielded, as recovery would
    keep them, then CorruptSegmentError is raised, with `valid_bytes`. LocationError where a file
    cannot be read, ValueError for two segments of one base offset.
    """
    logs = _logs_of(segments)
    return _over_borders(logs, start, end, include_control=include_control, check_crc=check_crc)


def _over_borders(
    logs: list[_Log], start: int, end: int | None, *, include_control: bool, check_crc: bool
) -> Iterator[Record]:
    for place, log in enumerate(logs):
        if end is not None and log.base_offset >= end:
            return
        if place + 1 == len(logs) or logs[place + 1].base_offset > start:
            yield from _records(
                log, start, end, include_control=include_control, check_crc=check_crc
            )


def _logs_of(segments: Segments) -> list[_Log]:
    """Return the logs by base offset; LocationError where there are none."""
    given = [segments] if isinstance(segments, str | os.PathLike) else list(segments)
    logs = []
    for location in map(Location.of, given):
        base_offset = base_offset_in(location.name)
        if base_offset is not None:
            logs.append(_Log(base_offset, location))
            continue
        try:
            listed = list_partition(location)
        except OSError as error:
            what = "no directory, and not named as a segment's log"
            raise LocationError(f"{location.uri}: {what}: {reason(error)}") from error
        for base_offset, files in listed.segments.items():
            named = (location.child(f.name) for f in files if f.name.endswith(".log"))
            logs += [_Log(base_offset, log) for log in named]
    if not logs:
        raise LocationError(f"{', '.join(map(str, given)) or 'nothing'}: no segments there")
    logs.sort()
    for one, other in pairwise(logs):
        if one.base_offset == other.base_offset:
            raise ValueError(f"{one.place.uri}, {other.place.uri}: one base offset, one partition?")
    return logs


def _records(
    log: _Log, start: int, end: int | None, *, include_control: bool, check_crc: bool
) -> Iterator[Record]:
    try:
        with opened(log.place) as (read_into, size_bytes):
            most = LOCAL_BYTES if log.place.is_local else REMOTE_BYTES
            window = LogWindow(read_into, size_bytes, most_bytes=most)
            batches = _Batches(log, window, check_crc=check_crc)
            for header in batches.reaching(start):
                if header.magic >= 2 and end is not None and header.base_offset >= end:
                    return
                if include_control or header.magic < 2 or not header.attributes & CONTROL:
                    for record in batches.records(header):
                        if end is not None and record.offset >= end:
                            return
                        if record.offset >= start:
                            yield record
                if end is not None and header.last_offset >= end - 1:
                    return  # what follows is not asked for, damaged or not
    except OSError as error:
        raise _unreadable(log, error) from error


class _Batches:
    """The batches of one open log, each one checked before it is given out."""

    def __init__(self, log: _Log, window: LogWindow, *, check_crc: bool) -> None:
        self._log, self._window, self._check_crc = log, window, check_crc
        self._checked_bytes = 0

    def reaching(self, start: int) -> Iterator[BatchHeader]:
        """Yield the headers of batches that reach an offset; CorruptSegmentError at damage."""
        end = self._place_for(start)
        for header in self._window.headers(end):
            if header.last_offset >= start:
                if self._check_crc and not self._matches_crc(header):
                    self._raise("the batch's bytes do not match its CRC", header.position)
                yield header
            end = header.position + header.size_bytes
        if self._window.damage:
            self._raise(self._window.damage, end)

    def records(self, header: BatchHeader) -> Iterator[Record]:
        """Yield a batch's records; CorruptSegmentError, UnsupportedFormatError name the file."""
        self._window.seek(header.position)
        try:
            yield from iterate_records(self._held(header), position=header.position)
        except CorruptSegmentError as error:
            self._raise(str(error), header.position)
        except UnsupportedFormatError as error:
            raise UnsupportedFormatError(f"{self._log.place.uri}: {error}") from error

    def _held(self, header: BatchHeader) -> bytes | LogWindow:
        """Return a batch's bytes, or the file at its place where it is too large to hold."""
        if header.size_bytes > _HELD_BYTES:
            return self._window
        end = header.position + header.size_bytes
        return b"".join(pieces_of(self._window, header.position, end))

    def _raise(self, what: str, valid_bytes: int) -> NoReturn:
        raise CorruptSegmentError(f"{self._log.place.uri}: {what}", valid_bytes)

    def _place_for(self, start: int) -> int:
        """Return the position that the `.index` beside the log names, if the batch there fits."""
        relative_offset = start - self._log.base_offset
        log = self._log.place
        if relative_offset <= 0:
            return 0
        try:
            with opened(beside(log, "index")) as (read_into, size_bytes):
                entries = IndexPages(read_into, size_bytes, OFFSET_WIDTHS)
                slot = entries.last(lambda relative, at: at > 0 and relative <= relative_offset)
                position = entries[slot][1] if slot >= 0 else 0
        except (OSError, Kip33Error):
            return 0
        header = next(self._window.headers(position), None) if position > 0 else None
        self._window.damage = None
        if header is None or not self._log.base_offset <= header.base_offset <= start:
            return 0
        return position if not self._check_crc or self._matches_crc(header) else 0

    def _matches_crc(self, header: BatchHeader) -> bool:
        begin = header.position + (LEGACY_CRC_START if header.magic < 2 else V2_CRC_START)
        value = 0
        for piece in pieces_of(self._window, begin, header.position + header.size_bytes):
            self._checked_bytes += len(piece)
            if header.magic < 2:
                value = crc32(value, piece, 0, len(piece))
            else:
                value = self._crc32c(value, piece)
        return value == header.crc & 0xFFFFFFFF

    def _crc32c(self, value: int, piece: bytes) -> int:
        if self._checked_bytes <= SMALL_BYTES:
            return crc32c(value, piece, 0, len(piece), None)
        from kip33.formats import native  # numba: half a second that few batches need not pay

        data = np.frombuffer(piece, np.uint8)
        return int(native.compiled(_with_crc32c)(value, data, native.crc32c_tables()))


def _with_crc32c(value: int, data: npt.NDArray[np.uint8], tables: Any) -> int:
    return crc32c(value, data, 0, data.size, tables)


def _unreadable(log: _Log, error: OSError) -> LocationError:
    return LocationError(f"{log.place.uri}: cannot be read: {reason(error)}")
