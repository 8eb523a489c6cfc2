"""Count the records and bytes between two offsets, and newer records before an offset.

For a range, inner segments are counted from the catalog. For the one or two segments at its ends,
headers are read, and records of the batches at the ends.

DeleteRecords deletes all records before an offset. `newer_records` counts those of them that are
at or after a time. It uses no index. A segment is opened only if its largest timestamp in the
catalog is late enough. Of a batch with one record, or with LogAppendTime, the header is enough;
the records of other batches are read.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kip33.catalog.logs import FROM, UNTIL
from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import CONTROL, LOG_APPEND_TIME, BatchColumns
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES, Record, iterate_records
from kip33.formats.scan import BatchScan
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.search.answers import joined_notes
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

UNCOUNTED = (SegmentStatus.INVALID, *NOT_READ)
_TRUE_ROWS: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)


class RangeSize(NamedTuple):
    """The size of a range; `records` is None if unknown, and `note` says why."""

    records: int | None
    size_bytes: int  # of the batches with these records
    bytes_read: int
    note: str | None = None


def range_size(rows: Sequence[Mapping[str, Any]], start: int, end: int) -> RangeSize:
    """Return the size of the range from `start` up to `end`, exclusive.

    `rows` are one partition's catalog rows with `log_uri, base_offset, last_offset, valid_bytes,
    record_count, status`; only what is between `from_offset` and `until_offset` counts.
    """
    total = RangeSize(0, 0, 0)
    counted_to = -1
    ordered = sorted(rows, key=_begin_of)
    next_bases = [*map(_begin_of, ordered[1:]), None]
    for row, next_base in zip(ordered, next_bases, strict=True):
        lost_from = _lost_from(row)
        is_behind = next_base is not None and next_base <= max(start, lost_from or 0)
        if lost_from is not None and lost_from < end and not is_behind:
            what = f"{row['log_uri']}: {row['status']}, so the count is incomplete"
            total = _sum(total, RangeSize(None, 0, 0, what))
        if row["status"] in UNCOUNTED:
            continue
        last_offset = _before_until(row, (row["last_offset"] or row["base_offset"]) + 1) - 1
        if row["base_offset"] >= end or last_offset < start:
            continue
        begin = max(start, row.get(FROM) or 0)
        total = _sum(total, _part(row, begin, _before_until(row, end)))
        if _begin_of(row) <= counted_to:
            what = f"{row['log_uri']}: overlaps an earlier segment, so records are counted twice"
            total = _sum(total, RangeSize(0, 0, 0, what))
        counted_to = max(counted_to, last_offset)
    return total


def _begin_of(row: Mapping[str, Any]) -> int:
    """The first offset of a segment that is read."""
    return max(int(row["base_offset"]), row.get(FROM) or 0)


def _before_until(row: Mapping[str, Any], offset: int) -> int:
    """Return the offset, or from where on another segment has the records if that is before it."""
    until = row.get(UNTIL)
    return offset if until is None else min(offset, int(until))


def _lost_from(row: Mapping[str, Any]) -> int | None:
    """Return the first offset of a segment that may be lost, None if all can be counted."""
    if row["status"] in UNCOUNTED or (
        row["status"] == SegmentStatus.TRUNCATED and row["last_offset"] is None
    ):
        return int(row["base_offset"])
    return int(row["last_offset"]) + 1 if row["status"] == SegmentStatus.TRUNCATED else None


def _part(row: Mapping[str, Any], start: int, end: int) -> RangeSize:
    last_offset, records = row["last_offset"], row["record_count"]
    inside = row["base_offset"] >= start and last_offset is not None and last_offset < end
    if inside and records is not None:
        return RangeSize(records, row["valid_bytes"], 0)
    try:
        return _scanned(row, start, end)
    except (FileReadError, Kip33Error) as error:
        return RangeSize(None, 0, 0, f"{row['log_uri']}: cannot be read: {one_line(error)}")


def _scanned(row: Mapping[str, Any], start: int, end: int) -> RangeSize:
    records = size_bytes = bytes_cut = 0
    with opened(Location.of(row["log_uri"])) as (read_into, log_bytes):
        valid_bytes = row["valid_bytes"]
        size = log_bytes if valid_bytes is None else min(log_bytes, valid_bytes)
        scan = BatchScan(read_into, size, check_crc=False)
        next_offset = int(row["base_offset"])
        for batches in scan:
            firsts = _first_offsets(batches, next_offset)
            held = (batches["last_offset"] >= start) & (firsts < end)
            whole = held & (firsts >= start) & (batches["last_offset"] < end)
            whole &= batches["records_count"] >= 0  # a wrapper's records must be counted
            size_bytes += int(batches["size_bytes"][held].sum())
            records += int(batches["records_count"][whole].sum())
            for batch in batches[held & ~whole]:
                bytes_cut += int(batch["size_bytes"])
                found = _records_of(read_into, batch)
                records += sum(start <= one.offset < end for one in found)
            next_offset = int(batches["last_offset"][-1]) + 1
            if next_offset >= end:
                break
        return RangeSize(records, size_bytes, scan.bytes_read + bytes_cut)


def _first_offsets(batches: BatchColumns, next_offset: int) -> "np.ndarray[Any, Any]":
    """Return the smallest possible first offset of each batch: v0 and v1 have only the last."""
    after_previous = np.concatenate(([next_offset], batches["last_offset"][:-1] + 1))
    return np.where(batches["magic"] >= 2, batches["base_offset"], after_previous)


def _sum(total: RangeSize, part: RangeSize) -> RangeSize:
    known = total.records is not None and part.records is not None
    return RangeSize(
        total.records + part.records if known else None,  # type: ignore[operator]
        total.size_bytes + part.size_bytes,
        total.bytes_read + part.bytes_read,
        joined_notes(total.note, part.note),
    )


def _records_of(
    read_into: ReadInto, batch: Any, max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
) -> Iterator[Record]:
    """Return the records of a row of BATCH without keys and values."""
    data = read_fully(read_into, int(batch["position"]), int(batch["size_bytes"]))
    return iterate_records(io.BytesIO(data), skip_key_value=True, max_batch_bytes=max_batch_bytes)


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
    max_timestamp, status`, and perhaps `from_offset` and `until_offset`. Control records are not
    counted.
    """
    total = NewerRecords()
    ordered = sorted(rows, key=lambda row: (_begin_of(row), row["log_uri"]))
    next_bases = [*map(_begin_of, ordered[1:]), offset]
    for row, next_base in zip(ordered, next_bases, strict=True):
        if _begin_of(row) >= offset:
            break
        before = _before_until(row, offset)
        end = min(before, max(next_base, _begin_of(row)))
        if row["status"] in _TRUE_ROWS:
            largest = row["max_timestamp"]
            if largest is None or largest >= target_ms:
                total = total.plus(_late_records(row, before, end, target_ms, max_batch_bytes))
            elif row["status"] == SegmentStatus.TRUNCATED:
                total = total.plus(_unknown(row, _end_of(row), end, row["status"]))
        else:  # unverified, invalid or unreadable: the row's figures may be wrong
            total = total.plus(_late_records(row, before, end, target_ms, max_batch_bytes))
    return total


def _end_of(row: Mapping[str, Any]) -> int:
    last = row["last_offset"]
    return int(row["base_offset"] if last is None else last + 1)


def _unknown(row: Mapping[str, Any], start: int, end: int, why: str) -> NewerRecords:
    """Return a count of each offset from `start` up to `end`: there may be a record."""
    if start >= end:
        return NewerRecords()
    return NewerRecords(end - start, False, 0, f"{row['log_uri']}: {why}, so offsets are counted")


def _late_records(
    row: Mapping[str, Any], offset: int, end: int, target_ms: int, max_batch_bytes: int
) -> NewerRecords:
    """Return the count of one segment, whose offsets up to `end` may have records."""
    total, next_offset = NewerRecords(), int(row["base_offset"])
    try:
        with opened(Location.of(row["log_uri"])) as (read_into, size_bytes):
            scan = BatchScan(read_into, size_bytes, check_crc=False)
            for batches in scan:
                for batch, first in _late_batches(batches, next_offset, offset, target_ms):
                    newer = _count(
                        read_into, batch, first, _begin_of(row), offset, target_ms, max_batch_bytes
                    )
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
    firsts = _first_offsets(batches, next_offset)
    late = (batches["max_timestamp"] >= target_ms) & (firsts < offset)
    late &= (batches["attributes"] & CONTROL == 0) | (batches["magic"] < 2)
    late &= batches["records_count"] != 0
    for number in np.flatnonzero(late):
        yield batches[number], int(firsts[number])


def _count(
    read_into: ReadInto, batch: Any, first: int, begin: int, offset: int, target_ms: int, most: int
) -> NewerRecords:
    count, last = int(batch["records_count"]), int(batch["last_offset"])
    if last < begin:
        return NewerRecords()
    is_stamped = batch["magic"] > 0 and batch["attributes"] & LOG_APPEND_TIME
    if count > 0 and begin <= first and last < offset and (count == 1 or is_stamped):
        return NewerRecords(count)
    size_bytes = int(batch["size_bytes"])
    found = _records_of(read_into, batch, most)
    try:
        records = sum(begin <= one.offset < offset and one.timestamp >= target_ms for one in found)
    except Kip33Error as error:
        offsets = min(last + 1, offset) - first
        records = min(count, offsets) if count > 0 else offsets
        why = f"the batch at byte {int(batch['position'])} cannot be read: {one_line(error)}"
        return NewerRecords(records, False, size_bytes, why)
    return NewerRecords(records, bytes_read=size_bytes)
