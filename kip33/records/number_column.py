"""An Arrow array of numbers that grows while records are read."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.records.arrow_memory import arrow_array, bitmap, buffer_of, larger

_LEAST_ROWS: Final = 1 << 10


class NumberColumn:
    """Collects a field of rows; `finish` returns it as one array and starts a new one."""

    def __init__(self, rows: np.dtype[Any], name: str, null: int | None = None) -> None:
        """Start empty: the field `name` of such rows, where `null` means no value."""
        self._name, self._null = name, null
        self._numbers = arrow_array(_LEAST_ROWS, rows[name])
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
            valid = bitmap(is_valid) if nulls else None
        array = pa.Array.from_buffers(form, len(numbers), [valid, buffer_of(numbers)], nulls)
        self._numbers, self._rows = arrow_array(self._numbers.size, self._numbers.dtype), 0
        return array
