"""Bring staged partitions to their places: the end of a restore, as its journal says.

The order: partitions are renamed into the log directory, an empty one of a new topic is moved aside
before. Then the log directory's checkpoints, the clean-shutdown file, and last the directory
`.kip33-restore` and the journal. A broker does not start before that directory is removed. Each
step may be done again.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES
from kip33.archive.sources import RESTORE_JOURNAL, RESTORE_STAGING
from kip33.errors import PublishError, RestoreError
from kip33.formats.partition_metadata import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    parse_offset_checkpoint,
    with_offsets,
)
from kip33.restore.log_dir_lock import alone_in
from kip33.restore.log_dir_state import CLEAN_SHUTDOWN, REPLACED, obstacle_at, require_own_files
from kip33.restore.restore_journal import (
    RestoredPartition,
    RestoreJournal,
    RestoreProgress,
    progress_of,
    read_restore_journal,
    staged_place,
)
from kip33.restore.restore_request import PartitionName
from kip33.retention.broker_locks import locked
from kip33.stores.file_owners import FileOwner
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, publish, remove, remove_temporary

_PUBLISHED: Final = (RESTORE_JOURNAL, CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)
_AT_END: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


def complete(log_dir: Location, journal: RestoreJournal) -> RestoreProgress:
    """Do all steps in order; those that an earlier run did have no effect.

    Returns where the partitions were before. Without the staging directory a broker may have
    started since, so only partitions in their places are completed. Raises RestoreError, and
    changes nothing, if a partition is lost beside others that are staged; PublishError if a step
    fails: the same command continues.
    """
    progress = progress_of(log_dir, journal)
    require_all(log_dir, progress)
    with _unfinished(log_dir, "the restore is not complete"):
        for one in progress.staged:
            _place(log_dir, one)
        flush(log_dir.path)
        changed = [one for one in journal.partitions if one not in progress.lost]
        for name in OFFSET_CHECKPOINTS:
            _update(log_dir.child(name), _changes(name, changed))
        if progress.is_staging_there and journal.marks_clean_shutdown:
            _publish(log_dir.child(CLEAN_SHUTDOWN), b"")
        remove_temporary(log_dir, _PUBLISHED)
        _remove_staging(log_dir)
        remove(log_dir.child(RESTORE_JOURNAL))
        flush(log_dir.path)
    return progress


def require_all(log_dir: Location, progress: RestoreProgress) -> None:
    """Raise RestoreError if a partition is lost beside others that are staged."""
    if not progress.may_go_on or not progress.lost:
        return
    names = ", ".join(one.name for one in progress.lost[:3])
    more = f" and {len(progress.lost) - 3:,} others" if len(progress.lost) > 3 else ""
    raise RestoreError(
        f"{log_dir.uri}: {names}{more}: neither staged in {RESTORE_STAGING} nor in its place as "
        "planned; another program has changed the directory: restore with --abandon, then again"
    )


def abandon(log_dir: Location) -> dict[str, Any]:
    """Remove what an interrupted restore has staged or placed; return the command's summary.

    Partitions in their places are removed, and the empty ones of new topics return there. Without
    the staging directory a broker may have started since: then partitions in their places stay.
    Raises RestoreError if no restore was begun, PublishError if a step fails: the same command
    continues.
    """
    with alone_in(log_dir, "restore", RestoreError), locked([log_dir.child("any")], restores=True):
        require_own_files(log_dir)
        journal = read_restore_journal(log_dir)
        progress = progress_of(log_dir, journal) if journal else None
        is_there = os.path.isdir(log_dir.child(RESTORE_STAGING).path)  # noqa: PTH112
        if not journal and not is_there:
            raise RestoreError(f"{log_dir.uri}: no restore was begun here; nothing was changed")
        kept: tuple[RestoredPartition, ...] = ()
        if journal and not is_there:
            kept = complete(log_dir, journal).in_place
        with _unfinished(log_dir, "the restore is not removed yet"):
            if journal and progress and is_there:
                _undo(log_dir, journal, progress)
            remove(log_dir.child(RESTORE_JOURNAL))
            flush(log_dir.path)
            _remove_staging(log_dir)
        return {
            "log_dir": log_dir.uri,
            "abandoned": True,
            "partitions_removed": len(journal.partitions) - len(kept) if journal else 0,
            "partitions_in_place": [one.name for one in kept],
        }


def _undo(log_dir: Location, journal: RestoreJournal, progress: RestoreProgress) -> None:
    """Take partitions out of their places; offsets first, so it can be done again."""
    if progress.in_place:
        gone = {(one.topic, one.partition): None for one in journal.partitions}
        for name in OFFSET_CHECKPOINTS:
            _update(log_dir.child(name), gone)
        if journal.marks_clean_shutdown:
            remove(log_dir.child(CLEAN_SHUTDOWN))
    for one in progress.in_place:
        place = log_dir.child(one.name)
        os.rename(place.path, staged_place(log_dir, one.name).path)  # noqa: PTH104
    for one in journal.partitions:
        before = log_dir.child(f"{RESTORE_STAGING}/{REPLACED}/{one.name}")
        place = log_dir.child(one.name)
        if os.path.lexists(before.path) and not os.path.lexists(place.path):
            os.rename(before.path, place.path)  # noqa: PTH104


def _remove_staging(log_dir: Location) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(log_dir.child(RESTORE_STAGING).path)
    flush(log_dir.path)


@contextmanager
def _unfinished(log_dir: Location, what: str) -> Iterator[None]:
    """Raise PublishError for an OSError of a block."""
    try:
        yield
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise PublishError(
            f"{log_dir.uri}: {name}{one_line(error)}; {what}, and a broker does not start: fix it "
            "and run the same command again"
        ) from error


def require_checkpoints(log_dir: Location) -> None:
    """Raise RestoreError for a checkpoint of the log directory that cannot be read."""
    for name in OFFSET_CHECKPOINTS:
        place = log_dir.child(name)
        try:
            parse_offset_checkpoint(_text(place))
        except (OSError, ValueError) as error:
            raise RestoreError(
                f"{place.uri}: {one_line(error)}; fix it and run the command again"
            ) from error


def give_to_owner(log_dir: Location, path: str) -> None:
    """Give a new file or directory the owner and the group of the log directory."""
    owner, have = FileOwner.of(log_dir.path), FileOwner.of(path)
    if owner and have and owner[:2] != have[:2]:
        os.chown(path, owner.uid, owner.gid)


def _place(log_dir: Location, one: RestoredPartition) -> None:
    target = log_dir.child(one.name)
    if os.path.lexists(target.path):
        obstacle = obstacle_at(target)
        if obstacle:
            raise FileExistsError(0, obstacle, target.path)
        aside = log_dir.child(f"{RESTORE_STAGING}/{REPLACED}")
        os.makedirs(aside.path, exist_ok=True)  # noqa: PTH103
        os.rename(target.path, aside.child(one.name).path)  # noqa: PTH104
    os.rename(staged_place(log_dir, one.name).path, target.path)  # noqa: PTH104


def _update(place: Location, changes: Mapping[PartitionName, int | None]) -> None:
    text = _text(place)
    there = parse_offset_checkpoint(text)
    if any(there.get(key) != offset for key, offset in changes.items()):
        _publish(place, with_offsets(text, changes).encode())


def _changes(
    name: str, partitions: Iterable[RestoredPartition]
) -> Mapping[PartitionName, int | None]:
    """Return the offset of each restored partition in a checkpoint, None: it has none."""
    changes: dict[PartitionName, int | None] = {}
    for one in partitions:
        offset: int | None = None
        if name in _AT_END:
            offset = one.end_offset
        elif name == LOG_START_OFFSET_CHECKPOINT and one.start_offset > one.first_base_offset:
            offset = one.start_offset
        else:
            assert name in (LOG_START_OFFSET_CHECKPOINT, CLEANER_CHECKPOINT)
        changes[one.topic, one.partition] = offset
    return changes


def _text(place: Location) -> str:
    try:
        return read_whole(place, most_bytes=MOST_CHECKPOINT_BYTES).decode()
    except FileNotFoundError:
        return ""


def _publish(place: Location, data: bytes) -> None:
    """Publish a file of the log directory with the owner of the directory."""
    publish(
        place,
        data,
        before_rename=lambda at: give_to_owner(place.parent, at),
        durable=True,
    )
