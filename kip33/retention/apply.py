"""Carry out a retention plan exactly, or report in a row why not.

A plan's id shows that it was not changed, not that it is right: it may have been made by hand, or
before the last build. So nothing is changed before all checks pass. The segments are judged again,
by the plan's own policies at its own time, on the rows of the newest snapshot, and no broker may
hold the `.lock` of a log directory, which stays locked until the end.

Partitions are processed in parallel, the segments of each in order, oldest first: the rest never
has a gap. The first difference from the plan ends the partition. If an apply is interrupted,
applying the plan again continues it: the journal beside the catalog has its progress.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kip33.archive.broker_locks import locked
from kip33.archive.listing import DIRECTORIES_AT_ONCE
from kip33.archive.segment_paths import PartitionFiles, is_log, list_partition
from kip33.catalog.catalog import Catalog, Warn, choose, warn_caller
from kip33.catalog.catalog_columns import JUDGED, OF_FILES
from kip33.catalog.tiers import CatalogSnapshot
from kip33.errors import CatalogError, PlanError, counted
from kip33.retention.apply_segment import (
    CONTINUE,
    Journal,
    OnRecord,
    PartitionOutcome,
    Run,
    SegmentStep,
    StepOutcome,
    folder_in_trash,
    has_plan,
)
from kip33.retention.evaluation import RetentionRequest, judged_tables
from kip33.retention.judged_partition import JudgedPartition
from kip33.retention.make_plan import HAS_A_SWAP, linked_directory, unlistable_directories
from kip33.retention.plan import (
    PlannedPartition,
    RetentionPlan,
    first_names,
    require_deletable,
)
from kip33.retention.uploaded import uploaded_segments
from kip33.rules.policies import MAX_INT64
from kip33.stores.directory_checks import require_writable
from kip33.stores.files import one_line
from kip33.stores.locations import Location

MAX_AGE_MS: Final = 24 * 3_600_000
LIMIT_BYTES: Final = 1 << 40
_MAKE_ANOTHER = "make another plan"


class PartitionResult(NamedTuple):
    """The result for one partition; for a dry run, the result it would have."""

    log_dir: str
    topic: str
    partition: int
    segments_planned: int
    segments_deleted: int  # by this run, including moved ones
    segments_gone_already: int  # by other runs of this plan
    bytes_deleted: int  # of all files, by this run
    outcome: PartitionOutcome
    why: str | None
    stopped_at: int | None  # base offset of the first segment that is not done
    refused: bool = False  # stopped at a difference from the plan, not by an error
    log_bytes_deleted: int = 0  # of the logs alone, by this run


@dataclass(frozen=True)
class Applied:
    """The result of an apply; for a dry run, the result it would have had."""

    plan_id: str
    run_id: str
    dry_run: bool
    journal: str  # URI of the plan's journal
    trash: str | None  # URI of the plan's folder in the trash
    partitions: tuple[PartitionResult, ...]
    continues: tuple[str, ...] = ()  # ids of other runs of the plan that this run found
    is_plan_in_trash: bool = False  # a copy of it, if the plan moved files to this trash

    @property
    def stopped(self) -> int:
        """Return the number of partitions that ended before their last planned segment."""
        return sum(1 for one in self.partitions if one.outcome == PartitionOutcome.STOPPED)

    @property
    def refused(self) -> int:
        """Return the number of partitions that a check stopped, not an error."""
        return sum(1 for one in self.partitions if one.refused)

    @property
    def segments_deleted(self) -> int:
        """Return the number of segments that this run deleted or moved."""
        return sum(one.segments_deleted for one in self.partitions)

    @property
    def bytes_deleted(self) -> int:
        """Return the bytes of all files that this run deleted or moved."""
        return sum(one.bytes_deleted for one in self.partitions)

    @property
    def log_bytes_deleted(self) -> int:
        """Return the bytes of the logs that this run deleted or moved."""
        return sum(one.log_bytes_deleted for one in self.partitions)

    @property
    def bytes_freed(self) -> int:
        """Return the bytes of deleted files: those in a trash still take their space."""
        return 0 if self.trash else self.bytes_deleted

    @property
    def findings(self) -> list[str]:
        """Return `stopped` if a partition was."""
        return [str(PartitionOutcome.STOPPED)] if self.stopped else []

    def as_record(self) -> dict[str, Any]:
        """Return the summary of the command, without its time."""
        return {
            "plan_id": self.plan_id,
            "run_id": self.run_id,
            "dry_run": self.dry_run,
            "partitions": len(self.partitions),
            "stopped_partitions": self.stopped,
            "refused_partitions": self.refused,
            "segments_deleted": self.segments_deleted,
            "segments_gone_already": sum(one.segments_gone_already for one in self.partitions),
            "bytes_deleted": self.bytes_deleted,
            "log_bytes_deleted": self.log_bytes_deleted,
            "bytes_freed": self.bytes_freed,
            "journal": self.journal,
            "trash": self.trash,
            "continues": list(self.continues),
            "findings": self.findings,
        }


def apply_plan(  # parameters: each limits the apply, or follows it
    plan: RetentionPlan,
    *,
    clock: Callable[[], int],
    max_age_ms: int = MAX_AGE_MS,
    limit_bytes: int = LIMIT_BYTES,
    trash: Location | None = None,
    dry_run: bool = False,
    threads: int = DIRECTORIES_AT_ONCE,
    on_record: OnRecord | None = None,
    warn: Warn = warn_caller,
) -> Applied:
    """Delete what the plan says, or move it to `trash`; return a row for each partition.

    `clock` gives the time in ms. `on_record` is called with each object of the journal after it is
    published, one at a time; in a dry run, with the objects there would be. If it returns False, it
    is not called again, and each partition ends with its current segment. `warn` gets a line for
    each newer snapshot of the catalog that is damaged. Raises PlanError,
    CatalogError or LocationError if the plan is refused; then nothing was changed.
    """
    _require_fresh(plan, clock_ms=clock(), max_age_ms=max_age_ms)
    if plan.size_bytes > limit_bytes:
        raise PlanError(
            f"the plan deletes {plan.size_bytes} bytes, expected at most {limit_bytes}: "
            "check the plan, then give a higher --limit"
        )
    plan.basis.require_limits()
    plan.basis.require_policies(partition.topic for partition in plan.with_segments())
    folder = folder_in_trash(plan, trash) if trash else None
    run = Run(plan, clock, folder, dry_run, on_record)
    with ExitStack() as locks:
        locks.enter_context(locked(run.directories(), make=not dry_run))
        run = replace(run, known=_require_same_judgement(plan, warn))
        if dry_run:
            locks.close()  # a dry run only tests the lock; a broker may start
        locks.enter_context(run.alone())
        if folder and not dry_run:
            require_writable(folder, "the trash")
        results = run.side_by_side(threads, _delete_partition)
        is_in_trash = folder is not None and has_plan(folder)
    return Applied(
        plan.plan_id,
        run.run_id,
        dry_run,
        run.journal.uri,
        folder.uri if folder else None,
        results,
        tuple(sorted(run.continues)),
        is_in_trash,
    )


def _require_fresh(plan: RetentionPlan, *, clock_ms: int, max_age_ms: int) -> None:
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


def _require_same_judgement(plan: RetentionPlan, warn: Warn) -> frozenset[str]:
    """Return the URIs of the planned logs that the newest snapshot has.

    `warn` gets a line for each newer snapshot that is damaged. Raises PlanError if the snapshot
    would keep one of them or has other values for it, CatalogError if there is no snapshot or it is
    of another source.
    """
    basis = plan.basis
    catalog = Catalog(basis.catalog)
    newest = choose(catalog, None, warn, may_be_behind=True).snapshot
    if newest.source != basis.source.uri:
        raise CatalogError(
            f"{basis.catalog.uri}: describes {newest.source}, but the plan is for "
            f"{basis.source.uri}; {_MAKE_ANOTHER}"
        )
    require_deletable(newest)
    partitions = {partition.key: partition for partition in plan.with_segments()}

    uploaded = None
    if basis.remote:
        remote = Catalog(basis.remote)
        chosen = choose(remote, None, warn, may_be_behind=True)
        tier = CatalogSnapshot(remote, chosen.snapshot)
        ends: dict[tuple[str, int], int] = {}
        for one in partitions.values():
            end = MAX_INT64 if one.first_kept_base_offset is None else one.first_kept_base_offset
            key = one.topic, one.partition
            ends[key] = max(end, ends.get(key, 0))
        uploaded = uploaded_segments(
            CatalogSnapshot(catalog, newest), tier, basis.policies, planned=ends
        )
    known: set[str] = set()
    problems: list[str] = []
    unlistable, trust = [*unlistable_directories(catalog, newest)], basis.trust_last_modified
    starts = ((key, one.log_start_offset) for key, one in partitions.items())
    request = RetentionRequest(
        basis.policies,
        basis.now_ms,
        {key: offset for key, offset in starts if offset is not None},
        active_segment=basis.active_segment,
        boundary=basis.boundary,
        other_tier=uploaded,
    )
    for table in judged_tables(catalog, newest, request, (*JUDGED, *OF_FILES)):
        for judged in table.partitions(unlistable):
            if judged.key in partitions:
                for log_uri, why in _judged_again(partitions[judged.key], judged, trust):
                    known.add(log_uri)
                    problems += [why] if why else []
    if problems:
        segments = counted(len(problems), "planned segment")
        raise PlanError(
            f"snapshot {newest.name} has another result for {segments}: "
            f"{first_names(problems)}; {_MAKE_ANOTHER}"
        )
    return frozenset(known)


def _judged_again(
    partition: PlannedPartition, judged: JudgedPartition, trust_last_modified: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield each planned log, and why it would not be planned in the same way now, or None."""
    planned = {segment.log.place.uri: segment for segment in partition.segments}
    for row, decision in zip(judged.rows, judged.decisions, strict=True):
        segment = planned.get(row.log_uri)
        if segment is None:
            continue
        log = segment.log
        then = (segment.base_offset, log.size_bytes, log.last_modified_ns // 1_000_000)
        takes_indexes = any(file.folder != partition.directory for file in segment.files)
        index_directory = partition.index_directory if takes_indexes else None
        why = judged.why_unplannable(row, trust_last_modified=trust_last_modified)
        if not decision.deletable:
            why = f"{row.log_uri} is kept ({decision.reason})"
        elif why is None and (row.base_offset, row.size_bytes, row.last_modified_ms) != then:
            why = f"{row.log_uri} has changed"
        elif why is None and index_directory and row.index_directory_uri != index_directory.uri:
            why = f"{row.log_uri} has other index files"
        yield row.log_uri, why


def _delete_partition(run: Run, partition: PlannedPartition) -> PartitionResult:
    """Delete the planned segments; a difference or a fault of the store is in the result."""
    journal = Journal(run, partition)
    files = PartitionFiles({}, frozenset())
    refused = False
    try:
        journal.load()
        run.continues.update(journal.other_runs)
        files = list_partition(partition.directory, may_be_absent=True)
        why = _hole(partition, files)
        refused = why is not None
    except PlanError as error:
        why, refused = str(error), True
    except OSError as error:
        why = (
            f"{partition.directory.uri}, or its journal, cannot be listed: {one_line(error)}; "
            f"{CONTINUE}"
        )
    source = run.plan.basis.source
    steps: list[SegmentStep] = []
    for segment in partition.segments:
        listed = files.segments.get(segment.base_offset, [])
        step = SegmentStep(run, partition, segment, journal, listed)
        steps.append(step)
        if linked := linked_directory(partition.directory, partition.index_directory, source):
            why, refused = linked, True
        if run.interrupted.is_set():
            why, refused = "interrupted", False
        if why:
            step.stop(why, refused=refused)
        else:
            step.take()
        if step.why:
            break
    outcomes = Counter(one.outcome for one in steps)
    deleted = [file for one in steps for file in one.deleted]
    return PartitionResult(
        *partition.key,
        len(partition.segments),
        outcomes[StepOutcome.DELETED] + outcomes[StepOutcome.MOVED],
        outcomes[StepOutcome.GONE_ALREADY] + outcomes[StepOutcome.DONE_BEFORE],
        sum(file.size_bytes for file in deleted),
        PartitionOutcome.STOPPED if step.why else PartitionOutcome.DONE,
        step.why,
        segment.base_offset if step.why else None,
        step.refused,
        sum(file.size_bytes for file in deleted if is_log(file)),
    )


def _hole(partition: PlannedPartition, files: PartitionFiles) -> str | None:
    """Return why the directory could be left with a gap, None if it cannot."""
    planned = {segment.base_offset for segment in partition.segments}
    last, kept, logs = max(planned), partition.first_kept_base_offset, files.logs()
    for base_offset in logs:
        if base_offset < last and base_offset not in planned:
            log = partition.log_uri(base_offset)
            return f"{log}: the segment is not in the plan, but older than a segment of the plan"
    if any(swap <= last for swap in files.swaps):
        return f"{partition.directory.uri}: {HAS_A_SWAP}"
    if kept is not None and kept not in logs:
        return f"{partition.log_uri(kept)}: the first segment that the plan keeps is missing"
    return None
