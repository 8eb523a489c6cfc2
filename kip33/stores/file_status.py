"""The status of files as a store lists them: names, sizes, times."""

import os
import stat
from typing import NamedTuple

from pyarrow import fs

from kip33.errors import FileReadError
from kip33.stores.locations import Location
from kip33.stores.read_faults import READ_FAULTS


def has_text_name(info: fs.FileInfo) -> bool:
    """Return whether the path of an entry is UTF-8; Arrow decodes it only when it is read."""
    try:
        return bool(info.path)
    except UnicodeDecodeError:
        return False


def shown_name(info: fs.FileInfo) -> str:
    """Return an entry's name; bytes that are not UTF-8 are escaped."""
    try:
        return info.base_name
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")


def listed_ms(info: fs.FileInfo, place: Location) -> int:
    """Return an entry's modification time in ms; FileReadError if the store does not report it."""
    time_ns = modified_ns(info, place)
    if time_ns is None:
        name = shown_name(info)
        raise FileReadError(f"{place.uri}: the store has no modification time for {name}")
    return time_ns // 1_000_000


def modified_ns(info: fs.FileInfo, place: Location) -> int | None:
    """Return an entry's modification time in ns, None if its store does not report it.

    `place` is any location of that store. Arrow's nanoseconds overflow in 2262 and continue in
    1677, so the operating system is asked about a local file with a negative time.
    """
    time_ns = info.mtime_ns
    if time_ns is not None and time_ns < 0 and place.is_local:
        try:
            return os.stat(info.path).st_mtime_ns  # noqa: PTH116 - a path, as the filesystem has it
        except OSError:
            return time_ns
    return time_ns


class FileStatus(NamedTuple):
    """Size and modification time of a file."""

    size_bytes: int
    modified_ms: int | None  # None: the store does not report it


def status_of(location: Location) -> FileStatus | None:
    """Return a file's size and modification time, None if there is no such file.

    FileReadError if the store does not say.
    """
    if location.is_local:  # seven times as fast as Arrow
        try:
            with READ_FAULTS:
                status = os.stat(location.path)  # noqa: PTH116 - a path, as the filesystem has it
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)
    with READ_FAULTS:
        info = location.filesystem().get_file_info(location.path)
    return listed_status(location, info) if info.type == fs.FileType.File else None


def listed_status(store: Location, info: fs.FileInfo) -> FileStatus:
    """Return the status of a file in a listing; `store` is any location of the same store.

    The time of an object is cut to seconds. A listing may have milliseconds, a request for one
    object never has, and the two must be comparable.
    """
    time_ns = modified_ns(info, store)
    if time_ns is None:
        return FileStatus(info.size, None)
    modified_ms = time_ns // 1_000_000
    if store.is_object_store:
        modified_ms -= modified_ms % 1000
    return FileStatus(info.size, modified_ms)


def entries_of(folder: Location, *, recursive: bool = False) -> list[fs.FileInfo]:
    """Return the entries of a folder, empty if it does not exist; else FileReadError.

    Names that are not UTF-8 are left out: kip33 writes none, and only local disks have them.

    Arrow opens a folder and, if that fails, asks whether it exists. For a folder that is created in
    between it raises FileNotFoundError; then the folder is listed again.
    """
    store = folder.filesystem()
    selector = fs.FileSelector(folder.path, allow_not_found=True, recursive=recursive)
    with READ_FAULTS:
        try:
            found = store.get_file_info(selector)
        except FileNotFoundError:
            found = store.get_file_info(selector)
    return [info for info in found if has_text_name(info)]
