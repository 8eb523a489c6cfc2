"""Carry out the plan of a build on an engine, commit its snapshot, and sum it up.

Bins are built between `begin_build` and `commit_build`.
"""

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work
from kip33.archive.broker_locks import locked
from kip33.archive.listing import Column
from kip33.builds.build_options import BuildRequest, BuildSpec, require_layout
from kip33.builds.carry_over import carry_over_rows, merge
from kip33.builds.largest_before import with_largest_before
from kip33.builds.orphans import NAMED_BY_ROWS, merge_orphans, without_named
from kip33.builds.plan import BuildPlan, plan_build
from kip33.builds.task import TaskResult, build_bin
from kip33.builds.transaction_files import finish_transactions
from kip33.catalog.catalog import Candidate, Catalog, Snapshot, Warn
from kip33.catalog.draft import (
    CLAIMS,
    DEAD_AFTER_MS,
    STAYS,
    Draft,
    NumberTakenError,
    next_number,
    read_claims,
)
from kip33.catalog.holes import DirectoriesOfPartitions, hole_totals, read_holes
from kip33.catalog.ordered_parts import parts_in_order, write_parts
from kip33.catalog.orphan_list import read_orphans
from kip33.catalog.schema import have_note
from kip33.catalog.segment_findings import is_unwritten
from kip33.catalog.segment_order import KEY
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.drafts.designs import design_of
from kip33.errors import (
    CatalogError,
    NoReadableLogError,
    UnreadableCatalogError,
    counted,
    unreadable_logs_text,
)
from kip33.formats.index_kinds import IndexKind
from kip33.rules.publication import IndexFileState
from kip33.rules.segment_notes import KEPT, SegmentNote
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.locations import Location
from kip33.stores.own_files import (
    is_flushing,
    publish,
    remove_quietly,
    run_of,
    set_flushing,
    temporary_of,
)
from kip33.stores.progress import Phase, Progress

MOST_COMMIT_ATTEMPTS: Final = 200  # each is lost to another build's commit
FIRST_WAIT_S: Final = 0.01  # at most, after the first; doubled after each
LONGEST_WAIT_S: Final = 10.0
_STATES: Final = {
    "written": IndexFileState.WRITTEN,
    "kept": IndexFileState.KEPT,
    "without_index_files": IndexFileState.NONE,
}
_NOTES: Final = {  # what a summary counts: in place, problems that a build cannot repair
    "kept_though_other": tuple(KEPT.values()),
    "hidden_from_recovery": (SegmentNote.HIDES_DAMAGE,),
    "aborts_hidden": (SegmentNote.HIDES_ABORTS,),
    "may_not_start": (SegmentNote.STARTS_BY_INDEX, SegmentNote.MAY_NOT_START),
    "owner_not_given": (SegmentNote.OWNER_NOT_GIVEN,),
}


class StartedBuild(NamedTuple):
    """A build that has begun: its draft, and the parts with the copied rows."""

    plan: BuildPlan
    draft: Draft
    copied_parts: tuple[SnapshotPart, ...]


def begin_build(plan: BuildPlan) -> StartedBuild:
    """Begin the next snapshot: claim the index files, write the copied rows.

    Raises the errors of `Draft.begin` and `carry_over_rows`.
    """
    require_layout(plan.catalog.newest(), plan.build.layout, plan.catalog.location.uri)
    set_flushing(plan.build.fsync)
    draft = Draft.begin(plan.catalog, plan.build.source)
    draft.claim(plan.claims)
    copied_parts = tuple(carry_over_rows(draft, plan.carry_over)) if plan.carry_over else ()
    _remove_unfinished(plan)
    return StartedBuild(plan, draft, copied_parts)


def _remove_unfinished(plan: BuildPlan) -> None:
    """Remove temporary index files of builds that have ended: they committed, or are a day old.

    An attempt of a task that is killed, because a speculative one was faster, leaves such a file.
    One that goes on after the commit of its build cannot rename its file then, and its result is
    not used.
    """
    snapshots = plan.catalog.snapshots() if plan.unfinished else []
    committed = {snapshot.snapshot_id for snapshot in snapshots}
    for place, last_modified_ms in plan.unfinished:
        if run_of(place) in committed or plan.now_ms - last_modified_ms >= DEAD_AFTER_MS:
            remove_quietly(place)


@dataclass(frozen=True)
class BuildSummary:
    """The content of a snapshot and the work of its build, read from its parts."""

    snapshot: str
    catalog: str
    segments: int
    by_status: dict[str, int]
    entries: int
    log_bytes: int
    index_bytes: int  # of existing index files
    indexed: int  # segments that this build read or tried to read
    reused: int  # copied rows of unchanged segments
    dropped: int  # rows of segments that no longer exist
    carried: int  # rows of topics or directories not listed, or of a concurrent build
    bytes_read: int  # of logs, by this build
    files_written: int  # index files, by this build
    index_files: int  # all of kip33 in the snapshot
    written: int  # segments with correct index files of kip33
    kept: int  # segments with index files of other programs
    kept_though_other: int  # of these, with other bytes than this build's
    without_index_files: int  # segments whose build wrote rows only
    failed: int  # segments of which an index file could not be written
    healed: int  # segments of unchanged logs: their index files were not as a build left them
    passed_over: dict[str, int]
    warnings: tuple[str, ...]
    hidden_from_recovery: int  # in place: damaged logs whose .index keeps a broker from cutting
    aborts_hidden: int  # in place: logs whose .index keeps a broker from writing their .txnindex
    may_not_start: int  # in place: logs that keep a broker from starting
    owner_not_given: int  # in place: with index files of another owner than the log's
    unreadable_example: str | None  # the first log that could not be read, and the reason
    failed_example: str | None  # of `failed`: one index file, or log, and the reason
    two_directories: tuple[str, ...]  # "A and B", of each partition with two directories
    orphaned: int  # index files of kip33 whose logs no longer exist
    orphaned_bytes: int
    by_hole: dict[str, int]  # missing offsets between two segments: holes by kind
    missing_offsets: int  # in holes that no other replica fills


def commit_build(started: StartedBuild, results: Sequence[TaskResult]) -> BuildSummary:
    """Commit the results of the bins; their parts are numbered from `len(started.copied_parts)`.

    The `.txnindex` files are written first, because they need all segments to have been read.
    Raises NoReadableLogError, and commits nothing, if no log could be read.
    """
    plan, draft, copied_parts = started
    parts = (*copied_parts, *(result.part for result in results))
    pending = [result.pending for result in results if result.pending]  # of logs that were read
    if not copied_parts and not pending:
        _require_a_readable_log(draft, parts)
    finished, of_transactions = finish_transactions(plan.build, draft, parts, pending)
    parts = parts_in_order(draft, (*parts, *finished))
    healed = _healed(plan, draft, parts)
    snapshot, taken_from_newer, warnings = _commit(plan, draft, parts, healed)
    carry_over = plan.carry_over
    return BuildSummary(
        snapshot=snapshot.name,
        catalog=plan.catalog.location.uri,
        segments=snapshot.rows,
        indexed=plan.files.num_rows,
        reused=carry_over.reused if carry_over else 0,
        dropped=carry_over.dropped if carry_over else 0,
        carried=(carry_over.carried if carry_over else 0) + taken_from_newer,
        bytes_read=sum(result.bytes_read for result in results),
        files_written=of_transactions + sum(result.files_written for result in results),
        passed_over=plan.passed_over,
        warnings=(*plan.warnings, *warnings),
        healed=healed,
        orphaned=snapshot.orphaned.rows if snapshot.orphaned else 0,
        orphaned_bytes=snapshot.orphaned.index_bytes if snapshot.orphaned else 0,
        **row_totals(plan.catalog, snapshot),
        **hole_totals(read_holes(plan.catalog, snapshot))._asdict(),
    )


def _healed(plan: BuildPlan, draft: Draft, parts: Sequence[SnapshotPart]) -> int:
    """How many spoiled segments have right index files of kip33 again."""
    if not len(plan.spoiled):
        return 0
    healed = 0
    for rows in draft.catalog.read_parts(draft.staging, parts, ["log_uri", "index_file"]):
        is_written = pc.equal(rows["index_file"], IndexFileState.WRITTEN.value)
        is_healed = pc.and_(is_written, pc.is_in(rows["log_uri"], value_set=plan.spoiled))
        healed += pc.sum(is_healed).as_py() or 0
    return healed


def _require_a_readable_log(draft: Draft, parts: Sequence[SnapshotPart]) -> None:
    """Raise NoReadableLogError if there are logs and none of them could be read."""
    unreadable = []
    try:
        for piece in draft.catalog.read_parts(draft.staging, parts, ["status", "log_uri", "error"]):
            if pc.any(pc.not_equal(piece["status"], SegmentStatus.UNREADABLE.value)).as_py():
                return  # as a rule the first piece has such a log
            unreadable.append(piece)
    except CatalogError:
        return  # the commit says what is wrong with a part
    first = min(filter(None, map(_first_unreadable, unreadable)), default=None)
    if first:
        rows = sum(piece.num_rows for piece in unreadable)
        text = unreadable_logs_text(rows, ": ".join(first), of=rows)
        raise NoReadableLogError(
            f"{text}; nothing is committed: make SOURCE readable, and run the command again"
        )


def _commit(
    plan: BuildPlan, draft: Draft, parts: Sequence[SnapshotPart], healed: int
) -> tuple[Snapshot, int, list[str]]:
    """Commit a build's rows, merged with those that other builds committed since it began.

    Returns the snapshot, how many of its rows come from other builds, and warnings. Of builds that
    commit at the same moment one gets the next number. The others wait, each for another time,
    merge its rows, and try again.
    """
    catalog, base = plan.catalog, plan.scope.base
    settings = {
        "build": json.dumps(plan.build.settings_of_row),
        "index_dir": plan.build.index_dir.uri if plan.build.kinds else None,
        "layout": plan.build.layout,
        "healed": healed,
    }
    known = base.name if base else None
    rows_of_others = 0
    orphans = plan.orphans.table
    warnings: list[str] = []
    for attempt in range(MOST_COMMIT_ATTEMPTS):
        number = next_number(catalog)
        if newer := _newest_unmerged(catalog, known):
            own = partial(catalog.read_parts, draft.staging, parts)
            tables, rows_of_others = merge(catalog, own, newer, plan.scope)
            parts = tuple(write_parts(draft, tables))
            orphans, problem = _merged_orphans(
                plan, orphans, newer, catalog.read_parts(draft.staging, parts, NAMED_BY_ROWS)
            )
            warnings += [problem] if problem else []
            known = newer.name
        try:
            snapshot = draft.commit(
                parts,
                settings=settings,
                now_ms=plan.now_ms,
                number=number,
                orphans=orphans,
                still_claimed=_still_claimed(plan),
            )
        except NumberTakenError:
            longest_s = min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S)
            threading.Event().wait(random.uniform(0, longest_s))
        else:
            return snapshot, rows_of_others, warnings
    raise CatalogError(
        f"{catalog.location.uri}: {MOST_COMMIT_ATTEMPTS} times another build committed first; "
        f"{STAYS}: run the command again"
    )


def _still_claimed(plan: BuildPlan) -> Column:
    """Return the plan's claims of earlier builds, less those of builds that committed since."""
    claims, catalog, base = plan.still_claimed, plan.catalog, plan.scope.base
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
    """Return the orphaned files of a build and of a newer snapshot, and a warning if one is lost.

    `rows` are the rows of both, merged.
    """
    theirs, problem = read_orphans(plan.catalog, newer)
    if problem:
        return orphans, problem
    merged = merge_orphans(
        orphans, theirs, listed_before=plan.orphans.listed_before, scope=plan.scope
    )
    return (without_named(merged, rows) if merged.num_rows else merged), None


def _newest_unmerged(catalog: Catalog, known: str | None) -> Snapshot | None:
    """Return the newest undamaged snapshot after `known`, the last one that is merged, or none."""
    for candidate in catalog.candidates():
        if known and candidate.name <= known:
            return None
        if _is_whole(catalog, candidate):
            return candidate.snapshot
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


def warnings_of(summary: BuildSummary) -> Iterator[str]:
    """Yield a line for each kind of segment that needs attention.

    These are logs that could not be read, index files that could not be written, partitions in two
    directories, and, in place, index files that can make a broker fail.
    """
    if count := summary.by_status.get(SegmentStatus.UNREADABLE):
        unreadable = unreadable_logs_text(
            count, summary.unreadable_example or "", of=summary.segments
        )
        yield (
            f"{unreadable}; kip33 catalog segments {summary.catalog} --status "
            "unreadable lists them; --fail-on unreadable makes this exit 3"
        )
    rows = f"kip33 catalog segments {summary.catalog} says what to do"
    if count := summary.failed:
        yield (
            f"index files of {counted(count, 'segment')} could not be written, for example "
            f"{summary.failed_example}; column `index_error` of their rows has the reasons; "
            "the next build tries again"
        )
    if count := summary.hidden_from_recovery:
        yield (
            f"{counted(count, 'damaged log')} with an .index that keeps a broker from cutting "
            f"them: stop the broker, remove these .index files, start the broker; {rows}"
        )
    if count := summary.aborts_hidden:
        yield (
            f"{counted(count, 'log')} with an .index that keeps a broker from writing the "
            ".txnindex they need, so read_committed consumers may read aborted records: stop the "
            "broker, run kip33 repair --apply for its log directory, which removes these .index "
            f"files, start the broker; {rows}"
        )
    if count := summary.may_not_start:
        yield (
            f"{counted(count, 'log')} damaged so that a broker may not start if it has to "
            f"recover them; {rows}; --fail-on invalid makes this exit 3"
        )
    if count := summary.owner_not_given:
        yield (
            f"{counted(count, 'segment')} with index files that cannot be given the owner of the "
            f"log; {rows}"
        )
    if count := len(summary.two_directories):  # such as orders-0 and orders-00
        yield (
            f"{counted(count, 'partition')} with two directories each, for example "
            f"{summary.two_directories[0]}: their searches are unsure, and retention "
            "keeps all their segments; remove or rename one of the directories"
        )


def row_totals(catalog: Catalog, snapshot: Snapshot) -> dict[str, Any]:
    """Return the counts over all rows of a snapshot, computed one row group at a time."""
    by_status: dict[str, int] = {}
    totals = dict.fromkeys(
        ("entries", "log_bytes", "index_bytes", "index_files", *_STATES, "failed", *_NOTES), 0
    )
    sizes = [f"{kind}_bytes" for kind in IndexKind]
    columns = ["status", "time_index_entries", "size_bytes", "index_file", "error", "index_error"]
    columns += ["notes", *KEY]
    directories = DirectoriesOfPartitions()
    owned = pa.array([IndexFileState.WRITTEN, IndexFileState.STALE], pa.string())
    failed_example: tuple[str, str] | None = None
    unreadable_example: tuple[str, str] | None = None
    for piece in catalog.read_pieces(snapshot, columns + sizes):
        directories.add(piece)
        for status, count in _counts(piece["status"]).items():
            by_status[status] = by_status.get(status, 0) + count
        totals["entries"] += pc.sum(piece["time_index_entries"]).as_py() or 0
        totals["log_bytes"] += pc.sum(piece["size_bytes"]).as_py() or 0
        totals["index_bytes"] += sum(pc.sum(piece[size]).as_py() or 0 for size in sizes)
        ours = piece.filter(pc.is_in(piece["index_file"], value_set=owned))
        totals["index_files"] += sum(len(ours) - ours[size].null_count for size in sizes)
        states = _counts(piece["index_file"])
        for name, state in _STATES.items():
            totals[name] += states.get(state, 0)
        for name, notes in _NOTES.items():
            totals[name] += pc.sum(have_note(piece, *notes)).as_py() or 0
        unreadable_example = min(
            filter(None, (unreadable_example, _first_unreadable(piece))), default=None
        )
        failed = piece.filter(is_unwritten(piece))
        totals["failed"] += failed.num_rows
        failed_example = min(filter(None, (failed_example, _example(failed))), default=None)
    counts = dict(sorted(by_status.items()))
    return {
        "by_status": counts,
        **totals,
        "unreadable_example": unreadable_example and ": ".join(unreadable_example),
        "failed_example": failed_example[1] if failed_example else None,
        "two_directories": directories.doubled(),
    }


def _first_unreadable(rows: pa.Table) -> tuple[str, str] | None:
    """Return the smallest URI of a log that could not be read, and the reason."""
    is_unreadable = pc.equal(rows["status"], SegmentStatus.UNREADABLE.value)
    unreadable: list[Any] = rows.select(["log_uri", "error"]).filter(is_unreadable).to_pylist()
    return min(((row["log_uri"], row["error"] or "") for row in unreadable), default=None)


def _example(failed: pa.Table) -> tuple[str, str] | None:
    """Return the smallest log URI, and the reason why its file could not be written, or none."""
    texts = failed.select(["log_uri", "index_error", "error"]).to_pylist()
    uri, why, error = min((tuple(row.values()) for row in texts), default=(None, None, None))
    return None if uri is None else (uri, why or f"those of {uri}: {error}")


def _counts(column: Any) -> dict[str, int]:
    pairs = pc.value_counts(column.drop_null()).to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}


def run_build(
    request: BuildRequest,
    engine: Engine,
    *,
    now_ms: int,
    warn: Warn,
) -> BuildSummary:
    """Plan a build and carry it out; `warn` gets a line for each kind of thing to look at.

    Errors are those of `plan_build` and `execute_build`.
    """
    plan = plan_build(request, now_ms=now_ms, on_progress=engine.on_progress)
    for warning in plan.warnings:
        warn(warning)
    summary = execute_build(plan, engine)
    for warning in (*summary.warnings[len(plan.warnings) :], *warnings_of(summary)):
        warn(warning)
    return summary


def execute_build(plan: BuildPlan, engine: Engine) -> BuildSummary:
    """Carry out a plan: index files, then one catalog snapshot.

    Bad segments are rows, not exceptions. In place the log directories are locked until the end, as
    a broker locks them; LockedError if a broker or another run of kip33 holds a lock.
    """
    with locked(plan.beside_logs), _flushing_as_before():
        engine.prepare(plan.files)
        files, first_pass_bytes = plan.files, 0
        if design_of(plan.build.settings.dialect).needs_largest_before:
            files, first_pass_bytes = with_largest_before(plan.build, files, engine)
        engine.on_progress(Progress(Phase.WRITING_CATALOG))
        started = begin_build(plan)
        run = partial(_build_bin, plan.build, started.draft.staging, len(started.copied_parts))
        with _marks_of(started) as marks:
            work = Work(Phase.READING_LOGS, source=plan.build.source, marks=marks, command="build")
            results = engine.run_on_bins(
                files, run, reads_files=not plan.build.read_tail, work=work
            )
        engine.on_progress(Progress(Phase.WRITING_CATALOG))
        summary = commit_build(started, results)
        return replace(summary, bytes_read=summary.bytes_read + first_pass_bytes)


@contextmanager
def _marks_of(started: StartedBuild) -> Iterator[tuple[Location, ...]]:
    """Yield files that a machine sees only if it sees this build's catalog and index directory.

    A catalog elsewhere proves nothing about the index directory, so that gets an empty file, named
    like an index file that is being written: a later build removes what a killed one left. Where
    the driver may not write it, rows will say so.
    """
    claims = started.draft.staging.child(CLAIMS)
    index_dir = started.plan.build.index_dir
    if not index_dir.is_local or started.plan.build.in_place or index_dir.contains(claims):
        yield (claims,)
        return
    mark = temporary_of(index_dir.child(f"{0:020d}.timeindex"))
    try:
        publish(mark, b"")
    except OSError:
        yield (claims,)
        return
    try:
        yield claims, mark
    finally:
        remove_quietly(mark)


@contextmanager
def _flushing_as_before() -> Iterator[None]:
    """Leave the process as it was: the program may go on after a build without flushing."""
    before = is_flushing()
    try:
        yield
    finally:
        set_flushing(before)


def _build_bin(
    build: BuildSpec, staging: Location, first_part: int, number: int, files: pa.Table
) -> Iterator[TaskResult]:
    yield build_bin(build, staging, first_part + number, files)
