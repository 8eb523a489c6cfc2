"""Fields of records, copied side by side: the offsets and the data of an Arrow binary array.

The functions run uncompiled and compiled, as `kip33.formats.walk` does.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.bigendian import Bytes
from kip33.formats.byte_copy import copy_bytes
from kip33.formats.record_fields import sized_at

HEADER: Final = np.dtype(
    [
        ("key", np.int64),  # position in the array
        ("value", np.int64),
        ("key_bytes", np.int32),
        ("value_bytes", np.int32),  # -1: null
    ]
)
"""One row per record header."""

HEADER_PLACE: Final = np.dtype(
    [
        ("record", np.int64),  # number of the record with the next header
        ("number", np.int64),  # of that header in its record
        ("at", np.int64),  # position of it, -1: where the record's headers begin
    ]
)


def number_of(rows: np.dtype[Any], name: str) -> int:
    """Return which number of a row a field is, if the row is an array of numbers of its size."""
    assert rows.fields is not None
    field, at = rows.fields[name][:2]
    return at // field.itemsize


def add_fields(
    data: Bytes,
    places: Any,
    place: int,
    sizes: Any,
    size: int,
    offsets: Any,
    is_valid: Any,
    target: Any,
) -> tuple[int, int]:
    """Copy one field of each row side by side, as long as there is room in `target`.

    `places[i, place]` is the position of the field in `data`, `sizes[i, size]` its size in bytes,
    -1 for null. The first field begins at `offsets[0]`. Returns the number of fields that were
    added, and of nulls among them.
    """
    at = int(offsets[0])
    nulls = 0
    for i in range(len(places)):
        count = int(sizes[i, size])
        if count >= 0:
            if count > len(target) - at:
                return i, nulls
            if count > 0:
                copy_bytes(target, at, data, places[i, place], count)
            at += count
            is_valid[i] = 1
        else:
            nulls += 1
            is_valid[i] = 0
        offsets[i + 1] = at
    return len(places), nulls


def find_headers(data: Bytes, records: Any, places: Any, headers: Any) -> None:
    """Fill `headers`, one row per header of the records, in order.

    `places` is an array of one HEADER_PLACE: where to begin, and afterwards where to continue.
    There are as many headers, and they were validated when the records were read.
    """
    place, filled = places[0], 0
    i, number, at = int(place["record"]), int(place["number"]), int(place["at"])
    while filled < headers.size:
        if number == records[i]["headers_count"]:
            i, number, at = i + 1, 0, -1
            continue
        if at < 0:
            at = int(records[i]["headers"])
        header = headers[filled]
        header["key_bytes"], header["key"], at = sized_at(data, at, len(data))
        header["value_bytes"], header["value"], at = sized_at(data, at, len(data))
        number += 1
        filled += 1
    place["record"], place["number"], place["at"] = i, number, at
