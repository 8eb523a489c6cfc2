"""The part of a segment that a scan has in memory: a buffer that is filled, or bytes in place.

A scan passes its window the first byte it has not used, and continues in the next bytes. A header
is read from one piece; if it crosses the end of a piece, that end is kept.
"""

from typing import Final, Protocol

import numpy as np

from kip33.errors import CorruptSegmentError
from kip33.formats.batch import RECORD_BATCH_OVERHEAD as LONGEST_HEADER_BYTES
from kip33.formats.byte_sources import ReadInto, ViewAt, read_fully

CHEAP_BYTES: Final = 1 << 16  # headers only: a body up to this size is read, not skipped
AFTER_SKIP_BYTES: Final = 4096  # headers only: bytes to read after a skipped body
SEAM_BYTES: Final = 4096  # bytes to read if a header crosses the end of a view


class Window(Protocol):
    """The bytes that `BatchScan` walks over: `data[at:stop]`, refilled after they are used."""

    data: memoryview
    bytes_read: int
    cheap_bytes: int  # a body up to this size is read faster than skipped

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Keep `data[at:stop]`, skip `skip_bytes` of the file and read on; return new (at, stop).

        Raises CorruptSegmentError if the file has become shorter, with `entry` as its valid bytes.
        """
        ...


class Buffer:
    """One buffer to read into; its unused bytes move to the front."""

    def __init__(self, read_into: ReadInto, size_bytes: int, chunk_bytes: int) -> None:
        """Read a file of `size_bytes` in pieces of at most `chunk_bytes`."""
        room = min(chunk_bytes, size_bytes + LONGEST_HEADER_BYTES)
        self.data = np.empty(room, np.uint8).data  # not zeroed: bytes are written first
        self.bytes_read = 0
        self.cheap_bytes = min(chunk_bytes, CHEAP_BYTES)
        self._read_into = read_into
        self._size_bytes = size_bytes
        self._position = 0  # in the file, of the first byte after this buffer

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Move the kept bytes to the front and read on after them."""
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


class Views:
    """Bytes that are already in memory, read in place."""

    def __init__(self, view_at: ViewAt, read_into: ReadInto, size_bytes: int) -> None:
        """Walk over a file of `size_bytes`; `read_into` reads headers that cross two views."""
        self.data = memoryview(b"")
        self.bytes_read = 0
        self.cheap_bytes = 0
        self._view_at = view_at
        self._read_into = read_into
        self._size_bytes = size_bytes
        self._start = 0  # of `data` in the file

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
