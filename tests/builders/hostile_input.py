"""Small files that are expensive to read: their cost must be proportional to their size."""

import os
from pathlib import Path

from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from tests.builders.segment_builder import (
    CODEC_BITS,
    Record,
    compress,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
    zigzag,
)


def log_path(folder: Path, base_offset: int = 0) -> Path:
    """Return a log's path in a partition's directory, which is created."""
    directory = folder / "orders-0"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{base_offset:020d}.log"


def sparse_time_index(folder: Path, size_bytes: int) -> Path:
    """Write a small log and its true `.timeindex`, extended by a hole; return the log."""
    log = log_path(folder)
    log.write_bytes(b"".join(v2_batch(i, [Record(1000 + i)]) for i in range(5)))
    settings = IndexSettings(index_interval_bytes=0)
    index = index_file(Location.of(log), base_offset=0, topic="orders", settings=settings)
    entries = log.with_suffix(".timeindex")
    entries.write_bytes(index.time_index_data or b"")
    os.truncate(entries, size_bytes // 12 * 12)
    return log


def lying_headers(batches: int, *, rising: bool = True) -> bytes:
    """Return batches of one record each, whose headers claim timestamps that no record has."""
    claims = [10_000 + (i if rising else batches - i) for i in range(batches)]
    return b"".join(
        v2_batch(i, [Record(i % 7)], max_timestamp=claim) for i, claim in enumerate(claims)
    )


def steps_of_one_batch(records: int) -> bytes:
    """Return one batch in which each record is later than all before it."""
    return v2_batch(0, [Record(1000 + i) for i in range(records)], codec="zstd")


def markers_only(batches: int) -> bytes:
    """Return a record and then only transaction markers."""
    marker = bytearray(end_txn_marker(0, 5, producer_id=7))
    parts = [v2_batch(0, [Record(1)])]
    for i in range(1, batches):
        marker[:8] = i.to_bytes(8)  # the CRC does not cover the base offset
        parts.append(bytes(marker))
    return b"".join(parts)


def bomb(size_bytes: int, codec: str) -> bytes:
    """Return a batch of one record, whose value of zeros is small only when compressed."""
    return v2_batch(0, [Record(1000, None, bytes(size_bytes))], codec=codec)


def legacy_bomb(size_bytes: int, codec: str) -> bytes:
    """Return a compressed message of magic 1 around one whose value is zeros."""
    return wrapper(0, [v1_message(0, 1000, None, bytes(size_bytes))], codec=codec)


def many_records(records: int, *, claimed: int | None = None, max_timestamp: int = 1000) -> bytes:
    """Return a small batch of 7-byte records of time 1000; its header may claim more."""
    body = zigzag(6) + bytes(3) + zigzag(-1) * 2 + zigzag(0)
    return _packed(body * records, claimed or records, records - 1, max_timestamp)


def many_headers(headers: int, *, last: bytes = b"\x00\x01") -> bytes:
    """Return a small batch of one record with so many empty headers; `last` replaces the last."""
    fields = bytes(3) + zigzag(-1) * 2 + zigzag(headers) + b"\x00\x01" * (headers - 1) + last
    return _packed(zigzag(len(fields)) + fields, 1)


def many_messages(messages: int, *, magic: int = 1) -> bytes:
    """Return a small compressed message of magic 0 or 1 around many empty ones."""
    one = v1_message(0, 1000, None, None) if magic else v0_message(0, None, None)
    return wrapper(messages - 1, [one] * messages, magic=magic, timestamp=1000)


def _packed(
    body: bytes, count: int, last_offset_delta: int = 0, max_timestamp: int = 1000
) -> bytes:
    return v2_batch(
        *(0, ()),
        body=compress(body, "zstd"),
        attributes=CODEC_BITS["zstd"],
        records_count=count,
        last_offset_delta=last_offset_delta,
        base_timestamp=1000,
        max_timestamp=max_timestamp,
    )
