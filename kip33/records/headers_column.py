"""The headers of records as an Arrow list of structs."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.native import Speed
from kip33.formats.record_columns import HEADER, HEADER_PLACE, find_headers
from kip33.records.arrow_memory import bitmap, buffer_of
from kip33.records.binary_column import BinaryColumn
from kip33.records.columns import RECORDS

_LIST: Any = RECORDS.field("headers").type
_MOST_ROWS: Final = 1 << 16  # at once: a record may have a header for each two of its bytes


class HeadersColumn:
    """Collects the headers of records; a record without headers has null."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys, self._values = (BinaryColumn(HEADER, name) for name in ("key", "value"))
        self._counts: list[npt.NDArray[np.int32]] = []

    @property
    def size_bytes(self) -> int:
        """Return the size of all keys and values."""
        return self._keys.size_bytes + self._values.size_bytes

    def append(self, data: Any, records: npt.NDArray[np.void], speed: Speed) -> None:
        """Add the headers of rows of RECORD that point into `data`."""
        self._counts.append(records["headers_count"].copy())
        for headers in _found(data, records, speed):
            self._keys.append(data, headers, speed)
            self._values.append(data, headers, speed)

    def sizes_of(
        self, data: Any, records: npt.NDArray[np.void], speed: Speed
    ) -> npt.NDArray[np.int64]:
        """Return the bytes of the headers of each record."""
        ends = np.cumsum(records["headers_count"].astype(np.int64))
        sizes, first = np.zeros(len(records), np.int64), 0
        for headers in _found(data, records, speed):
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
        headers = pa.StructArray.from_arrays([keys, values], fields=list(_LIST.value_type))
        is_valid = counts > 0
        nulls = len(counts) - int(is_valid.sum())
        buffers: list[pa.Buffer | None] = [bitmap(is_valid), buffer_of(offsets)]
        return pa.Array.from_buffers(_LIST, len(counts), buffers, nulls, children=[headers])


def _found(
    data: Any, records: npt.NDArray[np.void], speed: Speed
) -> Iterator[npt.NDArray[np.void]]:
    """Yield the headers of records as rows of HEADER; a few at a time, however many there are."""
    left = int(records["headers_count"].sum(dtype=np.int64))
    headers, places = np.empty(min(left, _MOST_ROWS), HEADER), np.zeros(1, HEADER_PLACE)
    places["at"] = -1
    while left:
        rows = headers[: min(left, _MOST_ROWS)]
        speed(find_headers)(data, records, places, rows)
        yield rows
        left -= len(rows)


def _as_text(keys: Any) -> Any:
    """Return header keys as strings; malformed UTF-8 is replaced, as in Kafka."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
