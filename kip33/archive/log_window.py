"""The part of a log in memory, which moves while headers are walked, and where to begin.

A walk to an offset or a time begins at a place that the index files of a segment name. They are
searched with small reads.
"""

from collections.abc import Iterator
from typing import Final, Self

from kip33.errors import CorruptIndexError, FileReadError
from kip33.formats.batch import (
    CODEC_MASK,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_HEADER_BYTES,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    decode_header,
    has_any_offset,
)
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.index_pages import IndexPages, last_point
from kip33.formats.records import (
    DEFAULT_MAX_BATCH_BYTES,
    MAX_RECORD_BYTES,
    Record,
    iterate_records,
)
from kip33.formats.scan import BatchCrc
from kip33.formats.time_index import TimestampOffset
from kip33.formats.walk import COMPLETE, why_incomplete
from kip33.rules.search import require_order

FIRST_BYTES: Final = 4096
LOCAL_BYTES: Final = 1 << 18
REMOTE_BYTES: Final = 1 << 22  # for stores where a request costs more than a megabyte
NO_END: Final = 2**63  # after all offsets


class Meter:
    """Counts the bytes read from files, and has the limits for decompressed batches and records."""

    def __init__(
        self,
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        """Start at 0."""
        self.bytes_read = 0
        self.max_batch_bytes, self.max_record_bytes = max_batch_bytes, max_record_bytes

    def metered(self, read_into: ReadInto) -> ReadInto:
        """Return `read_into` with its bytes counted."""

        def counted(position: int, view: memoryview) -> int:
            count = read_into(position, view)
            self.bytes_read += count
            return count

        return counted


class Damage(str):
    """The reason why a walk over a log ended, with its `position`."""

    position: int

    def __new__(cls, why: str, position: int) -> Self:
        """Store the position with the text."""
        damage = super().__new__(cls, why)
        damage.position = position
        return damage


class LogWindow:
    """The batches of an open log, or of a slice of it: those with offsets from one up to another.

    `kip33.formats.records` reads a batch from it as from a file. Windows grow from FIRST_BYTES to
    `most_bytes` during a walk. The part of a batch after its window is read only if its records are
    needed.
    """

    def __init__(
        self,
        read_into: ReadInto,
        end: int,
        *,
        most_bytes: int = LOCAL_BYTES,
        check_crc: bool = False,
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        between: tuple[int, int] = (0, NO_END),
    ) -> None:
        """Take an open log and read only the bytes up to `end`, and the offsets `between` two.

        With `check_crc` a header is returned only if its batch matches the CRC.
        """
        self.end = end
        self.from_offset, self._until_offset = between
        self.damage: str | None = None
        self.max_batch_bytes = max_batch_bytes
        self._crc = BatchCrc() if check_crc else None
        self._read_into = read_into
        self._most_bytes = most_bytes
        self._next_bytes, self._grown_bytes = FIRST_BYTES, 2 * FIRST_BYTES
        self._start, self._data = 0, b""
        self._position = 0

    def expect(self, count: int) -> None:
        """Set the expected number of bytes for the next walk."""
        self._next_bytes = min(count, self._most_bytes)
        self._grown_bytes = FIRST_BYTES

    def headers(self, position: int) -> Iterator[BatchHeader]:
        """Yield the headers that `walk` yields, but only of batches in the slice, or that may be.

        A wrapper of v0 or v1 is kept at the end, because its header does not say where it begins.
        """
        for header in self.walk(position):
            is_wrapper = header.magic < 2 and header.attributes & CODEC_MASK
            if header.base_offset >= self._until_offset and not is_wrapper:
                return
            has_any = has_any_offset(header)
            if has_any or header.last_offset >= self.from_offset:
                yield header
            if header.last_offset >= self._until_offset - 1 and not has_any:
                return

    def walk(self, position: int) -> Iterator[BatchHeader]:
        """Yield the headers from `position`, where a batch begins, up to the end or to damage.

        `kip33.formats.walk` says whether a batch is complete. If the walk ends before the end,
        `damage`, a Damage, says why.
        """
        while position < self.end - HEADER_SIZE_UP_TO_MAGIC:
            head = self._peek(position, min(RECORD_BATCH_OVERHEAD, self.end - position))
            if len(head) <= HEADER_SIZE_UP_TO_MAGIC:
                self.damage = Damage(f"the file ended at byte {position + len(head)}", position)
                return
            size = int.from_bytes(head[8:12], signed=True)
            is_v2 = 2 <= head[16] < 128
            if why_incomplete(size, is_v2, self.end - position) != COMPLETE:
                what = f"at byte {position} of {self.end}: no complete batch begins there"
                self.damage = Damage(what, position)
                return
            if len(head) < (RECORD_BATCH_OVERHEAD if is_v2 else LEGACY_HEADER_BYTES):
                self.damage = Damage(f"the file ended at byte {position + len(head)}", position)
                return
            header = decode_header(head, position)
            if self._crc and not self._crc.matches(self, header):
                what = f"at byte {position} of {self.end}: the batch's bytes do not match its CRC"
                self.damage = Damage(what, position)
                return
            yield header
            position += header.size_bytes
        if position < self.end:
            what = f"at byte {position} of {self.end}: too few bytes for a batch"
            self.damage = Damage(what, position)

    def records(
        self, header: BatchHeader, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> Iterator[Record]:
        """Yield the records of a batch that are in the slice, without keys and values.

        Iteration raises the errors of the records.
        """
        for record in self.every_record(header, max_record_bytes):
            if record.offset >= self._until_offset:
                return
            if record.offset >= self.from_offset:
                yield record

    def every_record(
        self, header: BatchHeader, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> Iterator[Record]:
        """Return the records of a batch as `records` does, those outside the slice, too."""
        self.seek(header.position)
        return iterate_records(
            self,
            position=header.position,
            skip_key_value=True,
            max_batch_bytes=self.max_batch_bytes,
            max_record_bytes=max_record_bytes,
        )

    def has_record(self, header: BatchHeader) -> bool:
        """Return whether a batch of the slice has a record in it; raises the records' errors.

        A batch that ends after an offset may have none there: compaction may have removed it.
        """
        if not header.records_count:
            return False
        if header.magic < 2 and not header.attributes & CODEC_MASK:
            return True
        is_from = header.magic >= 2 and header.base_offset >= self.from_offset
        if is_from and header.last_offset < self._until_offset:
            return True
        return any(True for _ in self.records(header))

    def _peek(self, position: int, count: int) -> bytes:
        at = position - self._start
        if not 0 <= at <= len(self._data) - count:
            wanted = min(max(count, self._next_bytes), self.end - position)
            self._next_bytes = min(self._grown_bytes, self._most_bytes)
            self._grown_bytes = 2 * self._next_bytes
            self._start, self._data = position, read_fully(self._read_into, position, wanted)
            at = 0
        return self._data[at : at + count]

    def seek(self, position: int, /) -> None:
        """Go to a position."""
        self._position = position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, count: int, /) -> bytes:
        """Return up to `count` bytes from the window if it has all of them, else from the log."""
        at = self._position - self._start
        count = min(count, self.end - self._position)
        if 0 <= at <= len(self._data) - count:
            data = self._data[at : at + count]
        else:
            data = read_fully(self._read_into, self._position, count)
        self._position += len(data)
        return data


def checked_position(
    window: LogWindow, offsets: IndexPages | None, *, base_offset: int, offset: int
) -> int:
    """Return a position from which a walk reaches an offset: that of an index point, or 0.

    The batch at an index point must begin at or before the offset, and not before the segment.
    """
    try:
        slot = -1 if offsets is None else last_point(offsets, offset - base_offset)
        position = offsets[slot][1] if offsets is not None and slot >= 0 else 0
    except (FileReadError, CorruptIndexError):
        return 0
    if not 0 < position < window.end:
        return 0
    damage = window.damage
    first = next(window.walk(position), None)
    window.damage = damage  # not of the log: the index gave a wrong position
    return position if first and base_offset <= first.base_offset <= offset else 0


def entry_at(times: IndexPages, slot: int, base_offset: int) -> TimestampOffset | None:
    """Return an entry of a time index, None outside of the file and for padding of zeros."""
    if not 0 <= slot < len(times) or times[slot] == (0, 0):
        return None
    timestamp, relative = times[slot]
    return TimestampOffset(timestamp, base_offset + relative)


def entries_around(
    times: IndexPages, target_ms: int, *, base_offset: int, last_offset: int | None
) -> tuple[TimestampOffset | None, TimestampOffset | None]:
    """Return the last entry strictly below a time and the one after it.

    Raises CorruptIndexError if they, or their neighbours, are out of order.
    """
    slot = times.last(
        lambda timestamp, relative: (timestamp, relative) != (0, 0) and timestamp < target_ms
    )
    around = [entry_at(times, slot + step, base_offset) for step in (-1, 0, 1, 2)]
    neighbours = [entry for entry in around if entry]
    require_order(neighbours, base_offset=base_offset, last_offset=last_offset)
    return around[1], around[2]
