"""Confluent's wire format: magic byte 0, the schema's id as a big-endian int32, the payload."""

import struct
from typing import Final

from kip33.records.schema_text import UndecodableError

_HEADER: Final = struct.Struct(">bi")


def split_value(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the payload; UndecodableError without them."""
    if len(value) < _HEADER.size:
        raise UndecodableError(
            f"{len(value)} bytes found, expected a magic byte and a schema id (5 bytes)"
        )
    magic, schema_id = _HEADER.unpack_from(value)
    if magic:
        raise UndecodableError(f"magic byte {magic} found, expected 0 (Confluent's wire format)")
    return schema_id, value[_HEADER.size :]
