"""Rows of RECORD to Arrow record batches; each has records of one segment."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.records import RECORD
from kip33.formats.whole_bodies import DecodedRecords
from kip33.records.binary_column import BinaryColumn
from kip33.records.columns import UNDECIDED, of_segment
from kip33.records.headers_column import HeadersColumn
from kip33.records.number_column import NumberColumn
from kip33.records.read_segment import ReadSegment

MOST_PAYLOAD_BYTES: Final = 1 << 26  # of one record batch, unless one record has more
ENOUGH_ROWS: Final = 1 << 16  # rows of a record batch, at most
_NUMBERS: Final = {  # field of RECORD, and what means null
    "offset": ("offset", None),
    "timestamp": ("timestamp", NO_TIMESTAMP),
    "timestampType": ("timestamp_type", None),
}


class RecordTable:
    """Collects the records of one segment at a time, only the columns that are wanted."""

    def __init__(self, schema: pa.Schema) -> None:
        """Start empty; `schema` has some columns of RECORDS."""
        self._schema = schema
        wanted = set(schema.names)
        self._numbers = {
            name: NumberColumn(RECORD, *form) for name, form in _NUMBERS.items() if name in wanted
        }
        self._fields = {
            name: BinaryColumn(RECORD, name) for name in ("key", "value") if name in wanted
        }
        self._headers = HeadersColumn() if "headers" in wanted else None
        self._rows = 0
        self._undecided: str | None = None

    def begin(self, segment: ReadSegment, undecided: str | None) -> Iterator[pa.RecordBatch]:
        """Set why it is not known whether the next records were committed, None: it is."""
        if undecided != self._undecided:
            yield from self.finish(segment)
        self._undecided = undecided

    def append(self, segment: ReadSegment, found: DecodedRecords) -> Iterator[pa.RecordBatch]:
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
