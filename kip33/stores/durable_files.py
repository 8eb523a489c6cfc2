"""Flush files and folders of local file systems to the disk, so that they survive a power failure.

A renamed file is safe when the file was flushed before the rename and its folder after it. A new
folder is safe when its parent folder was flushed. Object stores and HDFS guarantee this themselves,
so nothing is done for them.

New index files are many and small: they are renamed first and flushed by a few threads during the
scan (`builds.index_flusher`), before their rows are written. A file that replaces another is
flushed before the rename, because a snapshot may name the file it replaces.
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
    """Turn flushing on or off for this process; without it a power failure may lose files."""
    _Flushing.is_on = is_on


def is_flushing() -> bool:
    """Return whether this process flushes, as last set by `set_flushing`."""
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
    """Wait until a local file and its name are on the disk; OSError if that fails."""
    if not place.is_local or not _Flushing.is_on:
        return
    try:
        flush(place.path)
        flush(place.parent.path)
    except PermissionError:  # the file belongs to another user
        flush_filesystems([place.parent])


def make_folder(location: Location) -> None:
    """Make a folder and its missing parents; their names are flushed."""
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
    """Flush each file system that contains one of the local folders, once.

    Raises OSError if one cannot be flushed.
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
