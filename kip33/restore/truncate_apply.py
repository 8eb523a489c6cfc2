"""Carry out a truncation, so that a broker could start after any interruption.

The order: the journal is published. Offsets in the log directory's checkpoints are lowered, because
a broker deletes a log that ends before its log start offset. Later segments are deleted, the newest
first, so the log never has a gap. The `.index` of the segment that is cut is removed
before its log is cut, and written last: while it is missing, a broker recovers the segment and
builds its indexes. Each step is on the disk before the next one begins.
"""

import os
import stat
from typing import Final

from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES
from kip33.archive.sources import require_no_restore
from kip33.errors import PublishError, TruncationError
from kip33.formats.names import parse_segment_file
from kip33.formats.partition_metadata import parse_offset_checkpoint, with_offset
from kip33.restore.file_change import FileAction, FileChange
from kip33.restore.log_dir_lock import alone_in
from kip33.restore.partition_state import partition_of, require_one_name
from kip33.restore.truncate_journal import (
    begin_journal,
    end_journal,
    journal_id_of,
    journal_of,
    read_journal,
)
from kip33.restore.truncate_plan import TruncationPlan
from kip33.restore.truncate_planner import plan_truncation
from kip33.retention.broker_locks import locked
from kip33.rules.truncation import TruncationCase
from kip33.stores.file_owners import publish_beside
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, remove, remove_temporary

_INDEX: Final = ".index"
_LOG: Final = ".log"
_MOST_BYTES: Final = 2**31


def planned_or_begun(directory: Location, offset: int) -> tuple[TruncationPlan, bool]:
    """Return the plan, and whether an interrupted truncation is continued by it.

    Raises TruncationError if a truncation to another offset was begun, and the errors of
    `plan_truncation`, LockedError inside an unfinished restore.
    """
    partition_of(directory)
    require_no_restore(directory.parent)
    begun = read_journal(directory)
    if begun is None:
        return plan_truncation(directory, offset), False
    if begun.offset != offset:
        raise TruncationError(
            f"{journal_of(directory).uri}: a truncation to {begun.offset} was begun and not ended; "
            f"end it with --to {begun.offset} --apply before another one"
        )
    require_as_planned(begun, is_begun=True)
    return begun, True


def truncate(directory: Location, offset: int, plan_id: str | None = None) -> TruncationPlan:
    """Truncate a partition directory to `offset`, or continue that; return what was done.

    With `plan_id` the plan must be that one. Raises LockedError while a broker or another run uses
    the log directory, TruncationError if nothing was changed, PublishError for a failure after
    that: the same command continues.
    """
    partition_of(directory)
    with alone_in(directory.parent, "truncation", TruncationError), locked([directory]):
        plan, is_begun = planned_or_begun(directory, offset)
        if plan_id is not None and plan_id != plan.plan_id:
            raise TruncationError(
                f"{directory.uri}: the plan is {plan.plan_id}, expected {plan_id}: the files have "
                "changed since; look at the plan again (without --apply)"
            )
        if not is_begun:
            remove(journal_id_of(directory))  # of a run that was killed before its journal
        if plan.changes:
            _carry_out(plan, is_begun=is_begun)
        return plan


def require_as_planned(plan: TruncationPlan, *, is_begun: bool) -> None:
    """Raise TruncationError if a file is neither as planned nor, once begun, as it will be."""
    for change in plan.changes:
        if not change.in_log_dir:
            _require(plan, change, is_begun=is_begun)
    if plan.case == TruncationCase.BEYOND_END:
        return
    planned = {change.name for change in plan.changes}
    with os.scandir(plan.directory.path) as entries:
        names = {entry.name for entry in entries} - planned
    for name in sorted(names):
        file = parse_segment_file(name)
        is_later = file and not file.suffix and file.base_offset > plan.end_offset
        if file and is_later and file.kind in ("log", "snapshot"):
            raise _changed(plan, name, "is not in the plan")


def _require(plan: TruncationPlan, change: FileChange, *, is_begun: bool) -> None:
    place = change.place(plan.directory)
    try:
        status = os.lstat(place.path)
    except FileNotFoundError:
        # The .index is removed first and written last.
        if change.bytes_before is None or (is_begun and change.action != FileAction.CUT):
            return
        raise _changed(plan, change.name, "is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise _changed(plan, change.name, "is a link or not a file")
    if change.action == FileAction.CUT:
        require_one_name(place)
    if (status.st_size, status.st_mtime_ns) == (change.bytes_before, change.modified_ns):
        return
    if is_begun and status.st_size == change.bytes_after:
        if change.action == FileAction.CUT:
            return
        if read_whole(place, most_bytes=_MOST_BYTES) == change.data:
            return
    raise _changed(plan, change.name, f"{status.st_size} bytes found, modified since the plan")


def _changed(plan: TruncationPlan, name: str, what: str) -> TruncationError:
    journal = journal_of(plan.directory)
    return TruncationError(
        f"{plan.directory.child(name).uri}: {what}; another program has changed the directory: "
        f"copy the partition again, or remove {journal.name} if it is there and plan anew"
    )


def _carry_out(plan: TruncationPlan, *, is_begun: bool) -> None:
    """Do all steps in order; steps that an earlier run did are done again, without effect."""
    require_as_planned(plan, is_begun=is_begun)
    if not is_begun:
        begin_journal(plan)
    in_partition = [change for change in plan.changes if not change.in_log_dir]
    try:
        for change in plan.changes:
            if change.in_log_dir:
                _lower(plan, change)
        written = [change for change in in_partition if change.action == FileAction.WRITE]
        for change in written:
            if change.name.endswith(_LOG):  # the empty segment, before the others are deleted
                _write(plan, change)
        for change in in_partition:
            if change.action == FileAction.DELETE:
                _delete(plan, change)
        for cut in (change for change in in_partition if change.action == FileAction.CUT):
            _delete(plan, cut._replace(name=cut.name.removesuffix(_LOG) + _INDEX))
            _cut(plan, cut)
        for change in sorted(written, key=lambda one: one.name.endswith(_INDEX)):
            if not change.name.endswith(_LOG):
                _write(plan, change)
        _remove_unfinished(plan)
        end_journal(plan.directory)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise PublishError(
            f"{plan.directory.uri}: {name}{one_line(error)}; the truncation is not complete: fix "
            "it and run the same command again"
        ) from error


def _lower(plan: TruncationPlan, change: FileChange) -> None:
    """Lower the partition's offset in a checkpoint of the log directory, as it is now."""
    place = change.place(plan.directory)
    try:
        text = read_whole(place, most_bytes=MOST_CHECKPOINT_BYTES).decode()
        key = plan.topic, plan.partition
        if parse_offset_checkpoint(text).get(key, 0) > plan.end_offset:
            data = with_offset(text, *key, plan.end_offset).encode()
            publish_beside(place, data, place, [], ours=False, durable=True)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise OSError(f"{place.name}: {one_line(error)}") from error


def _remove_unfinished(plan: TruncationPlan) -> None:
    """Remove temporary files of runs that were killed."""
    places = [change.place(plan.directory) for change in plan.changes]
    own = journal_of(plan.directory), journal_id_of(plan.directory)
    names = [place.name for place in (*places, *own)]
    for folder in (plan.directory, plan.directory.parent):
        remove_temporary(folder, names)


def _delete(plan: TruncationPlan, change: FileChange) -> None:
    remove(change.place(plan.directory))
    if change.name.endswith((_LOG, _INDEX)):
        flush(plan.directory.path)


def _cut(plan: TruncationPlan, change: FileChange) -> None:
    assert change.bytes_after is not None
    path = change.place(plan.directory).path
    if os.stat(path).st_size > change.bytes_after:  # noqa: PTH116
        os.truncate(path, change.bytes_after)
    flush(path)


def _write(plan: TruncationPlan, change: FileChange) -> None:
    """Publish a file with the owner of the one it replaces, or of a log of the partition."""
    assert change.data is not None
    place = change.place(plan.directory)
    log = place if os.path.exists(place.path) else _any_log(plan)  # noqa: PTH110
    publish_beside(place, change.data, log, [], ours=False, durable=True)


def _any_log(plan: TruncationPlan) -> Location:
    with os.scandir(plan.directory.path) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(".log"))
    return plan.directory.child(names[0]) if names else plan.directory
