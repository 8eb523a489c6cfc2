"""Segments of any size that take little disk: bodies that are never parsed are holes.

A v2 batch is a header and a body. Only the checksum of the body is computed, and a body of zeros is
a hole in a sparse file. So two gigabytes of valid batches take one disk block for each header.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kip33.formats import crc
from kip33.formats.native import compiler
from tests.builders.segment_builder import v2_batch

LARGEST_SEGMENT_BYTES = 2**31 - 1
HEADER_BYTES = 61
CRC, CRC_START = slice(17, 21), 21
START_MS = 1_700_000_000_000


def write_hollow_segment(log: Path, batch_sizes: Sequence[int]) -> Path:
    """Write valid batches of these sizes, offsets from 0, each one later than the one before."""
    checksum, tables = compiler.compiled(crc.with_crc32c), compiler.crc32c_tables()
    counted = np.zeros(max(batch_sizes) - CRC_START, np.uint8)
    position = 0
    with log.open("wb") as file:
        for offset, size in enumerate(batch_sizes):
            time = START_MS + offset
            header = bytearray(
                v2_batch(
                    offset,
                    size=size - 12,
                    base_timestamp=time,
                    max_timestamp=time,
                    records_count=1,
                    crc=0,
                )
            )
            counted[: HEADER_BYTES - CRC_START] = header[CRC_START:]
            header[CRC] = struct.pack(">I", checksum(0, counted[: size - CRC_START], tables))
            file.seek(position)
            file.write(header)
            position += size
    os.truncate(log, position)
    return log


def filling(total_bytes: int, batch_bytes: int) -> list[int]:
    """Return sizes of batches that fill a segment to the byte, the last one the largest."""
    count = total_bytes // batch_bytes
    return [batch_bytes] * (count - 1) + [total_bytes - batch_bytes * (count - 1)]
