"""One file with all parts of a segment: the newer form of HDFS's RemoteStorageManager.

A header of 25 bytes, .index, .timeindex, leader epochs, .snapshot, .txnindex, .log. No part is
compressed, so a part is a range of the file. The header:

    bytes     field                       type    meaning
    0         version                     int8    0
    1..4      .index                      int32   its position in the file: 25
    5..8      .timeindex                  int32
    9..12     leader epochs               int32
    13..16    .snapshot                   int32
    17..20    .txnindex                   int32
    21..24    .log                        int32   it is the last and extends to the file's end

Big-endian. The files follow in this order without gaps, so each ends where the next begins; a
missing one has 0 bytes. Source: `LogSegmentDataHeader` of kafka-remote-storage.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.byte_sources import ReadInto, range_of, read_fully
from kip33.stores.locations import Location, OpenFile

RSM_HEADER_BYTES: Final = 25
RSM_PARTS: Final = ("index", "timeindex", "leader_epochs", "snapshot", "txnindex", "log")
_POSITIONS: Final = struct.Struct(">6i")


class HeaderPart(NamedTuple):
    """Position and size of one of the segment's files."""

    position: int
    size_bytes: int


def decode_rsm_header(data: bytes, file_bytes: int) -> dict[str, HeaderPart]:
    """Return the parts of a file of `file_bytes` by kind, given its first 25 bytes.

    Raises UnsupportedFormatError for another version, CorruptSegmentError for other bytes.

    >>> data = bytes.fromhex("00 00000019 00000021 00000021 00000021 00000021 00000021")
    >>> decode_rsm_header(data, 1000)["log"]
    HeaderPart(position=33, size_bytes=967)
    """
    if len(data) < RSM_HEADER_BYTES:
        raise CorruptSegmentError(f"{len(data)} bytes, a header of {RSM_HEADER_BYTES} expected")
    if data[0]:
        raise UnsupportedFormatError(f"header version {data[0]} found, expected 0")
    starts = _POSITIONS.unpack(data[1:RSM_HEADER_BYTES])
    ends = (*starts[1:], file_bytes)
    if starts[0] != RSM_HEADER_BYTES or any(s > e for s, e in zip(starts, ends, strict=True)):
        raise CorruptSegmentError(
            f"positions {starts} are not possible in a file of {file_bytes} bytes"
        )
    pairs = zip(RSM_PARTS, starts, ends, strict=True)
    return {kind: HeaderPart(start, end - start) for kind, start, end in pairs}


def read_parts(read_into: ReadInto, file_bytes: int) -> dict[str, HeaderPart]:
    """Return the positions of the parts of an open file; errors as in `decode_rsm_header`."""
    return decode_rsm_header(read_fully(read_into, 0, RSM_HEADER_BYTES), file_bytes)


@contextmanager
def opened(file: Location, kind: str, open_file: OpenFile) -> Iterator[tuple[ReadInto, int]]:
    """Open a part: `log`, `timeindex` or `index`; Kip33Error if the file has no such header."""
    with open_file(file) as (read_into, file_bytes):
        part = read_parts(read_into, file_bytes)[kind]
        yield range_of(read_into, part.position, part.size_bytes), part.size_bytes
