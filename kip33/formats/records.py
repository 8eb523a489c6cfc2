"""The records of one entry of a `.log`: records of magic 2, messages of magic 0 and 1.

A record of magic 2, plain or in the decompressed body. Varints are zig-zag, 7 bits per byte, lowest
bits first:

    length          varint    bytes that follow this field
    attributes      int8      unused
    timestamp delta varlong   from the batch's base timestamp; ignored with LogAppendTime, where
                              every record has the batch's max timestamp
    offset delta    varint    from the batch's base offset
    key             varint length (-1 null), bytes
    value           varint length (-1 null), bytes
    headers         varint count, then each: key (length, UTF-8), value (length or -1, bytes)

A message of magic 0 or 1, alone or inside a compressed one, its wrapper:

    crc             uint32    CRC-32 of the following bytes
    magic           int8      inside a wrapper it may differ from the wrapper's (KAFKA-4298)
    attributes      int8
    timestamp       int64     magic 1 only; a LogAppendTime wrapper's own timestamp overrides it
    key             int32 length (-1 null), bytes
    value           int32 length (-1 null), bytes; a wrapper's value is the compressed entries

Offsets inside a wrapper of magic 0 are absolute. Those of magic 1 are relative: the wrapper's own
offset is that of its last message. If it is 0, they count from 0 (librdkafka).

Checksums are not verified here: the walk over the batches has verified every byte. `read_record`
and `read_fronts` also run compiled (`kip33.formats.native.compiler`).
Kafka: `DefaultRecord`, `DefaultRecordBatch.streamingIterator`, `ControlRecordType`,
`AbstractLegacyRecordBatch`, `LegacyRecord`.
"""

import io
import struct
from collections.abc import Iterator
from itertools import count as count_from
from typing import Any, Final, NamedTuple, TypeAlias, overload

import numpy as np

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import (
    CODEC_MASK,
    LEGACY_HEADER_BYTES,
    LEGACY_MIN_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    decode_header,
)
from kip33.formats.byte_sources import PieceReader, Portion, SeekableBytes, pieces_of
from kip33.formats.codecs import decompress
from kip33.formats.crc import Bytes, int8_at, java_sum
from kip33.formats.native import compiled
from kip33.formats.walk import varint_at

Buffer: TypeAlias = bytes | bytearray | memoryview
CONTROL_TYPES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
DEFAULT_MAX_BATCH_BYTES: Final = 1 << 30  # of one batch after decompression
MAX_RECORD_BYTES: Final = (1 << 31) - 1  # of one record: as many as its length can say
LARGE_RECORD_BYTES: Final = 1 << 20
PLAIN_RECORDS: Final = 1 << 16  # of a process, before it loads compiled code
_records_read: Final = count_from(1)  # by plain code, without keys and values
_MAGIC_POSITION = 16
_FRONT_ROWS: Final = 1 << 12  # at once
_FRONT_BYTES = 16  # largest start of a v2 record: attributes, timestamp delta, offset delta


class Record(NamedTuple):
    """One record or message: absolute offset, ms since epoch (-1: none), the producer's data."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class _Most(NamedTuple):
    """The limits for one batch after decompression, and for one of its records."""

    batch_bytes: int
    record_bytes: int = MAX_RECORD_BYTES


def iterate_records(
    batch: Buffer | SeekableBytes,
    *,
    position: int = 0,
    skip_key_value: bool = False,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Iterator[Record]:
    """Yield the records of one entry in stored order, with one record in memory at a time.

    `batch` is the entry's bytes, or a file positioned at the entry's first byte. `position` in the
    `.log` is only for error messages. `skip_key_value` skips key, value and headers without reading
    them, which bounds memory for any input. `max_record_bytes` is a topic's
    `max.decompressed.message.bytes`: of compressed batches a larger record is unreadable.

    Raises `BatchTooLargeError` after `max_batch_bytes` decompressed bytes, `CorruptSegmentError` at
    the first unreadable record or after the last one if bytes or records are left over, and
    `UnsupportedFormatError` for a codec that Kafka does not have.
    """
    source = io.BytesIO(batch) if isinstance(batch, bytes | bytearray | memoryview) else batch
    most = _Most(max_batch_bytes, max_record_bytes)
    found = _records(source, source.tell(), position, skip_key_value, most)
    yield from _named(found, position)


def record_error(
    batch: Buffer, *, position: int, max_batch_bytes: int, read: tuple[int, int]
) -> CorruptSegmentError | UnsupportedFormatError:
    """Return the error of `iterate_records` for a batch that it cannot read.

    `read` has the number of records of magic 2 that were read, and their bytes after decompression:
    they are not read again.
    """
    source = io.BytesIO(batch)
    try:
        records = _records(source, 0, position, False, _Most(max_batch_bytes), read)
        for _ in _named(records, position):
            pass
    except (CorruptSegmentError, UnsupportedFormatError) as error:
        return error
    return CorruptSegmentError(f"batch at position {position}: cannot be read", position)


def control_type(key: bytes | None) -> str:
    """Return the type of a control record from its key: one of `CONTROL_TYPES`, else `UNKNOWN`.

    Raises `CorruptSegmentError` for a key that Kafka refuses: too short, or a negative version.

    >>> control_type(bytes.fromhex("0000 0001"))
    'COMMIT'
    """
    if key is None or len(key) < 4:
        raise CorruptSegmentError(f"control record key {key!r}: expected version and type")
    version, number = struct.unpack_from(">hh", key)
    if version < 0:
        raise CorruptSegmentError(f"control record key of version {version}")
    return CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else "UNKNOWN"


def _named(records: Iterator[Record], position: int) -> Iterator[Record]:
    """Yield records; errors name the position of their batch."""
    try:
        yield from records
    except CorruptSegmentError as error:
        raise CorruptSegmentError(f"batch at position {position}: {error}", position) from error
    except UnsupportedFormatError as error:
        raise type(error)(f"batch at position {position}: {error}") from error


def _records(
    source: SeekableBytes,
    start: int,
    position: int,
    skip: bool,
    most: _Most,
    read: tuple[int, int] = (0, 0),
) -> Iterator[Record]:
    head = b"".join(pieces_of(source, start, start + RECORD_BATCH_OVERHEAD))
    if len(head) < LEGACY_HEADER_BYTES:
        raise CorruptSegmentError(f"{len(head)} bytes hold no entry")
    modern = 2 <= head[_MAGIC_POSITION] < 128
    least = RECORD_BATCH_OVERHEAD if modern else LEGACY_HEADER_BYTES
    header = decode_header(head, position) if len(head) >= least else None
    if header is None or header.size_bytes < least:
        raise CorruptSegmentError("the entry is smaller than its header")
    if modern:
        body = pieces_of(source, start + RECORD_BATCH_OVERHEAD, start + header.size_bytes)
        yield from _v2_records(header, body, skip, most, read)
    else:
        for message in _iterate_messages(source, start, header, skip_key_value=skip, most=most):
            yield Record(message.offset, message.timestamp, message.key, message.value)


def _v2_records(
    header: BatchHeader, body: Iterator[bytes], skip: bool, most: _Most, read: tuple[int, int]
) -> Iterator[Record]:
    count = header.records_count
    if count < 0:
        raise CorruptSegmentError(f"records count {count}")
    if count == 0:  # compaction removed them all
        return
    codec, largest = header.codec, most.record_bytes
    reader = PieceReader(decompress(body, codec, magic=header.magic, most_bytes=most.batch_bytes))
    if not header.attributes & CODEC_MASK:
        largest = MAX_RECORD_BYTES
    number, first_byte = read
    reader.skip(first_byte)
    while number < count:
        if skip and largest == MAX_RECORD_BYTES and next(_records_read) > PLAIN_RECORDS:
            for record in _fronts(reader, header, count - 1 - number):
                number += 1
                yield record
        try:
            record = _read_record(reader, header, skip, largest)
        except IndexError as error:
            message = f"record {number} of {count}: a field runs past its end"
            raise CorruptSegmentError(message) from error
        except CorruptSegmentError as error:
            raise CorruptSegmentError(f"record {number} of {count}: {error}") from error
        if number == count - 1 and not reader.at_end():
            raise CorruptSegmentError(f"bytes are left after record {number} of {count}")
        yield record
        number += 1


def _fronts(reader: PieceReader, header: BatchHeader, most: int) -> Iterator[Record]:
    """Yield up to `most` of the next records by compiled code, without keys and values.

    It stops before a record that is not complete in the reader's piece, or damaged.
    """
    fronts = np.empty(min(most, _FRONT_ROWS), FRONT)
    while most:
        piece, at = reader.ahead()
        data = np.frombuffer(piece, np.uint8)
        filled, end = compiled(read_fronts)(data, at, data.size, fronts[:most])
        if not filled:
            return
        reader.skip(end - at)
        most -= filled
        offsets = fronts["offset_delta"][:filled] + header.base_offset
        timestamps = fronts["timestamp_delta"][:filled] + header.base_timestamp
        if header.attributes & LOG_APPEND_TIME:
            timestamps[:] = header.max_timestamp
        yield from map(Record, offsets.tolist(), timestamps.tolist())


def _read_record(reader: PieceReader, header: BatchHeader, skip: bool, largest: int) -> Record:
    encoded = reader.take(1)
    while encoded and encoded[-1] >= 0x80 and len(encoded) <= 5 and (byte := reader.take(1)):
        encoded += byte
    length, _ = _varint(encoded, 0)
    _require_within(length, largest)
    data: bytes | _LargeRecord
    if length > LARGE_RECORD_BYTES and not skip:
        data = _LargeRecord(reader, length)
    else:
        data = reader.take(max(0, min(length, _FRONT_BYTES) if skip else length))
    if length < 0 or (skip and not reader.skip(length - len(data))):
        raise CorruptSegmentError(f"a record of {length} bytes")
    if not skip and len(data) < length:
        raise CorruptSegmentError(f"a record of {length} bytes, {len(data)} are left")
    timestamp_delta, at = _varint(data, 1, bits=64)
    offset_delta, at = _varint(data, at)
    offset = java_sum(header.base_offset, offset_delta)
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = java_sum(header.base_timestamp, timestamp_delta)
    if skip:
        return Record(offset, timestamp)
    key, at = _sized(data, at)
    value, at = _sized(data, at)
    count, at = _varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise CorruptSegmentError(f"{count} headers in {len(data) - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _sized(data, at)
        if name is None:
            raise CorruptSegmentError("a header without a key")
        content, at = _sized(data, at)
        headers.append((name.decode(errors="replace"), content))
    if at != length:
        raise CorruptSegmentError(f"a record of {length} bytes whose fields take {at}")
    return Record(offset, timestamp, key, value, tuple(headers))


def _require_within(length: int, largest: int) -> None:
    """Raise CorruptSegmentError for a record that a broker does not decompress."""
    if length > largest:
        raise CorruptSegmentError(
            f"a record of {length} bytes, more than max.decompressed.message.bytes, {largest}"
        )


class _LargeRecord:
    """A large record, read on demand so that its bytes and its fields are not both in memory."""

    def __init__(self, reader: PieceReader, length: int) -> None:
        self._reader, self._length, self._at = reader, length, 0

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, part: int) -> int: ...
    @overload
    def __getitem__(self, part: slice) -> bytes: ...
    def __getitem__(self, part: int | slice) -> int | bytes:
        """Return a byte or a slice, at or after the last one asked for."""
        if isinstance(part, int):
            if part >= self._length:
                raise IndexError(part)
            return self._take(part, 1)[0]
        return self._take(part.start, part.stop - part.start)

    def _take(self, start: int, count: int) -> bytes:
        is_there = self._reader.skip(start - self._at)
        data = self._reader.take(count)
        if not is_there or len(data) < count:
            raise CorruptSegmentError(f"a record of {self._length} bytes, fewer are left")
        self._at = start + count
        return data


def _varint(data: bytes | _LargeRecord, at: int, *, bits: int = 32) -> tuple[int, int]:
    """Return the zig-zag number at `at` and its end; `IndexError` if the data ends first."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= bits:
            raise CorruptSegmentError(f"a varint too long for {bits} bits")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    number &= (1 << bits) - 1  # Java drops the excess bits of the last byte
    return number >> 1 ^ -(number & 1), at


def _sized(data: bytes | _LargeRecord, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if size > len(data) - at:
        raise CorruptSegmentError(f"a field of {size} bytes, {len(data) - at} are left")
    return data[at : at + size], at + size


_KEY_POSITION_V0, _KEY_POSITION_V1 = 18, 26


class Message(NamedTuple):
    """One message; key and value are also None if they were skipped."""

    offset: int
    timestamp: int
    magic: int
    attributes: int
    key: bytes | None = None
    value: bytes | None = None


def _iterate_messages(
    source: SeekableBytes,
    start: int,
    header: BatchHeader,
    *,
    skip_key_value: bool,
    most: _Most,
) -> Iterator[Message]:
    """Yield the message of the entry at `start`, or those inside it if it is a wrapper.

    Raises `CorruptSegmentError` where Kafka's iterator fails (for a wrapper before its first
    message), and `UnsupportedFormatError` for a codec that the magic does not have.
    """
    end = start + header.size_bytes
    if header.attributes & CODEC_MASK:
        yield from _inside(source, start, end, header, skip_key_value, most)
    else:
        message = PieceReader(pieces_of(source, start + LOG_OVERHEAD, end))
        yield _read(message, header.base_offset, skip_key_value)


def _inside(
    source: SeekableBytes, start: int, end: int, header: BatchHeader, skip: bool, most: _Most
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
        body = decompress(stored, header.codec, magic=header.magic, most_bytes=most.batch_bytes)
        return _each(body, skip, most.record_bytes)

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


def _each(body: Iterator[bytes], skip: bool, largest: int) -> Iterator[Message]:
    """Yield the messages of a wrapper; a truncated last one is skipped, as in Kafka."""
    reader = PieceReader(body)
    while len(head := reader.take(LOG_OVERHEAD)) == LOG_OVERHEAD:
        offset, size = struct.unpack(">qi", head)
        if size < LEGACY_MIN_SIZE:
            raise CorruptSegmentError(f"an inner message of {size} bytes")
        _require_within(size, largest)
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


FRONT: Final = np.dtype([("timestamp_delta", np.int64), ("offset_delta", np.int64)])
"""One row per record of which only the front is read."""

NO_TYPE: Final = -1  # timestamp types, by Kafka's numbers
CREATE_TYPE: Final = 0
APPEND_TYPE: Final = 1

Place: TypeAlias = tuple[int, int]
"""Where a field is in an array, and its size; -1: null."""
Headers: TypeAlias = tuple[int, int, int, int]
"""Where a record's headers are, their number, and the bytes of all their keys and values."""
NO_FIELD: Final = (0, -1)
NO_HEADERS: Final = (0, 0, 0, 0)


def short_at(data: Bytes, at: int, stop: int, most_bytes: int) -> tuple[int, int]:
    """Return what `varint_at` returns; one and two bytes, which are the most common, are faster."""
    if at + 1 < stop:
        byte = int8_at(data, at)
        if byte >= 0:
            return (byte >> 1) ^ -(byte & 1), at + 1
        more = int8_at(data, at + 1)
        if more >= 0:
            return ((byte & 0x7F) >> 1) + (more << 6) ^ -(byte & 1), at + 2
    return varint_at(data, at, stop, most_bytes)


def sized_at(data: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Return size, start and end of a field with a varint length: -1 is null, end -1 is damage."""
    size, at = short_at(data, at, stop, 5)
    if at < 0 or size > stop - at:
        return 0, 0, -1
    if size < 0:
        return -1, at, at
    return size, at, at + size


def headers_at(data: Bytes, at: int, stop: int, count: int) -> tuple[int, Headers]:
    """Return the end of `count` record headers, -1 for damage, and what they are."""
    key_bytes, value_bytes, place = 0, 0, at
    for _ in range(count):
        size, _, place = sized_at(data, place, stop)
        if place < 0 or size < 0:
            return -1, NO_HEADERS
        key_bytes += size
        size, _, place = sized_at(data, place, stop)
        if place < 0:
            return -1, NO_HEADERS
        value_bytes += max(size, 0)
    return place, (at, count, key_bytes, value_bytes)


def read_record(data: Bytes, at: int, limit: int) -> tuple[int, int, int, Place, Place, Headers]:
    """Return what the record of magic 2 at `at` is, which ends at `limit` or before.

    That is its end (-1: damage), the deltas of its timestamp and its offset, key, value, headers.
    """
    length, at = short_at(data, at, limit, 5)
    if at < 0 or length < 0 or length > limit - at:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    stop = at + length
    timestamp_delta, at = short_at(data, at + 1, stop, 10)
    if at < 0:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    offset_delta, at = short_at(data, at, stop, 5)
    if at < 0:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    key_bytes, key = short_at(data, at, stop, 5)
    if key < 0 or key_bytes > stop - key:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    value_bytes, value = short_at(data, key + max(key_bytes, 0), stop, 5)
    if value < 0 or value_bytes > stop - value:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    count, at = short_at(data, value + max(value_bytes, 0), stop, 5)
    if at < 0 or count < 0 or count > stop - at:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    end, headers = headers_at(data, at, stop, count)
    if end != stop:
        return -1, 0, 0, NO_FIELD, NO_FIELD, NO_HEADERS
    return stop, timestamp_delta, offset_delta, (key, key_bytes), (value, value_bytes), headers


def read_fronts(data: Bytes, at: int, stop: int, fronts: Any) -> tuple[int, int]:
    """Fill `fronts` from the records of magic 2 that begin at `at`, without keys and values.

    Returns how many were filled and the end of the last one: before a record that is damaged or not
    complete in `data[:stop]`.
    """
    filled = 0
    while filled < fronts.size:
        length, start = short_at(data, at, stop, 5)
        if start < 0 or length < 0 or length > stop - start:
            break
        end = start + length
        timestamp_delta, place = short_at(data, start + 1, end, 10)
        if place < 0:
            break
        offset_delta, place = short_at(data, place, end, 5)
        if place < 0:
            break
        fronts[filled]["timestamp_delta"] = timestamp_delta
        fronts[filled]["offset_delta"] = offset_delta
        filled += 1
        at = end
    return filled, at
