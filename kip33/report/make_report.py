"""Collect the facts of a report from a catalog; only small parts of the archive are read.

Facts that do not depend on retention: the evidence, what changed, the topics. Sums over segments:
by age, by disorder, and what becomes deletable when.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33 import __version__
from kip33.archive.log_start_offsets import log_start_offsets
from kip33.catalog.catalog import MOST_COMMIT_BYTES, Catalog, Choice, Snapshot
from kip33.catalog.difference import SegmentChange, count_changes, difference
from kip33.catalog.holes import HOLES, hole_totals, read_holes
from kip33.catalog.tier_findings import compare_tiers
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.catalog.topic_totals import TopicTotals, topic_totals
from kip33.errors import CatalogError
from kip33.report.facts import (
    AgeFacts,
    ChangedSegment,
    Changes,
    DisorderFacts,
    Evidence,
    FreedFacts,
    RemoteTierFacts,
    Report,
    TopicFacts,
    Totals,
)
from kip33.report.findings import CommandWords, FindingSources, findings_of
from kip33.report.timelines import PartitionRanking, make_timelines
from kip33.retention.evaluation import (
    EvaluatedCatalog,
    RetentionRequest,
    evaluate_catalog,
    tier_warnings,
)
from kip33.retention.only_local import only_local
from kip33.retention.partition_texts import name_of
from kip33.retention.policy_files import policies_of
from kip33.retention.uploaded import uploaded_segments
from kip33.rules.policies import Policies
from kip33.rules.retention import Int64Column, Int64s
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

MOST_FORECAST_DAYS: Final = 366
_MOST_TOPICS: Final = 30
_MOST_CHANGED: Final = 12
_SIZES: Final = ("size_bytes_before", "size_bytes_after")
_WORTH_LISTING: Final = (SegmentChange.SHRUNK, SegmentChange.STATUS_CHANGED, SegmentChange.MODIFIED)
_MOST_DISORDER: Final = 15
_DAY_MS: Final = 86_400_000
_AGES: Final = (  # below this age
    ("in the future", 0),
    ("less than 1 day", _DAY_MS),
    ("1 to 7 days", 7 * _DAY_MS),
    ("7 to 30 days", 30 * _DAY_MS),
    ("30 to 90 days", 90 * _DAY_MS),
    ("90 days to 1 year", 365 * _DAY_MS),
    ("1 to 3 years", 3 * 365 * _DAY_MS),
)
_OLDEST: Final = "3 years and more"
_UNKNOWN: Final = "no timestamp"


class ReportRequest(NamedTuple):
    """What a report is about."""

    policies: Policies | None  # None: retention is not judged
    policy_words: tuple[str, ...]  # the options that gave the policies, with absolute paths
    now_ms: int
    made_ms: int
    forecast_days: int
    remote: CatalogSnapshot | None = None  # of the remote tier
    warnings: tuple[str, ...] = ()  # about newer snapshots there


def report_policies(
    policy: str | None, kafka_configs: str | None, retention_ms: int | None
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
    asked = _evaluation(local, request)
    evaluated = evaluate_catalog(catalog, snapshot, asked)
    batches = _read_batch_columns(catalog, snapshot, evaluated)
    topics = topic_totals(catalog, snapshot)
    holes = read_holes(catalog, snapshot, policies=request.policies)
    ranking = PartitionRanking(evaluated, holes)
    words = CommandWords(
        *(catalog.location.word, snapshot.snapshot_id, request.policy_words, request.now_ms),
        remote=request.remote.catalog.location.word if request.remote else None,
    )
    remote = None
    if request.remote and request.policies:
        named = [totals.topic for totals in topics if totals.topic]
        warnings += tier_warnings(snapshot, request.policies, named, asked.other_tier)
        remote = _remote_facts(local, request.remote, request, words)
    sources = FindingSources(
        *(evaluated, holes, topics, words, snapshot, choice.warnings),
        _between_tiers(local, request, warnings),
    )
    shown_topics, other_topics, topics_sum = _topic_facts(topics)
    disorder, other_disorder, disorder_sum = _disorder_of(evaluated, batches)
    changes = _changes(catalog, snapshot, warnings)
    return Report(
        __version__,
        request.made_ms,
        request.now_ms,
        catalog.location.uri,
        snapshot.source,
        request.policies is not None,
        _evidence_of(catalog, snapshot),
        _totals(snapshot, ranking, topics, batches),
        findings_of(sources),
        changes,
        make_timelines(ranking, batches.first_timestamp),
        _forecast_of(evaluated, request.forecast_days) if request.policies else (),
        _ages_of(evaluated),
        shown_topics,
        other_topics,
        topics_sum if other_topics else None,
        disorder,
        other_disorder,
        disorder_sum if other_disorder else None,
        remote,
        tuple(warnings),
    )


def _evaluation(local: CatalogSnapshot, request: ReportRequest) -> RetentionRequest:
    """Return the question of `kip33 retention` without options but the policies and the time."""
    log_dirs: set[Any] = set()
    catalog, snapshot = local
    for piece in catalog.read_pieces(snapshot, ["log_dir"]):
        log_dirs.update(piece["log_dir"].unique().to_pylist())
    starts: Mapping[tuple[str, str, int], int] = {}
    if request.policies is not None:
        starts = log_start_offsets(Location.of(snapshot.source), log_dirs - {None})
    policies, uploaded = request.policies or Policies(), None
    if request.remote is not None:
        uploaded = uploaded_segments(local, request.remote, policies)
    return RetentionRequest(policies, request.now_ms, starts, other_tier=uploaded)


def _remote_facts(
    local: CatalogSnapshot, remote: CatalogSnapshot, request: ReportRequest, words: CommandWords
) -> RemoteTierFacts:
    """Return what `kip33 retention REMOTE --local LOCAL` says."""
    beyond = only_local(remote, local)
    asked = RetentionRequest(request.policies or Policies(), request.now_ms, other_tier=beyond)
    evaluated = evaluate_catalog(*remote, asked)
    begins = _read_batch_columns(*remote, evaluated).first_timestamp
    sums = evaluated.sums
    return RemoteTierFacts(
        remote.catalog.location.uri,
        remote.snapshot.name,
        int(sums.number("segments").sum()),
        int(sums.number("bytes").sum()),
        int(sums.number("deletable_segments").sum()),
        int(sums.number("deletable_bytes").sum()),
        sum(log.bytes_after for log in beyond.logs.values()),
        make_timelines(PartitionRanking(evaluated, HOLES.empty_table()), begins),
        _forecast_of(evaluated, request.forecast_days),
        words.of_remote_retention(),
    )


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


def _changes(catalog: Catalog, snapshot: Snapshot, warnings: list[str]) -> Changes | None:
    try:
        return _changes_since(catalog, snapshot)
    except CatalogError as error:
        warnings.append(f"the snapshot before cannot be compared: {error}")
        return None


class _BatchColumns(NamedTuple):
    """Figures of each segment's batches, in the order of the evaluated columns."""

    first_timestamp: Int64Column
    batches: Int64Column
    out_of_order: Int64Column


def _totals(
    snapshot: Snapshot,
    ranking: PartitionRanking,
    topics: Sequence[TopicTotals],
    batches: _BatchColumns,
) -> Totals:
    evaluated = ranking.evaluated
    sums, columns = evaluated.sums, evaluated.columns
    holes, orphaned = hole_totals(ranking.holes), snapshot.orphaned

    def total(name: str) -> int:
        return int(sums.number(name).sum())

    return Totals(
        topics=sum(1 for one in topics if one.topic),
        partitions=columns.starts.size,
        segments=columns.size,
        log_bytes=sum(one.log_bytes for one in topics),
        records=_records_of(topics),
        time_index_entries=sum(one.time_index_entries for one in topics),
        by_status=_by_status(evaluated),
        deletable_segments=total("deletable_segments"),
        deletable_bytes=total("deletable_bytes"),
        blocked_partitions=int(np.count_nonzero(sums.number("blocked_segments"))),
        blocked_segments=total("blocked_segments"),
        blocked_bytes=total("blocked_bytes"),
        untrusted_segments=int(ranking.untrusted_segments.sum()),
        by_hole=holes.by_hole,
        missing_offsets=holes.missing_offsets,
        disordered_batches=int(batches.out_of_order.values.sum()),
        orphaned_index_files=orphaned.rows if orphaned else 0,
        orphaned_bytes=orphaned.index_bytes if orphaned else 0,
    )


def _by_status(evaluated: EvaluatedCatalog) -> dict[str, int]:
    columns = evaluated.columns
    counts = {one: int(columns.equals("status", one).sum()) for one in columns.texts("status")}
    return {status: count for status, count in counts.items() if count}


def _evidence_of(catalog: Catalog, snapshot: Snapshot) -> Evidence:
    """Return the snapshot's name and the SHA-256 of its commit file.

    Raises CatalogError if the snapshot was removed meanwhile, OSError if the file is unreadable.
    """
    place = catalog.commit_place(snapshot.name)
    try:
        commit = read_whole(place, most_bytes=MOST_COMMIT_BYTES)
    except FileNotFoundError as error:
        raise catalog.removed(snapshot) from error
    sha256 = hashlib.sha256(commit).hexdigest()
    return Evidence(snapshot.name, snapshot.created_ms, snapshot.rows, place.uri, sha256)


def _changes_since(catalog: Catalog, snapshot: Snapshot) -> Changes | None:
    """Return what changed since the complete snapshot before this one; None for the first.

    Raises CatalogError if a part of either is damaged.
    """
    before = _before(catalog, snapshot)
    if before is None:
        return None
    changed = difference(catalog, before, snapshot)
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


def _before(catalog: Catalog, snapshot: Snapshot) -> Snapshot | None:
    found = (one.snapshot for one in catalog.candidates() if not one.problem)
    return next((one for one in found if one and one.sequence < snapshot.sequence), None)


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
        min((one.first_timestamp for one in totals if one.first_timestamp >= 0), default=None),
        max((one.largest_timestamp for one in totals if one.largest_timestamp >= 0), default=None),
        dict(sorted(not_ok.items())),
    )


def _records_of(totals: Sequence[TopicTotals]) -> int | None:
    """Return the number of records, None if those of a segment were not counted."""
    counts = [one.record_count for one in totals]
    return None if None in counts else sum(count or 0 for count in counts)


def _read_batch_columns(
    catalog: Catalog, snapshot: Snapshot, evaluated: EvaluatedCatalog
) -> _BatchColumns:
    """Return the columns of a snapshot that was evaluated without globs of topics."""
    names = ["first_batch_timestamp", "batch_count", "out_of_order_batches"]
    rows = catalog.read(snapshot, names)
    return _BatchColumns(*(_ordered(rows, name, evaluated.columns.order) for name in names))


def _ordered(rows: pa.Table, name: str, order: Int64s) -> Int64Column:
    values = pc.fill_null(rows[name], 0).to_numpy()
    known = np.asarray(pc.is_valid(rows[name]).to_numpy())
    return Int64Column(np.asarray(values), known).take(order)


def _ages_of(evaluated: EvaluatedCatalog) -> tuple[AgeFacts, ...]:
    """Return segments and bytes for each age of the largest timestamp, the newest first."""
    largest, sizes = evaluated.judged.segments.largest_timestamp, evaluated.summed.segments
    age = evaluated.now_ms - np.where(largest.known, largest.values, 0)
    # A timestamp far ahead may overflow the difference.
    age = np.where(largest.values > evaluated.now_ms, -1, age)
    limits = np.array([limit for _, limit in _AGES], np.int64)
    bucket = np.where(largest.known, np.searchsorted(limits, age, side="right"), len(_AGES) + 1)
    names = [*(name for name, _ in _AGES), _OLDEST, _UNKNOWN]
    found = []
    for number, name in enumerate(names):
        rows = bucket == number
        found.append(AgeFacts(name, int(np.count_nonzero(rows)), int(sizes.size_bytes[rows].sum())))
    return tuple(found)


def _disorder_of(
    evaluated: EvaluatedCatalog, batches: _BatchColumns
) -> tuple[tuple[DisorderFacts, ...], int, DisorderFacts]:
    """Return the partitions with the most disorder, the number of the others, and their sum."""
    summed, columns = evaluated.summed, evaluated.columns
    everywhere = np.ones(columns.size, bool)
    disordered = _sums(batches.out_of_order, columns.starts)
    segments = summed.number_of(
        everywhere & batches.out_of_order.known & (batches.out_of_order.values > 0)
    )
    counts = _sums(batches.batches, columns.starts)
    order = np.argsort(-disordered, kind="stable")
    order = order[disordered[order] > 0]

    def facts(name: str, numbers: Int64s) -> DisorderFacts:
        return DisorderFacts(
            name, *(int(one[numbers].sum()) for one in (counts, disordered, segments))
        )

    shown, others = order[:_MOST_DISORDER], order[_MOST_DISORDER:]
    names = [dict(zip(("log_dir", "topic", "partition"), key, strict=True)) for key in columns.keys]
    return (
        tuple(facts(name_of(names[at]), np.array([at])) for at in shown.tolist()),
        others.size,
        facts("others", others),
    )


def _sums(column: Int64Column, starts: Int64s) -> Int64s:
    if not starts.size:
        return np.zeros(0, np.int64)
    values = np.where(column.known, column.values, 0)
    return np.asarray(np.add.reduceat(values, starts), np.int64)


def _forecast_of(evaluated: EvaluatedCatalog, days: int) -> tuple[FreedFacts, ...]:
    """Return what becomes deletable on each day from now on; the first is what is deletable now."""
    now_ms = evaluated.now_ms
    moments = [now_ms + day * _DAY_MS for day in range(days + 1)]
    segments, sizes = dict.fromkeys(moments, 0), dict.fromkeys(moments, 0)
    for row in evaluated.freed_by(moments):
        segments[row.at_ms] += row.segments
        sizes[row.at_ms] += row.bytes
    return tuple(FreedFacts(at, segments[at], sizes[at]) for at in moments)
