"""Decode the records of batches that are in memory, as rows of a table.

Bodies are decompressed one after another into one array, until it has 1 MiB. Then one call reads
the records of all of them, so a small batch costs little more than its bytes.

Nearly every body is what a current client writes: one zstd frame, one gzip member, snappy blocks,
or one LZ4 frame without extras. `WholeBodies` decodes those in one step, straight into the array;
snappy and LZ4 many in one call (`kip33.formats.body_blocks`), short ones of zstd and gzip in one
loop.
Everything else, damage too, is left to `kip33.formats.codecs`, which decodes chunk by chunk as
Kafka does and finds the bytes before any damage. The memory in use grows with the bytes that were
decoded, never with a size that a header claims.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_MASK, CODEC_NAMES, LOG_OVERHEAD
from kip33.formats.body_blocks import LZ4, SNAPPY, place_bodies
from kip33.formats.codecs import (
    DECOMPRESSED_CHUNK_BYTES,
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
from kip33.formats.native import PLAIN, Speed, compiled, how, plain
from kip33.formats.record_columns import BAD, CURSOR, DONE, RECORD_LIMITS, add_records
from kip33.formats.records import record_error

Rows: TypeAlias = npt.NDArray[np.void]
AddRows: TypeAlias = Callable[..., int]
"""Takes `add_records`, in its form for a speed, and its first four arguments; calls it with room
for the rows, and returns what it returned last. The bytes are valid until then."""

RUN_BYTES: Final = 1 << 20
# A small log does not wait for compiled code. Bytes count as they are decompressed: a log of 700
# bytes may have a million records.
PLAIN_BYTES: Final = 1 << 16
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1

_SHORT_BYTES: Final = 1 << 13  # as stored; a reader for such a body takes as long as the body
_SHORT_BODY_BYTES: Final = 1 << 16  # decompressed
_LEAST_RUN: Final = 3  # short bodies that are worth a loop
_FIRST_BYTES: Final = RUN_BYTES + _SHORT_BODY_BYTES
_KEPT_BYTES: Final = 1 << 25  # a larger array is given back after its batch
_NONE, _GZIP, _ZSTD = (CODEC_NAMES.index(name) for name in ("none", "gzip", "zstd"))
_GZIP_START: Final = bytes.fromhex("1f8b0800")  # with other flags, ISA-L takes what zlib refuses
_ZSTD_MAGIC: Final = bytes.fromhex("28b52ffd")
_ZSTD_FIELD_BYTES: Final = [  # by the flags of a frame: its size, its window, its dictionary
    ((flags >> 5 & 1, 2, 4, 8)[flags >> 6] + (not flags >> 5 & 1) + (0, 1, 2, 4)[flags & 3])
    for flags in range(256)
]


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
        self._decoders: dict[int, Callable[[memoryview], bool]] = {
            _NONE: self._put,
            _GZIP: self._gzip,
            _ZSTD: self._zstd,
        }
        self._short_decoders: dict[int, Callable[[memoryview], bytes]] = {
            _GZIP: self._short_gzip,
            _ZSTD: self._short_zstd,
        }
        self._short_most = min(_SHORT_BODY_BYTES, max_batch_bytes)

    @cached_property
    def _isal(self) -> Any:
        from isal import isal_zlib

        return isal_zlib

    @cached_property
    def _zstandard(self) -> Any:
        import zstandard

        return zstandard

    @cached_property
    def _zstd_decoder(self) -> Any:
        return self._zstandard.ZstdDecompressor()

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

    def place(self, data: npt.NDArray[np.uint8], entries: Rows, first: int) -> int:
        """Decompress snappy and LZ4 bodies of entries from the `first` on; return the next one.

        Their places in `entries` become those after the other bodies. It stops before a body that
        `append` must decode, and as soon as there are enough bytes.
        """
        next_one, self._stop = compiled(place_bodies)(
            *(read_only(data), entries, first),
            *(self._array, self._stop, self._most, RUN_BYTES),
        )
        return int(next_one)

    def extend(self, codec: int, stored: Iterable[memoryview]) -> list[int]:
        """Decompress short bodies, all of gzip or all of zstd, each in one call of the library.

        Returns where each begins, and the end of the last. It stops before a body that `append`
        must decode, and as soon as there are enough bytes.
        """
        decoder, view, stop = self._short_decoders[codec], self._view, self._stop
        bounds = [stop]
        for one in stored:
            if stop >= RUN_BYTES or not (body := decoder(one)):
                break
            view[stop : stop + len(body)] = body
            stop += len(body)
            bounds.append(stop)
        self._stop = stop
        return bounds

    def append(self, stored: memoryview, codec: int, *, magic: int) -> PlacedBody:
        """Decompress a body and place it after the others.

        `codec` is its number. Raises UnsupportedFormatError for a codec that the magic does not
        have, BatchTooLargeError for a body that is too large; it then has no bytes in the array.
        """
        start = self._stop
        decoder = self._decoders.get(codec) if magic >= 2 or codec != _ZSTD else None
        if decoder is None or not decoder(stored):
            self._stop = start
            try:
                self._exactly(stored, CODEC_NAMES[codec], magic)
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

    def _put(self, piece: bytes | memoryview) -> bool:
        stop = self._stop + len(piece)
        if stop > self._array.size:
            self._grow(len(piece))
        self._view[self._stop : stop] = piece
        self._stop = stop
        return True

    def _grow(self, count: int) -> None:
        """Make room for `count` bytes after the bodies."""
        larger = self._larger(self._stop + count)
        larger[: self._stop] = self._array[: self._stop]
        self._use(larger)

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
            return np.empty(min(max(most, needed), _HIGHEST), np.uint8)
        except MemoryError:  # the system gives no more addresses than memory
            return np.empty(doubled, np.uint8)

    def _filled(self, read_into: Callable[[memoryview], int]) -> bool:
        """Place the bytes of a decoder; return whether they are not too many."""
        start = self._stop
        while True:
            if self._array.size - self._stop < DECOMPRESSED_CHUNK_BYTES:
                self._grow(DECOMPRESSED_CHUNK_BYTES)
            room = self._view[self._stop :]
            count = read_into(room)
            self._stop += count
            if self._stop - start > self._most:
                return False
            if count < len(room):  # it fills its room unless the frame has ended
                return True

    def _short_gzip(self, stored: memoryview) -> bytes:
        """Return a body with at most as many bytes as a short one has; else nothing."""
        if stored[:4] != _GZIP_START:
            return b""
        member = self._isal.decompressobj(wbits=31)
        try:
            body: bytes = member.decompress(stored, self._short_most)
        except self._isal.error:
            return b""
        return body if member.eof and not member.unused_data else b""

    def _short_zstd(self, stored: memoryview) -> bytes:
        """Return a body as `_short_gzip` does; nothing, too, if it is more than one frame."""
        try:
            size_bytes = self._zstandard.frame_content_size(stored)  # -1: the frame does not say
            if size_bytes > self._short_most:
                return b""
            # Without a size the library says nothing of bytes after the frame.
            if size_bytes < 0 and not _is_one_zstd_frame(stored):
                return b""
            body: bytes = self._zstd_decoder.decompress(stored, self._short_most, False, False)
        except self._zstandard.ZstdError:  # larger, or not one frame
            return b""
        return body

    def _gzip(self, stored: memoryview) -> bool:
        if len(stored) <= _SHORT_BYTES and (body := self._short_gzip(stored)):
            return self._put(body)
        if stored[:4] != _GZIP_START:
            return False
        member = self._isal.decompressobj(wbits=31)
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
        except self._isal.error:
            return False
        return not member.unused_data

    def _zstd(self, stored: memoryview) -> bool:
        if len(stored) <= _SHORT_BYTES and (body := self._short_zstd(stored)):
            return self._put(body)
        if not _is_one_zstd_frame(stored):
            return False
        try:
            return self._filled(self._zstd_decoder.stream_reader(stored).readinto)
        except self._zstandard.ZstdError:
            return False


def _short_runs(entries: Rows, is_body: npt.NDArray[np.bool_]) -> list[int]:
    """Return for each entry where the short bodies of its codec end, -1 if they are too few."""
    codecs = entries["attributes"] & CODEC_MASK
    is_short = is_body & (entries["stop"] - entries["start"] <= _SHORT_BYTES)
    is_short &= (codecs == _GZIP) | (codecs == _ZSTD) & (entries["magic"] >= 2)
    kinds = np.where(is_short, codecs, _NONE)
    ends = np.append(np.flatnonzero(np.diff(kinds)) + 1, len(kinds))
    lengths = np.diff(ends, prepend=0)
    ends_of_runs = np.repeat(np.where(lengths < _LEAST_RUN, -1, ends), lengths)
    runs: list[int] = np.where(is_short, ends_of_runs, -1).tolist()
    return runs


def _is_one_zstd_frame(stored: memoryview) -> bool:
    """Return whether the bytes are exactly one frame, by the sizes of its blocks (RFC 8878)."""
    if len(stored) < 6 or stored[:4] != _ZSTD_MAGIC:
        return False
    flags = stored[4]
    at, end = 5 + _ZSTD_FIELD_BYTES[flags], len(stored) - (flags & 4)  # a checksum, or none
    while at + 3 <= end:
        header = stored[at] | stored[at + 1] << 8 | stored[at + 2] << 16
        at += 3 + (1 if header & 6 == 2 else header >> 3)  # an RLE block stores one byte
        if header & 1:
            return at == end
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
        speed = self._speed_for(held.batches["size_bytes"])
        compressed = speed(fill_entries)(
            *(_taken(held.data, speed), held.start, held.batches, entries, self._most)
        )
        if compressed:
            for array, run in self._runs(held, entries, speed):
                yield from self._records(held, array, run, add_rows)
        else:
            yield from self._records(held, held.data, entries, add_rows)

    def _runs(
        self, held: HeldBatches, entries: Rows, speed: Speed
    ) -> Iterator[tuple[npt.NDArray[np.uint8], Rows]]:
        """Yield arrays, each with the entries whose bodies it has."""
        stored, bodies = held.data.data, self._bodies
        is_empty = (entries["kind"] == V2_RECORDS) & (entries["count"] <= 0)
        is_skipped = is_empty | (entries["kind"] == UNREADABLE)
        shorts = _short_runs(entries, ~is_skipped)
        codecs = (entries["attributes"] & CODEC_MASK).tolist()
        magics, starts, stops = (entries[name].tolist() for name in ("magic", "start", "stop"))
        new_starts, new_stops, are_complete = (entries[name] for name in PlacedBody._fields)
        first = number = 0
        in_one_call = (SNAPPY, LZ4) if speed is compiled and how() != PLAIN else ()
        bodies.clear()
        while number < len(entries):
            end = shorts[number]  # if that is reached, no body is left to `append`
            if codecs[number] in in_one_call:
                number = bodies.place(held.data, entries, number)
            elif end > number:
                each = (stored[starts[n] : stops[n]] for n in range(number, end))
                bounds = bodies.extend(codecs[number], each)
                done = slice(number, number + len(bounds) - 1)
                new_starts[done], new_stops[done] = bounds[:-1], bounds[1:]
                number = done.stop
            if number < len(entries) and number != end and bodies.size_bytes < RUN_BYTES:
                if not is_skipped[number]:
                    body = stored[starts[number] : stops[number]]
                    try:
                        placed = bodies.append(body, codecs[number], magic=magics[number])
                        new_starts[number], new_stops[number], are_complete[number] = placed
                    except UnsupportedFormatError:
                        entries["kind"][number] = UNREADABLE
                number += 1
            if bodies.size_bytes >= RUN_BYTES or number == len(entries):
                yield bodies.data, entries[first:number]
                first = number
                bodies.clear()

    def _records(
        self, held: HeldBatches, data: npt.NDArray[np.uint8], entries: Rows, add_rows: AddRows
    ) -> Iterator[UnreadableBatch | None]:
        cursor = np.zeros(1, CURSOR)
        cursor["at"] = -1
        sizes = entries["stop"] - entries["start"]
        speed = self._speed_for(sizes)
        if speed is plain:
            self._bytes_decoded += int(sizes.sum())
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

    def _speed_for(self, sizes: npt.NDArray[np.int64]) -> Speed:
        """Return the speed at which bytes of these sizes are read: compiled, once it was."""
        if self._bytes_decoded <= PLAIN_BYTES:
            if self._bytes_decoded + int(sizes.sum()) <= PLAIN_BYTES:
                return plain
            self._bytes_decoded = PLAIN_BYTES + 1
        return compiled


def _taken(data: npt.NDArray[np.uint8], speed: Speed) -> Any:
    """Return bytes in the form that the functions take: compiled code takes one type."""
    return data.data if speed is plain else read_only(data)
