"""kip33's own files: published so that no reader sees a part, moved, removed."""

import errno
import os
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from pyarrow import fs

from kip33.errors import PublishError
from kip33.stores.durable_files import flush, make_folder
from kip33.stores.file_status import FileStatus, status_of
from kip33.stores.files import one_line, size_of
from kip33.stores.hdfs import HdfsHandler
from kip33.stores.local_files import write_new
from kip33.stores.locations import Location
from kip33.stores.unfinished_files import unfinished_file

TEMPORARY_SUFFIX: Final = ".tmp"
LIBHDFS: Final = "hdfs"  # cannot rename over a file: pyarrow's move deletes first


def publish(
    location: Location,
    data: bytes,
    *,
    before_rename: Callable[[str], None] | None = None,
    durable: bool = False,
    flush_first: bool = False,
    reads_back: bool = True,
) -> FileStatus:
    """Write `data` as one file: a reader sees the old file or the new one, never a part.

    On a filesystem this writes a temporary file beside it (`.NAME.*.tmp`) and renames it over the
    old file; on an object store it is one put. The size is read back: OSError if the store kept
    another number of bytes than it was sent. `before_rename` is called with the temporary path, if
    there is one, after the bytes are written and before the rename. `durable`: the file is on the
    disk when this returns. `flush_first`: its bytes are there before its name. Returns
    the new file's size and time. Without `reads_back` an object store is not asked for them: the
    time is None, and the caller compares the size later.
    """
    with unfinished_file():
        return _publish(location, data, before_rename, durable, flush_first, reads_back)


def _publish(
    location: Location,
    data: bytes,
    before_rename: Callable[[str], None] | None,
    durable: bool,
    flush_first: bool,
    reads_back: bool,
) -> FileStatus:
    target = location.path
    renames = not location.is_object_store
    if renames:
        folder, _, name = location.path.rpartition("/")
        target = f"{folder}/.{name}.{secrets.token_hex(16)}{TEMPORARY_SUFFIX}"
    try:
        _write(location, target, data)
        if not renames and not reads_back:
            return FileStatus(len(data), None)
        status = status_of(Location(location.root, target))
        if status is None or status.size_bytes != len(data):
            found = status.size_bytes if status else None
            raise OSError(
                f"{location.uri}: {len(data)} bytes were written, but the file has {found} bytes"
            )
        if renames:
            if before_rename:
                before_rename(target)
            if (durable or flush_first) and location.is_local:
                flush(target)
            rename_over(location, target)
            if durable and location.is_local:
                flush(location.parent.path)
        return status
    except BaseException:
        if renames:
            remove_quietly(location._replace(path=target))
        raise


def _write(location: Location, target: str, data: bytes) -> None:
    """Write a new file in the directory of `location`, which is created if missing."""
    try:
        _write_in_folder(location, target, data)
    except FileNotFoundError:
        if location.is_object_store:  # the bucket is missing, and kip33 creates no buckets
            raise
        make_folder(location.parent)
        _write_in_folder(location, target, data)


def _write_in_folder(location: Location, target: str, data: bytes) -> None:
    if location.is_local:
        write_new(target, data)
        return
    with location.filesystem().open_output_stream(target) as stream:
        stream.write(data)


def rename_over(location: Location, temporary: str) -> None:
    """Rename a temporary file beside `location` to it, atomically; OSError if that fails."""
    if location.is_local:
        os.replace(temporary, location.path)  # noqa: PTH105 - a path, as the filesystem has it
        return
    store = location.filesystem()
    if store.type_name == LIBHDFS and size_of(location) is not None:
        raise OSError("libhdfs cannot replace a file atomically: pip install 'kip33[hdfs]'")
    store.move(temporary, location.path)


def publish_or_raise(location: Location, data: bytes, consequence: str) -> None:
    """Publish, or raise PublishError: one line with the reason, what it means and what to do.

    The file is on the disk when this returns.
    """
    try:
        publish(location, data, durable=True)
    except OSError as error:
        raise PublishError(
            f"{location.uri}: cannot be written: {one_line(error)}; {consequence}: "
            "fix it and run the command again"
        ) from error


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
    try:
        location.filesystem().delete_dir(location.path)
    except OSError:
        return


def remove(location: Location) -> None:
    """Delete one of our files. A missing file is not an error; OSError if deletion fails."""
    try:
        location.filesystem().delete_file(location.path)
    except FileNotFoundError:
        return


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
        if isinstance(store, fs.PyFileSystem) and isinstance(store.handler, HdfsHandler):
            store.handler.delete_empty_dir(location.path)
            return
        if store.get_file_info(fs.FileSelector(location.path, allow_not_found=True)):
            raise OSError(errno.ENOTEMPTY, f"{location.uri}: has new files")
        store.delete_dir(location.path)
    except FileNotFoundError:
        return


def remove_temporary(folder: Location, names: Iterable[str]) -> None:
    """Delete temporary files that killed runs left in a local folder, for files of these names.

    Raises OSError if the folder cannot be read or a deletion fails.
    """
    starts = tuple(f".{name}." for name in names)
    with os.scandir(folder.path) as entries:
        found = [entry.name for entry in entries]
    for name in found:
        if name.startswith(starts) and name.endswith(TEMPORARY_SUFFIX):
            remove(folder.child(name))


def remove_quietly(location: Location) -> None:
    """Delete one of our files; a missing file and a failed deletion are ignored."""
    try:
        remove(location)
    except OSError:
        return
