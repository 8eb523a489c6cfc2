"""The lag of groups in records and in time: committed offsets compared with an archive."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypedDict

from kip33.archive.common_options import MaxBatchBytes, SnapshotName, TopicGlobList
from kip33.archive.log_window import Meter
from kip33.archive.moments import time_ms
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time, UtcTime, utc_time
from kip33.options import Option
from kip33.rules.policies import Policies, Policy
from kip33.rules.retention import ActiveSegment, RetentionMode
from kip33.rules.retention_rows import Limits, SegmentFigures, judge
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.answers import joined_notes
from kip33.search.offset_lookup import record_from
from kip33.search.replica_search import (
    SEARCH_THREADS,
    PartitionKey,
    doubt_of,
    log_end,
    older_topic_note,
    searched_log,
)
from kip33.search.searched_segment import MAX_BELIEVED, SearchedSegment, losses_of
from kip33.stores.progress import OnProgress, Phase, tell_nobody, telling


class LagOptions(TypedDict, total=False):
    """Which offsets are compared with which snapshot, and when."""

    now: Annotated[
        Time | None,
        Option(
            "Time at which retention is evaluated [default: the clock].", metavar="T", parse=time_ms
        ),
    ]
    topics: TopicGlobList
    snapshot: SnapshotName
    max_batch_bytes: MaxBatchBytes


class LagResult(StrEnum):
    """What is known of a group's place in a partition; each member is its own text."""

    FOUND = "found"
    AT_END = "at_end"  # nothing is unread
    BEFORE_START = "before_start"  # the next record is no longer in the archive
    AFTER_END = "after_end"  # the archive ends before it: copied before the group read
    NO_SUCH_PARTITION = "no_such_partition"
    UNKNOWN = "unknown"  # nothing that can be read is unread, but the log's end is not known


class GroupLag(NamedTuple):
    """One group's position in one partition; unknown values are None, and `note` says why.

    `timestamp` is that of the record the group reads next, `newest_timestamp` the partition's
    largest. `lag_records` counts offsets, as Kafka does, including gaps and markers. `lag_ms` is
    the newest timestamp minus the next record's. If records at or after the offset cannot be read,
    the newest timestamp and `lag_ms` are None; if the log's end is unknown, the lag is also None.
    `unread_expires_at_ms` is when retention may begin to delete unread records; None: never, or no
    policy was given.
    """

    group: str
    log_dir: str | None
    topic: str
    partition: int
    offset: int
    result: LagResult
    timestamp: int | None = None
    newest_timestamp: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    lag_records: int | None = None
    lag_ms: int | None = None
    unread_expires_at_ms: int | None = None
    bytes_read: int = 0
    note: str | None = None

    @property
    def time(self) -> UtcTime:
        """Return `timestamp` as a time."""
        return utc_time(self.timestamp)

    @property
    def newest_time(self) -> UtcTime:
        """Return `newest_timestamp` as a time."""
        return utc_time(self.newest_timestamp)

    @property
    def unread_expires_at_time(self) -> UtcTime:
        """Return `unread_expires_at_ms` as a time."""
        return utc_time(self.unread_expires_at_ms)


def group_lags(
    partitions: dict[PartitionKey, list[dict[str, Any]]],
    offsets: Sequence[GroupOffset],
    *,
    policies: Policies | None = None,
    retention_ms: int | None = None,
    now_ms: int,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    on_progress: OnProgress = tell_nobody,
) -> list[GroupLag]:
    """Return a row for each committed offset, in their order.

    `partitions` are the catalog's rows, `partitions_of` of `catalog_search`. Of
    several replicas together. `retention_ms` overrides the policies as a what-if. A batch that
    decompresses to more than `max_batch_bytes` is not read, and a note says so.
    """

    def lag(committed: GroupOffset) -> GroupLag:
        policy = policies.of(committed.topic) if policies else None
        if policy and retention_ms is not None:
            policy = policy._replace(retention_ms=retention_ms)
        rows = partitions.get((committed.topic, committed.partition), [])
        return _lag(committed, rows, policy, now_ms, Meter(max_batch_bytes))

    with ThreadPoolExecutor(SEARCH_THREADS) as pool:
        lags = pool.map(lag, offsets)
        return list(telling(lags, Phase.SEARCHING, len(offsets), "offset", on_progress))


def _lag(
    committed: GroupOffset,
    rows: list[dict[str, Any]],
    policy: Policy | None,
    now_ms: int,
    meter: Meter,
) -> GroupLag:
    log = searched_log(rows)
    log_dir, segments = log.log_dir, log.segments
    offset = committed.offset
    about_log = log.note_at(offset), log.alone_from(offset)
    older = joined_notes(older_topic_note(rows), *about_log)
    group, topic, partition, _ = committed
    lag = GroupLag(
        group, log_dir, topic, partition, offset, LagResult.NO_SUCH_PARTITION, note=older
    )
    if log_dir is None:
        return lag
    start, end, note = segments[0].begin_offset, *log_end(segments)
    is_known = note is None
    losses = zip(segments, losses_of(segments, offset), strict=True)
    hidden = [f"{one.log_uri}: {loss}, skipped" for one, loss in losses if loss]
    note = joined_notes(note, doubt_of(segments, offset), doubt_of(segments, end - 1), older)
    newest = max((s.max_timestamp for s in segments if s.max_timestamp is not None), default=-1)
    newest = -1 if hidden else newest
    believed = any(segment.status == SegmentStatus.UNVERIFIED for segment in segments)
    note = joined_notes(note, MAX_BELIEVED if believed and newest >= 0 else None)
    lag = lag._replace(
        result=LagResult.FOUND,
        newest_timestamp=newest if newest >= 0 else None,
        log_start_offset=start,
        log_end_offset=end if is_known else None,
        lag_records=max(0, end - max(offset, start)) if is_known else None,
        note=joined_notes(note, *hidden),
    )
    if offset >= end and not is_known:
        return lag._replace(result=LagResult.UNKNOWN)
    if offset >= end:
        result = LagResult.AT_END if offset == end else LagResult.AFTER_END
        return lag._replace(result=result, lag_ms=0)
    located = record_from(segments, offset, meter)
    lag = lag._replace(
        result=LagResult.BEFORE_START if offset < start else LagResult.FOUND,
        bytes_read=meter.bytes_read,
        note=joined_notes(note, located.note, *hidden),
    )
    is_sure = is_known and not (hidden or located.passed_over)
    if located.record is None and is_sure:  # only markers follow
        return lag._replace(result=LagResult.AT_END, lag_ms=0)
    unread_from = located.record.offset if located.record else max(offset, start)
    expires_at_ms = _expires_at(segments, unread_from, policy, now_ms)
    lag = lag._replace(unread_expires_at_ms=expires_at_ms)
    if located.record is None:  # nothing is readable
        return lag
    timestamp = located.record.timestamp
    if timestamp < 0 or newest < 0:
        return lag._replace(timestamp=timestamp if timestamp >= 0 else None)
    return lag._replace(timestamp=timestamp, lag_ms=max(0, newest - timestamp))


def _expires_at(
    segments: Sequence[SearchedSegment], offset: int, policy: Policy | None, now_ms: int
) -> int | None:
    """Return when retention may delete the segment of the first unread offset, or None."""
    if policy is None:
        return None
    limits = Limits(
        policy.retention_ms,
        policy.retention_bytes,
        RetentionMode.DELETE if policy.is_tiered else policy.mode,  # readers have both tiers
        active_segment=ActiveSegment.KAFKA,
    )
    figures = [
        SegmentFigures(s.base_offset, s.size_bytes, s.largest_timestamp, s.status) for s in segments
    ]
    decisions = judge(figures, limits, now_ms=now_ms)
    holds = [i for i, segment in enumerate(segments) if segment.base_offset <= offset]
    return decisions[holds[-1]].deletable_at_ms if holds else None
