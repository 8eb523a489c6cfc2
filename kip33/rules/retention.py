"""What may expire: Kafka's three checks on the segments of one partition, oldest first.

`UnifiedLog.deleteOldSegments` (Kafka 4.1) asks, in this order, the log start offset, the size and
the time. Each check begins at the oldest segment that is left and stops at the first that stays,
so what is deletable is always the oldest run. The first two hold for a run from the oldest on by
their nature, hence one walk decides: a segment goes if any check wants it and all before it go.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kip33.rules.segment_status import SegmentStatus

NO_LIMIT: Final = -1  # of retention.ms and retention.bytes
NEVER_MS: Final = 2**63 - 1
DOUBTFUL_STATUSES: Final = (
    SegmentStatus.TRUNCATED,
    SegmentStatus.INVALID,
    SegmentStatus.UNREADABLE,
)

# What a policy lets retention do with a topic.
DELETE: Final = "delete"  # all three checks
COMPACT: Final = "compact"  # the log start offset only, since Kafka 2.1
UNJUDGED: Final = "unjudged"  # nothing: __cluster_metadata
NO_POLICY: Final = "no_policy"  # nothing: nobody said what holds for the topic
MODES: Final = (DELETE, COMPACT, UNJUDGED, NO_POLICY)

ACTIVE_SEGMENT: Final = ("keep", "kafka")  # the last segment: kept (D5), or judged as a broker does
BOUNDARIES: Final = ("local", "remote")  # remote: tiered storage's comparison until KAFKA-20091

DELETABLE_REASONS: Final = ("log_start_offset", "retention_bytes", "retention_ms")
KEPT_REASONS: Final = (
    *(UNJUDGED, NO_POLICY),
    *DOUBTFUL_STATUSES,
    "no_timestamp",
    "two_directories",  # of one partition: orders-0 and orders-00
    "same_base_offset",  # two files of one base offset
    "active_segment",
    "empty_active_segment",
    "blocked",  # a check wants it, an older segment stays
    "compacted",
    "no_limit",
    "not_expired",
)


class SegmentFigures(NamedTuple):
    """What the rule asks of a segment; `base_offset` is None for an unlistable directory."""

    base_offset: int | None
    size_bytes: int | None
    largest_timestamp: int | None
    status: str = SegmentStatus.OK
    directory: str | None = None  # its partition directory's name, None where it has none


class Limits(NamedTuple):
    """What one partition is judged by; -1 is no limit, no log start offset is the first segment."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    mode: str = DELETE
    log_start_offset: int | None = None
    active_segment: str = "keep"
    boundary: str = "local"


class Decision(NamedTuple):
    """What becomes of a segment, and why."""

    retention_ms_breached: bool  # by its own timestamp, whatever stands before it
    deletable: bool
    reason: str  # one of DELETABLE_REASONS or KEPT_REASONS
    expires_at_ms: int | None  # by its own timestamp; None: never by time
    deletable_at_ms: int | None  # with all before it; 0: by size or offset; None: not by itself
    blocked_by_base_offset: int | None = None
    blocked_by_timestamp: int | None = None


def is_breached(largest_timestamp: int, *, retention_ms: int, now_ms: int, boundary: str) -> bool:
    """Return whether time retention wants a segment.

    `now - largestTimestamp > retention.ms` (`UnifiedLog.deleteRetentionMsBreachedSegments`);
    remote: `maxTimestampMs <= now - retention.ms` unless that is negative (`RemoteLogManager`
    before KAFKA-20091). A negative limit wants none.
    """
    if retention_ms < 0:
        return False
    if boundary == "remote":
        return now_ms >= retention_ms and largest_timestamp <= now_ms - retention_ms
    return now_ms - largest_timestamp > retention_ms


def expires_at_ms(largest_timestamp: int, *, retention_ms: int, boundary: str) -> int | None:
    """Return the first moment at which `is_breached`, at most NEVER_MS; None without a limit."""
    if retention_ms < 0:
        return None
    if boundary == "remote":
        return min(NEVER_MS, max(largest_timestamp + retention_ms, retention_ms))
    return min(NEVER_MS, largest_timestamp + retention_ms + 1)


def judge(segments: Sequence[SegmentFigures], limits: Limits, *, now_ms: int) -> list[Decision]:
    """Return a decision for each segment of one partition, given oldest first.

    The high watermark is taken to be the log's end: an archive has no later truth. `now_ms` is
    one moment for the whole pass, as in Kafka.
    """
    decisions: list[Decision] = []
    blocker: SegmentFigures | None = None  # the first that stays
    deletable_at: int | None = 0
    for segment, own in _each_by_itself(segments, limits, now_ms):
        own_at = None if own.kept_for else own.from_ms
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
            blocker = blocker or segment
        decisions.append(decision)
    return decisions


def doubt_of(status: str, largest_timestamp: int | None) -> str | None:
    """Return why a segment is never deletable and blocks what follows (D11), None if it is not."""
    if status in DOUBTFUL_STATUSES:
        return status
    return "no_timestamp" if largest_timestamp is None else None


class _SegmentAlone(NamedTuple):
    """What a segment is apart from those before it."""

    wanted: str | None  # the first check that wants it now
    kept_for: str | None
    breached: bool
    expires_at_ms: int | None
    from_ms: int | None  # when a check begins to want it


def _each_by_itself(
    segments: Sequence[SegmentFigures], limits: Limits, now_ms: int
) -> Iterator[tuple[SegmentFigures, _SegmentAlone]]:
    remaining_bytes = sum(segment.size_bytes or 0 for segment in segments)
    directories = {segment.directory for segment in segments} - {None}
    is_doubled = len(directories) > 1
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        previous = segments[number - 1] if number else None
        remaining_bytes -= segment.size_bytes or 0
        time, expires_at, breached = segment.largest_timestamp, None, False
        if limits.mode == DELETE and time is not None:
            retention_ms, boundary = limits.retention_ms, limits.boundary
            expires_at = expires_at_ms(time, retention_ms=retention_ms, boundary=boundary)
            breached = is_breached(
                time, retention_ms=retention_ms, now_ms=now_ms, boundary=boundary
            )
        untimed = _untimed_reason(following, remaining_bytes, limits)
        yield (
            segment,
            _SegmentAlone(
                untimed or ("retention_ms" if breached else None),
                _kept_for(segment, previous, following, limits, is_doubled=is_doubled),
                breached,
                expires_at,
                0 if untimed else expires_at,
            ),
        )


def _untimed_reason(
    following: SegmentFigures | None, remaining_bytes: int, limits: Limits
) -> str | None:
    """Return the check besides time that wants a segment; `remaining_bytes` follow it."""
    start = limits.log_start_offset
    next_base = following.base_offset if following else None
    if (
        limits.mode in (DELETE, COMPACT)
        and start is not None
        and next_base is not None
        and next_base <= start
    ):
        return "log_start_offset"
    if limits.mode == DELETE and 0 <= limits.retention_bytes <= remaining_bytes:
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
    """Return why a segment stays whatever the checks want, None if nothing keeps it."""
    if limits.mode in (UNJUDGED, NO_POLICY):
        return limits.mode
    doubt = doubt_of(segment.status, segment.largest_timestamp)
    if doubt:
        return doubt
    if is_doubled and segment.directory:
        return "two_directories"
    if any(other and other.base_offset == segment.base_offset for other in (previous, following)):
        return "same_base_offset"
    if following is None and limits.active_segment == "keep":
        return "active_segment"
    if following is None and not segment.size_bytes:
        return "empty_active_segment"
    return None


def _calm_reason(limits: Limits) -> str:
    """Return why no check wants a segment."""
    if limits.mode == COMPACT:
        return "compacted"
    if limits.retention_ms < 0 and limits.retention_bytes < 0:
        return "no_limit"
    return "not_expired"
