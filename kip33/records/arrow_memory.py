"""Memory of Arrow as numpy arrays, and the other way round.

Arrow's allocator gives memory that was freed again to the next record batch. With numpy's, the
kernel would clear every page anew, which takes longer than to copy the records.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow_array(count: int, dtype: Any) -> npt.NDArray[Any]:
    """Return an array of `count` items with any content."""
    buffer: Any = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype)


def larger(array: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """Return an array of at least `needed` items, twice as large as before, with those in use."""
    grown = arrow_array(max(needed, 2 * array.size), array.dtype)
    grown[:used] = array[:used]
    return grown


def buffer_of(array: npt.NDArray[Any]) -> pa.Buffer:
    """Return an array's memory as a buffer of Arrow."""
    held: Any = array
    return pa.py_buffer(held)


def bitmap(is_valid: npt.NDArray[Any]) -> pa.Buffer:
    """Return Arrow's validity bitmap."""
    return buffer_of(np.packbits(is_valid, bitorder="little"))
