"""Exact reads from bytes that arrive in pieces of any size: a file's ranges, a codec's chunks.

Memory is allocated only for bytes that were read, never for a length that a header claims.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeAlias

ReadInto: TypeAlias = Callable[[int, memoryview], int]
"""`(position, view) -> bytes read`: fills `view` from `position`; 0 only at the end."""

ViewAt: TypeAlias = Callable[[int], memoryview]
"""`position -> bytes from there on`, as many as are in memory; empty only at the end.

They stay unchanged until the next call.
"""


def read_fully(read_into: ReadInto, position: int, count: int) -> bytes:
    """Return `count` bytes from `position`, fewer only if the file ends first."""
    data = bytearray(count)
    done = fill_from(read_into, position, memoryview(data))
    return bytes(memoryview(data)[:done])


def fill_from(read_into: ReadInto, position: int, view: memoryview) -> int:
    """Fill `view` from `position`; return how many bytes, fewer only if the file ends first."""
    done = 0
    while done < len(view):
        more = read_into(position + done, view[done:])
        if more == 0:
            break
        done += more
    return done


def range_of(read_into: ReadInto, start: int, size_bytes: int) -> ReadInto:
    """Return a function that reads `size_bytes` bytes from `start`; its positions begin at 0."""

    def read_range(position: int, view: memoryview) -> int:
        room = size_bytes - position
        return read_into(start + position, view[:room]) if room > 0 else 0

    return read_range


PIECE_BYTES: Final = 256 * 1024


class PieceReader:
    """Exact reads from pieces of bytes of any size."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._piece = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer only at the end; allocates no more than it reads."""
        end = self._at + count
        if end <= len(self._piece):
            taken = self._piece[self._at : end]
            self._at = end
            return taken
        taken_so_far = io.BytesIO()  # grows in place and returns its bytes without a copy
        while count > 0 and self._more():
            part = self._piece[self._at : self._at + count]
            self._at += len(part)
            count -= len(part)
            taken_so_far.write(part)
        return taken_so_far.getvalue()

    def skip(self, count: int) -> bool:
        """Skip the next `count` bytes; return whether there were that many."""
        while count > 0 and self._more():
            step = min(count, len(self._piece) - self._at)
            self._at += step
            count -= step
        return count <= 0

    def ahead(self) -> tuple[bytes, int]:
        """Return the piece with the next byte and that byte's place in it, for `skip`."""
        self._more()
        return self._piece, self._at

    def at_end(self) -> bool:
        """Return whether all bytes were read."""
        return not self._more()

    def rest(self) -> Iterator[bytes]:
        """Yield the remaining bytes, in pieces."""
        while self._more():
            piece, self._piece = self._piece[self._at :], b""
            self._at = 0
            yield piece

    def _more(self) -> bool:
        while self._at == len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._piece, self._at = piece, 0
        return True


class Portion:
    """The next bytes of a reader, up to a size; bytes after them are not touched."""

    def __init__(self, reader: PieceReader, size: int) -> None:
        self._reader, self._left = reader, size

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer only at the end of the portion or of the reader."""
        data = self._reader.take(min(count, self._left))
        self._left -= len(data)
        return data

    def skip_rest(self) -> bool:
        """Skip the rest of the portion; return whether the reader had all of it."""
        left, self._left = self._left, 0
        return self._reader.skip(left)


class SeekableBytes(Protocol):
    """A binary file of Python or pyarrow that is open for reading."""

    def seek(self, position: int, /) -> object:
        """Go to a position."""

    def tell(self) -> int:
        """Return the position."""

    def read(self, count: int, /) -> bytes:
        """Return up to `count` bytes."""


def pieces_of(source: SeekableBytes, at: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `at` to `end`, fewer if the file ends; `source` may seek in between."""
    while at < end:
        source.seek(at)
        piece = source.read(min(PIECE_BYTES, end - at))
        if not piece:
            return
        at += len(piece)
        yield piece
