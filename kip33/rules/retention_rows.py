"""The retention rule for one partition's segments as rows; `rules.retention` has it for columns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kip33.rules.retention import (
    NO_LIMIT,
    REASONS,
    ActiveSegment,
    Boundary,
    RetentionMode,
    doubt_codes,
    judge_columns,
    mode_codes,
)
from kip33.rules.retention_columns import (
    Decisions,
    Int64Column,
    Int64s,
    LimitColumns,
    SegmentColumns,
)
from kip33.rules.segment_status import SegmentStatus


class SegmentFigures(NamedTuple):
    """What the rule needs of a segment; `base_offset` is None for an unlistable directory."""

    base_offset: int | None
    size_bytes: int | None
    largest_timestamp: int | None
    status: str = SegmentStatus.OK
    directory: str | None = None  # its partition directory's name, None if it has no such name


class Limits(NamedTuple):
    """The settings for one partition; -1: no limit; no log start offset: the first segment's."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    mode: str = RetentionMode.DELETE
    log_start_offset: int | None = None
    active_segment: str = ActiveSegment.KEEP
    boundary: str = Boundary.LOCAL


class Decision(NamedTuple):
    """Whether a segment is deletable, when, and why: a row of `retention_columns.Decisions`."""

    retention_ms_breached: bool  # by its own timestamp, regardless of older segments
    deletable: bool
    reason: str  # one of DELETABLE_REASONS or KEPT_REASONS
    expires_at_ms: int | None  # by its own timestamp; None: never by time
    deletable_at_ms: int | None  # with all older ones; 0: by size or offset; None: not by time
    blocked_by_base_offset: int | None = None
    blocked_by_timestamp: int | None = None


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
    )
    each = np.zeros(len(segments), np.int64)
    decisions = judge_columns(columns, limit_columns([limits], each), now_ms=now_ms)
    return decision_rows(decisions)


def limit_columns(limits: Sequence[Limits], of_rows: Int64s) -> LimitColumns:
    """Return the limits of each row; `of_rows` has each row's index in `limits`."""
    return LimitColumns(
        mode_codes(one.mode for one in limits)[of_rows],
        np.array([one.retention_ms for one in limits], np.int64)[of_rows],
        np.array([one.retention_bytes for one in limits], np.int64)[of_rows],
        int64_column([one.log_start_offset for one in limits]).take(of_rows),
        np.array([one.active_segment == ActiveSegment.KEEP for one in limits], bool)[of_rows],
        np.array([one.boundary == Boundary.REMOTE for one in limits], bool)[of_rows],
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
        strict=True,
    )
    return [Decision(*row) for row in rows]
