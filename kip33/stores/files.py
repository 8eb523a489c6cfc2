"""Read files of a store, in ranges, from start to end or complete, and their status.

Files of a local disk are read and written with few system calls: a build opens a log and writes an
index file per segment, so for small segments these calls are much of its time. Arrow's files make
more of them: they ask for a file's kind and position again.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from pyarrow import fs

from kip33.errors import READ_FAULTS, FileReadError
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, ViewAt, read_fully
from kip33.formats.time_index import IndexBytes, IndexBytesBuilder
from kip33.stores.containers import opened_inside
from kip33.stores.locations import Location
from kip33.stores.progress import READ_SO_FAR
from kip33.stores.read_ahead import FetchRange, reading_ahead

_NETWORK: Final = frozenset(
    (
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN),
    )
)
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")  # of the client of HDFS
_NO_ANSWER: Final = re.compile(
    "AWS Error (NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_DOWN|INTERNAL_FAILURE|THROTTLING"
    "|REQUEST_TIMEOUT)|failed to lookup address information"
)
_STORAGE_CLASS: Final = "not valid for the object's storage class"
MOST_INDEX_BYTES: Final = 2**31 - 1  # Kafka maps no larger index file
_TO_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # a FIFO opens at once
_TO_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def opened(location: Location) -> AbstractContextManager[tuple[ReadInto, int]]:
    """Open a file; it gives (read_into, its size in bytes now). It and they raise FileReadError.

    On a remote store each call is one request, and several threads may call at once.
    """
    if location.inside:
        return opened_inside(location, opened)
    if location.is_local:
        return OpenedFile(location.path)
    return _opened_remotely(location)


@contextmanager
def _opened_remotely(location: Location) -> Iterator[tuple[ReadInto, int]]:
    with _remote(location) as (file, size_bytes):

        def read_at(position: int, view: memoryview) -> int:
            with READ_FAULTS:
                data = memoryview(file.read_at(len(view), position))
            view[: len(data)] = data
            return len(data)

        yield read_at, size_bytes


@contextmanager
def _remote(location: Location) -> Iterator[tuple[Any, int]]:
    """Open a file by pyarrow; yield (pyarrow's file, its size in bytes)."""
    with ExitStack() as files:
        with READ_FAULTS:
            file = files.enter_context(location.filesystem().open_input_file(location.path))
            size_bytes = file.size()
        yield file, size_bytes


class Scanned(NamedTuple):
    """A file opened for reading from start to end."""

    read_into: ReadInto
    size_bytes: int  # when it was opened
    view_at: ViewAt | None = None  # the client's own buffers, without a copy


@contextmanager
def scanned(location: Location) -> Iterator[Scanned]:
    """Open a file for reading from start to end. It and its functions raise FileReadError.

    What is read counts as progress.
    """
    if location.is_local:
        with opened(location) as (read_into, size_bytes):
            yield Scanned(_counted(read_into), size_bytes)
    else:
        with (
            _ranges_of(location) as (fetch_range, size_bytes),
            reading_ahead(_counted_ranges(fetch_range), size_bytes) as (read_into, view_at),
        ):
            yield Scanned(read_into, size_bytes, view_at)
    READ_SO_FAR.add(0, files=1)


def _counted(read_into: ReadInto) -> ReadInto:
    def read_and_count(position: int, view: memoryview) -> int:
        size_bytes = read_into(position, view)
        READ_SO_FAR.add(size_bytes)
        return size_bytes

    return read_and_count


def _counted_ranges(fetch_range: FetchRange) -> FetchRange:
    def fetch_and_count(position: int, count: int) -> memoryview:
        data = fetch_range(position, count)
        READ_SO_FAR.add(len(data))
        return data

    return fetch_and_count


@contextmanager
def _ranges_of(location: Location) -> Iterator[tuple[FetchRange, int]]:
    """Open a remote file; yield (function that fetches a range, its size in bytes)."""
    if location.inside:
        with opened(location) as (read_into, size_bytes):
            yield lambda at, count: memoryview(read_fully(read_into, at, count)), size_bytes
        return
    with _remote(location) as (file, size_bytes):

        def fetch_range(position: int, count: int) -> memoryview:
            with READ_FAULTS:
                file.seek(position)
                data = memoryview(file.read_buffer(count))  # the client's own buffer, not a copy
            return data.cast("B")  # Arrow's bytes are signed, which other views refuse

        yield fetch_range, size_bytes


def read_whole(location: Location, *, most_bytes: int) -> bytes:
    """Return a small file's bytes; FileReadError if it cannot be read or is larger."""
    if location.inside or location.is_local:
        with opened(location) as (read_into, size_bytes):
            _require_at_most(location, size_bytes, most_bytes)
            return read_fully(read_into, 0, size_bytes)
    with READ_FAULTS, location.filesystem().open_input_file(location.path) as file:
        _require_at_most(location, file.size(), most_bytes)
        return bytes(file.read())


@contextmanager
def opened_by_arrow(location: Location) -> Iterator[Any]:
    """Open a file as pyarrow's readers take it; it raises FileReadError."""
    with READ_FAULTS, location.filesystem().open_input_file(location.path) as file:
        yield file


def read_index(location: Location) -> IndexBytes:
    """Return an index file's bytes; FileReadError if it is unreadable, or too large for a broker.

    The file is read in pieces, because a sparse file may have any size and be all zeros.
    """
    with opened(location) as (read_into, size_bytes):
        _require_at_most(location, size_bytes, MOST_INDEX_BYTES)
        builder = IndexBytesBuilder()
        for at in range(0, size_bytes, PIECE_BYTES):
            builder.append(read_fully(read_into, at, min(PIECE_BYTES, size_bytes - at)))
        return builder.built()


def _require_at_most(location: Location, size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise FileReadError(
            f"{location.uri}: {size_bytes} bytes found, expected at most {most_bytes}"
        )


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


class FileStatus(NamedTuple):
    """Size and modification time of a file."""

    size_bytes: int
    modified_ms: int | None  # None: the store does not report it


def status_of(location: Location) -> FileStatus | None:
    """Return a file's size and modification time, None if there is no such file.

    FileReadError if the store does not say.
    """
    if location.is_local:  # seven times as fast as Arrow
        with READ_FAULTS:
            try:
                status = os.stat(location.path)  # noqa: PTH116 - a path, as the filesystem has it
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _local_status(status) if stat.S_ISREG(status.st_mode) else None
    with READ_FAULTS:
        info = location.filesystem().get_file_info(location.path)
    return listed_status(location, info) if info.type == fs.FileType.File else None


def _local_status(status: os.stat_result) -> FileStatus:
    return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)


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


def is_as_listed(location: Location, size_bytes: int | None, modified_ms: int | None) -> bool:
    """Return whether a file still has the size and time of a listing; OSError as the store does.

    Of a part of a file the size is not compared, of an object the time in seconds.
    """
    status = status_of(location)
    if status is None or (not location.inside and status.size_bytes != size_bytes):
        return False
    ticks_ms = 1000 if location.is_object_store else 1
    now, then = (
        None if time_ms is None else time_ms // ticks_ms
        for time_ms in (status.modified_ms, modified_ms)
    )
    return now == then


def one_line(error: BaseException) -> str:
    """Return one line that says what an OSError or a library's error means.

    An object in S3 Glacier cannot be read until it is restored: see `is_archived`.
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if is_archived(error):
        return "archived: restore it first (its storage class does not allow reads)"
    return " ".join(as_text(text).split())


def is_archived(error: BaseException) -> bool:
    """Return whether a file cannot be read because it is in S3 Glacier and not restored.

    S3's answer is `InvalidObjectState` (GetObject, "Errors"), of which pyarrow gives only the text.
    """
    return _STORAGE_CLASS in (getattr(error, "strerror", None) or str(error))


def is_unreachable(error: BaseException | None) -> bool:
    """Return whether a store did not answer, or was too busy to: the error, or what caused it.

    The clients of S3 and HDFS have the codes of their errors in the text alone.

    >>> is_unreachable(OSError("Connection refused (os error 111)"))
    True
    >>> is_unreachable(OSError("AWS Error ACCESS_DENIED during HeadObject operation"))
    False
    """
    while error is not None:
        if isinstance(error, OSError):
            found = _OS_ERROR.search(str(error))
            number = int(found[1]) if found else error.errno
            if number in _NETWORK or _NO_ANSWER.search(str(error)):
                return True
        error = error.__cause__
    return False


def as_text(text: str) -> str:
    """Return a text that a catalog and JSON can hold: bytes that are not UTF-8 are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def is_file(info: fs.FileInfo) -> bool:
    """Return whether an entry is a file: nothing else has a size. Its type takes longer to read."""
    return info.size is not None


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


class OpenedFile:
    """A regular local file, open in a `with` block, which gets what reads it and its size now.

    A generator would take longer than the calls here.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> tuple[ReadInto, int]:
        with READ_FAULTS:
            self._descriptor = os.open(self._path, _TO_READ)
            try:
                status = os.fstat(self._descriptor)
                if not stat.S_ISREG(status.st_mode):
                    number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
                    raise OSError(number, "not a regular file")  # of EISDIR: IsADirectoryError
            except BaseException:
                os.close(self._descriptor)
                raise
            return self._read_into, status.st_size

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _read_into(self, position: int, view: memoryview) -> int:
        with READ_FAULTS:
            return os.preadv(self._descriptor, [view], position)


def read_small_files(
    folder: Location, names: Sequence[str], sizes: Sequence[int], room: Any, at: int
) -> list[bool]:
    """Read files of a local folder one after another into an array, from `at` on.

    Returns for each whether it was read, and had the size that was listed; the next one follows the
    last that was. `room` has a byte more than the sizes. Nothing is raised: who reads one of the
    others alone sees why.
    """
    view, are_whole = memoryview(room), []
    try:
        directory = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return [False] * len(names)
    try:
        for name, size_bytes in zip(names, sizes, strict=True):
            is_whole = _read_small(directory, name, view[at : at + size_bytes + 1]) == size_bytes
            at += size_bytes * is_whole
            are_whole.append(is_whole)
            READ_SO_FAR.add(size_bytes * is_whole, files=int(is_whole))
    finally:
        os.close(directory)
    return are_whole


def _read_small(directory: int, name: str, room: memoryview) -> int:
    """Read a file, whose size must be less than the room; return the number of bytes, -1: none."""
    try:
        descriptor = os.open(name, _TO_READ, dir_fd=directory)
    except OSError:
        return -1
    try:
        return os.readv(descriptor, [room])
    except OSError:
        return -1
    finally:
        os.close(descriptor)


def write_new(path: str, data: bytes) -> FileStatus:
    """Write a file that does not exist yet; FileNotFoundError if its folder does not.

    Returns its size and time, which are read back.
    """
    descriptor = os.open(path, _TO_WRITE, 0o666)  # less the umask
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
        return _local_status(os.fstat(descriptor))
    finally:
        os.close(descriptor)
