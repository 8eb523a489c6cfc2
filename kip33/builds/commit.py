"""Begin and commit a build. Bins are built between `begin_build` and `commit_build`."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column
from kip33.builds.build_options import require_layout
from kip33.builds.build_summary import BuildSummary, row_totals
from kip33.builds.carry_over import carry_over_rows, write_parts
from kip33.builds.orphans import NAMED_BY_ROWS, merge_orphans, without_named
from kip33.builds.plan import BuildPlan
from kip33.builds.snapshot_merge import merge
from kip33.builds.task import TaskResult
from kip33.builds.transaction_files import finish_transactions
from kip33.catalog.catalog import Candidate, Catalog, Snapshot, SnapshotPart
from kip33.catalog.draft import DEAD_AFTER_MS, Draft, read_claims
from kip33.catalog.holes import hole_totals, read_holes
from kip33.catalog.orphan_list import read_orphans
from kip33.errors import (
    CatalogError,
    NoReadableLogError,
    UnreadableCatalogError,
    unreadable_logs_text,
)
from kip33.stores.own_files import remove_quietly, set_flushing

MOST_MERGES: Final = 10  # per build: other builds may commit at the same moment repeatedly


class Begun(NamedTuple):
    """A build that has begun: its draft, and the parts with the copied rows."""

    plan: BuildPlan
    draft: Draft
    taken: tuple[SnapshotPart, ...]


def begin_build(plan: BuildPlan) -> Begun:
    """Begin the next snapshot: claim the index files, write the copied rows.

    Raises the errors of `Draft.begin` and `carry_over_rows`.
    """
    require_layout(plan.catalog.newest(), plan.build.layout, plan.catalog.location.uri)
    set_flushing(plan.build.fsync)
    draft = Draft.begin(plan.catalog, plan.build.source)
    draft.claim(plan.claims)
    taken = tuple(carry_over_rows(draft, plan.takeover)) if plan.takeover else ()
    for place, last_modified_ms in plan.unfinished:
        if plan.now_ms - last_modified_ms >= DEAD_AFTER_MS:
            remove_quietly(place)
    return Begun(plan, draft, taken)


def commit_build(begun: Begun, results: Sequence[TaskResult]) -> BuildSummary:
    """Commit the results of the bins: `build_bin` with part numbers from `len(begun.taken)`.

    The `.txnindex` files are written first, because they need all segments to have been read.
    Raises NoReadableLogError, and commits nothing, if no log could be read.
    """
    plan, draft, taken = begun
    if not taken:
        _require_a_readable_log(results)
    parts = (*taken, *(result.part for result in results))
    pending = [result.pending for result in results if result.pending]
    finished = finish_transactions(plan.build, draft.staging, parts, pending, len(parts))
    snapshot, taken_from_newer, warnings = _commit(plan, draft, (*parts, *finished))
    set_flushing(True)
    takeover = plan.takeover
    return BuildSummary(
        snapshot=snapshot.name,
        catalog=plan.catalog.location.uri,
        segments=snapshot.rows,
        indexed=plan.files.num_rows,
        reused=takeover.reused if takeover else 0,
        dropped=takeover.dropped if takeover else 0,
        carried=(takeover.carried if takeover else 0) + taken_from_newer,
        bytes_read=sum(result.bytes_read for result in results),
        passed_over=plan.passed_over,
        warnings=(*plan.warnings, *warnings),
        orphaned=snapshot.orphaned.rows if snapshot.orphaned else 0,
        orphaned_bytes=snapshot.orphaned.index_bytes if snapshot.orphaned else 0,
        **row_totals(plan.catalog, snapshot),
        **hole_totals(read_holes(plan.catalog, snapshot))._asdict(),
    )


def _require_a_readable_log(results: Sequence[TaskResult]) -> None:
    """Raise NoReadableLogError if there are logs and none of them could be read."""
    parts = (part for result in results for part in (result.part, result.pending) if part)
    rows = sum(part.rows for part in parts)
    unreadable = sum(result.unreadable for result in results)
    if unreadable and unreadable == rows:
        uri, why = min(one for result in results if (one := result.first_unreadable))
        raise NoReadableLogError(
            f"{unreadable_logs_text(unreadable, f'{uri}: {why}', of=rows)}; nothing is committed: "
            "make SOURCE readable, and run the command again"
        )


def _commit(
    plan: BuildPlan, draft: Draft, parts: Sequence[SnapshotPart]
) -> tuple[Snapshot, int, list[str]]:
    """Commit a build's rows, merged with those that other builds committed since it began.

    Returns the snapshot, how many of its rows come from other builds, and warnings. Two builds that
    commit at the same moment write two snapshots with one number; each then merges the other's.
    """
    catalog, base = plan.catalog, plan.looked.base
    settings = {
        "build": plan.build.build_settings,
        "index_dir": plan.build.index_dir.uri,
        "layout": plan.build.layout,
    }
    folder = draft.staging
    known = {base.name} if base else set()
    rows_of_others = 0
    orphans = plan.orphans.table
    warnings: list[str] = []
    newer = _newest_unmerged(catalog, known)
    for _ in range(MOST_MERGES):
        while newer:
            merged = merge(catalog, partial(catalog.read_parts, folder, parts), newer, plan.looked)
            parts, folder = tuple(write_parts(draft, merged.tables)), draft.staging
            rows_of_others = merged.taken
            orphans, problem = _merged_orphans(
                plan, orphans, newer, catalog.read_parts(folder, parts, NAMED_BY_ROWS)
            )
            warnings += [problem] if problem else []
            known.add(newer.name)
            newer = _newest_unmerged(catalog, known)
        snapshot = draft.commit(
            parts,
            settings=settings,
            now_ms=plan.now_ms,
            orphans=orphans,
            still_claimed=_still_claimed(plan),
        )
        known.add(snapshot.name)
        newer = _committed_beside(catalog, snapshot, known)
        if newer is None:
            break
        draft = Draft.begin(catalog, plan.build.source)
        parts, folder = snapshot.parts, catalog.snapshot_folder(snapshot.name)
    return snapshot, rows_of_others, warnings


def _still_claimed(plan: BuildPlan) -> Column:
    """Return the plan's claims of earlier builds, less those of builds that committed since."""
    claims, catalog, base = plan.still_claimed, plan.catalog, plan.looked.base
    for candidate in catalog.candidates() if len(claims) else ():
        if base and candidate.name <= base.name:
            break
        if _is_whole(catalog, candidate):
            settled = read_claims(catalog.claims_place(candidate.name))
            claims = claims.filter(pc.invert(pc.is_in(claims, value_set=settled)))
    return claims


def _merged_orphans(
    plan: BuildPlan, orphans: pa.Table, newer: Snapshot, rows: Iterator[pa.Table]
) -> tuple[pa.Table, str | None]:
    """Return the orphaned files of a build and of a newer snapshot, and a warning if its list is
    lost.

    `rows` are those of both, merged.
    """
    theirs, problem = read_orphans(plan.catalog, newer)
    if problem:
        return orphans, problem
    merged = merge_orphans(
        orphans, theirs, listed_before=plan.orphans.listed_before, looked=plan.looked
    )
    return (without_named(merged, rows) if merged.num_rows else merged), None


def _newest_unmerged(catalog: Catalog, known: set[str]) -> Snapshot | None:
    """Return the newest undamaged snapshot, None if this build has already merged it."""
    for candidate in catalog.candidates():
        if candidate.name in known:
            return None
        if _is_whole(catalog, candidate):
            return candidate.snapshot
    return None


def _committed_beside(catalog: Catalog, snapshot: Snapshot, known: set[str]) -> Snapshot | None:
    """Return a snapshot with this one's number, or a newer one, that is not merged yet."""
    for candidate in catalog.candidates():
        beside = candidate.snapshot
        if beside and beside.sequence < snapshot.sequence:
            return None
        if candidate.name not in known and _is_whole(catalog, candidate):
            return beside
    return None


def _is_whole(catalog: Catalog, candidate: Candidate) -> bool:
    """Return whether a snapshot's bytes match its commit; a damaged one is ignored.

    Raises UnreadableCatalogError if a part cannot be read now, which does not prove damage.
    """
    if candidate.snapshot is None or candidate.problem:
        return False
    try:
        catalog.require_whole(candidate.snapshot)
    except UnreadableCatalogError:
        raise
    except CatalogError:
        return False
    return True
