"""The same segments in the layout of each archive: fixture trees, written from the documents.

Shares no code with kip33. An index file is that of the segment, or empty if it has no index.
"""

import base64
import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

MODIFIED_MS = 1_700_600_000_000


class Stored(NamedTuple):
    """A segment and the files beside it."""

    topic: str
    partition: int
    base_offset: int
    log: bytes
    timeindex: bytes = b""
    index: bytes = b""
    upload: int = 0  # which attempt


Writer = Callable[[Path, Iterable[Stored]], None]


def put(path: Path, data: bytes) -> None:
    """Write a file that was modified long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(0, MODIFIED_MS * 1_000_000))


def uuid22(*about: object) -> str:
    """Return Kafka's base64 form of a UUID derived from `about`."""
    digest = hashlib.sha256(repr(about).encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def uuid36(*about: object) -> str:
    """Return the form with dashes."""
    digits = hashlib.sha256(repr(about).encode()).hexdigest()[:32]
    return "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


def segment_id(one: Stored) -> str:
    return uuid22(one.topic, one.partition, one.base_offset, one.upload)


def beside(stem: Path, one: Stored) -> None:
    """Write a log and its two indexes by their suffixes."""
    put(stem.with_name(f"{stem.name}.log"), one.log)
    put(stem.with_name(f"{stem.name}.timeindex"), one.timeindex)
    put(stem.with_name(f"{stem.name}.index"), one.index)


def kafka(root: Path, segments: Iterable[Stored]) -> None:
    for one in segments:
        beside(root / f"{one.topic}-{one.partition}" / f"{one.base_offset:020d}", one)


def pinterest(
    root: Path, segments: Iterable[Stored], *, cluster: str = "c1", bits: int = 5
) -> None:
    for one in segments:
        name = f"{cluster}-{one.topic}-{one.partition}"
        digest = hashlib.md5(name.encode()).digest()
        entropy = "".join(f"{byte:08b}" for byte in digest)[:bits]
        directory = root / entropy / cluster / f"{one.topic}-{one.partition}"
        beside(directory / f"{one.base_offset:020d}", one)
        put(directory / "offset.wm", str(one.base_offset).encode())
        put(directory / "_metadata", b'{"topicPartition": {}, "metadata": {}}')


def local_tiered(root: Path, segments: Iterable[Stored]) -> None:
    for one in segments:
        directory = root / f"{one.topic}-{one.partition}-{uuid22(one.topic)}"
        stem = directory / f"{one.base_offset:020d}-{segment_id(one)}"
        beside(stem, one)
        for suffix in ("leader_epoch_checkpoint", "snapshot"):
            put(stem.with_name(f"{stem.name}.{suffix}"), b"x")


def hdfs_directories(root: Path, segments: Iterable[Stored]) -> None:
    for one in segments:
        directory = root / f"{one.topic}-{one.partition}-{uuid22(one.topic)}" / segment_id(one)
        put(directory / "log", one.log)
        put(directory / "timeindex", one.timeindex)
        put(directory / "index", one.index)


def hdfs_old_directories(root: Path, segments: Iterable[Stored]) -> None:
    """Write the form without topic ids, with UUIDs that have dashes."""
    for one in segments:
        about = (one.topic, one.partition, one.base_offset, one.upload)
        directory = root / f"{one.topic}-{one.partition}" / uuid36(*about)
        put(directory / "log", one.log)
        put(directory / "timeindex", one.timeindex)
        put(directory / "index", one.index)


def rsm_file(one: Stored) -> bytes:
    """Return one file with a header of 25 bytes and all parts of a segment."""
    parts = [one.index, one.timeindex, b"0\n1\n0 0\n", b"snapshot", b"", one.log]
    positions, at = [], 25
    for part in parts:
        positions.append(at)
        at += len(part)
    return struct.pack(">b6i", 0, *positions) + b"".join(parts)


def hdfs_files(root: Path, segments: Iterable[Stored]) -> None:
    for one in segments:
        directory = root / f"{one.topic}-{one.partition}-{uuid22(one.topic)}"
        put(directory / segment_id(one), rsm_file(one))


def hdfs_both(root: Path, segments: Iterable[Stored]) -> None:
    for number, one in enumerate(segments):
        (hdfs_files if number % 2 else hdfs_directories)(root, [one])


def encoded_sizes(sizes: Sequence[int]) -> bytes:
    """Return sizes in the form of Aiven's ChunkSizesBinaryCodec."""
    if len(sizes) < 2:
        return struct.pack(">i", len(sizes)) + b"".join(struct.pack(">i", size) for size in sizes)
    *first, last = sizes
    base = min(first)
    most = max(size - base for size in first)
    width = next(width for width in (1, 2, 3, 4) if most < 1 << 8 * width)
    values = b"".join((size - base).to_bytes(width, "big") for size in first)
    return struct.pack(">iib", len(sizes), base, width) + values + struct.pack(">i", last)


def zstd(data: bytes) -> bytes:
    return bytes(memoryview(pa.Codec("zstd").compress(data)))


def manifest(
    one: Stored, chunk_bytes: int, stored_sizes: Sequence[int], **changes: Any
) -> dict[str, Any]:
    """Return a manifest; it has fixed sizes if all chunks but the last are equally large."""
    index: dict[str, Any] = {
        "originalChunkSize": chunk_bytes,
        "originalFileSize": len(one.log),
    }
    if changes.get("compression"):
        packed = base64.b64encode(zstd(encoded_sizes(stored_sizes))).decode()
        index |= {"type": "variable", "transformedChunks": packed}
    else:
        sizes = stored_sizes or [0]
        index |= {"type": "fixed", "transformedChunkSize": sizes[0]}
        index |= {"finalTransformedChunkSize": sizes[-1]}
    places = {"offset": (0, len(one.index)), "timestamp": (len(one.index), len(one.timeindex))}
    topic_partition = {"topic": one.topic, "partition": one.partition}
    topic_id = {"topicId": uuid22(one.topic), "topicPartition": topic_partition}
    return {
        "version": "1",
        "chunkIndex": index,
        "segmentIndexes": {n: {"position": p, "size": s} for n, (p, s) in places.items()},
        "compression": False,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {"topicIdPartition": topic_id, "id": segment_id(one)},
            "startOffset": one.base_offset,
        },
    } | changes


def aiven_stem(root: Path, one: Stored, prefix: str = "") -> Path:
    directory = root / f"{prefix}{one.topic}-{uuid22(one.topic)}" / str(one.partition)
    return directory / f"{one.base_offset:020d}-{segment_id(one)}"


def aiven(
    root: Path,
    segments: Iterable[Stored],
    *,
    chunk_bytes: int = 5000,
    compressed: bool = False,
    encrypted: bool = False,
    prefix: str = "",
) -> None:
    for one in segments:
        stem = aiven_stem(root, one, prefix)
        chunks = [one.log[at : at + chunk_bytes] for at in range(0, len(one.log), chunk_bytes)]
        stored = [zstd(chunk) for chunk in chunks] if compressed else chunks
        changes: dict[str, Any] = {"compression": compressed}
        if encrypted:
            stored = [bytes(12) + chunk + bytes(16) for chunk in stored]
            changes["encryption"] = {"dataKey": "key1:AAAA", "aad": "AAAA"}
        record = manifest(one, chunk_bytes, [len(chunk) for chunk in stored], **changes)
        put(stem.with_name(f"{stem.name}.log"), b"".join(stored))
        indexes = one.index + one.timeindex + b"snapshot" + b"0\n0\n"
        put(stem.with_name(f"{stem.name}.indexes"), indexes)
        put(stem.with_name(f"{stem.name}.rsm-manifest"), json.dumps(record).encode())


def aiven_zstd(root: Path, segments: Iterable[Stored]) -> None:
    aiven(root, segments, compressed=True)


PATTERN = "{cluster}/{entropy}/{topic}/{partition}/{base_offset}-{segment_id}.seg"


def own(root: Path, segments: Iterable[Stored]) -> None:
    for one in segments:
        directory = root / "c1" / f"x{one.partition}" / one.topic / str(one.partition)
        put(directory / f"{one.base_offset}-{segment_id(one)}.seg", one.log)


WRITERS: dict[str, tuple[str, Writer, str]] = {
    "kafka": ("kafka", kafka, ""),
    "pinterest": ("pinterest", pinterest, "c1"),
    "local-tiered": ("local-tiered", local_tiered, ""),
    "hdfs directories": ("hdfs-rsm", hdfs_directories, ""),
    "hdfs old directories": ("hdfs-rsm", hdfs_old_directories, ""),
    "hdfs files": ("hdfs-rsm", hdfs_files, ""),
    "hdfs both": ("hdfs-rsm", hdfs_both, ""),
    "aiven raw": ("aiven", aiven, ""),
    "aiven zstd": ("aiven", aiven_zstd, ""),
    "pattern": (PATTERN, own, "c1"),
}
"""For each archive its layout, the function that writes it, and the log_dir of its segments."""


def main(log_dir: Path, target: Path) -> None:
    """Write a log directory's segments as Aiven's plugin uploads them, compressed: `make demo`."""
    logs = sorted(log_dir.glob("*/*.log"))
    segments = []
    for log in logs:
        topic, _, partition = log.parent.name.rpartition("-")
        segments.append(Stored(topic, int(partition), int(log.stem), log.read_bytes()))
    aiven_zstd(target, segments)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
