"""The bytes of an index file, without trailing zeros.

A broker preallocates the index files of its active segment, and a sparse file may have any size.
So zeros at the end are counted, not kept in memory.
"""

from collections.abc import Iterator
from typing import Final, Self

import numpy as np
import numpy.typing as npt

PIECE_ENTRIES: Final = 1 << 16


class IndexBytes:
    """A file's bytes: `kept` ends with the last byte that is not zero; `zeros` zeros follow."""

    __slots__ = ("kept", "zeros")

    def __init__(self, kept: bytes, zeros: int = 0) -> None:
        """Take the bytes and the number of zeros after them; `kept` may also end in zeros."""
        self.kept = kept.rstrip(b"\0")
        self.zeros = zeros + len(kept) - len(self.kept)

    @classmethod
    def of(cls, data: "bytes | IndexBytes") -> "IndexBytes":
        """Return `data` as IndexBytes."""
        return data if isinstance(data, IndexBytes) else cls(data)

    def __len__(self) -> int:
        """Return the file's size, zeros included."""
        return len(self.kept) + self.zeros

    def __eq__(self, other: object) -> bool:
        """Return whether the file has these bytes."""
        if isinstance(other, IndexBytes):
            return self.kept == other.kept and self.zeros == other.zeros
        if isinstance(other, bytes):
            return len(other) == len(self) and IndexBytes(other).kept == self.kept
        return NotImplemented

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash((self.kept, self.zeros))

    def __getitem__(self, part: slice) -> Self:
        """Return a slice, as `bytes` does."""
        start, stop, _ = part.indices(len(self))
        kept = self.kept[start:stop]
        return type(self)(kept, max(0, stop - start) - len(kept))

    def __bytes__(self) -> bytes:
        """Return all bytes."""
        return self.kept + bytes(self.zeros)

    @property
    def is_zeros(self) -> bool:
        """Return whether all bytes are zero."""
        return not self.kept

    def entries(self, entry_bytes: int) -> tuple[bytes, int]:
        """Return the complete entries up to and including the first zero entry of the trailing
        zeros, and how often that zero entry is repeated after it."""
        whole = len(self) // entry_bytes
        held = min(whole, -(-len(self.kept) // entry_bytes) + 1)
        data = self.kept[: held * entry_bytes]
        return data + bytes(held * entry_bytes - len(data)), whole - held


class IndexBytesBuilder:
    """Takes a file's bytes piece by piece; zeros that may be trailing are only counted."""

    def __init__(self) -> None:
        """Start an empty file."""
        self._kept = bytearray()
        self._zeros = 0

    def append(self, piece: bytes) -> None:
        """Take the next bytes."""
        stripped = piece.rstrip(b"\0")
        if stripped:
            self._kept += bytes(self._zeros)
            self._kept += stripped
            self._zeros = 0
        self._zeros += len(piece) - len(stripped)

    def built(self) -> IndexBytes:
        """Return the bytes of all pieces."""
        return IndexBytes(bytes(self._kept), self._zeros)


def pieces_of_entries(entries: npt.NDArray[np.void]) -> Iterator[npt.NDArray[np.void]]:
    """Yield the entries in pieces, to bound the memory of whatever is computed from them."""
    for start in range(0, len(entries), PIECE_ENTRIES):
        yield entries[start : start + PIECE_ENTRIES]
