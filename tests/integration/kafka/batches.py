"""Batches made field by field: what no builder of Kafka's would write."""

import struct
import zlib
from typing import Any

from tests.builders.segment_builder import Record, crc32c, record_bytes, v2_batch

CONTROL = 0x20
V2_HEADER_BYTES = 61
V2_CRC_START = 21
LEGACY_CRC_START = 16


def record(
    key: bytes | None, value: bytes | None, *, offset_delta: int = 0, timestamp_delta: int = 0
) -> bytes:
    """Return one record of a v2 batch, without headers."""
    return record_bytes(Record(timestamp_delta, key, value), offset_delta, base_timestamp=0)


def batch(
    base_offset: int,
    max_timestamp: int,
    *,
    body: bytes | None = None,
    size_bytes: int | None = None,
    **fields: Any,
) -> bytes:
    """Return a v2 batch with a true CRC; `size_bytes` pads its one record to that whole size."""
    if body is None:
        body = record(None, b"v")
        if size_bytes is not None:
            body = body.ljust(size_bytes - V2_HEADER_BYTES, b"\0")
    told: dict[str, Any] = {
        "attributes": 0,
        "base_timestamp": max_timestamp,
        "leader_epoch": -1,
        "records_count": 1,
    }
    return v2_batch(base_offset, body=body, max_timestamp=max_timestamp, **(told | fields))


def with_true_crc(wire: bytes) -> bytes:
    """Return one whole entry with its CRC computed again, by the rule of its magic."""
    magic = wire[16] - 256 if wire[16] > 127 else wire[16]
    if magic < 2:
        crc = struct.pack(">I", zlib.crc32(wire[LEGACY_CRC_START:]))
        return wire[:12] + crc + wire[LEGACY_CRC_START:]
    return wire[:17] + struct.pack(">I", crc32c(wire[V2_CRC_START:])) + wire[V2_CRC_START:]


def with_field(wire: bytes, position: int, layout: str, value: int) -> bytes:
    """Return `wire` with one big-endian field overwritten and the CRC made true again."""
    patched = bytearray(wire)
    struct.pack_into(f">{layout}", patched, position, value)
    return with_true_crc(bytes(patched))
