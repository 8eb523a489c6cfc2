"""The journal of a restore: one file in the log directory while partitions come to their places.

    LOG_DIR/.kip33-restore.json      there from the first rename to the end
    LOG_DIR/.kip33-restore/          there from the first copy to the end; `run` has the run's id

While the directory is there a broker does not start: its name is not that of a partition. The
journal has all that is left to do and what was asked, so the same command completes it, without
SOURCE. It is believed only in the log directory for which it was written: it has the directory's
inode and the id in `run`.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kip33.archive.output_files import require_content_id, with_content_id
from kip33.archive.sources import RESTORE_JOURNAL, RESTORE_STAGING
from kip33.errors import RestoreError
from kip33.formats.names import partition_dir_name
from kip33.restore.log_dir_state import STAGED_PARTITIONS, STAGED_RUN
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

RESTORE_JOURNAL_FORMAT: Final = 2
_MOST_BYTES: Final = 2**31


class RestoredPartition(NamedTuple):
    """A partition that is staged as a whole: its offsets for the log directory's checkpoints."""

    topic: str
    partition: int
    name: str  # of its directory
    first_base_offset: int
    start_offset: int
    end_offset: int
    files_id: str  # of its files as they were staged


@dataclass(frozen=True)
class RestoreJournal:
    """What is left to do when all partitions are staged."""

    asked: Mapping[str, Any]  # the options that decide what is restored
    partitions: tuple[RestoredPartition, ...]
    marks_clean_shutdown: bool
    summary: dict[str, Any]  # what the command prints


class RestoreProgress(NamedTuple):
    """Where the partitions of a journal are."""

    is_staging_there: bool
    staged: tuple[RestoredPartition, ...]
    in_place: tuple[RestoredPartition, ...]
    lost: tuple[RestoredPartition, ...]  # neither, or with other files than those staged

    @property
    def may_go_on(self) -> bool:
        """Return whether the restore can be completed without reading its source again."""
        return self.is_staging_there or not self.lost


def progress_of(log_dir: Location, journal: RestoreJournal) -> RestoreProgress:
    """Return where each partition of a journal is, as its files say."""
    staged: list[RestoredPartition] = []
    in_place: list[RestoredPartition] = []
    lost: list[RestoredPartition] = []
    for one in journal.partitions:
        folder = staged_place(log_dir, one.name)
        is_staged = os.path.lexists(folder.path)
        found = files_id_of(folder if is_staged else log_dir.child(one.name))
        (lost if found != one.files_id else staged if is_staged else in_place).append(one)
    is_there = os.path.isdir(log_dir.child(RESTORE_STAGING).path)  # noqa: PTH112
    return RestoreProgress(is_there, tuple(staged), tuple(in_place), tuple(lost))


def staged_place(log_dir: Location, name: str) -> Location:
    """Return where a partition is staged."""
    return log_dir.child(f"{RESTORE_STAGING}/{STAGED_PARTITIONS}/{name}")


def files_id_of(folder: Location) -> str | None:
    """Return an id of the names and sizes of the files in a directory.

    None if it is not there, is a link, or has anything but files.
    """
    digest = hashlib.sha256()
    try:
        if not stat.S_ISDIR(os.lstat(folder.path).st_mode):
            return None
        with os.scandir(folder.path) as entries:
            found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except FileNotFoundError:
        return None
    for name, status in found:
        if not stat.S_ISREG(status.st_mode):
            return None
        digest.update(f"{name} {status.st_size}\n".encode())
    return digest.hexdigest()[:32]


def begun_restore(log_dir: Location, asked: Mapping[str, Any]) -> RestoreJournal | None:
    """Return the journal of a restore that was interrupted, or None.

    Raises RestoreError if something else was asked for then, or for a file that is not the journal
    of a restore into this directory.
    """
    journal = read_restore_journal(log_dir)
    if journal is None or journal.asked == asked:
        return journal
    then, now = journal.asked, asked
    others = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    texts = [
        ", ".join(f"{key} {json.dumps(options.get(key))}" for key in others)
        for options in (then, now)
    ]
    raise RestoreError(
        f"{log_dir.uri}: a restore with {texts[0]} was begun and has not ended, but this one has "
        f"{texts[1]}; run the command as it was begun, or with --abandon to remove what it staged"
    )


def read_restore_journal(log_dir: Location) -> RestoreJournal | None:
    """Return the journal of a restore that was interrupted, or None.

    Raises RestoreError for a file that is not the journal of a restore into this directory.
    """
    place = log_dir.child(RESTORE_JOURNAL)
    try:
        record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
        if record["format"] != RESTORE_JOURNAL_FORMAT:
            raise ValueError(
                f"format {record['format']!r} found, expected {RESTORE_JOURNAL_FORMAT}"
            )
        require_content_id(record)
        _require_here(log_dir, record)
        partitions = tuple(RestoredPartition(**one) for one in record["partitions"])
        for one in partitions:
            if one.name != partition_dir_name(one.topic, one.partition):
                raise ValueError(f"{one.name!r} found, expected the name of a partition")
        return RestoreJournal(
            record["asked"], partitions, record["marks_clean_shutdown"], record["summary"]
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        why = one_line(error)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"is not the journal of a restore into this directory: {one_line(error)}"
    raise RestoreError(
        f"{place.uri}: {why}; move it away together with the directory {RESTORE_STAGING}, and run "
        "the command again"
    )


def _require_here(log_dir: Location, record: dict[str, Any]) -> None:
    """Raise ValueError unless the journal was written in this log directory.

    The device is not compared: it may have another number after a restart of the machine.
    """
    if record["inode"] != _inode_of(log_dir):
        raise ValueError(f"it was written in another directory, {record['summary']['log_dir']}")
    if os.path.lexists(log_dir.child(RESTORE_STAGING).path):
        run = _run_in(log_dir)
        if run not in ("", record["run"]):
            raise ValueError(f"{RESTORE_STAGING} is of run {run!r}, not {record['run']!r}")


def _inode_of(log_dir: Location) -> int:
    return os.stat(log_dir.path).st_ino  # noqa: PTH116 - a path, as the filesystem has it


def _run_in(log_dir: Location) -> str:
    """Return the id of the run that staged the partitions, empty without its file."""
    place = log_dir.child(f"{RESTORE_STAGING}/{STAGED_RUN}")
    try:
        return read_whole(place, most_bytes=1 << 10).decode(errors="replace")
    except FileNotFoundError:
        return ""


def begin_restore_journal(log_dir: Location, journal: RestoreJournal) -> None:
    """Publish the journal; PublishError if that fails, then no partition is in its place."""
    record = {
        "format": RESTORE_JOURNAL_FORMAT,
        "inode": _inode_of(log_dir),
        "run": _run_in(log_dir),
        "asked": journal.asked,
        "partitions": [one._asdict() for one in journal.partitions],
        "marks_clean_shutdown": journal.marks_clean_shutdown,
        "summary": journal.summary,
    }
    publish_or_raise(
        log_dir.child(RESTORE_JOURNAL),
        (json.dumps(with_content_id(record)) + "\n").encode(),
        "no partition of the log directory was changed",
    )
