"""Retention of a catalog as columns: what is deletable, why the rest is kept, and what-ifs.

`rules.retention` makes the decisions. This module groups the rows by partition and says which
deletable segments a plan may contain. Python objects are created only for the partitions that a
caller looks at, one after another. The tasks of `kip33.spark.evaluate_retention` call it, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kip33.archive.layouts.kafka import KAFKA as KAFKA_LAYOUT
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import CatalogColumns, read_columns
from kip33.errors import counted
from kip33.retention.broker_files import BrokerViewRow, SeenByBroker, seen_by_broker
from kip33.retention.only_local import OnlyLocal
from kip33.retention.uploaded import Uploaded
from kip33.rules.policies import BUILT_IN_TOPICS, MAX_INT64, Policies, Policy
from kip33.rules.retention import (
    DOUBTFUL_STATUSES,
    NEVER_MS,
    NO_LIMIT,
    ActiveSegment,
    Bools,
    Boundary,
    Codes,
    Decisions,
    Int64Column,
    LimitColumns,
    RetentionMode,
    RetentionReason,
    SegmentColumns,
    WhatIf,
    doubt_codes,
    is_reason,
    judge_columns,
    mode_codes,
    reason_codes,
)
from kip33.rules.retention_rows import (
    Decision,
    Freed,
    Limits,
    PartitionSums,
    SummedSegments,
    decision_rows,
    freed_up_to,
    int64_column,
    limit_columns,
    partition_sums,
)
from kip33.rules.segment_summary import SegmentStatus, TimestampSource
from kip33.rules.suspicious_timestamps import (
    DEFAULT_AFTER_MAX_MS,
    TimestampColumns,
    suspicions_of,
)
from kip33.stores.concurrently import map_in_order
from kip33.stores.locations import Location

OtherTier: TypeAlias = Uploaded | OnlyLocal
"""What the other tier of the cluster tells: the remote one of log directories, or the local one."""

_MOST_NAMED = 10


class BrokerAnswer(NamedTuple):
    """A broker's decisions, by what it reads from the files beside each log."""

    seen: list[SeenByBroker | None]  # None: the directory could not be listed
    decisions: Decisions


class CatalogRow(NamedTuple):
    """The columns of a catalog row that retention uses.

    `base_offset` is None for a directory that cannot be listed.
    """

    log_dir: str
    topic: str
    partition: int
    base_offset: int | None
    directory_uri: str  # the directory with the log
    name: str
    index_directory_uri: str | None  # None: no build wrote index files, or beside the log
    largest_timestamp_source: str | None
    status: str
    size_bytes: int | None
    last_modified_ms: int | None
    largest_timestamp: int | None
    time_index_bytes: int | None
    offset_index_bytes: int | None
    transaction_index_bytes: int | None
    producer_snapshot_bytes: int | None

    @property
    def log_uri(self) -> str:
        """Return the URI of the log."""
        return f"{self.directory_uri}/{self.name}"


@dataclass(frozen=True)
class JudgedPartition:
    """One partition: its rows, oldest first, and a decision for each."""

    log_dir: str
    topic: str
    partition: int
    limits: Limits
    segments: int
    deletable_segments: int  # the first ones
    columns: CatalogColumns  # of all partitions, like the two below
    all_decisions: Decisions
    unlistable_uris: tuple[str, ...]  # directories of the snapshot that could not be listed
    first_row: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Return log_dir, topic and number."""
        return self.log_dir, self.topic, self.partition

    @cached_property
    def rows(self) -> list[CatalogRow]:
        """Return the rows, oldest first."""
        return self._rows(self.segments)

    @cached_property
    def decisions(self) -> list[Decision]:
        """Return a decision for each row."""
        return self._decisions(self.segments)

    @cached_property
    def unlistable_uri(self) -> str | None:
        """Return its directory, or one above it, if that could not be listed; else None."""
        return _above(self.rows, self.unlistable_uris) if self.unlistable_uris else None

    def has(self, reason: RetentionReason) -> bool:
        """Return whether this is the reason of any row."""
        rows = slice(self.first_row, self.first_row + self.segments)
        return bool(is_reason(self.all_decisions.reason[rows], reason).any())

    def deletable(self) -> list[tuple[CatalogRow, Decision]]:
        """Return the deletable rows, oldest first, with their decisions."""
        count = self.deletable_segments
        return list(zip(self._rows(count), self._decisions(count), strict=True))

    def deletable_bytes(self, first: int) -> int:
        """Return the size of the deletable logs from the given one on; unknown sizes count 0."""
        return sum(
            size or 0 for size in self._values("size_bytes", self.deletable_segments)[first:]
        )

    def index_directory_uris(self) -> list[str | None]:
        """Return the index directory of each deletable row."""
        return self._values("index_directory_uri", self.deletable_segments)

    @cached_property
    def first(self) -> CatalogRow:
        """Return the oldest row."""
        return self._rows(1)[0]

    def _rows(self, count: int) -> list[CatalogRow]:
        columns = self.columns.rows(self.first_row, count, CatalogRow._fields)
        return list(map(CatalogRow, *(columns[name] for name in CatalogRow._fields)))

    def _values(self, name: str, count: int) -> list[Any]:
        return self.columns.rows(self.first_row, count, [name])[name]

    def _decisions(self, count: int) -> list[Decision]:
        return decision_rows(self.all_decisions.part(slice(self.first_row, self.first_row + count)))

    def why_unplannable(self, row: CatalogRow, *, trust_last_modified: bool) -> str | None:
        """Return why a plan must not contain a deletable row; None if it may."""
        if self.unlistable_uri:
            return f"{self.unlistable_uri} could not be listed, so segments may be missing"
        if row.directory_uri != self.first.directory_uri:
            return f"{row.log_uri} and {self.first.log_uri} belong to the same partition"
        if row.status == SegmentStatus.UNVERIFIED:
            return f"{row.log_uri} is unverified: the build did not read its log"
        if (
            row.largest_timestamp_source == TimestampSource.LAST_MODIFIED
            and not trust_last_modified
        ):
            return (
                f"{row.log_uri} has no timestamps, only its file's modification time, which "
                "copying may change"
            )
        return None


_LimitsOf: TypeAlias = Callable[[str, str, int], Limits | None]
"""Returns the limits for a log_dir, topic and partition number; None: the partition is skipped."""


def judged_partitions(
    catalog: Catalog,
    snapshot: Snapshot,
    limits_of: _LimitsOf,
    *,
    now_ms: int,
    other_tier: OtherTier | None = None,
) -> Iterator[JudgedPartition]:
    """Yield the partitions of a snapshot by log directory, topic and number.

    Raises CatalogError if a part is damaged.
    """
    columns = read_columns(catalog, snapshot, with_files=True)
    limits = [
        None if topic is None or number is None else limits_of(log_dir or "", topic, number)
        for log_dir, topic, number in columns.keys
    ]
    yield from JudgedColumns.of(columns, limits, other_tier, now_ms=now_ms).partitions()


class JudgedColumns(NamedTuple):
    """The rows of a snapshot, the limits of each partition, and a decision for each row."""

    columns: CatalogColumns
    limits: Sequence[Limits | None]  # of each partition; None: skipped
    segments: SegmentColumns
    limits_of_rows: LimitColumns
    decisions: Decisions

    @classmethod
    def of(
        cls,
        columns: CatalogColumns,
        limits: Sequence[Limits | None],
        other_tier: OtherTier | None = None,
        *,
        now_ms: int,
    ) -> "JudgedColumns":
        """Return the columns with decisions; `limits` has one value per partition."""
        segments = segments_of(columns, other_tier)
        of_rows = np.repeat(np.arange(columns.starts.size), columns.lengths)
        limits_of_rows = limit_columns([one or _SKIPPED for one in limits], of_rows)
        decisions = judge_columns(segments, limits_of_rows, now_ms=now_ms)
        return cls(columns, limits, segments, limits_of_rows, decisions)

    def partitions(self) -> Iterator[JudgedPartition]:
        """Yield the partitions that are not skipped, by log directory, topic and number."""
        columns = self.columns
        if not columns.size:
            return
        unlistable = tuple(f"{uri}/" for uri in columns.unlistable_uris)
        counts = np.add.reduceat(self.decisions.deletable, columns.starts, dtype=np.int64)
        each = zip(
            columns.keys,
            self.limits,
            columns.lengths.tolist(),
            counts.tolist(),
            columns.starts.tolist(),
            strict=True,
        )
        for (log_dir, topic, number), limits, segments, deletable, first in each:
            if limits is None or topic is None or number is None:
                continue
            yield JudgedPartition(
                log_dir or "",
                topic,
                number,
                limits,
                segments,
                deletable,
                columns,
                self.decisions,
                unlistable,
                first,
            )


@dataclass(frozen=True)
class EvaluatedCatalog:
    """A snapshot's rows in order, with the answers for them."""

    judged: JudgedColumns
    policies: Sequence[Policy | None]  # of each partition; None: its topic is unknown
    now_ms: int
    suspicions: Codes
    what_if: Decisions | None
    broker: BrokerAnswer | None

    @property
    def columns(self) -> CatalogColumns:
        """Return the rows of the catalog."""
        return self.judged.columns

    @cached_property
    def summed(self) -> SummedSegments:
        """Return the columns that are summed."""
        columns = self.columns
        doubtful = np.zeros(columns.size, bool)
        for status in DOUBTFUL_STATUSES:
            doubtful |= columns.equals("status", status)
        return SummedSegments(
            self.judged.segments,
            self.judged.decisions,
            self.now_ms,
            columns.int64("last_offset"),
            columns.int64("offset_of_max_timestamp"),
            columns.equals("largest_timestamp_source", TimestampSource.LAST_MODIFIED),
            columns.equals("status", SegmentStatus.UNVERIFIED),
            doubtful,
            columns.equals("status", SegmentStatus.EMPTY),
            self.suspicions,
        )

    @cached_property
    def sums(self) -> PartitionSums:
        """Return the sums of each partition; the what-if's and the broker's are last."""
        sums = partition_sums(self.summed)
        if self.what_if:
            sums.columns.update(self.summed.total("what_if_deletable_", self.what_if.deletable))
        if self.broker:
            deletable = self.broker.decisions.deletable
            sums.columns.update(self.summed.total("broker_deletable_", deletable))
            misread, differs = self.misread, self.broker_differs
            sums.columns["broker_misread_segments"] = self.summed.number_of(misread)
            sums.columns["broker_different_segments"] = self.summed.number_of(differs)
        return sums

    @property
    def broker_differs(self) -> Bools:
        """Return which segments a broker judges differently."""
        if not self.broker:
            return np.zeros(self.columns.size, bool)
        return np.not_equal(self.broker.decisions.deletable, self.judged.decisions.deletable)

    @property
    def misread(self) -> Bools:
        """Return which segments' index files have another timestamp than their logs."""
        seen = self.broker.seen if self.broker else []
        faults = [one is not None and one.broker_index_fault is not None for one in seen]
        return np.array(faults, bool)

    def freed_by(self, moments_ms: Sequence[int]) -> list[Freed]:
        """Return segments and bytes that become deletable, by time and topic (`freed_up_to`)."""
        segments = self.judged.segments
        return freed_up_to(
            self.judged.decisions.deletable_at_ms,
            self.columns.codes("topic"),
            segments.size_bytes,
            moments_ms,
        )


@dataclass(frozen=True)
class RetentionRequest:
    """What is asked: by which policies, at what time, and how the rule is applied."""

    policies: Policies
    now_ms: int  # one time for all segments, as in Kafka
    log_start_offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    topics: Sequence[str] = ()  # globs
    active_segment: str = ActiveSegment.KEEP
    boundary: str = Boundary.LOCAL
    what_if: WhatIf | None = None
    broker_view: bool = False
    trust_last_modified: bool = False  # plan segments that are judged by their file's time, too
    other_tier: OtherTier | None = None  # None: topics in tiered storage are kept on a broker

    def policy_of(self, topic: str) -> Policy:
        """Return the policy that is applied to a topic."""
        policy = self.policies.of(topic)
        return policy if self.other_tier is None else policy.of_local_tier()

    def limits_of(self, key: tuple[str | None, str | None, int | None], policy: Policy) -> Limits:
        """Return the limits of a partition; the remote tier has no active segment."""
        log_dir, topic, number = key[0] or "", key[1] or "", -1 if key[2] is None else key[2]
        start, rule = self.log_start_offsets.get((log_dir, topic, number)), self.boundary
        if not isinstance(self.other_tier, OnlyLocal):
            return Limits.of(policy, start, self.active_segment, rule)
        log = self.other_tier.logs.get((topic, number))
        bytes_after, start = log or (0, start)
        return Limits.of(policy, start, ActiveSegment.KAFKA, rule, bytes_after)

    def require_valid(self) -> None:
        """Raise ValueError for a time before 1970 or beyond int64, or an unknown choice."""
        for name, choices in (("active_segment", ActiveSegment), ("boundary", Boundary)):
            value = getattr(self, name)
            if value not in tuple(choices):
                raise ValueError(f"{name} {value!r}: expected one of {', '.join(choices)}")
        if not 0 <= self.now_ms <= NEVER_MS:
            raise ValueError(
                f"now_ms {self.now_ms}: expected milliseconds since 1970, at most {NEVER_MS}"
            )


def evaluate_catalog(
    catalog: Catalog, snapshot: Snapshot, request: RetentionRequest, *, with_files: bool = False
) -> EvaluatedCatalog:
    """Return an evaluated snapshot; a plan needs `with_files`. CatalogError for damage."""
    request = replace(request, policies=policies_for(snapshot, request.policies))
    columns = read_columns(catalog, snapshot, request.topics, with_files=with_files)
    return evaluate_columns(columns, request)


def policies_for(snapshot: Snapshot, policies: Policies) -> Policies:
    """Return the policies that apply to the archive of a snapshot.

    In a broker's log directories, the limits of topics in tiered storage are `local.retention.ms`
    and `local.retention.bytes`, and what was uploaded must be known. Of the other layouts, those of
    tiered storage have all that `retention.ms` keeps.
    """
    return policies if snapshot.layout == KAFKA_LAYOUT.name else policies.of_remote_tier()


def tier_warnings(
    snapshot: Snapshot, policies: Policies, topics: Iterable[str], other_tier: OtherTier | None
) -> tuple[str, ...]:
    """Return a line for each thing to know about the tiers of judged topics."""
    if other_tier is None:
        line = _tiered_warning(policies_for(snapshot, policies), topics)
        return (line,) if line else ()
    line = _untiered_warning(policies, topics, other_tier.option)
    return (*other_tier.warnings, line) if line else other_tier.warnings


def _tiered_warning(policies: Policies, topics: Iterable[str]) -> str | None:
    """Return a line about the topics that are not judged, None without such topics."""
    tiered = sorted(topic for topic in topics if policies.of(topic).mode == RetentionMode.TIERED)
    if not tiered:
        return None
    more = f" and {counted(len(tiered) - 1, 'other topic')}" if len(tiered) > 1 else ""
    return (
        f"topic {tiered[0]}{more}: remote.storage.enable=true found, and a broker deletes local "
        "segments by local.retention.ms once they are uploaded: all are kept; give --remote with a "
        "catalog of the remote tier; for a complete copy set remote.storage.enable to false in "
        "--policy"
    )


_UNTIERED = {
    Uploaded.option: "so all are judged by retention.ms and retention.bytes, uploaded or not",
    OnlyLocal.option: "so no broker deletes what is shown as deletable in the remote tier",
}


def _untiered_warning(policies: Policies, topics: Iterable[str], option: str) -> str | None:
    """Return a line if there are topics and none of them is in tiered storage."""
    found = sorted(topics)
    if not found or any(policies.of(topic).is_tiered for topic in found):
        return None
    return (
        f"{option}: no topic with remote.storage.enable=true (and without remote.log.copy.disable) "
        f"found, {_UNTIERED[option]}; set it in --policy, or give --kafka-configs"
    )


def unlisted_warning(policies: Policies, topics: Iterable[str]) -> str | None:
    """Return a line about the topics for which the output of Kafka's tools has no settings.

    None without such topics; Kafka's own topics are not named.
    """
    matches = {topic: policies.of(topic).match for topic in topics if topic not in BUILT_IN_TOPICS}
    unlisted = sorted(topic for topic, match in matches.items() if match != topic)
    if not unlisted:
        return None
    shown = [f"{topic} ({matches[topic] or 'no policy'})" for topic in unlisted[:_MOST_NAMED]]
    more = ", ..." if len(unlisted) > _MOST_NAMED else ""
    return (
        f"--kafka-configs has no settings for {len(unlisted):,} "
        f"topic{'' if len(unlisted) == 1 else 's'}, judged by another section: "
        f"{', '.join(shown)}{more}"
    )


def evaluate_columns(columns: CatalogColumns, request: RetentionRequest) -> EvaluatedCatalog:
    """Return evaluated rows of a catalog; index files are read only for a broker's view."""
    of_topic = {
        topic: request.policy_of(topic) if topic else None
        for topic in {topic for _, topic, _ in columns.keys}
    }
    policies = [of_topic[topic] for _, topic, _ in columns.keys]
    each = zip(columns.keys, policies, strict=True)
    limits = [request.limits_of(key, policy or _UNKNOWN_TOPIC) for key, policy in each]
    judged = JudgedColumns.of(columns, limits, request.other_tier, now_ms=request.now_ms)
    return EvaluatedCatalog(
        judged,
        policies,
        request.now_ms,
        _suspicions(judged, policies, request.now_ms),
        _what_if(judged, request.what_if, request.now_ms) if request.what_if else None,
        _broker_answer(judged, request.now_ms) if request.broker_view else None,
    )


def _suspicions(judged: JudgedColumns, policies: Sequence[Policy | None], now_ms: int) -> Codes:
    columns = judged.columns
    after_max = [policy.message_timestamp_after_max_ms if policy else None for policy in policies]
    each = [DEFAULT_AFTER_MAX_MS if limit is None else limit for limit in after_max]
    limits_ms = [NO_LIMIT if policy is None else policy.topic_retention_ms for policy in policies]
    sources = columns.codes("largest_timestamp_source")
    by_file = columns.equals("largest_timestamp_source", TimestampSource.LAST_MODIFIED)
    return suspicions_of(
        TimestampColumns(
            judged.segments.largest_timestamp,
            (sources >= 0) & ~by_file,
            columns.is_create_time,
            columns.int64("last_modified_ms"),
            np.repeat(np.array(limits_ms, np.int64), columns.lengths),
            np.repeat(np.array(each, np.int64), columns.lengths),
        ),
        now_ms=now_ms,
    )


def _what_if(judged: JudgedColumns, what_if: WhatIf, now_ms: int) -> Decisions:
    """Return the decisions with another limit, or with future timestamps ignored."""
    largest, limits = judged.segments.largest_timestamp, judged.limits_of_rows
    if what_if.ignore_future_ms is not None:
        most = min(now_ms + what_if.ignore_future_ms, MAX_INT64)
        ahead = largest.known & (largest.values > most)
        by_file = judged.columns.int64("last_modified_ms")
        largest = Int64Column(
            np.where(ahead, by_file.values, largest.values),
            np.where(ahead, by_file.known, largest.known),
        )
    if what_if.retention_ms is not None:
        own, [local] = limits.retention_ms, mode_codes([RetentionMode.LOCAL_TIER])
        keeps_own = (limits.mode == local) & (limits.upload_within_ms != own)  # local.retention.ms
        limits = limits._replace(retention_ms=np.where(keeps_own, own, what_if.retention_ms))
    segments = judged.segments._replace(largest_timestamp=largest)
    return judge_columns(segments, limits, now_ms=now_ms)


def _broker_answer(judged: JudgedColumns, now_ms: int) -> BrokerAnswer:
    """Return a broker's decisions; it has doubts only about segments whose timestamp is unknown."""
    seen: list[SeenByBroker | None] = [None] * judged.columns.size
    for number, view in _seen(judged):
        seen[number] = view
    largest = int64_column([view.broker_largest_timestamp if view else None for view in seen])
    [unreadable] = doubt_codes([RetentionReason.UNREADABLE])
    doubt = np.where(largest.known, doubt_codes([SegmentStatus.OK]), unreadable)
    segments = judged.segments._replace(largest_timestamp=largest, doubt=doubt)
    return BrokerAnswer(seen, judge_columns(segments, judged.limits_of_rows, now_ms=now_ms))


def _seen(judged: JudgedColumns) -> Iterator[tuple[int, SeenByBroker]]:
    """Yield what a broker sees of each log, with its row's index, one directory at a time."""
    columns = judged.columns
    numbers = np.flatnonzero(judged.segments.base_offset.known)
    numbers = numbers[np.argsort(columns.codes("directory_uri")[numbers], kind="stable")]
    if not numbers.size:
        return
    directories = columns.codes("directory_uri")[numbers]
    groups = np.split(numbers, np.flatnonzero(np.diff(directories)) + 1)
    timestamps = columns.int64("max_timestamp")

    def look(group: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[SeenByBroker]:
        logs = zip(columns.log_uris(group), timestamps.take(group).to_list(), strict=True)
        return list(seen_by_broker(BrokerViewRow(*log) for log in logs))

    source = Location.of(columns.log_uris(numbers[:1])[0])
    for group, views in zip(groups, map_in_order(source, groups, look), strict=True):
        yield from zip(group.tolist(), views, strict=True)


_SKIPPED = Limits(mode=RetentionMode.UNJUDGED)
_UNKNOWN_TOPIC = Policy("")


def segments_of(columns: CatalogColumns, other_tier: OtherTier | None = None) -> SegmentColumns:
    """Return the columns of a snapshot that the rule uses."""
    if other_tier is None:
        [missing] = reason_codes([RetentionReason.NOT_UPLOADED])
        nowhere = Int64Column(np.zeros(columns.size, np.int64), np.zeros(columns.size, bool))
        codes, ends = np.full(columns.size, missing), nowhere
    else:
        codes, ends = other_tier.of_segments(columns)
    size = columns.int64("size_bytes")
    statuses = columns.texts("status")
    return SegmentColumns(
        columns.starts,
        columns.int64("base_offset"),
        np.where(size.known, size.values, 0),
        columns.int64("largest_timestamp"),
        doubt_codes(statuses)[columns.codes("status")] if statuses else doubt_codes([]),
        columns.directory_names,
        codes,
        ends,
    )


def _above(rows: list[CatalogRow], unlistable: tuple[str, ...]) -> str | None:
    """Return the first directory in `unlistable` that is, or contains, the directory of a row."""
    if not unlistable:
        return None
    uris = [f"{row.log_uri}/" for row in rows]
    return next((uri[:-1] for uri in unlistable if any(u.startswith(uri) for u in uris)), None)
