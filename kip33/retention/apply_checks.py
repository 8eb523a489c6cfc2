"""The checks of a retention plan before anything is changed; each refusal is one line.

A plan's id shows that it was not changed, not that it is right: it may have been made by hand, or
before the last build. So its segments are always judged again, by the plan's own policies at its
own time, on the rows of the newest snapshot.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kip33.archive.sources import require_outside_brokers
from kip33.catalog.catalog import Catalog, Warn, choose
from kip33.errors import CatalogError, PlanError
from kip33.retention.judging import CatalogRow, JudgedPartition, judged_partitions
from kip33.retention.plan import (
    PlannedPartition,
    PlannedSegment,
    RetentionPlan,
    first_names,
    require_deletable,
)
from kip33.rules.retention_rows import Decision, Limits
from kip33.stores.locations import Location

_MAKE_ANOTHER = "make another plan"


def require_fresh(plan: RetentionPlan, *, clock_ms: int, max_age_ms: int) -> None:
    """Raise PlanError for a plan that is too old, or from the future."""
    created_ms, now_ms = plan.basis.created_ms, plan.basis.now_ms
    age_ms = clock_ms - created_ms
    if age_ms < 0:
        raise PlanError(
            f"the plan was made {-age_ms} ms in the future: one of the clocks is wrong; "
            f"{_MAKE_ANOTHER}"
        )
    if age_ms > max_age_ms:
        raise PlanError(
            f"the plan is {age_ms} ms old, expected at most {max_age_ms} ms "
            f"(--max-age); {_MAKE_ANOTHER}"
        )
    if now_ms > created_ms:
        raise PlanError(
            f"the plan evaluates retention at {now_ms}, which is after the plan was made; "
            f"{_MAKE_ANOTHER}"
        )


def require_within(plan: RetentionPlan, limit_bytes: int) -> None:
    """Raise PlanError for a plan that deletes more than `limit_bytes`."""
    if plan.size_bytes > limit_bytes:
        raise PlanError(
            f"the plan deletes {plan.size_bytes} bytes, expected at most {limit_bytes}: "
            "check the plan, then give a higher --limit"
        )


def require_trash(plan: RetentionPlan, trash: Location) -> None:
    """Raise PlanError for a trash on another store, or inside a directory of the plan.

    Raises LocationError for a trash inside any broker's log directory.
    """
    basis = plan.basis
    if trash.root != basis.source.root:
        raise PlanError(f"{trash.uri}: expected a trash on the same store as {basis.source.uri}")
    places = {basis.source: "SOURCE", basis.catalog: "the catalog"}
    indexes = [basis.index_dir, *(one.index_directory for one in plan.partitions)]
    places |= {place: "the index directory" for place in indexes if place}
    for place, what in places.items():
        if place.contains(trash):
            raise PlanError(f"{trash.uri}: the trash is inside {what}, {place.uri}: give another")
    require_outside_brokers(trash, "the trash")


def require_same_judgement(plan: RetentionPlan, warn: Warn) -> frozenset[str]:
    """Return the URIs of the planned logs that the newest snapshot has.

    `warn` gets a line for each newer snapshot that is damaged. Raises PlanError if the snapshot
    would keep one of them or has other values for it, CatalogError if there is no snapshot or it is
    of another source.
    """
    basis = plan.basis
    catalog = Catalog(basis.catalog)
    newest = choose(catalog, None, warn).snapshot
    if newest.source != basis.source.uri:
        raise CatalogError(
            f"{basis.catalog.uri}: describes {newest.source}, but the plan is for "
            f"{basis.source.uri}; {_MAKE_ANOTHER}"
        )
    require_deletable(newest)
    partitions = {partition.key: partition for partition in plan.with_segments()}

    def limits_of(log_dir: str, topic: str, number: int) -> Limits | None:
        partition = partitions.get((log_dir, topic, number))
        return basis.limits(partition.topic, partition.log_start_offset) if partition else None

    known: set[str] = set()
    problems: list[str] = []
    for judged in judged_partitions(catalog, newest, limits_of, now_ms=basis.now_ms):
        for segment in _planned_again(partitions[judged.key], judged):
            known.add(segment.row.log_uri)
            problem = segment.problem(trust_last_modified=basis.trust_last_modified)
            problems += [problem] if problem else []
    if problems:
        raise PlanError(
            f"snapshot {newest.name} has another result for {len(problems)} planned "
            f"segments: {first_names(problems)}; {_MAKE_ANOTHER}"
        )
    return frozenset(known)


class _Again(NamedTuple):
    """A planned segment and its row in the newest snapshot."""

    partition: PlannedPartition
    segment: PlannedSegment
    judged: JudgedPartition
    row: CatalogRow
    decision: Decision

    def problem(self, *, trust_last_modified: bool) -> str | None:
        """Return why it would not be planned now in the same way, None if it would."""
        row, log = self.row, self.segment.log
        why = self.judged.why_unplannable(row, trust_last_modified=trust_last_modified)
        if not self.decision.deletable:
            return f"{row.log_uri} is kept ({self.decision.reason})"
        if why:
            return why
        found = (row.base_offset, row.size_bytes, row.last_modified_ms)
        if found != (self.segment.base_offset, log.size_bytes, log.last_modified_ns // 1_000_000):
            return f"{row.log_uri} has changed"
        index_directory = self.partition.index_directory
        takes_indexes = any(file.in_index_dir for file in self.segment.files)
        if takes_indexes and index_directory and row.index_directory_uri != index_directory.uri:
            return f"{row.log_uri} has other index files"
        return None


def _planned_again(partition: PlannedPartition, judged: JudgedPartition) -> Iterator[_Again]:
    planned = {partition.place(segment.log).uri: segment for segment in partition.segments}
    for row, decision in zip(judged.rows, judged.decisions, strict=True):
        if row.log_uri in planned:
            yield _Again(partition, planned[row.log_uri], judged, row, decision)
