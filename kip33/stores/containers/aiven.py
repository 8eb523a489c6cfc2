"""A segment that Aiven's plugin uploaded: `.log`, `.indexes` and `.rsm-manifest`, side by side.

    00000000000000000042-<id>.log            chunks one after another: each raw or one zstd frame
    00000000000000000042-<id>.indexes        .index, .timeindex, .snapshot, leader epochs, .txnindex
    00000000000000000042-<id>.rsm-manifest   where each part is (`containers.manifest`)

The manifest is read each time a file is opened: it is small, and only it says how to read the file.
A few chunks of a compressed log are in memory at once, whatever the size of the log. An encrypted
log cannot be read without the key of the cluster that wrote it.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from kip33.errors import FileReadError, UnsupportedFormatError
from kip33.formats.byte_sources import ReadInto, range_of, read_fully
from kip33.stores.containers.manifest import MOST_MANIFEST_BYTES, Manifest, parse_manifest
from kip33.stores.locations import Location, OpenFile

LOG: Final = ".log"
INDEXES: Final = ".indexes"
MANIFEST: Final = ".rsm-manifest"
ENCRYPTED: Final = (
    "encrypted (AES-GCM): only the cluster that wrote it has the key; archive it "
    "unencrypted, or copy it through a broker into a plain archive"
)
_HELD_BYTES: Final = 1 << 25  # decompressed chunks kept: several of 4 MiB, never fewer than two


def read_manifest(place: Location, open_file: OpenFile) -> Manifest:
    """Return the manifest at a place; OSError of the store, Kip33Error if it is not a manifest."""
    with open_file(place) as (read_into, size_bytes):
        if size_bytes > MOST_MANIFEST_BYTES:
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
