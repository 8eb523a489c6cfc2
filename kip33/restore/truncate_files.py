"""The files of a copied partition, and how a truncation changes them.

Index files of the segment that is cut change as in `LogSegment.truncateTo` and a clean close:
entries with an offset below the target are kept. The time index then gets a last entry for the max
timestamp of the batches that are left, as a broker writes it when it closes the segment.
"""

import base64
import os
import stat
import zlib
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from kip33.errors import (
    CorruptIndexError,
    IndexOffsetOverflowError,
    LocationError,
    TruncationError,
)
from kip33.formats.names import (
    CheckpointFile,
    PartitionDir,
    parse_checkpoint_file,
    parse_partition_dir,
    parse_segment_file,
    segment_file_name,
)
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
)
from kip33.formats.transaction_index import TRANSACTION_ENTRY_BYTES, TransactionIndex
from kip33.stores.files import MOST_INDEX_BYTES, one_line, read_whole
from kip33.stores.locations import Location

ENTRY_BYTES: Final = {
    "index": OFFSET_ENTRY_BYTES,
    "timeindex": TIME_ENTRY_BYTES,
    "txnindex": TRANSACTION_ENTRY_BYTES,
}
SNAPSHOT: Final = "snapshot"


class FileState(NamedTuple):
    """A file's size and modification time."""

    size_bytes: int
    modified_ns: int


class CopiedPartition(NamedTuple):
    """The files of a partition that matter for its truncation."""

    directory: Location
    topic: str
    partition: int
    segments: dict[int, dict[str, FileState]]  # by base offset, with a log; files by kind
    snapshots: dict[int, FileState]  # of producers, by offset
    checkpoints: tuple[CheckpointFile, ...]  # KRaft snapshots

    @property
    def base_offsets(self) -> list[int]:
        """Return the base offsets of the segments, in order."""
        return sorted(self.segments)

    def log(self, base_offset: int) -> Location:
        """Return the place of a segment's log."""
        return self.place(base_offset, "log")

    def place(self, offset: int, kind: str) -> Location:
        """Return the place of a file that is named by an offset."""
        return self.directory.child(segment_file_name(offset, kind))


def partition_of(directory: Location) -> PartitionDir:
    """Return topic and partition of a local partition directory, by its name.

    Raises LocationError for a directory that is not local or missing, TruncationError for one that
    is not a partition's.
    """
    if not directory.is_local:
        raise LocationError(
            f"{directory.uri}: expected a partition directory on this machine; copy the partition "
            "to a local disk, truncate the copy and upload it"
        )
    if not os.path.isdir(directory.path):  # noqa: PTH112 - a path, as the filesystem has it
        raise LocationError(f"{directory.uri}: expected a directory such as orders-0")
    name = parse_partition_dir(os.path.basename(os.path.realpath(directory.path)))  # noqa: PTH119
    if name is None or name.kind:
        raise TruncationError(
            f"{directory.uri}: the name is not a partition's, expected <topic>-<partition> such "
            "as orders-0; give the directory that has the .log files"
        )
    return name


def read_partition(directory: Location) -> CopiedPartition:
    """Return the files of a partition directory.

    Raises TruncationError, one line, for files with which a broker would not simply begin, such as
    a `.swap`, and for links.
    """
    name = partition_of(directory)
    by_base: dict[int, dict[str, FileState]] = {}
    snapshots: dict[int, FileState] = {}
    checkpoints = []
    try:
        with os.scandir(directory.path) as entries:
            listed = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except OSError as error:
        raise TruncationError(
            f"{directory.uri}: cannot be listed: {one_line(error)}; fix it and run the command "
            "again"
        ) from error
    for file_name, status in listed:
        if checkpoint := parse_checkpoint_file(file_name):
            checkpoints += [] if checkpoint.suffix else [checkpoint]
        parsed = parse_segment_file(file_name)
        if parsed is None:
            continue
        place = directory.child(file_name)
        if parsed.suffix == "swap":
            raise TruncationError(
                f"{place.uri}: a broker renames this file when it starts; start the broker on the "
                "copy once and stop it, then run the command again"
            )
        if parsed.suffix:
            continue  # a broker deletes it when it starts
        if file_name != segment_file_name(parsed.base_offset, parsed.kind):
            raise TruncationError(
                f"{place.uri}: expected a name with 20 digits, as Kafka writes it; rename the file"
            )
        if not stat.S_ISREG(status.st_mode):
            raise TruncationError(f"{place.uri}: is a link or not a file; replace it with the file")
        state = FileState(status.st_size, status.st_mtime_ns)
        if parsed.kind == SNAPSHOT:
            snapshots[parsed.base_offset] = state
        else:
            by_base.setdefault(parsed.base_offset, {})[parsed.kind] = state
    segments = {base: files for base, files in sorted(by_base.items()) if "log" in files}
    if not segments:
        raise TruncationError(f"{directory.uri}: no .log files found; give a partition directory")
    return CopiedPartition(
        directory, name.topic, name.partition, segments, snapshots, tuple(checkpoints)
    )


def require_one_name(place: Location) -> None:
    """Raise TruncationError for a file with hard links: cut in place, all its names are cut."""
    names = os.stat(place.path).st_nlink  # noqa: PTH116 - a path, as the filesystem has it
    if names > 1:
        raise TruncationError(
            f"{place.uri}: the file has {names} names (hard links), and cutting it would cut it "
            "under all of them; copy the partition without hard links"
        )


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


def kept_entries(partition: CopiedPartition, base_offset: int, offset: int) -> KeptEntries:
    """Return the entries of a segment's index files that stay; OSError if one is unreadable.

    A file of a running broker may end in zeros or stale entries, which are left out.
    """
    files = partition.segments[base_offset]

    def read(kind: str) -> bytes:
        if kind not in files:
            return b""
        data = read_whole(partition.place(base_offset, kind), most_bytes=MOST_INDEX_BYTES)
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
    partition: CopiedPartition,
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
    files = partition.segments[base_offset]
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
        return [
            deletion(partition, base_offset, kind) for kind in ENTRY_BYTES if kind in files
        ], doubt
    data: dict[str, bytes] = {}
    if "timeindex" in files or kept.offset_index is not None:
        data["timeindex"] = times.to_bytes()
    if kept.offset_index is not None:
        data["index"] = kept.offset_index.to_bytes()
    if kept.transaction_index is not None:
        data["txnindex"] = kept.transaction_index.to_bytes()
    changes = (
        _written(partition, base_offset, kind, data[kind], always=log_is_cut and kind == "index")
        for kind in data
    )
    return [change for change in changes if change], None


def deletion(partition: CopiedPartition, base_offset: int, kind: str) -> FileChange:
    """Return the deletion of one file of a segment."""
    file = partition.segments[base_offset][kind]
    name, entries = partition.place(base_offset, kind).name, _entries(kind, file.size_bytes)
    return FileChange(name, FileAction.DELETE, *file, entries_before=entries)


def _written(
    partition: CopiedPartition, base_offset: int, kind: str, data: bytes, *, always: bool
) -> FileChange | None:
    """Return the change of an index file, None if it already has these bytes."""
    place, file = partition.place(base_offset, kind), partition.segments[base_offset].get(kind)
    is_same_size = file is not None and file.size_bytes == len(data)
    if not always and is_same_size and read_whole(place, most_bytes=MOST_INDEX_BYTES) == data:
        return None
    size, modified_ns = file or (None, None)
    entries = _entries(kind, file.size_bytes) if file else None, _entries(kind, len(data))
    return FileChange(place.name, FileAction.WRITE, size, modified_ns, len(data), *entries, data)


def _entries(kind: str, size_bytes: int) -> int | None:
    return size_bytes // ENTRY_BYTES[kind] if kind in ENTRY_BYTES else None
