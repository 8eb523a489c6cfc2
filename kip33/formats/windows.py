"""The part of a segment that a scan has in memory: a buffer that is filled, or bytes in place.

A scan asks its window for more with the first byte it has not used, and goes on in what comes.
Headers are read from one piece; where one lies across the end of a piece, that end is kept.
"""

from typing import Final, Protocol

import numpy as np

from kip33.errors import CorruptSegmentError
from kip33.formats.batch import RECORD_BATCH_OVERHEAD as LONGEST_HEADER_BYTES
from kip33.formats.byte_sources import ReadInto, ViewAt, read_fully

CHEAP_BYTES: Final = 1 << 16  # headers only: a body of so many is read, not passed over
AFTER_SKIP_BYTES: Final = 4096  # headers only: what is read behind a body that was passed over
SEAM_BYTES: Final = 4096  # read where a header lies across the end of a view


class Window(Protocol):
    """What `BatchScan` walks over: `data[at:stop]`, and more when that is used up."""

    data: memoryview
    bytes_read: int
    cheap_bytes: int  # of a body: so much is read sooner than passed over

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Keep `data[at:stop]`, pass over `skip_bytes` of the file, read on; return new borders.

        CorruptSegmentError where the file has become shorter; `entry` is what it names as valid.
        """
        ...


class Buffer:
    """One buffer that is read into; what is left of it moves to the front."""

    def __init__(self, read_into: ReadInto, size_bytes: int, chunk_bytes: int) -> None:
        """Read a file of `size_bytes` in pieces of at most `chunk_bytes`."""
        room = min(chunk_bytes, size_bytes + LONGEST_HEADER_BYTES)
        self.data = np.empty(room, np.uint8).data  # no time for zeros that nobody reads
        self.bytes_read = 0
        self.cheap_bytes = min(chunk_bytes, CHEAP_BYTES)
        self._read_into = read_into
        self._size_bytes = size_bytes
        self._position = 0  # in the file, of the byte behind the last one here

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Move what is kept to the front and read on behind it."""
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
    """Bytes that lie in memory already, walked over in place."""

    def __init__(self, view_at: ViewAt, read_into: ReadInto, size_bytes: int) -> None:
        """Walk over a file of `size_bytes`; `read_into` is for the seams between two views."""
        self.data = memoryview(b"")
        self.bytes_read = 0
        self.cheap_bytes = 0
        self._view_at = view_at
        self._read_into = read_into
        self._size_bytes = size_bytes
        self._start = 0  # of `data` in the file

    def refill(self, at: int, stop: int, skip_bytes: int, entry: int) -> tuple[int, int]:
        """Take the view that begins with what is kept; a copy of it and more at its end."""
        kept = stop - at
        before = self._start + stop
        self._start += at + skip_bytes
        left = self._size_bytes - self._start
        if left == kept:  # nothing comes after what is here
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
    """Return the error of a file that ends earlier than it did when it was opened."""
    was = f"{size_bytes} bytes were there before"
    return CorruptSegmentError(f"the file ended at byte {position} while it was read, {was}", entry)
