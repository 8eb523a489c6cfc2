"""A segment's batches as columns, read in chunks of constant size.

`BatchScan` does no I/O of its own: it asks `read_into(position, view)` for bytes, so a local file,
an object store and a test that answers one byte at a time feed the same code. It yields rows of
`batch.BATCH`, at most ROWS at a time, and knows afterwards where and why it stopped.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from kip33.errors import CorruptSegmentError
from kip33.formats import markers, walk
from kip33.formats.batch import BATCH, BatchColumns, BatchHeader, decode_header
from kip33.formats.batch import RECORD_BATCH_OVERHEAD as LONGEST_HEADER_BYTES

ReadInto: TypeAlias = Callable[[int, memoryview], int]
"""`(position, view) -> bytes read`: fills `view` from `position` on; 0 only at the end."""

ROWS: Final = 4096
CHUNK_BYTES: Final = 1 << 18
AFTER_SKIP_BYTES: Final = 4096  # headers only: what is read behind a body that was passed over
SMALL_BYTES: Final = 1 << 20  # up to here the plain walk is done before numba is imported


class BatchScan:
    """One pass over one segment; iterate once, then ask how it ended.

    After the iteration `valid_bytes` is the length of the whole, valid batches, `damage` one line
    on why the rest is none (None where the file ends with a batch), and `load_failure` one line
    where Kafka 4.1 would refuse to load the log, `first_batch`/`bytes_read` what they say.
    """

    def __init__(
        self,
        read_into: ReadInto,
        size_bytes: int,
        *,
        check_crc: bool = True,
        seek_max_record: bool = False,
        native: bool | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        rows: int = ROWS,
    ) -> None:
        """Prepare to scan `size_bytes`, the file's size when it was opened.

        `seek_max_record` fills `offset_of_max_timestamp` with the first record that bears the
        batch's max (uncompressed CreateTime v2 batches only). `native` chooses compiled code or
        the plain walk; None: by size.
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
        self._rows = rows

    def __iter__(self) -> Iterator[BatchColumns]:
        """Yield the batches in order; each array is reused for the next, so copy what must stay."""
        buffer = bytearray(min(self._chunk_bytes, self.size_bytes + LONGEST_HEADER_BYTES))
        view = memoryview(buffer)
        columns = np.zeros(self._rows, BATCH)
        state = np.zeros(1, walk.STATE)
        state["end"] = self.size_bytes
        advance = self._walker(buffer, columns, state)
        at = stop = position = 0  # position: of buffer[stop] in the file
        while True:
            why, at = advance(at, stop)
            if why == walk.MORE:
                kept = stop - at
                view[:kept] = view[at:stop]
                body_bytes = int(state["remaining_bytes"][0]) if state["inside"][0] else 0
                room = len(view) - kept
                if not self._check_crc and not self._seek_wanted(state) and body_bytes > room:
                    position += body_bytes
                    state["remaining_bytes"] = 0
                    room = min(room, AFTER_SKIP_BYTES)
                room = min(room, self.size_bytes - position)
                count = self._read_into(position, view[kept : kept + room]) if room else 0
                if count == 0 and room:
                    raise CorruptSegmentError(
                        f"the file ended at byte {position} while it was read, "
                        f"{self.size_bytes} bytes were there before",
                        int(state["entry"][0]),
                    )
                self.bytes_read += count
                position += count
                at, stop = 0, kept + count
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

    def _walker(
        self, buffer: bytearray, columns: BatchColumns, state: BatchColumns
    ) -> Callable[[int, int], tuple[int, int]]:
        """Return the walk over `buffer`, compiled or plain, with all but the range bound."""
        check, seek = self._check_crc, self._seek
        if not self.native:
            view = memoryview(buffer)
            return lambda at, stop: walk.walk(view, at, stop, state, columns, check, seek, None)
        from kip33.formats import native  # numba: half a second that small files need not pay

        data = np.frombuffer(buffer, np.uint8)
        tables = native.crc32c_tables()
        function = native.compiled(walk.walk)
        return lambda at, stop: function(data, at, stop, state, columns, check, seek, tables)

    @staticmethod
    def _seek_wanted(state: BatchColumns) -> bool:
        return bool(state["seeks_record"][0])

    def _look_at_marker(self, row: np.void) -> bool:
        """Read a control batch that is no plain marker; return whether the scan ends after it."""
        verdict = markers.read_marker(self._read_into, row)
        row["control"] = verdict.control
        if verdict.control == markers.STOPS:
            self.damage = verdict.message
        elif verdict.control == markers.FAILS:
            self.load_failure = verdict.message
        return verdict.control in (markers.STOPS, markers.FAILS)

    def _end(self, why: int, entry: int) -> None:
        self.valid_bytes = entry
        left = self.size_bytes - entry
        if why == walk.MARKER or (why == walk.END and left == 0):
            return
        reason = {
            walk.END: f"{left} bytes are left, too few for a batch header",
            walk.TORN: "the batch's size points past the end of the file",
            walk.SIZE_TOO_SMALL: "the size field is smaller than any batch",
            walk.BAD_CRC: "the batch's bytes do not match its CRC",
        }[why]
        self.damage = f"at byte {entry} of {self.size_bytes}: {reason}"


def read_header_at(read_into: ReadInto, position: int) -> BatchHeader:
    """Return the header in full of the batch that the walk found at `position`."""
    data = bytearray(LONGEST_HEADER_BYTES)
    count = 0
    while count < len(data):
        more = read_into(position + count, memoryview(data)[count:])
        if more == 0:
            break
        count += more
    return decode_header(bytes(data), position)
