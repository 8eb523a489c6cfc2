"""Collect the facts of a report from a catalog; only small parts of the archive are read.

Facts that do not depend on retention: the evidence, what changed, the topics. Sums over segments:
by age, by disorder, and what becomes deletable when.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33 import __version__
from kip33.archive.log_start_offsets import log_start_offsets
from kip33.catalog.catalog import MOST_COMMIT_BYTES, Catalog, Choice, Snapshot
from kip33.catalog.difference import SegmentChange, count_changes, difference
from kip33.catalog.holes import HOLES, hole_totals, read_holes
from kip33.catalog.partitions import names_in, topics_with_several_ids
from kip33.catalog.replica_findings import replica_notes
from kip33.catalog.segment_findings import read_segment_findings
from kip33.catalog.tier_findings import compare_tiers
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.catalog.topic_totals import TopicTotals, topic_totals
from kip33.errors import CatalogError
from kip33.options import Path
from kip33.report.facts import (
    ChangedSegment,
    Changes,
    Evidence,
    FreedFacts,
    RemoteTierFacts,
    Report,
    Timelines,
    TopicFacts,
    Totals,
)
from kip33.report.findings import CommandWords, FindingSources, findings_of
from kip33.report.segment_sums import DRAWN, SegmentSums, forecast_moments, summed
from kip33.report.timelines import PartitionRanking, make_timelines, topics_shown
from kip33.retention.evaluation import (
    RetentionRequest,
    boundary_for,
    judged_tables,
    policies_for,
    tier_warnings,
    unmatched_lines,
)
from kip33.retention.only_local import only_local
from kip33.retention.policy_files import policies_of
from kip33.retention.uploaded import uploaded_segments
from kip33.rules.policies import Policies
from kip33.rules.search import NEWEST_KAFKA
from kip33.stores.locations import Location
from kip33.stores.own_files import read_published

MOST_FORECAST_DAYS: Final = 366
_MOST_TOPICS: Final = 30
_MOST_CHANGED: Final = 12
_SIZES: Final = ("size_bytes_before", "size_bytes_after")
_WORTH_LISTING: Final = (SegmentChange.SHRUNK, SegmentChange.STATUS_CHANGED, SegmentChange.MODIFIED)


class ReportRequest(NamedTuple):
    """What a report is about."""

    policies: Policies | None  # None: retention is not judged
    policy_words: tuple[str, ...]  # the options that gave the policies, with absolute paths
    now_ms: int
    made_ms: int
    forecast_days: int
    remote: CatalogSnapshot | None = None  # of the remote tier
    warnings: tuple[str, ...] = ()  # about newer snapshots there
    broker_version: tuple[int, int] = NEWEST_KAFKA  # by which the remote tier is judged


def report_policies(
    policy: Path | None, kafka_configs: Path | None, retention_ms: int | str | None
) -> tuple[Policies | None, tuple[str, ...]]:
    """Return the policies of a report, and the words of a command that give them.

    Raises ValueError for two kinds of them, PolicyError for a wrong file.
    """
    if retention_ms is not None and (policy or kafka_configs):
        raise ValueError(
            "--retention-ms cannot be combined with --policy or --kafka-configs: a report has "
            "one answer"
        )
    given = (("--policy", policy), ("--kafka-configs", kafka_configs))
    words = [word for name, file in given if file for word in (name, Location.of(file).word)]
    if retention_ms is not None:
        words += ["--retention-ms", str(retention_ms)]
    return policies_of(policy, kafka_configs, retention_ms), tuple(words)


def make_report(catalog: Catalog, choice: Choice, request: ReportRequest) -> Report:
    """Return the facts of a snapshot; CatalogError for a damaged part."""
    snapshot, warnings = choice.snapshot, [*choice.warnings, *request.warnings]
    local = CatalogSnapshot(catalog, snapshot)
    asked = _question(local, request)
    judged = _Judged.of(local, asked)
    topics = topic_totals(catalog, snapshot)
    words = CommandWords(
        *(catalog.location.word, snapshot.snapshot_id, request.policy_words, request.now_ms),
        remote=request.remote.catalog.location.word if request.remote else None,
        broker_version=request.broker_version,
    )
    remote = None
    named = [totals.topic for totals in topics if totals.topic]
    if request.policies:
        warnings += unmatched_lines(request.policies, named)[0]
    if request.remote and request.policies:
        warnings += tier_warnings(snapshot, request.policies, named, asked.other_tier)
        remote = _remote_facts(local, request.remote, request, words)
    before = catalog.before(snapshot)
    changes = _changes(catalog, before, snapshot, warnings)
    sources = FindingSources(
        sums=judged.sums,
        partitions=judged.partitions,
        holes=judged.holes,
        holes_before=read_holes(catalog, before, policies=asked.policies_of_holes)
        if before and changes
        else None,
        segments=read_segment_findings(catalog, snapshot, before),
        replicas=[*replica_notes(_both_tiers(local, request.remote))],
        topics=topics,
        words=words,
        snapshot=snapshot,
        warnings=choice.warnings,
        build=choice.build,
        between_tiers=_between_tiers(local, request, warnings),
    )
    shown_topics, other_topics, topics_sum = _topic_facts(topics)
    disorder, other_disorder, disorder_sum = judged.sums.disorder(judged.partitions)
    return Report(
        kip33_version=__version__,
        made_ms=request.made_ms,
        now_ms=request.now_ms,
        catalog=catalog.location.uri,
        source=snapshot.source,
        is_judged=request.policies is not None,
        evidence=_evidence_of(catalog, snapshot),
        totals=_totals(snapshot, judged, topics),
        findings=findings_of(sources),
        changes=changes,
        timelines=judged.timelines(),
        forecast=judged.forecast() if request.policies else (),
        ages=judged.sums.ages(),
        topics=shown_topics,
        other_topics=other_topics,
        other_topics_sum=topics_sum if other_topics else None,
        disorder=disorder,
        other_disorder=other_disorder,
        other_disorder_sum=disorder_sum if other_disorder else None,
        remote=remote,
        warnings=tuple(warnings),
    )


class _Judged(NamedTuple):
    """A snapshot that was judged, without a row per segment."""

    place: CatalogSnapshot
    asked: RetentionRequest
    sums: SegmentSums
    partitions: pa.Table
    freed: pa.Table
    holes: pa.Table

    @classmethod
    def of(cls, place: CatalogSnapshot, asked: RetentionRequest) -> Self:
        sums = summed(*place, asked)
        return cls(place, asked, sums, *sums.of_snapshot(*place))

    def timelines(self) -> Timelines:
        """Return the worst partitions; their segments are read again."""
        ranking = PartitionRanking(self.partitions, self.sums.untrusted_segments, self.holes)
        topics = topics_shown(ranking)
        asked = replace(self.asked, topics=topics)
        drawn = judged_tables(*self.place, asked, DRAWN) if topics else ()
        return make_timelines(drawn, ranking, self.sums.axis())

    def forecast(self) -> tuple[FreedFacts, ...]:
        """Return what becomes deletable on each day; the first is what is deletable now."""
        moments_ms = self.asked.moments_ms
        segments, sizes = (dict.fromkeys(moments_ms, 0) for _ in range(2))
        for row in self.freed.to_pylist():
            segments[row["at_ms"]] += row["segments"]
            sizes[row["at_ms"]] += row["bytes"]
        return tuple(FreedFacts(at, segments[at], sizes[at]) for at in moments_ms)

    def total(self, name: str) -> int:
        """Return a sum over all partitions."""
        return int(self.partitions[name].to_numpy().sum())


def _question(local: CatalogSnapshot, request: ReportRequest) -> RetentionRequest:
    """Return the question of `kip33 retention` without options but the policies and the time."""
    names = names_in(*local)
    starts: Mapping[tuple[str, str, int], int] = {}
    if request.policies is not None:
        log_dirs: set[Any] = set(names["log_dir"].to_pylist())
        starts = log_start_offsets(Location.of(local.snapshot.source), log_dirs - {None})
    policies, uploaded = request.policies or Policies(), None
    if request.remote is not None:
        uploaded = uploaded_segments(local, request.remote, policies)
    return RetentionRequest(
        policies_for(local.snapshot, policies),
        request.now_ms,
        starts,
        boundary=boundary_for(local.snapshot, request.broker_version),
        other_tier=uploaded,
        moments_ms=forecast_moments(request.now_ms, request.forecast_days),
        reborn=topics_with_several_ids(names),
        has_policies=request.policies is not None,
    )


def _remote_facts(
    local: CatalogSnapshot, remote: CatalogSnapshot, request: ReportRequest, words: CommandWords
) -> RemoteTierFacts:
    """Return what `kip33 retention REMOTE LOCAL` says."""
    beyond = only_local(remote, local, kafka_version=request.broker_version)
    policies = policies_for(remote.snapshot, request.policies or Policies())
    asked = RetentionRequest(
        policies,
        request.now_ms,
        boundary=boundary_for(remote.snapshot, request.broker_version),
        other_tier=beyond,
        moments_ms=forecast_moments(request.now_ms, request.forecast_days),
    )
    judged = _Judged.of(remote, asked)._replace(holes=HOLES.empty_table())
    return RemoteTierFacts(
        catalog=remote.catalog.location.uri,
        snapshot=remote.snapshot.name,
        segments=judged.total("segments"),
        bytes=judged.total("bytes"),
        deletable_segments=judged.total("deletable_segments"),
        deletable_bytes=judged.total("deletable_bytes"),
        only_local_bytes=sum(log.bytes_after for log in beyond.logs.values()),
        timelines=judged.timelines(),
        forecast=judged.forecast(),
        command=words.of_remote_retention(),
    )


def _both_tiers(local: CatalogSnapshot, remote: CatalogSnapshot | None) -> CatalogSnapshot | Tiers:
    """The place of the logs; what is left out of it is said elsewhere."""
    return local if remote is None else Tiers.of(local, remote, warn=lambda _: None)


def _between_tiers(
    local: CatalogSnapshot, request: ReportRequest, warnings: list[str]
) -> pa.Table | None:
    """Return what is wrong between the tiers; the warnings get a line for each other topic."""
    if request.remote is None:
        return None
    retention_says = {line.partition("; ")[0] for line in warnings}

    def warn(line: str) -> None:
        if line.partition("; ")[0] not in retention_says:
            warnings.append(line)

    tiers = Tiers.of(local, request.remote, warn)
    return compare_tiers(tiers, request.policies).findings


def _changes(
    catalog: Catalog, before: Snapshot | None, snapshot: Snapshot, warnings: list[str]
) -> Changes | None:
    """Return what changed since the complete snapshot before this one; None for the first."""
    if before is None:
        return None
    try:
        changed = difference(catalog, before, snapshot)
    except CatalogError as error:
        warnings.append(f"the snapshot before cannot be compared: {error}")
        return None
    has = _rows_by_change(changed)
    sizes = [pc.fill_null(changed[name], 0).to_numpy() for name in _SIZES]
    grown = sizes[1] - sizes[0]
    worth = np.logical_or.reduce([has[change] for change in _WORTH_LISTING])
    listed = changed.filter(pa.array(worth))
    counts = count_changes(changed)
    return Changes(
        before.name,
        before.created_ms,
        {str(change): count for change, count in counts.items()},
        {str(change): int(grown[has[change]].sum()) for change in counts},
        int(grown.sum()),
        tuple(
            ChangedSegment(
                row["log_uri"],
                tuple(row["changes"]),
                *(row[name] for name in _SIZES),
            )
            for row in listed.slice(0, _MOST_CHANGED).to_pylist()
        ),
        max(0, listed.num_rows - _MOST_CHANGED),
    )


def _totals(snapshot: Snapshot, judged: _Judged, topics: Sequence[TopicTotals]) -> Totals:
    holes, orphaned = hole_totals(judged.holes), snapshot.orphaned
    return Totals(
        topics=sum(1 for one in topics if one.topic),
        partitions=judged.partitions.num_rows,
        segments=judged.total("segments"),
        log_bytes=sum(one.log_bytes for one in topics),
        records=_records_of(topics),
        time_index_entries=sum(one.time_index_entries for one in topics),
        by_status=dict(sorted(judged.sums.by_status.items())),
        deletable_segments=judged.total("deletable_segments"),
        deletable_bytes=judged.total("deletable_bytes"),
        blocked_partitions=int(np.count_nonzero(judged.partitions["blocked_segments"].to_numpy())),
        blocked_segments=judged.total("blocked_segments"),
        blocked_bytes=judged.total("blocked_bytes"),
        untrusted_segments=int(judged.sums.untrusted_segments.sum()),
        by_hole=holes.by_hole,
        missing_offsets=holes.missing_offsets,
        disordered_batches=judged.sums.disordered_batches,
        orphaned_index_files=orphaned.rows if orphaned else 0,
        orphaned_bytes=orphaned.index_bytes if orphaned else 0,
    )


def _evidence_of(catalog: Catalog, snapshot: Snapshot) -> Evidence:
    """Return the snapshot's name and the SHA-256 of its commit file.

    Raises CatalogError if the snapshot was removed meanwhile, OSError if the file is unreadable.
    """
    place = catalog.commit_place(snapshot.commit_name)
    try:
        commit = read_published(place, most_bytes=MOST_COMMIT_BYTES)
    except FileNotFoundError as error:
        raise catalog.removed(snapshot) from error
    sha256 = hashlib.sha256(commit).hexdigest()
    return Evidence(snapshot.name, snapshot.created_ms, snapshot.rows, place.uri, sha256)


def _rows_by_change(changed: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
    """Return for each change which rows of a difference have it."""
    lists: Any = changed["changes"].combine_chunks()
    names = pc.list_flatten(lists)
    parents = pc.list_parent_indices(lists).to_numpy()
    has = {}
    for change in SegmentChange:
        has[str(change)] = np.zeros(changed.num_rows, bool)
        has[str(change)][parents[np.asarray(pc.equal(names, str(change)))]] = True
    return has


def _topic_facts(totals: Sequence[TopicTotals]) -> tuple[tuple[TopicFacts, ...], int, TopicFacts]:
    """Return the largest topics, the number of the others, and the sum of the others."""
    largest = sorted(totals, key=lambda one: (-one.log_bytes, one.topic))
    shown, others = largest[:_MOST_TOPICS], largest[_MOST_TOPICS:]
    return (
        tuple(_sum_of(one.topic or "?", [one]) for one in shown),
        len(others),
        _sum_of("others", others),
    )


def _sum_of(name: str, totals: Sequence[TopicTotals]) -> TopicFacts:
    not_ok: Counter[str] = Counter()
    for one in totals:
        not_ok.update(one.not_ok)
    return TopicFacts(
        name,
        sum(one.partitions for one in totals),
        sum(one.segments for one in totals),
        sum(one.log_bytes for one in totals),
        _records_of(totals),
        min((t.first_timestamp for t in totals if t.first_timestamp is not None), default=None),
        max((t.largest_timestamp for t in totals if t.largest_timestamp is not None), default=None),
        dict(sorted(not_ok.items())),
    )


def _records_of(totals: Sequence[TopicTotals]) -> int | None:
    """Return the number of records, None if those of a segment were not counted."""
    counts = [one.record_count for one in totals]
    return None if None in counts else sum(count or 0 for count in counts)
