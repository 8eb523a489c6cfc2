"""The records inside one entry of a `.log`, one at a time.

This is a record of magic 2, plain or in the decompressed body. Varints are zig-zag, 7 bits per
byte, lowest bits first:

    length          varint    bytes that follow this field
    attributes      int8      unused
    timestamp delta varlong   from the batch's base timestamp; ignored with LogAppendTime, where
                              every record has the batch's max timestamp
    offset delta    varint    from the batch's base offset
    key             varint length (-1 null), bytes
    value           varint length (-1 null), bytes
    headers         varint count, then each: key (length, UTF-8), value (length or -1, bytes)

Magic 0 and 1 have messages instead, see `kip33.formats.legacy_messages`.
Checksums are not verified here: the walk over the batches has verified every byte.
Kafka: `DefaultRecord`, `DefaultRecordBatch.streamingIterator`, `ControlRecordType`.
"""

import io
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias, overload

import numpy as np

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import (
    LEGACY_HEADER_BYTES,
    LOG_APPEND_TIME,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    decode_header,
)
from kip33.formats.bigendian import java_sum
from kip33.formats.byte_sources import PieceReader, SeekableBytes, pieces_of
from kip33.formats.codecs import decompress
from kip33.formats.legacy_messages import iterate_messages
from kip33.formats.native import compiled
from kip33.formats.record_fields import FRONT, read_fronts

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
LARGE_RECORD_BYTES: Final = 1 << 20
PLAIN_RECORDS: Final = 1 << 16  # of a process, before it loads compiled code
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


def iterate_records(
    batch: Buffer | SeekableBytes,
    *,
    position: int = 0,
    skip_key_value: bool = False,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> Iterator[Record]:
    """Yield the records of one entry in stored order, with one record in memory at a time.

    `batch` is the entry's bytes, or a file positioned at the entry's first byte. `position` in the
    `.log` is only for error messages. `skip_key_value` skips key, value and headers without reading
    them, which bounds memory for any input.

    Raises `BatchTooLargeError` after `max_batch_bytes` decompressed bytes, `CorruptSegmentError` at
    the first unreadable record or after the last one if bytes or records are left over, and
    `UnsupportedFormatError` for a codec that Kafka does not have.
    """
    source = io.BytesIO(batch) if isinstance(batch, bytes | bytearray | memoryview) else batch
    found = _records(source, source.tell(), position, skip_key_value, max_batch_bytes)
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
        for _ in _named(_records(source, 0, position, False, max_batch_bytes, read), position):
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
    most_bytes: int,
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
        yield from _v2_records(header, body, skip, most_bytes, read)
    else:
        for message in iterate_messages(
            source, start, header, skip_key_value=skip, most_bytes=most_bytes
        ):
            yield Record(message.offset, message.timestamp, message.key, message.value)


def _v2_records(
    header: BatchHeader, body: Iterator[bytes], skip: bool, most_bytes: int, read: tuple[int, int]
) -> Iterator[Record]:
    count = header.records_count
    if count < 0:
        raise CorruptSegmentError(f"records count {count}")
    if count == 0:  # compaction removed them all
        return
    reader = PieceReader(decompress(body, header.codec, magic=header.magic, most_bytes=most_bytes))
    number, first_byte = read
    reader.skip(first_byte)
    while number < count:
        if skip and _plain.seen():
            for record in _fronts(reader, header, count - 1 - number):
                number += 1
                yield record
        try:
            record = _read_record(reader, header, skip)
        except IndexError as error:
            message = f"record {number} of {count}: a field runs past its end"
            raise CorruptSegmentError(message) from error
        except CorruptSegmentError as error:
            raise CorruptSegmentError(f"record {number} of {count}: {error}") from error
        if number == count - 1 and not reader.at_end():
            raise CorruptSegmentError(f"bytes are left after record {number} of {count}")
        yield record
        number += 1


class _PlainRecords:
    """How many records this process has read by plain code, without keys and values."""

    count = 0

    def seen(self) -> bool:
        """Count a record; return whether compiled code pays."""
        self.count += 1
        return self.count > PLAIN_RECORDS


_plain: Final = _PlainRecords()


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


def _read_record(reader: PieceReader, header: BatchHeader, skip: bool) -> Record:
    encoded = reader.take(1)
    while encoded and encoded[-1] >= 0x80 and len(encoded) <= 5 and (byte := reader.take(1)):
        encoded += byte
    length, _ = _varint(encoded, 0)
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
