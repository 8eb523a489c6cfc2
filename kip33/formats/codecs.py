"""The compressed body of a batch or wrapper, decompressed as Kafka reads it, chunk by chunk.

    id  name     magic   stored as
    1   gzip     0 1 2   RFC 1952 members, one after another; what follows the last is not read
    2   snappy   0 1 2   xerial: 82 'SNAPPY' 00, two int32 versions (big- or little-endian),
                         then { int32 length, snappy block }*; or one bare snappy block (librdkafka)
    3   lz4      0 1 2   one LZ4 frame of independent blocks; of magic 0 the header checksum is not
                         looked at, old clients computed it wrongly (KAFKA-3160)
    4   zstd     2       frames, one after another (KIP-110, Kafka 2.1)

Memory stays bounded whatever the bytes claim: pieces come in, chunks of at most CHUNK_BYTES go out.
A snappy block alone must be whole, and its claim is held against what snappy can at best expand to.
Kafka: `GzipCompression`, `SnappyCompression`, `Lz4BlockInputStream`, `ZstdCompression`.
"""

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Literal

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.pieces import PieceReader

CHUNK_BYTES: Final = 256 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b\x08"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_STORED = 0x80000000  # of a block size: the block is not compressed
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE = 0x10, 0x08
_UINT32 = 0xFFFFFFFF


def decompress(
    stored: Iterable[bytes], codec: str, *, magic: int, step_bytes: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """Yield the decompressed bytes of a body stored in pieces; `codec` as in `CODEC_NAMES`.

    `step_bytes` is taken and given at once: 1 gives all that decodes before any damage.

    Raises `UnsupportedFormatError` for a codec that the magic does not have, `CorruptSegmentError`
    for bytes that the codec cannot read, both on the first step or later, where the damage is.

    >>> b"".join(decompress([b"\\x03\\x08abc"], "snappy", magic=2))
    b'abc'
    """
    reader = PieceReader(stored)
    if codec == "none":
        return reader.rest()
    if codec == "gzip":
        return _gunzip(reader, step_bytes)
    if codec == "snappy":
        return _unsnappy(reader)
    if codec == "lz4":
        return _stream(_lz4_frame(reader, magic), "lz4", step_bytes)
    if codec == "zstd" and magic >= 2:
        return _stream(reader.rest(), "zstd", step_bytes)
    raise UnsupportedFormatError(f"magic {magic} has no codec {codec}")


def _gunzip(reader: PieceReader, step_bytes: int) -> Iterator[bytes]:
    # zlib itself, for what Java does after a member: read on if another follows, else stop quietly.
    member = zlib.decompressobj(wbits=31)
    stored = b""
    while not member.eof:
        stored = stored or reader.take(step_bytes)
        if not stored:
            raise CorruptSegmentError("gzip: the stream ends inside a member")
        try:
            chunk = member.decompress(stored, step_bytes)
        except zlib.error as error:
            raise CorruptSegmentError(f"gzip: {error}") from error
        if chunk:
            yield chunk
        stored = member.unconsumed_tail
        if member.eof:
            stored = member.unused_data
            stored += reader.take(max(0, len(_GZIP_MAGIC) - len(stored)))
            if stored.startswith(_GZIP_MAGIC):
                member = zlib.decompressobj(wbits=31)


def _unsnappy(reader: PieceReader) -> Iterator[bytes]:
    head = reader.take(_XERIAL_HEADER_BYTES)
    if not (head.startswith(_XERIAL_MAGIC) and len(head) == _XERIAL_HEADER_BYTES):
        yield from _snappy_block(head + b"".join(reader.rest()))
        return
    while len(length := reader.take(4)) == 4:  # fewer bytes end the stream: SnappyInputStream
        if length == _XERIAL_MAGIC[:4]:  # another stream follows; no length is negative
            reader.skip(_XERIAL_HEADER_BYTES - 4)
            continue
        size = int.from_bytes(length, signed=True)
        block = reader.take(max(size, 0))
        if size < 0 or len(block) < size:
            raise CorruptSegmentError(
                f"snappy: a block of {size} bytes, {len(block)} bytes are left"
            )
        yield from _snappy_block(block)


def _snappy_block(block: bytes) -> Iterator[bytes]:
    import pyarrow as pa  # here, for an index needs no codec

    claimed, at = 0, 0
    while at < min(len(block), 5):
        claimed |= (block[at] & 0x7F) << 7 * at
        at += 1
        if block[at - 1] < 0x80:
            break
    # The densest element, a copy, makes 64 bytes of 3.
    if at == 0 or block[at - 1] >= 0x80 or claimed * 3 > len(block) * 64:
        raise CorruptSegmentError(f"snappy: {len(block)} bytes cannot hold {claimed}")
    try:
        plain = memoryview(pa.Codec("snappy").decompress(block, claimed))
    except (OSError, pa.ArrowException) as error:
        raise CorruptSegmentError(f"snappy: {_first_line(error)}") from error
    for start in range(0, claimed, CHUNK_BYTES):
        yield bytes(plain[start : start + CHUNK_BYTES])


def _lz4_frame(reader: PieceReader, magic: int) -> Iterator[bytes]:
    """Yield the frame reduced to what Kafka looks at: a header with a true checksum, the blocks.

    Content size and content checksum, which Kafka skips, are left out; so is what follows the end.
    """
    if reader.take(4) != _LZ4_MAGIC:
        raise CorruptSegmentError("lz4: no frame begins here")
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
            yield bytes(4)
            return
        if size > 1 << 2 * block_code + 8:
            raise CorruptSegmentError(f"lz4: a block of {size} bytes is above the frame's maximum")
        size += 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
        block = reader.take(size)
        if len(word) < 4 or len(block) < size:
            raise CorruptSegmentError("lz4: the stream ends inside a block")
        yield word + block


def _header_checksum(descriptor: bytes) -> int:
    """Return the second byte of the descriptor's XXH32, seed 0; of 2 or 10 bytes."""
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


class _PieceFile(io.RawIOBase):
    """The pieces as a file, which is what pyarrow reads from."""

    def __init__(self, pieces: Iterator[bytes], step_bytes: int) -> None:
        super().__init__()
        self._reader = PieceReader(pieces)
        self._step_bytes = step_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._reader.take(min(size, self._step_bytes) if size >= 0 else self._step_bytes)


def _stream(
    pieces: Iterator[bytes], codec: Literal["lz4", "zstd"], step_bytes: int
) -> Iterator[bytes]:
    import pyarrow as pa

    first = next(pieces, b"")
    if not first:  # to pyarrow an empty stream is whole
        raise CorruptSegmentError(f"{codec}: no bytes to decompress")
    source = pa.PythonFile(_PieceFile(chain([first], pieces), step_bytes), mode="r")
    with pa.CompressedInputStream(source, codec) as stream:
        while True:
            try:
                chunk = stream.read(step_bytes)
            except (OSError, pa.ArrowException) as error:
                raise CorruptSegmentError(f"{codec}: {_first_line(error)}") from error
            if not chunk:
                return
            yield chunk


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
