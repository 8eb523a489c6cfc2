"""An LZ4 frame, reduced to what Kafka checks of it.

Kafka: `Lz4BlockInputStream`; the header checksum is an XXH32.
"""

import struct
from collections.abc import Iterator

from kip33.errors import CorruptSegmentError
from kip33.formats.byte_sources import PieceReader

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_STORED = 0x80000000  # flag in a block size: the block is not compressed
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_UINT32 = 0xFFFFFFFF


def lz4_frame(reader: PieceReader, magic: int) -> Iterator[bytes]:
    """Yield the frame reduced to what Kafka checks: a header with a correct checksum, the blocks.

    The content size, the content checksum and bytes after the end, which Kafka ignores, are left
    out. A content checksum must be there: Kafka skips its 4 bytes. A compressed block without
    content ends the frame: Kafka's stream then returns no bytes, which its readers take as the end.
    """
    if reader.take(4) != _LZ4_MAGIC:
        raise CorruptSegmentError("lz4: the data does not begin with a frame")
    descriptor = reader.take(2)
    if len(descriptor) == 2 and descriptor[0] & _LZ4_CONTENT_SIZE:
        descriptor += reader.take(8)
    checksum = reader.take(1)
    if len(checksum) < 1:
        raise CorruptSegmentError("lz4: the stream ends inside the frame header")
    if magic > 0 and checksum[0] != _header_checksum(descriptor):
        raise CorruptSegmentError("lz4: the frame header does not match its checksum")
    flags, block_code = descriptor[0], descriptor[1] >> 4
    if flags & 0xE3 != 0x60 or descriptor[1] & 0x8F or block_code < 4:
        raise CorruptSegmentError(f"lz4: frame descriptor {descriptor[:2].hex()} is not Kafka's")
    kept = bytes([0x60 | flags & _LZ4_BLOCK_CHECKSUM, descriptor[1]])
    yield _LZ4_MAGIC + kept + bytes([_header_checksum(kept)])
    while True:
        word = reader.take(4)
        size = int.from_bytes(word, "little") & ~_LZ4_STORED
        if len(word) == 4 and size == 0:
            if flags & _LZ4_CONTENT_CHECKSUM and len(reader.take(4)) < 4:
                raise CorruptSegmentError("lz4: the stream ends inside the content checksum")
            yield bytes(4)
            return
        if size > 1 << 2 * block_code + 8:
            raise CorruptSegmentError(f"lz4: a block of {size} bytes is above the frame's maximum")
        size += 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
        block = reader.take(size)
        if len(word) < 4 or len(block) < size:
            raise CorruptSegmentError("lz4: the stream ends inside a block")
        yield word + block
        if word == b"\1\0\0\0" and block[0] < 0x10:  # a token without literals
            yield bytes(4)
            return


def _header_checksum(descriptor: bytes) -> int:
    """Return the second byte of the XXH32, seed 0, of a descriptor of 2 or 10 bytes."""
    state = 0x165667B1 + len(descriptor)
    words = len(descriptor) // 4
    for word in struct.unpack_from(f"<{words}I", descriptor):
        state = _rotate(state + word * 0xC2B2AE3D, 17) * 0x27D4EB2F
    for byte in descriptor[4 * words :]:
        state = _rotate(state + byte * 0x165667B1, 11) * 0x9E3779B1
    state &= _UINT32
    state = (state ^ state >> 15) * 0x85EBCA77 & _UINT32
    state = (state ^ state >> 13) * 0xC2B2AE3D & _UINT32
    return (state ^ state >> 16) >> 8 & 0xFF


def _rotate(word: int, bits: int) -> int:
    word &= _UINT32
    return (word << bits | word >> 32 - bits) & _UINT32
