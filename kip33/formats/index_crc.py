"""The CRC-32C of an index file, as the catalog keeps it."""

from typing import Final

import numpy as np

from kip33.formats.batch_crc import with_crc32c
from kip33.formats.crc import crc32c
from kip33.formats.native import compiled, crc32c_tables, is_loaded

PLAIN_INDEX_BYTES: Final = (
    4096  # the index of a log of 1 MiB is smaller: neither needs compiled code
)


def index_crc32c(data: bytes, value: int = 0, *, native: bool | None = None) -> int:
    """Return the CRC-32C `value` with `data` added; 0 to 2^32 - 1.

    `native`: whether compiled code is used; None: for more than a few KiB, or if it is loaded.

    >>> hex(index_crc32c(b"123456789"))
    '0xe3069283'
    """
    if native is None:
        native = len(data) > PLAIN_INDEX_BYTES or is_loaded()
    if not native:
        return crc32c(value, data, 0, len(data), None)
    array = np.frombuffer(data, np.uint8)
    return int(compiled(with_crc32c)(value, array, crc32c_tables()))
