"""The batches of a log with their bytes in memory, window by window, and where each body is.

The walk (`kip33.formats.walk`) finds the batches and checks their CRCs. A batch that is larger than
a window is read again after its CRC was found right, so no memory is used for a false size.

`fill_entries` runs uncompiled and compiled, as the walk does.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats import walk
from kip33.formats.batch import (
    BATCH,
    CODEC_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    BatchColumns,
)
from kip33.formats.byte_sources import ReadInto, fill_from
from kip33.formats.crc import Bytes, int32_at, int64_at
from kip33.formats.native import compiled, crc32c_tables
from kip33.formats.scan import SMALL_BYTES, aligned, shorter, why_ended

WINDOW_BYTES: Final = 1 << 20
_ROWS: Final = 4096

# What the body of an entry is.
V2_RECORDS: Final = 0  # records of magic 2
MESSAGE: Final = 1  # one message of magic 0 or 1, from its CRC on
WRAPPED: Final = 2  # the decompressed messages of a wrapper, each with offset and size
UNREADABLE: Final = 3  # not to be read: iterate_records gives the reason

ENTRY: Final = np.dtype(
    [
        ("position", np.int64),  # of the batch in the .log
        ("start", np.int64),  # of its body in the array
        ("stop", np.int64),
        ("offset", np.int64),  # the batch's offset field
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("count", np.int32),  # records of magic 2
        ("kind", np.int16),
        ("magic", np.int16),
        ("attributes", np.int16),
        ("is_complete", np.int16),  # 0: decompression failed where the body ends
    ]
)
"""One row per batch whose records are wanted."""


class HeldBatches(NamedTuple):
    """Some batches, in the log's order, with their bytes."""

    data: npt.NDArray[np.uint8]
    start: int  # position in the log of the first byte of `data`
    batches: BatchColumns  # rows of BATCH; valid until the next step


class BatchWindows:
    """An iteration over the batches of a log from a position; read `damage` after its end.

    `damage` is one line that says why the rest of the log is not valid, None if there is no rest;
    with `only_zeros_follow` the rest is zeros, with `has_wrong_crc` it begins with a batch whose
    bytes do not match its CRC.
    `position` is the end of the last valid batch so far, `next_offset` follows its last one; None
    without a batch.
    """

    def __init__(
        self,
        read_into: ReadInto,
        size_bytes: int,
        *,
        position: int = 0,
        native: bool | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Prepare to read up to `size_bytes` from `position`, where a batch begins.

        `native` chooses compiled code or the plain walk; None: by size.
        """
        self.damage: str | None = None
        self.only_zeros_follow = self.has_wrong_crc = False
        self.position = position
        self.next_offset: int | None = None
        self.native = size_bytes - position > SMALL_BYTES if native is None else native
        self._read_into = read_into
        self._size_bytes = size_bytes
        room = max(window_bytes, 2 * RECORD_BATCH_OVERHEAD)
        self._window_bytes = min(room, max(size_bytes - position, 1))

    def __iter__(self) -> Iterator[HeldBatches]:
        """Yield the batches; raises CorruptSegmentError if the log becomes shorter meanwhile."""
        buffer = aligned(self._window_bytes)
        rows = np.empty(_ROWS, BATCH)
        state = np.zeros(1, walk.STATE)
        state["end"], state["entry"] = self._size_bytes, self.position
        advance = compiled(walk.walk) if self.native else walk.walk
        tables = crc32c_tables() if self.native else None
        start, at, stop = self.position, 0, 0  # `start`: of the buffer in the log
        while True:
            # The walk takes read-only bytes if it is compiled, and any bytes if not.
            data = read_only(buffer) if self.native else buffer.data
            why, at = advance(data, at, stop, state, rows, True, False, tables)
            if why == walk.MARKER:  # markers are not read here
                continue
            self.position = int(state["entry"][0])
            complete = int(state["rows"][0])
            if complete:
                self.next_offset = int(rows["last_offset"][complete - 1]) + 1
            yield from self._held(buffer, start, rows[:complete])
            if state["inside"][0]:
                rows[0] = rows[complete]  # the batch that the walk is in
            state["rows"] = 0
            if why == walk.MORE:
                start, at, stop = self._refill(buffer, start, at, stop, state)
            elif why != walk.FULL:
                ended = why_ended(self._read_into, why, self.position, self._size_bytes)
                self.damage, self.only_zeros_follow, _ = ended
                self.has_wrong_crc = why == walk.BAD_CRC
                return

    def _held(
        self, buffer: npt.NDArray[np.uint8], start: int, batches: BatchColumns
    ) -> Iterator[HeldBatches]:
        """Yield the batches that are in the buffer; read the first one again if it is not."""
        if len(batches) and batches["position"][0] < start:
            first = batches[:1]
            position, size = int(first["position"][0]), int(first["size_bytes"][0])
            data = np.empty(size, np.uint8)
            count = fill_from(self._read_into, position, data.data)
            if count < size:
                raise shorter(position + count, self._size_bytes, position)
            yield HeldBatches(read_only(data), position, first)
            del data  # else it is in memory beside the next one
            batches = batches[1:]
        if len(batches):
            yield HeldBatches(read_only(buffer), start, batches)

    def _refill(
        self, buffer: npt.NDArray[np.uint8], start: int, at: int, stop: int, state: BatchColumns
    ) -> tuple[int, int, int]:
        """Read on; return the buffer's new start, and the walk's new `at` and `stop`.

        A batch that has room in the buffer is moved to its front, and walked again from there.
        """
        entry = int(state["entry"][0])
        if entry >= start:
            size_at = entry - start + 8
            size = 0
            if state["inside"][0]:
                size = LOG_OVERHEAD + int.from_bytes(buffer[size_at : size_at + 4].tobytes())
            if size <= buffer.size:
                state["inside"] = 0
                at = entry - start
        kept = stop - at
        buffer[:kept] = buffer[at:stop].copy()
        start += at
        room = min(buffer.size - kept, self._size_bytes - start - kept)
        count = self._read_into(start + kept, buffer.data[kept : kept + room]) if room > 0 else 0
        if count == 0 and room > 0:
            raise shorter(start + kept, self._size_bytes, entry)
        return start, 0, kept + count


def read_only(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return a view of an array that cannot be written: compiled code takes this type."""
    view = array.view()
    view.flags.writeable = False
    return view


def fill_entries(data: Bytes, start: int, batches: Any, entries: Any, most_bytes: int) -> int:
    """Fill one entry per batch, with the place of its body as it is stored.

    `data` has the batches; its first byte is at position `start` of the log. A body of more than
    `most_bytes` is unreadable. Returns the number of bodies that are compressed.
    """
    compressed = 0
    for i in range(batches.size):
        batch, entry = batches[i], entries[i]
        at = batch["position"] - start
        entry["position"] = batch["position"]
        entry["stop"] = at + batch["size_bytes"]
        entry["offset"] = batch["base_offset"]
        entry["max_timestamp"] = batch["max_timestamp"]
        entry["base_timestamp"] = NO_TIMESTAMP
        entry["count"] = 0
        entry["magic"] = batch["magic"]
        entry["attributes"] = batch["attributes"]
        entry["is_complete"] = 1
        if batch["magic"] >= 2:
            entry["kind"] = V2_RECORDS
            entry["start"] = at + RECORD_BATCH_OVERHEAD
            entry["base_timestamp"] = int64_at(data, at + 27)
            entry["count"] = batch["records_count"]
        elif batch["attributes"] & CODEC_MASK:
            _find_wrapped(data, at, entry)
        else:
            entry["kind"] = MESSAGE
            entry["start"] = at + LOG_OVERHEAD
        if batch["attributes"] & CODEC_MASK:
            compressed += 1
        elif entry["stop"] - entry["start"] > most_bytes:
            entry["kind"] = UNREADABLE
    return compressed


def _find_wrapped(data: Bytes, at: int, entry: Any) -> None:
    """Find the compressed value of the wrapper at `at`."""
    entry["kind"] = UNREADABLE
    entry["start"] = at
    end = entry["stop"]
    if entry["magic"] < 0:
        return
    key_at = at + (18 if entry["magic"] == 0 else 26)
    if key_at + 4 > end:
        return
    value_at = key_at + 4 + max(0, int32_at(data, key_at))
    if value_at + 4 > end:
        return
    size = int32_at(data, value_at)
    if size >= 0 and size <= end - value_at - 4:
        entry["kind"] = WRAPPED
        entry["start"] = value_at + 4
        entry["stop"] = value_at + 4 + size
