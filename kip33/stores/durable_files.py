"""What a power failure must not lose, on local file systems: files and folders on the disk.

A file that was written and renamed is on the disk when the file was flushed before the rename and
its folder after it. A new folder is there when the folder above it was flushed. Object stores and
HDFS say of themselves when a file is safe: nothing is done for them.

New index files are many and small: they are renamed first and flushed by a few threads while the
scan goes on (`builds.index_flusher`), all before their rows are written. One that takes the place
of another is flushed before the rename, because a snapshot may name what was there.
"""

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from typing import Any

from kip33.stores.locations import Location


class _Flushing:
    is_on = True


def set_flushing(is_on: bool) -> None:
    """Say whether this process flushes from now on; off, a power failure may lose what is done."""
    _Flushing.is_on = is_on


def is_flushing() -> bool:
    """Return what `set_flushing` said last."""
    return _Flushing.is_on


def flush(path: str) -> None:
    """Wait until a local file's bytes, or a folder's names, are on the disk."""
    if not _Flushing.is_on:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable(place: Location) -> None:
    """Wait until a local file is on the disk with its name; OSError where it cannot be."""
    if not place.is_local or not _Flushing.is_on:
        return
    try:
        flush(place.path)
        flush(place.parent.path)
    except PermissionError:  # of a file of another user
        flush_filesystems([place.parent])


def make_folder(location: Location) -> None:
    """Make a folder and those above it, as far as they are not there; their names are flushed."""
    missing = []
    if location.is_local:
        above = location.path
        while above and not os.path.isdir(above):  # noqa: PTH112 - a path as the filesystem has it
            missing.append(above)
            above = os.path.dirname(above)  # noqa: PTH120
    location.filesystem().create_dir(location.path, recursive=True)
    for path in reversed(missing):
        flush(os.path.dirname(path))  # noqa: PTH120


def flush_filesystems(folders: Iterable[Location]) -> None:
    """Wait until all files below local folders are on the disk, each file system once.

    Raises OSError where one cannot be flushed.
    """
    by_device: dict[int, str] = {}
    for folder in folders:
        if folder.is_local and _Flushing.is_on:
            by_device.setdefault(os.stat(folder.path).st_dev, folder.path)  # noqa: PTH116
    for path in by_device.values():
        _sync_filesystem(path)


def _sync_filesystem(path: str) -> None:
    syncfs = _syncfs()
    if syncfs is None:  # not Linux: all file systems
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
