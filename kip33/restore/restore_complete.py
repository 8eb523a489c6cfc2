"""Bring staged partitions to their places: the end of a restore, as its journal says.

The order: partitions are renamed into the log directory, an empty one of a new topic is moved aside
before. Then the log directory's checkpoints, the clean-shutdown file, and last the directory
`.kip33-restore` and the journal. A broker does not start before that directory is removed. Each
step may be done again.
"""

import os
import shutil
from collections.abc import Mapping
from typing import Final

from kip33.archive.broker_log_dirs import RESTORE_JOURNAL, RESTORE_STAGING
from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES
from kip33.errors import PublishError, RestoreError
from kip33.formats.offset_checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    parse_offset_checkpoint,
    with_offsets,
)
from kip33.restore.log_dir_state import CLEAN_SHUTDOWN, REPLACED, STAGED_PARTITIONS, obstacle_at
from kip33.restore.restore_journal import RestoredPartition, RestoreJournal
from kip33.restore.restore_request import PartitionName
from kip33.stores.durable_files import flush
from kip33.stores.file_owners import FileOwner
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish, remove, remove_temporary

_PUBLISHED: Final = (RESTORE_JOURNAL, CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)
_AT_END: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


def complete(log_dir: Location, journal: RestoreJournal) -> None:
    """Do all steps in order; those that an earlier run did have no effect.

    Raises PublishError if one fails: the same command continues.
    """
    staging = log_dir.child(RESTORE_STAGING)
    try:
        if os.path.isdir(staging.path):  # noqa: PTH112 - a path, as the filesystem has it
            for one in journal.partitions:
                _place(log_dir, one)
            flush(log_dir.path)
            for name in OFFSET_CHECKPOINTS:
                _update(log_dir.child(name), journal)
            if journal.marks_clean_shutdown:
                _publish(log_dir.child(CLEAN_SHUTDOWN), b"")
            remove_temporary(log_dir, _PUBLISHED)
            shutil.rmtree(staging.path)
            flush(log_dir.path)
        remove(log_dir.child(RESTORE_JOURNAL))
        flush(log_dir.path)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise PublishError(
            f"{log_dir.uri}: {name}{one_line(error)}; the restore is not complete, and a broker "
            "does not start: fix it and run the same command again"
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
    staged = log_dir.child(f"{RESTORE_STAGING}/{STAGED_PARTITIONS}/{one.name}")
    target = log_dir.child(one.name)
    if not os.path.isdir(staged.path):  # noqa: PTH112
        return
    if os.path.lexists(target.path):
        obstacle = obstacle_at(target)
        if obstacle:
            raise FileExistsError(0, obstacle, target.path)
        aside = log_dir.child(f"{RESTORE_STAGING}/{REPLACED}")
        os.makedirs(aside.path, exist_ok=True)  # noqa: PTH103
        os.rename(target.path, aside.child(one.name).path)  # noqa: PTH104
    os.rename(staged.path, target.path)  # noqa: PTH104


def _update(place: Location, journal: RestoreJournal) -> None:
    text = _text(place)
    there = parse_offset_checkpoint(text)
    changes = _changes(place.name, journal)
    if any(there.get(key) != offset for key, offset in changes.items()):
        _publish(place, with_offsets(text, changes).encode())


def _changes(name: str, journal: RestoreJournal) -> Mapping[PartitionName, int | None]:
    """Return the offset of each restored partition in a checkpoint, None: it has none."""
    changes: dict[PartitionName, int | None] = {}
    for one in journal.partitions:
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
