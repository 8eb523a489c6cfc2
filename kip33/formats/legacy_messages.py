"""Messages of magic 0 and 1: one alone, or those inside a compressed one, its wrapper.

    crc             uint32    CRC-32 of the following bytes
    magic           int8      inside a wrapper it may differ from the wrapper's (KAFKA-4298)
    attributes      int8
    timestamp       int64     magic 1 only; a LogAppendTime wrapper's own timestamp overrides it
    key             int32 length (-1 null), bytes
    value           int32 length (-1 null), bytes; a wrapper's value is the compressed entries

Offsets inside a wrapper of magic 0 are absolute. Those of magic 1 are relative: the wrapper's own
offset is that of its last message. If it is 0, they count from 0 (librdkafka). Kafka:
`AbstractLegacyRecordBatch`, `LegacyRecord`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kip33.errors import CorruptSegmentError
from kip33.formats.batch import (
    CODEC_MASK,
    LEGACY_MIN_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
)
from kip33.formats.bigendian import java_sum
from kip33.formats.byte_sources import PieceReader, Portion, SeekableBytes, pieces_of
from kip33.formats.codecs import decompress

_KEY_POSITION_V0, _KEY_POSITION_V1 = 18, 26


class Message(NamedTuple):
    """One message; key and value are also None if they were skipped."""

    offset: int
    timestamp: int
    magic: int
    attributes: int
    key: bytes | None = None
    value: bytes | None = None


def iterate_messages(
    source: SeekableBytes,
    start: int,
    header: BatchHeader,
    *,
    skip_key_value: bool,
    most_bytes: int,
) -> Iterator[Message]:
    """Yield the message of the entry at `start`, or those inside it if it is a wrapper.

    Raises `CorruptSegmentError` where Kafka's iterator fails (for a wrapper before its first
    message), and `UnsupportedFormatError` for a codec that the magic does not have.
    """
    end = start + header.size_bytes
    if header.attributes & CODEC_MASK:
        yield from _inside(source, start, end, header, skip_key_value, most_bytes)
    else:
        message = PieceReader(pieces_of(source, start + LOG_OVERHEAD, end))
        yield _read(message, header.base_offset, skip_key_value)


def _inside(
    source: SeekableBytes, start: int, end: int, header: BatchHeader, skip: bool, most_bytes: int
) -> Iterator[Message]:
    if header.magic not in (0, 1):
        raise CorruptSegmentError(f"a compressed message of magic {header.magic}")
    key_at = start + (_KEY_POSITION_V0 if header.magic == 0 else _KEY_POSITION_V1)
    value_at = key_at + 4 + max(0, _int32_at(source, key_at))
    size = _int32_at(source, value_at)
    begin = value_at + 4
    if not 0 <= size <= end - begin:
        raise CorruptSegmentError(f"a compressed message whose value has {size} bytes")

    def inner_messages(skip: bool) -> Iterator[Message]:
        stored = pieces_of(source, begin, begin + size)
        body = decompress(stored, header.codec, magic=header.magic, most_bytes=most_bytes)
        return _each(body, skip)

    # A first pass that keeps nothing finds the last inner offset, which gives the first offset.
    last_inner = None
    for inner in inner_messages(skip=True):
        last_inner = inner.offset
    if last_inner is None:
        raise CorruptSegmentError("a compressed message with nothing in it")
    absolute = header.magic == 0 or header.last_offset == 0
    base = 0 if absolute else header.last_offset - last_inner
    if base < 0:
        raise CorruptSegmentError(
            f"wrapper offset {header.last_offset} is below its last inner offset {last_inner}"
        )
    overrules = header.magic == 1 and header.attributes & LOG_APPEND_TIME
    for inner in inner_messages(skip):
        if inner.attributes & CODEC_MASK:
            raise CorruptSegmentError("a compressed message inside a compressed message")
        timestamp = header.max_timestamp if overrules and inner.magic == 1 else inner.timestamp
        yield inner._replace(offset=java_sum(base, inner.offset), timestamp=timestamp)


def _each(body: Iterator[bytes], skip: bool) -> Iterator[Message]:
    """Yield the messages of a wrapper; a truncated last one is skipped, as in Kafka."""
    reader = PieceReader(body)
    while len(head := reader.take(LOG_OVERHEAD)) == LOG_OVERHEAD:
        offset, size = struct.unpack(">qi", head)
        if size < LEGACY_MIN_SIZE:
            raise CorruptSegmentError(f"an inner message of {size} bytes")
        portion = Portion(reader, size)
        try:
            message = _read(portion, offset, skip)
        except CorruptSegmentError:
            if not portion.skip_rest():
                return
            raise
        if not portion.skip_rest():
            return
        yield message


def _read(reader: PieceReader | Portion, offset: int, skip: bool) -> Message:
    front = reader.take(6)
    if len(front) < 6:
        raise CorruptSegmentError(f"a message of {len(front)} bytes")
    magic, attributes = struct.unpack_from(">bB", front, 4)
    timestamp = NO_TIMESTAMP if magic == 0 else _take_int(reader, 8)
    if skip:
        return Message(offset, timestamp, magic, attributes)
    return Message(offset, timestamp, magic, attributes, _take_sized(reader), _take_sized(reader))


def _take_sized(reader: PieceReader | Portion) -> bytes | None:
    size = _take_int(reader, 4)
    if size < 0:
        return None
    data = reader.take(size)
    if len(data) < size:
        raise CorruptSegmentError(f"a field of {size} bytes, {len(data)} are left")
    return data


def _take_int(reader: PieceReader | Portion, width: int) -> int:
    data = reader.take(width)
    if len(data) < width:
        raise CorruptSegmentError(f"a field of {width} bytes, {len(data)} are left")
    return int.from_bytes(data, signed=True)


def _int32_at(source: SeekableBytes, at: int) -> int:
    return _take_int(PieceReader(pieces_of(source, at, at + 4)), 4)
