"""The records of one segment after the other, as Arrow record batches."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import pyarrow as pa

from kip33.errors import CorruptSegmentError, Kip33Error, LocationError, UnsupportedFormatError
from kip33.formats.byte_sources import ReadInto
from kip33.formats.decoded_records import RecordDecoder, UnreadableBatch
from kip33.formats.held_batches import BatchWindows
from kip33.formats.native import compiled, plain
from kip33.records.partitions import PartitionSegments
from kip33.records.read_segment import ReadSegment
from kip33.records.record_request import RecordRequest
from kip33.records.record_table import RecordTable
from kip33.stores.files import one_line, opened

PLAIN_BYTES: Final = 1 << 16  # fewer bytes are read before compiled code is loaded
LOCAL_WINDOW_BYTES: Final = 1 << 20
REMOTE_WINDOW_BYTES: Final = 1 << 23


class OnError(StrEnum):
    """What to do about bytes that cannot be read."""

    ROW = "row"  # return a row that says why
    FAIL = "fail"  # raise the error
    SKIP = "skip"  # only count them


class Faults:
    """Decides about what cannot be read; `skipped` gets a line for each that is skipped."""

    def __init__(self, on_error: OnError, skipped: list[str]) -> None:
        """Take the caller's choice and list."""
        self._on_error, self._skipped = on_error, skipped

    def found(
        self, table: RecordTable, segment: ReadSegment, error: Kip33Error
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row for an error, or raise it, or skip it."""
        if self._on_error == OnError.FAIL:
            raise error
        if self._on_error == OnError.SKIP:
            self._skipped.append(str(error))
            return
        yield from table.finish(segment)
        yield table.corrupt_row(segment, str(error))


class SegmentReader:
    """Reads segments in order; compiled code is used as soon as there are enough bytes."""

    def __init__(
        self, request: RecordRequest, schema: pa.Schema, faults: Faults, max_batch_bytes: int
    ) -> None:
        """Read what `request` wants into columns of `schema`."""
        self._request, self._schema, self._faults = request, schema, faults
        self._most = max_batch_bytes
        self._bytes_read = 0
        self._use(native=False)

    def _use(self, *, native: bool) -> None:
        self._native = native
        self._table = RecordTable(self._schema, compiled if native else plain)
        self._decoder = RecordDecoder(
            self._request.limits, max_batch_bytes=self._most, native=native
        )

    def records(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        self._latest = -1
        for segment in partition:
            if self._request.is_over(self._latest):
                return
            if self._request.needs(segment):
                yield from self._of_segment(segment)
            self._latest = max(self._latest, segment.max_timestamp or -1)

    def _of_segment(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        uri = segment.log.uri
        try:
            if segment.error:
                raise LocationError(f"{uri}: cannot be read: {segment.error}")
            with opened(segment.log) as (read_into, size_bytes):
                if segment.size_bytes is not None:
                    size_bytes = min(size_bytes, segment.size_bytes)
                yield from self._of_log(segment, read_into, size_bytes)
        except OSError as error:
            found = LocationError(f"{uri}: cannot be read: {one_line(error)}")
            yield from self._faults.found(self._table, segment, found)
        except (LocationError, CorruptSegmentError) as error:
            yield from self._faults.found(self._table, segment, error)
        yield from self._table.finish(segment)

    def _of_log(
        self, segment: ReadSegment, read_into: ReadInto, size_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of an open log; raises CorruptSegmentError for damage at its end."""
        if not self._native and self._bytes_read + size_bytes > PLAIN_BYTES:
            self._use(native=True)
        self._bytes_read += size_bytes
        windows = BatchWindows(
            *(read_into, size_bytes),
            native=self._native,
            window_bytes=LOCAL_WINDOW_BYTES if segment.log.is_local else REMOTE_WINDOW_BYTES,
        )
        for held in windows:
            is_wanted = self._request.wanted(held.batches)
            wanted = held if is_wanted.all() else held._replace(batches=held.batches[is_wanted])
            for found in self._decoder.decode(wanted):
                if isinstance(found, UnreadableBatch):
                    error = _of_file(segment, found.error)
                    yield from self._faults.found(self._table, segment, error)
                else:
                    yield from self._table.append(segment, *found)
            self._latest = max(self._latest, int(held.batches["max_timestamp"].max()))
            if self._request.ends_in(held.batches) or self._request.is_over(self._latest):
                return
        if windows.damage:
            message = f"{segment.log.uri}: {windows.damage}"
            raise CorruptSegmentError(message, windows.position)


def _of_file(
    segment: ReadSegment, error: CorruptSegmentError | UnsupportedFormatError
) -> CorruptSegmentError | UnsupportedFormatError:
    """Return the error with the name of the file."""
    message = f"{segment.log.uri}: {error}"
    if isinstance(error, CorruptSegmentError):
        return CorruptSegmentError(message, error.valid_bytes)
    return type(error)(message)
