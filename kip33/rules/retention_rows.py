"""The retention rule for one partition's segments as rows, and the sums of its decisions.

`rules.retention` has the rule for columns.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from kip33.rules.policies import Policy
from kip33.rules.retention import (
    NO_LIMIT,
    REASONS,
    ActiveSegment,
    Bools,
    Boundary,
    Codes,
    Decisions,
    Int64Column,
    Int64s,
    LimitColumns,
    RetentionMode,
    RetentionReason,
    SegmentColumns,
    doubt_codes,
    is_reason,
    judge_columns,
    mode_codes,
    reason_codes,
)
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.suspicious_timestamps import SUSPICIONS

MOST_SEGMENTS_NAMED: Final = 10  # base offsets in a partition's row of segments judged by file time
_NAMED: Final = "last_modified_base_offsets"


class SegmentFigures(NamedTuple):
    """What the rule needs of a segment; `base_offset` is None for an unlistable directory."""

    base_offset: int | None
    size_bytes: int | None
    largest_timestamp: int | None
    status: str = SegmentStatus.OK
    directory: str | None = None  # its partition directory's name, None if it has no such name
    other_tier: str | None = RetentionReason.NOT_UPLOADED  # why it stays; None: uploaded whole
    end: int | None = None  # of a segment in the remote tier: the offset after it


class Limits(NamedTuple):
    """The settings for one partition; -1: no limit; no log start offset: the first segment's."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    mode: str = RetentionMode.DELETE
    log_start_offset: int | None = None
    active_segment: str = ActiveSegment.KEEP
    boundary: str = Boundary.LOCAL
    upload_within_ms: int = NO_LIMIT  # the topic's retention.ms, where the local tier is judged
    bytes_after: int = 0  # in segments that only the local tier has, where the remote one is judged
    copy_lag_ms: int = 0  # of a broker's disk
    copy_lag_bytes: int = NO_LIMIT

    @classmethod
    def of(
        cls,
        policy: Policy,
        log_start_offset: int | None = None,
        active_segment: str = ActiveSegment.KEEP,
        boundary: str = Boundary.LOCAL,
        bytes_after: int = 0,
    ) -> Self:
        """Return a policy's limits."""
        of_policy = (policy.retention_ms, policy.retention_bytes, policy.mode)
        within_ms = NO_LIMIT if policy.upload_within_ms is None else policy.upload_within_ms
        lags = (policy.remote_copy_lag_ms, policy.remote_copy_lag_bytes)
        return cls(
            *(*of_policy, log_start_offset, active_segment, boundary, within_ms, bytes_after), *lags
        )


class Decision(NamedTuple):
    """Whether a segment is deletable, when, and why: a row of `rules.retention.Decisions`."""

    retention_ms_breached: bool  # by its own timestamp, regardless of older segments
    deletable: bool
    reason: str  # one of DELETABLE_REASONS or KEPT_REASONS
    expires_at_ms: int | None  # by its own timestamp; None: never by time
    deletable_at_ms: int | None  # with all older ones; 0: by size or offset; None: not by time
    blocked_by_base_offset: int | None = None
    blocked_by_timestamp: int | None = None
    upload_before_ms: int | None = None  # retention.ms takes it then; None: uploaded, or no limit


def judge(segments: Sequence[SegmentFigures], limits: Limits, *, now_ms: int) -> list[Decision]:
    """Return a decision for each segment of one partition, given oldest first."""
    if not segments:
        return []
    names = sorted({segment.directory for segment in segments if segment.directory})
    columns = SegmentColumns(
        np.zeros(1, np.int64),
        int64_column([segment.base_offset for segment in segments]),
        np.array([segment.size_bytes or 0 for segment in segments], np.int64),
        int64_column([segment.largest_timestamp for segment in segments]),
        doubt_codes(segment.status for segment in segments),
        np.array([names.index(s.directory) if s.directory else -1 for s in segments], np.int64),
        reason_codes(segment.other_tier for segment in segments),
        int64_column([segment.end for segment in segments]),
    )
    each = np.zeros(len(segments), np.int64)
    decisions = judge_columns(columns, limit_columns([limits], each), now_ms=now_ms)
    return decision_rows(decisions)


def limit_columns(limits: Sequence[Limits], of_rows: Int64s) -> LimitColumns:
    """Return the limits of each row; `of_rows` has each row's index in `limits`."""
    return LimitColumns(
        mode_codes(limit.mode for limit in limits)[of_rows],
        np.array([limit.retention_ms for limit in limits], np.int64)[of_rows],
        np.array([limit.retention_bytes for limit in limits], np.int64)[of_rows],
        int64_column([limit.log_start_offset for limit in limits]).take(of_rows),
        np.array([limit.active_segment == ActiveSegment.KEEP for limit in limits], bool)[of_rows],
        np.array([limit.boundary == Boundary.REMOTE for limit in limits], bool)[of_rows],
        np.array([limit.upload_within_ms for limit in limits], np.int64)[of_rows],
        np.array([limit.bytes_after for limit in limits], np.int64)[of_rows],
        np.array([limit.copy_lag_ms for limit in limits], np.int64)[of_rows],
        np.array([limit.copy_lag_bytes for limit in limits], np.int64)[of_rows],
    )


def int64_column(values: Sequence[int | None]) -> Int64Column:
    """Return numbers as a column; None: unknown."""
    return Int64Column(
        np.array([0 if value is None else value for value in values], np.int64),
        np.array([value is not None for value in values], bool),
    )


def decision_rows(decisions: Decisions) -> list[Decision]:
    """Return the decisions as rows."""
    rows = zip(
        decisions.retention_ms_breached.tolist(),
        decisions.deletable.tolist(),
        (REASONS[code] for code in decisions.reason),
        decisions.expires_at_ms.to_list(),
        decisions.deletable_at_ms.to_list(),
        decisions.blocked_by_base_offset.to_list(),
        decisions.blocked_by_timestamp.to_list(),
        decisions.upload_before_ms.to_list(),
        strict=True,
    )
    return [Decision(*row) for row in rows]


class SummedSegments(NamedTuple):
    """The columns that are summed, in addition to those of the rule."""

    segments: SegmentColumns
    decisions: Decisions
    now_ms: int
    last_offset: Int64Column
    offset_of_max_timestamp: Int64Column
    by_file: Bools  # it has batches, and the file's time is used instead of their timestamps
    is_unverified: Bools
    is_doubtful: Bools
    is_empty: Bools  # its status is `empty`
    suspicions: Codes

    @property
    def is_tiered(self) -> Bools:
        """Return which rows are not judged, because their topic is in tiered storage."""
        return is_reason(self.decisions.reason, RetentionReason.TIERED)

    def number_of(self, which: Bools) -> Int64s:
        """Return the number of selected rows in each partition."""
        return _sums(which.astype(np.int64), self.segments.starts)

    def bytes_of(self, which: Bools) -> Int64s:
        """Return the bytes of the selected rows in each partition."""
        return _sums(np.where(which, self.segments.size_bytes, 0), self.segments.starts)

    def total_of(self, column: Int64Column) -> Int64s:
        """Return the sum of a column in each partition; unknown numbers count 0."""
        return _sums(np.where(column.known, column.values, 0), self.segments.starts)

    def total(self, prefix: str, which: Bools) -> dict[str, Int64s]:
        """Return both, under their names in a partition's row."""
        return {f"{prefix}segments": self.number_of(which), f"{prefix}bytes": self.bytes_of(which)}


class NamedOffsets(NamedTuple):
    """Base offsets of some rows, and the index at which those of each partition begin."""

    base_offsets: Int64s
    starts: Int64s  # one element more than there are partitions


class PartitionSums(NamedTuple):
    """The sums of each partition, under the names that `kip33.spark.summarize_partitions` uses."""

    columns: dict[str, Int64s | Int64Column | NamedOffsets]
    blocking_rows: Int64Column  # the index of the row that blocks the partition
    suspicions: list[Int64s]  # the number of segments for each of SUSPICIONS

    def number(self, name: str) -> Int64s:
        """Return a count or sum that is known for each partition."""
        column = self.columns[name]
        if not isinstance(column, np.ndarray):
            raise TypeError(f"{name}: not every partition has one")
        return column


def partition_sums(rows: SummedSegments) -> PartitionSums:
    """Return the sums of each partition."""
    segments, decisions = rows.segments, rows.decisions
    blocked = is_reason(decisions.reason, RetentionReason.BLOCKED)
    not_uploaded = is_reason(decisions.reason, RetentionReason.NOT_UPLOADED)
    other_records = is_reason(decisions.reason, RetentionReason.OTHER_RECORDS)
    unreferenced = is_reason(decisions.reason, RetentionReason.UNREFERENCED)
    kept = _first_row(~decisions.deletable & ~unreferenced, segments)
    expired_active = is_reason(decisions.reason, RetentionReason.ACTIVE_SEGMENT)
    columns: dict[str, Int64s | Int64Column | NamedOffsets] = {
        **rows.total("", np.ones(blocked.size, bool)),
        **rows.total("deletable_", decisions.deletable),
        "first_base_offset": _first_base_offset(segments),
        "first_kept_base_offset": segments.base_offset.take(kept.values).where(kept.known),
        "log_end_offset": _log_end(rows),
        **rows.total("blocked_", blocked),
        "kept_only_by_blocker_bytes": rows.bytes_of(decisions.kept_only_by_blocker),
        **_blocking(rows, blocked, kept.values),
        "last_modified_segments": rows.number_of(rows.by_file),
        _NAMED: _first_named(rows),
        "deletable_last_modified_segments": rows.number_of(rows.by_file & decisions.deletable),
        "unverified_segments": rows.number_of(rows.is_unverified),
        "deletable_unverified_segments": rows.number_of(rows.is_unverified & decisions.deletable),
        "doubtful_segments": rows.number_of(rows.is_doubtful),
        "tiered_segments": rows.number_of(rows.is_tiered),
        **rows.total("not_uploaded_", not_uploaded),
        "not_uploaded_base_offset": _first_of(segments, not_uploaded),
        "upload_before_ms": _earliest(decisions.upload_before_ms, segments.starts),
        **rows.total("other_records_", other_records),
        "other_records_base_offset": _first_of(segments, other_records),
        **rows.total("unreferenced_", unreferenced),
        "active_expired_segments": rows.number_of(expired_active & decisions.retention_ms_breached),
    }
    suspicions = [rows.number_of(rows.suspicions == code) for code in range(len(SUSPICIONS))]
    return PartitionSums(columns, kept.where(rows.number_of(blocked) > 0), suspicions)


class Freed(NamedTuple):
    """What becomes deletable between a time and the one before it, for one topic number."""

    at_ms: int
    topic: int
    segments: int
    bytes: int


def freed_up_to(
    deletable_at: Int64Column, topics: Int64s, sizes: Int64s, moments_ms: Sequence[int]
) -> list[Freed]:
    """Return what becomes deletable for each time and topic, in order; no row if there is nothing.

    The first time includes everything that was deletable before it. New appends are ignored.
    """
    moments = np.array(sorted(set(moments_ms)), np.int64)
    bucket = np.searchsorted(moments, deletable_at.values)
    freed = deletable_at.known & (bucket < moments.size)
    if not freed.any():
        return []
    places = bucket[freed] * (topics.max() + 1) + topics[freed]
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    first = order[starts]
    return [
        Freed(*row)
        for row in zip(
            moments[bucket[freed][first]].tolist(),
            topics[freed][first].tolist(),
            np.diff(starts, append=order.size).tolist(),
            _sums(sizes[freed][order], starts).tolist(),
            strict=True,
        )
    ]


def _sums(values: Int64s, starts: Int64s) -> Int64s:
    if not starts.size:
        return np.zeros(0, np.int64)
    return np.asarray(np.add.reduceat(values, starts), np.int64)


def _first_base_offset(segments: SegmentColumns) -> Int64Column:
    """Return the smallest known one: directories without one are first."""
    unknown = _sums((~segments.base_offset.known).astype(np.int64), segments.starts)
    has_one = unknown < segments.lengths
    return segments.base_offset.take(segments.starts + np.where(has_one, unknown, 0)).where(has_one)


def _log_end(rows: SummedSegments) -> Int64Column:
    """Return the end of the newest segment, or the start of an empty one; unknown: not read."""
    last = rows.segments.starts + rows.segments.lengths - 1
    end, begin = rows.last_offset.take(last), rows.segments.base_offset.take(last)
    is_end = end.known & (end.values < 2**63 - 1)
    return Int64Column(
        np.where(is_end, end.values + 1, begin.values),
        is_end | (rows.is_empty[last] & begin.known),
    )


def _blocking(rows: SummedSegments, blocked: Bools, kept: Int64s) -> dict[str, Int64Column]:
    """Return the figures of the row that blocks each partition, unknown if no row does."""
    segments, deletable_at = rows.segments, rows.decisions.deletable_at_ms
    blocks = rows.number_of(blocked) > 0
    timestamp = segments.largest_timestamp.take(kept).where(blocks)
    newest = np.where(
        blocked & segments.largest_timestamp.known, segments.largest_timestamp.values, 0
    )
    ends = np.where(blocked & deletable_at.known, deletable_at.values, 2**63 - 1)
    return {
        "blocking_base_offset": segments.base_offset.take(kept).where(blocks),
        "blocking_timestamp": timestamp,
        "blocking_offset_of_max_timestamp": rows.offset_of_max_timestamp.take(kept).where(blocks),
        "blocking_ahead_of_now_ms": timestamp._replace(values=timestamp.values - rows.now_ms),
        "blocking_ahead_of_blocked_ms": timestamp._replace(
            values=timestamp.values - _extremes(np.maximum, newest, segments.starts)
        ),
        "block_ends_at_ms": Int64Column(
            _extremes(np.minimum, ends, segments.starts),
            blocks & (rows.number_of(blocked & deletable_at.known) > 0),
        ),
    }


def _first_of(segments: SegmentColumns, which: Bools) -> Int64Column:
    """Return the base offset of each partition's first selected segment, unknown without one."""
    first = _first_row(which, segments)
    return segments.base_offset.take(first.values).where(first.known)


def _first_row(which: Bools, segments: SegmentColumns) -> Int64Column:
    """Return the index of each partition's first selected row, unknown without one."""
    numbers = np.where(which, np.arange(which.size), which.size)
    first = _extremes(np.minimum, numbers, segments.starts)
    has_one = first < which.size
    return Int64Column(np.where(has_one, first, segments.starts), has_one)


def _earliest(times: Int64Column, starts: Int64s) -> Int64Column:
    """Return each partition's earliest known time."""
    known = _sums(times.known.astype(np.int64), starts) > 0
    return Int64Column(
        _extremes(np.minimum, np.where(times.known, times.values, 2**63 - 1), starts), known
    )


def _extremes(which: np.ufunc, values: Int64s, starts: Int64s) -> Int64s:
    if not starts.size:
        return np.zeros(0, np.int64)
    return np.asarray(which.reduceat(values, starts), np.int64)


def _first_named(rows: SummedSegments) -> NamedOffsets:
    """Return the first base offsets, in each partition, of segments judged by the file's time."""
    named = rows.by_file & rows.segments.base_offset.known
    named &= rows.segments.so_far(named) <= MOST_SEGMENTS_NAMED
    ends = np.cumsum(rows.number_of(named))
    return NamedOffsets(rows.segments.base_offset.values[named], np.concatenate(([0], ends)))
