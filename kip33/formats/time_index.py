"""The `.timeindex` and the `.index` of a segment: one big-endian entry after another.

A TIME_ENTRY of the `.timeindex` has the max timestamp so far, in ms since epoch, and an offset
minus the base offset in the file name. An entry (T, o) says: any record in this segment later than
T comes after offset o. Timestamps grow strictly, offsets never fall.
Kafka: `TimeIndex` (0.10.1 to 4.x).

An OFFSET_ENTRY of the `.index` has such an offset and the position of a batch's first byte in the
`.log`. An entry (o, p) says: records after offset o do not begin before position p; to find offset
o or a later one, read from p. Offsets and positions grow strictly. Since Kafka 2.0 o is the last
offset of the batch at p; until 3.9 and 4.0, of the last batch of the append that began at p. Before
2.0 it was the first offset; of a compressed set of v0 or v1, the first inside.
Kafka: `OffsetIndex` (0.8 to 4.x).

Neither file has a header or a checksum; a damaged one is rebuilt. A broker preallocates the files
of the active segment, so a live copy may end in zero bytes or, after a follower truncated its log,
in stale entries. A sparse file may have any size: `IndexBytes` counts the zeros at the end and does
not keep them in memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptIndexError, IndexOffsetOverflowError, counted
from kip33.formats.batch import MAX_INT32, NO_TIMESTAMP
from kip33.formats.crc import crc32c, with_crc32c
from kip33.formats.native import compiled, crc32c_tables, is_loaded
from kip33.formats.times import Time, milliseconds_of

TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TIME_ENTRY_BYTES: Final = 12
OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
OFFSET_ENTRY_BYTES: Final = 8
PIECE_ENTRIES: Final = 1 << 16
# The index of a log of 1 MiB is smaller: neither needs compiled code.
_PLAIN_INDEX_BYTES: Final = 4096
_FEW_BYTES: Final = 32  # compiled code begins in the time that plain code needs for these


_Bools: TypeAlias = npt.NDArray[np.bool_]
_IsValid: TypeAlias = Callable[[Any], _Bools]
_Follows: TypeAlias = Callable[[Any, Any], _Bools]
_Entry_co = TypeVar("_Entry_co", bound=tuple[int, ...], covariant=True)


@dataclass(frozen=True, eq=False, repr=False)
class IndexEntries(Generic[_Entry_co]):
    """The entries of an index file; equal to others of its kind with the same base and bytes."""

    base_offset: int
    entries: npt.NDArray[np.void]
    form: ClassVar[np.dtype[np.void]]

    @classmethod
    def from_bytes(cls, data: bytes, *, base_offset: int) -> Self:
        """Return the entries of the file unchanged, in any order and without checks.

        Raises `CorruptIndexError` when `data` ends inside an entry.

        >>> wire = bytes.fromhex("0000018bcfe568fa 00000001")
        >>> TimeIndex.from_bytes(wire, base_offset=100).last_entry
        TimestampOffset(timestamp=1700000000250, offset=101)
        """
        if len(data) % cls.form.itemsize:
            raise CorruptIndexError(
                f"{counted(len(data), 'byte')} found, expected a multiple of {cls.form.itemsize}"
            )
        return cls(base_offset, np.frombuffer(data, cls.form))

    def to_bytes(self) -> bytes:
        """Return the bytes of the file, without any preallocated tail."""
        return self.entries.tobytes()

    def _entry_of(self, *numbers: int) -> _Entry_co:
        raise NotImplementedError

    def _first(self, count: int) -> Self:
        return type(self)(self.base_offset, self.entries[:count])

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[_Entry_co]:
        """Yield the entries with absolute offsets."""
        for start in range(0, len(self.entries), PIECE_ENTRIES):
            for numbers in self.entries[start : start + PIECE_ENTRIES].tolist():
                yield self._entry_of(*numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.base_offset == other.base_offset and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash((self.base_offset, self.to_bytes()))

    def __repr__(self) -> str:
        """Return base offset and length: a file may have 1310720 entries."""
        return f"<{type(self).__name__} base_offset={self.base_offset} entries={len(self)}>"


class _RelativeEntries(IndexEntries[_Entry_co]):
    """Entries with relative offsets that do not fall."""

    none: ClassVar[tuple[int, ...]]  # the numbers of an entry before the first

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the absolute offsets as native int64, a copy."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @property
    def last_entry(self) -> _Entry_co:
        """Return the last entry, of an empty index what a lookup before the first one gives."""
        return self._entry(len(self) - 1)

    def truncate_to(self, offset: int) -> Self:
        """Return the index with only the entries whose offset is < `offset`: Kafka's truncateTo."""
        return self._first(bisect_left(self.entries["relative_offset"], offset - self.base_offset))

    def _entry(self, slot: int) -> _Entry_co:
        return self._entry_of(*(self.none if slot < 0 else self.entries[slot].item()))

    def _most_relative(self, last_offset: int | None) -> int:
        return MAX_INT32 if last_offset is None else last_offset - self.base_offset

    def _longest_run(self, is_valid: _IsValid, follows: _Follows) -> Self:
        """Return the entries before the first that is not valid, or does not follow its neighbour.

        They are taken in pieces, to bound the memory of whatever is computed from them.
        """
        for start in range(0, len(self), PIECE_ENTRIES):
            piece = self.entries[start : start + PIECE_ENTRIES]
            good = is_valid(piece)
            good[1:] &= follows(piece[:-1], piece[1:])
            if start:
                good[:1] &= follows(self.entries[start - 1 : start], piece[:1])
            if not good.all():
                return self._first(start + int(good.argmin()))
        return self

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} {self.last_entry}>"


class TimestampOffset(NamedTuple):
    """One entry: ms since epoch, absolute offset."""

    timestamp: int
    offset: int


class TimeIndex(_RelativeEntries[TimestampOffset]):
    """The entries of one `.timeindex`."""

    form = TIME_ENTRY
    none = (NO_TIMESTAMP, 0)

    @classmethod
    def from_columns(
        cls,
        timestamps: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        *,
        base_offset: int,
    ) -> Self:
        """Return the index of timestamps and absolute offsets, in the order given.

        Raises `IndexOffsetOverflowError` if an offset is not within 2^31 - 1 of the base.
        """
        _require_relative(offsets, base_offset)
        return cls(base_offset, entries_of(TIME_ENTRY, timestamps, offsets - base_offset))

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[int, int]], *, base_offset: int) -> Self:
        """Return the index of (timestamp, absolute offset) pairs; errors as `from_columns`."""
        pairs = np.array(list(entries), np.int64).reshape(-1, 2)
        return cls.from_columns(pairs[:, 0], pairs[:, 1], base_offset=base_offset)

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """Return the timestamps as native int64, a copy."""
        return self.entries["timestamp"].astype(np.int64)

    def lookup(self, time: Time) -> TimestampOffset:
        """Return the last entry whose timestamp is <= `time`, ms or an aware `datetime`.

        Before the first entry the answer is `(NO_TIMESTAMP, base_offset)`: scan from the start.

        >>> index = TimeIndex.from_bytes(bytes.fromhex("0000018bcfe5680000000007"), base_offset=100)
        >>> index.lookup(1_700_000_000_002)
        TimestampOffset(timestamp=1700000000000, offset=107)
        """
        return self._entry(bisect_right(self.entries["timestamp"], milliseconds_of(time)) - 1)

    def lookup_before(self, time: Time) -> TimestampOffset:
        """Return the last entry whose timestamp is < `time`, otherwise as `lookup`.

        The dialect of KIP-33's text needs this, because its entries name the next offset. So does a
        search that must not miss an earlier record of the batch whose last offset an entry names.
        """
        return self._entry(bisect_left(self.entries["timestamp"], milliseconds_of(time)) - 1)

    def without_tail(self, *, last_offset: int | None = None) -> Self:
        """Return the index without the trailing zeros or stale entries of a running broker's file.

        It keeps the longest run from the start in which timestamps grow strictly from 0, offsets do
        not fall, and offsets are <= `last_offset`, the log's last. Stale entries may also grow, so
        only `last_offset` detects them. A file of zeros is padding; one zero entry alone is valid.
        """
        if len(self) > 1 and self.entries["timestamp"][0] == self.entries["timestamp"][1] == 0:
            return self._first(0)
        most = self._most_relative(last_offset)

        def is_valid(piece: Any) -> _Bools:
            times, relative = piece["timestamp"], piece["relative_offset"]
            return np.asarray((times > NO_TIMESTAMP) & (relative >= 0) & (relative <= most))

        def follows(before: Any, after: Any) -> _Bools:
            grows = after["timestamp"] > before["timestamp"]
            return np.asarray(grows & (after["relative_offset"] >= before["relative_offset"]))

        return self._longest_run(is_valid, follows)

    def sanity_check(self) -> None:
        """Raise `CorruptIndexError` where Kafka's sanityCheck does: it checks only both ends."""
        if not len(self):
            return
        first, last = self._entry(0), self.last_entry
        if last.timestamp < first.timestamp:
            raise CorruptIndexError(
                f"last timestamp {last.timestamp} is before the first, {first.timestamp}"
            )
        _require_above_base(last.offset, self.base_offset)

    def _entry_of(self, *numbers: int) -> TimestampOffset:
        return TimestampOffset(numbers[0], self.base_offset + numbers[1])


class OffsetPosition(NamedTuple):
    """One entry: absolute offset, bytes from the start of the `.log`."""

    offset: int
    position: int


class OffsetIndex(_RelativeEntries[OffsetPosition]):
    """The entries of one `.index`."""

    form = OFFSET_ENTRY
    none = (0, 0)

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
        _require_relative(offsets, base_offset)
        if len(positions) and (positions.min() < 0 or positions.max() > MAX_INT32):
            raise ValueError("a position is not a non-negative int32")
        return cls(base_offset, entries_of(OFFSET_ENTRY, offsets - base_offset, positions))

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[int, int]], *, base_offset: int) -> Self:
        """Return the index of (absolute offset, position) pairs; errors as `from_columns`."""
        pairs = np.array(list(entries), np.int64).reshape(-1, 2)
        return cls.from_columns(pairs[:, 0], pairs[:, 1], base_offset=base_offset)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Return the positions as native int64, a copy."""
        return self.entries["position"].astype(np.int64)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is <= `offset`, else `(base_offset, 0)`.

        The batch with `offset` begins at the entry's position or later.

        >>> index = OffsetIndex.from_bytes(bytes.fromhex("00000002000000c4"), base_offset=100)
        >>> index.lookup(101), index.lookup(103)
        (OffsetPosition(offset=100, position=0), OffsetPosition(offset=102, position=196))
        """
        slot = bisect_right(self.entries["relative_offset"], offset - self.base_offset) - 1
        return self._entry(slot)

    def without_tail(
        self, *, last_offset: int | None = None, size_bytes: int | None = None
    ) -> Self:
        """Return the index without the trailing zeros or stale entries of a running broker's file.

        It keeps the longest run from the start in which offsets and positions grow strictly,
        offsets are <= `last_offset` and positions are < `size_bytes`, the size of the log. No
        broker writes an entry for position 0, so a leading zero entry is padding.
        """
        most = self._most_relative(last_offset)
        end = MAX_INT32 + 1 if size_bytes is None else size_bytes

        def is_valid(piece: Any) -> _Bools:
            relative, positions = piece["relative_offset"], piece["position"]
            is_there = (relative >= 0) & (relative <= most)
            return np.asarray(is_there & (positions > 0) & (positions < end))

        def follows(before: Any, after: Any) -> _Bools:
            grows = after["relative_offset"] > before["relative_offset"]
            return np.asarray(grows & (after["position"] > before["position"]))

        return self._longest_run(is_valid, follows)

    def sanity_check(self) -> None:
        """Raise `CorruptIndexError` where Kafka's sanityCheck does: it checks the end only."""
        _require_above_base(self.last_entry.offset, self.base_offset)

    def _entry_of(self, *numbers: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + numbers[0], numbers[1])


def entries_of(form: np.dtype[np.void], *columns: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Return entries of numbers in a file's form; they cannot be changed."""
    entries = np.empty(len(columns[0]), form)
    for name, column in zip(form.names or (), columns, strict=True):
        entries[name] = column
    entries.setflags(write=False)
    return entries


def _require_above_base(last_offset: int, base_offset: int) -> None:
    if last_offset < base_offset:
        raise CorruptIndexError(f"last offset {last_offset} is below the base offset {base_offset}")


def _require_relative(offsets: npt.NDArray[np.int64], base_offset: int) -> None:
    """Raise IndexOffsetOverflowError for an offset that no entry can hold."""
    if not len(offsets):
        return
    # Python integers, because the difference of two int64 may overflow.
    for offset in (int(offsets.min()), int(offsets.max())):
        if not 0 <= offset - base_offset <= MAX_INT32:
            raise IndexOffsetOverflowError(
                f"offset {offset} has no int32 form relative to base offset {base_offset}"
            )


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
        if isinstance(other, IndexBytes):
            return self.kept == other.kept and self.zeros == other.zeros
        if isinstance(other, bytes):
            return len(other) == len(self) and IndexBytes(other).kept == self.kept
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.kept, self.zeros))

    def __getitem__(self, part: slice) -> Self:
        start, stop, _ = part.indices(len(self))
        kept = self.kept[start:stop]
        return type(self)(kept, max(0, stop - start) - len(kept))

    def __bytes__(self) -> bytes:
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


def index_crc32c(data: bytes, value: int = 0, *, native: bool | None = None) -> int:
    """Return the CRC-32C `value` with `data` added; 0 to 2^32 - 1.

    `native`: whether compiled code is used; None: for more than a few KiB, or, if it is loaded, for
    more than a few bytes.

    >>> hex(index_crc32c(b"123456789"))
    '0xe3069283'
    """
    if native is None:
        native = len(data) > (_FEW_BYTES if is_loaded() else _PLAIN_INDEX_BYTES)
    if not native:
        return crc32c(value, data, 0, len(data), None)
    array = np.frombuffer(data, np.uint8)
    return int(compiled(with_crc32c)(value, array, crc32c_tables()))
