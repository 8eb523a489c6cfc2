"""Batches written by hand, field by field: what no builder of Kafka's would write.

Shares no code with kip33 and none with Kafka; the layouts are those of the protocol guide.
"""

import struct
import zlib

CONTROL = 0x20
V2_HEADER_BYTES = 61
V2_CRC_START = 21
LEGACY_CRC_START = 16


def _castagnoli_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CASTAGNOLI = _castagnoli_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C that v2 batches carry.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CASTAGNOLI[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """Return `value` as Kafka writes varints and varlongs: zig-zag, least significant group first.

    >>> varint(250).hex(), varint(-1).hex()
    ('f403', '01')
    """
    rest = value * 2 if value >= 0 else -value * 2 - 1
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    key: bytes | None, value: bytes | None, *, offset_delta: int = 0, timestamp_delta: int = 0
) -> bytes:
    """Return one record of a v2 batch, without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += _sized(key) + _sized(value) + varint(0)
    return varint(len(body)) + body


def batch(
    base_offset: int,
    max_timestamp: int,
    *,
    last_offset_delta: int = 0,
    body: bytes | None = None,
    size_bytes: int | None = None,
    records_count: int = 1,
    attributes: int = 0,
    base_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    magic: int = 2,
) -> bytes:
    """Return a v2 batch with a true CRC; `size_bytes` pads its one record to that whole size."""
    if body is None:
        body = record(None, b"v")
        if size_bytes is not None:
            body = body.ljust(size_bytes - V2_HEADER_BYTES, b"\0")
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        max_timestamp if base_timestamp is None else base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    checked += body
    head = struct.pack(
        ">qiibI", base_offset, len(checked) + 9, leader_epoch, magic, crc32c(checked)
    )
    return head + checked


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
