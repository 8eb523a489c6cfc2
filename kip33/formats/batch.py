"""The header of one entry of a `.log` file: message formats v0, v1 (legacy) and v2.

A `.log` is a plain concatenation of entries, Kafka's "record batches". Length and magic are at the
same position in every format, so one walk reads all three:

    bytes    field                   type    magic 0   magic 1   magic 2
    0..7     offset                  int64   magic 0, 1: the message's, or of a wrapper's last
                                             message; magic 2: the base (first) offset
    8..11    size                    int32   bytes that follow this field
    12..15   crc | leader epoch      uint32  crc-32    crc-32    partition leader epoch
    16       magic                   int8    0         1         2
    17       attributes              int8    codec in bits 0-2, bit 3 LogAppendTime (1)
    18..25   timestamp               int64   -         yes       -

Magic 2 continues after its magic byte with the other fields of `_V2`, then its records: plain, or
one compressed blob.

Kafka: `DefaultRecordBatch`, `LegacyRecord`, `FileLogInputStream` (0.8 to 4.x); big-endian.
"""

import struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

NO_TIMESTAMP: Final = -1
LOG_OVERHEAD: Final = 12  # offset and size
HEADER_SIZE_UP_TO_MAGIC: Final = 17
LEGACY_MIN_SIZE: Final = 14  # RECORD_OVERHEAD_V0: Kafka's minimum for the size field of any entry
LEGACY_HEADER_BYTES: Final = 26  # to the end of v1's timestamp: LOG_OVERHEAD + LEGACY_MIN_SIZE
LEGACY_CRC_START: Final = 16
RECORD_BATCH_OVERHEAD: Final = 61
V2_CRC_START: Final = 21
MAX_INT32: Final = 2**31 - 1
MAX_SEGMENT_BYTES: Final = MAX_INT32  # FileRecords refuses a larger file

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40  # the base timestamp is a delete horizon

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd", "codec-5", "codec-6", "codec-7")

BatchColumns: TypeAlias = npt.NDArray[np.void]
BATCH: Final = np.dtype(
    [
        ("position", np.int64),  # of the entry's first byte in the .log
        ("size_bytes", np.int64),  # of the whole entry, LOG_OVERHEAD included
        ("base_offset", np.int64),  # the offset field; v0 and v1: the last offset
        ("last_offset", np.int64),
        ("max_timestamp", np.int64),  # of v0 always NO_TIMESTAMP
        ("offset_of_max_timestamp", np.int64),  # of the first record with it, else last_offset
        ("producer_id", np.int64),  # of v0 and v1 -1
        ("leader_epoch", np.int32),  # of v0 and v1 -1
        ("records_count", np.int32),  # v2: from the header; v0 and v1: 1, for a wrapper -1
        ("attributes", np.int16),  # the low byte
        ("magic", np.int16),
        ("control", np.int16),  # marker of a producer's control batch (see `walk`), else 0
        ("base_timestamp", np.int64),  # v2: the header's, a delete horizon if that bit is set
        ("crc", np.uint32),  # the CRC field; the walk compares it with the bytes if it checks
    ]
)
"""One row per batch, in native byte order: the walk yields these rows and every rule reads them."""


class BatchHeader(NamedTuple):
    """All fields of one entry's header, as `dump` shows them; -1 for a field the format lacks."""

    position: int
    size_bytes: int
    magic: int
    attributes: int
    crc: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    records_count: int
    partition_leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def codec(self) -> str:
        """Return the codec's name; recovery accepts unknown ids too: `codec-5` to `codec-7`."""
        return CODEC_NAMES[self.attributes & CODEC_MASK]

    @property
    def timestamp_type(self) -> str:
        """Return Kafka's name: `NoTimestampType` (v0), `CreateTime` or `LogAppendTime`."""
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"


_V2 = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # size
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # crc-32c of everything after this field
    "h"  # attributes: codec, LOG_APPEND_TIME and the other bits
    "i"  # last offset delta; kept by compaction
    "q"  # base timestamp
    "q"  # max timestamp: what every index rule uses
    "q"  # producer id; -1: none
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # records count; may be 0 after compaction
)
_LEGACY = struct.Struct(
    ">"
    "q"  # offset
    "i"  # size
    "I"  # crc-32
    "b"  # magic
    "b"  # attributes
    "q"  # timestamp; in v0 these bytes are the key length and more
)


def decode_header(data: bytes, position: int) -> BatchHeader:
    """Return the header of the entry whose first bytes are `data`.

    `data` has at least LEGACY_HEADER_BYTES, for magic 2 and above RECORD_BATCH_OVERHEAD bytes; the
    walk has checked this. Negative magics are read as v1 and magics above 2 as v2, as in Kafka.

    >>> wire = "0000000000000005 00000018 39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76"
    >>> decode_header(bytes.fromhex(wire), 0).max_timestamp
    1700000000000
    """
    magic = data[16] - 256 if data[16] > 127 else data[16]
    if magic < 2:
        offset, size, crc, _, attributes, timestamp = _LEGACY.unpack_from(data)
        timestamp = NO_TIMESTAMP if magic == 0 else timestamp
        return BatchHeader(
            position=position,
            size_bytes=LOG_OVERHEAD + size,
            magic=magic,
            attributes=attributes & 0xFF,
            crc=crc,
            base_offset=offset,
            last_offset=offset,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            records_count=-1 if attributes & CODEC_MASK else 1,
        )
    (base_offset, size, epoch, _, crc, attributes, last_offset_delta, *times) = _V2.unpack_from(
        data
    )
    base_timestamp, max_timestamp, *producer = times
    return BatchHeader(
        position,
        LOG_OVERHEAD + size,
        magic,
        attributes & 0xFF,
        crc,
        base_offset,
        base_offset + last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer[3],
        epoch,
        *producer[:3],
    )


def are_wrappers(batches: BatchColumns) -> npt.NDArray[np.bool_]:
    """Return which are compressed messages of magic 0 or 1: where they begin is inside."""
    found: npt.NDArray[np.bool_] = (batches["magic"] < 2) & (
        batches["attributes"] & CODEC_MASK != 0
    )
    return found


def has_any_offset(header: BatchHeader) -> bool:
    """Return whether the offsets of a batch cannot be told from its header.

    This is so for a compressed message with offset 0: its records count from 0 (librdkafka).
    """
    is_wrapper = header.magic < 2 and header.attributes & CODEC_MASK != 0
    return is_wrapper and header.last_offset == 0
