"""Reading a file in ranges and publishing one whole: the only I/O below the catalog."""

import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.errors import LocationError, PublishError
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, ViewAt, read_fully
from kip33.formats.index_bytes import IndexBytes, IndexBytesBuilder
from kip33.stores.containers import opened_inside
from kip33.stores.durable_files import flush, make_folder
from kip33.stores.locations import Location
from kip33.stores.read_ahead import FetchRange, reading_ahead

TEMPORARY_SUFFIX: Final = ".tmp"
LIBHDFS: Final = "hdfs"  # pyarrow's name for it; it renames over nothing, its move deletes first
MOST_INDEX_BYTES: Final = 2**31 - 1  # Kafka maps no larger index file


def one_line(error: BaseException) -> str:
    """Return one line that says what an OSError or a library's error means."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(as_text(text).split())


def as_text(text: str) -> str:
    """Return a text that a catalog and JSON can hold: what is not UTF-8 in it is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def has_text_name(info: fs.FileInfo) -> bool:
    """Return whether the path of an entry is UTF-8; Arrow decodes it when it is asked for."""
    try:
        return bool(info.path)
    except UnicodeDecodeError:
        return False


def shown_name(info: fs.FileInfo) -> str:
    """Return an entry's name, what is not UTF-8 in it escaped."""
    try:
        return info.base_name
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")


def listed_ms(info: fs.FileInfo, place: Location) -> int:
    """Return an entry's modification time in ms; OSError where the store has none."""
    time_ns = modified_ns(info, place)
    if time_ns is None:
        raise OSError(f"{place.uri}: the store has no modification time for {shown_name(info)}")
    return time_ns // 1_000_000


def modified_ns(info: fs.FileInfo, place: Location) -> int | None:
    """Return an entry's modification time, None where the store has none; `place` is on its store.

    Arrow's nanoseconds end in 2262 and go on in 1677, so a local file of such a time is asked
    again.
    """
    time_ns = info.mtime_ns
    if time_ns is not None and time_ns < 0 and place.is_local:
        try:
            return os.stat(info.path).st_mtime_ns  # noqa: PTH116 - a path, as the filesystem has it
        except OSError:
            return time_ns
    return time_ns


def _require_regular(location: Location) -> None:
    """Raise OSError for a local FIFO or device: opening one may wait for ever."""
    if location.is_local:
        mode = os.stat(location.path).st_mode  # noqa: PTH116 - a path, as the filesystem has it
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(number, "not a regular file")  # EISDIR makes it an IsADirectoryError


@contextmanager
def opened(location: Location) -> Iterator[tuple[ReadInto, int]]:
    """Open a file; yield (read_into, its size in bytes now). Raises OSError as the store does.

    Of a remote store each call is one request, and several threads may call at once.
    """
    if location.inside:
        with opened_inside(location, opened) as inside:
            yield inside
        return
    _require_regular(location)
    with location.filesystem().open_input_file(location.path) as file:

        def read_into(position: int, view: memoryview) -> int:
            file.seek(position)
            return int(file.readinto(view))

        def read_at(position: int, view: memoryview) -> int:
            data = memoryview(file.read_at(len(view), position))  # type: ignore[call-arg]
            view[: len(data)] = data
            return len(data)

        yield (read_into if location.is_local else read_at), file.size()


class Scanned(NamedTuple):
    """A file that is read from its start to its end."""

    read_into: ReadInto
    size_bytes: int  # when it was opened
    view_at: ViewAt | None = None  # where its bytes come to lie in memory without our asking


@contextmanager
def scanned(location: Location) -> Iterator[Scanned]:
    """Open a file that is read from its start to its end. Raises OSError as the store does."""
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
    """Open a remote file; yield what fetches a range of it, and its size."""
    if location.inside:
        with opened(location) as (read_into, size_bytes):
            yield lambda at, count: memoryview(read_fully(read_into, at, count)), size_bytes
        return
    with location.filesystem().open_input_file(location.path) as file:

        def fetch_range(position: int, count: int) -> memoryview:
            file.seek(position)
            data = memoryview(file.read_buffer(count))  # as the client gave it, nothing copied
            return data.cast("B")  # Arrow's bytes are signed, and go into no view of others

        yield fetch_range, file.size()


def read_whole(location: Location, *, most_bytes: int) -> bytes:
    """Return a small file's bytes; OSError where it cannot be read or is larger."""
    if location.inside:
        return _read_inside(location, most_bytes=most_bytes)
    _require_regular(location)
    with location.filesystem().open_input_file(location.path) as file:
        size = file.size()
        if size > most_bytes:
            raise OSError(f"{location.uri}: {size} bytes found, expected at most {most_bytes}")
        return bytes(file.read())


def read_index(location: Location) -> IndexBytes:
    """Return an index file's bytes; OSError where it cannot be read or no broker could map it.

    It is read in pieces: a file may claim any size and be all zeros.
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
    """What a store says of a file."""

    size_bytes: int
    modified_ms: int | None  # None: not told


def size_of(location: Location) -> int | None:
    """Return a file's size in bytes, None where there is none."""
    if location.inside:
        try:
            with opened(location) as (_, size_bytes):
                return size_bytes
        except FileNotFoundError:
            return None
    status = status_of(location)
    return status.size_bytes if status else None


def status_of(location: Location) -> FileStatus | None:
    """Return a file's size and modification time, None where there is no such file."""
    if location.is_local:  # what Arrow does in seven times the time
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

    Object stores give whole seconds: a listing may have milliseconds, the answer about one object
    never has, and the two must be comparable.
    """
    time_ns = modified_ns(info, store)
    if time_ns is None:
        return FileStatus(info.size, None)
    modified_ms = time_ns // 1_000_000
    if store.is_object_store:
        modified_ms -= modified_ms % 1000
    return FileStatus(info.size, modified_ms)


def entries_of(folder: Location, *, recursive: bool = False) -> list[fs.FileInfo]:
    """Return what lies in a folder, nothing where there is no such folder; OSError if it is closed.

    Without names that are not UTF-8: kip33 gives none, and no store but a disk has any.

    Arrow opens a folder, and if that fails asks whether it is there: one that somebody makes in
    between is a FileNotFoundError. Then it is listed again.
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
) -> FileStatus:
    """Write `data` as a whole file: a reader sees the old one or the new one, never a part.

    On a filesystem through a temporary name beside it (a dot first, `.tmp` last) and a rename
    over the old file; on an object store with one put. The size is read back: a store that keeps
    other bytes than it was sent is an OSError here. `before_rename` is called with the temporary
    path, where there is one, when the file has its bytes and nobody can see it yet. `durable`: the
    file is on the disk when this returns. Returns the new file's size and time.
    """
    target = location.path
    renames = not location.is_object_store
    if renames:
        name = f".{location.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        target = location.parent.child(name).path
    try:
        with _created(location, target) as stream:
            stream.write(data)
        status = status_of(location._replace(path=target))
        if status is None or status.size_bytes != len(data):
            found = status.size_bytes if status else None
            raise OSError(
                f"{location.uri}: {len(data)} bytes were written, but the file has {found} bytes"
            )
        if renames:
            if before_rename:
                before_rename(target)
            if durable and location.is_local:
                flush(target)
            _rename_over(location, target)
            if durable and location.is_local:
                flush(location.parent.path)
        return status
    except BaseException:
        if renames:
            remove_quietly(location._replace(path=target))
        raise


def _created(location: Location, target: str) -> pa.NativeFile:
    """Return a new file to write, in the directory of `location`, which is made if it must be."""
    store = location.filesystem()
    try:
        return store.open_output_stream(target)
    except FileNotFoundError:
        if location.is_object_store:  # which lacks a bucket: that is not ours to make
            raise
        make_folder(location.parent)
        return store.open_output_stream(target)


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
    """Move a file of ours to where none is, atomically but on an object store; OSError if not."""
    store = source.filesystem()
    if not target.is_object_store:
        make_folder(target.parent)
    if source.is_local:
        os.rename(source.path, target.path)  # noqa: PTH104 - paths, as the filesystem has them
        flush(target.parent.path)
    else:
        store.move(source.path, target.path)


def remove_folder_quietly(location: Location) -> None:
    """Delete a folder of ours with all it holds, as far as that goes."""
    try:
        location.filesystem().delete_dir(location.path)
    except OSError:
        return


def remove(location: Location) -> None:
    """Delete a file of ours; that it is gone already is no failure, that it cannot go OSError."""
    try:
        location.filesystem().delete_file(location.path)
    except FileNotFoundError:
        return


def remove_quietly(location: Location) -> None:
    """Delete a file of ours; that it is gone already, or cannot go, is no failure."""
    try:
        remove(location)
    except OSError:
        return


def require_writable(location: Location, what: str) -> None:
    """Make the directory `location`; raise LocationError, one line, where that cannot be.

    An object store has no directories: there the first put tells.
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
    """Return what to look at where a store does not answer; nothing for a disk."""
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
