"""The CRC-32C of an index file, as the catalog keeps it."""

from typing import Final

import numpy as np

from kip33.formats.batch_crc import with_crc32c
from kip33.formats.crc import crc32c
from kip33.formats.native import compiled, crc32c_tables

PLAIN_INDEX_BYTES: Final = (
    4096  # the index of a log of 1 MiB is smaller: neither needs compiled code
)


def index_crc32c(data: bytes, value: int = 0, *, native: bool | None = None) -> int:
    """Return the CRC-32C `value` with `data` added; 0 to 2^32 - 1.

    `native`: whether compiled code is used; None: for more than a few KiB.

    >>> hex(index_crc32c(b"123456789"))
    '0xe3069283'
    """
    if not (len(data) > PLAIN_INDEX_BYTES if native is None else native):
        return crc32c(value, data, 0, len(data), None)
    array = np.frombuffer(data, np.uint8)
    return int(compiled(with_crc32c)(value, array, crc32c_tables()))
