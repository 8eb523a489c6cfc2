"""The headers of records as an Arrow list of structs."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.gathered_bytes import HEADER, find_headers
from kip33.formats.native import Speed
from kip33.records.arrow_memory import bitmap, buffer_of
from kip33.records.binary_column import BinaryColumn
from kip33.records.columns import RECORDS

_LIST: Any = RECORDS.field("headers").type


class HeadersColumn:
    """Collects the headers of records; a record without headers has null."""

    def __init__(self, speed: Speed) -> None:
        """Start empty; `speed` is that of the functions which find and copy."""
        self._speed = speed
        self._keys, self._values = (BinaryColumn(speed, HEADER, name) for name in ("key", "value"))
        self._counts: list[npt.NDArray[np.int32]] = []

    @property
    def size_bytes(self) -> int:
        """Return the size of all keys and values."""
        return self._keys.size_bytes + self._values.size_bytes

    def append(self, data: Any, records: npt.NDArray[np.void]) -> None:
        """Add the headers of rows of RECORD that point into `data`."""
        counts = records["headers_count"].copy()
        self._counts.append(counts)
        headers = np.empty(int(counts.sum()), HEADER)
        if headers.size:
            speed = self._speed
            speed(find_headers)(data, records, headers)
            self._keys.append(data, headers)
            self._values.append(data, headers)

    def sizes_of(self, data: Any, records: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """Return the bytes of the headers of each record."""
        counts = records["headers_count"]
        headers = np.empty(int(counts.sum()), HEADER)
        speed = self._speed
        speed(find_headers)(data, records, headers)
        sizes = np.zeros(len(headers) + 1, np.int64)
        np.cumsum(headers["key_bytes"] + np.maximum(headers["value_bytes"], 0), out=sizes[1:])
        ends = np.cumsum(counts)
        result: npt.NDArray[np.int64] = sizes[ends] - sizes[ends - counts]
        return result

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


def _as_text(keys: Any) -> Any:
    """Return header keys as strings; malformed UTF-8 is replaced, as in Kafka."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
