"""Read files: in ranges, from start to end, or complete if they are small."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from kip33.errors import FileReadError
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, ViewAt, read_fully
from kip33.formats.time_index import IndexBytes, IndexBytesBuilder
from kip33.stores.containers import opened_inside
from kip33.stores.file_status import status_of
from kip33.stores.local_files import opened_locally, require_regular
from kip33.stores.locations import Location
from kip33.stores.read_ahead import FetchRange, reading_ahead
from kip33.stores.read_faults import READ_FAULTS

_STORAGE_CLASS: Final = "not valid for the object's storage class"
MOST_INDEX_BYTES: Final = 2**31 - 1  # Kafka maps no larger index file


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


def as_text(text: str) -> str:
    """Return a text that a catalog and JSON can hold: bytes that are not UTF-8 are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@contextmanager
def opened(location: Location) -> Iterator[tuple[ReadInto, int]]:
    """Open a file; yield (read_into, its size in bytes now). It and they raise FileReadError.

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
    """Open a file for reading from start to end. It and its functions raise FileReadError."""
    if location.is_local:
        with opened(location) if location.inside else opened_locally(location.path) as local:
            yield Scanned(*local)
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
    with _remote(location) as (file, size_bytes):

        def fetch_range(position: int, count: int) -> memoryview:
            with READ_FAULTS:
                file.seek(position)
                data = memoryview(file.read_buffer(count))  # the client's own buffer, not a copy
            return data.cast("B")  # Arrow's bytes are signed, which other views refuse

        yield fetch_range, size_bytes


def read_whole(location: Location, *, most_bytes: int) -> bytes:
    """Return a small file's bytes; FileReadError if it cannot be read or is larger."""
    if location.inside:
        return _read_inside(location, most_bytes=most_bytes)
    with READ_FAULTS:
        if location.is_local:
            require_regular(location.path)
        with location.filesystem().open_input_file(location.path) as file:
            size = file.size()
            if size > most_bytes:
                raise OSError(f"{location.uri}: {size} bytes found, expected at most {most_bytes}")
            return bytes(file.read())


def read_index(location: Location) -> IndexBytes:
    """Return an index file's bytes; FileReadError if it is unreadable, or too large for a broker.

    The file is read in pieces, because a sparse file may have any size and be all zeros.
    """
    with opened(location) as (read_into, size_bytes):
        if size_bytes > MOST_INDEX_BYTES:
            raise FileReadError(
                f"{location.uri}: {size_bytes} bytes found, expected at most {MOST_INDEX_BYTES}"
            )
        builder = IndexBytesBuilder()
        for at in range(0, size_bytes, PIECE_BYTES):
            builder.append(read_fully(read_into, at, min(PIECE_BYTES, size_bytes - at)))
        return builder.built()


def _read_inside(location: Location, *, most_bytes: int) -> bytes:
    with opened(location) as (read_into, size_bytes):
        if size_bytes > most_bytes:
            raise FileReadError(
                f"{location.uri}: {size_bytes} bytes found, expected at most {most_bytes}"
            )
        return read_fully(read_into, 0, size_bytes)


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
