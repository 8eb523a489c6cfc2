"""Carry out a retention plan exactly, or report in a row why not.

Partitions are processed in parallel, the segments of each in order (`retention.apply_partition`).
Before anything is changed, the plan must pass all of `retention.apply_checks`, and no broker may
hold the `.lock` of a log directory, which stays locked until the end. If an apply is interrupted,
applying the plan again continues it: the journal beside the catalog has its progress.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from kip33.archive.listing import DIRECTORIES_AT_ONCE
from kip33.catalog.catalog import Warn, warn_caller
from kip33.retention.apply_checks import (
    require_fresh,
    require_same_judgement,
    require_trash,
    require_within,
)
from kip33.retention.apply_partition import PartitionResult, delete_partition
from kip33.retention.apply_segment import Record, Run
from kip33.retention.broker_locks import locked
from kip33.retention.journal import journal_place
from kip33.retention.outcomes import PartitionOutcome
from kip33.retention.plan import PlannedPartition, RetentionPlan
from kip33.retention.planned_files import linked_directory
from kip33.stores.directory_checks import require_writable
from kip33.stores.locations import Location

MAX_AGE_MS: Final = 24 * 3_600_000
LIMIT_BYTES: Final = 1 << 40
OnRecord: TypeAlias = Callable[[Record], bool | None]
"""Called with each object of the journal; returns False to stop."""


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
    require_fresh(plan, clock_ms=clock(), max_age_ms=max_age_ms)
    require_within(plan, limit_bytes)
    partitions = list(plan.with_segments())
    plan.basis.require_policies(partition.topic for partition in partitions)
    if trash:
        require_trash(plan, trash)
    journal = journal_place(plan)
    folder = trash.child(plan.plan_id) if trash else None
    with ExitStack() as locks:
        directories = (  # a lock beside a linked directory would be in the log directory there
            partition.directory
            for partition in partitions
            if not linked_directory(partition.directory, None, plan.basis.source)
        )
        locks.enter_context(locked(directories, make=not dry_run))
        known = require_same_judgement(plan, warn)
        if dry_run:
            locks.close()  # a dry run only tests the lock; a broker may start
        else:
            require_writable(journal, "the journal")
            if folder:
                require_writable(folder, "the trash")
        stop = threading.Event()
        tell = _one_at_a_time(on_record, stop)
        run = Run(plan, uuid.uuid4().hex[:12], known, clock, folder, dry_run, tell, stop)
        results = _side_by_side(run, partitions, threads)
    trash_uri = folder.uri if folder else None
    continues = tuple(sorted(run.continues))
    return Applied(plan.plan_id, run.run_id, dry_run, journal.uri, trash_uri, results, continues)


def _side_by_side(
    run: Run, partitions: Sequence[PlannedPartition], threads: int
) -> tuple[PartitionResult, ...]:
    """Return the results in order; after an interrupt each partition ends with its segment."""
    with ThreadPoolExecutor(threads) as pool:
        under_way = [pool.submit(delete_partition, run, partition) for partition in partitions]
        try:
            for ended in wait(under_way, return_when=FIRST_EXCEPTION).done:
                ended.result()
            return tuple(one.result() for one in under_way)
        except BaseException:
            run.interrupted.set()
            pool.shutdown(cancel_futures=True)
            raise


def _one_at_a_time(on_record: OnRecord | None, stop: threading.Event) -> Callable[[Record], None]:
    lock = threading.Lock()
    refused = False

    def tell(record: Record) -> None:
        nonlocal refused
        with lock:
            if on_record and not refused and on_record(record) is False:
                refused = True
                stop.set()

    return tell
