"""Count the records at or after a time that are before an offset: DeleteRecords would delete them.

No index is used. A segment is opened only if its largest timestamp in the catalog is late enough.
Of a batch with one record, or with LogAppendTime, the header is enough; the records of other
batches are read.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import CONTROL, LOG_APPEND_TIME
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES, iterate_records
from kip33.formats.scan import BatchScan
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

_READ: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)


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
        notes = dict.fromkeys(filter(None, (self.note, other.note)))
        return NewerRecords(
            self.records + other.records,
            self.is_exact and other.is_exact,
            self.bytes_read + other.bytes_read,
            "; ".join(notes) or None,
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
        if row["status"] in _READ:
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
                    found = _count(read_into, batch, first, offset, target_ms, max_batch_bytes)
                    total = total.plus(found)
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
