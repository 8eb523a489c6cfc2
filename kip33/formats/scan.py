"""A segment's batches as columns, read in chunks of constant size.

`BatchScan` does no I/O of its own: it calls `read_into(position, view)` for bytes, or `view_at` for
bytes that are already in memory. So local files, object stores and tests that return one byte at a
time use the same code. It yields rows of `batch.BATCH`, at most ROWS at a time, and reports
afterwards where and why it stopped.

A window is the part of a segment that a scan has in memory: a buffer that is filled, or bytes in
place. A scan passes it the first byte it has not used, and continues in the next bytes. A header is
read from one piece; if it crosses the end of a piece, that end is kept.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, counted
from kip33.formats import markers, walk
from kip33.formats.batch import (
    BATCH,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_CRC_START,
    LEGACY_HEADER_BYTES,
    V2_CRC_START,
    BatchColumns,
    BatchHeader,
    decode_header,
)
from kip33.formats.batch import RECORD_BATCH_OVERHEAD as LONGEST_HEADER_BYTES
from kip33.formats.byte_sources import ReadInto, SeekableBytes, ViewAt, pieces_of, read_fully
from kip33.formats.crc import crc32, crc32c, with_crc32c
from kip33.formats.foreign_bytes import Rest
from kip33.formats.native import compiled, crc32c_tables

ROWS: Final = 4096
SCAN_CHUNK_BYTES: Final = 1 << 19
CHEAP_BYTES: Final = 1 << 16  # headers only
AFTER_SKIP_BYTES: Final = 4096  # headers only: bytes to read after a skipped body
CACHE_LINE_BYTES: Final = 64
SEAM_BYTES: Final = 4096  # bytes to read if a header crosses the end of a view
SMALL_BYTES: Final = 1 << 20  # up to this size the plain walk ends before numba is imported


class BatchScan:
    """One pass over one segment; iterate once, then ask how it ended.

    After the iteration, `valid_bytes` is the length of the complete, valid batches. `damage` is one
    line that says why the rest is not valid, None if the file ends with a batch. It may be nothing
    but zeros: `only_zeros_follow`, or begin with a batch whose bytes do not match its CRC:
    `has_wrong_crc`. `load_failure` is one line if Kafka 4.1 would refuse to load the
    log. `bytes_read` counts the bytes read.
    """

    def __init__(  # parameters: what is read, how, and in what pieces
        self,
        read_into: ReadInto,
        size_bytes: int,
        *,
        position: int = 0,
        check_crc: bool = True,
        seek_max_record: bool = False,
        native: bool | None = None,
        chunk_bytes: int = SCAN_CHUNK_BYTES,
        rows: int = ROWS,
        view_at: ViewAt | None = None,
    ) -> None:
        """Prepare to scan `size_bytes`, the file's size when it was opened, from `position`.

        `seek_max_record` fills `offset_of_max_timestamp` with the first record that has the batch's
        max timestamp (uncompressed CreateTime v2 batches only). `native` chooses compiled code or
        the plain walk; None: by size. With `view_at` the bytes are read in place and `chunk_bytes`
        is not used; `read_into` then reads only the bytes that are needed twice.
        """
        if chunk_bytes < 2 * LONGEST_HEADER_BYTES:
            raise ValueError(f"chunk_bytes={chunk_bytes}: at least {2 * LONGEST_HEADER_BYTES}")
        self.size_bytes = size_bytes
        self.valid_bytes = position
        self.bytes_read = 0
        self.damage: str | None = None
        self.only_zeros_follow = self.has_wrong_crc = False
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
        state["end"], state["entry"] = self.size_bytes, self.valid_bytes
        advance = self._walker(columns, state)
        at = stop = 0
        if (
            self.size_bytes - self.valid_bytes > HEADER_SIZE_UP_TO_MAGIC
        ):  # else nothing to walk over
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

    def _window(self) -> "_Buffer | _Views":
        if self._view_at:
            return _Views(self._view_at, self._read_into, self.size_bytes, self.valid_bytes)
        return _Buffer(self._read_into, self.size_bytes, self._chunk_bytes, self.valid_bytes)

    def _body_to_skip(
        self, state: BatchColumns, window: "_Buffer | _Views", kept_bytes: int
    ) -> int:
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
        self.has_wrong_crc = why == walk.BAD_CRC
        if why != walk.MARKER:
            ended = why_ended(self._read_into, why, entry, self.size_bytes)
            self.damage, self.only_zeros_follow, bytes_read = ended
            self.bytes_read += bytes_read


class WalkEnd(NamedTuple):
    """Why a walk ended at a batch."""

    damage: str | None  # one line; None: the file ends there
    only_zeros_follow: bool = False  # from there to the end of the file
    bytes_read: int = 0  # to find that out


def why_ended(read_into: ReadInto, why: int, entry: int, size_bytes: int) -> WalkEnd:
    """Return why a walk ended; `why` is what it returned, `entry` the position of that batch."""
    left = size_bytes - entry
    if why == walk.END and left == 0:
        return WalkEnd(None)
    reason = {
        walk.END: f"{counted(left, 'byte')} left, too few for a batch header",
        walk.TORN: "the batch's size points past the end of the file",
        walk.SIZE_TOO_SMALL: "the size field is smaller than any batch",
        walk.BAD_CRC: "the batch's bytes do not match its CRC",
    }[why]
    if why == walk.BAD_CRC:
        return WalkEnd(f"at byte {entry} of {size_bytes}: {reason}")
    rest = Rest(read_into, entry, size_bytes)
    note = f"at byte {entry} of {size_bytes}: {rest.note(reason)}"
    return WalkEnd(note, rest.is_zeros, rest.bytes_read)


def read_header_at(read_into: ReadInto, position: int) -> BatchHeader:
    """Return all header fields of the batch that the walk found at `position`."""
    return decode_header(read_fully(read_into, position, LONGEST_HEADER_BYTES), position)


def aligned(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return an array that begins at a cache line, not zeroed.

    Some CPUs copy out of the page cache four times as long to another address, and `np.empty` gives
    such a one in a young process.
    """
    room = np.empty(size_bytes + CACHE_LINE_BYTES, np.uint8)
    return room[-room.ctypes.data % CACHE_LINE_BYTES :][:size_bytes]


class _Buffer:
    """One buffer to read into; its unused bytes move to the front."""

    def __init__(
        self, read_into: ReadInto, size_bytes: int, chunk_bytes: int, position: int
    ) -> None:
        """Read a file of `size_bytes` from `position`, in pieces of at most `chunk_bytes`."""
        room = min(chunk_bytes, size_bytes - position + LONGEST_HEADER_BYTES)
        self.data = aligned(room).data
        self.bytes_read = 0
        self.cheap_bytes = min(chunk_bytes, CHEAP_BYTES)  # a body up to here is read, not skipped
        self._read_into = read_into
        self._size_bytes = size_bytes
        self._position = position  # in the file, of the first byte after this buffer

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Keep `data[at:stop]`, skip `skip_bytes` of the file and read on; return new (at, stop).

        Raises CorruptSegmentError if the file has become shorter, with `entry` as its valid bytes.
        """
        kept = stop - at
        self.data[:kept] = self.data[at:stop]
        self._position += skip_bytes
        room = min(len(self.data) - kept, self._size_bytes - self._position)
        if skip_bytes:
            room = min(room, AFTER_SKIP_BYTES)
        if room <= 0:
            return 0, kept
        count = self._read_into(self._position, self.data[kept : kept + room])
        if count == 0:
            raise shorter(self._position, self._size_bytes, entry)
        self.bytes_read += count
        self._position += count
        return 0, kept + count


class _Views:
    """Bytes that are already in memory, read in place."""

    def __init__(
        self, view_at: ViewAt, read_into: ReadInto, size_bytes: int, position: int
    ) -> None:
        """Walk over `size_bytes` from `position`; headers that cross two views are read again."""
        self.data = memoryview(b"")
        self.bytes_read = 0
        self.cheap_bytes = 0
        self._view_at = view_at
        self._read_into = read_into
        self._size_bytes = size_bytes
        self._start = position  # of `data` in the file

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Take the view that begins with the kept bytes; at its end a copy of them and more."""
        kept = stop - at
        before = self._start + stop
        self._start += at + skip_bytes
        left = self._size_bytes - self._start
        if left == kept:  # the file ends here
            return at, stop
        data = self._view_at(self._start)
        if len(data) <= kept:
            data = memoryview(read_fully(self._read_into, self._start, min(SEAM_BYTES, left)))
        if len(data) <= kept:
            raise shorter(self._start + len(data), self._size_bytes, entry)
        self.data = data[:left]
        self.bytes_read += self._start + len(self.data) - max(before, self._start)
        return 0, len(self.data)


def shorter(position: int, size_bytes: int, entry: int) -> CorruptSegmentError:
    """Return the error for a file that has become shorter since it was opened."""
    was = f"{size_bytes} bytes were there before"
    return CorruptSegmentError(f"the file ended at byte {position} while it was read, {was}", entry)


class BatchCrc:
    """Checks batches of one log; the first few in Python, because compiled code loads slowly."""

    def __init__(self) -> None:
        self._checked_bytes = 0

    def matches(self, source: SeekableBytes, header: BatchHeader) -> bool:
        """Return whether a batch's bytes match the CRC in its header."""
        begin = header.position + (LEGACY_CRC_START if header.magic < 2 else V2_CRC_START)
        value = 0
        for piece in pieces_of(source, begin, header.position + header.size_bytes):
            self._checked_bytes += len(piece)
            if header.magic < 2:
                value = crc32(value, piece, 0, len(piece))
            else:
                value = self._crc32c(value, piece)
        return value == header.crc & 0xFFFFFFFF

    def _crc32c(self, value: int, piece: bytes) -> int:
        if self._checked_bytes <= SMALL_BYTES:
            return crc32c(value, piece, 0, len(piece), None)
        data = np.frombuffer(piece, np.uint8)
        return int(compiled(with_crc32c)(value, data, crc32c_tables()))
