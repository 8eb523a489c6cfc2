"""Fields of records, copied side by side: the offsets and the data of an Arrow binary array.

The functions run uncompiled and compiled, as `kip33.formats.walk` does.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.bigendian import Bytes
from kip33.formats.byte_copy import copy_bytes
from kip33.formats.record_columns import sized_at

HEADER: Final = np.dtype(
    [
        ("key", np.int64),  # position in the array
        ("value", np.int64),
        ("key_bytes", np.int32),
        ("value_bytes", np.int32),  # -1: null
    ]
)
"""One row per record header."""


def add_offsets(sizes: Any, offsets: Any, first: int) -> int:
    """Write the offset after each field, `offsets[i + 1]`; return the number of nulls.

    `sizes` are those of the fields in bytes, -1 for null; the first field begins at `first`.
    """
    at = first
    nulls = 0
    offsets[0] = first
    for i in range(sizes.size):
        size = sizes[i]
        if size < 0:
            nulls += 1
        else:
            at += size
        offsets[i + 1] = at
    return nulls


def copy_fields(data: Bytes, places: Any, sizes: Any, offsets: Any, target: Any) -> None:
    """Copy each field of `data` to its offset in `target`."""
    for i in range(sizes.size):
        if sizes[i] > 0:
            copy_bytes(target, offsets[i], data, places[i], sizes[i])


def find_headers(data: Bytes, records: Any, headers: Any) -> None:
    """Fill `headers`, one row per header of the records, in order.

    The headers were validated when the records were read.
    """
    filled = 0
    for i in range(records.size):
        at = records[i]["headers"]
        for _ in range(records[i]["headers_count"]):
            header = headers[filled]
            header["key_bytes"], header["key"], at = sized_at(data, at, len(data))
            header["value_bytes"], header["value"], at = sized_at(data, at, len(data))
            filled += 1
