"""Judge the segments of a catalog by Kafka's rule for rolling (`rules.rolling`), on columns.

A segment ended because of the batch that the next segment begins with. So each row is compared with
the next row of its partition. A condition is true, false or not known: the catalog has the next
segment's first timestamp, but the size of its first batch only within bounds. Nothing is guessed:
what is not known stays so, and `not_seen` names the missing figure.

A batch counts as one append, as on a leader. A follower appends what it fetched at once: where only
that explains an end, the reason is `several_batches`.

`explaining_settings` finds other settings that explain where the segments ended. A value of
`segment.bytes` explains an end by size if the segment fits and the next batch does not; a value of
`segment.ms` explains an end by time if the segment's largest timestamp is in time and the next
batch's is not. One value that explains all ends of a partition was probably its setting.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import LEGACY_HEADER_BYTES, MAX_INT32
from kip33.rules.retention import (
    KEPT_STATUSES,
    NEVER_MS,
    NO_CODE,
    Bools,
    Codes,
    Int64Column,
    Int64s,
    first_that_applies,
    last_rows,
)
from kip33.rules.rolling import RollReason, RollSettings

Ternary = npt.NDArray[np.int8]
"""1: true, 0: false, -1: not known."""


class RollDoubt(StrEnum):
    """Why it cannot be determined what ended the segment; the first that applies."""

    TRUNCATED = "truncated"
    INVALID = "invalid"
    UNREADABLE = "unreadable"
    ARCHIVED = "archived"
    SAME_BASE_OFFSET = "same_base_offset"  # as the next segment
    OVERLAP = "overlap"  # the next segment begins below the last offset
    HOLE = "hole"  # offsets are missing before the next segment
    COMPACTED = "compacted"  # cleanup.policy: the log cleaner may have merged segments
    OFFSETS_MISSING = "offsets_missing"  # inside it: the log cleaner removed records


class NotSeen(StrEnum):
    """Which figure is missing to determine why a segment ended; the first that applies."""

    NEXT_BATCH = "next_batch"  # the next segment has none, or was not read
    START_TIMESTAMP = "start_timestamp"  # from which its time counts
    CREATION_TIME = "creation_time"  # it begins without a timestamp
    NEXT_BATCH_BYTES = "next_batch_bytes"
    INDEX_ENTRIES = "index_entries"
    NEXT_BATCH_LAST_OFFSET = "next_batch_last_offset"


class EarlyRoll(StrEnum):
    """Which timestamp made a segment end early; the first that applies."""

    FUTURE = "future_timestamp"  # the next batch's is later than the time of its own file
    OLD_START = "old_start"  # its own start is behind the segment before
    AHEAD = "ahead_of_later"  # the next batch's is ahead of records that follow


ROLL_REASONS: Final = tuple(RollReason)
ROLL_DOUBTS: Final = tuple(RollDoubt)
UNSEEN: Final = tuple(NotSeen)
EARLY_ROLLS: Final = tuple(EarlyRoll)
EARLY_SHARE: Final = 10  # a roll is early if timestamps moved it by more than segment.ms / 10


class RollColumns(NamedTuple):
    """The input columns of the roll audit; segments of a partition are adjacent, by base offset."""

    starts: Int64s  # the index of each partition's first row
    base_offset: Int64Column  # unknown for a directory that cannot be listed
    last_offset: Int64Column
    valid_bytes: Int64Column
    batch_count: Int64Column
    record_count: Int64Column
    start_timestamp: Int64Column  # by the reading; below 0: its first batch has none
    first_timestamp: Int64Column  # the max timestamp of its first batch
    max_timestamp: Int64Column
    smallest_timestamp: Int64Column
    last_modified_ms: Int64Column
    doubt: Codes  # `status_doubts` of the status
    first_batch_bytes: Int64Column
    first_batch_last_offset: Int64Column
    offset_entries: Int64Column  # of its indexes before it was closed
    time_entries: Int64Column
    is_largest: bool = False  # the reading is `kip33-largest`


class RollLimits(NamedTuple):
    """The settings for each row, as `RollSettings` has them."""

    segment_ms: Int64s
    most_jitter_ms: Int64s
    segment_bytes: Int64s
    index_interval_bytes: Int64s
    offset_slots: Int64s
    time_slots: Int64s
    is_compacted: Bools


class RollVerdicts(NamedTuple):
    """The output columns of the roll audit, one value for each segment."""

    ended_by: Codes  # indexes in ROLL_REASONS
    by_size: Ternary
    by_time: Ternary
    by_index: Ternary
    by_offset_range: Ternary
    doubt: Codes  # indexes in ROLL_DOUBTS, -1: none
    not_seen: Codes  # indexes in UNSEEN, -1: nothing
    waited_ms: Int64Column  # up to the next segment's first batch
    is_by_file_time: Bools  # `waited_ms` is between the times of two files
    rolls_at_ms: Int64Column  # the first timestamp that is beyond the limit, without jitter
    overdue_ms: Int64Column  # how far its largest timestamp is beyond the limit
    oversize_bytes: Int64Column  # how much larger it is than segment.bytes
    early: Codes  # indexes in EARLY_ROLLS, -1: not early
    early_ms: Int64Column  # by how much timestamps moved the roll


def status_doubts(statuses: Sequence[str]) -> Codes:
    """Return the doubt that each status is, as indexes in ROLL_DOUBTS; -1: no doubt."""
    return np.array(
        [
            ROLL_DOUBTS.index(RollDoubt(status)) if status in KEPT_STATUSES else NO_CODE
            for status in statuses
        ],
        np.int8,
    )


def limit_columns(settings: Sequence[RollSettings], of_rows: Int64s) -> RollLimits:
    """Return the limits of each row; `of_rows` has each row's index in `settings`."""
    fields = RollLimits._fields
    values = [[getattr(one, name) for name in fields] for one in settings]
    *numbers, is_compacted = np.array(values, np.int64).reshape(-1, len(fields)).T[:, of_rows]
    every: list[Any] = [*numbers, is_compacted == 1]
    return RollLimits(*every)


def _int8_of(codes: Sequence[StrEnum]) -> dict[str, np.int8]:
    """Return the index of each member."""
    return {member: np.int8(number) for number, member in enumerate(codes)}


def judge_rolls(rows: RollColumns, limits: RollLimits) -> RollVerdicts:
    """Return the verdict on each segment."""
    is_last = last_rows(rows.starts, rows.doubt.size)
    doubt = _doubts(rows, limits, is_last)
    passed = _waited(rows, is_last)
    is_untimed = rows.start_timestamp.known & (rows.start_timestamp.values < 0)
    conditions = (
        _by_size_of(rows, limits, is_last),
        _by_time_of(rows, limits, passed),
        _by_index_of(rows, limits),
        _by_offset_range_of(rows, is_last),
    )
    is_told = ~is_last & (doubt == NO_CODE)
    by_size, by_time, by_index, by_range = (
        np.where(is_told, condition, np.int8(-1)) for condition in conditions
    )
    ended_by = _ended_by(rows, limits, is_last, is_told, (by_size, by_time, by_index, by_range))
    overdue = _overdue(rows, limits, doubt)
    early, early_ms = _early(rows, limits, is_last, is_told & (by_time == 1) & (by_size != 1))
    file_waited = _file_waited(rows, is_untimed & ~is_last)
    return RollVerdicts(
        ended_by,
        by_size,
        by_time,
        by_index,
        by_range,
        doubt,
        _not_seen(rows, is_last, is_told & (ended_by == _REASON[RollReason.UNKNOWN]), conditions),
        Int64Column(
            np.where(file_waited.known, file_waited.values, passed.values),
            (passed.known & is_told) | file_waited.known,
        ),
        file_waited.known,
        _rolls_at(rows, limits),
        overdue,
        _oversize(rows, limits),
        early,
        early_ms,
    )


_REASON: Final = _int8_of(ROLL_REASONS)
_DOUBT: Final = _int8_of(ROLL_DOUBTS)
_UNSEEN: Final = _int8_of(UNSEEN)
_EARLY: Final = _int8_of(EARLY_ROLLS)
_NONE: Final = np.int8(NO_CODE)


def _doubts(rows: RollColumns, limits: RollLimits, is_last: Bools) -> Codes:
    base, last = rows.base_offset, rows.last_offset
    following = _following_of(base, is_last)
    both = following.known & base.known
    step = following.values - last.values
    reaches = following.known & last.known
    records, reached = rows.record_count, last.known & base.known
    missing = reached & records.known & (last.values - base.values >= records.values)
    later: dict[str, Bools] = {
        RollDoubt.UNREADABLE: ~base.known,
        RollDoubt.SAME_BASE_OFFSET: both & (following.values == base.values),
        RollDoubt.OVERLAP: reaches & (step < 1),
        RollDoubt.HOLE: reaches & (step > 1),
        RollDoubt.COMPACTED: limits.is_compacted & ~is_last,
        RollDoubt.OFFSETS_MISSING: missing,
    }
    return np.where(rows.doubt != NO_CODE, rows.doubt, first_that_applies(later, _DOUBT))


def _file_waited(rows: RollColumns, which: Bools) -> Int64Column:
    """Return the time between the last changes of the file before and of this one."""
    modified = rows.last_modified_ms
    known = which & modified.known & np.roll(modified.known, 1)
    known[rows.starts] = False
    return Int64Column(modified.values - np.roll(modified.values, 1), known)


def _ended_by(
    rows: RollColumns,
    limits: RollLimits,
    is_last: Bools,
    is_told: Bools,
    conditions: tuple[Ternary, Ternary, Ternary, Ternary],
) -> Codes:
    by_size, by_time, by_index, by_range = conditions
    passed = _waited(rows, is_last)
    others_are_false = (by_size == 0) & (by_index == 0) & (by_range == 0)
    jitter = others_are_false & (by_time == -1) & passed.known
    none = others_are_false & (by_time == 0)
    several = none & _fits_several_batches(rows, limits, is_last)
    reasons: dict[str, Bools] = {
        RollReason.ACTIVE: is_last & (rows.doubt == NO_CODE) & rows.base_offset.known,
        RollReason.UNKNOWN: ~is_told,
        RollReason.SIZE: by_size == 1,
        RollReason.TIME: by_time == 1,
        RollReason.INDEX_FULL: by_index == 1,
        RollReason.OFFSET_RANGE: by_range == 1,
        RollReason.JITTER: jitter,
        RollReason.SEVERAL_BATCHES: several,
        RollReason.UNEXPLAINED: none,
    }
    return first_that_applies(reasons, _REASON, _REASON[RollReason.UNKNOWN])


def _fits_several_batches(rows: RollColumns, limits: RollLimits, is_last: Bools) -> Bools:
    """Return where the end is explained if all of the next segment had been appended at once."""
    start = rows.start_timestamp
    size, latest = (
        _following_of(rows.valid_bytes, is_last),
        _following_of(rows.max_timestamp, is_last),
    )
    too_large = size.known & (rows.valid_bytes.values + size.values > limits.segment_bytes)
    too_late = start.known & (start.values >= 0) & latest.known & (latest.values >= 0)
    too_late &= latest.values - start.values > limits.segment_ms
    return np.asarray(too_large | too_late)


def _not_seen(
    rows: RollColumns, is_last: Bools, which: Bools, conditions: tuple[Ternary, ...]
) -> Codes:
    by_size, by_time, by_index, by_range = (condition == -1 for condition in conditions)
    start = rows.start_timestamp
    missing: dict[str, Bools] = {
        NotSeen.NEXT_BATCH: ~_following_of(rows.first_timestamp, is_last).known,
        NotSeen.START_TIMESTAMP: by_time & ~start.known,
        NotSeen.CREATION_TIME: by_time & (start.values < 0),
        NotSeen.NEXT_BATCH_BYTES: by_size,
        NotSeen.INDEX_ENTRIES: by_index,
        NotSeen.NEXT_BATCH_LAST_OFFSET: by_range,
    }
    return np.where(which, first_that_applies(missing, _UNSEEN), _NONE)


def _rolls_at(rows: RollColumns, limits: RollLimits) -> Int64Column:
    start = rows.start_timestamp
    is_never = start.values > NEVER_MS - limits.segment_ms - 1
    moment = np.where(is_never, NEVER_MS, start.values + limits.segment_ms + 1)
    return Int64Column(moment, start.known & (start.values >= 0))


def _overdue(rows: RollColumns, limits: RollLimits, doubt: Codes) -> Int64Column:
    """Return how far the largest timestamp is beyond the limit, where it is.

    By the largest timestamp so far, a catalog cannot tell: the largest of all hides every step.
    """
    start, largest = rows.start_timestamp, rows.max_timestamp
    known = start.known & largest.known & (start.values >= 0) & ~_has_no_bounds(doubt)
    late = largest.values - start.values - limits.segment_ms
    is_late = known & (largest.values > start.values) & (late > 0)
    return Int64Column(late, is_late & (not rows.is_largest))


def _oversize(rows: RollColumns, limits: RollLimits) -> Int64Column:
    over = rows.valid_bytes.values - limits.segment_bytes
    return Int64Column(over, rows.valid_bytes.known & (over > 0))


def _has_no_bounds(doubt: Codes) -> Bools:
    """Return where a segment's own rows are doubtful, not only what follows it."""
    outside = [_DOUBT[doubt] for doubt in (RollDoubt.SAME_BASE_OFFSET, RollDoubt.OVERLAP)]
    return np.asarray((doubt != NO_CODE) & ~np.isin(doubt, [*outside, _DOUBT[RollDoubt.HOLE]]))


def _early(
    rows: RollColumns, limits: RollLimits, is_last: Bools, which: Bools
) -> tuple[Codes, Int64Column]:
    """Return which timestamp moved a roll by time, and by how much."""
    start = rows.start_timestamp.values
    ahead = _following_of(rows.first_timestamp, is_last)
    least_ms = limits.segment_ms // EARLY_SHARE
    modified = _following_of(rows.last_modified_ms, is_last)
    in_future = ahead.values - modified.values
    is_future = which & modified.known & (in_future > 0)
    before = np.roll(rows.max_timestamp.values, 1)
    has_before = np.roll(rows.max_timestamp.known, 1) & (before >= 0) & (before <= ahead.values)
    has_before[rows.starts] = False
    behind = before - start
    is_old = which & has_before & (behind > least_ms)
    is_old &= ahead.values - before <= limits.segment_ms
    after = _later_records(rows, is_last, start, limits.segment_ms)
    jump = ahead.values - after.values
    is_ahead = which & after.known & (jump > least_ms)
    kinds: dict[str, Bools] = {
        EarlyRoll.FUTURE: is_future,
        EarlyRoll.OLD_START: is_old,
        EarlyRoll.AHEAD: is_ahead,
    }
    early = first_that_applies(kinds, _EARLY)
    by_ms = np.select(list(kinds.values()), [in_future, behind, jump], 0)
    return early, Int64Column(by_ms, early != NO_CODE)


def _later_records(
    rows: RollColumns, is_last: Bools, start: Int64s, segment_ms: Int64s
) -> Int64Column:
    """Return a timestamp that comes after the next batch and would not have ended the segment.

    The largest one of the segment after the next, else the smallest one of the next.
    """
    later = _following_of(rows.max_timestamp, is_last, 2)
    small = _following_of(rows.smallest_timestamp, is_last)
    by_later = later.known & (later.values >= 0) & (later.values - start <= segment_ms)
    by_small = small.known & (small.values >= 0) & (small.values - start <= segment_ms)
    return Int64Column(np.where(by_later, later.values, small.values), by_later | by_small)


def _following_of(column: Int64Column, is_last: Bools, by: int = 1) -> Int64Column:
    """Return for each row the value of the next row of its partition, or the one after that."""
    for _ in range(by):
        column = Int64Column(np.roll(column.values, -1), np.roll(column.known, -1) & ~is_last)
    return column


def _ternary(is_true: Bools, is_false: Bools) -> Ternary:
    """Return 1 where the first is true, 0 where the second is, else -1."""
    return np.where(is_true, np.int8(1), np.where(is_false, np.int8(0), np.int8(-1)))


def _waited(rows: RollColumns, is_last: Bools) -> Int64Column:
    """Return the next segment's first timestamp minus the start; long arithmetic wraps as Java."""
    start, following = rows.start_timestamp, _following_of(rows.first_timestamp, is_last)
    known = start.known & (start.values >= 0) & following.known
    return Int64Column(following.values - start.values, known)


def _by_size_of(rows: RollColumns, limits: RollLimits, is_last: Bools) -> Ternary:
    """Compare with the size of the next batch, or with the bounds that it must have."""
    size, most = rows.valid_bytes, limits.segment_bytes
    least_batch, most_batch = _next_batch_bytes(rows, is_last)
    is_true = size.known & ((size.values > most - least_batch) | (size.values > most))
    is_false = size.known & most_batch.known & (size.values <= most - most_batch.values)
    return _ternary(is_true, is_false)


def _next_batch_bytes(rows: RollColumns, is_last: Bools) -> tuple[Int64s, Int64Column]:
    """Return the least and the most bytes that the next segment's first batch has."""
    exact = _following_of(rows.first_batch_bytes, is_last)
    count = _following_of(rows.batch_count, is_last)
    following = _following_of(rows.valid_bytes, is_last)
    bounded = count.known & following.known & (count.values > 0)
    others = LEGACY_HEADER_BYTES * (count.values - 1)
    most = np.where(exact.known, exact.values, following.values - others)
    is_one = bounded & (count.values == 1)
    least = np.where(is_one, following.values, LEGACY_HEADER_BYTES)
    return np.where(exact.known, exact.values, least), Int64Column(most, exact.known | bounded)


def _by_time_of(rows: RollColumns, limits: RollLimits, passed: Int64Column) -> Ternary:
    """Compare the time that a segment waited, with and without the most jitter."""
    is_empty = rows.valid_bytes.known & (rows.valid_bytes.values == 0)
    is_true = passed.known & (passed.values > limits.segment_ms) & ~is_empty
    in_time = passed.known & (passed.values <= limits.segment_ms - limits.most_jitter_ms)
    return _ternary(is_true, in_time | is_empty)


def _by_index_of(rows: RollColumns, limits: RollLimits) -> Ternary:
    """Compare the entries, or the most entries that the bytes and the batches can have."""
    offsets, times = rows.offset_entries, rows.time_entries
    is_full = offsets.known & (offsets.values >= limits.offset_slots)
    is_full |= times.known & (times.values >= limits.time_slots)
    both = offsets.known & times.known
    size, count = rows.valid_bytes, rows.batch_count
    most = np.where(size.known, size.values // (limits.index_interval_bytes + 1), NEVER_MS)
    most = np.minimum(most, np.where(count.known, count.values, NEVER_MS))
    is_free = (both & ~is_full) | (most < np.minimum(limits.offset_slots, limits.time_slots))
    return _ternary(is_full, is_free)


def _by_offset_range_of(rows: RollColumns, is_last: Bools) -> Ternary:
    """Compare the next batch's last offset: at least its base, at most its segment's last."""
    base, first = rows.base_offset, _following_of(rows.base_offset, is_last)
    exact = _following_of(rows.first_batch_last_offset, is_last)
    last = _following_of(rows.last_offset, is_last)
    least = np.where(exact.known, exact.values, first.values) - base.values
    most = np.where(exact.known, exact.values, last.values) - base.values
    known = base.known & first.known
    is_true = known & (least > MAX_INT32)
    return _ternary(is_true, known & (exact.known | last.known) & (most <= MAX_INT32))


class ExplainingSettings(NamedTuple):
    """For each partition the least and the largest value that explains all of its ends."""

    segment_bytes_from: Int64Column
    segment_bytes_to: Int64Column
    segment_ms_from: Int64Column
    segment_ms_to: Int64Column


def explaining_settings(rows: RollColumns, verdicts: RollVerdicts) -> ExplainingSettings:
    """Return the settings; unknown where no value explains all ends, or a figure is unknown.

    Ends that are doubtful are left out. A partition without any other end has no answer.
    """
    is_last = last_rows(rows.starts, rows.doubt.size)
    is_end = ~is_last & (verdicts.doubt == NO_CODE)
    least, most = _next_batch_bytes(rows, is_last)
    size, start = rows.valid_bytes, rows.start_timestamp
    too_large = Int64Column(
        size.values + most.values - 1, size.known & most.known & (least == most.values)
    )
    is_timed = start.known & (start.values >= 0)
    in_time = Int64Column(
        rows.max_timestamp.values - start.values, is_timed & rows.max_timestamp.known
    )
    passed = _waited(rows, is_last)
    too_late = Int64Column(passed.values - 1, passed.known & is_timed)
    both_ends = is_end | (is_last & (verdicts.doubt == NO_CODE))
    return ExplainingSettings(
        *_range(rows.starts, size, too_large, both_ends, is_end),
        *_range(rows.starts, in_time, too_late, both_ends, is_end),
    )


def _range(
    starts: Int64s, least: Int64Column, most: Int64Column, of_least: Bools, of_most: Bools
) -> tuple[Int64Column, Int64Column]:
    """Return for each partition the largest `least` and the smallest `most`, if all are known."""
    if not of_least.size:
        nothing = Int64Column(np.zeros(0, np.int64), np.zeros(0, bool))
        return nothing, nothing
    low = np.maximum.reduceat(np.where(of_least & least.known, least.values, 0), starts)
    high = np.minimum.reduceat(np.where(of_most & most.known, most.values, NEVER_MS), starts)
    unknown = (of_least & ~least.known) | (of_most & ~most.known)
    known = ~np.logical_or.reduceat(unknown, starts) & np.logical_or.reduceat(of_most, starts)
    known &= (low <= high) & (high > 0)
    return Int64Column(low, known), Int64Column(high, known)
