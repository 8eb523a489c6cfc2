"""Write a retention plan to a file, test it, carry it out, or undo it, from a program."""

from typing import Unpack

from kip33.archive.moments import current_ms
from kip33.options import Path, takes
from kip33.retention import apply, undo
from kip33.retention import plan as plan_file
from kip33.retention.apply import Applied
from kip33.retention.apply_segment import OnRecord
from kip33.retention.plan import RetentionPlan
from kip33.retention.retention_options import ApplyOptions, UndoOptions
from kip33.retention.undo import Undone
from kip33.rules.policies import duration_ms, size_bytes
from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    place_on,
    places_on,
    require_writable_store,
)
from kip33.stores.locations import Location


def write_plan(
    plan: RetentionPlan,
    file: Path,
    *,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> None:
    """Write a plan to a file, as `kip33 retention --plan` does.

    >>> from kip33 import open_catalog
    >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
    >>> plan = open_catalog("indexes/_catalog").plan_retention(week, now=1_702_000_000_000)
    >>> write_plan(plan, "plan.jsonl")

    - `plan`: what `OpenedCatalog.plan_retention` returned
    - `file`: a path or URI that ends in `.jsonl`; only an existing plan is replaced

    Raises LocationError if the file is something else, PublishError if
    it cannot be written, ValueError for a filesystem that may not replace a file atomically.
    """
    place = place_on(file, storage_options, filesystem)
    require_writable_store([place])
    plan_file.write_plan(plan, place)


@takes(ApplyOptions, dry_run=True)
def apply_plan(
    plan: RetentionPlan | Path,
    *,
    on_record: OnRecord | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    **options: Unpack[ApplyOptions],
) -> Applied:
    """Test a plan, or with `dry_run=False` carry it out, as `kip33 retention apply` does.

    Returns what was done, or would be, with a `PartitionResult` for each partition: numbers of
    segments, sizes in bytes.

    >>> from kip33 import open_catalog
    >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
    >>> plan = open_catalog("indexes/_catalog").plan_retention(week, now=1_702_000_000_000)
    >>> would = apply_plan(plan)
    >>> would.dry_run, would.segments_deleted, would.partitions[0].outcome.value
    (True, 4, 'done')

    - `plan`: a plan, or the path or URI of its file
    - `on_record`: called with each object of the journal; if it returns False, each partition stops
      after its current segment
    - `storage_options`: keys and endpoint of stores (`kip33.stores.filesystem_option`)
    - `filesystem`: a pyarrow or fsspec filesystem, also for the plan's catalog and archive
    - `options`: see `ApplyOptions`

    A refused plan changes nothing. Raises PlanError if the plan cannot be read, is older than
    `max_age`, has more than `limit`, or no longer matches the catalog; LockedError if a
    broker uses the directory; CatalogError if there is no snapshot; LocationError if a place cannot
    be used.
    """
    plan = _plan_of(plan, storage_options, filesystem)
    trash = None if options["trash"] is None else Location.of(options["trash"])
    places = [plan.basis.catalog, plan.basis.source, *([trash] if trash else [])]
    require_writable_store(places)
    return apply.apply_plan(
        plan,
        clock=current_ms,
        max_age_ms=duration_ms(options["max_age"]),
        limit_bytes=size_bytes(options["limit"]),
        trash=trash,
        dry_run=options["dry_run"],
        on_record=on_record,
    )


@takes(UndoOptions, dry_run=True)
def undo_plan(
    plan: RetentionPlan | Path,
    trash: Path,
    *,
    on_record: OnRecord | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    **options: Unpack[UndoOptions],
) -> Undone:
    """Test whether a plan's files come back from a trash, or with `dry_run=False` put them back.

    Returns what `kip33 retention undo` does, or would do, with a `PartitionUndone` for each
    partition of which `apply_plan` moved a segment to `trash`: numbers of segments, sizes in bytes.

    >>> from kip33 import open_catalog
    >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
    >>> plan = open_catalog("indexes/_catalog").plan_retention(week, now=1_702_000_000_000)
    >>> applied = apply_plan(plan, trash="trash", dry_run=False, max_age="10000d")
    >>> undone = undo_plan(plan, "trash", dry_run=False)
    >>> undone.segments_put_back == applied.segments_deleted, undone.partitions[0].outcome.value
    (True, 'put_back')

    - `plan`: the plan that was applied, or the path or URI of its file
    - `trash`: the folder that the apply was given
    - `on_record`: called with each object of the journal; if it returns False, each partition stops
      after its current segment
    - `storage_options`: keys and endpoint of stores (`kip33.stores.filesystem_option`)
    - `filesystem`: a pyarrow or fsspec filesystem, also for the plan's catalog and archive
    - `options`: see `UndoOptions`

    Nothing that is there is replaced; `PartitionUndone.left` has a line for each file that is not
    put back. Raises PlanError if the plan cannot be read or was not applied, LockedError if a
    broker uses the directory; LocationError if a place cannot be used.
    """
    plan = _plan_of(plan, storage_options, filesystem)
    place = Location.of(trash)
    require_writable_store([plan.basis.catalog, plan.basis.source, place])
    return undo.undo_plan(
        plan, place, clock=current_ms, dry_run=options["dry_run"], on_record=on_record
    )


def _plan_of(
    plan: RetentionPlan | Path,
    storage_options: StorageOptions | None,
    filesystem: Filesystem | None,
) -> RetentionPlan:
    """Return a plan, that of a file if its place is given; its places are then on a filesystem."""
    if not isinstance(plan, RetentionPlan):
        return plan_file.read_plan(place_on(plan, storage_options, filesystem))
    places_on([plan.basis.catalog.uri, plan.basis.source.uri], storage_options, filesystem)
    return plan
