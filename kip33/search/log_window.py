"""The part of a log in memory, which moves while headers are walked, and a count of newer records.

DeleteRecords deletes all records before an offset. `newer_records` counts those of them that are
at or after a time. It uses no index. A segment is opened only if its largest timestamp in the
catalog is late enough. Of a batch with one record, or with LogAppendTime, the header is enough;
the records of other batches are read.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, Self

import numpy as np

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_HEADER_BYTES,
    LOG_APPEND_TIME,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    decode_header,
)
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES, Record, iterate_records
from kip33.formats.scan import BatchCrc, BatchScan
from kip33.formats.walk import COMPLETE, why_incomplete
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.answers import joined_notes
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

FIRST_BYTES: Final = 4096
LOCAL_BYTES: Final = 1 << 18
REMOTE_BYTES: Final = 1 << 22  # for stores where a request costs more than a megabyte
_TRUE_ROWS: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)


class Meter:
    """Counts the bytes read from files, and has the limit for one decompressed batch."""

    def __init__(self, max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES) -> None:
        """Start at 0."""
        self.bytes_read = 0
        self.max_batch_bytes = max_batch_bytes

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
    """The batches of one open log; `kip33.formats.records` reads a batch from it as from a file.

    Windows grow from FIRST_BYTES to `most_bytes` during a walk. The part of a batch after its
    window is read only if its records are needed.
    """

    def __init__(
        self,
        read_into: ReadInto,
        end: int,
        *,
        most_bytes: int = LOCAL_BYTES,
        check_crc: bool = False,
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    ) -> None:
        """Take an open log and read only the bytes up to `end`.

        With `check_crc` a header is returned only if its batch matches the CRC.
        """
        self.end = end
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

    def records(self, header: BatchHeader) -> Iterator[Record]:
        """Return the records of a batch without keys and values; iteration raises their errors."""
        self.seek(header.position)
        return iterate_records(
            self,
            position=header.position,
            skip_key_value=True,
            max_batch_bytes=self.max_batch_bytes,
        )

    def has_record_from(self, header: BatchHeader, offset: int) -> bool:
        """Return whether a batch has a record at or after an offset; raises the records' errors.

        A batch that ends after the offset may have none: compaction may have removed the record.
        """
        if not header.records_count or header.last_offset < offset:
            return False
        if header.magic < 2 and not header.attributes & CODEC_MASK:
            return True
        if header.magic >= 2 and header.base_offset >= offset:
            return True
        return any(record.offset >= offset for record in self.records(header))

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


def opened_window(
    segment: SearchedSegment, files: ExitStack, meter: Meter, *, check_crc: bool = False
) -> LogWindow:
    """Return a window on the valid bytes of a segment's log, open until `files` close; OSError."""
    log = Location.of(segment.log_uri)
    read_into, size_bytes = files.enter_context(opened(log))
    end = size_bytes if segment.valid_bytes is None else min(size_bytes, segment.valid_bytes)
    window = LogWindow(
        meter.metered(read_into),
        end,
        most_bytes=LOCAL_BYTES if log.is_local else REMOTE_BYTES,
        check_crc=check_crc,
        max_batch_bytes=meter.max_batch_bytes,
    )
    if segment.valid_bytes is not None and size_bytes < segment.valid_bytes:
        window.damage = f"{size_bytes} bytes found, the catalog says {segment.valid_bytes}"
    return window


class NewerRecords(NamedTuple):
    """The number of records; if not `is_exact`, there are at most this many, and `note` says why.

    A record that cannot be read counts, and so does each offset that may have one.
    """

    records: int = 0
    is_exact: bool = True
    bytes_read: int = 0
    note: str | None = None

    def plus(self, other: "NewerRecords") -> "NewerRecords":
        """Return the sum of two counts."""
        return NewerRecords(
            self.records + other.records,
            self.is_exact and other.is_exact,
            self.bytes_read + other.bytes_read,
            joined_notes(self.note, other.note),
        )


def newer_records(
    rows: Sequence[Mapping[str, Any]],
    offset: int,
    target_ms: int,
    *,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> NewerRecords:
    """Return how many records before `offset` have the timestamp `target_ms` or a later one.

    `rows` are one replica's catalog rows with `log_uri, base_offset, last_offset, valid_bytes,
    max_timestamp, status`. Control records are not counted.
    """
    total = NewerRecords()
    ordered = sorted(rows, key=lambda row: (row["base_offset"], row["log_uri"]))
    next_bases = [*(row["base_offset"] for row in ordered[1:]), offset]
    for row, next_base in zip(ordered, next_bases, strict=True):
        if row["base_offset"] >= offset:
            break
        end = min(offset, max(next_base, row["base_offset"]))
        if row["status"] in _TRUE_ROWS:
            largest = row["max_timestamp"]
            if largest is None or largest >= target_ms:
                total = total.plus(_scanned(row, offset, end, target_ms, max_batch_bytes))
            elif row["status"] == SegmentStatus.TRUNCATED:
                total = total.plus(_unknown(row, _end_of(row), end, row["status"]))
        else:  # unverified, invalid or unreadable: the row's figures may be wrong
            total = total.plus(_scanned(row, offset, end, target_ms, max_batch_bytes))
    return total


def _end_of(row: Mapping[str, Any]) -> int:
    last = row["last_offset"]
    return int(row["base_offset"] if last is None else last + 1)


def _unknown(row: Mapping[str, Any], start: int, end: int, why: str) -> NewerRecords:
    """Return a count of each offset from `start` up to `end`: there may be a record."""
    if start >= end:
        return NewerRecords()
    return NewerRecords(end - start, False, 0, f"{row['log_uri']}: {why}, so offsets are counted")


def _scanned(
    row: Mapping[str, Any], offset: int, end: int, target_ms: int, max_batch_bytes: int
) -> NewerRecords:
    """Return the count of one segment, whose offsets up to `end` may have records."""
    total, next_offset = NewerRecords(), int(row["base_offset"])
    try:
        with opened(Location.of(row["log_uri"])) as (read_into, size_bytes):
            scan = BatchScan(read_into, size_bytes, check_crc=False)
            for batches in scan:
                for batch, first in _late_batches(batches, next_offset, offset, target_ms):
                    newer = _count(read_into, batch, first, offset, target_ms, max_batch_bytes)
                    total = total.plus(newer)
                next_offset = int(batches["last_offset"][-1]) + 1
                if next_offset >= offset:
                    break
            total = total.plus(NewerRecords(bytes_read=scan.bytes_read))
            if scan.damage:
                total = total.plus(_unknown(row, next_offset, end, scan.damage))
        return total
    except (FileReadError, Kip33Error) as error:
        why = f"cannot be read: {one_line(error)}"
        return total.plus(_unknown(row, next_offset, end, why))


def _late_batches(
    batches: Any, next_offset: int, offset: int, target_ms: int
) -> Iterator[tuple[Any, int]]:
    """Yield batches that may have such records, with the smallest offset that each may have."""
    after_previous = np.concatenate(([next_offset], batches["last_offset"][:-1] + 1))
    firsts = np.where(batches["magic"] >= 2, batches["base_offset"], after_previous)
    late = (batches["max_timestamp"] >= target_ms) & (firsts < offset)
    late &= (batches["attributes"] & CONTROL == 0) | (batches["magic"] < 2)
    late &= batches["records_count"] != 0
    for number in np.flatnonzero(late):
        yield batches[number], int(firsts[number])


def _count(
    read_into: ReadInto, batch: Any, first: int, offset: int, target_ms: int, most: int
) -> NewerRecords:
    count, last = int(batch["records_count"]), int(batch["last_offset"])
    is_stamped = batch["magic"] > 0 and batch["attributes"] & LOG_APPEND_TIME
    if count > 0 and last < offset and (count == 1 or is_stamped):
        return NewerRecords(count)
    data = read_fully(read_into, int(batch["position"]), int(batch["size_bytes"]))
    try:
        records = sum(
            record.offset < offset and record.timestamp >= target_ms
            for record in iterate_records(
                io.BytesIO(data), skip_key_value=True, max_batch_bytes=most
            )
        )
    except Kip33Error as error:
        offsets = min(last + 1, offset) - first
        records = min(count, offsets) if count > 0 else offsets
        why = f"the batch at byte {int(batch['position'])} cannot be read: {one_line(error)}"
        return NewerRecords(records, False, len(data), why)
    return NewerRecords(records, bytes_read=len(data))
