"""The rows of one segment after the other, as Arrow record batches.

Segments may share offsets: compaction was interrupted, or a segment was copied twice. As for a
consumer, offsets only increase: what an earlier segment has is not read again from a later one.

Reading a log begins at a place that its index files name, if the batches there match them, as in a
search; else at the start. Damage before that place is not found.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.archive.bad_batches import damaged_bytes_at
from kip33.archive.log_window import (
    LogWindow,
    Meter,
    checked_position,
    entries_around,
    opened_index,
)
from kip33.archive.segment_paths import beside
from kip33.errors import (
    CorruptIndexError,
    CorruptSegmentError,
    FileReadError,
    Kip33Error,
    LocationError,
    UnsupportedFormatError,
)
from kip33.formats import whole_bodies as decoded_records
from kip33.formats.batch import BatchColumns, BatchHeader
from kip33.formats.byte_sources import ReadInto
from kip33.formats.held_batches import BatchWindows, HeldBatches
from kip33.formats.index_pages import OFFSET_WIDTHS, TIME_WIDTHS, IndexPages, last_point
from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.whole_bodies import RecordLimits, UnreadableBatch
from kip33.records.partitions import PartitionSegments, ReadSegment
from kip33.records.record_request import Faults, OnError, RecordRequest
from kip33.records.transaction_fates import Begun, TransactionFates, begun_of
from kip33.rules.index_entries import first_disordered
from kip33.rules.search import Claim, bears_out, reach_of
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

LOCAL_WINDOW_BYTES: Final = 1 << 21
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


class Span(NamedTuple):
    """A part of a segment's log, between two positions."""

    start: int | None  # where a batch begins, if the index is right; None: to be found
    stop: int | None  # batches that begin before it are read; None: all
    log_bytes: int  # how much of the log there is to read


class Reached(NamedTuple):
    """How far a partition was read; each is at most that of all segments before."""

    latest: int  # the largest timestamp
    next_offset: int  # after the last one
    position: int | None  # where the rest of the segment begins; None: nothing is left to read


class SegmentReader:
    """Reads segments in order; compiled code walks as soon as there are enough bytes.

    `first_new_offset` is the first offset of the current segment that no earlier one has, 0 if it
    shares no offsets with them.
    """

    def __init__(self, request: RecordRequest, rows: Rows, faults: Faults) -> None:
        """Read what `request` wants, as `rows`."""
        self._request, self._rows, self._faults = request, rows, faults
        self._asked, self._begun = request, Begun(request, TransactionFates())
        self._bytes_read = 0
        self._latest = -1  # the largest timestamp of the partition so far
        self._last: ReadSegment | None = None
        self._is_disordered = False  # said of the current segment
        self._last_in_segment = -1  # its last offset so far
        self.first_new_offset = 0
        self._next_offset = 0  # after the last one of the partition so far
        self._position: int | None = None
        rows.use(request.limits)

    def read(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        begun = begun_of(partition, self._asked)
        if begun:
            self.begin(begun)
            yield from self.read_on(partition)

    def begin(self, begun: Begun) -> None:
        """Begin with a partition."""
        if begun.notice:
            self._faults.warn(begun.notice)
        self._begin(begun)

    def _begin(self, begun: Begun) -> None:
        self._begun, self._latest, self._position = begun, -1, None
        self._use(begun.request)

    def begin_anew(self, begun: Begun, faults: Faults) -> None:
        """Begin with segments of a partition as if none were read before."""
        self._last, self._faults = None, faults
        self._begin(begun)

    def read_on(
        self, segments: Iterable[ReadSegment], span: Span | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partition's next segments; `span`: a part of the only one."""
        asked = self._begun.request
        for segment in segments:
            if self.is_over:
                return
            if span is None or self._last != segment:
                self._come_to(segment)
            first_new = self.first_new_offset
            before = self._latest, self._next_offset
            self._position = None
            if segment.conflict:  # others have its offsets
                if asked.needs(segment):
                    yield from self._faults.found(segment, CorruptSegmentError(segment.conflict, 0))
                continue
            if needs(asked, segment, first_new):
                for warning in segment.warnings(asked.limits.first_offset):
                    yield from self._faults.found(segment, CorruptSegmentError(warning, 0))
                self._use(request_inside(asked, segment, first_new))
                yield from self._of_segment(segment, span)
            if segment.share:  # the next share may begin inside what was read
                self._latest, self._next_offset = before
            elif self._position is None:
                self._pass(segment)

    @property
    def is_over(self) -> bool:
        """Return whether no later record of the partition is wanted."""
        return self._begun.request.is_over(self._latest)

    def _pass(self, segment: ReadSegment) -> None:
        """Note what is known about a segment of which no more is read."""
        self._latest = max(self._latest, segment.reached_timestamp)
        if segment.base_offset is not None and segment.last_offset is not None:
            self._next_offset = max(self._next_offset, segment.last_offset + 1)

    @property
    def reached(self) -> Reached:
        """Return how far the partition was read."""
        return Reached(self._latest, self._next_offset, self._position)

    def agrees(self, segments: Sequence[ReadSegment], span: Span | None) -> bool | None:
        """Return whether a reader that knows no earlier segment reads these as this one would.

        None: of the span's segment there is nothing more to read.
        """
        segment = segments[0]
        if span and self._last == segment:
            return None if self._position is None else self._position == span.start
        self._come_to(segment)
        self._position = None
        return self.first_new_offset == first_new_of(segment, 0)

    def follow(self, segments: Sequence[ReadSegment], reached: Reached) -> None:
        """Note how far another reader has read these segments, which are the next ones."""
        self._last = segments[-1]
        self._latest = max(self._latest, reached.latest)
        self._next_offset = max(self._next_offset, reached.next_offset)
        self._position = reached.position

    def read_instead(
        self, segments: Sequence[ReadSegment], span: Span | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the next segments, which another reader would not read as this one."""
        yield from self.read_on(segments, span and span._replace(start=self._position))

    def _use(self, request: RecordRequest) -> None:
        if request != self._request:
            self._request = request
            self._rows.use(request.limits)

    def _come_to(self, segment: ReadSegment) -> None:
        """Go to the next segment; segments of a partition may come in several parts."""
        if self._last is None or not self._last.is_before(segment):
            self._next_offset = 0
        self._last = segment
        self._is_disordered, self._last_in_segment = False, -1
        self.first_new_offset = first_new_of(segment, self._next_offset)

    def _of_segment(self, segment: ReadSegment, span: Span | None) -> Iterator[pa.RecordBatch]:
        uri = segment.log.uri
        problem: LocationError | CorruptSegmentError | None = None
        try:
            if segment.error:
                raise LocationError(f"{uri}: cannot be read: {segment.error}")
            with opened(segment.log) as (read_into, size_bytes):
                if span is None:
                    span = Span(None, None, segment.readable_bytes(size_bytes))
                yield from self._of_log(segment, read_into, span)
            self._faults.logs.is_any_read = True
        except FileReadError as error:
            problem = LocationError(f"{uri}: cannot be read: {one_line(error)}")
        except (LocationError, CorruptSegmentError) as error:
            problem = error
        if isinstance(problem, LocationError):
            self._faults.logs.unreadable[uri] = str(problem)
        elif problem:
            self._faults.logs.is_any_read = True
        yield from self._rows.finish(segment)
        if problem:
            yield from self._faults.found(segment, problem)

    def _of_log(
        self, segment: ReadSegment, read_into: ReadInto, span: Span
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an open log; raises CorruptSegmentError for damage that ends it."""
        start, _, size_bytes = span
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
            if (yield from self._is_over_in(windows, segment, span.stop)) or not windows.damage:
                return
            if windows.only_zeros_follow and segment.is_whole_before_zeros(self._next_offset):
                return
            next_offset = begin_offset if windows.next_offset is None else windows.next_offset
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
            start = found.next_position  # a later span may begin before it

    def _is_over_in(
        self, windows: BatchWindows, segment: ReadSegment, stop: int | None
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Yield the rows of batches up to damage; return whether no later batch is wanted."""
        for held in windows:
            rest = None  # where the next span begins
            if stop is not None and held.batches["position"][-1] >= stop:
                count = int(np.searchsorted(held.batches["position"], stop))
                rest = int(held.batches["position"][count])
                held = held._replace(batches=held.batches[:count])
            inside = segment.inside(held.batches)
            is_cut = len(inside) < len(held.batches)
            held = held._replace(batches=inside)
            if len(held.batches):
                yield from self._of_batches(segment, held)
                if self._request.ends_in(held.batches) or self._request.is_over(self._latest):
                    return True
            if is_cut:  # the rest of the file is not of the log
                return True
            if rest is not None:
                self._position = rest
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
            self._next_offset = max(self._next_offset, end)

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


def first_new_of(segment: ReadSegment, next_offset: int) -> int:
    """Return the first offset that no earlier segment has, 0 if these share no offsets.

    Earlier segments that were read end before `next_offset`.
    """
    first_new = max(next_offset, segment.first_new_offset)
    return 0 if segment.base_offset is None or segment.base_offset >= first_new else first_new


def needs(request: RecordRequest, segment: ReadSegment, first_new: int) -> bool:
    """Return whether a segment may have wanted records that no earlier one has."""
    last_offset = None if segment.damage else segment.last_offset
    is_known = last_offset is not None and last_offset < first_new
    return request.needs(segment) and not is_known


def request_inside(request: RecordRequest, segment: ReadSegment, first_new: int) -> RecordRequest:
    """Return what is wanted of a segment: its share, and what no other segment is read for."""
    request = request.below(segment.until_offset)
    if first_new:
        request = request.starting_at(first_new)
    share = segment.share
    return request.starting_at(share.first_offset).below(share.end_offset) if share else request


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
            offsets = offset_index_of(segment, files)
            if offsets is None:
                return 0
            if limits.first_offset > base_offset:
                start = checked_position(
                    log, offsets, base_offset=base_offset, offset=limits.first_offset
                )
            if limits.first_timestamp >= 0:
                places = filter(_is_time_index, _time_indexes(segment))
                times = opened_index(places, TIME_WIDTHS, files, Meter())
                if times is not None:
                    found = _position_at(log, times, offsets, base_offset, limits.first_timestamp)
                    start = max(start, found)
        except (FileReadError, Kip33Error):
            return 0
    return start


def offset_index_of(segment: ReadSegment, files: ExitStack) -> IndexPages | None:
    """Return the open `.index` of a segment, None without a readable one."""
    places = [beside(place, "index") for place in _time_indexes(segment)]
    return opened_index(places, OFFSET_WIDTHS, files, Meter())


def _time_indexes(segment: ReadSegment) -> list[Location]:
    """Return where its time index may be: where the catalog says, and beside the log."""
    beside_log = beside(segment.log, "timeindex")
    named = Location.of(segment.index_uri) if segment.index_uri else beside_log
    return list(dict.fromkeys((named, beside_log)))


def _is_time_index(place: Location) -> bool:
    """Return whether a file has the name of a `.timeindex`, not that of another design."""
    return (place.inside or place.path).endswith(TIME_INDEX_FILE)


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
