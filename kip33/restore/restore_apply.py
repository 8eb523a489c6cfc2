"""Carry out a restore, so that a broker never starts on a part of it.

All files are made in `LOG_DIR/.kip33-restore/`: a broker that finds a directory of this name does
not start. When all partitions are staged and on the disk, the journal is published, and
`restore_complete` brings them to their places. The same command continues a run that was
interrupted: segments that are staged are not copied again.
"""

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from kip33.archive.bins import Engine, Work
from kip33.archive.broker_locks import alone_in, locked
from kip33.archive.sources import RESTORE_STAGING
from kip33.errors import RestoreError
from kip33.formats.scan import SMALL_BYTES
from kip33.restore.finished_partition import FinishedPartition, finish_partition
from kip33.restore.restore_complete import (
    RestoredPartition,
    RestoreJournal,
    begin_restore_journal,
    begun_restore,
    complete,
    files_id_of,
    give_to_owner,
    progress_of,
    remove_staging,
    remove_unfinished,
    require_all,
    require_checkpoints,
    staged_place,
    summary_of,
)
from kip33.restore.restore_plan import (
    STAGED_FACTS,
    STAGED_PARTITIONS,
    STAGED_RUN,
    RestorePlan,
    plan_restore,
    read_log_dir,
    require_own_files,
    run_in,
)
from kip33.restore.restore_request import RestoreRequest
from kip33.restore.restored_before import with_those_there
from kip33.restore.restored_segment import (
    STAGED_KINDS,
    RestoredSegment,
    SegmentFacts,
    StagingJob,
    not_written,
    stage_bin,
)
from kip33.rules.policies import human_bytes
from kip33.stores.directory_checks import require_writable
from kip33.stores.files import write_new
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, flush_filesystems, is_flushing, remove
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

MOST_ATTEMPTS: Final = 3  # at logs that change while they are read
_NOT_READ: Final = (
    "the plan is that of the catalog, no log was read: the restore reads them, and also refuses "
    "what is damaged since the build"
)


def restore(
    request: RestoreRequest, engine: Engine, on_progress: OnProgress = tell_nobody
) -> dict[str, Any]:
    """Restore partitions into a log directory, or continue that; return the summary.

    Raises LockedError while a broker or another run uses the log directory, RestoreError or
    LocationError if the restore cannot begin, PublishError for a failure after that: the same
    command continues.
    """
    log_dir = request.log_dir
    if log_dir.is_local:
        require_writable(log_dir, "the log directory")
    else:
        plan_restore(request)  # raises the error for a log directory that is not local
    with alone_in(log_dir, "restore", RestoreError), locked([log_dir.child("any")], restores=True):
        require_own_files(log_dir)
        journal = begun_restore(log_dir, request.asked)
        if journal and not progress_of(log_dir, journal).may_go_on:
            complete(log_dir, journal)  # of those in their places; the others are copied again
            journal = None
        is_begun = journal is not None
        if journal is None:
            read = _read(request, engine, on_progress)
            on_progress(Progress(Phase.FINISHING))
            journal = _staged(*read)
            if not journal.partitions:
                remove_staging(log_dir)
                return journal.summary
            begin_restore_journal(log_dir, journal)
        complete(log_dir, journal)
        return _with_note(journal) if is_begun else journal.summary


def planned_or_begun(
    request: RestoreRequest, engine: Engine, on_progress: OnProgress = tell_nobody
) -> dict[str, Any]:
    """Return the summary of a plan, or of an interrupted restore that is continued; no change.

    An archive is read as the restore reads it. Of a catalog no log is read. Raises the errors of
    `plan_restore`, and RestoreError if another restore was begun, the disk is too small, or a
    checkpoint of the log directory cannot be read.
    """
    log_dir = request.log_dir
    journal = may_continue(request)
    if journal is None:
        if request.catalog is None:
            plan, facts, notes = _read(request, engine, on_progress, is_dry=True)
            finished = _finished(plan, facts)
        else:
            plan, finished, notes = _planned(request, on_progress), [], (_NOT_READ,)
        summary = summary_of(plan, finished, notes, is_applied=False)
    else:
        summary = _with_note(journal) | {"applied": False}
    return summary | {"free_bytes": read_log_dir(log_dir).free_bytes}


def may_continue(request: RestoreRequest) -> RestoreJournal | None:
    """Return the journal of a restore that ends without its source; None: there is no such one.

    Raises RestoreError if another restore was begun, or its files are not as planned.
    """
    if not request.log_dir.is_local:
        return None
    require_own_files(request.log_dir)
    journal = begun_restore(request.log_dir, request.asked)
    if journal is None:
        return None
    progress = progress_of(request.log_dir, journal)
    require_all(request.log_dir, progress)
    return journal if progress.may_go_on else None


def _with_note(journal: RestoreJournal) -> dict[str, Any]:
    asked = ", ".join(f"{key} {json.dumps(value)}" for key, value in journal.asked.items() if value)
    note = f"continues the restore that was begun with {asked}; its logs are not read again"
    return journal.summary | {"notes": [note, *journal.summary["notes"]]}


def _require_space(plan: RestorePlan, job: StagingJob) -> None:
    """Raise RestoreError if the log directory has too little space for what is not staged yet."""
    needed = sum(RestoredSegment(job, segment).needed_bytes for segment in job.segments)
    free = plan.log_dir.free_bytes
    if needed > free:
        raise RestoreError(
            f"{plan.request.log_dir.uri}: {human_bytes(free)} are free, but the restore needs "
            f"{human_bytes(needed)}; make room, or choose fewer partitions"
        )


def _job(plan: RestorePlan) -> StagingJob:
    request = plan.request
    return StagingJob(
        request.log_dir.child(RESTORE_STAGING),
        request.slowest,
        plan.segments,
        request.settings,
        request.is_linked,
        request.leader_epoch,
        is_flushing(),
        allow_cut=request.allow_cut,
        native=sum(segment.size_bytes for segment in plan.segments) > SMALL_BYTES,
    )


def _planned(request: RestoreRequest, on_progress: OnProgress) -> RestorePlan:
    plan = plan_restore(request, on_progress)
    plan = with_those_there(plan, _job(plan))
    _require_space(plan, _job(plan))
    require_checkpoints(request.log_dir)
    return plan


def _read(
    request: RestoreRequest, engine: Engine, on_progress: OnProgress, *, is_dry: bool = False
) -> tuple[RestorePlan, Sequence[SegmentFacts], tuple[str, ...]]:
    """Stage all segments, or in a dry run only read them; return their plan, facts and notes.

    If a log changes meanwhile, the source is listed and read again.
    """
    notes: dict[str, None] = {}
    run_id = secrets.token_hex(8)
    for attempts_left in reversed(range(MOST_ATTEMPTS)):
        plan = _planned(request, on_progress)
        job = _job(plan)._replace(run_id=run_id, is_dry=is_dry)
        if not is_dry:
            _make_staging(plan, job)
        work = Work(Phase.READING_LOGS if is_dry else Phase.COPYING)
        results = engine.run_on_bins(job.files(), partial(stage_bin, job), work=work)
        facts = [of_segment for _, of_segment in sorted(results, key=itemgetter(0))]
        changed = [n for n, segment in enumerate(facts) if segment.has_changed]
        split = {job.segments[n].log.uri for n, segment in enumerate(facts) if segment.is_split}
        if not (changed or split) or not attempts_left:
            break
        request = replace(request, to_split=request.to_split | split)
        for number in changed:
            log = job.segments[number].log.uri
            notes[f"{log}: the log changed while it was read, and was read again"] = None
    return plan, facts, tuple(notes)


def _staged(
    plan: RestorePlan, facts: Sequence[SegmentFacts], notes: Sequence[str]
) -> RestoreJournal:
    """Finish the staged partitions; return the journal for those that are complete."""
    log_dir = plan.request.log_dir
    staging = log_dir.child(RESTORE_STAGING)
    staged = _finished(plan, facts)
    for partition in staged:
        _write_partition(staging, partition)
    with_files = [one for one in staged if one.problem is None]
    if with_files:
        try:
            flush_filesystems([staging])
        except OSError as error:
            raise not_written(staging, error) from error
    summary = summary_of(plan, staged, notes, is_applied=True)
    return RestoreJournal(
        plan.request.asked,
        tuple(_restored(log_dir, one) for one in with_files),
        run_in(log_dir),
        summary["clean_shutdown"] and not plan.log_dir.is_cleanly_shut,
        summary,
    )


def _finished(plan: RestorePlan, facts: Sequence[SegmentFacts]) -> list[FinishedPartition]:
    of_segments = iter(facts)
    return [
        finish_partition(one, [*islice(of_segments, len(one.segments))], plan.request)
        for one in plan.wanted
    ]


def _restored(log_dir: Location, staged: FinishedPartition) -> RestoredPartition:
    files_id = files_id_of(staged_place(log_dir, staged.plan.name))
    assert files_id
    return RestoredPartition.of(staged, files_id)


def _make_staging(plan: RestorePlan, job: StagingJob) -> None:
    """Make the directories of all partitions; remove those of an earlier run for others."""
    names = {one.name for one in plan.wanted}
    try:
        os.makedirs(job.staging.path, exist_ok=True)  # noqa: PTH103 - a path as the filesystem has it
        remove_unfinished(plan.request.log_dir, run_in(plan.request.log_dir))
        _write_run(job)
        for kind in (STAGED_PARTITIONS, STAGED_FACTS):
            folder = job.staging.child(kind)
            os.makedirs(folder.path, exist_ok=True)  # noqa: PTH103
            with os.scandir(folder.path) as entries:
                found = {entry.name for entry in entries}
            for name in sorted(found - names):
                shutil.rmtree(folder.child(name).path)
            for name in sorted(names - found):
                os.mkdir(folder.child(name).path)  # noqa: PTH102
    except OSError as error:
        raise not_written(job.staging, error) from error


def _write_run(job: StagingJob) -> None:
    """Write the run's id over that of an earlier run, so that there always is one."""
    place = job.staging.child(STAGED_RUN)
    descriptor = os.open(place.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(descriptor, job.run_id.encode(), 0)
    finally:
        os.close(descriptor)
    for path in (place.path, job.staging.path):
        flush(path)


def _write_partition(staging: Location, staged: FinishedPartition) -> None:
    """Write the small files of a staged partition; remove a partition with a problem."""
    folder = staging.child(f"{STAGED_PARTITIONS}/{staged.plan.name}")
    logs = {segment.file_name(kind) for segment in staged.plan.segments for kind in STAGED_KINDS}
    linked = {
        segment.file_name("log")
        for segment, facts in zip(staged.plan.segments, staged.facts, strict=True)
        if facts.is_linked
    }
    place = folder
    try:
        if staged.problem is not None:
            shutil.rmtree(folder.path)
            return
        with os.scandir(folder.path) as entries:
            strangers = {entry.name for entry in entries} - logs
        for name in sorted(strangers):
            remove(folder.child(name))
        for name, data in staged.files.items():
            place = folder.child(name)
            write_new(place.path, data)
        log_dir = staging.parent
        for name in sorted((logs | staged.files.keys()) - linked):
            place = folder.child(name)
            give_to_owner(log_dir, place.path)
        give_to_owner(log_dir, folder.path)
    except OSError as error:
        raise not_written(place, error) from error
