"""The `.timeindex` file: one 12-byte big-endian entry after another.

    bytes   field             type    meaning
    0..7    timestamp         int64   max timestamp so far, ms since epoch
    8..11   relative offset   int32   offset minus the base offset in the file name

An entry (T, o) says: any record in this segment later than T comes after offset o.
Timestamps grow strictly, offsets never fall. No header, no checksum; a damaged file is rebuilt.
A broker preallocates the active segment's file, so a live copy may end in zero bytes or, after a
follower truncated its log, in stale entries. Kafka: `TimeIndex` (0.10.1 to 4.x).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptIndexError, IndexOffsetOverflowError
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_bytes import pieces_of_entries
from kip33.formats.times import Time, milliseconds_of

TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TIME_ENTRY_BYTES: Final = 12
TIME_INDEX_PREALLOCATED_BYTES: Final = (
    10485756  # file size for an active segment: segment.index.bytes, complete entries
)
_MAX_INT32: Final = 2**31 - 1


class TimestampOffset(NamedTuple):
    """One entry: ms since epoch, absolute offset."""

    timestamp: int
    offset: int


@dataclass(frozen=True, eq=False, repr=False)
class TimeIndex:
    """The entries of one `.timeindex`; equal to another with the same base offset and bytes."""

    base_offset: int
    entries: npt.NDArray[np.void]

    @classmethod
    def from_bytes(cls, data: bytes, *, base_offset: int) -> Self:
        """Return the entries of the file unchanged, in any order and without checks.

        Raises `CorruptIndexError` when `data` ends inside an entry.

        >>> wire = bytes.fromhex("0000018bcfe568fa 00000001")
        >>> TimeIndex.from_bytes(wire, base_offset=100).last_entry
        TimestampOffset(timestamp=1700000000250, offset=101)
        """
        if len(data) % TIME_ENTRY_BYTES:
            raise CorruptIndexError(
                f"{len(data)} bytes found, expected a multiple of {TIME_ENTRY_BYTES}"
            )
        return cls(base_offset, np.frombuffer(data, TIME_ENTRY))

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
        if len(offsets):
            # Python integers, because the difference of two int64 may overflow.
            for offset in (int(offsets.min()), int(offsets.max())):
                if not 0 <= offset - base_offset <= _MAX_INT32:
                    raise IndexOffsetOverflowError(
                        f"offset {offset} has no int32 form relative to base offset {base_offset}"
                    )
        entries = np.empty(len(timestamps), TIME_ENTRY)
        entries["timestamp"] = timestamps
        entries["relative_offset"] = offsets - base_offset
        entries.setflags(write=False)
        return cls(base_offset, entries)

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[int, int]], *, base_offset: int) -> Self:
        """Return the index of (timestamp, absolute offset) pairs; errors as `from_columns`."""
        pairs = np.array(list(entries), np.int64).reshape(-1, 2)
        return cls.from_columns(pairs[:, 0], pairs[:, 1], base_offset=base_offset)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file, without any preallocated tail."""
        return self.entries.tobytes()

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """Return the timestamps as native int64, a copy."""
        return self.entries["timestamp"].astype(np.int64)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the absolute offsets as native int64, a copy."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    @property
    def last_entry(self) -> TimestampOffset:
        """Return the last entry, of an empty index `(NO_TIMESTAMP, base_offset)`."""
        return self._entry(len(self) - 1)

    def lookup(self, time: Time) -> TimestampOffset:
        """Return the last entry whose timestamp is <= `time`, ms or an aware `datetime`.

        Before the first entry the answer is `(NO_TIMESTAMP, base_offset)`: scan from the start.

        >>> index = TimeIndex.from_bytes(bytes.fromhex("000000000000000a00000007"), base_offset=100)
        >>> index.lookup(12)
        TimestampOffset(timestamp=10, offset=107)
        """
        return self._entry(bisect_right(self.entries["timestamp"], milliseconds_of(time)) - 1)

    def lookup_before(self, time: Time) -> TimestampOffset:
        """Return the last entry whose timestamp is < `time`, otherwise as `lookup`.

        The dialect of KIP-33's text needs this, because its entries name the next offset. So does a
        search that must not miss an earlier record of the batch whose last offset an entry names.
        """
        return self._entry(bisect_left(self.entries["timestamp"], milliseconds_of(time)) - 1)

    def truncate_to(self, offset: int) -> Self:
        """Return the index with only the entries whose offset is < `offset`: Kafka's truncateTo."""
        kept = bisect_left(self.entries["relative_offset"], offset - self.base_offset)
        return type(self)(self.base_offset, self.entries[:kept])

    def without_tail(self, *, last_offset: int | None = None) -> Self:
        """Return the index without the trailing zeros or stale entries of a running broker's file.

        It keeps the longest run from the start in which timestamps grow strictly from 0, offsets do
        not fall, and offsets are <= `last_offset`, the log's last. Stale entries may also grow, so
        only `last_offset` detects them. A file of zeros is padding; one zero entry alone is valid.
        """
        if len(self) > 1 and self.entries["timestamp"][0] == self.entries["timestamp"][1] == 0:
            return type(self)(self.base_offset, self.entries[:0])
        kept = 0
        for piece in pieces_of_entries(self.entries):
            times, relative = piece["timestamp"], piece["relative_offset"].astype(np.int64)
            good = (times > NO_TIMESTAMP) & (relative >= 0)
            good[1:] &= (times[1:] > times[:-1]) & (relative[1:] >= relative[:-1])
            if kept:
                before = self.entries[kept - 1]
                good[0] &= times[0] > before["timestamp"]
                good[0] &= relative[0] >= before["relative_offset"]
            if last_offset is not None:
                good &= relative <= last_offset - self.base_offset
            if not good.all():
                kept += int(good.argmin())
                break
            kept += len(piece)
        return type(self)(self.base_offset, self.entries[:kept])

    def sanity_check(self) -> None:
        """Raise `CorruptIndexError` where Kafka's sanityCheck does: it checks only both ends."""
        if not len(self):
            return
        first, last = self._entry(0), self.last_entry
        if last.timestamp < first.timestamp:
            raise CorruptIndexError(
                f"last timestamp {last.timestamp} is before the first, {first.timestamp}"
            )
        if last.offset < self.base_offset:
            raise CorruptIndexError(
                f"last offset {last.offset} is below the base offset {self.base_offset}"
            )

    def _entry(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self.entries[slot].item()
        return TimestampOffset(timestamp, self.base_offset + relative)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def __iter__(self) -> Iterator[TimestampOffset]:
        """Yield the entries with absolute offsets."""
        for piece in pieces_of_entries(self.entries):
            for timestamp, relative in piece.tolist():
                yield TimestampOffset(timestamp, self.base_offset + relative)

    def __eq__(self, other: object) -> bool:
        """Return whether base offset and bytes are the same."""
        if not isinstance(other, TimeIndex):
            return NotImplemented
        return self.base_offset == other.base_offset and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash((self.base_offset, self.to_bytes()))

    def __repr__(self) -> str:
        """Return base offset, length and last entry: a file may have 873813 entries."""
        return f"<TimeIndex base_offset={self.base_offset} entries={len(self)} {self.last_entry}>"
