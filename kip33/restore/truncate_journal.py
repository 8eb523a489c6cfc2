"""The journal of a truncation: one file in the partition's directory, there while it is under way.

    orders-0/.kip33-truncate.json            the plan, and the new bytes of all small files
    .kip33-truncate-<16 hex digits>          in the log directory: the journal's content id

It is published before the first change and removed after the last one is on the disk, so the
truncation can be continued after any interruption. A broker ignores both files. A journal is
believed only in the directory for which it was written: it has the directory's inode, and the log
directory repeats its id. So one that came with a copy of a partition changes nothing.
"""

import hashlib
import json
import os
from typing import Any, Final

from kip33.archive.output_files import (
    CONTENT_ID,
    require_content_id,
    require_plain_name,
    with_content_id,
)
from kip33.errors import TruncationError
from kip33.formats.names import parse_segment_file, segment_file_name
from kip33.formats.partition_metadata import LEADER_EPOCH_CHECKPOINT, OFFSET_CHECKPOINTS
from kip33.restore.file_change import FileAction, FileChange
from kip33.restore.partition_state import partition_of
from kip33.restore.truncate_plan import TruncationPlan
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, publish_or_raise, remove

JOURNAL: Final = ".kip33-truncate.json"
JOURNAL_FORMAT: Final = 2
_MOST_BYTES: Final = 2**31
_MOST_ID_BYTES: Final = 1 << 10


def journal_of(directory: Location) -> Location:
    """Return the place of a partition's journal."""
    return directory.child(JOURNAL)


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
    place = journal_of(directory)
    try:
        if os.path.islink(place.path):  # noqa: PTH114 - a path, as the filesystem has it
            raise ValueError("a link found, expected a file")
        record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
        if record["format"] != JOURNAL_FORMAT:
            raise ValueError(f"format {record['format']!r} found, expected {JOURNAL_FORMAT}")
        require_content_id(record)
        _require_here(directory, record)
        plan = TruncationPlan.of_record(directory, record)
        for change in plan.changes:
            _require_own(change)
        return plan
    except FileNotFoundError:
        return None
    except OSError as error:
        why = one_line(error)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"is not the journal of a truncation of this directory: {one_line(error)}"
    raise TruncationError(
        f"{place.uri}: {why}; copy the partition again, or remove the file to plan anew"
    )


def _require_here(directory: Location, record: dict[str, Any]) -> None:
    """Raise ValueError unless the journal was written in this directory.

    The device is not compared: it may have another number after a restart of the machine.
    """
    partition = partition_of(directory)
    named = record["topic"], record["partition"], record["inode"]
    inode = os.stat(directory.path).st_ino  # noqa: PTH116 - a path, as the filesystem has it
    if named != (partition.topic, partition.partition, inode):
        raise ValueError(f"it was written in another directory, of {named[0]}-{named[1]}")
    place = journal_id_of(directory)
    try:
        content_id = read_whole(place, most_bytes=_MOST_ID_BYTES).decode().strip()
    except FileNotFoundError:
        content_id = ""
    if content_id != record[CONTENT_ID]:
        raise ValueError(
            f"{place.uri} has {content_id[:40]!r}, expected its id {record[CONTENT_ID]!r}"
        )


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


def begin_journal(plan: TruncationPlan) -> None:
    """Publish the journal of a plan; PublishError if that fails, then nothing was changed."""
    inode = os.stat(plan.directory.path).st_ino  # noqa: PTH116
    record = with_content_id({"format": JOURNAL_FORMAT, "inode": inode} | plan.as_record())
    content_id = f"{record[CONTENT_ID]}\n".encode()
    publish_or_raise(journal_id_of(plan.directory), content_id, "nothing was changed")
    data = (json.dumps(record) + "\n").encode()
    publish_or_raise(journal_of(plan.directory), data, "nothing was changed")


def end_journal(directory: Location) -> None:
    """Remove the journal: the truncation is done and on the disk."""
    flush(directory.path)
    remove(journal_of(directory))
    flush(directory.path)
    remove(journal_id_of(directory))
