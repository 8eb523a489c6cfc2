"""Decide which segments are deletable: Kafka's three retention checks, computed on columns.

`UnifiedLog.deleteOldSegments` (Kafka 4.1) checks the log start offset, then the size, then the
time. Each check begins at the oldest remaining segment and stops at the first one that it keeps. So
the deletable segments are always the oldest ones, without a gap. The first two checks select such a
run by themselves. So a segment is deletable if a check selects it and all older ones are deletable.

A topic with tiered storage has other limits for a broker's disk, and only what was uploaded whole
may go there (`isSegmentEligibleForDeletion`): the mode LOCAL_TIER. In the remote tier the same
checks count what only the local tier has (`RLMExpirationTask`): LimitColumns.bytes_after.

A column has one value per segment. The segments of a partition are adjacent rows, oldest first, so
"all older ones" is a running count. Modes and reasons are stored as their indexes in `MODES` and
`REASONS`; -1: there is no reason. `rules.retention_rows` does the same for one partition's rows.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.rules.segment_summary import DAMAGED_STATUSES, SegmentStatus

Codes = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

NO_LIMIT: Final = -1  # of retention.ms and retention.bytes
NEVER_MS: Final = 2**63 - 1
KEPT_STATUSES: Final = (*DAMAGED_STATUSES, SegmentStatus.ARCHIVED)
"""Segments whose largest timestamp is not known: never deletable, and they block later ones."""


class ActiveSegment(StrEnum):
    """What happens to the last segment of a partition; each member is its own text."""

    KEEP = "keep"
    KAFKA = "kafka"  # judged as a broker does


class Boundary(StrEnum):
    """How a segment at the very limit is judged; each member is its own text."""

    LOCAL = "local"  # it is kept
    REMOTE = "remote"  # it expires, as in tiered storage until KAFKA-20091


class RetentionMode(StrEnum):
    """Which checks a policy allows for a topic."""

    DELETE = "delete"  # all three checks
    COMPACT = "compact"  # the log start offset only, since Kafka 2.1
    UNJUDGED = "unjudged"  # no check: __cluster_metadata
    NO_POLICY = "no_policy"  # no check: no policy applies to the topic
    TIERED = "tiered"  # no check: it is not known what of a broker's log was uploaded
    LOCAL_TIER = "local_tier"  # all three by the limits of a broker's disk, only what was uploaded


class RetentionReason(StrEnum):
    """Why a segment is deletable, or why it is kept."""

    LOG_START_OFFSET = "log_start_offset"
    RETENTION_BYTES = "retention_bytes"
    RETENTION_MS = "retention_ms"
    UNJUDGED = "unjudged"  # this one and all that follow: kept
    NO_POLICY = "no_policy"
    TIERED = "tiered"
    TRUNCATED = "truncated"
    INVALID = "invalid"
    UNREADABLE = "unreadable"
    ARCHIVED = "archived"  # in S3 Glacier
    NO_TIMESTAMP = "no_timestamp"
    NOT_UPLOADED = "not_uploaded"  # not whole in the remote tier
    COPY_LAG = "copy_lag"  # a leader does not upload it yet: remote.copy.lag.*
    OTHER_RECORDS = "other_records"  # the remote tier has other records at its offsets
    UNREFERENCED = "unreferenced"  # in the remote tier, but not of the log: it blocks nothing
    TWO_DIRECTORIES = "two_directories"  # of one partition: orders-0 and orders-00
    SAME_BASE_OFFSET = "same_base_offset"  # two files with one base offset
    ACTIVE_SEGMENT = "active_segment"
    EMPTY_ACTIVE_SEGMENT = "empty_active_segment"
    BLOCKED = "blocked"  # a check selects it, but an older segment stays
    COMPACTED = "compacted"
    NO_LIMIT = "no_limit"
    NOT_EXPIRED = "not_expired"


MODES: Final = tuple(RetentionMode)
REASONS: Final = tuple(RetentionReason)
DELETABLE_REASONS: Final = REASONS[:3]
KEPT_REASONS: Final = REASONS[3:]

_MODE: Final[dict[str, np.int8]] = {mode: np.int8(code) for code, mode in enumerate(MODES)}
_REASON: Final[dict[str, np.int8]] = {why: np.int8(code) for code, why in enumerate(REASONS)}
NO_CODE: Final = -1
_NONE: Final = np.int8(NO_CODE)


class WhatIf(NamedTuple):
    """Other settings to evaluate as well; None: the same as in the actual question.

    >>> WhatIf(retention_ms=3_600_000).ignore_future_ms is None
    True
    """

    retention_ms: int | None = None  # for topics with time retention
    ignore_future_ms: int | None = None  # if more than this in the future, use the file's time


def mode_codes(modes: Iterable[str]) -> Codes:
    """Return each mode as its index in MODES."""
    return np.array([_MODE[mode] for mode in modes], np.int8)


def reason_codes(reasons: Iterable[str | None]) -> Codes:
    """Return each reason as its index in REASONS, -1 for None."""
    return np.array([_NONE if why is None else _REASON[why] for why in reasons], np.int8)


def doubt_codes(statuses: Iterable[str]) -> Codes:
    """Return why segments with each status are never deletable, as indexes in REASONS.

    -1 for a status that does not prevent deletion.
    """
    doubtful = (_REASON[status] if status in KEPT_STATUSES else _NONE for status in statuses)
    return np.fromiter(doubtful, np.int8)


def first_that_applies(
    which: Mapping[str, Bools], codes: Mapping[str, np.int8], otherwise: np.int8 = _NONE
) -> Codes:
    """Return for each row the code of the first name that applies to it."""
    return np.select(list(which.values()), [codes[name] for name in which], otherwise)


def is_reason(codes: Codes, reason: RetentionReason) -> Bools:
    """Return which rows of a column of reasons have this one."""
    return np.equal(codes, _REASON[reason])


class Int64Column(NamedTuple):
    """Integers, and which of them are known."""

    values: Int64s
    known: Bools

    def where(self, which: Bools) -> Self:
        """Return the column with all other values unknown."""
        return self._replace(known=self.known & which)

    def take(self, rows: Int64s | slice) -> Self:
        """Return these rows of the column."""
        return self._replace(values=self.values[rows], known=self.known[rows])

    def to_list(self) -> list[int | None]:
        """Return the numbers, None for unknown ones."""
        if self.known.all():
            return list(self.values.tolist())
        pairs = zip(self.values.tolist(), self.known.tolist(), strict=True)
        return [value if known else None for value, known in pairs]


class SegmentColumns(NamedTuple):
    """What the rule needs of the segments."""

    starts: Int64s  # the index of each partition's first row
    base_offset: Int64Column  # unknown for a directory that cannot be listed
    size_bytes: Int64s  # 0: unknown
    largest_timestamp: Int64Column
    doubt: Codes  # `doubt_codes` of the status
    directory: Int64s  # a number for its partition directory's name, -1 if it has no such name
    other_tier: Codes
    """Why the other tier keeps a segment: NOT_UPLOADED, OTHER_RECORDS, UNREFERENCED; -1: no reason.

    The first two are for the mode LOCAL_TIER.
    """
    ends: Int64Column  # the offset after each segment; unknown: the next one's base offset

    @property
    def lengths(self) -> Int64s:
        """Return the number of segments of each partition."""
        return np.diff(self.starts, append=self.size_bytes.size)

    def so_far(self, flags: Bools) -> Int64s:
        """Return for each row how many rows of its partition are flagged up to this one."""
        counts = np.cumsum(flags, dtype=np.int64)
        before = counts[self.starts] - flags[self.starts]
        return counts - np.repeat(before, self.lengths)


class LimitColumns(NamedTuple):
    """The settings for each row's partition."""

    mode: Codes  # indexes in MODES
    retention_ms: Int64s
    retention_bytes: Int64s
    log_start_offset: Int64Column
    keeps_active: Bools  # `active_segment` is keep
    is_remote: Bools  # `boundary` is remote
    upload_within_ms: Int64s  # retention.ms of a topic whose local tier is judged, else NO_LIMIT
    bytes_after: Int64s  # of the segments that only the local tier has, after those of the remote
    copy_lag_ms: Int64s  # 0, as 0 of the next one: uploaded at once; NO_LIMIT: never by time
    copy_lag_bytes: Int64s


class Decisions(NamedTuple):
    """Whether each segment is deletable, when, and why."""

    retention_ms_breached: Bools  # by its own timestamp, regardless of older segments
    deletable: Bools
    reason: Codes  # indexes in REASONS
    expires_at_ms: Int64Column  # by its own timestamp; unknown: never by time
    deletable_at_ms: Int64Column  # with all older ones; 0: by size or offset; unknown: not by time
    blocked_by_base_offset: Int64Column
    blocked_by_timestamp: Int64Column
    kept_only_by_blocker: Bools  # it would be deletable if the blocking segment were
    upload_before_ms: Int64Column
    """When retention.ms takes a segment that was not uploaded; unknown: uploaded, or no limit."""

    def part(self, rows: slice) -> "Decisions":
        """Return the decisions of some rows."""
        some: Any = (c.take(rows) if isinstance(c, Int64Column) else c[rows] for c in self)
        return Decisions(*some)


def judge_columns(segments: SegmentColumns, limits: LimitColumns, *, now_ms: int) -> Decisions:
    """Return a decision for each segment; `limits` has one value per segment.

    The high watermark is assumed to be the end of the log: an archive does not have it.
    """
    expires_at = _expires_at(segments.largest_timestamp, limits)
    breached = expires_at.known & _is_breached(segments.largest_timestamp.values, limits, now_ms)
    untimed = _untimed_reason(segments, limits)
    wanted = np.where((untimed == _NONE) & breached, _REASON[RetentionReason.RETENTION_MS], untimed)
    kept_for = _kept_for(segments, limits, now_ms)
    is_kept, is_wanted = kept_for != _NONE, wanted != _NONE
    of_log = ~is_reason(segments.other_tier, RetentionReason.UNREFERENCED)
    stays = (is_kept | ~is_wanted) & of_log
    staying = segments.so_far(stays)
    deletable = (staying == 0) & of_log
    blocked = ~is_kept & is_wanted & ~deletable
    blocker = _first(stays, segments)
    return Decisions(
        breached,
        deletable,
        np.select(
            [is_kept, deletable, blocked],
            [kept_for, wanted, _REASON[RetentionReason.BLOCKED]],
            _unwanted_reason(limits),
        ),
        expires_at,
        _deletable_at(segments, expires_at, untimed != _NONE, is_kept, of_log),
        segments.base_offset.take(blocker).where(blocked),
        segments.largest_timestamp.take(blocker).where(blocked),
        ~stays & of_log & (staying == 1),
        _upload_before(segments.largest_timestamp, limits, kept_for),
    )


def _upload_before(largest: Int64Column, limits: LimitColumns, kept_for: Codes) -> Int64Column:
    """Return the first time at which retention.ms is over for what was not uploaded."""
    limit = limits.upload_within_ms
    missing = largest.known & (limit >= 0) & is_reason(kept_for, RetentionReason.NOT_UPLOADED)
    return Int64Column(_sum_to_never(largest.values, limit, 1), missing)


def _first(flags: Bools, segments: SegmentColumns) -> Int64s:
    """Return for each row the index of its partition's first flagged row; any index if none is."""
    rows = flags.size
    if not rows:
        return np.zeros(0, np.int64)
    numbers = np.where(flags, np.arange(rows), rows - 1)
    return np.repeat(np.minimum.reduceat(numbers, segments.starts), segments.lengths)


def _is_breached(largest: Int64s, limits: LimitColumns, now_ms: int) -> Bools:
    """Return which timestamps time retention selects, if there is a limit.

    `now - largestTimestamp > retention.ms` (`UnifiedLog.deleteRetentionMsBreachedSegments`);
    remote: `maxTimestampMs <= now - retention.ms` unless that is negative (`RemoteLogManager`
    before KAFKA-20091).
    """
    oldest_kept = now_ms - limits.retention_ms
    remote = (oldest_kept >= 0) & (largest <= oldest_kept)
    return np.where(limits.is_remote, remote, largest < oldest_kept)


def _expires_at(largest: Int64Column, limits: LimitColumns) -> Int64Column:
    """Return the first time at which a segment breaches its limit, at most NEVER_MS."""
    limit = limits.retention_ms
    timed = _deletes(limits) & (limit >= 0)
    moment = _sum_to_never(largest.values, limit, np.where(limits.is_remote, 0, 1))
    moment = np.where(limits.is_remote, np.maximum(moment, limit), moment)
    return Int64Column(moment, largest.known & timed)


def _sum_to_never(times: Int64s, limit: Int64s, more: Int64s | int) -> Int64s:
    """Return the sums, at most NEVER_MS; `limit` is not negative where a sum is used."""
    # A sum that does not fit int64 is not used. The parts of a sum that fits may overflow.
    is_never = times > NEVER_MS - limit - more
    return np.where(is_never, NEVER_MS, times + limit + more)


def _deletes(limits: LimitColumns) -> Bools:
    """Return for which rows all three checks are allowed."""
    modes = (RetentionMode.DELETE, RetentionMode.LOCAL_TIER)
    return np.isin(limits.mode, [_MODE[mode] for mode in modes])


def _untimed_reason(segments: SegmentColumns, limits: LimitColumns) -> Codes:
    """Return the check, other than time, that selects each segment."""
    is_last = last_rows(segments.starts, segments.size_bytes.size)
    is_delete = _deletes(limits)
    by_offset = is_delete | (limits.mode == _MODE[RetentionMode.COMPACT])
    by_offset &= _is_below_log_start(segments, limits, is_last)
    limit = limits.retention_bytes
    by_size = is_delete & (limit >= 0) & (limit <= _bytes_following(segments, limits, is_last))
    checks: dict[str, Bools] = {
        RetentionReason.LOG_START_OFFSET: by_offset,
        RetentionReason.RETENTION_BYTES: by_size,
    }
    return first_that_applies(checks, _REASON)


def _bytes_following(segments: SegmentColumns, limits: LimitColumns, is_last: Bools) -> Int64s:
    """Return the size of the log after each segment."""
    of_log = ~is_reason(segments.other_tier, RetentionReason.UNREFERENCED)
    so_far = np.cumsum(np.where(of_log, segments.size_bytes, 0))
    return np.asarray(np.repeat(so_far[is_last], segments.lengths) - so_far + limits.bytes_after)


def _is_below_log_start(segments: SegmentColumns, limits: LimitColumns, is_last: Bools) -> Bools:
    """Return which segments end, or are followed by one that begins, at the log start or before."""
    base, start, own = segments.base_offset, limits.log_start_offset, segments.ends
    known = own.known | (np.roll(base.known, -1) & ~is_last)
    ends = np.where(own.known, own.values, np.roll(base.values, -1))
    return start.known & known & (ends <= start.values)


def _kept_for(segments: SegmentColumns, limits: LimitColumns, now_ms: int) -> Codes:
    """Return why a segment is kept even if a check selects it."""
    is_last = last_rows(segments.starts, segments.size_bytes.size)
    empty = segments.size_bytes == 0
    unjudged = (RetentionMode.UNJUDGED, RetentionMode.NO_POLICY, RetentionMode.TIERED)
    below = _is_below_log_start(segments, limits, is_last)
    needs_upload = (limits.mode == _MODE[RetentionMode.LOCAL_TIER]) & ~below
    lacks = needs_upload & is_reason(segments.other_tier, RetentionReason.NOT_UPLOADED)
    differs = needs_upload & is_reason(segments.other_tier, RetentionReason.OTHER_RECORDS)
    reasons: dict[str, Bools] = {
        **{mode: limits.mode == _MODE[mode] for mode in unjudged},
        RetentionReason.UNREFERENCED: is_reason(segments.other_tier, RetentionReason.UNREFERENCED),
        **{status: segments.doubt == _REASON[status] for status in KEPT_STATUSES},
        RetentionReason.NO_TIMESTAMP: ~segments.largest_timestamp.known,
        RetentionReason.TWO_DIRECTORIES: _has_two_directories(segments),
        RetentionReason.SAME_BASE_OFFSET: _has_same_base_offset(segments, is_last),
        RetentionReason.ACTIVE_SEGMENT: is_last & limits.keeps_active,
        RetentionReason.EMPTY_ACTIVE_SEGMENT: is_last & empty & ~limits.keeps_active,
        RetentionReason.COPY_LAG: lacks & _waits_for_copy(segments, limits, is_last, now_ms),
        RetentionReason.NOT_UPLOADED: lacks,
        RetentionReason.OTHER_RECORDS: differs,
    }
    return first_that_applies(reasons, _REASON)


def _waits_for_copy(
    segments: SegmentColumns, limits: LimitColumns, is_last: Bools, now_ms: int
) -> Bools:
    """Return which segments after the last upload a leader does not upload yet.

    It goes from the oldest one to the first that is too new (`RLMCopyTask.candidateLogSegments`).
    """
    lag_ms, lag_bytes = limits.copy_lag_ms, limits.copy_lag_bytes
    at_once = (lag_ms == 0) | (lag_bytes == 0)
    if at_once.all():  # Kafka's default
        return np.asarray(~at_once)
    largest = segments.largest_timestamp
    is_old = ~largest.known | (largest.values > now_ms) | (largest.values <= now_ms - lag_ms)
    is_far = _bytes_following(segments, limits, is_last) >= lag_bytes
    is_due = at_once | ((lag_ms > 0) & is_old) | ((lag_bytes > 0) & is_far)
    is_uploaded = segments.other_tier == _NONE
    so_far = segments.so_far(is_uploaded)
    is_after = ~is_uploaded & (so_far == np.repeat(so_far[is_last], segments.lengths))
    return np.asarray(is_after & (segments.so_far(~is_due & is_after) > 0))


def last_rows(starts: Int64s, rows: int) -> Bools:
    """Return which of `rows` rows are the last of their partition."""
    found = np.zeros(rows, bool)
    found[starts - 1] = True  # -1 for the first partition: the last row of all
    return found


def _has_two_directories(segments: SegmentColumns) -> Bools:
    directory, starts = segments.directory, segments.starts
    if not directory.size or directory.max() == directory.min():
        return np.zeros(directory.size, bool)
    last = np.maximum.reduceat(directory, starts)
    first = np.minimum.reduceat(np.where(directory < 0, NEVER_MS, directory), starts)
    return np.repeat(first < last, segments.lengths) & (directory >= 0)


def _has_same_base_offset(segments: SegmentColumns, is_last: Bools) -> Bools:
    base, ends = segments.base_offset, segments.ends
    found = np.zeros(is_last.size, bool)
    same = base.known[1:] & base.known[:-1] & (base.values[1:] == base.values[:-1]) & ~is_last[:-1]
    # In the remote tier a new leader uploads longer segments that begin where others do.
    same &= ~(ends.known[1:] & ends.known[:-1] & (ends.values[1:] != ends.values[:-1]))
    found[1:] |= same
    found[:-1] |= same
    return found


def _unwanted_reason(limits: LimitColumns) -> Codes:
    """Return why no check selects a segment."""
    reasons: dict[str, Bools] = {
        RetentionReason.COMPACTED: limits.mode == _MODE[RetentionMode.COMPACT],
        RetentionReason.NO_LIMIT: (limits.retention_ms < 0) & (limits.retention_bytes < 0),
    }
    return first_that_applies(reasons, _REASON, _REASON[RetentionReason.NOT_EXPIRED])


def _deletable_at(
    segments: SegmentColumns,
    expires_at: Int64Column,
    is_untimed: Bools,
    is_kept: Bools,
    of_log: Bools,
) -> Int64Column:
    """Return the latest time, over the rows up to each one, at which a check selects the row."""
    endless = (is_kept | ~(is_untimed | expires_at.known)) & of_log
    own = np.where(endless | is_untimed | ~of_log, 0, np.maximum(expires_at.values, 0))
    is_known = (segments.so_far(endless) == 0) & of_log
    return Int64Column(running_max(own, segments.starts), is_known)


def running_max(values: Int64s, starts: Int64s) -> Int64s:
    """Return the largest value of a partition up to each row: exact, in log(longest) passes."""
    lengths = np.diff(starts, append=values.size)
    place = np.arange(values.size) - np.repeat(starts, lengths)
    largest, step = values.copy(), 1
    while step < lengths.max(initial=0):
        before = np.where(place[step:] >= step, largest[:-step], largest[step:])
        largest[step:] = np.maximum(largest[step:], before)
        step *= 2
    return largest
