"""The rows of one segment after the other, as Arrow record batches.

Segments may share offsets: compaction was interrupted, or a segment was copied twice. As for a
consumer, offsets only increase: what an earlier segment has is not read again from a later one.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.errors import CorruptSegmentError, FileReadError, LocationError, UnsupportedFormatError
from kip33.formats import whole_bodies as decoded_records
from kip33.formats.byte_sources import ReadInto
from kip33.formats.held_batches import BatchWindows, HeldBatches
from kip33.formats.whole_bodies import RecordLimits, UnreadableBatch
from kip33.records.committed_reading import fates_of
from kip33.records.faults import Faults, OnError
from kip33.records.index_start import start_of
from kip33.records.partitions import PartitionSegments
from kip33.records.read_segment import ReadSegment
from kip33.records.record_request import RecordRequest
from kip33.records.transaction_fates import UNDECIDED_WHY, TransactionFates
from kip33.stores.files import one_line, opened

LOCAL_WINDOW_BYTES: Final = 1 << 20
REMOTE_WINDOW_BYTES: Final = 1 << 23


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
    """Reads segments in order; compiled code walks as soon as there are enough bytes.

    `first_new_offset` is the first offset of the current segment that no earlier one has, 0 if it
    shares no offsets with them.
    """

    def __init__(self, request: RecordRequest, rows: Rows, faults: Faults) -> None:
        """Read what `request` wants, as `rows`."""
        self._asked, self._request, self._rows, self._faults = request, request, rows, faults
        self._fates = TransactionFates()
        self._bytes_read = 0
        self._latest = -1  # the largest timestamp of the partition so far
        self._last: ReadSegment | None = None
        self.first_new_offset = 0
        self._next_offset = 0  # after the last one of the partition so far
        rows.use(request.limits)

    def read(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        asked, self._latest = self._asked, -1
        needed = [number for number, one in enumerate(partition) if self._asked.needs(one)]
        if not needed:
            return
        if self._asked.only_committed:
            self._fates = fates_of(partition, first_needed=needed[0], last_needed=needed[-1])
            asked = asked.below(self._fates.last_stable_offset)
        self._use(asked)
        for segment in partition:
            if asked.is_over(self._latest):
                return
            self.first_new_offset = first_new = self._first_new_of(segment)
            before = self._latest, self._next_offset
            is_known = segment.last_offset is not None and segment.last_offset < first_new
            if asked.needs(segment) and not is_known:
                self._use(_inside(asked.starting_at(first_new) if first_new else asked, segment))
                yield from self._of_segment(segment)
            if segment.share:  # the next share may begin inside what was read
                self._latest, self._next_offset = before
                continue
            self._latest = max(self._latest, segment.max_timestamp or -1)
            if segment.base_offset is not None and segment.last_offset is not None:
                self._next_offset = max(self._next_offset, segment.last_offset + 1)

    def _use(self, request: RecordRequest) -> None:
        """Read what `request` wants from now on."""
        if request != self._request:
            self._request = request
            self._rows.use(request.limits)

    def _first_new_of(self, segment: ReadSegment) -> int:
        """Return the first offset that no earlier segment has, 0 if these share no offsets.

        Segments of a partition may come in several parts.
        """
        if self._last is None or not self._last.is_before(segment):
            self._next_offset = 0
        self._last = segment
        first_new = max(self._next_offset, segment.first_new_offset)
        return 0 if segment.base_offset is None or segment.base_offset >= first_new else first_new

    def _of_segment(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        uri = segment.log.uri
        problem: LocationError | CorruptSegmentError | None = None
        try:
            if segment.error:
                raise LocationError(f"{uri}: cannot be read: {segment.error}")
            with opened(segment.log) as (read_into, size_bytes):
                size_bytes = segment.readable_bytes(size_bytes)
                yield from self._of_log(segment, read_into, size_bytes)
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
        self, segment: ReadSegment, read_into: ReadInto, size_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an open log; raises CorruptSegmentError for damage at its end."""
        self._bytes_read += size_bytes
        windows = BatchWindows(
            *(read_into, size_bytes),
            position=start_of(segment, self._request.limits, read_into, size_bytes),
            native=self._bytes_read > decoded_records.PLAIN_BYTES,
            window_bytes=LOCAL_WINDOW_BYTES if segment.log.is_local else REMOTE_WINDOW_BYTES,
        )
        for held in windows:
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
            if self._request.ends_in(held.batches) or self._request.is_over(self._latest):
                return
        if windows.damage:
            message = f"{segment.log.uri}: {windows.damage}"
            raise CorruptSegmentError(message, windows.position)

    def _wanted(self, held: HeldBatches) -> Iterator[tuple[HeldBatches, str | None]]:
        """Yield the batches that are wanted, and why it is not known that they were committed."""
        batches = held.batches
        is_wanted = self._request.wanted(batches)
        if not self._asked.only_committed:
            yield _those(held, is_wanted), None
            return
        kept = _those(held, is_wanted & ~self._fates.aborted(batches))
        is_undecided = self._fates.undecided(kept.batches)
        changes = np.flatnonzero(np.diff(is_undecided)) + 1
        for first, end in zip([0, *changes], [*changes, len(is_undecided)], strict=True):
            why = UNDECIDED_WHY if first < end and is_undecided[first] else None
            yield kept._replace(batches=kept.batches[first:end]), why


def _inside(request: RecordRequest, segment: ReadSegment) -> RecordRequest:
    """Return the request without the offsets of other tasks."""
    share = segment.share
    return request.starting_at(share.first_offset).below(share.end_offset) if share else request


def _those(held: HeldBatches, wanted: npt.NDArray[np.bool_]) -> HeldBatches:
    return held if wanted.all() else held._replace(batches=held.batches[wanted])


def _of_file(
    segment: ReadSegment, error: CorruptSegmentError | UnsupportedFormatError
) -> CorruptSegmentError | UnsupportedFormatError:
    """Return the error with the name of the file."""
    message = f"{segment.log.uri}: {error}"
    if isinstance(error, CorruptSegmentError):
        return CorruptSegmentError(message, error.valid_bytes)
    return type(error)(message)
