"""Find a segment's largest timestamp from the end of its `.timeindex`: `--read tail`."""

from typing import NamedTuple

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import BatchHeader, decode_header
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TimeIndex,
    TimestampOffset,
)
from kip33.rules.index_entries import preallocated_bytes
from kip33.rules.index_tail import ENTRIES_READ, LAST_HEADER_BYTES, distrust
from kip33.stores.files import opened
from kip33.stores.locations import Location


class TailIndexes(NamedTuple):
    """A segment's index files in one directory, as listed; None for a missing file."""

    time_index: Location
    time_index_bytes: int | None
    time_index_modified_ms: int | None
    offset_index_bytes: int | None
    offset_index_modified_ms: int | None


class Tail(NamedTuple):
    """The facts from the end of an index and the start of a log."""

    files: TailIndexes
    last_entry: TimestampOffset
    first_batch: BatchHeader
    log_bytes: int


def read_tail(
    log: Location,
    files: TailIndexes,
    *,
    base_offset: int,
    next_base_offset: int | None,
    segment_index_bytes: int,
    offset_index: bool,
) -> Tail | None:
    """Return the facts known without reading `log`, None if the index cannot be trusted.

    With `offset_index`, the `.index` must be there, too. A file that cannot be read is not trusted:
    the caller then reads the log and finds the error.
    """
    size = files.time_index_bytes
    if not size or not _is_whole(size, TIME_ENTRY_BYTES, segment_index_bytes):
        return None
    if offset_index and not _is_whole(
        files.offset_index_bytes, OFFSET_ENTRY_BYTES, segment_index_bytes
    ):
        return None
    try:
        with opened(files.time_index) as (read_into, now):
            if now != size:
                return None
            entries = bytearray(min(ENTRIES_READ * TIME_ENTRY_BYTES, size))
            read_into(size - len(entries), memoryview(entries))
        with opened(log) as (read_into, log_bytes):
            header = bytearray(LAST_HEADER_BYTES)
            if read_into(0, memoryview(header)) < LAST_HEADER_BYTES:
                return None
        tail = TimeIndex.from_bytes(bytes(entries), base_offset=base_offset)
    except (FileReadError, Kip33Error):
        return None
    first_batch = decode_header(bytes(header), 0)
    if distrust(tail, first_batch, log_bytes=log_bytes, next_base_offset=next_base_offset):
        return None
    return Tail(files, tail.last_entry, first_batch, log_bytes)


def _is_whole(size: int | None, entry_bytes: int, segment_index_bytes: int) -> bool:
    """Return whether the file has complete entries only, and is not preallocated by a broker."""
    if size is None or size % entry_bytes:
        return False
    return size not in preallocated_bytes(segment_index_bytes, entry_bytes)
