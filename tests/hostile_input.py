"""Small files that ask for much: what each of them costs must follow its own size."""

import os
from pathlib import Path

from kip33.rules.indexes import IndexSettings
from kip33.storage.locations import Location
from kip33.storage.segment import index_file
from tests.segment_builder import Record, end_txn_marker, v1_message, v2_batch, wrapper


def log_path(folder: Path, base_offset: int = 0) -> Path:
    """Return a log's place in a partition's directory, which is made."""
    directory = folder / "orders-0"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{base_offset:020d}.log"


def sparse_time_index(folder: Path, size_bytes: int) -> Path:
    """Write a small log and its true `.timeindex` with a hole behind it; return the log."""
    log = log_path(folder)
    log.write_bytes(b"".join(v2_batch(i, [Record(1000 + i)]) for i in range(5)))
    settings = IndexSettings(index_interval_bytes=0)
    index = index_file(Location.of(log), base_offset=0, topic="orders", settings=settings)
    entries = log.with_suffix(".timeindex")
    entries.write_bytes(index.time_index or b"")
    os.truncate(entries, size_bytes // 12 * 12)
    return log


def lying_headers(batches: int, *, rising: bool = True) -> bytes:
    """Return batches of one record each, whose headers claim timestamps that no record bears."""
    claims = [10_000 + (i if rising else batches - i) for i in range(batches)]
    return b"".join(
        v2_batch(i, [Record(i % 7)], max_timestamp=claim) for i, claim in enumerate(claims)
    )


def steps_of_one_batch(records: int) -> bytes:
    """Return one batch, each record of which is later than all before it."""
    return v2_batch(0, [Record(1000 + i) for i in range(records)], codec="zstd")


def markers_only(batches: int) -> bytes:
    """Return a record and then nothing but transaction markers."""
    marker = bytearray(end_txn_marker(0, 5, producer_id=7))
    parts = [v2_batch(0, [Record(1)])]
    for i in range(1, batches):
        marker[:8] = i.to_bytes(8)  # the base offset is no part of what the CRC covers
        parts.append(bytes(marker))
    return b"".join(parts)


def bomb(size_bytes: int, codec: str) -> bytes:
    """Return a batch of one record, whose value of zeros is small only while compressed."""
    return v2_batch(0, [Record(1000, None, bytes(size_bytes))], codec=codec)


def legacy_bomb(size_bytes: int, codec: str) -> bytes:
    """Return a compressed message of magic 1 around one whose value is zeros."""
    return wrapper(0, [v1_message(0, 1000, None, bytes(size_bytes))], codec=codec)
