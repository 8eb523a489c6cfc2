"""Write, move and remove kip33's own files, so that no reader sees a part of one.

A local file survives a power failure if it was flushed before the rename and its folder after it. A
new folder survives if its parent folder was flushed. Object stores and HDFS guarantee this
themselves, so nothing is done for them.

New index files are many and small: they are renamed first and flushed by a few threads during the
scan (`indexing.published_files`), before their rows are written. A file that replaces another is
flushed before the rename, because a snapshot may name the file it replaces.

A process that is told to end (`end_process`) ends after the files under way, so it leaves no
temporary file. An exception out of a signal handler would not do: it may come anywhere, also where
exceptions are ignored.
"""

import ctypes
import errno
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from pyarrow import fs

from kip33.errors import FileReadError, PublishError, is_of_the_machine
from kip33.stores.files import FileStatus, one_line, read_whole, size_of, status_of, write_new
from kip33.stores.hdfs import HdfsHandler
from kip33.stores.locations import Location

TEMPORARY_SUFFIX: Final = ".tmp"
_TEMPORARY: Final = re.compile(rf"\.(.+)\.[0-9a-f]{{32}}{re.escape(TEMPORARY_SUFFIX)}", re.DOTALL)
LIBHDFS: Final = "hdfs"  # cannot rename over a file: pyarrow's move deletes first


def publish(
    location: Location,
    data: bytes,
    *,
    before_rename: Callable[[str], None] | None = None,
    durable: bool = False,
    flush_first: bool = False,
    reads_back: bool = True,
    is_free: bool = False,
    take_name: Callable[[Location, str], None] | None = None,
) -> FileStatus:
    """Write `data` as one file: a reader sees the old file or the new one, never a part.

    On a filesystem this writes a temporary file beside it (`.NAME.*.tmp`) and renames it over the
    old file; on an object store it is one put. The size is read back: OSError if the store kept
    another number of bytes than it was sent. `before_rename` is called with the temporary path, if
    there is one, after the bytes are written and before the rename. `durable`: the file is on the
    disk when this returns. `flush_first`: its bytes are there before its name. Returns
    the new file's size and time. Without `reads_back` an object store is not asked for them: the
    time is None, and the caller compares the size later. `is_free`: nothing is at the place.
    `take_name` is called instead of the rename, with the place and the temporary path.
    """
    renames = not location.is_object_store
    target = temporary_of(location).path if renames else location.path
    with _UNFINISHED_FILE:
        try:
            status = _write(location, target, data, reads_back=reads_back or renames)
            if status is None or status.size_bytes != len(data):
                found = status.size_bytes if status else None
                raise OSError(
                    f"{location.uri}: {len(data)} bytes were written, but the file has "
                    f"{found} bytes"
                )
            if renames:
                if before_rename:
                    before_rename(target)
                if (durable or flush_first) and location.is_local:
                    flush(target)
                if take_name:
                    take_name(location, target)
                    remove_quietly(location._replace(path=target))
                else:
                    _rename_over(location, target, is_free=is_free)
                if durable and location.is_local:
                    flush(location.parent.path)
            return status
        except BaseException:
            if renames:
                remove_quietly(location._replace(path=target))
            raise


class _NameTakenError(FileExistsError):
    """Another file has the name."""


def publish_if_free(location: Location, data: bytes) -> bool:
    """Write `data` as a new file; False if another file has the name. OSError if that fails.

    Readers, and writers of the same name, see no file or all of it. A disk gives the complete
    temporary file a second name, a hard link, and HDFS renames it without overwriting. An object
    store and libhdfs are only asked before: of two writers at one moment the later one replaces
    the file of the other. `read_published` reads the file.
    """
    store = location.filesystem()
    if location.is_object_store or store.type_name == LIBHDFS:
        if size_of(location) is not None:
            return False
        publish(location, data)
        return True
    try:
        publish(location, data, durable=True, take_name=partial(_take_free_name, data))
    except _NameTakenError:
        return False
    return True


def _take_free_name(data: bytes, location: Location, temporary: str) -> None:
    """Give a temporary file with `data` a name; _NameTakenError if another file has it."""
    try:
        handler = getattr(location.filesystem(), "handler", None)
        if isinstance(handler, HdfsHandler):
            handler.move_new(temporary, location.path)
            return
        try:
            os.link(temporary, location.path)
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            _rename_in_folder(location, temporary)
    except OSError as error:
        found: bytes | None = None
        with suppress(FileReadError):
            found = read_published(location, most_bytes=len(data))
        if found == data:
            return  # only the answer was lost, as on NFS
        if location.filesystem().get_file_info(location.path).type == fs.FileType.NotFound:
            raise
        raise _NameTakenError(errno.EEXIST, "another file has this name", location.path) from error


_WITHOUT_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
_ONLY_FILE: Final = "file"


def _rename_in_folder(location: Location, temporary: str) -> None:
    """Give a file a free name on a disk without hard links: that of a folder with this one file.

    A file's rename would replace another file. A folder's rename replaces no file, and no folder
    that has one.
    """
    folder = temporary_of(location)
    os.mkdir(folder.path)  # noqa: PTH102 - paths, as the filesystem has them
    try:
        os.rename(temporary, folder.child(_ONLY_FILE).path)  # noqa: PTH104
        flush(folder.path)
        os.rename(folder.path, location.path)  # noqa: PTH104
    except BaseException:
        remove_quietly(folder)
        raise


def read_published(location: Location, *, most_bytes: int) -> bytes:
    """Return the bytes of a file of `publish_if_free`; errors of `read_whole`."""
    try:
        return read_whole(location, most_bytes=most_bytes)
    except IsADirectoryError:
        return read_whole(location.child(_ONLY_FILE), most_bytes=most_bytes)


def _write(location: Location, target: str, data: bytes, *, reads_back: bool) -> FileStatus | None:
    """Write a new file in the directory of `location`, which is created if missing.

    Returns its status, which is read back; None if it is not there.
    """
    try:
        return _write_in_folder(location, target, data, reads_back=reads_back)
    except FileNotFoundError:
        if location.is_object_store:  # the bucket is missing, and kip33 creates no buckets
            raise
        make_folder(location.parent)
        return _write_in_folder(location, target, data, reads_back=reads_back)


def _write_in_folder(
    location: Location, target: str, data: bytes, *, reads_back: bool
) -> FileStatus | None:
    if location.is_local:
        return write_new(target, data)
    with location.filesystem().open_output_stream(target) as stream:
        stream.write(data)
    return status_of(Location(location.root, target)) if reads_back else FileStatus(len(data), None)


def _rename_over(location: Location, temporary: str, *, is_free: bool = False) -> None:
    """Rename a temporary file beside `location` to it, atomically; OSError if that fails."""
    if location.is_local:
        if not is_free:
            require_file_or_nothing(location)
        os.replace(temporary, location.path)  # noqa: PTH105 - a path, as the filesystem has it
        return
    store = location.filesystem()
    if store.type_name == LIBHDFS and size_of(location) is not None:
        raise OSError("libhdfs cannot replace a file atomically: pip install 'kip33[hdfs]'")
    store.move(temporary, location.path)


def require_file_or_nothing(place: Location) -> bool:
    """Return whether a file is there; OSError for a link without a file, a pipe or a device.

    A rename would replace it without a word. A link to a file is replaced, and its file stays.
    """
    try:
        mode = os.lstat(place.path).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a rename refuses directories
            return True
        if stat.S_ISLNK(mode) and os.path.isfile(place.path):  # noqa: PTH113
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    what = "a link that leads to no file" if stat.S_ISLNK(mode) else "a pipe, socket or device"
    raise FileExistsError(errno.EEXIST, f"{what} is there, expected a file or nothing", place.path)


def publish_or_raise(location: Location, data: bytes, consequence: str) -> None:
    """Publish, or raise PublishError: one line with the reason, what it means and what to do.

    The file is on the disk when this returns.
    """
    with unpublished(location, consequence):
        publish(location, data, durable=True)


@contextmanager
def unpublished(location: Location, consequence: str) -> Iterator[None]:
    """Raise what keeps a file from being written as PublishError, one line with `consequence`."""
    try:
        yield
    except OSError as error:
        raise PublishError(
            f"{location.uri}: cannot be written: {one_line(error)}; {consequence}: "
            "fix it and run the command again"
        ) from error


@contextmanager
def streamed_file(place: Location, consequence: str = "there is no file") -> Iterator[BinaryIO]:
    """Yield a file to write; it is published as `place` if the block ends without an error.

    A reader sees no file or the complete one. On a local disk the bytes go to a temporary file
    beside it (`.NAME.*.tmp`). For a store they are collected in a temporary file of this machine.
    Raises PublishError, one line that names the `consequence`, if the file cannot be written. What
    the block reads may end with an error of the machine, which is raised as it is.
    """
    try:
        with _local_file(place) if place.is_local else _sent_file(place) as file:
            yield file
    except OSError as error:
        if is_of_the_machine(error):
            raise
        raise PublishError(
            f"{place.uri}: cannot be written: {one_line(error)}; {consequence}: "
            "fix it and run the command again"
        ) from error


@contextmanager
def _local_file(place: Location) -> Iterator[BinaryIO]:
    temporary = temporary_of(place)
    make_folder(place.parent)
    try:
        with Path(temporary.path).open("xb") as file:
            yield file
        flush(temporary.path)
        _rename_over(place, temporary.path)
        flush(place.parent.path)
    except BaseException:
        remove_quietly(temporary)
        raise


@contextmanager
def _sent_file(place: Location) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        yield file
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        target = place if place.is_object_store else temporary_of(place)
        if not place.is_object_store:
            make_folder(place.parent)
        try:
            with place.filesystem().open_output_stream(target.path) as stream:
                shutil.copyfileobj(file, stream, 1 << 20)
            status = status_of(target)
            if status is None or status.size_bytes != size:
                found = status.size_bytes if status else None
                raise OSError(f"{size} bytes were written, but the file has {found} bytes")
            if target != place:
                _rename_over(place, target.path)
        except BaseException:
            remove_quietly(target)
            raise


_ID_DIGITS: Final = 12
_TOKEN_DIGITS: Final = 32


class _Run:
    id = ""


@contextmanager
def temporary_files_of(run_id: str) -> Iterator[None]:
    """Put 12 hex digits of a run's id into the names of this process's temporary files."""
    before, _Run.id = _Run.id, run_id[:_ID_DIGITS]
    try:
        yield
    finally:
        _Run.id = before


def temporary_of(place: Location) -> Location:
    """Return a new hidden name beside a file: that of the file while it is being written."""
    token = (_Run.id + os.urandom(_TOKEN_DIGITS // 2).hex())[:_TOKEN_DIGITS]
    folder, _, name = place.path.rpartition("/")
    return Location(place.root, f"{folder}/.{name}.{token}{TEMPORARY_SUFFIX}")


def written_name(name: str) -> str:
    """The name of the file for which a temporary file is; any other name as it is.

    >>> written_name(f".summary.json.{'0' * 32}.tmp"), written_name("notes.tmp")
    ('summary.json', 'notes.tmp')
    """
    temporary = _TEMPORARY.fullmatch(name)
    return temporary[1] if temporary else name


def run_of(temporary: Location) -> str:
    """Return the id of the run that wrote a temporary file; of a run without one, random digits."""
    return temporary.name.removesuffix(TEMPORARY_SUFFIX)[-_TOKEN_DIGITS:][:_ID_DIGITS]


def move(source: Location, target: Location) -> None:
    """Move one of our files to a free name, atomically except on an object store; else OSError."""
    store = source.filesystem()
    if not target.is_object_store:
        make_folder(target.parent)
    if source.is_local:
        os.rename(source.path, target.path)  # noqa: PTH104 - paths, as the filesystem has them
        flush(target.parent.path)
    else:
        store.move(source.path, target.path)


def remove_folder_quietly(location: Location) -> None:
    """Delete one of our folders with its contents; failures are ignored."""
    with suppress(OSError):
        location.filesystem().delete_dir(location.path)


def remove(location: Location) -> None:
    """Delete one of our files. A missing file is not an error; OSError if deletion fails."""
    try:
        with suppress(FileNotFoundError):
            location.filesystem().delete_file(location.path)
    except IsADirectoryError:  # of a disk without hard links, or not ours
        only_file = location.child(_ONLY_FILE)
        if size_of(only_file) is None and not _TEMPORARY.fullmatch(location.name):
            raise
        remove(only_file)
        remove_empty_folder(location)


def remove_empty_folder(location: Location) -> None:
    """Delete a folder without entries. A missing one is not an error; OSError if it has entries.

    A local disk and HDFS refuse to delete a folder with entries. In an object store there is only
    the marker of a folder; it is removed after a listing that shows no object.
    """
    store = location.filesystem()
    try:
        if location.is_local:
            os.rmdir(location.path)  # noqa: PTH106 - a path, as the filesystem has it
            return
        handler = getattr(store, "handler", None)
        if isinstance(handler, HdfsHandler):
            handler.delete_empty_dir(location.path)
            return
        if store.get_file_info(fs.FileSelector(location.path, allow_not_found=True)):
            raise OSError(errno.ENOTEMPTY, f"{location.uri}: has new files")
        store.delete_dir(location.path)
    except FileNotFoundError:
        return


def remove_temporary(folder: Location, names: Iterable[str], run_id: str) -> None:
    """Delete the temporary files of a run in a local folder, for files of these names.

    `run_id` is that of `temporary_files_of`: other names are not ours. Raises OSError if the folder
    cannot be read or a deletion fails.
    """
    files = set(names)
    with os.scandir(folder.path) as entries:
        found = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    for name in found:
        temporary = _TEMPORARY.fullmatch(name)
        place = folder.child(name)
        if temporary and temporary[1] in files and run_of(place) == run_id[:_ID_DIGITS]:
            remove(place)


def remove_quietly(location: Location) -> None:
    """Delete one of our files; a missing file and a failed deletion are ignored."""
    with suppress(OSError):
        remove(location)


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


_lock = threading.RLock()  # a handler runs in the main thread, which may hold it
_under_way = 0
_ends_with: int | None = None  # the exit code, as soon as the process is to end


class _UnfinishedFile:
    """Lets the process end only after this block, or before it. A generator would take longer."""

    def __enter__(self) -> None:
        global _under_way
        with _lock:
            is_ending = _ends_with is not None
            _under_way += not is_ending
        if is_ending:
            threading.Event().wait()  # the last file under way ends the process

    def __exit__(self, *_: object) -> None:
        global _under_way
        with _lock:
            _under_way -= 1
            _end_if_finished()


_UNFINISHED_FILE: Final = _UnfinishedFile()


def end_process(number: int, _: object) -> None:
    """End this process as soon as no file is under way: a handler of a signal."""
    global _ends_with
    with _lock:
        _ends_with = 128 + number
        _end_if_finished()


def _end_if_finished() -> None:
    if _ends_with is not None and not _under_way:
        os._exit(_ends_with)
