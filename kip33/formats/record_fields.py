"""One record: where its key, value and headers are, in a body of magic 2.

The functions run uncompiled and compiled, as `kip33.formats.record_columns` does, which calls them.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.bigendian import Bytes, int8_at
from kip33.formats.walk import varint_at

RECORD: Final = np.dtype(
    [
        ("offset", np.int64),
        ("timestamp", np.int64),  # -1: none
        ("key", np.int64),  # position in the array
        ("value", np.int64),
        ("headers", np.int64),  # position of the first header
        ("key_bytes", np.int32),  # -1: null
        ("value_bytes", np.int32),
        ("headers_count", np.int32),
        ("timestamp_type", np.int32),
    ]
)
"""One row per record."""

FRONT: Final = np.dtype([("timestamp_delta", np.int64), ("offset_delta", np.int64)])
"""One row per record of which only the front is read."""

NO_TYPE: Final = -1  # timestamp types, by Kafka's numbers
CREATE_TYPE: Final = 0
APPEND_TYPE: Final = 1


def short_at(data: Bytes, at: int, stop: int, most_bytes: int) -> tuple[int, int]:
    """Return what `varint_at` returns; one and two bytes, which are the most common, are faster."""
    if at + 1 < stop:
        byte = int8_at(data, at)
        if byte >= 0:
            return (byte >> 1) ^ -(byte & 1), at + 1
        more = int8_at(data, at + 1)
        if more >= 0:
            return ((byte & 0x7F) >> 1) + (more << 6) ^ -(byte & 1), at + 2
    return varint_at(data, at, stop, most_bytes)


def sized_at(data: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Return size, start and end of a field with a varint length: -1 is null, end -1 is damage."""
    size, at = short_at(data, at, stop, 5)
    if at < 0 or size > stop - at:
        return 0, 0, -1
    if size < 0:
        return -1, at, at
    return size, at, at + size


def after_headers(data: Bytes, at: int, stop: int, count: int) -> int:
    """Return the position after `count` record headers, -1 for damage."""
    for _ in range(count):
        size, _, at = sized_at(data, at, stop)
        if at < 0 or size < 0:
            return -1
        _, _, at = sized_at(data, at, stop)
        if at < 0:
            return -1
    return at


def read_record(data: Bytes, at: int, limit: int, row: Any) -> tuple[int, int, int]:
    """Fill `row` from the record of magic 2 at `at`, which ends at `limit` or before.

    Returns its end, -1 for damage, and the deltas of its timestamp and its offset.
    """
    length, at = short_at(data, at, limit, 5)
    if at < 0 or length < 0 or length > limit - at:
        return -1, 0, 0
    stop = at + length
    timestamp_delta, at = short_at(data, at + 1, stop, 10)
    if at < 0:
        return -1, 0, 0
    offset_delta, at = short_at(data, at, stop, 5)
    if at < 0:
        return -1, 0, 0
    size, start, at = sized_at(data, at, stop)
    if at < 0:
        return -1, 0, 0
    row["key_bytes"], row["key"] = size, start
    size, start, at = sized_at(data, at, stop)
    if at < 0:
        return -1, 0, 0
    row["value_bytes"], row["value"] = size, start
    count, at = varint_at(data, at, stop, 5)
    if at < 0 or count < 0 or count > stop - at:
        return -1, 0, 0
    row["headers_count"], row["headers"] = count, at
    if after_headers(data, at, stop, count) != stop:
        return -1, 0, 0
    return stop, timestamp_delta, offset_delta


def read_fronts(data: Bytes, at: int, stop: int, fronts: Any) -> tuple[int, int]:
    """Fill `fronts` from the records of magic 2 that begin at `at`, without keys and values.

    Returns how many were filled and the end of the last one: before a record that is damaged or not
    complete in `data[:stop]`.
    """
    filled = 0
    while filled < fronts.size:
        length, start = short_at(data, at, stop, 5)
        if start < 0 or length < 0 or length > stop - start:
            break
        end = start + length
        timestamp_delta, place = short_at(data, start + 1, end, 10)
        if place < 0:
            break
        offset_delta, place = short_at(data, place, end, 5)
        if place < 0:
            break
        fronts[filled]["timestamp_delta"] = timestamp_delta
        fronts[filled]["offset_delta"] = offset_delta
        filled += 1
        at = end
    return filled, at
