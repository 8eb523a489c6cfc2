"""Control batches of a producer, as the producer state reads them during recovery.

Index rules do not read inside batches, with one exception: `LogSegment.recover` passes every batch
with a producer id to the producer state, which reads the first record of a control batch. An
unreadable record ends the scan after the batch, or makes the log fail to load. The walk handles
plain ABORT and COMMIT markers itself; this module reads all others. All records of a compressed
control batch are decoded first, byte by byte as needed, so bytes before any damage are used.

Kafka 4.1: `ProducerAppendInfo.append`, `DefaultRecordBatch.iterator`, `DefaultRecord.readFrom`,
`ControlRecordType.parse`, `EndTransactionMarker.deserialize`.
"""

from typing import Final, NamedTuple

import numpy as np

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_MASK, CODEC_NAMES, RECORD_BATCH_OVERHEAD
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.codecs import decode_prefix
from kip33.formats.crc import int16_at
from kip33.formats.walk import ABORT, COMMIT, varint_at

EMPTY_BATCH: Final = 4  # compaction removed all its records: nothing to do
STOPS: Final = 5  # InvalidRecordException: the batch stays, the scan ends after it
FAILS: Final = 6  # any other exception: the log does not load

MAX_JAVA_ARRAY: Final = 2**31 - 3  # of OpenJDK
MAX_MARKER_BYTES: Final = 1 << 20  # a marker has 78 bytes; larger claims are not assembled
MAX_DECODED_BYTES: Final = 4096  # of a compressed marker, which no broker writes


class Marker(NamedTuple):
    """The kind of a control batch, and one line with the reason if Kafka fails on it."""

    control: int
    message: str | None = None


class _StopsError(Exception):
    """Kafka throws InvalidRecordException here."""


class _FailsError(Exception):
    """Kafka throws something that recovery does not catch."""


class _Body(NamedTuple):
    """The records' bytes that could be decoded, and the decoder's error after them."""

    data: bytes
    decoder_error: str | None = None

    def require(self, stop: int, what: str) -> None:
        """Raise if the body ends before `stop`: _FailsError after an error, else _StopsError."""
        if stop > len(self.data):
            if self.decoder_error:
                raise _FailsError(self.decoder_error)
            raise _StopsError(f"{what} needs {stop} bytes of {len(self.data)}")


def read_marker(read_into: ReadInto, row: np.void) -> Marker:
    """Return how Kafka's producer state reads the control batch of `row` (a BATCH row)."""
    position, count = int(row["position"]), int(row["records_count"])
    body_bytes = int(row["size_bytes"]) - RECORD_BATCH_OVERHEAD
    codec = int(row["attributes"]) & CODEC_MASK
    if count == 0:
        return Marker(EMPTY_BATCH)
    try:
        if body_bytes > MAX_MARKER_BYTES:
            raise _FailsError(f"{body_bytes} bytes are more than a marker can have")
        stored = _read(read_into, position + RECORD_BATCH_OVERHEAD, body_bytes)
        body = _decompressed(stored, codec) if codec else _Body(stored)
        if codec and count > MAX_JAVA_ARRAY:  # Kafka first allocates a list of this size
            raise _FailsError(f"no list holds {count} records")
        if count < 0:
            raise _StopsError(f"records count {count}")
        key, value = _marker_record(body, count, compressed=codec != 0)
        return Marker(_marker_type(key, value))
    except _StopsError as stop:
        return Marker(STOPS, f"at byte {position}: control batch: {stop}; the scan ends after it")
    except _FailsError as failure:
        return Marker(FAILS, f"at byte {position}: control batch: {failure}; Kafka fails to load")


def _read(read_into: ReadInto, position: int, size: int) -> bytes:
    data = read_fully(read_into, position, size)
    if len(data) < size:
        raise CorruptSegmentError(f"the file ended at byte {position + len(data)} while read")
    return data


def _decompressed(stored: bytes, codec: int) -> _Body:
    """Return the bytes that decode; Kafka reads only what it needs and may not reach an error."""
    name = CODEC_NAMES[codec]
    if not stored and name != "zstd":  # only zstd accepts an empty stream
        raise _FailsError(f"no bytes of {name}")
    if not stored:
        return _Body(b"")
    try:
        prefix = decode_prefix(stored, name, magic=2, most_bytes=MAX_DECODED_BYTES)
    except UnsupportedFormatError as error:
        raise _FailsError(str(error)) from error
    if len(prefix.data) > MAX_DECODED_BYTES:
        raise _FailsError("it decompresses to more than a marker can have")
    return _Body(prefix.data, prefix.error)


def _marker_record(
    body: _Body, count: int, *, compressed: bool
) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the first record; Kafka decodes all records if compressed."""
    key, value, at = _record(body, 0, compressed=compressed)
    for _ in range(count - 1 if compressed else 0):
        _, _, at = _record(body, at, compressed=compressed)
    if (compressed or count == 1) and at < len(body.data):
        raise _StopsError(f"{len(body.data) - at} bytes behind the {count} it counts")
    if compressed and body.decoder_error:
        raise _FailsError(body.decoder_error)
    return key, value


def _record(body: _Body, at: int, *, compressed: bool) -> tuple[bytes | None, bytes | None, int]:
    """Return key, value and the end of the record at `at`, as `DefaultRecord.readFrom` does."""
    data = body.data
    size, start = varint_at(data, at, len(data), 5)
    if start < 0:
        if len(data) - at < 5:
            body.require(len(data) + 1, "a record's length")
        if not compressed:  # IllegalArgumentException, which Kafka does not catch here
            raise _FailsError("the record's length is no varint")
        raise _StopsError("the record's length is no varint")
    stop = start + size
    body.require(stop, "a record")
    place = start + 1
    for most_bytes in (10, 5):  # timestamp delta, offset delta
        _, place = _varint(data, place, most_bytes)
    key, place = _sized(data, place)
    value, place = _sized(data, place)
    headers, place = _varint(data, place, 5)
    if headers < 0 or headers > len(data):
        raise _StopsError(f"{headers} record headers")
    for _ in range(headers):
        name, place = _sized(data, place)
        if name is None:
            raise _StopsError("a record header without a key")
        _, place = _sized(data, place)
    if place != stop:
        raise _StopsError(f"the record has {place - start} bytes, its length says {size}")
    return key, value, stop


def _varint(body: bytes, at: int, most_bytes: int) -> tuple[int, int]:
    value, place = varint_at(body, at, len(body), most_bytes)
    if place < 0:
        raise _StopsError("the record is torn")
    return value, place


def _sized(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, place = _varint(body, at, 5)
    if size < 0:
        return None, place
    if place + size > len(body):
        raise _StopsError("the record is torn")
    return body[place : place + size], place + size


def _marker_type(key: bytes | None, value: bytes | None) -> int:
    if key is None:
        raise _FailsError("the record has no key")
    if len(key) < 4:
        raise _StopsError(f"a key of {len(key)} bytes, at least 4 expected")
    if int16_at(key, 0) < 0:
        raise _StopsError(f"key version {int16_at(key, 0)}")
    kind = int16_at(key, 2)
    if kind not in (0, 1):
        raise _FailsError(f"type {kind} is no transaction marker")
    if value is None or len(value) < 2:
        raise _FailsError("the marker has no value")
    if int16_at(value, 0) < 0:
        raise _StopsError(f"marker version {int16_at(value, 0)}")
    if len(value) < 6:
        raise _FailsError(f"a marker value of {len(value)} bytes, at least 6 expected")
    return COMMIT if kind == 1 else ABORT
