"""The rows of one segment after the other, as Arrow record batches.

Segments may share offsets: compaction was interrupted, or a segment was copied twice. As for a
consumer, offsets only increase: what an earlier segment has is not read again from a later one. A
catalog tells this beforehand; without one it is known when the earlier segment was read.

Reading a log begins at a place that its index files name, if the batches there match them, as in a
search; else at the start. Damage before that place is not found.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.archive.bad_batches import damaged_bytes_at
from kip33.archive.log_window import (
    LogWindow,
    Meter,
    checked_position,
    entries_around,
)
from kip33.errors import (
    CorruptIndexError,
    CorruptSegmentError,
    FileReadError,
    Kip33Error,
    UnreadableLogError,
    UnsupportedFormatError,
)
from kip33.formats import whole_bodies as decoded_records
from kip33.formats.batch import BatchColumns, BatchHeader
from kip33.formats.byte_sources import ReadInto
from kip33.formats.held_batches import BatchWindows, HeldBatches
from kip33.formats.index_pages import IndexPages, last_point
from kip33.formats.whole_bodies import RecordLimits, UnreadableBatch
from kip33.records.partitions import PartitionSegments, ReadSegment
from kip33.records.record_request import Faults, OnError, RecordRequest
from kip33.records.transaction_fates import Begun, TransactionFates, begun_of
from kip33.rules.index_entries import first_disordered
from kip33.rules.search import Claim, bears_out, reach_of
from kip33.stores.files import one_line, opened

LOCAL_WINDOW_BYTES: Final = 1 << 22
REMOTE_WINDOW_BYTES: Final = 1 << 23
_SMALL_LOG_BYTES: Final = 1 << 20  # is read from its start
_MOST_HEADERS: Final = 4096  # between an index point and an entry's batch
UNDECIDED_WHY: Final = (
    "the marker of its transaction may be lost: the log has a gap or damage after it"
)


class Rows(Protocol):
    """Turns batches into rows."""

    def use(self, limits: RecordLimits) -> None:
        """Return rows inside `limits` from now on."""

    def add(
        self, segment: ReadSegment, held: HeldBatches, undecided: str | None
    ) -> Iterator[pa.RecordBatch | UnreadableBatch]:
        """Yield record batches, and the batches that cannot be read."""

    def finish(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were collected."""


class SegmentReader:
    """Reads segments in order; compiled code walks as soon as there are enough bytes."""

    def __init__(self, request: RecordRequest, rows: Rows, faults: Faults) -> None:
        """Read what `request` wants, as `rows`."""
        self._request, self._rows, self._faults = request, rows, faults
        self._asked, self._begun = request, Begun(request, TransactionFates())
        self._bytes_read = 0
        self._latest = -1  # the largest timestamp so far of what is read together
        self.next_offset = 0  # after the last offset of it
        self.reaches_stop = self._takes_over = False
        self._is_disordered = False  # said of the current segment
        self._last_in_segment = -1  # its last offset so far
        rows.use(request.limits)

    def read(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        begun = begun_of(partition, self._asked)
        if begun:
            if begun.notice:
                self._faults.warn(begun.notice)
            yield from self.read_part(begun, begun.request.needed_of(partition))

    def read_part(
        self, begun: Begun, segments: Iterable[ReadSegment], *, takes_over: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of consecutive segments of a partition, or of a span of one.

        With `takes_over` the rest of a segment is read, too, if no batch begins at the span's stop.
        Then `reaches_stop` is false, as it is if the log ends before.
        """
        self._begun, self._latest, self.next_offset = begun, -1, 0
        self.reaches_stop, self._takes_over = False, takes_over
        self._use(begun.request)
        for found in segments:
            segment = found.after(self.next_offset)
            self._is_disordered, self._last_in_segment = False, -1
            if segment.has_new_offsets:
                for warning in segment.warnings(begun.request.limits.first_offset):
                    yield from self._faults.found(segment, CorruptSegmentError(warning, 0))
                self._use(begun.request.inside(segment.slice))
                yield from self._of_segment(segment)
            if self.is_over:
                return

    @property
    def is_over(self) -> bool:
        """Return whether no later record of the partition is wanted."""
        return self._begun.request.is_over(self._latest)

    def _use(self, request: RecordRequest) -> None:
        if request != self._request:
            self._request = request
            self._rows.use(request.limits)

    def _of_segment(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        uri = segment.log.uri
        problem: UnreadableLogError | CorruptSegmentError | None = None
        try:
            if segment.error:
                raise UnreadableLogError(f"{uri}: cannot be read: {segment.error}")
            with opened(segment.log) as (read_into, size_bytes):
                yield from self._of_log(segment, read_into, segment.readable_bytes(size_bytes))
        except FileReadError as error:
            problem = UnreadableLogError(f"{uri}: cannot be read: {one_line(error)}")
        except (UnreadableLogError, CorruptSegmentError) as error:
            problem = error
        yield from self._rows.finish(segment)
        if problem:
            yield from self._faults.found(segment, problem)

    def _of_log(
        self, segment: ReadSegment, read_into: ReadInto, size_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an open log; raises CorruptSegmentError for damage that ends it."""
        start: int | None = None
        stop = None
        if span := segment.span:
            size_bytes = min(size_bytes, span.log_bytes)
            if span.is_there(read_into, size_bytes):
                start, stop = span.start, span.stop
            else:  # another log is there now: of this one the same offsets
                self._use(self._request.starting_at(span.first_offset).below(span.end_offset))
                self.reaches_stop = True
        if start is None:
            start = start_of(segment, self._request.limits, read_into, size_bytes)
        self._bytes_read += size_bytes
        begin_offset = segment.base_offset if start == 0 else None
        while start is not None:
            windows = BatchWindows(
                *(read_into, size_bytes),
                position=start,
                native=self._bytes_read > decoded_records.PLAIN_BYTES,
                window_bytes=LOCAL_WINDOW_BYTES if segment.log.is_local else REMOTE_WINDOW_BYTES,
            )
            start = None
            if (yield from self._is_over_in(windows, segment, stop)) or not windows.damage:
                return
            next_offset = begin_offset if windows.next_offset is None else windows.next_offset
            if windows.only_zeros_follow and segment.is_whole_before_zeros(next_offset or 0):
                return
            why = CorruptSegmentError(f"{segment.log.uri}: {windows.damage}", windows.position)
            found = None
            if windows.has_wrong_crc and self._faults.on_error != OnError.FAIL:
                found = damaged_bytes_at(read_into, size_bytes, windows.position, next_offset)
            if found is None:
                raise why
            yield from self._rows.finish(segment)
            if found.next_offset > self._request.limits.first_offset:
                error = CorruptSegmentError(f"{why}; {found}", windows.position)
                yield from self._faults.found(segment, error)
            start = found.next_position  # the stop may be before it

    def _is_over_in(
        self, windows: BatchWindows, segment: ReadSegment, stop: int | None
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Yield the rows of batches up to damage; return whether no later batch is wanted."""
        for held in windows:
            is_last = segment.slice.ends_in(held.batches)  # the rest of the file is not of the log
            at_stop = held.batches[:0]
            if stop is not None and held.batches["position"][-1] >= stop:
                count = int(np.searchsorted(held.batches["position"], stop))
                self.reaches_stop = bool(held.batches["position"][count] == stop)
                if self.reaches_stop or not self._takes_over:
                    at_stop = held.batches[count : count + 1]
                    held, is_last = held._replace(batches=held.batches[:count]), True
                else:
                    stop = None
            batches = segment.slice.inside(held.batches)
            end = self._request.ends_in(batches)
            if len(batches):
                yield from self._of_batches(segment, held._replace(batches=batches[:end]))
            if len(at_stop) and end is None:  # a later span does not know the batch before it
                yield from self._of_disorder(segment, at_stop)
            if is_last or end is not None or self.is_over:
                return True
        return False

    def _of_batches(self, segment: ReadSegment, held: HeldBatches) -> Iterator[pa.RecordBatch]:
        yield from self._of_disorder(segment, held.batches)
        for part, undecided in self._wanted(held):
            if undecided and self._faults.on_error == OnError.FAIL:
                position = int(part.batches["position"][0])
                message = f"{segment.log.uri}: batch at position {position}: {undecided}"
                raise CorruptSegmentError(message, position)
            for found in self._rows.add(segment, part, undecided):
                if isinstance(found, UnreadableBatch):
                    yield from self._faults.found(segment, _of_file(segment, found.error))
                else:
                    yield found
        self._latest = max(self._latest, int(held.batches["max_timestamp"].max()))
        if segment.base_offset is not None:
            end = segment.end_of(held.batches["last_offset"])
            self.next_offset = max(self.next_offset, end)

    def _of_disorder(self, segment: ReadSegment, batches: BatchColumns) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of offsets that are wrong, once for a log that no build has read."""
        if segment.is_checked or segment.base_offset is None or self._is_disordered:
            return
        found = first_disordered(batches, segment.base_offset, self._last_in_segment)
        self._last_in_segment = int(batches["last_offset"][-1])
        if found:
            self._is_disordered = True
            position, why = found
            message = f"{segment.log.uri}: at byte {position}: {why}; the log may be invalid"
            yield from self._faults.found(segment, CorruptSegmentError(message, position))

    def _wanted(self, held: HeldBatches) -> Iterator[tuple[HeldBatches, str | None]]:
        """Yield the batches that are wanted, with the reason if their outcome is unknown."""
        batches = held.batches
        is_wanted = self._request.wanted(batches)
        fates = self._begun.fates
        if not self._request.only_committed:
            yield _those(held, is_wanted), None
            return
        kept = _those(held, is_wanted & ~fates.aborted(batches))
        is_undecided = fates.undecided(kept.batches)
        changes = np.flatnonzero(np.diff(is_undecided)) + 1
        for first, end in zip([0, *changes], [*changes, len(is_undecided)], strict=True):
            why = UNDECIDED_WHY if first < end and is_undecided[first] else None
            yield kept._replace(batches=kept.batches[first:end]), why


def _those(held: HeldBatches, wanted: npt.NDArray[np.bool_]) -> HeldBatches:
    return held if wanted.all() else held._replace(batches=held.batches[wanted])


def _of_file(
    segment: ReadSegment, error: CorruptSegmentError | UnsupportedFormatError
) -> CorruptSegmentError | UnsupportedFormatError:
    message = f"{segment.log.uri}: {error}"
    if isinstance(error, CorruptSegmentError):
        return CorruptSegmentError(message, error.valid_bytes)
    return type(error)(message)


def start_of(
    segment: ReadSegment, limits: RecordLimits, read_into: ReadInto, size_bytes: int
) -> int:
    """Return the position of a batch before which no record is inside the limits."""
    base_offset = segment.base_offset
    if base_offset is None or size_bytes < _SMALL_LOG_BYTES:
        return 0
    end = size_bytes
    if segment.figures and segment.figures.valid_bytes is not None:
        end = min(end, segment.figures.valid_bytes)
    log = LogWindow(read_into, end)
    start = 0
    with ExitStack() as files:
        try:
            offsets = segment.slice.offset_index(files, Meter())
            if offsets is None:
                return 0
            if limits.first_offset > base_offset:
                start = checked_position(
                    log, offsets, base_offset=base_offset, offset=limits.first_offset
                )
            if limits.first_timestamp >= 0:
                times = segment.slice.time_index_pages(files, Meter())
                if times is not None:
                    found = _position_at(log, times, offsets, base_offset, limits.first_timestamp)
                    start = max(start, found)
        except (FileReadError, Kip33Error):
            return 0
    return start


def _position_at(
    log: LogWindow, times: IndexPages, offsets: IndexPages, base_offset: int, time_ms: int
) -> int:
    """Return a position before which no record is at or after a time, 0 if none is confirmed."""
    entry, _ = entries_around(times, time_ms, base_offset=base_offset, last_offset=None)
    if entry is None:
        return 0
    for claim in (Claim(entry, False, tight=False), Claim(entry, True, tight=True)):
        slot = last_point(offsets, reach_of(claim) - claim.next_offset - base_offset)
        position = offsets[slot][1] if slot >= 0 else 0
        if position >= log.end:
            raise CorruptIndexError(f".index: position {position} of {log.end} bytes")
        if bears_out(_until(log, position, reach_of(claim)), claim, time_ms):
            return position
    return 0


def _until(log: LogWindow, position: int, offset: int) -> list[BatchHeader]:
    """Return the headers from a position to the first batch that reaches an offset."""
    headers = []
    for header in log.headers(position):
        headers.append(header)
        if header.last_offset >= offset or len(headers) == _MOST_HEADERS:
            break
    return headers
