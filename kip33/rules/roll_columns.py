"""Judge the segments of a catalog by the rule for rolling, on columns.

A segment ended because of the batch that the next segment begins with. So each row is compared with
the next row of its partition. A condition is true, false or not known: the catalog has the next
segment's first timestamp, but the size of its first batch only within bounds. Nothing is guessed:
what is not known stays so, and `not_seen` says what would be needed.

A batch counts as one append, as on a leader. A follower appends what it fetched at once: where only
that explains an end, the reason is `several_batches`.
"""

from typing import Final

import numpy as np

from kip33.rules.retention import NEVER_MS
from kip33.rules.retention_columns import NO_CODE, Bools, Codes, Int64Column, Int64s
from kip33.rules.roll_conditions import (
    by_index_of,
    by_offset_range_of,
    by_size_of,
    by_time_of,
    following_of,
    last_rows,
    waited,
)
from kip33.rules.roll_verdicts import (
    EARLY_ROLLS,
    ROLL_DOUBTS,
    ROLL_REASONS,
    UNSEEN,
    EarlyRoll,
    NotSeen,
    RollColumns,
    RollDoubt,
    RollLimits,
    RollVerdicts,
    Ternary,
    int8_of,
)
from kip33.rules.rolling import RollReason

EARLY_SHARE: Final = 10  # a roll is early if timestamps moved it by more than segment.ms / 10


def judge_rolls(rows: RollColumns, limits: RollLimits) -> RollVerdicts:
    """Return the verdict on each segment."""
    is_last = last_rows(rows)
    doubt = _doubts(rows, limits, is_last)
    passed = waited(rows, is_last)
    is_untimed = rows.start_timestamp.known & (rows.start_timestamp.values < 0)
    conditions = (
        by_size_of(rows, limits, is_last),
        by_time_of(rows, limits, passed),
        by_index_of(rows, limits),
        by_offset_range_of(rows, is_last),
    )
    is_told = ~is_last & (doubt == NO_CODE)
    by_size, by_time, by_index, by_range = (
        np.where(is_told, one, np.int8(-1)) for one in conditions
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


_REASON: Final = int8_of(ROLL_REASONS)
_DOUBT: Final = int8_of(ROLL_DOUBTS)
_UNSEEN: Final = int8_of(UNSEEN)
_EARLY: Final = int8_of(EARLY_ROLLS)
_NONE: Final = np.int8(NO_CODE)


def _doubts(rows: RollColumns, limits: RollLimits, is_last: Bools) -> Codes:
    base, last = rows.base_offset, rows.last_offset
    following = following_of(base, is_last)
    both = following.known & base.known
    step = following.values - last.values
    reaches = following.known & last.known
    records, reached = rows.record_count, last.known & base.known
    missing = reached & records.known & (last.values - base.values >= records.values)
    return np.select(
        [
            rows.doubt != NO_CODE,
            ~base.known,
            both & (following.values == base.values),
            reaches & (step < 1),
            reaches & (step > 1),
            limits.is_compacted & ~is_last,
            missing,
        ],
        [
            rows.doubt,
            *(
                _DOUBT[one]
                for one in (
                    RollDoubt.UNREADABLE,
                    RollDoubt.SAME_BASE_OFFSET,
                    RollDoubt.OVERLAP,
                    RollDoubt.HOLE,
                    RollDoubt.COMPACTED,
                    RollDoubt.OFFSETS_MISSING,
                )
            ),
        ],
        _NONE,
    )


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
    passed = waited(rows, is_last)
    others_are_false = (by_size == 0) & (by_index == 0) & (by_range == 0)
    jitter = others_are_false & (by_time == -1) & passed.known
    none = others_are_false & (by_time == 0)
    several = none & _fits_several_batches(rows, limits, is_last)
    reasons = (
        (RollReason.ACTIVE, is_last & (rows.doubt == NO_CODE) & rows.base_offset.known),
        (RollReason.UNKNOWN, ~is_told),
        (RollReason.SIZE, by_size == 1),
        (RollReason.TIME, by_time == 1),
        (RollReason.INDEX_FULL, by_index == 1),
        (RollReason.OFFSET_RANGE, by_range == 1),
        (RollReason.JITTER, jitter),
        (RollReason.SEVERAL_BATCHES, several),
        (RollReason.UNEXPLAINED, none),
    )
    return np.select(
        [which for _, which in reasons],
        [_REASON[reason] for reason, _ in reasons],
        _REASON[RollReason.UNKNOWN],
    )


def _fits_several_batches(rows: RollColumns, limits: RollLimits, is_last: Bools) -> Bools:
    """Return where the end is explained if all of the next segment had been appended at once."""
    start = rows.start_timestamp
    size, latest = (
        following_of(rows.valid_bytes, is_last),
        following_of(rows.max_timestamp, is_last),
    )
    too_large = size.known & (rows.valid_bytes.values + size.values > limits.segment_bytes)
    too_late = start.known & (start.values >= 0) & latest.known & (latest.values >= 0)
    too_late &= latest.values - start.values > limits.segment_ms
    return np.asarray(too_large | too_late)


def _not_seen(
    rows: RollColumns, is_last: Bools, which: Bools, conditions: tuple[Ternary, ...]
) -> Codes:
    by_size, by_time, by_index, by_range = (one == -1 for one in conditions)
    start = rows.start_timestamp
    missing = (
        (NotSeen.NEXT_BATCH, ~following_of(rows.first_timestamp, is_last).known),
        (NotSeen.START_TIMESTAMP, by_time & ~start.known),
        (NotSeen.CREATION_TIME, by_time & (start.values < 0)),
        (NotSeen.NEXT_BATCH_BYTES, by_size),
        (NotSeen.INDEX_ENTRIES, by_index),
        (NotSeen.NEXT_BATCH_LAST_OFFSET, by_range),
    )
    codes = [_UNSEEN[one] for one, _ in missing]
    found = np.select([unseen for _, unseen in missing], codes, _NONE)
    return np.where(which, found, _NONE)


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
    outside = [_DOUBT[one] for one in (RollDoubt.SAME_BASE_OFFSET, RollDoubt.OVERLAP)]
    return np.asarray((doubt != NO_CODE) & ~np.isin(doubt, [*outside, _DOUBT[RollDoubt.HOLE]]))


def _early(
    rows: RollColumns, limits: RollLimits, is_last: Bools, which: Bools
) -> tuple[Codes, Int64Column]:
    """Return which timestamp moved a roll by time, and by how much."""
    start = rows.start_timestamp.values
    ahead = following_of(rows.first_timestamp, is_last)
    least_ms = limits.segment_ms // EARLY_SHARE
    modified = following_of(rows.last_modified_ms, is_last)
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
    codes = [_EARLY[one] for one in (EarlyRoll.FUTURE, EarlyRoll.OLD_START, EarlyRoll.AHEAD)]
    early = np.select([is_future, is_old, is_ahead], codes, _NONE)
    return early, Int64Column(
        np.select([is_future, is_old, is_ahead], [in_future, behind, jump], 0), early != NO_CODE
    )


def _later_records(
    rows: RollColumns, is_last: Bools, start: Int64s, segment_ms: Int64s
) -> Int64Column:
    """Return a timestamp that comes after the next batch and would not have ended the segment.

    The largest one of the segment after the next, else the smallest one of the next.
    """
    later = following_of(rows.max_timestamp, is_last, 2)
    small = following_of(rows.smallest_timestamp, is_last)
    by_later = later.known & (later.values >= 0) & (later.values - start <= segment_ms)
    by_small = small.known & (small.values >= 0) & (small.values - start <= segment_ms)
    return Int64Column(np.where(by_later, later.values, small.values), by_later | by_small)
