"""Carry out a repair: write or remove index files; verify each segment before and after."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from functools import partial
from os import cpu_count

from kip33.archive.segment_paths import beside
from kip33.archive.sources import OF_A_BROKER
from kip33.builds.repair_plan import Progress, RepairPlan, SegmentRepair, verified
from kip33.catalog.draft import DEAD_AFTER_MS
from kip33.rules.broker_start import RepairAction
from kip33.stores.file_owners import publish_beside
from kip33.stores.files import one_line, size_of
from kip33.stores.own_files import flush, remove


class RepairOutcome(StrEnum):
    """How a repair ended: the beginning of `SegmentRepair.outcome`."""

    DONE = "done"
    FAILED = "failed"


def apply_repair(plan: RepairPlan, on_progress: Progress | None = None) -> list[SegmentRepair]:
    """Carry out the plan; return its segments with their outcome, in the same order.

    Every segment is read again before it is changed, and again afterwards. `outcome` is `done`,
    `failed: ...` with the reason, or None if there was nothing to do. The caller holds the locks of
    the log directories.
    """
    to_change = [one for one in plan.repairs if one.repair.changes_files]
    results = {}
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        done = pool.map(partial(_repair_one, plan), to_change)
        for number, one in enumerate(done, 1):
            results[one.verdict.log_uri] = one
            if on_progress:
                on_progress(number, len(to_change))
    return [results.get(one.verdict.log_uri, one) for one in plan.repairs]


def remove_unfinished(plan: RepairPlan, *, now_ms: int) -> int:
    """Remove temporary index files of killed runs; return how many.

    The caller holds the locks of brokers' log directories, so no other run writes there. Elsewhere
    there is no lock, and only files of a day ago are removed, as builds do. A file that cannot be
    removed stays.
    """
    removed = 0
    for place, last_modified_ms in plan.unfinished:
        is_locked = size_of(place.parent.parent.child(OF_A_BROKER)) is not None
        if is_locked or now_ms - last_modified_ms >= DEAD_AFTER_MS:
            with suppress(OSError):
                remove(place)
                removed += 1
    return removed


def _repair_one(plan: RepairPlan, planned: SegmentRepair) -> SegmentRepair:
    segment = planned.segment
    settings = plan.settings.of(segment.topic)
    now, index = verified(plan.log_dir, settings, segment)
    if now.repair[:2] != planned.repair[:2] or index is None:
        return now._replace(
            outcome=f"{RepairOutcome.FAILED}: the segment changed after the plan was made; "
            "run the command again"
        )
    log = segment.log(plan.log_dir)
    wanted = (
        ("timeindex", now.repair.time_index, index.time_index_data),
        ("index", now.repair.offset_index, index.offset_index_data),
    )
    notes: list[str] = []
    try:
        for kind, action, data in wanted:
            place = beside(log, kind)
            if action == RepairAction.REMOVE:
                remove(place)
                flush(place.parent.path)
            elif action == RepairAction.WRITE and data is not None:
                publish_beside(place, data, log, notes, ours=False, durable=True)
    except OSError as error:
        return now._replace(
            outcome=f"{RepairOutcome.FAILED}: {place.uri}: {one_line(error)}; "
            "fix it and run the command again"
        )
    after, _ = verified(plan.log_dir, settings, segment)
    if after.repair.changes_files:
        return now._replace(
            outcome=f"{RepairOutcome.FAILED}: after the repair, {after.repair.why}; "
            "run the command again"
        )
    return now._replace(outcome="; ".join((RepairOutcome.DONE, *notes)))
