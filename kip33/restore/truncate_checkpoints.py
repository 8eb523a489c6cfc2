"""Checkpoints that change when a log is cut: leader epochs, and offsets of the log directory."""

import os
from collections.abc import Iterator
from typing import Final

from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES
from kip33.errors import TruncationError
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    format_epoch_checkpoint,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    truncate_epochs,
)
from kip33.restore.file_change import FileAction, FileChange
from kip33.restore.partition_state import PartitionState
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

RUN_AGAIN: Final = "fix it and run the command again"
NOTHING_KEPT: Final = -1  # an offset below all batches: all of them are cut


def epoch_changes(directory: Location, offset: int) -> Iterator[FileChange]:
    """Yield the leader epochs without those at the offset or after it."""
    place = directory.child(LEADER_EPOCH_CHECKPOINT)
    text = _text(place)
    if text is None:
        return
    try:
        starts = parse_epoch_checkpoint(text)
    except ValueError as error:
        raise _damaged(place, error) from error
    kept = truncate_epochs(starts, offset)
    after = format_epoch_checkpoint(kept)
    if kept != starts or (offset == NOTHING_KEPT and text != after):
        yield _rewritten(place, after, len(starts), len(kept))


def checkpoint_changes(
    state: PartitionState, notes: list[str], end_offset: int
) -> Iterator[FileChange]:
    """Yield the checkpoints of the log directory that have an offset after the new end.

    A broker that finds a log start offset after the log's end deletes the whole log.
    """
    key = state.topic, state.partition
    for name in OFFSET_CHECKPOINTS:
        place = state.directory.parent.child(name)
        text = _text(place)
        if text is None:
            continue
        try:
            offsets = parse_offset_checkpoint(text)
            if offsets.get(key, 0) <= end_offset:
                continue
        except ValueError as error:
            raise _damaged(place, error) from error
        yield FileChange(name, FileAction.WRITE, None, None, in_log_dir=True)
        notes.append(f"{place.uri}: {key[0]}-{key[1]} is set from {offsets[key]} to {end_offset}")


def _text(place: Location) -> str | None:
    try:
        return read_whole(place, most_bytes=MOST_CHECKPOINT_BYTES).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _damaged(place, error) from error


def _damaged(place: Location, error: ValueError) -> TruncationError:
    return TruncationError(f"{place.uri}: {error}; {RUN_AGAIN}")


def _rewritten(place: Location, text: str, before: int, after: int) -> FileChange:
    status = os.stat(place.path)  # noqa: PTH116 - a path, as the filesystem has it
    data = text.encode()
    return FileChange(
        place.name,
        FileAction.WRITE,
        status.st_size,
        status.st_mtime_ns,
        len(data),
        before,
        after,
        data,
    )
