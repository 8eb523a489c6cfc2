"""Records as Arrow record batches; each has records of one segment.

The columns grow in memory of Arrow's allocator, which gives memory that was freed to the next
record batch. With numpy's, the kernel would clear every page anew, which takes longer than to copy
the records.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.held_batches import HeldBatches
from kip33.formats.native import Speed
from kip33.formats.record_columns import HEADER, HEADER_PLACE, add_fields, find_headers, number_of
from kip33.formats.records import RECORD
from kip33.formats.whole_bodies import DecodedRecords, RecordDecoder, RecordLimits, UnreadableBatch
from kip33.records.columns import RECORDS, UNDECIDED, of_segment
from kip33.records.partitions import ReadSegment

MOST_PAYLOAD_BYTES: Final = 1 << 26  # of one record batch, unless one record has more
ENOUGH_ROWS: Final = 1 << 16  # rows of a record batch, at most
_LEAST_BYTES: Final = 1 << 16
_LEAST_ROWS: Final = 1 << 10
_WHOLE_BYTES: Final = 1 << 26  # such a field alone in its array is not copied
_MOST_HEADERS: Final = 1 << 16  # at once: a record may have a header for each two of its bytes
_HEADERS_TYPE: Any = RECORDS.field("headers").type
_NUMBERS: Final = {  # field of RECORD, and what means null
    "offset": ("offset", None),
    "timestamp": ("timestamp", NO_TIMESTAMP),
    "timestampType": ("timestamp_type", None),
}


class RecordRows:
    """Decodes batches and collects their records, of one segment at a time; only wanted columns."""

    def __init__(self, schema: pa.Schema, max_batch_bytes: int) -> None:
        """Start empty; `schema` has some columns of RECORDS."""
        self._decoder = RecordDecoder(max_batch_bytes=max_batch_bytes)
        self._schema = schema
        wanted = set(schema.names)
        self._numbers = {
            name: _NumberColumn(RECORD, *form) for name, form in _NUMBERS.items() if name in wanted
        }
        self._fields = {
            name: _BinaryColumn(RECORD, name) for name in ("key", "value") if name in wanted
        }
        self._headers = _HeadersColumn() if "headers" in wanted else None
        self._rows = 0
        self._undecided: str | None = None

    def use(self, limits: RecordLimits) -> None:
        """Return records inside `limits` from now on."""
        self._decoder.limit(limits)

    def add(
        self, segment: ReadSegment, held: HeldBatches, undecided: str | None
    ) -> Iterator[pa.RecordBatch | UnreadableBatch]:
        """Yield record batches that are full, and batches that cannot be read."""
        if undecided != self._undecided:
            yield from self.finish(segment)
        self._undecided = undecided
        for found in self._decoder.decode(held):
            if isinstance(found, UnreadableBatch):
                yield from self.finish(segment)
                yield found
            else:
                yield from self._append(segment, found)

    def _append(self, segment: ReadSegment, found: DecodedRecords) -> Iterator[pa.RecordBatch]:
        """Add records; yield record batches that are full."""
        while len(found.records):
            count = self._room_for(found)
            if count:
                self._add(found._replace(records=found.records[:count]))
                found = found._replace(records=found.records[count:])
            if not count or self._rows >= ENOUGH_ROWS:
                yield from self.finish(segment)

    def finish(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far as a record batch, if there are some."""
        if self._rows:
            columns = [self._column(field, segment) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._rows = 0

    def _room_for(self, found: DecodedRecords) -> int:
        """Return how many of the records may be added; at least 1 to an empty table."""
        data, records, speed = found
        used = sum(column.size_bytes for column in self._fields.values())
        used += self._headers.size_bytes if self._headers else 0
        if used + len(data) <= MOST_PAYLOAD_BYTES:  # no field is in two records
            return len(records)
        sizes = np.zeros(len(records), np.int64)
        for name in self._fields:
            sizes += np.maximum(records[f"{name}_bytes"], 0)
        if self._headers:
            sizes += self._headers.sizes_of(data, records, speed)
        count = int(np.searchsorted(np.cumsum(sizes), MOST_PAYLOAD_BYTES - used, side="right"))
        return count if count or self._rows else 1

    def _add(self, found: DecodedRecords) -> None:
        data, records, speed = found
        for numbers in self._numbers.values():
            numbers.append(records)
        for column in self._fields.values():
            column.append(data, records, speed)
        if self._headers:
            self._headers.append(data, records, speed)
        self._rows += len(records)

    def _column(self, field: "pa.Field[Any]", segment: ReadSegment) -> "pa.Array[Any]":
        if field.name in self._fields:
            return self._fields[field.name].finish()
        if field.name == "headers" and self._headers:
            return self._headers.finish()
        if field.name in self._numbers:
            return self._numbers[field.name].finish(field.type)
        if field.name == UNDECIDED:
            return pa.array([self._undecided] * self._rows, pa.string())
        return of_segment(field, segment, self._rows)


def _arrow_array(count: int, dtype: Any) -> npt.NDArray[Any]:
    """Return an array of `count` items with any content."""
    buffer: Any = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype)


def larger(array: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """Return an array of at least `needed` items, twice as large as before, with those in use."""
    grown = _arrow_array(max(needed, 2 * array.size), array.dtype)
    grown[:used] = array[:used]
    return grown


def _buffer_of(array: npt.NDArray[Any]) -> pa.Buffer:
    held: Any = array
    return pa.py_buffer(held)


def _bitmap(is_valid: npt.NDArray[Any]) -> pa.Buffer:
    return _buffer_of(np.packbits(is_valid, bitorder="little"))


class _BinaryColumn:
    """Collects a field of rows; `finish` returns them as one array and starts a new one."""

    def __init__(self, rows: np.dtype[Any], name: str) -> None:
        """Start empty: the field `name` of such rows."""
        self._longs, self._ints = rows.itemsize // 8, rows.itemsize // 4
        self._name, self._size_name = name, f"{name}_bytes"
        self._place, self._size = number_of(rows, name), number_of(rows, self._size_name)
        self._bytes = _arrow_array(_LEAST_BYTES, np.uint8)
        self._offsets = _arrow_array(_LEAST_ROWS + 1, np.int32)
        self._is_valid = np.empty(_LEAST_ROWS, np.uint8)
        self._start()

    def _start(self) -> None:
        self._offsets[0] = 0
        self._rows = self._nulls = 0

    @property
    def size_bytes(self) -> int:
        return int(self._offsets[self._rows])

    def append(self, data: Any, rows: npt.NDArray[np.void], speed: Speed) -> None:
        """Add the field of rows that point into `data`; `speed` is that of the copying."""
        added, count = 0, len(rows)
        if self._rows == 0 and count == 1 and rows[0][self._size_name] > _WHOLE_BYTES:
            self._append_whole(data, rows[0])
            return
        if not self._bytes.flags.writeable:
            self._bytes = larger(self._bytes, self.size_bytes, self.size_bytes)
        if self._rows + count > self._is_valid.size:
            self._is_valid = larger(self._is_valid, self._rows, self._rows + count)
            self._offsets = larger(self._offsets, self._rows + 1, self._is_valid.size + 1)
        places = rows.view(np.int64).reshape(count, self._longs)
        sizes = rows.view(np.int32).reshape(count, self._ints)
        while True:
            more, nulls = speed(add_fields)(
                *(data, places[added:], self._place, sizes[added:], self._size),
                *(self._offsets[self._rows :], self._is_valid[self._rows :], self._bytes),
            )
            added += more
            self._rows += more
            self._nulls += nulls
            if added == count:
                return
            needed = self.size_bytes + int(sizes[added, self._size])
            self._bytes = larger(self._bytes, self.size_bytes, needed)

    def _append_whole(self, data: Any, row: Any) -> None:
        """Add the field of the first row without a copy. So large a batch has its own memory."""
        start, size_bytes = int(row[self._name]), int(row[self._size_name])
        self._bytes = np.asarray(data)[start : start + size_bytes]
        self._bytes.flags.writeable = False
        self._offsets[1], self._is_valid[0], self._rows = size_bytes, 1, 1

    def finish(self) -> "pa.Array[Any]":
        """Return the fields so far as a binary array, and start a new one."""
        rows, size_bytes, nulls = self._rows, self.size_bytes, self._nulls
        valid = _bitmap(self._is_valid[:rows]) if nulls else None
        content = [_buffer_of(self._offsets[: rows + 1]), _buffer_of(self._bytes[:size_bytes])]
        array = pa.Array.from_buffers(pa.binary(), rows, [valid, *content], nulls)
        most = self._bytes.size if self._bytes.flags.writeable else _LEAST_BYTES
        self._bytes = _arrow_array(most, np.uint8)
        self._offsets = _arrow_array(self._offsets.size, np.int32)
        self._start()
        return array


class _HeadersColumn:
    """Collects the headers of records; a record without headers has null."""

    def __init__(self) -> None:
        self._keys, self._values = (_BinaryColumn(HEADER, name) for name in ("key", "value"))
        self._counts: list[npt.NDArray[np.int32]] = []

    @property
    def size_bytes(self) -> int:
        return self._keys.size_bytes + self._values.size_bytes

    def append(self, data: Any, records: npt.NDArray[np.void], speed: Speed) -> None:
        self._counts.append(records["headers_count"].copy())
        for headers in _headers_of(data, records, speed):
            self._keys.append(data, headers, speed)
            self._values.append(data, headers, speed)

    def sizes_of(
        self, data: Any, records: npt.NDArray[np.void], speed: Speed
    ) -> npt.NDArray[np.int64]:
        ends = np.cumsum(records["headers_count"].astype(np.int64))
        sizes, first = np.zeros(len(records), np.int64), 0
        for headers in _headers_of(data, records, speed):
            of_record = np.searchsorted(ends, np.arange(first, first + len(headers)), side="right")
            header_bytes = headers["key_bytes"] + np.maximum(headers["value_bytes"], 0)
            np.add.at(sizes, of_record, header_bytes)
            first += len(headers)
        return sizes

    def finish(self) -> "pa.Array[Any]":
        """Return the headers so far as one array, and start a new one."""
        counts = np.concatenate(self._counts)
        self._counts = []
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        keys, values = _as_text(self._keys.finish()), self._values.finish()
        headers = pa.StructArray.from_arrays([keys, values], fields=list(_HEADERS_TYPE.value_type))
        is_valid = counts > 0
        nulls = len(counts) - int(is_valid.sum())
        buffers: list[pa.Buffer | None] = [_bitmap(is_valid), _buffer_of(offsets)]
        return pa.Array.from_buffers(_HEADERS_TYPE, len(counts), buffers, nulls, children=[headers])


def _headers_of(
    data: Any, records: npt.NDArray[np.void], speed: Speed
) -> Iterator[npt.NDArray[np.void]]:
    """Yield the headers of records as rows of HEADER; a few at a time, however many there are."""
    left = int(records["headers_count"].sum(dtype=np.int64))
    headers, places = np.empty(min(left, _MOST_HEADERS), HEADER), np.zeros(1, HEADER_PLACE)
    places["at"] = -1
    while left:
        rows = headers[: min(left, _MOST_HEADERS)]
        speed(find_headers)(data, records, places, rows)
        yield rows
        left -= len(rows)


def _as_text(keys: Any) -> Any:
    """Return header keys as strings; malformed UTF-8 is replaced, as in Kafka."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


class _NumberColumn:
    """Collects a field of rows; `finish` returns it as one array and starts a new one."""

    def __init__(self, rows: np.dtype[Any], name: str, null: int | None = None) -> None:
        """Start empty: the field `name` of such rows, where `null` means no value."""
        self._name, self._null = name, null
        self._numbers = _arrow_array(_LEAST_ROWS, rows[name])
        self._rows = 0

    def append(self, rows: npt.NDArray[np.void]) -> None:
        """Add the field of rows."""
        end = self._rows + len(rows)
        if end > self._numbers.size:
            self._numbers = larger(self._numbers, self._rows, end)
        self._numbers[self._rows : end] = rows[self._name]
        self._rows = end

    def finish(self, form: "pa.DataType") -> "pa.Array[Any]":
        """Return the numbers so far as an array of this type, and start a new one."""
        numbers, nulls, valid = self._numbers[: self._rows], 0, None
        if self._null is not None:
            is_valid = numbers != self._null
            nulls = len(numbers) - int(np.count_nonzero(is_valid))
            valid = _bitmap(is_valid) if nulls else None
        array = pa.Array.from_buffers(form, len(numbers), [valid, _buffer_of(numbers)], nulls)
        self._numbers, self._rows = _arrow_array(self._numbers.size, self._numbers.dtype), 0
        return array
