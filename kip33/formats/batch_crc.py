"""The checksum of one batch, computed over its bytes in pieces."""

import numpy as np

from kip33.formats.batch import LEGACY_CRC_START, V2_CRC_START, BatchHeader
from kip33.formats.byte_sources import SeekableBytes, pieces_of
from kip33.formats.crc import crc32, crc32c, with_crc32c
from kip33.formats.native import compiled, crc32c_tables
from kip33.formats.scan import SMALL_BYTES


class BatchCrc:
    """Checks batches of one log; the first few in Python, because compiled code loads slowly."""

    def __init__(self) -> None:
        """Start a new log."""
        self._checked_bytes = 0

    def matches(self, source: SeekableBytes, header: BatchHeader) -> bool:
        """Return whether a batch's bytes match the CRC in its header."""
        begin = header.position + (LEGACY_CRC_START if header.magic < 2 else V2_CRC_START)
        value = 0
        for piece in pieces_of(source, begin, header.position + header.size_bytes):
            self._checked_bytes += len(piece)
            if header.magic < 2:
                value = crc32(value, piece, 0, len(piece))
            else:
                value = self._crc32c(value, piece)
        return value == header.crc & 0xFFFFFFFF

    def _crc32c(self, value: int, piece: bytes) -> int:
        if self._checked_bytes <= SMALL_BYTES:
            return crc32c(value, piece, 0, len(piece), None)
        data = np.frombuffer(piece, np.uint8)
        return int(compiled(with_crc32c)(value, data, crc32c_tables()))
