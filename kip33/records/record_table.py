"""Records as Arrow record batches; each has records of one segment.

The columns grow in memory of Arrow's allocator, which gives memory that was freed to the next
record batch. With numpy's, the kernel would clear every page anew, which takes longer than to copy
the records.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.held_batches import HeldBatches
from kip33.formats.record_columns import (
    FIELD,
    HEADER_KEY,
    HEADER_VALUE,
    KEY,
    NEEDS_ROOM,
    RECORD_TABLE,
    VALUE,
)
from kip33.formats.whole_bodies import RecordDecoder, RecordLimits, UnreadableBatch
from kip33.records.columns import RECORDS, UNDECIDED, of_segment
from kip33.records.partitions import ReadSegment

MOST_PAYLOAD_BYTES: Final = 1 << 26  # of one record batch, unless one record has more
ENOUGH_ROWS: Final = 1 << 16  # rows of a record batch, at most
_LEAST_BYTES: Final = 1 << 16
_LEAST_ROWS: Final = 1 << 10
_HEADERS_TYPE: Any = RECORDS.field("headers").type
_NUMBERS: Final = {"offset": np.int64, "timestamp": np.int64, "timestampType": np.int32}
_FIELDS: Final = {"key": KEY, "value": VALUE}


class RecordRows:
    """Decodes batches and collects their records, of one segment at a time; only wanted columns."""

    def __init__(self, schema: pa.Schema, max_batch_bytes: int) -> None:
        """Start empty; `schema` has some columns of RECORDS."""
        self._decoder = RecordDecoder(max_batch_bytes=max_batch_bytes)
        self._schema = schema
        self._table = np.zeros(1, RECORD_TABLE)
        self._table["most_rows"], self._table["most_bytes"] = ENOUGH_ROWS, MOST_PAYLOAD_BYTES
        self._fields = np.zeros(4, FIELD)
        for number, name in enumerate(("key", "value", "headers", "headers")):
            self._fields[number]["is_wanted"] = name in schema.names
        self._numbers = {name: _arrow_array(_LEAST_ROWS, dtype) for name, dtype in _NUMBERS.items()}
        self._header_ends = _arrow_array(_LEAST_ROWS + 1, np.int32)
        self._columns = [_BinaryColumn(self._fields[number]) for number in range(4)]
        self._undecided: str | None = None
        self._clear()

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
        for unreadable in self._decoder.decode(held, self._take):
            yield from self.finish(segment)
            if unreadable:
                yield unreadable

    def _take(self, add_records: Callable[..., int], data: Any, *read: npt.NDArray[Any]) -> int:
        """Add rows; see `record_columns.add_records`."""
        while True:
            arrays = [array for column in self._columns for array in column.arrays]
            why = add_records(
                *(data, *read, self._table, self._fields),
                *(*self._numbers.values(), self._header_ends, *arrays),
            )
            for column in self._columns:
                column.keep_whole(data)
            if why != NEEDS_ROOM:
                return why
            self._grow()

    def _grow(self) -> None:
        """Make room for the next record."""
        rows, needed_headers = self._rows, int(self._table["needed_headers"][0])
        if rows == len(self._numbers["offset"]):
            for name, numbers in self._numbers.items():
                self._numbers[name] = larger(numbers, rows, 0)
            self._header_ends = larger(self._header_ends, rows + 1, 0)
        for number, column in enumerate(self._columns):
            if number in (HEADER_KEY, HEADER_VALUE):
                column.grow(int(self._table["headers"][0]), needed_headers)
            else:
                column.grow(rows, rows + 1)

    @property
    def _rows(self) -> int:
        return int(self._table["rows"][0])

    def _clear(self) -> None:
        self._table["rows"] = self._table["headers"] = 0
        self._header_ends[0] = 0

    def finish(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far as a record batch, if there are some."""
        if self._rows:
            columns = [self._column(field, segment) for field in self._schema]
            self._clear()
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, field: "pa.Field[Any]", segment: ReadSegment) -> "pa.Array[Any]":
        rows = self._rows
        if field.name in _FIELDS:
            return self._columns[_FIELDS[field.name]].finish(rows)
        if field.name == "headers":
            return self._headers(rows)
        if field.name in self._numbers:
            numbers = self._numbers[field.name]
            self._numbers[field.name] = _arrow_array(numbers.size, numbers.dtype)
            return _number_array(numbers[:rows], field.type)
        if field.name == UNDECIDED:
            return pa.array([self._undecided] * rows, pa.string())
        return of_segment(field, segment, rows)

    def _headers(self, rows: int) -> "pa.Array[Any]":
        """Return the headers so far as one array; a record without headers has null."""
        count, ends = int(self._table["headers"][0]), self._header_ends[: rows + 1]
        self._header_ends = _arrow_array(self._header_ends.size, np.int32)
        keys, values = (
            self._columns[number].finish(count) for number in (HEADER_KEY, HEADER_VALUE)
        )
        headers = pa.StructArray.from_arrays(
            [_as_text(keys), values], fields=list(_HEADERS_TYPE.value_type)
        )
        is_valid = ends[1:] != ends[:-1]
        nulls = rows - int(np.count_nonzero(is_valid))
        buffers: list[pa.Buffer | None] = [_bitmap(is_valid), _buffer_of(ends)]
        return pa.Array.from_buffers(_HEADERS_TYPE, rows, buffers, nulls, children=[headers])


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
    """The arrays of a column of bytes; `finish` returns them as one of Arrow, with new ones."""

    def __init__(self, field: Any) -> None:
        """Start empty; `field` is its row of FIELD."""
        self._field = field
        self._ends = _arrow_array(_LEAST_ROWS + 1, np.int32)
        self._is_valid = np.empty(_LEAST_ROWS, np.uint8)
        self._bytes = _arrow_array(_LEAST_BYTES, np.uint8)
        self._clear()

    def _clear(self) -> None:
        self._ends[0] = 0
        self._field["size_bytes"] = self._field["nulls"] = 0
        self._field["whole"] = -1
        self._whole: npt.NDArray[np.uint8] | None = None

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self._ends, self._is_valid, self._bytes

    def keep_whole(self, data: Any) -> None:
        """Keep a field that was not copied. So large a batch has its own memory."""
        start, size_bytes = int(self._field["whole"]), int(self._field["size_bytes"])
        if start >= 0 and self._whole is None and size_bytes:
            self._whole = np.asarray(data)[start : start + size_bytes]

    def grow(self, used: int, needed: int) -> None:
        """Make room for `needed` fields, of which `used` are there, and for the needed bytes."""
        if needed > self._is_valid.size:
            self._is_valid = larger(self._is_valid, used, needed)
            self._ends = larger(self._ends, used + 1, self._is_valid.size + 1)
        size_bytes, needed_bytes = (int(self._field[n]) for n in ("size_bytes", "needed_bytes"))
        if needed_bytes > self._bytes.size:
            self._bytes = larger(self._bytes, size_bytes, needed_bytes)

    def finish(self, count: int) -> "pa.Array[Any]":
        """Return the fields so far as a binary array, and start a new one."""
        size_bytes, nulls = int(self._field["size_bytes"]), int(self._field["nulls"])
        valid = _bitmap(self._is_valid[:count]) if nulls else None
        content = self._bytes[:size_bytes] if self._whole is None else self._whole
        buffers = [valid, _buffer_of(self._ends[: count + 1]), _buffer_of(content)]
        array = pa.Array.from_buffers(pa.binary(), count, buffers, nulls)
        self._bytes = _arrow_array(self._bytes.size, np.uint8)
        self._ends = _arrow_array(self._ends.size, np.int32)
        self._clear()
        return array


def _as_text(keys: Any) -> Any:
    """Return header keys as strings; malformed UTF-8 is replaced, as in Kafka."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def _number_array(numbers: npt.NDArray[Any], form: "pa.DataType") -> "pa.Array[Any]":
    """Return numbers as an array of this type; times may be null."""
    nulls, valid = 0, None
    if pa.types.is_timestamp(form):
        is_valid = numbers != NO_TIMESTAMP
        nulls = len(numbers) - int(np.count_nonzero(is_valid))
        valid = _bitmap(is_valid) if nulls else None
    return pa.Array.from_buffers(form, len(numbers), [valid, _buffer_of(numbers)], nulls)
