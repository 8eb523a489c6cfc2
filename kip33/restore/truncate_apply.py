"""Carry out a truncation, so that a broker could start after any interruption.

The order: the journal is published. Offsets in the log directory's checkpoints are lowered, because
a broker deletes a log that ends before its log start offset. Later segments are deleted, the newest
first, so the log never has a gap. The `.index` of the segment that is cut is removed before its log
is cut, and written last: while it is missing, a broker recovers the segment and builds its indexes.
Each step is on the disk before the next one begins.

    orders-0/.kip33-truncate.json            the journal: the plan, and new bytes of small files
    .kip33-truncate-<16 hex digits>          in the log directory: the journal's content id, with a
                                             checksum, so that no other file is taken for it

The journal is removed after the last change is on the disk, so the truncation can be continued
after any interruption. A broker ignores both files. A journal is believed only in the directory for
which it was written: it has the directory's inode, and the log directory repeats its id. So one
that came with a copy of a partition changes nothing.
"""

import hashlib
import os
import stat
from typing import Any, Final

from kip33.archive.broker_locks import alone_in, locked
from kip33.archive.log_start_offsets import checkpoint_text
from kip33.archive.plans import CONTENT_ID, JournalForm, inode_of, require_plain_name
from kip33.archive.sources import require_no_restore
from kip33.errors import TruncationError
from kip33.formats.names import parse_segment_file, segment_file_name
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    parse_offset_checkpoint,
    with_offsets,
)
from kip33.restore.restore_complete import unfinished
from kip33.restore.truncate_files import FileAction, FileChange, partition_of, require_one_name
from kip33.restore.truncate_planner import TruncationPlan, plan_truncation
from kip33.rules.truncation import TruncationCase
from kip33.stores.file_owners import publish_beside
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, remove, remove_temporary, temporary_files_of

_INDEX: Final = ".index"
_LOG: Final = ".log"
_MOST_BYTES: Final = 2**31
JOURNAL: Final = ".kip33-truncate.json"
_JOURNAL_FORM: Final = JournalForm(
    3,  # in 2 the id beside it was a text
    "the journal of a truncation of this directory",
    "copy the partition again, or remove the file to plan anew",
    TruncationError,
)
_ID_FORM: Final = JournalForm(
    2,
    "the id of a truncation's journal",
    "move it away and run the command again",
    TruncationError,
)
_ID: Final = "journal"  # a key


def planned_or_begun(directory: Location, offset: int) -> tuple[TruncationPlan, bool]:
    """Return the plan, and whether an interrupted truncation is continued by it.

    Raises TruncationError if a truncation to another offset was begun, and the errors of
    `plan_truncation`, LockedError inside an unfinished restore.
    """
    partition_of(directory)
    require_no_restore(directory.parent)
    begun = read_journal(directory)
    if begun is None:
        _id_beside(directory)  # raises the error for a file that is not ours
        return plan_truncation(directory, offset), False
    if begun.to != offset:
        raise TruncationError(
            f"{directory.child(JOURNAL).uri}: a truncation to {begun.to} was begun and not "
            f"ended; end it with --to {begun.to} --apply before another one"
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
        if not is_begun and _id_beside(directory):  # of a run that was killed before its journal
            remove(journal_id_of(directory))
        if plan.changes:
            with temporary_files_of(plan.plan_id):
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
    return TruncationError(
        f"{plan.directory.child(name).uri}: {what}; another program has changed the directory: "
        f"copy the partition again, or remove {JOURNAL} if it is there and plan anew"
    )


def _carry_out(plan: TruncationPlan, *, is_begun: bool) -> None:
    """Do all steps in order; steps that an earlier run did are done again, without effect."""
    require_as_planned(plan, is_begun=is_begun)
    if not is_begun:
        _begin_journal(plan)
    in_partition = [change for change in plan.changes if not change.in_log_dir]
    by_action = {
        action: [change for change in in_partition if change.action == action]
        for action in FileAction
    }
    with unfinished(plan.directory, "the truncation is not complete"):
        for change in plan.changes:
            if change.in_log_dir:
                _lower(plan, change)
        written = by_action[FileAction.WRITE]
        for change in written:
            if change.name.endswith(_LOG):  # the empty segment, before the others are deleted
                _write(plan, change)
        for change in by_action[FileAction.DELETE]:
            _delete(plan, change)
        for cut in by_action[FileAction.CUT]:
            _delete(plan, cut._replace(name=cut.name.removesuffix(_LOG) + _INDEX))
            _cut(plan, cut)
        for change in sorted(written, key=lambda one: one.name.endswith(_INDEX)):
            if not change.name.endswith(_LOG):
                _write(plan, change)
        _remove_unfinished(plan)
        _end_journal(plan.directory)


def _lower(plan: TruncationPlan, change: FileChange) -> None:
    """Lower the partition's offset in a checkpoint of the log directory, as it is now."""
    place = change.place(plan.directory)
    try:
        text = checkpoint_text(place)
        key = plan.topic, plan.partition
        if parse_offset_checkpoint(text).get(key, 0) > plan.end_offset:
            data = with_offsets(text, {key: plan.end_offset}).encode()
            publish_beside(place, data, place, [], ours=False, durable=True)
    except ValueError as error:
        raise OSError(f"{place.name}: {one_line(error)}") from error


def _remove_unfinished(plan: TruncationPlan) -> None:
    """Remove temporary files of runs that were killed in this plan."""
    places = [change.place(plan.directory) for change in plan.changes]
    own = plan.directory.child(JOURNAL), journal_id_of(plan.directory)
    names = [place.name for place in (*places, *own)]
    for folder in (plan.directory, plan.directory.parent):
        remove_temporary(folder, names, plan.plan_id)


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


def journal_id_of(directory: Location) -> Location:
    """Return the place in the log directory that repeats the id of a partition's journal.

    A partition's name may be as long as a file name can be, so the digits are of its SHA-256.
    """
    real = directory._replace(path=os.path.realpath(directory.path))
    digits = hashlib.sha256(real.name.encode()).hexdigest()[:16]
    return real.parent.child(f".kip33-truncate-{digits}")


def read_journal(directory: Location) -> TruncationPlan | None:
    """Return the plan of a truncation that was interrupted, or None.

    Raises TruncationError for a file that is not the journal of a truncation of this directory.
    """

    def plan_of(record: dict[str, Any]) -> TruncationPlan:
        _require_here(directory, record)
        plan = TruncationPlan.of_record(directory, record)
        for change in plan.changes:
            _require_own(change)
        return plan

    return _JOURNAL_FORM.read(directory.child(JOURNAL), plan_of)


def _require_here(directory: Location, record: dict[str, Any]) -> None:
    """Raise ValueError unless the journal was written in this directory."""
    partition = partition_of(directory)
    named = record["topic"], record["partition"], record["inode"]
    if named != (partition.topic, partition.partition, inode_of(directory)):
        raise ValueError(f"it was written in another directory, of {named[0]}-{named[1]}")
    journal_id = _id_beside(directory)
    if journal_id != record[CONTENT_ID]:
        raise ValueError(
            f"{journal_id_of(directory).uri} has {journal_id!r}, expected its id "
            f"{record[CONTENT_ID]!r}"
        )


def _id_beside(directory: Location) -> str | None:
    """Return the id in the log directory, None without one.

    Raises TruncationError for a file that no truncation wrote.
    """
    return _ID_FORM.read(journal_id_of(directory), lambda record: str(record[_ID]))


def _require_own(change: FileChange) -> None:
    """Raise ValueError for a file that no truncation changes in this way."""
    name = require_plain_name(change.name)
    parsed = parse_segment_file(name)
    if change.in_log_dir:
        is_own = name in OFFSET_CHECKPOINTS and change.action == FileAction.WRITE
    elif parsed:
        is_named = name == segment_file_name(parsed.base_offset, parsed.kind)
        is_own = is_named and (change.action != FileAction.CUT or parsed.kind == "log")
    else:
        is_own = name == LEADER_EPOCH_CHECKPOINT and change.action == FileAction.WRITE
    if not is_own:
        raise ValueError(f"{change.action} {name!r} found, which no truncation does")


def _begin_journal(plan: TruncationPlan) -> None:
    """Publish the journal of a plan; PublishError if that fails, then nothing was changed."""
    content = plan.as_record()
    journal_id = _JOURNAL_FORM.record_of(plan.directory, content)[CONTENT_ID]
    unchanged = "nothing was changed"
    _ID_FORM.publish(journal_id_of(plan.directory), {_ID: journal_id}, unchanged)
    _JOURNAL_FORM.publish(plan.directory.child(JOURNAL), content, unchanged)


def _end_journal(directory: Location) -> None:
    """Remove the journal: the truncation is done and on the disk."""
    flush(directory.path)
    remove(directory.child(JOURNAL))
    flush(directory.path)
    remove(journal_id_of(directory))
