"""Write a retention plan to a file, test it, or carry it out, from a program."""

import os
from typing import Final

from kip33.api.opened_catalog import current_ms
from kip33.retention import apply
from kip33.retention import plan as plan_file
from kip33.retention.apply import LIMIT_BYTES, MAX_AGE_MS, Applied, OnRecord
from kip33.retention.plan import RetentionPlan
from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    place_on,
    places_on,
    require_writable_store,
)
from kip33.stores.locations import Location

Path = str | os.PathLike[str]
DAY_MS: Final = MAX_AGE_MS


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


def apply_plan(
    plan: RetentionPlan | Path,
    *,
    dry_run: bool = True,
    trash: Path | None = None,
    max_age_ms: int = DAY_MS,
    limit_bytes: int = LIMIT_BYTES,
    on_record: OnRecord | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Applied:
    """Test a plan, or with `dry_run=False` carry it out, as `kip33 retention --apply` does.

    Returns what was done, or would be, with a `PartitionResult` for each partition: numbers of
    segments, sizes in bytes.

    >>> from kip33 import open_catalog
    >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
    >>> plan = open_catalog("indexes/_catalog").plan_retention(week, now=1_702_000_000_000)
    >>> would = apply_plan(plan)
    >>> would.dry_run, would.segments_deleted, would.partitions[0].outcome.value
    (True, 4, 'done')

    - `plan`: a plan, or the path or URI of its file
    - `dry_run`: check everything and delete nothing
    - `trash`: move the files to this directory instead of deleting them
    - `max_age_ms`, `limit_bytes`: refuse a plan that is older, or has more bytes
    - `on_record`: called with each object of the journal; if it returns False, each partition stops
      after its current segment
    - `filesystem`: a pyarrow or fsspec filesystem, also for the plan's catalog and archive

    A refused plan changes nothing. Raises PlanError if the plan cannot be read, is older than
    `max_age_ms`, has more than `limit_bytes`, or no longer matches the catalog; LockedError if a
    broker uses the directory; CatalogError if there is no snapshot; LocationError if a place cannot
    be used.
    """
    if isinstance(plan, RetentionPlan):
        named = [plan.basis.catalog.uri, plan.basis.source.uri]
        places_on(named, storage_options, filesystem)
    else:
        plan = plan_file.read_plan(place_on(plan, storage_options, filesystem))
    places = [plan.basis.catalog, plan.basis.source, *([Location.of(trash)] if trash else [])]
    require_writable_store(places)
    return apply.apply_plan(
        plan,
        clock=current_ms,
        max_age_ms=max_age_ms,
        limit_bytes=limit_bytes,
        trash=None if trash is None else Location.of(trash),
        dry_run=dry_run,
        on_record=on_record,
    )
