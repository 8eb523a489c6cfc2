"""Sizes of a segment's chunks in Aiven's manifest: `transformedChunks`, after zstd is removed.

    bytes        field             type     meaning
    0..3         count             int32    how many sizes; with 0 nothing follows
    4..7         base              int32    the smallest size, not counting the last one
    8            width             uint8    bytes per value, 1 to 4
    9..          values            width    each size minus `base`, without the last one
    the last 4   last size         int32    the last size itself

Big-endian. With one size the file has only the count and that size. Sizes are never negative.
Source: `ChunkSizesBinaryCodec` of tiered-storage-for-apache-kafka.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptIndexError

_HEAD_BYTES: Final = 9
_LAST_BYTES: Final = 4
_MAX_INT32: Final = 2**31 - 1


def decode_chunk_sizes(data: bytes) -> npt.NDArray[np.int64]:
    """Return the sizes in bytes, in order; CorruptIndexError if `data` has another form.

    >>> decode_chunk_sizes(bytes.fromhex("00000003 0000000a 01 0002 00000007")).tolist()
    [10, 12, 7]
    """
    if len(data) < 4:
        raise CorruptIndexError(f"chunk sizes: {len(data)} bytes found, too few for a count")
    count = int.from_bytes(data[:4])
    if count == 0:
        return _sizes_of(data, 4, [])
    if count == 1:
        return _sizes_of(data, 8, [int.from_bytes(data[4:8])])
    width = data[8] if len(data) > 8 else 0
    if not 1 <= width <= 4:
        raise CorruptIndexError(f"chunk sizes: values of {width} bytes found, expected 1 to 4")
    end = _HEAD_BYTES + (count - 1) * width
    if len(data) != end + _LAST_BYTES:
        raise CorruptIndexError(
            f"chunk sizes: {len(data)} bytes found, expected {end + _LAST_BYTES} for {count} chunks"
        )
    digits = np.frombuffer(data, np.uint8, (count - 1) * width, _HEAD_BYTES).reshape(-1, width)
    sizes = np.full(count, int.from_bytes(data[4:8]), np.int64)
    for place in range(width):
        sizes[:-1] += digits[:, place].astype(np.int64) << 8 * (width - 1 - place)
    sizes[-1] = int.from_bytes(data[end:])
    if sizes.max() > _MAX_INT32:
        raise CorruptIndexError(f"chunk sizes: {sizes.max()} bytes found, expected an int32")
    return sizes


def _sizes_of(data: bytes, expected_bytes: int, sizes: list[int]) -> npt.NDArray[np.int64]:
    if len(data) != expected_bytes or any(size > _MAX_INT32 for size in sizes):
        raise CorruptIndexError(f"chunk sizes: {data[:16].hex()}, no sizes of {len(sizes)} chunks")
    return np.array(sizes, np.int64)
