"""Batches made field by field: what no builder of Kafka's would write."""

from typing import Any

from tests.builders.segment_builder import Record, record_bytes, v2_batch

V2_HEADER_BYTES = 61


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
