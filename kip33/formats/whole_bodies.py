"""Decode the records of batches that are in memory, as rows of a table.

Bodies are decompressed one after another into one array, until it has 1 MiB. Then one call reads
the records of all of them, so a small batch costs little more than its bytes.

Nearly every body is what a current client writes: one zstd frame, one gzip member, snappy blocks,
or one LZ4 frame without extras. `WholeBodies` decodes those in one step, straight into the array.
Everything else, damage too, is left to `kip33.formats.codecs`, which decodes chunk by chunk as
Kafka does and finds the bytes before any damage. The memory in use grows with the bytes that were
decoded, never with a size that a header claims.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_MASK, CODEC_NAMES, LOG_OVERHEAD
from kip33.formats.codecs import (
    DECOMPRESSED_CHUNK_BYTES,
    LZ4_STORED,
    XERIAL_HEADER_BYTES,
    XERIAL_MAGIC,
    claimed_snappy_bytes,
    decompress,
)
from kip33.formats.held_batches import (
    ENTRY,
    UNREADABLE,
    V2_RECORDS,
    HeldBatches,
    fill_entries,
    read_only,
)
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.record_columns import BAD, CURSOR, DONE, RECORD_LIMITS, add_records
from kip33.formats.records import record_error

Rows: TypeAlias = npt.NDArray[np.void]
AddRows: TypeAlias = Callable[..., int]
"""Takes `add_records`, in its form for a speed, and its first four arguments; calls it with room
for the rows, and returns what it returned last. The bytes are valid until then."""

_RUN_BYTES: Final = 1 << 20
# A small log does not wait for compiled code. Bytes count as they are decompressed: a log of 700
# bytes may have a million records.
PLAIN_BYTES: Final = 1 << 16
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1

_FIRST_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 1 << 25  # a larger array is given back after its batch
_LZ4_BLOCK_BYTES: Final = {  # by the first bytes of a frame: magic, flags, block size, checksum
    bytes.fromhex("04224d18604082"): 1 << 16,
    bytes.fromhex("04224d186050fb"): 1 << 18,
    bytes.fromhex("04224d18606051"): 1 << 20,
    bytes.fromhex("04224d18607073"): 1 << 22,
}
_LZ4_HEADER_BYTES: Final = 7
_LZ4_WORD: Final = struct.Struct("<I")  # before a block: its size, or 0 after the last one
_LZ4_DENSEST: Final = 255  # bytes from one
_XERIAL_SIZE: Final = struct.Struct(">i")
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class PlacedBody(NamedTuple):
    """A decompressed body: `data[start:stop]` of its array."""

    start: int
    stop: int
    is_complete: bool  # False: damaged; the bytes before the damage are there


class WholeBodies:
    """An array of decompressed bodies."""

    def __init__(self, max_batch_bytes: int) -> None:
        """Start without bodies; none may have more than `max_batch_bytes`."""
        self._most = max_batch_bytes
        self._stop = 0
        self._use(np.empty(_FIRST_BYTES, np.uint8))
        self._decoders: dict[str, Callable[[memoryview], bool]] = {
            "gzip": self._gzip,
            "snappy": self._snappy,
            "lz4": self._lz4,
            "zstd": self._zstd,
        }
        self._zstandard: Any = None

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """Return the bodies so far."""
        return self._array[: self._stop]

    @property
    def size_bytes(self) -> int:
        """Return the size of all bodies so far."""
        return self._stop

    def clear(self) -> None:
        """Forget all bodies; arrays returned by `data` must no longer be used."""
        self._stop = 0
        if self._array.size > _KEPT_BYTES:
            self._use(np.empty(_FIRST_BYTES, np.uint8))

    def _use(self, array: npt.NDArray[np.uint8]) -> None:
        self._array, self._view = array, array.data

    def append(self, stored: memoryview, codec: int, *, magic: int) -> PlacedBody:
        """Decompress a body and place it after the others.

        `codec` is its number. Raises UnsupportedFormatError for a codec that the magic does not
        have, BatchTooLargeError for a body that is too large; it then has no bytes in the array.
        """
        start = self._stop
        name = CODEC_NAMES[codec]
        decoder = self._decoders.get(name) if (name, magic) not in _UNUSUAL else None
        if name == "none":
            self._put(stored)
        elif decoder is None or not decoder(stored):
            self._stop = start
            try:
                self._exactly(stored, name, magic)
            except CorruptSegmentError:
                return PlacedBody(start, self._stop, is_complete=False)
            except Exception:
                self._stop = start
                raise
        return PlacedBody(start, self._stop, is_complete=True)

    def _exactly(self, stored: memoryview, codec: str, magic: int) -> None:
        body = decompress([bytes(stored)], codec, magic=magic, most_bytes=self._most)
        for piece in body:
            self._put(piece)

    def _put(self, piece: bytes | memoryview) -> None:
        self._room(len(piece), len(piece))[:] = piece
        self._stop += len(piece)

    def _room(self, count: int, most: int | None = None) -> memoryview:
        """Return the free bytes after the bodies: at least `count`, and no more than `most`."""
        if self._array.size - self._stop < count:
            larger = self._larger(self._stop + count)
            larger[: self._stop] = self._array[: self._stop]
            self._use(larger)
        return self._view[self._stop : None if most is None else self._stop + most]

    def _larger(self, needed: int) -> npt.NDArray[np.uint8]:
        """Return a new array of at least `needed` bytes.

        A large body gets room for the largest one at once. Pages that are not written take no
        memory, and to copy the body again while it grows would take its memory twice.
        """
        doubled = max(2 * self._array.size, needed)
        if doubled <= _KEPT_BYTES:
            return np.empty(doubled, np.uint8)
        try:
            most = self._array.size + self._most + 2 * DECOMPRESSED_CHUNK_BYTES
            return np.empty(max(most, needed), np.uint8)
        except MemoryError:  # the system gives no more addresses than memory
            return np.empty(doubled, np.uint8)

    def _filled(self, read_into: Callable[[memoryview], int]) -> bool:
        """Place the bytes of a decoder; return whether they are not too many."""
        start = self._stop
        while True:
            room = self._room(DECOMPRESSED_CHUNK_BYTES)
            count = read_into(room)
            self._stop += count
            if self._stop - start > self._most:
                return False
            if count < len(room):  # it fills its room unless the frame has ended
                return True

    def _gzip(self, stored: memoryview) -> bool:
        member = zlib.decompressobj(wbits=31)
        left: bytes | memoryview = stored
        start = self._stop
        try:
            while not member.eof:
                piece = member.decompress(left, DECOMPRESSED_CHUNK_BYTES)
                if not piece and not member.eof:
                    return False
                self._put(piece)
                left = member.unconsumed_tail
                if self._stop - start > self._most:
                    return False
        except zlib.error:
            return False
        return not member.unused_data

    def _snappy(self, stored: memoryview) -> bool:
        if bytes(stored[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            return self._snappy_block(stored)
        at, start = XERIAL_HEADER_BYTES, self._stop
        while at < len(stored):
            if len(stored) - at < _XERIAL_SIZE.size:
                return False
            (size,) = _XERIAL_SIZE.unpack_from(stored, at)
            at += _XERIAL_SIZE.size
            if not 0 <= size <= len(stored) - at:
                return False
            if not self._snappy_block(stored[at : at + size]):
                return False
            at += size
            if self._stop - start > self._most:
                return False
        return at == len(stored)

    def _snappy_block(self, block: memoryview) -> bool:
        import cramjam

        claimed, is_possible = claimed_snappy_bytes(block)
        if not is_possible or 2 * claimed > self._most:
            return False
        try:
            count = cramjam.snappy.decompress_raw_into(block, self._room(claimed, claimed))
        except cramjam.DecompressionError:
            return False
        self._stop += count
        return count == claimed

    def _lz4(self, stored: memoryview) -> bool:
        import cramjam

        block_bytes = _LZ4_BLOCK_BYTES.get(bytes(stored[:_LZ4_HEADER_BYTES]))
        if block_bytes is None:
            return False
        at, start = _LZ4_HEADER_BYTES, self._stop
        while at + _LZ4_WORD.size <= len(stored):
            (word,) = _LZ4_WORD.unpack_from(stored, at)
            at += _LZ4_WORD.size
            if word == 0:
                return self._stop - start <= self._most
            size = word & ~LZ4_STORED
            if not 0 < size <= min(block_bytes, len(stored) - at):
                return False
            block = stored[at : at + size]
            at += size
            if word & LZ4_STORED:
                self._put(block)
                continue
            most = min(block_bytes, size * _LZ4_DENSEST)
            room = self._room(most, most)
            try:
                count = cramjam.lz4.decompress_block_into(block, room, output_len=most)
            except cramjam.DecompressionError:
                return False
            self._stop += count
            if count == 0 or self._stop - start > self._most:
                return False
        return False

    def _zstd(self, stored: memoryview) -> bool:
        import zstandard

        if not _is_one_zstd_frame(stored):
            return False
        if self._zstandard is None:
            self._zstandard = zstandard.ZstdDecompressor()
        try:
            return self._filled(self._zstandard.stream_reader(stored).readinto)
        except zstandard.ZstdError:
            return False


_UNUSUAL: Final = {
    ("zstd", 0),  # no such codec
    ("zstd", 1),
    ("lz4", 0),  # the header checksum is not checked
}


def _is_one_zstd_frame(stored: memoryview) -> bool:
    """Return whether the bytes are exactly one frame, by the sizes of its blocks (RFC 8878)."""
    if len(stored) < 6 or bytes(stored[:4]) != _ZSTD_MAGIC:
        return False
    flags = stored[4]
    is_single = flags >> 5 & 1
    size_bytes = (is_single, 2, 4, 8)[flags >> 6]
    at = 5 + (not is_single) + (0, 1, 2, 4)[flags & 3] + size_bytes
    while at + 3 <= len(stored):
        header = int.from_bytes(stored[at : at + 3], "little")
        at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)  # an RLE block stores one byte
        if header & 1:
            return at + 4 * (flags >> 2 & 1) == len(stored)
    return False


class RecordLimits(NamedTuple):
    """The records to return; offsets and timestamps (ms) are inclusive.

    Only NO_TIMESTAMP means that a record has none: a time before 1970 is a time.
    """

    first_offset: int = _LOWEST
    last_offset: int = _HIGHEST
    first_timestamp: int = _LOWEST
    last_timestamp: int = _HIGHEST
    only_with_timestamp: bool = False


class UnreadableBatch(NamedTuple):
    """A batch whose next record cannot be read; the records before it were returned."""

    position: int
    error: CorruptSegmentError | UnsupportedFormatError


class RecordDecoder:
    """Reads the records of batches; one decoder serves one thread."""

    def __init__(self, *, max_batch_bytes: int) -> None:
        """Return all records; no batch may have more than `max_batch_bytes`."""
        self.limit(RecordLimits())
        self._most = max_batch_bytes
        self._bytes_decoded = 0
        self._bodies = WholeBodies(max_batch_bytes)

    def limit(self, limits: RecordLimits) -> None:
        """Return the records inside `limits` from now on."""
        self._limits = np.array([limits], RECORD_LIMITS)

    def decode(self, held: HeldBatches, add_rows: AddRows) -> Iterator[UnreadableBatch | None]:
        """Add the records of batches to a table, in order.

        Yields None if the table is full, and unreadable batches; then come the next records.
        """
        entries = np.empty(len(held.batches), ENTRY)
        speed = self._speed_for(int(held.batches["size_bytes"].sum()))
        speed(fill_entries)(_taken(held.data, speed), held.start, held.batches, entries)
        is_plain = entries["attributes"] & CODEC_MASK == 0
        sizes = entries["stop"] - entries["start"]
        entries["kind"][is_plain & (sizes > self._most)] = UNREADABLE
        for array, run in self._runs(held, entries, is_plain):
            yield from self._records(held, array, run, add_rows)

    def _runs(
        self, held: HeldBatches, entries: Rows, is_plain: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[npt.NDArray[np.uint8], Rows]]:
        """Yield arrays, each with the entries whose bodies it has."""
        if is_plain.all():
            yield held.data, entries
            return
        stored = held.data.data
        is_empty = (entries["kind"] == V2_RECORDS) & (entries["count"] <= 0)
        is_skipped = (is_empty | (entries["kind"] == UNREADABLE)).tolist()
        codecs = (entries["attributes"] & CODEC_MASK).tolist()
        magics, starts, stops = (entries[name].tolist() for name in ("magic", "start", "stop"))
        first, complete = 0, [1] * len(entries)
        self._bodies.clear()
        for i in range(len(entries)):
            if not is_skipped[i]:
                body = self._placed(stored[starts[i] : stops[i]], codecs[i], magics[i])
                if body is None:
                    entries["kind"][i] = UNREADABLE
                else:
                    starts[i], stops[i], complete[i] = body
            if self._bodies.size_bytes >= _RUN_BYTES or i == len(entries) - 1:
                run = entries[first : i + 1]
                run["start"], run["stop"] = starts[first : i + 1], stops[first : i + 1]
                run["is_complete"] = complete[first : i + 1]
                yield self._bodies.data, run
                first = i + 1
                self._bodies.clear()

    def _placed(self, stored: memoryview, codec: int, magic: int) -> PlacedBody | None:
        """Put a body with the others; return its place, None for a codec that is not there."""
        try:
            return self._bodies.append(stored, codec, magic=magic)
        except UnsupportedFormatError:
            return None

    def _records(
        self, held: HeldBatches, data: npt.NDArray[np.uint8], entries: Rows, add_rows: AddRows
    ) -> Iterator[UnreadableBatch | None]:
        cursor = np.zeros(1, CURSOR)
        cursor["at"] = -1
        size_bytes = int((entries["stop"] - entries["start"]).sum())
        speed = self._speed_for(size_bytes)
        self._bytes_decoded += size_bytes
        taken, add = _taken(data, speed), speed(add_records)
        while (why := add_rows(add, taken, entries, cursor, self._limits)) != DONE:
            if why != BAD:
                yield None
                continue
            position = int(entries["position"][cursor["entry"][0]])
            yield UnreadableBatch(position, self._error_at(held, entries, cursor[0]))
            cursor["entry"] += 1
            cursor["at"] = -1

    def _error_at(
        self, held: HeldBatches, entries: Rows, cursor: Any
    ) -> CorruptSegmentError | UnsupportedFormatError:
        """Return the error of `iterate_records` for the batch that cannot be read further."""
        entry = entries[cursor["entry"]]
        position = int(entry["position"])
        at = position - held.start
        size = LOG_OVERHEAD + int.from_bytes(held.data[at + 8 : at + 12].tobytes())
        read, read_bytes = 0, 0
        if entry["kind"] == V2_RECORDS and cursor["at"] >= 0:
            read, read_bytes = int(cursor["number"]), int(cursor["at"] - entry["start"])
        return record_error(
            held.data.data[at : at + size],
            position=position,
            max_batch_bytes=self._most,
            read=(read, read_bytes),
        )

    def _speed_for(self, size_bytes: int) -> Speed:
        """Return the speed at which the next bytes are read."""
        return compiled if self._bytes_decoded + size_bytes > PLAIN_BYTES else plain


def _taken(data: npt.NDArray[np.uint8], speed: Speed) -> Any:
    """Return bytes in the form that the functions take: compiled code takes one type."""
    return data.data if speed is plain else read_only(data)
