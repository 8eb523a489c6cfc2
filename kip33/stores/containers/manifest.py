"""The `.rsm-manifest` beside each segment of Aiven's plugin: JSON, one object.

    {"version": "1",
     "chunkIndex": {"type": "fixed", "originalChunkSize": 4194304, "originalFileSize": 9000000,
                    "transformedChunkSize": 4194304, "finalTransformedChunkSize": 611392},
     "segmentIndexes": {"offset": {"position": 0, "size": 24}, "timestamp": {...}, ...},
     "compression": false,
     "encryption": {...},                                    only of encrypted segments
     "remoteLogSegmentMetadata": {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition":
                                  {"topic": "orders", "partition": 0}, "topicId": "..."}, ...}}}

A log is split into chunks of `originalChunkSize`; the last one may be shorter. Each chunk is stored
raw, as one zstd frame (`compression`), or encrypted with AES-GCM (`encryption`). The stored sizes
follow from `transformedChunkSize`; with `"type": "variable"` each size is in `transformedChunks`,
which is base64 of zstd of `kip33.formats.aiven_manifest`. Index files are never compressed.
Older manifests have neither `segmentIndexes` nor `remoteLogSegmentMetadata`.

Source: `SegmentManifestV1`, `AbstractChunkIndex` and `TransformedChunksSerializer` of
tiered-storage-for-apache-kafka.
"""

import base64
import json
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, Kip33Error, UnsupportedFormatError
from kip33.formats.aiven_manifest import decode_chunk_sizes
from kip33.formats.codecs import decompress
from kip33.formats.names import is_topic
from kip33.formats.partition_metadata import parse_topic_id
from kip33.formats.rsm_header import HeaderPart

MOST_MANIFEST_BYTES: Final = 1 << 26
MOST_CHUNK_BYTES: Final = 1 << 30  # up to twice this is in memory at once; 4 MiB is usual
_INDEXES: Final = {"index": "offset", "timeindex": "timestamp"}


class Chunk(NamedTuple):
    """One stored chunk of a log."""

    position: int  # in the stored file
    stored_bytes: int
    log_bytes: int


class Manifest(NamedTuple):
    """The parsed manifest of one segment."""

    log_bytes: int
    chunk_bytes: int  # of the log; the last chunk may have fewer
    fixed_bytes: tuple[int, int] | None  # stored size of each chunk and of the last chunk
    starts: npt.NDArray[np.int64]  # of chunks that vary in size, then the end of the last
    is_compressed: bool
    is_encrypted: bool
    indexes: dict[str, HeaderPart]  # in the `.indexes` file, by Kafka's suffix
    topic: str | None
    partition: int | None
    base_offset: int | None
    topic_id: str | None

    @property
    def chunks(self) -> int:
        """Return the number of chunks."""
        return -(-self.log_bytes // self.chunk_bytes)

    @property
    def stored_bytes(self) -> int:
        """Return the size in bytes that the stored log should have."""
        if not self.chunks:
            return 0
        last = self.chunk(self.chunks - 1)
        return last.position + last.stored_bytes

    def chunk(self, number: int) -> Chunk:
        """Return the chunk with this number, counted from 0."""
        log_bytes = min(self.chunk_bytes, self.log_bytes - number * self.chunk_bytes)
        if self.fixed_bytes:
            each, last = self.fixed_bytes
            return Chunk(number * each, last if number == self.chunks - 1 else each, log_bytes)
        start, end = int(self.starts[number]), int(self.starts[number + 1])
        return Chunk(start, end - start, log_bytes)


def parse_manifest(data: bytes) -> Manifest:
    """Return the manifest in `data`.

    Raises CorruptSegmentError if it is not a manifest, UnsupportedFormatError for another version.
    """
    try:
        record = json.loads(data)
        version = record["version"]
        if version != "1":
            raise UnsupportedFormatError(f".rsm-manifest: version {version!r} found, expected '1'")
        index = record["chunkIndex"]
        log_bytes, chunk_bytes = _size(index["originalFileSize"]), _size(index["originalChunkSize"])
        if not 0 < chunk_bytes <= MOST_CHUNK_BYTES and log_bytes:
            raise UnsupportedFormatError(
                f".rsm-manifest: chunks of {chunk_bytes} bytes are not possible"
            )
        chunk_bytes = max(chunk_bytes, 1)
        fixed, starts = _stored_sizes(index, -(-log_bytes // chunk_bytes))
        indexes = {
            suffix: HeaderPart(_size(found["position"]), _size(found["size"]))
            for suffix, name in _INDEXES.items()
            if (found := (record.get("segmentIndexes") or {}).get(name))
        }
        metadata = record.get("remoteLogSegmentMetadata") or {}
        segment_id = metadata.get("remoteLogSegmentId") or {}
        owner = segment_id.get("topicIdPartition") or {}
        partition = owner.get("topicPartition") or {}
        return Manifest(
            log_bytes,
            chunk_bytes,
            fixed,
            starts,
            bool(record.get("compression")),
            bool(record.get("encryption")),
            indexes,
            _topic(partition.get("topic")),
            _integer(partition.get("partition"), "partition", 1 << 31),
            _integer(metadata.get("startOffset"), "startOffset", 1 << 63),
            parse_topic_id(str(owner.get("topicId") or "")),
        )
    except UnsupportedFormatError:
        raise
    except (Kip33Error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CorruptSegmentError(f".rsm-manifest: cannot be read: {what}") from error


def _stored_sizes(
    index: dict[str, Any], chunks: int
) -> tuple[tuple[int, int] | None, npt.NDArray[np.int64]]:
    """Return the stored sizes (of each chunk, of the last chunk), or the start of each chunk."""
    if index["type"] == "fixed":
        each, last = index["transformedChunkSize"], index["finalTransformedChunkSize"]
        return (_size(each), _size(last)), np.zeros(1, np.int64)
    if index["type"] != "variable":
        raise UnsupportedFormatError(f".rsm-manifest: unknown type of chunks {index['type']!r}")
    packed = base64.b64decode(index["transformedChunks"], validate=True)
    sizes = decode_chunk_sizes(_unpacked(packed, most_bytes=16 + 4 * chunks))
    if len(sizes) != chunks:
        raise CorruptSegmentError(f"sizes of {len(sizes)} chunks found, expected {chunks}")
    return None, np.concatenate(([0], np.cumsum(sizes)))


def _unpacked(packed: bytes, *, most_bytes: int) -> bytes:
    data = b""
    for piece in decompress([packed], "zstd", magic=2):
        data += piece
        if len(data) > most_bytes:
            raise CorruptSegmentError(f"sizes of chunks of more than {most_bytes} bytes")
    return data


def _topic(value: Any) -> str | None:
    """Return a topic's name; ValueError for a name that Kafka does not allow."""
    if value is not None and (not isinstance(value, str) or not is_topic(value)):
        raise ValueError(f"topic {value!a} found, expected a name that Kafka allows")
    return value


def _integer(value: Any, name: str, below: int) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value < below):
        raise ValueError(f"{name} {value!a} found, expected an integer from 0 to {below - 1}")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise ValueError(f"{value!r} is not a size")
    return value
