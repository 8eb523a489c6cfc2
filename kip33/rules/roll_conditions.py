"""Kafka's four conditions for a roll, on columns: true, false or not known for each segment."""

import numpy as np

from kip33.formats.batch import LEGACY_HEADER_BYTES, MAX_INT32
from kip33.rules.retention import NEVER_MS
from kip33.rules.retention_columns import Bools, Int64Column, Int64s
from kip33.rules.roll_verdicts import RollColumns, RollLimits, Ternary


def last_rows(rows: RollColumns) -> Bools:
    """Return which rows are the last of their partition."""
    found = np.zeros(rows.doubt.size, bool)
    found[rows.starts - 1] = True  # -1 for the first partition: the last row of all
    return found


def following_of(column: Int64Column, is_last: Bools, by: int = 1) -> Int64Column:
    """Return for each row the value of the next row of its partition, or the one after that."""
    for _ in range(by):
        column = Int64Column(np.roll(column.values, -1), np.roll(column.known, -1) & ~is_last)
    return column


def ternary(is_true: Bools, is_false: Bools) -> Ternary:
    """Return 1 where the first is true, 0 where the second is, else -1."""
    return np.where(is_true, np.int8(1), np.where(is_false, np.int8(0), np.int8(-1)))


def waited(rows: RollColumns, is_last: Bools) -> Int64Column:
    """Return the next segment's first timestamp minus the start; long arithmetic wraps as Java."""
    start, following = rows.start_timestamp, following_of(rows.first_timestamp, is_last)
    known = start.known & (start.values >= 0) & following.known
    return Int64Column(following.values - start.values, known)


def by_size_of(rows: RollColumns, limits: RollLimits, is_last: Bools) -> Ternary:
    """Compare with the size of the next batch, or with the bounds that it must have."""
    size, most = rows.valid_bytes, limits.segment_bytes
    least_batch, most_batch = next_batch_bytes(rows, is_last)
    is_true = size.known & ((size.values > most - least_batch) | (size.values > most))
    is_false = size.known & most_batch.known & (size.values <= most - most_batch.values)
    return ternary(is_true, is_false)


def next_batch_bytes(rows: RollColumns, is_last: Bools) -> tuple[Int64s, Int64Column]:
    """Return the least and the most bytes that the next segment's first batch has."""
    exact = following_of(rows.first_batch_bytes, is_last)
    count = following_of(rows.batch_count, is_last)
    following = following_of(rows.valid_bytes, is_last)
    bounded = count.known & following.known & (count.values > 0)
    others = LEGACY_HEADER_BYTES * (count.values - 1)
    most = np.where(exact.known, exact.values, following.values - others)
    is_one = bounded & (count.values == 1)
    least = np.where(is_one, following.values, LEGACY_HEADER_BYTES)
    return np.where(exact.known, exact.values, least), Int64Column(most, exact.known | bounded)


def by_time_of(rows: RollColumns, limits: RollLimits, passed: Int64Column) -> Ternary:
    """Compare the time that a segment waited, with and without the most jitter."""
    is_empty = rows.valid_bytes.known & (rows.valid_bytes.values == 0)
    is_true = passed.known & (passed.values > limits.segment_ms) & ~is_empty
    in_time = passed.known & (passed.values <= limits.segment_ms - limits.most_jitter_ms)
    return ternary(is_true, in_time | is_empty)


def by_index_of(rows: RollColumns, limits: RollLimits) -> Ternary:
    """Compare the entries, or the most entries that the bytes and the batches can have."""
    offsets, times = rows.offset_entries, rows.time_entries
    is_full = offsets.known & (offsets.values >= limits.offset_slots)
    is_full |= times.known & (times.values >= limits.time_slots)
    both = offsets.known & times.known
    size, count = rows.valid_bytes, rows.batch_count
    most = np.where(size.known, size.values // (limits.interval_bytes + 1), NEVER_MS)
    most = np.minimum(most, np.where(count.known, count.values, NEVER_MS))
    is_free = (both & ~is_full) | (most < np.minimum(limits.offset_slots, limits.time_slots))
    return ternary(is_full, is_free)


def by_offset_range_of(rows: RollColumns, is_last: Bools) -> Ternary:
    """Compare the next batch's last offset: at least its base, at most its segment's last."""
    base, first = rows.base_offset, following_of(rows.base_offset, is_last)
    exact = following_of(rows.first_batch_last_offset, is_last)
    last = following_of(rows.last_offset, is_last)
    least = np.where(exact.known, exact.values, first.values) - base.values
    most = np.where(exact.known, exact.values, last.values) - base.values
    known = base.known & first.known
    is_true = known & (least > MAX_INT32)
    return ternary(is_true, known & (exact.known | last.known) & (most <= MAX_INT32))
