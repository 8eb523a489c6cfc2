"""The `.index` file: one 8-byte big-endian entry after another.

    bytes   field             type    meaning
    0..3    relative offset   int32   offset minus the base offset in the file name
    4..7    position          int32   of a batch's first byte in the .log

An entry (o, p) says: records after offset o do not begin before position p; to find offset o or a
later one, read from p. Offsets and positions grow strictly. No header, no checksum.
Since Kafka 2.0 o is the last offset of the batch at p; until 3.9 and 4.0, of the last batch of the
append that began at p. Before 2.0 it was the first offset; of a compressed set of v0 or v1, the
first inside. A live copy ends in zeros or stale entries.
Kafka: `OffsetIndex` (0.8 to 4.x).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptIndexError, IndexOffsetOverflowError
from kip33.formats.index_bytes import pieces_of_entries

OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
OFFSET_ENTRY_BYTES: Final = 8
OFFSET_INDEX_PREALLOCATED_BYTES: Final = (
    10485760  # file size for an active segment: the default of segment.index.bytes
)
_MAX_INT32: Final = 2**31 - 1


class OffsetPosition(NamedTuple):
    """One entry: absolute offset, bytes from the start of the `.log`."""

    offset: int
    position: int


@dataclass(frozen=True, eq=False, repr=False)
class OffsetIndex:
    """The entries of one `.index`; equal to another with the same base offset and bytes."""

    base_offset: int
    entries: npt.NDArray[np.void]

    @classmethod
    def from_bytes(cls, data: bytes, *, base_offset: int) -> Self:
        """Return the entries of the file unchanged, in any order and without checks.

        Raises `CorruptIndexError` when `data` ends inside an entry.

        >>> OffsetIndex.from_bytes(bytes.fromhex("00000002 000000c4"), base_offset=100).last_entry
        OffsetPosition(offset=102, position=196)
        """
        if len(data) % OFFSET_ENTRY_BYTES:
            raise CorruptIndexError(
                f"{len(data)} bytes found, expected a multiple of {OFFSET_ENTRY_BYTES}"
            )
        return cls(base_offset, np.frombuffer(data, OFFSET_ENTRY))

    @classmethod
    def from_columns(
        cls,
        offsets: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        *,
        base_offset: int,
    ) -> Self:
        """Return the index of absolute offsets and positions, in the order given.

        Raises `IndexOffsetOverflowError` if an offset is not within 2^31 - 1 of the base, and
        `ValueError` for a position outside int32, which no segment has.
        """
        if len(offsets):
            # Python integers, because the difference of two int64 may overflow.
            for offset in (int(offsets.min()), int(offsets.max())):
                if not 0 <= offset - base_offset <= _MAX_INT32:
                    raise IndexOffsetOverflowError(
                        f"offset {offset} has no int32 form relative to base offset {base_offset}"
                    )
            if positions.min() < 0 or positions.max() > _MAX_INT32:
                raise ValueError("a position is not a non-negative int32")
        entries = np.empty(len(offsets), OFFSET_ENTRY)
        entries["relative_offset"] = offsets - base_offset
        entries["position"] = positions
        entries.setflags(write=False)
        return cls(base_offset, entries)

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[int, int]], *, base_offset: int) -> Self:
        """Return the index of (absolute offset, position) pairs; errors as `from_columns`."""
        pairs = np.array(list(entries), np.int64).reshape(-1, 2)
        return cls.from_columns(pairs[:, 0], pairs[:, 1], base_offset=base_offset)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file, without any preallocated tail."""
        return self.entries.tobytes()

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the absolute offsets as native int64, a copy."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Return the positions as native int64, a copy."""
        return self.entries["position"].astype(np.int64)

    @property
    def last_entry(self) -> OffsetPosition:
        """Return the last entry, of an empty index `(base_offset, 0)`."""
        return self._entry(len(self) - 1)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is <= `offset`, else `(base_offset, 0)`.

        The batch with `offset` begins at the entry's position or later.

        >>> index = OffsetIndex.from_bytes(bytes.fromhex("00000002000000c4"), base_offset=100)
        >>> index.lookup(101), index.lookup(103)
        (OffsetPosition(offset=100, position=0), OffsetPosition(offset=102, position=196))
        """
        slot = bisect_right(self.entries["relative_offset"], offset - self.base_offset) - 1
        return self._entry(slot)

    def truncate_to(self, offset: int) -> Self:
        """Return the index with only the entries whose offset is < `offset`: Kafka's truncateTo."""
        kept = bisect_left(self.entries["relative_offset"], offset - self.base_offset)
        return type(self)(self.base_offset, self.entries[:kept])

    def without_tail(
        self, *, last_offset: int | None = None, size_bytes: int | None = None
    ) -> Self:
        """Return the index without the trailing zeros or stale entries of a running broker's file.

        It keeps the longest run from the start in which offsets and positions grow strictly,
        offsets are <= `last_offset` and positions are < `size_bytes`, the size of the log. No
        broker writes an entry for position 0, so a leading zero entry is padding.
        """
        kept = 0
        for piece in pieces_of_entries(self.entries):
            relative, positions = (piece[name].astype(np.int64) for name in piece.dtype.names or ())
            good = (relative >= 0) & (positions > 0)
            good[1:] &= (relative[1:] > relative[:-1]) & (positions[1:] > positions[:-1])
            if kept:
                before = self.entries[kept - 1]
                good[0] &= relative[0] > before["relative_offset"]
                good[0] &= positions[0] > before["position"]
            if last_offset is not None:
                good &= relative <= last_offset - self.base_offset
            if size_bytes is not None:
                good &= positions < size_bytes
            if not good.all():
                kept += int(good.argmin())
                break
            kept += len(piece)
        return type(self)(self.base_offset, self.entries[:kept])

    def sanity_check(self) -> None:
        """Raise `CorruptIndexError` where Kafka's sanityCheck does: it checks the end only."""
        if self.last_entry.offset < self.base_offset:
            raise CorruptIndexError(
                f"last offset {self.last_entry.offset} is below the base offset {self.base_offset}"
            )

    def _entry(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self.entries[slot].item()
        return OffsetPosition(self.base_offset + relative, position)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def __iter__(self) -> Iterator[OffsetPosition]:
        """Yield the entries with absolute offsets."""
        for piece in pieces_of_entries(self.entries):
            for relative, position in piece.tolist():
                yield OffsetPosition(self.base_offset + relative, position)

    def __eq__(self, other: object) -> bool:
        """Return whether base offset and bytes are the same."""
        if not isinstance(other, OffsetIndex):
            return NotImplemented
        return self.base_offset == other.base_offset and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash((self.base_offset, self.to_bytes()))

    def __repr__(self) -> str:
        """Return base offset, length and last entry: a file may have 1310720 entries."""
        return f"<OffsetIndex base_offset={self.base_offset} entries={len(self)} {self.last_entry}>"
