"""A segment that Aiven's plugin uploaded: `.log`, `.indexes` and `.rsm-manifest`, side by side.

    00000000000000000042-<id>.log            chunks one after another: each raw or one zstd frame
    00000000000000000042-<id>.indexes        .index, .timeindex, .snapshot, leader epochs, .txnindex
    00000000000000000042-<id>.rsm-manifest   where each part is: JSON, one object

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
which is base64 of zstd of the table below. Index files are never compressed.
Older manifests have neither `segmentIndexes` nor `remoteLogSegmentMetadata`.

The manifest is read each time a file is opened: it is small, and only it says how to read the file.
A few chunks of a compressed log are in memory at once, whatever the size of the log. An encrypted
log cannot be read without the key of the cluster that wrote it.

    bytes        field             type     meaning
    0..3         count             int32    how many sizes; with 0 nothing follows
    4..7         base              int32    the smallest size, not counting the last one
    8            width             uint8    bytes per value, 1 to 4
    9..          values            width    each size minus `base`, without the last one
    the last 4   last size         int32    the last size itself

Big-endian. With one size the file has only the count and that size. Sizes are never negative.

Source: `SegmentManifestV1`, `AbstractChunkIndex`, `TransformedChunksSerializer` and
`ChunkSizesBinaryCodec` of tiered-storage-for-apache-kafka.
"""

import base64
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.errors import (
    CorruptIndexError,
    CorruptSegmentError,
    FileReadError,
    Kip33Error,
    UnsupportedFormatError,
)
from kip33.formats.byte_sources import ReadInto, range_of, read_fully
from kip33.formats.codecs import decompress
from kip33.formats.names import is_topic
from kip33.formats.partition_metadata import parse_topic_id
from kip33.stores.containers.rsm import HeaderPart
from kip33.stores.locations import Location, OpenFile

LOG: Final = ".log"
INDEXES: Final = ".indexes"
MANIFEST: Final = ".rsm-manifest"
ENCRYPTED: Final = (
    "encrypted (AES-GCM): only the cluster that wrote it has the key; archive it "
    "unencrypted, or copy it through a broker into a plain archive"
)
_MOST_MANIFEST_BYTES: Final = 1 << 26
_MOST_CHUNK_BYTES: Final = 1 << 30  # up to twice this is in memory at once; 4 MiB is usual
_INDEXES: Final = {"index": "offset", "timeindex": "timestamp"}
_HEAD_BYTES: Final = 9  # of the sizes of chunks
_LAST_BYTES: Final = 4
_MAX_INT32: Final = 2**31 - 1
_HELD_BYTES: Final = 1 << 25  # decompressed chunks kept: several of 4 MiB, never fewer than two


class _Chunk(NamedTuple):
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

    def chunk(self, number: int) -> _Chunk:
        """Return the chunk with this number, counted from 0."""
        log_bytes = min(self.chunk_bytes, self.log_bytes - number * self.chunk_bytes)
        if self.fixed_bytes:
            each, last = self.fixed_bytes
            return _Chunk(number * each, last if number == self.chunks - 1 else each, log_bytes)
        start, end = int(self.starts[number]), int(self.starts[number + 1])
        return _Chunk(start, end - start, log_bytes)


def read_manifest(place: Location, open_file: OpenFile) -> Manifest:
    """Return the manifest at a place; OSError of the store, Kip33Error if it is not a manifest."""
    with open_file(place) as (read_into, size_bytes):
        if size_bytes > _MOST_MANIFEST_BYTES:
            raise UnsupportedFormatError(
                f".rsm-manifest: the size of {size_bytes} bytes is not plausible"
            )
        return parse_manifest(read_fully(read_into, 0, size_bytes))


@contextmanager
def opened(file: Location, kind: str, open_file: OpenFile) -> Iterator[tuple[ReadInto, int]]:
    """Open a segment's `log` from its `.log` file, `timeindex` or `index` from `.indexes`.

    Raises OSError if the segment is encrypted or does not match its manifest.
    """
    stem = file.path.removesuffix(LOG if kind == "log" else INDEXES)
    manifest = read_manifest(file._replace(path=stem + MANIFEST), open_file)
    if manifest.is_encrypted:
        raise UnsupportedFormatError(ENCRYPTED)
    if kind != "log" and kind not in manifest.indexes:
        raise FileNotFoundError(f"{file.uri}: the manifest lists no .{kind}")
    with open_file(file) as (read_into, file_bytes):
        if kind != "log":
            part = manifest.indexes[kind]
            _require_size(file, file_bytes, part.position + part.size_bytes, at_least=True)
            yield range_of(read_into, part.position, part.size_bytes), part.size_bytes
            return
        _require_size(file, file_bytes, manifest.stored_bytes, at_least=False)
        if manifest.is_compressed:
            yield Decompressed(read_into, manifest).read_into, manifest.log_bytes
        else:
            _require_size(file, file_bytes, manifest.log_bytes, at_least=False)
            yield read_into, manifest.log_bytes


def _require_size(file: Location, file_bytes: int, expected: int, *, at_least: bool) -> None:
    if file_bytes != expected and not (at_least and file_bytes > expected):
        raise OSError(f"{file.uri}: {file_bytes} bytes found, its .rsm-manifest says {expected}")


class Decompressed:
    """A log of compressed chunks that is read as a plain log; several threads may read at once."""

    def __init__(self, read_stored: ReadInto, manifest: Manifest) -> None:
        """Take an open file and its manifest; nothing is read yet."""
        self._read_stored, self._manifest = read_stored, manifest
        self._most = max(2, _HELD_BYTES // manifest.chunk_bytes)
        self._held: OrderedDict[int, Future[memoryview]] = OrderedDict()
        self._lock = threading.Lock()

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill `view` from a position in the log; return fewer bytes only at the end of the log.

        Raises FileReadError if a chunk cannot be decompressed.
        """
        copied = 0
        while copied < len(view) and position < self._manifest.log_bytes:
            number, within = divmod(position, self._manifest.chunk_bytes)
            data = self._chunk(number)[within : within + len(view) - copied]
            view[copied : copied + len(data)] = data
            copied += len(data)
            position += len(data)
        return copied

    def _chunk(self, number: int) -> memoryview:
        with self._lock:
            found = self._held.get(number)
            is_new = found is None
            if found is None:
                found = self._held[number] = Future()
                while len(self._held) > self._most:
                    self._held.popitem(last=False)
            else:
                self._held.move_to_end(number)
        if is_new:
            try:
                found.set_result(self._decompressed(number))
            except BaseException as error:
                found.set_exception(error)
                with self._lock:
                    self._held.pop(number, None)
        return found.result()

    def _decompressed(self, number: int) -> memoryview:
        chunk = self._manifest.chunk(number)
        stored = read_fully(self._read_stored, chunk.position, chunk.stored_bytes)
        if len(stored) < chunk.stored_bytes:
            ended = chunk.position + len(stored)
            raise FileReadError(f"chunk {number}: the file ended at byte {ended}")
        try:
            plain = pa.Codec("zstd").decompress(stored, chunk.log_bytes)
        except pa.ArrowMemoryError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise FileReadError(
                f"chunk {number}: not valid zstd data of {chunk.log_bytes} bytes: {error}"
            ) from error
        return memoryview(plain).cast("B")


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
        if not 0 < chunk_bytes <= _MOST_CHUNK_BYTES and log_bytes:
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


def decode_chunk_sizes(data: bytes) -> npt.NDArray[np.int64]:
    """Return the sizes in bytes, in order; CorruptIndexError if `data` has another form.

    >>> decode_chunk_sizes(bytes.fromhex("00000003 0000000a 01 0002 00000007")).tolist()
    [10, 12, 7]
    """
    if len(data) < 4:
        raise CorruptIndexError(f"chunk sizes: {len(data)} bytes found, too few for a count")
    count = int.from_bytes(data[:4])
    if count == 0:
        return _sizes_of(data, 4, [])
    if count == 1:
        return _sizes_of(data, 8, [int.from_bytes(data[4:8])])
    width = data[8] if len(data) > 8 else 0
    if not 1 <= width <= 4:
        raise CorruptIndexError(f"chunk sizes: values of {width} bytes found, expected 1 to 4")
    end = _HEAD_BYTES + (count - 1) * width
    if len(data) != end + _LAST_BYTES:
        raise CorruptIndexError(
            f"chunk sizes: {len(data)} bytes found, expected {end + _LAST_BYTES} for {count} chunks"
        )
    digits = np.frombuffer(data, np.uint8, (count - 1) * width, _HEAD_BYTES).reshape(-1, width)
    sizes = np.full(count, int.from_bytes(data[4:8]), np.int64)
    for place in range(width):
        sizes[:-1] += digits[:, place].astype(np.int64) << 8 * (width - 1 - place)
    sizes[-1] = int.from_bytes(data[end:])
    if sizes.max() > _MAX_INT32:
        raise CorruptIndexError(f"chunk sizes: {sizes.max()} bytes found, expected an int32")
    return sizes


def _sizes_of(data: bytes, expected_bytes: int, sizes: list[int]) -> npt.NDArray[np.int64]:
    if len(data) != expected_bytes or any(size > _MAX_INT32 for size in sizes):
        raise CorruptIndexError(f"chunk sizes: {data[:16].hex()}, no sizes of {len(sizes)} chunks")
    return np.array(sizes, np.int64)


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
