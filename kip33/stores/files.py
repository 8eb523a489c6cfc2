"""Read files in ranges and publish files atomically: the only I/O below the catalog."""

import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.errors import LocationError, PublishError
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, ViewAt, read_fully
from kip33.formats.index_bytes import IndexBytes, IndexBytesBuilder
from kip33.stores.containers import opened_inside
from kip33.stores.durable_files import flush, make_folder
from kip33.stores.local_files import opened_locally, require_regular, write_new
from kip33.stores.locations import Location
from kip33.stores.read_ahead import FetchRange, reading_ahead

TEMPORARY_SUFFIX: Final = ".tmp"
LIBHDFS: Final = "hdfs"  # cannot rename over a file: pyarrow's move deletes first
MOST_INDEX_BYTES: Final = 2**31 - 1  # Kafka maps no larger index file


def one_line(error: BaseException) -> str:
    """Return one line that says what an OSError or a library's error means."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(as_text(text).split())


def as_text(text: str) -> str:
    """Return a text that a catalog and JSON can hold: bytes that are not UTF-8 are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


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
    """Return an entry's modification time in ms; OSError if the store does not report it."""
    time_ns = modified_ns(info, place)
    if time_ns is None:
        raise OSError(f"{place.uri}: the store has no modification time for {shown_name(info)}")
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


@contextmanager
def opened(location: Location) -> Iterator[tuple[ReadInto, int]]:
    """Open a file; yield (read_into, its size in bytes now). Raises the OSError of the store.

    On a remote store each call is one request, and several threads may call at once.
    """
    if location.inside:
        with opened_inside(location, opened) as inside:
            yield inside
        return
    if location.is_local:
        with opened_locally(location.path) as local:
            yield local
        return
    with location.filesystem().open_input_file(location.path) as file:

        def read_at(position: int, view: memoryview) -> int:
            data = memoryview(file.read_at(len(view), position))  # type: ignore[call-arg]
            view[: len(data)] = data
            return len(data)

        yield read_at, file.size()


class Scanned(NamedTuple):
    """A file opened for reading from start to end."""

    read_into: ReadInto
    size_bytes: int  # when it was opened
    view_at: ViewAt | None = None  # the client's own buffers, without a copy


@contextmanager
def scanned(location: Location) -> Iterator[Scanned]:
    """Open a file for reading from start to end. Raises the OSError of the store."""
    if location.is_local:
        with opened(location) as (read_into, size_bytes):
            yield Scanned(read_into, size_bytes)
        return
    with (
        _ranges_of(location) as (fetch_range, size_bytes),
        reading_ahead(fetch_range, size_bytes) as (read_into, view_at),
    ):
        yield Scanned(read_into, size_bytes, view_at)


@contextmanager
def _ranges_of(location: Location) -> Iterator[tuple[FetchRange, int]]:
    """Open a remote file; yield (function that fetches a range, its size in bytes)."""
    if location.inside:
        with opened(location) as (read_into, size_bytes):
            yield lambda at, count: memoryview(read_fully(read_into, at, count)), size_bytes
        return
    with location.filesystem().open_input_file(location.path) as file:

        def fetch_range(position: int, count: int) -> memoryview:
            file.seek(position)
            data = memoryview(file.read_buffer(count))  # the client's own buffer, not a copy
            return data.cast("B")  # Arrow's bytes are signed, which other views refuse

        yield fetch_range, file.size()


def read_whole(location: Location, *, most_bytes: int) -> bytes:
    """Return a small file's bytes; OSError if it cannot be read or is larger."""
    if location.inside:
        return _read_inside(location, most_bytes=most_bytes)
    if location.is_local:
        require_regular(location.path)
    with location.filesystem().open_input_file(location.path) as file:
        size = file.size()
        if size > most_bytes:
            raise OSError(f"{location.uri}: {size} bytes found, expected at most {most_bytes}")
        return bytes(file.read())


def read_index(location: Location) -> IndexBytes:
    """Return an index file's bytes; OSError if it is unreadable or too large for a broker to map.

    The file is read in pieces, because a sparse file may have any size and be all zeros.
    """
    with opened(location) as (read_into, size_bytes):
        if size_bytes > MOST_INDEX_BYTES:
            raise OSError(
                f"{location.uri}: {size_bytes} bytes found, expected at most {MOST_INDEX_BYTES}"
            )
        builder = IndexBytesBuilder()
        for at in range(0, size_bytes, PIECE_BYTES):
            builder.append(read_fully(read_into, at, min(PIECE_BYTES, size_bytes - at)))
        return builder.built()


def _read_inside(location: Location, *, most_bytes: int) -> bytes:
    with opened(location) as (read_into, size_bytes):
        if size_bytes > most_bytes:
            raise OSError(
                f"{location.uri}: {size_bytes} bytes found, expected at most {most_bytes}"
            )
        return read_fully(read_into, 0, size_bytes)


class FileStatus(NamedTuple):
    """Size and modification time of a file."""

    size_bytes: int
    modified_ms: int | None  # None: the store does not report it


def size_of(location: Location) -> int | None:
    """Return a file's size in bytes, None if there is no such file."""
    if location.inside:
        try:
            with opened(location) as (_, size_bytes):
                return size_bytes
        except FileNotFoundError:
            return None
    status = status_of(location)
    return status.size_bytes if status else None


def status_of(location: Location) -> FileStatus | None:
    """Return a file's size and modification time, None if there is no such file."""
    if location.is_local:  # seven times as fast as Arrow
        try:
            status = os.stat(location.path)  # noqa: PTH116 - a path, as the filesystem has it
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)
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
    """Return the entries of a folder, empty if it does not exist; OSError if it is unreadable.

    Names that are not UTF-8 are left out: kip33 writes none, and only local disks have them.

    Arrow opens a folder and, if that fails, asks whether it exists. For a folder that is created in
    between it raises FileNotFoundError; then the folder is listed again.
    """
    store = folder.filesystem()
    selector = fs.FileSelector(folder.path, allow_not_found=True, recursive=recursive)
    try:
        found = store.get_file_info(selector)
    except FileNotFoundError:
        found = store.get_file_info(selector)
    return [info for info in found if has_text_name(info)]


def publish(
    location: Location,
    data: bytes,
    *,
    before_rename: Callable[[str], None] | None = None,
    durable: bool = False,
    flush_first: bool = False,
) -> FileStatus:
    """Write `data` as one file: a reader sees the old file or the new one, never a part.

    On a filesystem this writes a temporary file beside it (`.NAME.*.tmp`) and renames it over the
    old file; on an object store it is one put. The size is read back: OSError if the store kept
    another number of bytes than it was sent. `before_rename` is called with the temporary path, if
    there is one, after the bytes are written and before the rename. `durable`: the file is on the
    disk when this returns. `flush_first`: its bytes are there before its name. Returns
    the new file's size and time.
    """
    target = location.path
    renames = not location.is_object_store
    if renames:
        name = f".{location.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        target = location.parent.child(name).path
    try:
        _write(location, target, data)
        status = status_of(location._replace(path=target))
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
            _rename_over(location, target)
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


def _rename_over(location: Location, temporary: str) -> None:
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


def remove_quietly(location: Location) -> None:
    """Delete one of our files; a missing file and a failed deletion are ignored."""
    try:
        remove(location)
    except OSError:
        return


def require_writable(location: Location, what: str) -> None:
    """Make the directory `location`; LocationError, one line, if that fails.

    An object store has no directories: there only the first put shows whether it is writable.
    """
    if location.is_object_store:
        return
    try:
        make_folder(location)
    except OSError as error:
        raise LocationError(
            f"{location.uri}: {what} cannot be created: {one_line(error)}; fix it or choose another"
        ) from error


def _advice(location: Location) -> str:
    """Return what to check if a store does not answer; empty for a local disk."""
    if location.root.startswith("s3a://"):
        keys = "fs.s3a.endpoint, fs.s3a.access.key and fs.s3a.secret.key"
        return f"; check {keys} (--conf spark.hadoop.KEY=VALUE) or the environment variables"
    if location.root.startswith("hdfs://"):
        return "; check the name node's address, HADOOP_CONF_DIR and your ticket or token"
    return ""


def require_directory(location: Location, what: str) -> None:
    """Raise LocationError, one line for the user, unless `location` is a directory."""
    try:
        info = location.filesystem().get_file_info(location.path)
    except OSError as error:
        raise LocationError(
            f"{location.uri}: {what} cannot be read: {one_line(error)}{_advice(location)}"
        ) from error
    if info.type == fs.FileType.NotFound:
        raise LocationError(f"{location.uri}: {what} does not exist")
    if info.type == fs.FileType.File:
        raise LocationError(f"{location.uri}: {what} is a file, expected a directory")
