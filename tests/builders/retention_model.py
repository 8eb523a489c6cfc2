"""The retention rule as a plain loop over one partition's segments; the columns must equal it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kip33.rules.retention import KEPT_STATUSES, NEVER_MS, RetentionMode
from kip33.rules.retention_rows import Decision, Limits, SegmentFigures
from kip33.rules.suspicious_timestamps import DEFAULT_AFTER_MAX_MS, YEAR_1990_MS, YEAR_MS, Suspicion

DELETING = (RetentionMode.DELETE, RetentionMode.LOCAL_TIER)


def is_breached(largest_timestamp: int, *, retention_ms: int, now_ms: int, boundary: str) -> bool:
    """Return whether time retention selects a segment.

    `now - largestTimestamp > retention.ms` (`UnifiedLog.deleteRetentionMsBreachedSegments`);
    remote: `maxTimestampMs <= now - retention.ms` unless that is negative (`RemoteLogManager`
    before KAFKA-20091). A negative limit selects nothing.
    """
    if retention_ms < 0:
        return False
    if boundary == "remote":
        return now_ms >= retention_ms and largest_timestamp <= now_ms - retention_ms
    return now_ms - largest_timestamp > retention_ms


def expires_at_ms(largest_timestamp: int, *, retention_ms: int, boundary: str) -> int | None:
    """Return the first time at which `is_breached` is true, at most NEVER_MS; None: no limit."""
    if retention_ms < 0:
        return None
    if boundary == "remote":
        return min(NEVER_MS, max(largest_timestamp + retention_ms, retention_ms))
    return min(NEVER_MS, largest_timestamp + retention_ms + 1)


def judge_in_a_loop(
    segments: Sequence[SegmentFigures], limits: Limits, *, now_ms: int
) -> list[Decision]:
    """Return a decision for each segment of one partition, given oldest first.

    The high watermark is assumed to be the end of the log: an archive does not have it. `now_ms` is
    one time for all segments, as in Kafka.
    """
    decisions: list[Decision] = []
    blocker: SegmentFigures | None = None  # the first that is kept
    deletable_at: int | None = 0
    for segment, own in _each_by_itself(segments, limits, now_ms):
        own_at = None if own.kept_for else own.from_ms
        if own.kept_for == "unreferenced":  # not of the log: it blocks nothing
            decisions.append(Decision(own.breached, False, own.kept_for, own.expires_at_ms, None))
            continue
        if deletable_at is not None:
            deletable_at = None if own_at is None else max(deletable_at, own_at)
        if own.wanted and not own.kept_for and blocker is None:
            decision = Decision(own.breached, True, own.wanted, own.expires_at_ms, deletable_at)
        else:
            reason = own.kept_for or ("blocked" if own.wanted else _calm_reason(limits))
            decision = Decision(own.breached, False, reason, own.expires_at_ms, deletable_at)
            if reason == "blocked" and blocker:
                decision = decision._replace(
                    blocked_by_base_offset=blocker.base_offset,
                    blocked_by_timestamp=blocker.largest_timestamp,
                )
            if reason == "not_uploaded" and limits.upload_within_ms >= 0:
                before_ms = expires_at_ms(
                    segment.largest_timestamp or 0,
                    retention_ms=limits.upload_within_ms,
                    boundary="local",
                )
                decision = decision._replace(upload_before_ms=before_ms)
            blocker = blocker or segment
        decisions.append(decision)
    return decisions


def doubt_of(status: str, largest_timestamp: int | None) -> str | None:
    """Return why a segment is never deletable and blocks those after it; None if it may be."""
    if status in KEPT_STATUSES:
        return status
    return "no_timestamp" if largest_timestamp is None else None


class _SegmentAlone(NamedTuple):
    """The values of a segment that do not depend on older segments."""

    wanted: str | None  # the first check that selects it now
    kept_for: str | None
    breached: bool
    expires_at_ms: int | None
    from_ms: int | None  # when a check begins to select it


def _each_by_itself(
    segments: Sequence[SegmentFigures], limits: Limits, now_ms: int
) -> Iterator[tuple[SegmentFigures, _SegmentAlone]]:
    of_log = [segment for segment in segments if segment.other_tier != "unreferenced"]
    remaining_bytes = sum(segment.size_bytes or 0 for segment in of_log) + limits.bytes_after
    directories = {segment.directory for segment in segments} - {None}
    is_doubled = len(directories) > 1
    uploads = [number for number, one in enumerate(segments) if one.other_tier is None]
    has_waiting = False
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        previous = segments[number - 1] if number else None
        remaining_bytes -= (segment.size_bytes or 0) if segment in of_log else 0
        time, expires_at, breached = segment.largest_timestamp, None, False
        if limits.mode in DELETING and time is not None:
            retention_ms, boundary = limits.retention_ms, limits.boundary
            expires_at = expires_at_ms(time, retention_ms=retention_ms, boundary=boundary)
            breached = is_breached(
                time, retention_ms=retention_ms, now_ms=now_ms, boundary=boundary
            )
        untimed = _untimed_reason(segment, following, remaining_bytes, limits)
        kept_for = _kept_for(segment, previous, following, limits, is_doubled=is_doubled)
        if number > max(uploads, default=-1):
            has_waiting |= not copies_now(segment, remaining_bytes, limits, now_ms)
            kept_for = "copy_lag" if has_waiting and kept_for == "not_uploaded" else kept_for
        yield (
            segment,
            _SegmentAlone(
                untimed or ("retention_ms" if breached else None),
                kept_for,
                breached,
                expires_at,
                0 if untimed else expires_at,
            ),
        )


def copies_now(segment: SegmentFigures, following: int, limits: Limits, now_ms: int) -> bool:
    """Return whether a leader uploads a segment that `following` bytes follow.

    `RLMCopyTask.isEligibleForUpload`; what has no timestamp is not held back.
    """
    lag_ms, lag_bytes, time = limits.copy_lag_ms, limits.copy_lag_bytes, segment.largest_timestamp
    if lag_ms == 0 or lag_bytes == 0:
        return True
    if lag_ms > 0 and (time is None or now_ms - time < 0 or now_ms - time >= lag_ms):
        return True
    return 0 < lag_bytes <= following


def _untimed_reason(
    segment: SegmentFigures,
    following: SegmentFigures | None,
    remaining_bytes: int,
    limits: Limits,
) -> str | None:
    """Return the check, other than time, that selects a segment; `remaining_bytes` follow it."""
    start = limits.log_start_offset
    next_base = following.base_offset if following else None
    next_base = next_base if segment.end is None else segment.end
    if (
        limits.mode in (*DELETING, RetentionMode.COMPACT)
        and start is not None
        and next_base is not None
        and next_base <= start
    ):
        return "log_start_offset"
    if limits.mode in DELETING and 0 <= limits.retention_bytes <= remaining_bytes:
        return "retention_bytes"
    return None


def _kept_for(
    segment: SegmentFigures,
    previous: SegmentFigures | None,
    following: SegmentFigures | None,
    limits: Limits,
    *,
    is_doubled: bool,
) -> str | None:
    """Return why a segment is kept even if a check selects it; None if there is no such reason."""
    if limits.mode in (RetentionMode.UNJUDGED, RetentionMode.NO_POLICY, RetentionMode.TIERED):
        return limits.mode
    if segment.other_tier == "unreferenced":
        return segment.other_tier
    doubt = doubt_of(segment.status, segment.largest_timestamp)
    if doubt:
        return doubt
    if is_doubled and segment.directory:
        return "two_directories"
    for other in (previous, following):
        has_other_end = other and None not in (other.end, segment.end) and other.end != segment.end
        if other and other.base_offset == segment.base_offset and not has_other_end:
            return "same_base_offset"
    if following is None and limits.active_segment == "keep":
        return "active_segment"
    if following is None and not segment.size_bytes:
        return "empty_active_segment"
    if limits.mode == RetentionMode.LOCAL_TIER and segment.other_tier:
        below = _untimed_reason(segment, following, 0, limits) == "log_start_offset"
        return None if below else segment.other_tier
    return None


def _calm_reason(limits: Limits) -> str:
    """Return why no check selects a segment."""
    if limits.mode == RetentionMode.COMPACT:
        return "compacted"
    if limits.retention_ms < 0 and limits.retention_bytes < 0:
        return "no_limit"
    return "not_expired"


def suspicion_of_one(
    timestamp: int,
    *,
    now_ms: int,
    last_modified_ms: int | None = None,
    retention_ms: int = -1,
    is_create_time: bool = True,
    after_max_ms: int = DEFAULT_AFTER_MAX_MS,
) -> str | None:
    """Return what is suspicious about a segment's largest message timestamp, None if nothing is.

    `after_max_ms` is how far in the future a broker accepts a timestamp. `last_modified_ms` and
    `retention_ms` (-1: no limit) are used only for backfills.
    """
    for scale, name in ((1_000, Suspicion.MICROSECONDS), (1_000_000, Suspicion.NANOSECONDS)):
        if YEAR_1990_MS * scale <= timestamp < (now_ms + YEAR_MS) * scale:
            return name
    if timestamp - now_ms > after_max_ms:
        return Suspicion.FUTURE
    if YEAR_1990_MS // 1_000 <= timestamp < (now_ms + YEAR_MS) // 1_000:
        return Suspicion.SECONDS
    if timestamp < YEAR_1990_MS:
        return Suspicion.BEFORE_1990
    if is_create_time and retention_ms >= 0 and last_modified_ms is not None:
        return Suspicion.BACKFILL if last_modified_ms - timestamp > retention_ms else None
    return None
