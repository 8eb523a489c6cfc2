"""Owner, group and mode of a file that replaces another, on a local disk.

A broker opens its index files for reading and writing, and does not start if one belongs to another
user. So a file that kip33 puts into a log directory gets the owner, group and mode of the file it
replaces, or of the log beside it.
"""

import os
import stat
from contextlib import suppress
from typing import NamedTuple

from kip33.stores.files import FileStatus, one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import publish


class FileOwner(NamedTuple):
    """Owner, group and mode of a file."""

    uid: int
    gid: int
    mode: int  # the permission bits

    @classmethod
    def of(cls, path: str) -> "FileOwner | None":
        """Return those of a local file, None if the file is missing or its status unreadable."""
        try:
            status = os.stat(path)  # noqa: PTH116 - a path, as the filesystem has it
        except OSError:
            return None
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode) & 0o777)

    def __str__(self) -> str:
        """Return the text that `chown` and `chmod` take."""
        return f"{self.uid}:{self.gid}, mode {self.mode:04o}"


def publish_beside(
    place: Location,
    data: bytes,
    log: Location,
    problems: list[str],
    *,
    ours: bool,
    durable: bool = False,
    flush_first: bool = False,
    reads_back: bool = True,
) -> FileStatus:
    """Publish an index file beside its log, as `own_files.publish` does, and set its owner.

    Owner, group and mode are those of the file that is replaced. If there is no such file, or kip33
    wrote it (`ours`), they are those of the log. They are set before the file becomes visible. If
    that fails, the file is published all the same and `problems` gets one line that says so. Remote
    stores have no owners to set.
    """
    if not place.is_local or log.inside:
        return publish(place, data, durable=durable, flush_first=flush_first, reads_back=reads_back)
    owner = (None if ours else FileOwner.of(place.path)) or FileOwner.of(log.path)
    found: list[str | None] = []
    published = publish(
        place,
        data,
        before_rename=lambda at: found.append(_give(at, owner)),
        durable=durable,
        flush_first=flush_first,
    )
    problems.extend(_text(place, owner, problem) for problem in found if problem)
    return published


def correct_owner(place: Location, log: Location) -> list[str]:
    """Give an index file that kip33 wrote earlier the owner and the group of the log beside it.

    Returns one line that says why that failed, if it did.
    """
    if not place.is_local or log.inside:
        return []
    have, owner = FileOwner.of(place.path), FileOwner.of(log.path)
    if have and owner and have[:2] != owner[:2] and (problem := _give(place.path, owner)):
        return [_text(place, owner, problem)]
    return []


def _text(place: Location, owner: FileOwner | None, problem: str) -> str:
    have = FileOwner.of(place.path)
    return f"{place.uri}: cannot be given the owner {owner} ({problem}); the file has {have}"


def _give(path: str, owner: FileOwner | None) -> str | None:
    """Set owner, group and mode of a file; return None, or the reason why one could not be set.

    The others are still set: the group without the owner, the mode in any case.
    """
    if owner is None:
        return None
    problem = None
    have = FileOwner.of(path)
    try:
        if have is None or have[:2] != owner[:2]:
            problem = _change_owner(path, owner)
        os.chmod(path, owner.mode)  # noqa: PTH101 - a path, as the filesystem has it
    except OSError as error:
        problem = problem or one_line(error)
    return problem


def _change_owner(path: str, owner: FileOwner) -> str | None:
    try:
        os.chown(path, owner.uid, owner.gid)
    except OSError as error:
        with suppress(OSError):
            os.chown(path, -1, owner.gid)
        return one_line(error)
    return None
