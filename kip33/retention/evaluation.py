"""Retention of a catalog: one question, and the stream of its partitions with decisions.

`rules.retention` makes the decisions. Whatever is made of them consumes `judged_tables`: sums, a
plan, `--emit`, a broker's view, a report, rows. The rows of a few partitions are held at a time.
The tasks of `kip33.spark` call `judge_rows`, too.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kip33.archive.layouts.kafka import KAFKA as KAFKA_LAYOUT
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import JUDGED, CatalogColumns, columns_of, int64_column_of
from kip33.catalog.partitions import partitions
from kip33.errors import counted
from kip33.retention.broker_files import SEEN, SeenByBroker, seen_by_broker
from kip33.retention.judged_partition import JudgedPartition
from kip33.retention.only_local import OnlyLocal
from kip33.retention.uploaded import Uploaded
from kip33.rules.policies import BUILT_IN_TOPICS, MAX_INT64, Policies, Policy, nearest
from kip33.rules.retention import (
    NEVER_MS,
    NO_LIMIT,
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
    WhatIf,
    doubt_codes,
    judge_columns,
    mode_codes,
    reason_codes,
)
from kip33.rules.retention_rows import (
    Limits,
    PartitionSums,
    SummedSegments,
    limit_columns,
    partition_sums,
)
from kip33.rules.segment_summary import DAMAGED_STATUSES, SegmentStatus, TimestampSource
from kip33.rules.suspicious_timestamps import (
    DEFAULT_AFTER_MAX_MS,
    TimestampColumns,
    suspicions_of,
)
from kip33.stores.concurrently import map_in_order
from kip33.stores.locations import Location

OtherTier: TypeAlias = Uploaded | OnlyLocal
"""What the other tier of the cluster tells: the remote one of log directories, or the local one."""

REMOTE_AS_LOCAL: Final = (4, 3)
"""The first Kafka that compares with retention.ms in both tiers alike (KAFKA-20091)."""
KNOWS_UPLOADS: Final = (4, 4)
"""The first Kafka, but for 4.3.2, whose new leaders know what was uploaded (KAFKA-20732)."""

_MOST_NAMED = 10
_WILDCARDS: Final = re.compile(r"[*?\[\]]")


class BrokerAnswer(NamedTuple):
    """A broker's decisions, by what it reads from the files beside each log."""

    seen: pa.Table  # SEEN; null where the directory could not be listed
    decisions: Decisions


@dataclass(frozen=True)
class JudgedRows:
    """Rows of whole partitions in order, with a decision for each."""

    rows: pa.Table
    columns: CatalogColumns  # of the rows
    now_ms: int
    policies: Sequence[Policy | None]  # of each partition; None: its topic is unknown
    limits: Sequence[Limits]  # of each partition
    segments: SegmentColumns
    limits_of_rows: LimitColumns
    decisions: Decisions
    suspicions: Codes
    what_if: Decisions | None = None
    broker: BrokerAnswer | None = None

    def partitions(self, unlistable_uris: Sequence[str] = ()) -> Iterator[JudgedPartition]:
        """Yield the partitions in order, but for rows without a topic.

        `unlistable_uris` are the directories of the whole snapshot that could not be listed.
        """
        columns = self.columns
        if not columns.size:
            return
        unlistable = tuple(f"{uri}/" for uri in unlistable_uris)
        counts = np.add.reduceat(self.decisions.deletable, columns.starts, dtype=np.int64)
        is_plain = np.logical_and.reduceat(self._is_plain, columns.starts)
        each = zip(
            columns.keys,
            self.limits,
            columns.lengths.tolist(),
            counts.tolist(),
            columns.starts.tolist(),
            is_plain.tolist(),
            strict=True,
        )
        for (log_dir, topic, number), limits, segments, deletable, first, plain in each:
            if topic is not None and number is not None:
                yield JudgedPartition(
                    *(log_dir or "", topic, number, limits, segments, deletable),
                    *(columns, self.decisions, first, plain, unlistable),
                )

    @property
    def _is_plain(self) -> Bools:
        """Return which rows are of logs that were read, with timestamps, in one directory."""
        directories, base = self.columns.codes("directory_uri"), self.segments.base_offset
        same = np.diff(directories, prepend=-1) == 0
        same[self.columns.starts] = True
        is_doubted = self.summed.is_unverified | self.summed.by_file
        return np.asarray(same & base.known & ~is_doubted)

    @cached_property
    def summed(self) -> SummedSegments:
        """Return the columns that are summed."""
        columns = self.columns
        doubtful = np.zeros(columns.size, bool)
        for status in DAMAGED_STATUSES:
            doubtful |= columns.equals("status", status)
        is_empty = columns.equals("status", SegmentStatus.EMPTY)  # no record lacks a timestamp
        by_file = columns.equals("largest_timestamp_source", TimestampSource.LAST_MODIFIED)
        return SummedSegments(
            self.segments,
            self.decisions,
            self.now_ms,
            columns.int64("last_offset"),
            columns.int64("offset_of_max_timestamp"),
            by_file & ~is_empty,
            columns.equals("status", SegmentStatus.UNVERIFIED),
            doubtful,
            is_empty,
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
        return np.not_equal(self.broker.decisions.deletable, self.decisions.deletable)

    @property
    def misread(self) -> Bools:
        """Return which segments' index files have another timestamp than their logs."""
        if not self.broker:
            return np.zeros(self.columns.size, bool)
        return np.asarray(self.broker.seen["broker_index_fault"].is_valid().to_numpy())


@dataclass(frozen=True)
class RetentionRequest:
    """What is asked of a snapshot, by every engine; it is sent to every task."""

    policies: Policies  # as `policies_for` returns them
    now_ms: int  # one time for all segments, as in Kafka
    log_start_offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    topics: Sequence[str] = ()  # globs
    active_segment: str = ActiveSegment.KEEP
    boundary: str = Boundary.LOCAL
    what_if: WhatIf | None = None
    broker_view: bool = False
    trust_last_modified: bool = False  # plan segments that are judged by their file's time, too
    other_tier: OtherTier | None = None  # None: topics in tiered storage are kept on a broker
    moments_ms: Sequence[int] = ()  # the times for which it is said what becomes deletable
    reborn: frozenset[str] = frozenset()  # `partitions.topics_with_several_ids`, for holes
    has_policies: bool = True  # False: none given, so holes are those of `kip33 catalog holes`

    @property
    def policies_of_holes(self) -> Policies | None:
        """Return the policies that say which topics are compacted; None: none were given."""
        return self.policies if self.has_policies else None

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


def judged_tables(
    catalog: Catalog, snapshot: Snapshot, request: RetentionRequest, columns: Sequence[str] = JUDGED
) -> Iterator[JudgedRows]:
    """Yield the partitions of a snapshot in order, judged; there is one table at least.

    Its rows have the `columns`. A part that is damaged raises CatalogError.
    """
    for rows in partitions(catalog, snapshot, columns, request.topics):
        yield judge_rows(rows, request)


def policies_for(snapshot: Snapshot, policies: Policies) -> Policies:
    """Return the policies that apply to the archive of a snapshot.

    In a broker's log directories, the limits of topics in tiered storage are `local.retention.ms`
    and `local.retention.bytes`, and what was uploaded must be known. Of the other layouts, those of
    tiered storage have all that `retention.ms` keeps.
    """
    return policies if snapshot.layout == KAFKA_LAYOUT.name else policies.of_remote_tier()


def boundary_for(snapshot: Snapshot, kafka_version: tuple[int, int]) -> Boundary:
    """Return how a version of Kafka judges a segment at the very limit: by the tier it is in."""
    is_remote = snapshot.layout != KAFKA_LAYOUT.name
    return Boundary.REMOTE if is_remote and kafka_version < REMOTE_AS_LOCAL else Boundary.LOCAL


def tier_warnings(
    snapshot: Snapshot, policies: Policies, topics: Iterable[str], other_tier: OtherTier | None
) -> tuple[str, ...]:
    """Return a line for each thing to know about the tiers of judged topics."""
    if other_tier is None:
        line = _tiered_warning(policies_for(snapshot, policies), topics)
        return (line,) if line else ()
    topics = sorted(topics)
    lines = (
        _untiered_warning(policies, topics, other_tier),
        _elected_warning(policies, topics, other_tier),
    )
    return (*other_tier.warnings, *filter(None, lines))


def _tiered_warning(policies: Policies, topics: Iterable[str]) -> str | None:
    """Return a line about the topics that are not judged, None without such topics."""
    tiered = sorted(topic for topic in topics if policies.of(topic).mode == RetentionMode.TIERED)
    if not tiered:
        return None
    return (
        f"{_topics_text(tiered)}: remote.storage.enable=true found, and a broker deletes local "
        "segments by local.retention.ms once they are uploaded: all are kept; give the catalog of "
        "the remote tier, too; for a complete copy set remote.storage.enable to false in --policy"
    )


def _topics_text(topics: Sequence[str]) -> str:
    """Return `topic a and 2 other topics`."""
    more = f" and {counted(len(topics) - 1, 'other topic')}" if len(topics) > 1 else ""
    return f"topic {topics[0]}{more}"


def _untiered_warning(
    policies: Policies, topics: Sequence[str], other_tier: OtherTier
) -> str | None:
    """Return a line if there are topics and none of them is in tiered storage."""
    if not topics or any(policies.of(topic).is_tiered for topic in topics):
        return None
    if isinstance(other_tier, Uploaded):
        so = "all are judged by retention.ms and retention.bytes, uploaded or not"
    else:
        so = "no broker deletes what is shown as deletable in the remote tier"
    return (
        f"two tiers, but no topic with remote.storage.enable=true (and without "
        f"remote.log.copy.disable) found, so {so}; set it in --policy, or give --kafka-configs"
    )


def _elected_warning(
    policies: Policies, topics: Iterable[str], other_tier: OtherTier
) -> str | None:
    """Return a line about the topics of which a new leader may delete too much, if there are any.

    Until it knows what was uploaded, it counts all of its log once more (KAFKA-20732).
    """
    if isinstance(other_tier, Uploaded) or other_tier.kafka_version >= KNOWS_UPLOADS:
        return None
    sized = [topic for topic in topics if policies.of(topic).retention_bytes >= 0]
    if not sized:
        return None
    return (
        f"{_topics_text(sized)}: retention.bytes found, and after an election a broker before "
        "4.3.2 may delete more in the remote tier than is shown as deletable, up to the size of "
        "its local log (KAFKA-20732): update brokers to 4.4, or set retention.ms alone"
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


def unmatched_lines(
    policies: Policies, topics: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings and notes about sections that match no topic; a warning names what may be meant.

    `topics` are all topics of the archive. One that has a section of its own is not meant.
    """
    with_section = {match for match, _ in policies.topics}
    others = [topic for topic in topics if topic not in with_section]
    near = {
        match: "" if _is_of_more(match, topics) else nearest([_WILDCARDS.sub("", match)], others)
        for match in policies.unmatched(topics)
    }
    meant = [
        f'the policy\'s section "{match}" matches no topic, so it judges nothing{text}'
        for match, text in near.items()
        if text
    ]
    notes = [f'"{match}"' for match, text in near.items() if not text]
    more = f" and {len(notes) - _MOST_NAMED:,} more" if len(notes) > _MOST_NAMED else ""
    note = f"sections of the policy that match no topic: {', '.join(notes[:_MOST_NAMED])}{more}"
    return tuple(meant[:_MOST_NAMED]), (note,) if notes else ()


def _is_of_more(match: str, topics: Collection[str]) -> bool:
    """Whether a glob has a topic's name and more: it is for topics that are called alike."""
    return bool(_WILDCARDS.search(match)) and any(map(match.startswith, topics))


def judge_rows(
    rows: pa.Table, request: RetentionRequest, seen: pa.Table | None = None
) -> JudgedRows:
    """Return rows of a catalog with a decision for each; they are in order, of whole partitions.

    For a broker's view the index files are read, or what was `seen` of them before is used.
    """
    columns = columns_of(rows)
    of_topic = {
        topic: request.policy_of(topic) if topic else None
        for topic in {topic for _, topic, _ in columns.keys}
    }
    policies = [of_topic[topic] for _, topic, _ in columns.keys]
    each = zip(columns.keys, policies, strict=True)
    limits = [request.limits_of(key, policy or _UNKNOWN_TOPIC) for key, policy in each]
    segments = segments_of(columns, request.other_tier)
    limits_of_rows, now_ms = limit_columns(limits, columns.partition_numbers), request.now_ms
    judged = JudgedRows(
        *(rows, columns, now_ms, policies, limits, segments, limits_of_rows),
        judge_columns(segments, limits_of_rows, now_ms=now_ms),
        _suspicions(columns, segments, policies, now_ms),
    )
    if request.what_if:
        judged = replace(judged, what_if=_what_if(judged, request.what_if))
    if request.broker_view:
        judged = replace(judged, broker=_broker_answer(judged, seen))
    return judged


def _suspicions(
    columns: CatalogColumns,
    segments: SegmentColumns,
    policies: Sequence[Policy | None],
    now_ms: int,
) -> Codes:
    after_max = [policy.message_timestamp_after_max_ms if policy else None for policy in policies]
    each = [DEFAULT_AFTER_MAX_MS if limit is None else limit for limit in after_max]
    limits_ms = [NO_LIMIT if policy is None else policy.topic_retention_ms for policy in policies]
    sources = columns.codes("largest_timestamp_source")
    by_file = columns.equals("largest_timestamp_source", TimestampSource.LAST_MODIFIED)
    return suspicions_of(
        TimestampColumns(
            segments.largest_timestamp,
            (sources >= 0) & ~by_file,
            columns.is_create_time,
            columns.int64("last_modified_ms"),
            np.repeat(np.array(limits_ms, np.int64), columns.lengths),
            np.repeat(np.array(each, np.int64), columns.lengths),
        ),
        now_ms=now_ms,
    )


def _what_if(judged: JudgedRows, what_if: WhatIf) -> Decisions:
    """Return the decisions with another limit, or with future timestamps ignored."""
    now_ms = judged.now_ms
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


def _broker_answer(judged: JudgedRows, seen: pa.Table | None) -> BrokerAnswer:
    """Return a broker's decisions; it has doubts only about segments whose timestamp is unknown."""
    seen = _seen(judged.columns) if seen is None else seen
    largest = int64_column_of(seen["broker_largest_timestamp"])
    [unreadable] = doubt_codes([RetentionReason.UNREADABLE])
    doubt = np.where(largest.known, doubt_codes([SegmentStatus.OK]), unreadable)
    segments = judged.segments._replace(largest_timestamp=largest, doubt=doubt)
    limits, now_ms = judged.limits_of_rows, judged.now_ms
    return BrokerAnswer(seen, judge_columns(segments, limits, now_ms=now_ms))


def _seen(columns: CatalogColumns) -> pa.Table:
    """Return what a broker sees of each log, a directory at a time, as a table of SEEN."""
    numbers = np.flatnonzero(columns.int64("base_offset").known)
    numbers = numbers[np.argsort(columns.codes("directory_uri")[numbers], kind="stable")]
    directories = columns.codes("directory_uri")[numbers]
    groups = np.split(numbers, np.flatnonzero(np.diff(directories)) + 1) if numbers.size else []
    timestamps = columns.int64("max_timestamp")

    def look(group: Int64s) -> list[SeenByBroker]:
        logs = zip(columns.log_uris(group), timestamps.take(group).to_list(), strict=True)
        return list(seen_by_broker(logs))

    views: list[SeenByBroker | None] = [None] * columns.size
    if groups:
        source = Location.of(columns.log_uris(numbers[:1])[0])
        for group, found in zip(groups, map_in_order(source, groups, look), strict=True):
            for number, view in zip(group.tolist(), found, strict=True):
                views[number] = view
    return pa.table(
        {field.name: [one and getattr(one, field.name) for one in views] for field in SEEN},
        schema=SEEN,
    )


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
