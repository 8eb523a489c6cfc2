"""The index files of a segment whose log is cut: `LogSegment.truncateTo` and a clean close.

Entries with an offset below the target are kept. The time index then gets a last entry for the max
timestamp of the batches that are left, as a broker writes it when it closes the segment.
"""

import base64
import zlib
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from kip33.errors import CorruptIndexError, IndexOffsetOverflowError
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
)
from kip33.formats.transaction_index import TRANSACTION_ENTRY_BYTES, TransactionIndex
from kip33.restore.partition_state import PartitionState
from kip33.stores.files import MOST_INDEX_BYTES, read_whole
from kip33.stores.locations import Location

ENTRY_BYTES: Final = {
    "index": OFFSET_ENTRY_BYTES,
    "timeindex": TIME_ENTRY_BYTES,
    "txnindex": TRANSACTION_ENTRY_BYTES,
}


class KeptEntries(NamedTuple):
    """The entries that a segment's indexes keep, before the time index gets its last entry."""

    offset_index: OffsetIndex | None  # None: there is no file, so a broker builds all three
    time_index: TimeIndex
    transaction_index: TransactionIndex | None  # None: there is no file
    doubt: str | None  # why they cannot be cut, or None

    @property
    def largest_from(self) -> int:
        """Return the position from which a broker looks for a larger timestamp."""
        if self.offset_index is None:
            return 0
        return self.offset_index.lookup(self.time_index.last_entry.offset).position


def kept_entries(state: PartitionState, base_offset: int, offset: int) -> KeptEntries:
    """Return the entries of a segment's index files that stay; OSError if one is unreadable.

    A file of a running broker may end in zeros or stale entries, which are left out.
    """
    files = state.segments[base_offset]

    def read(kind: str) -> bytes:
        if kind not in files:
            return b""
        data = read_whole(state.place(base_offset, kind), most_bytes=MOST_INDEX_BYTES)
        return data[: len(data) - len(data) % ENTRY_BYTES[kind]]  # as a broker reads it

    times = TimeIndex.from_bytes(read("timeindex"), base_offset=base_offset)
    times = times.without_tail().truncate_to(offset)
    positions = OffsetIndex.from_bytes(read("index"), base_offset=base_offset)
    positions = positions.without_tail(size_bytes=files["log"].size_bytes).truncate_to(offset)
    doubt = aborts = None
    try:
        if "txnindex" in files:
            aborts = TransactionIndex.from_bytes(read("txnindex"), base_offset=base_offset)
            aborts = aborts.truncate_to(offset)
    except CorruptIndexError as error:
        doubt = f"the .txnindex is damaged: {error}"
    return KeptEntries(positions if "index" in files else None, times, aborts, doubt)


class FileAction(StrEnum):
    """The action on a file; each member is its own text."""

    DELETE = "delete"
    CUT = "cut"  # bytes are removed from its end
    WRITE = "write"  # it gets other bytes, or is new


class FileChange(NamedTuple):
    """One file that a truncation changes, before and after.

    None: the file is not there, or its content has no entries.
    """

    name: str
    action: FileAction
    bytes_before: int | None
    modified_ns: int | None
    bytes_after: int | None = None
    entries_before: int | None = None
    entries_after: int | None = None
    data: bytes | None = None  # of WRITE: the new bytes
    in_log_dir: bool = False  # beside the partition directory, not in it

    def place(self, directory: Location) -> Location:
        """Return where the file is, for the partition's directory."""
        return (directory.parent if self.in_log_dir else directory).child(self.name)

    def as_row(self) -> dict[str, Any]:
        """Return the fields that `kip33 truncate` prints."""
        return {
            "file": self.name,
            "in_log_dir": self.in_log_dir,
            "action": str(self.action),
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "entries_before": self.entries_before,
            "entries_after": self.entries_after,
        }

    def as_record(self) -> dict[str, Any]:
        """Return all fields for the journal, from which `of_record` makes the change again."""
        data = None if self.data is None else base64.b64encode(zlib.compress(self.data)).decode()
        return self.as_row() | {"modified_ns": self.modified_ns, "data": data}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """Return the change that the journal has; ValueError or KeyError for another object."""
        given = {name: record[name] for name in cls._fields if name != "name"}
        if given["data"] is not None:
            given["data"] = zlib.decompress(base64.b64decode(given["data"]))
        given["action"] = FileAction(given["action"])
        return cls(record["file"], **given)


def index_changes(
    state: PartitionState,
    base_offset: int,
    kept: KeptEntries,
    largest: TimestampOffset,
    *,
    log_is_cut: bool,
) -> tuple[list[FileChange], str | None]:
    """Return the changes of a segment's index files, and why a broker has to build them, if so.

    `largest` is the max timestamp of the kept batches after the last kept entry. In doubt all index
    files are removed: a broker builds them when it finds no `.index`. Files that are missing stay
    so, except for a `.timeindex` beside an `.index`. The `.index` of a log that is cut is always
    written, because it is removed before.
    """
    files = state.segments[base_offset]
    times, doubt = kept.time_index, kept.doubt
    last = times.last_entry
    if largest.timestamp > last.timestamp:
        try:
            if len(times) and largest.offset < last.offset:
                raise IndexOffsetOverflowError(
                    f"offset {largest.offset} has the max timestamp, but the last entry is for "
                    f"{last.offset}"
                )
            times = TimeIndex.from_entries([*times, largest], base_offset=base_offset)
        except IndexOffsetOverflowError as error:
            doubt = doubt or f"the .timeindex does not match the log: {error}"
    if doubt:
        return [deletion(state, base_offset, kind) for kind in ENTRY_BYTES if kind in files], doubt
    data: dict[str, bytes] = {}
    if "timeindex" in files or kept.offset_index is not None:
        data["timeindex"] = times.to_bytes()
    if kept.offset_index is not None:
        data["index"] = kept.offset_index.to_bytes()
    if kept.transaction_index is not None:
        data["txnindex"] = kept.transaction_index.to_bytes()
    changes = (
        _written(state, base_offset, kind, data[kind], always=log_is_cut and kind == "index")
        for kind in data
    )
    return [change for change in changes if change], None


def deletion(state: PartitionState, base_offset: int, kind: str) -> FileChange:
    """Return the deletion of one file of a segment."""
    file = state.segments[base_offset][kind]
    name, entries = state.place(base_offset, kind).name, _entries(kind, file.size_bytes)
    return FileChange(name, FileAction.DELETE, *file, entries_before=entries)


def _written(
    state: PartitionState, base_offset: int, kind: str, data: bytes, *, always: bool
) -> FileChange | None:
    """Return the change of an index file, None if it already has these bytes."""
    place, file = state.place(base_offset, kind), state.segments[base_offset].get(kind)
    is_same_size = file is not None and file.size_bytes == len(data)
    if not always and is_same_size and read_whole(place, most_bytes=MOST_INDEX_BYTES) == data:
        return None
    size, modified_ns = file or (None, None)
    entries = _entries(kind, file.size_bytes) if file else None, _entries(kind, len(data))
    return FileChange(place.name, FileAction.WRITE, size, modified_ns, len(data), *entries, data)


def _entries(kind: str, size_bytes: int) -> int | None:
    return size_bytes // ENTRY_BYTES[kind] if kind in ENTRY_BYTES else None
