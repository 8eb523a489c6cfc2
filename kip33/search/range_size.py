"""Count the records and bytes between two offsets of a partition.

Inner segments are counted from the catalog. For the one or two segments at the ends of the range,
headers are read, and records of the batches at the ends.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import BatchColumns
from kip33.formats.byte_sources import read_fully
from kip33.formats.records import iterate_records
from kip33.formats.scan import BatchScan
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

UNCOUNTED = (SegmentStatus.INVALID, *NOT_READ)


class RangeSize(NamedTuple):
    """The size of a range; `records` is None if unknown, and `note` says why."""

    records: int | None
    size_bytes: int  # of the batches with these records
    bytes_read: int
    note: str | None = None


def range_size(rows: Sequence[Mapping[str, Any]], start: int, end: int) -> RangeSize:
    """Return the size of the range from `start` up to `end`, exclusive.

    `rows` are one partition's catalog rows with `log_uri, base_offset, last_offset, valid_bytes,
    record_count, status`.
    """
    total = RangeSize(0, 0, 0)
    counted_to = -1
    ordered = sorted(rows, key=lambda row: row["base_offset"])
    next_bases = [*(row["base_offset"] for row in ordered[1:]), None]
    for row, next_base in zip(ordered, next_bases, strict=True):
        lost_from = _lost_from(row)
        is_behind = next_base is not None and next_base <= max(start, lost_from or 0)
        if lost_from is not None and lost_from < end and not is_behind:
            what = f"{row['log_uri']}: {row['status']}, so the count is incomplete"
            total = _sum(total, RangeSize(None, 0, 0, what))
        if row["status"] in UNCOUNTED:
            continue
        if row["base_offset"] >= end or (row["last_offset"] or row["base_offset"]) < start:
            continue
        total = _sum(total, _part(row, start, end))
        if row["base_offset"] <= counted_to:
            what = f"{row['log_uri']}: overlaps an earlier segment, so records are counted twice"
            total = _sum(total, RangeSize(0, 0, 0, what))
        counted_to = max(counted_to, row["last_offset"] or row["base_offset"])
    return total


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
                data = read_fully(read_into, int(batch["position"]), int(batch["size_bytes"]))
                bytes_cut += len(data)
                offsets = (r.offset for r in iterate_records(io.BytesIO(data), skip_key_value=True))
                records += sum(start <= offset < end for offset in offsets)
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
    notes = [note for note in (total.note, part.note) if note]
    return RangeSize(
        total.records + part.records if known else None,  # type: ignore[operator]
        total.size_bytes + part.size_bytes,
        total.bytes_read + part.bytes_read,
        "; ".join(notes) or None,
    )
