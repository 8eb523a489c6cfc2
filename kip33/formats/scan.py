"""A segment's batches as columns, read in chunks of constant size.

`BatchScan` does no I/O of its own: it calls `read_into(position, view)` for bytes, or `view_at` for
bytes that are already in memory. So local files, object stores and tests that return one byte at a
time use the same code. It yields rows of `batch.BATCH`, at most ROWS at a time, and reports
afterwards where and why it stopped.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from kip33.formats import markers, walk
from kip33.formats.batch import (
    BATCH,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_HEADER_BYTES,
    BatchColumns,
    BatchHeader,
    decode_header,
)
from kip33.formats.batch import RECORD_BATCH_OVERHEAD as LONGEST_HEADER_BYTES
from kip33.formats.byte_sources import ReadInto, ViewAt, read_fully
from kip33.formats.native import compiled, crc32c_tables
from kip33.formats.windows import Buffer, Views, Window

ROWS: Final = 4096
SCAN_CHUNK_BYTES: Final = 1 << 19
SMALL_BYTES: Final = 1 << 20  # up to this size the plain walk ends before numba is imported


class BatchScan:
    """One pass over one segment; iterate once, then ask how it ended.

    After the iteration, `valid_bytes` is the length of the complete, valid batches. `damage` is one
    line that says why the rest is not valid, None if the file ends with a batch. `load_failure` is
    one line if Kafka 4.1 would refuse to load the log. `bytes_read` counts the bytes read.
    """

    def __init__(
        self,
        read_into: ReadInto,
        size_bytes: int,
        *,
        check_crc: bool = True,
        seek_max_record: bool = False,
        native: bool | None = None,
        chunk_bytes: int = SCAN_CHUNK_BYTES,
        rows: int = ROWS,
        view_at: ViewAt | None = None,
    ) -> None:
        """Prepare to scan `size_bytes`, the file's size when it was opened.

        `seek_max_record` fills `offset_of_max_timestamp` with the first record that has the batch's
        max timestamp (uncompressed CreateTime v2 batches only). `native` chooses compiled code or
        the plain walk; None: by size. With `view_at` the bytes are read in place and `chunk_bytes`
        is not used; `read_into` then reads only the bytes that are needed twice.
        """
        if chunk_bytes < 2 * LONGEST_HEADER_BYTES:
            raise ValueError(f"chunk_bytes={chunk_bytes}: at least {2 * LONGEST_HEADER_BYTES}")
        self.size_bytes = size_bytes
        self.valid_bytes = 0
        self.bytes_read = 0
        self.damage: str | None = None
        self.load_failure: str | None = None
        self.native = size_bytes > SMALL_BYTES if native is None else native
        self._read_into = read_into
        self._check_crc = check_crc
        self._seek = seek_max_record
        self._chunk_bytes = chunk_bytes
        self._view_at = view_at
        self._rows = min(rows, size_bytes // LEGACY_HEADER_BYTES + 1)  # no batch is shorter

    def __iter__(self) -> Iterator[BatchColumns]:
        """Yield the batches in order; the array is reused, so copy it to keep its rows."""
        window = self._window()
        columns = np.empty(self._rows, BATCH)  # the walk fills every field of a row
        state = np.zeros(1, walk.STATE)
        state["end"] = self.size_bytes
        advance = self._walker(columns, state)
        at = stop = 0
        if self.size_bytes > HEADER_SIZE_UP_TO_MAGIC:  # else there is nothing to walk over
            at, stop = window.refill(0, 0, 0, 0)
            self.bytes_read = window.bytes_read
        data = self._walked(window.data)
        while True:
            why, at = advance(data, at, stop)
            if why == walk.MORE:
                skip_bytes = self._body_to_skip(state, window, stop - at)
                before = window.data
                at, stop = window.refill(at, stop, skip_bytes, int(state["entry"][0]))
                is_new = window.data is not before
                del before  # else it keeps a range in memory while the next ones are walked
                if is_new:
                    data = self._walked(window.data)
                self.bytes_read = window.bytes_read
                continue
            rows = int(state["rows"][0])
            ended = why not in (walk.FULL, walk.MARKER)
            if why == walk.MARKER:
                ended = self._look_at_marker(columns[rows - 1])
            if ended:
                self._end(why, int(state["entry"][0]))
            if rows and (ended or rows == self._rows):
                yield columns[:rows]
                state["rows"] = 0
            if ended:
                return

    def _window(self) -> Window:
        if self._view_at:
            return Views(self._view_at, self._read_into, self.size_bytes)
        return Buffer(self._read_into, self.size_bytes, self._chunk_bytes)

    def _body_to_skip(self, state: BatchColumns, window: Window, kept_bytes: int) -> int:
        """Return how many bytes of a body to skip: 0 if they are needed or cheap to read."""
        if self._check_crc or not state["inside"][0] or state["seeks_record"][0]:
            return 0
        body_bytes = int(state["remaining_bytes"][0])
        if body_bytes <= window.cheap_bytes - kept_bytes:
            return 0
        state["remaining_bytes"] = 0
        return body_bytes

    def _walked(self, data: memoryview) -> Any:
        """Return a window's bytes in the form the walk takes; compiled code gets a single type.

        The walk only reads the bytes, so they need not be writable.
        """
        if not self.native:
            return data
        array = np.frombuffer(data, np.uint8)
        array.flags.writeable = False
        return array

    def _walker(
        self, columns: BatchColumns, state: BatchColumns
    ) -> Callable[[Any, int, int], tuple[int, int]]:
        """Return the walk, compiled or plain, with all arguments but the bytes bound."""
        check, seek = self._check_crc, self._seek
        if not self.native:
            return lambda data, at, stop: walk.walk(
                data, at, stop, state, columns, check, seek, None
            )
        tables = crc32c_tables()
        function = compiled(walk.walk)
        return lambda data, at, stop: function(data, at, stop, state, columns, check, seek, tables)

    def _look_at_marker(self, row: np.void) -> bool:
        """Read a control batch, not a plain marker; return whether the scan ends after it."""
        verdict = markers.read_marker(self._read_into, row)
        row["control"] = verdict.control
        if verdict.control == markers.STOPS:
            self.damage = verdict.message
        elif verdict.control == markers.FAILS:
            self.load_failure = verdict.message
        return verdict.control in (markers.STOPS, markers.FAILS)

    def _end(self, why: int, entry: int) -> None:
        self.valid_bytes = entry
        if why != walk.MARKER:
            self.damage = why_ended(why, entry, self.size_bytes)


def why_ended(why: int, entry: int, size_bytes: int) -> str | None:
    """Return one line that says why a walk ended at a batch, None at the end of the file.

    `why` is what the walk returned, `entry` the position of that batch.
    """
    left = size_bytes - entry
    if why == walk.END and left == 0:
        return None
    reason = {
        walk.END: f"{left} bytes are left, too few for a batch header",
        walk.TORN: "the batch's size points past the end of the file",
        walk.SIZE_TOO_SMALL: "the size field is smaller than any batch",
        walk.BAD_CRC: "the batch's bytes do not match its CRC",
    }[why]
    return f"at byte {entry} of {size_bytes}: {reason}"


def read_header_at(read_into: ReadInto, position: int) -> BatchHeader:
    """Return all header fields of the batch that the walk found at `position`."""
    return decode_header(read_fully(read_into, position, LONGEST_HEADER_BYTES), position)
