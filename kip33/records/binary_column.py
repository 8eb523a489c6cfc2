"""An Arrow binary array that grows while records are read."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.gathered_bytes import add_offsets, copy_fields
from kip33.formats.native import Speed

_LEAST_BYTES: Final = 1 << 16


class BinaryColumn:
    """Collects fields of records; `finish` returns them as one array and starts a new one."""

    def __init__(self, speed: Speed) -> None:
        """Start empty; `speed` is that of the functions which copy."""
        self._speed = speed
        self._capacity = _LEAST_BYTES
        self._start()

    def _start(self) -> None:
        self._buffer, self._bytes = _allocated(self._capacity)
        self._ends: list[npt.NDArray[np.int32]] = [np.zeros(1, np.int32)]
        self._null_parts: list[npt.NDArray[np.bool_]] = []
        self._nulls = 0
        self.size_bytes = 0

    def append(self, data: Any, places: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> None:
        """Add fields of `data` by their positions and sizes; -1 is null."""
        speed, sizes = self._speed, np.ascontiguousarray(sizes)
        offsets = np.empty(len(sizes) + 1, np.int32)
        nulls = speed(add_offsets)(sizes, offsets, self.size_bytes)
        end = int(offsets[-1])
        if end > self._capacity:
            self._grow(end)
        places = np.ascontiguousarray(places)
        speed(copy_fields)(data, places, sizes, offsets, self._bytes)
        self._ends.append(offsets[1:])
        self._null_parts.append(sizes < 0)
        self._nulls += nulls
        self.size_bytes = end

    def _grow(self, needed: int) -> None:
        self._capacity = max(needed, 2 * self._capacity)
        before = self._bytes
        self._buffer, self._bytes = _allocated(self._capacity)
        self._bytes[: self.size_bytes] = before[: self.size_bytes]

    def finish(self) -> "pa.Array[Any]":
        """Return the fields so far as a binary array, and start a new one."""
        offsets = np.concatenate(self._ends)
        valid = bitmap(~np.concatenate(self._null_parts)) if self._nulls else None
        buffers = [valid, buffer_of(offsets), self._buffer.slice(0, self.size_bytes)]
        array = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers, self._nulls)
        self._start()
        return array


def buffer_of(array: npt.NDArray[Any]) -> pa.Buffer:
    """Return an array's memory as a buffer of Arrow."""
    held: Any = array
    return pa.py_buffer(held)


def bitmap(is_valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return Arrow's validity bitmap."""
    return buffer_of(np.packbits(is_valid, bitorder="little"))


def _allocated(size_bytes: int) -> tuple[pa.Buffer, npt.NDArray[np.uint8]]:
    """Return a new buffer of Arrow, and its memory as an array."""
    buffer: Any = pa.allocate_buffer(size_bytes)
    return buffer, np.frombuffer(buffer, np.uint8)
