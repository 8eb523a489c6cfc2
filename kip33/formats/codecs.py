"""Decompress the body of a batch or of a wrapper chunk by chunk, as Kafka does.

    id  name     magic   stored as
    1   gzip     0 1 2   RFC 1952 members, one after another; bytes after the last are not read
    2   snappy   0 1 2   xerial: 82 'SNAPPY' 00, two int32 versions (big- or little-endian),
                         then { int32 length, snappy block }*; or one bare snappy block (librdkafka)
    3   lz4      0 1 2   one LZ4 frame of independent blocks; for magic 0 the header checksum (an
                         XXH32) is not checked, because old clients computed it wrongly (KAFKA-3160)
    4   zstd     2       frames, one after another (KIP-110, Kafka 2.1)

Memory is bounded for any input: pieces come in, chunks of bounded size go out. Only a snappy
block must be complete. The size it claims is checked against snappy's largest expansion and against
the bytes that are allowed.
Kafka: `GzipCompression`, `SnappyCompression`, `Lz4BlockInputStream`, `ZstdCompression`.
"""

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Literal, NamedTuple

from kip33.errors import (
    BatchTooLargeError,
    CorruptSegmentError,
    FileReadError,
    UnsupportedFormatError,
    is_of_the_machine,
)
from kip33.formats.byte_sources import PieceReader

DECOMPRESSED_CHUNK_BYTES: Final = 256 * 1024
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
LZ4_STORED: Final = 0x80000000  # flag in a block size: the block is not compressed
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_UINT32 = 0xFFFFFFFF
_AGAIN_TAKEN_BYTES: Final = 1 << 23  # of a damaged body, to decode it again
_AGAIN_GIVEN_BYTES: Final = 1 << 25
_GZIP_MAGIC = b"\x1f\x8b\x08"
_LARGE_STEP_BYTES: Final = 4096
_NO_MEMORY: Final = "not enough memory"  # zstd's text, in an error of Arrow
_BESIDE_BYTES: Final = 1 << 28  # memory for a snappy block besides its batch
_NARROWING: Final = (  # bytes that a small step takes and gives, per pass
    *((4096, 4096), (256, 4096), (16, 4096), (1, 4096), (1, 256), (1, 16), (1, 1)),
)


class Prefix(NamedTuple):
    """The bytes that a body decodes to before any damage; `error` is None if it is undamaged."""

    data: bytes
    error: str | None
    steps: int  # of the decoder, as a measure of cost


def decode_prefix(stored: bytes, codec: str, *, magic: int, most_bytes: int) -> Prefix:
    """Return every byte that decodes before any damage, at most a little more than `most_bytes`.

    A decoder that meets damage does not return what it decoded in the same step. So the body is
    first decoded in large steps. If that fails, it is decoded again with smaller steps near the
    damage, until steps there are one byte. The number of steps is proportional to the size.

    Raises `UnsupportedFormatError` for a codec that the magic does not have.
    """
    marks, count = (0, 0), 0
    for taken, given in _NARROWING:
        steps = Steps(taken=taken, given=given, marks=marks)
        data, error = bytearray(), None
        try:
            for piece in decompress([stored], codec, magic=magic, steps=steps):
                data += piece
                if len(data) > most_bytes:
                    break
        except CorruptSegmentError as damage:
            error = str(damage)
        count += steps.count
        if error is None:
            break
        marks = steps.last_taken_at, len(data)
    return Prefix(bytes(data), error, count)


class Steps:
    """The number of bytes a decoder takes and gives in one step, and its totals so far.

    Steps are large up to a mark and small after it.
    """

    def __init__(
        self,
        *,
        taken: int = DECOMPRESSED_CHUNK_BYTES,
        given: int = DECOMPRESSED_CHUNK_BYTES,
        marks: tuple[int, int] = (0, 0),
    ) -> None:
        """Take the marks and the sizes of a small step, for bytes taken and bytes given."""
        self._small_taken, self._small_given = taken, given
        self._taken_mark, self._given_mark = marks
        self.bytes_taken = self.bytes_given = 0
        self.last_taken_at = 0  # position at which the last step took its bytes
        self.count = 0

    def next_taken(self) -> int:
        """Return how many bytes to take now."""
        return self._next(self.bytes_taken, self._taken_mark, self._small_taken)

    def next_given(self) -> int:
        """Return the largest number of bytes to give now."""
        return self._next(self.bytes_given, self._given_mark, self._small_given)

    def took(self, count: int) -> None:
        """Record that a step took `count` bytes."""
        self.last_taken_at = self.bytes_taken
        self.bytes_taken += count
        self.count += 1

    def gave(self, count: int) -> None:
        """Record that a step gave `count` bytes."""
        self.bytes_given += count
        self.count += 1

    def _next(self, done: int, mark: int, small: int) -> int:
        return min(mark - done, _LARGE_STEP_BYTES) if done < mark else small


def decompress(
    stored: Iterable[bytes],
    codec: str,
    *,
    magic: int,
    steps: Steps | None = None,
    most_bytes: int | None = None,
) -> Iterator[bytes]:
    """Yield the decompressed bytes of a body that arrives in pieces; `codec` is a name of
    `CODEC_NAMES`.

    `steps` sets how many bytes are taken and given at once; without it those of `Steps`, and all
    bytes before damage are yielded, if the body is not large (`decode_prefix`).

    Raises `BatchTooLargeError` beyond `most_bytes`, `UnsupportedFormatError` for a codec that the
    magic does not have, and `CorruptSegmentError` for bytes that the codec cannot read. Errors are
    raised by the iteration, when it reaches the damage.

    >>> b"".join(decompress([b"\\x03\\x08abc"], "snappy", magic=2))
    b'abc'
    """
    if steps is None and codec in ("gzip", "snappy", "lz4", "zstd"):
        pieces = _up_to_damage(stored, codec, magic, most_bytes)
    else:
        pieces = _decoded(PieceReader(stored), codec, magic, steps or Steps(), most_bytes)
    return pieces if most_bytes is None else _bounded(pieces, most_bytes)


def _up_to_damage(
    stored: Iterable[bytes], codec: str, magic: int, most_bytes: int | None
) -> Iterator[bytes]:
    """Yield every byte before damage; of a body above the limits not those of the last step."""
    taken, given = bytearray(), 0

    def pieces() -> Iterator[bytes]:
        for piece in stored:
            taken.extend(piece[: _AGAIN_TAKEN_BYTES + 1 - len(taken)])
            yield piece

    try:
        for chunk in _decoded(PieceReader(pieces()), codec, magic, Steps(), most_bytes):
            given += len(chunk)
            yield chunk
    except CorruptSegmentError:
        if len(taken) <= _AGAIN_TAKEN_BYTES and given <= _AGAIN_GIVEN_BYTES:
            most = given + 2 * DECOMPRESSED_CHUNK_BYTES
            prefix = decode_prefix(bytes(taken), codec, magic=magic, most_bytes=most)
            if len(prefix.data) > given:
                yield prefix.data[given:]
        raise


def _bounded(pieces: Iterator[bytes], most_bytes: int) -> Iterator[bytes]:
    size_bytes = 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > most_bytes:
            raise BatchTooLargeError(
                f"it decompresses to more than {most_bytes} bytes; give --max-batch-bytes "
                "(max_batch_bytes in Python) a larger number to read it"
            )
        yield piece


def _decoded(
    reader: PieceReader, codec: str, magic: int, steps: Steps, most_bytes: int | None
) -> Iterator[bytes]:
    if codec == "none":
        return reader.rest()
    if codec == "gzip":
        return _gunzip(reader, steps)
    if codec == "snappy":
        return _unsnappy(reader, most_bytes)
    if codec == "lz4":
        return _stream(lz4_frame(reader, magic), "lz4", steps)
    if codec == "zstd" and magic >= 2:
        return _stream(reader.rest(), "zstd", steps)
    raise UnsupportedFormatError(f"magic {magic} has no codec {codec}")


def _gunzip(reader: PieceReader, steps: Steps) -> Iterator[bytes]:
    # zlib itself, to do as Java after a member: continue if another follows, else stop silently.
    member = zlib.decompressobj(wbits=31)
    stored, has_more = b"", False
    while not member.eof:
        if not stored and not has_more:
            stored = reader.take(steps.next_taken())
            steps.took(len(stored))
            if not stored:
                raise CorruptSegmentError("gzip: the stream ends inside a member")
        most = steps.next_given()
        try:
            chunk = member.decompress(stored, most)
        except zlib.error as error:
            raise CorruptSegmentError(f"gzip: {error}") from error
        if chunk:
            steps.gave(len(chunk))
            yield chunk
        has_more = len(chunk) == most  # zlib may still have output after its input is used up
        stored = member.unconsumed_tail
        if member.eof:
            stored = member.unused_data
            stored += reader.take(max(0, len(_GZIP_MAGIC) - len(stored)))
            if stored.startswith(_GZIP_MAGIC):
                member = zlib.decompressobj(wbits=31)


def _unsnappy(reader: PieceReader, most_bytes: int | None) -> Iterator[bytes]:
    head = reader.take(XERIAL_HEADER_BYTES)
    if not (head.startswith(XERIAL_MAGIC) and len(head) == XERIAL_HEADER_BYTES):
        yield from _snappy_block(head + b"".join(reader.rest()), most_bytes)
        return
    while len(length := reader.take(4)) == 4:  # SnappyInputStream: fewer bytes end the stream
        if length == XERIAL_MAGIC[:4]:  # another stream follows; as a length its magic is negative
            reader.skip(XERIAL_HEADER_BYTES - 4)
            continue
        size = int.from_bytes(length, signed=True)
        block = reader.take(max(size, 0))
        if size < 0 or len(block) < size:
            raise CorruptSegmentError(
                f"snappy: a block of {size} bytes, {len(block)} bytes are left"
            )
        yield from _snappy_block(block, most_bytes)


def _snappy_block(block: bytes, most_bytes: int | None) -> Iterator[bytes]:
    import pyarrow as pa  # imported here, because building an index needs no codec

    claimed, is_possible = claimed_snappy_bytes(block)
    if not is_possible:
        raise CorruptSegmentError(f"snappy: {len(block)} bytes cannot hold {claimed}")
    if most_bytes is not None and 2 * claimed > most_bytes + _BESIDE_BYTES:
        raise BatchTooLargeError(
            f"a snappy block of {claimed} bytes needs memory twice, and {most_bytes} "
            "bytes are allowed; give --max-batch-bytes (max_batch_bytes in Python) a "
            "larger number to read it"
        )
    try:
        plain = memoryview(pa.Codec("snappy").decompress(block, claimed))
    except (OSError, pa.ArrowException) as error:
        raise _fault("snappy", error) from error
    for start in range(0, claimed, DECOMPRESSED_CHUNK_BYTES):
        yield bytes(plain[start : start + DECOMPRESSED_CHUNK_BYTES])


def claimed_snappy_bytes(block: bytes | memoryview) -> tuple[int, bool]:
    """Return the size that a block claims to decompress to, and whether that is possible."""
    claimed, at = 0, 0
    while at < min(len(block), 5):
        claimed |= (block[at] & 0x7F) << 7 * at
        at += 1
        if block[at - 1] < 0x80:
            break
    # The densest element, a copy, expands 3 bytes to 64.
    return claimed, at > 0 and block[at - 1] < 0x80 and claimed * 3 <= len(block) * 64


class _PieceFile(io.RawIOBase):
    """The pieces as a file that pyarrow can read."""

    def __init__(self, pieces: Iterator[bytes], steps: Steps) -> None:
        super().__init__()
        self._reader = PieceReader(pieces)
        self._steps = steps

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        most = self._steps.next_taken()
        data = self._reader.take(min(size, most) if size >= 0 else most)
        self._steps.took(len(data))
        return data


def _stream(
    pieces: Iterator[bytes], codec: Literal["lz4", "zstd"], steps: Steps
) -> Iterator[bytes]:
    import pyarrow as pa

    first = next(pieces, b"")
    if not first:  # pyarrow accepts an empty stream
        raise CorruptSegmentError(f"{codec}: no bytes to decompress")
    source = pa.PythonFile(_PieceFile(chain([first], pieces), steps), mode="r")
    with pa.CompressedInputStream(source, codec) as stream:
        while True:
            try:
                chunk = stream.read(steps.next_given())
            except (OSError, pa.ArrowException) as error:
                raise _fault(codec, error) from error
            if not chunk:
                return
            steps.gave(len(chunk))
            yield chunk


def _fault(codec: str, error: Exception) -> Exception:
    """Return a decompressor's error as damage, unless the file or memory is the reason."""
    if isinstance(error, FileReadError) or is_of_the_machine(error):
        return error
    line = str(error).partition("\n")[0]
    if _NO_MEMORY in line:
        return MemoryError(f"{codec}: {line}")
    return CorruptSegmentError(f"{codec}: {line}")


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
        size = int.from_bytes(word, "little") & ~LZ4_STORED
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
