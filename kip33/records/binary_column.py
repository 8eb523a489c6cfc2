"""An Arrow binary array that grows while records are read."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.native import Speed
from kip33.formats.record_columns import add_fields, number_of
from kip33.records.arrow_memory import arrow_array, bitmap, buffer_of, larger

_LEAST_BYTES: Final = 1 << 16
_LEAST_ROWS: Final = 1 << 10
_WHOLE_BYTES: Final = 1 << 26  # such a field alone in its array is not copied


class BinaryColumn:
    """Collects a field of rows; `finish` returns them as one array and starts a new one."""

    def __init__(self, rows: np.dtype[Any], name: str) -> None:
        """Start empty: the field `name` of such rows."""
        self._longs, self._ints = rows.itemsize // 8, rows.itemsize // 4
        self._name, self._size_name = name, f"{name}_bytes"
        self._place, self._size = number_of(rows, name), number_of(rows, self._size_name)
        self._bytes = arrow_array(_LEAST_BYTES, np.uint8)
        self._offsets = arrow_array(_LEAST_ROWS + 1, np.int32)
        self._is_valid = np.empty(_LEAST_ROWS, np.uint8)
        self._start()

    def _start(self) -> None:
        self._offsets[0] = 0
        self._rows = self._nulls = 0

    @property
    def size_bytes(self) -> int:
        """Return the size of all fields so far."""
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
        valid = bitmap(self._is_valid[:rows]) if nulls else None
        content = [buffer_of(self._offsets[: rows + 1]), buffer_of(self._bytes[:size_bytes])]
        array = pa.Array.from_buffers(pa.binary(), rows, [valid, *content], nulls)
        most = self._bytes.size if self._bytes.flags.writeable else _LEAST_BYTES
        self._bytes = arrow_array(most, np.uint8)
        self._offsets = arrow_array(self._offsets.size, np.int32)
        self._start()
        return array
