"""Collect the facts of a report from a catalog; only small parts of the archive are read."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kip33 import __version__
from kip33.archive.log_start_offsets import log_start_offsets
from kip33.catalog.catalog import Catalog, Choice, Snapshot
from kip33.catalog.holes import hole_totals, read_holes
from kip33.catalog.topic_totals import TopicTotals, topic_totals
from kip33.errors import CatalogError
from kip33.report.facts import Changes, Report, Totals
from kip33.report.findings import CommandWords, FindingSources, findings_of
from kip33.report.snapshot_facts import changes_since, evidence_of, records_of, topic_facts
from kip33.report.sums import (
    BatchColumns,
    ages_of,
    disorder_of,
    forecast_of,
    read_batch_columns,
)
from kip33.report.timelines import PartitionRanking, make_timelines
from kip33.retention.evaluation import EvaluatedCatalog, EvaluationRequest, evaluate_catalog
from kip33.rules.policies import Policies
from kip33.rules.retention import RuleQuestion
from kip33.stores.locations import Location

MOST_FORECAST_DAYS: Final = 366


class ReportRequest(NamedTuple):
    """What a report is about."""

    policies: Policies | None  # None: retention is not judged
    policy_words: tuple[str, ...]  # the options that gave the policies
    catalog_word: str  # the catalog, as a command takes it
    now_ms: int
    made_ms: int
    forecast_days: int


def make_report(catalog: Catalog, choice: Choice, asked: ReportRequest) -> Report:
    """Return the facts of a snapshot; CatalogError for a damaged part."""
    snapshot, warnings = choice.snapshot, list(choice.warnings)
    evaluated = evaluate_catalog(catalog, snapshot, _evaluation(catalog, snapshot, asked))
    batches = read_batch_columns(catalog, snapshot, evaluated)
    topics = topic_totals(catalog, snapshot)
    holes = read_holes(catalog, snapshot, policies=asked.policies)
    ranking = PartitionRanking(evaluated, holes)
    words = CommandWords(asked.catalog_word, snapshot.snapshot_id, asked.policy_words, asked.now_ms)
    sources = FindingSources(evaluated, holes, topics, words, snapshot, choice.warnings)
    shown_topics, other_topics, topics_sum = topic_facts(topics)
    disorder, other_disorder, disorder_sum = disorder_of(evaluated, batches)
    changes = _changes(catalog, snapshot, warnings)
    return Report(
        __version__,
        asked.made_ms,
        asked.now_ms,
        catalog.location.uri,
        snapshot.source,
        asked.policies is not None,
        evidence_of(catalog, snapshot),
        _totals(snapshot, ranking, topics, batches),
        findings_of(sources),
        changes,
        make_timelines(ranking, batches.first_timestamp),
        forecast_of(evaluated, asked.forecast_days) if asked.policies else (),
        ages_of(evaluated),
        shown_topics,
        other_topics,
        topics_sum if other_topics else None,
        disorder,
        other_disorder,
        disorder_sum if other_disorder else None,
        tuple(warnings),
    )


def _evaluation(catalog: Catalog, snapshot: Snapshot, asked: ReportRequest) -> EvaluationRequest:
    """Return the question of `kip33 retention` without options but the policies and the time."""
    log_dirs: set[Any] = set()
    for piece in catalog.read_pieces(snapshot, ["log_dir"]):
        log_dirs.update(piece["log_dir"].unique().to_pylist())
    starts: Mapping[tuple[str, str, int], int] = {}
    if asked.policies is not None:
        starts = log_start_offsets(Location.of(snapshot.source), log_dirs - {None})
    return EvaluationRequest(asked.policies or Policies(), RuleQuestion(asked.now_ms), starts)


def _changes(catalog: Catalog, snapshot: Snapshot, warnings: list[str]) -> Changes | None:
    try:
        return changes_since(catalog, snapshot)
    except CatalogError as error:
        warnings.append(f"the snapshot before cannot be compared: {error}")
        return None


def _totals(
    snapshot: Snapshot,
    ranking: PartitionRanking,
    topics: Sequence[TopicTotals],
    batches: BatchColumns,
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
        records=records_of(topics),
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
