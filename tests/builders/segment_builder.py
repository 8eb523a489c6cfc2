"""Write `.log` bytes from descriptions, for tests: an oracle that shares no code with kip33.

Every function returns the bytes of one entry; `segment` joins them. Fields that are not given have
the value that a broker would write. Every field can be set, and the checksum is always correct:

    segment(
        [
            v1_message(0, 1000, value=b"old"),
            wrapper(2, [v1_message(0, 1001), v1_message(1, 1002)], codec="lz4"),
            v2_batch(3, [Record(1003, b"k", b"v"), Record(1004)], codec="zstd"),
            v2_batch(9, last_offset_delta=4, max_timestamp=1005),  # emptied by compaction
            end_txn_marker(14, 1006, producer_id=5, commit=False),
        ]
    )

Codecs: none, gzip, snappy (xerial framing), snappy-raw, snappy-le (xerial with little-endian
versions), lz4, zstd.
"""

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import zstandard

CODEC_BITS = {
    "none": 0,
    "gzip": 1,
    "snappy": 2,
    "snappy-raw": 2,
    "snappy-le": 2,
    "lz4": 3,
    "zstd": 4,
}
LEGACY_CODECS = ("gzip", "snappy", "snappy-raw", "snappy-le", "lz4")
V2_CODECS = tuple(CODEC_BITS)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES = 32 * 1024


@dataclass(frozen=True)
class Record:
    """A record of a v2 batch; `offset_delta` is its position in the batch unless given."""

    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset_delta: int | None = None


def segment(entries: Iterable[bytes]) -> bytes:
    """Return a `.log`: the entries, one after another."""
    return b"".join(entries)


def v2_batch(
    base_offset: int,
    records: Sequence[Record] = (),
    *,
    codec: str = "none",
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    records_count: int | None = None,
    attributes: int | None = None,
    magic: int = 2,
    size: int | None = None,
    crc: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """Return a batch of magic 2; `body` replaces the bytes of the records on disk."""
    deltas = [i if r.offset_delta is None else r.offset_delta for i, r in enumerate(records)]
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else 0
    if base_timestamp is None:
        first = records[0].timestamp if records else -1
        base_timestamp = first if delete_horizon is None else delete_horizon
    if max_timestamp is None:
        max_timestamp = max([-1, *(r.timestamp for r in records)])
        max_timestamp = max_timestamp if log_append_time is None else log_append_time
    if attributes is None:
        attributes = CODEC_BITS[codec] if records or body is not None else 0
        attributes |= LOG_APPEND_TIME if log_append_time is not None else 0
        attributes |= TRANSACTIONAL if transactional else 0
        attributes |= CONTROL if control else 0
        attributes |= DELETE_HORIZON if delete_horizon is not None else 0
    if body is None:
        pairs = zip(records, deltas, strict=True)
        plain = b"".join(record_bytes(r, delta, base_timestamp) for r, delta in pairs)
        body = compress(plain, codec) if records else b""
    counted = struct.pack(">hi", attributes, last_offset_delta)
    counted += struct.pack(">qqq", base_timestamp, max_timestamp, producer_id)
    counted += struct.pack(">hi", producer_epoch, base_sequence)
    counted += struct.pack(">i", len(records) if records_count is None else records_count) + body
    head = struct.pack(">qi", base_offset, 9 + len(counted) if size is None else size)
    head += struct.pack(">ib", leader_epoch, magic)
    return head + struct.pack(">I", crc32c(counted) if crc is None else crc) + counted


def end_txn_marker(
    offset: int,
    timestamp: int,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Return the 78-byte control batch that commits or aborts a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    return v2_batch(
        offset,
        [Record(timestamp, key, value)],
        control=True,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
    )


def v0_message(
    offset: int,
    key: bytes | None = None,
    value: bytes | None = b"",
    *,
    attributes: int = 0,
    size: int | None = None,
    crc: int | None = None,
) -> bytes:
    """Return a message of magic 0, which has no timestamp."""
    return _legacy(offset, 0, attributes, b"", key, value, size, crc)


def v1_message(
    offset: int,
    timestamp: int = -1,
    key: bytes | None = None,
    value: bytes | None = b"",
    *,
    log_append_time: bool = False,
    attributes: int | None = None,
    magic: int = 1,
    size: int | None = None,
    crc: int | None = None,
) -> bytes:
    """Return a message of magic 1."""
    if attributes is None:
        attributes = LOG_APPEND_TIME if log_append_time else 0
    when = struct.pack(">q", timestamp)
    return _legacy(offset, magic, attributes, when, key, value, size, crc)


def wrapper(
    offset: int,
    inner: Sequence[bytes],
    *,
    magic: int = 1,
    codec: str = "gzip",
    timestamp: int | None = None,
    log_append_time: bool = False,
    attributes: int | None = None,
    value: bytes | None = None,
) -> bytes:
    """Return a compressed v0 or v1 message around `inner` entries; `offset` is the last one's.

    Inner offsets are used as given: absolute in magic 0, relative in magic 1. The timestamp is the
    largest of the inner ones unless given. Inner entries may have the other magic (KAFKA-4298).
    """
    if value is None:
        value = compress(b"".join(inner), codec, magic=magic)
    bits = CODEC_BITS[codec] | (LOG_APPEND_TIME if log_append_time else 0)
    attributes = bits if attributes is None else attributes
    if magic == 0:
        return v0_message(offset, value=value, attributes=attributes)
    if timestamp is None:
        stamped = [entry for entry in inner if entry[16] == 1]
        timestamp = max([-1, *(struct.unpack_from(">q", entry, 18)[0] for entry in stamped)])
    return v1_message(offset, timestamp, value=value, attributes=attributes, magic=magic)


def with_broken_crc(entry: bytes) -> bytes:
    """Return the entry with one flipped bit in its checksum."""
    at = 17 if entry[16] in range(2, 128) else 12
    return entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :]


def _legacy(
    offset: int,
    magic: int,
    attributes: int,
    when: bytes,
    key: bytes | None,
    value: bytes | None,
    size: int | None,
    crc: int | None,
) -> bytes:
    counted = struct.pack(">bB", magic, attributes) + when + _sized(key) + _sized(value)
    head = struct.pack(">qi", offset, 4 + len(counted) if size is None else size)
    return head + struct.pack(">I", zlib.crc32(counted) if crc is None else crc) + counted


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def record_bytes(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    """Return the uncompressed bytes of a v2 record in a batch."""
    body = b"\x00" + zigzag(record.timestamp - base_timestamp) + zigzag(offset_delta)
    body += _zigzag_sized(record.key) + _zigzag_sized(record.value) + zigzag(len(record.headers))
    for name, value in record.headers:
        body += _zigzag_sized(name.encode()) + _zigzag_sized(value)
    return zigzag(len(body)) + body


def zigzag(number: int) -> bytes:
    """Return the zig-zag varint of a number of up to 64 bits, with Java's wrap-around."""
    number = (number + 2**63) % 2**64 - 2**63
    rest = 2 * number if number >= 0 else -2 * number - 1
    groups = []
    while rest >= 128:
        groups.append(rest % 128 + 128)
        rest //= 128
    return bytes([*groups, rest])


def _zigzag_sized(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def compress(data: bytes, codec: str, *, magic: int = 2) -> bytes:
    """Return `data` as a producer of this magic would store it."""
    if codec == "none":
        return data
    if codec == "gzip":
        return gzip.compress(data, mtime=0)
    if codec == "snappy-raw":
        return _arrow_compress(data, "snappy")
    if codec in ("snappy", "snappy-le"):
        versions = struct.pack(">ii" if codec == "snappy" else "<ii", 1, 1)
        cuts = range(0, max(len(data), 1), XERIAL_BLOCK_BYTES)
        blocks = [_arrow_compress(data[at : at + XERIAL_BLOCK_BYTES], "snappy") for at in cuts]
        return XERIAL_MAGIC + versions + b"".join(_sized(block) for block in blocks)
    if codec == "lz4":
        return lz4_frame(data, broken_header_checksum=magic == 0)
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)  # as Java's streams


def _arrow_compress(data: bytes, codec: str) -> bytes:
    return pa.Codec(codec).compress(data, asbytes=True)


def lz4_frame(data: bytes, *, broken_header_checksum: bool = False) -> bytes:
    """Return an LZ4 frame as Kafka writes it: independent 64 KiB blocks, no content size.

    The broken checksum is that of old Kafka clients (KAFKA-3160), which also hashed the magic.
    """
    head = b"\x04\x22\x4d\x18" + b"\x60\x40"
    hashed = head if broken_header_checksum else head[4:]
    frame = head + bytes([xxh32(hashed) >> 8 & 0xFF])
    for at in range(0, len(data), 65536):
        plain = data[at : at + 65536]
        packed = _arrow_compress(plain, "lz4_raw")
        stored = len(packed) >= len(plain)
        block = plain if stored else packed
        frame += struct.pack("<I", len(block) | (0x80000000 if stored else 0)) + block
    return frame + bytes(4)


def xxh32(data: bytes) -> int:
    """Return the XXH32 (seed 0) of fewer than 16 bytes; a frame header needs no more."""
    prime1, prime2, prime3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
    prime4, prime5 = 0x27D4EB2F, 0x165667B1
    state = prime5 + len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        state = _rotated(state + word * prime3, 17) * prime4
    for byte in data[whole:]:
        state = _rotated(state + byte * prime5, 11) * prime1
    state %= 2**32
    state = (state ^ state >> 15) * prime2 % 2**32
    state = (state ^ state >> 13) * prime3 % 2**32
    return state ^ state >> 16


def _rotated(word: int, bits: int) -> int:
    word %= 2**32
    return word << bits | word >> 32 - bits


def _castagnoli_table() -> Iterable[int]:
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


CASTAGNOLI = tuple(_castagnoli_table())


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`, byte by byte from a table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CASTAGNOLI[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
