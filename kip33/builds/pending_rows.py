"""Rows and files of a build that wait for other segments, a listing, or a file beside them.

**Rows with transactions wait for the end of the build.** A task does not know which transactions
are open at the start of its segment: another task may have the previous segment. It therefore
writes the row into staging with the segment's own transactions. Later `builds.transaction_files`
writes the `.txnindex` and completes the row. In place, a new `.index` waits, too: a broker rebuilds
a `.txnindex` only if the `.index` is missing.

**In a bucket, rows wait for a listing.** A put does not say when the store received a file, and a
size that is read back shows that the store kept all bytes. One request for each file answers both,
and a listing answers for a thousand files. So if a task puts several small files into a folder,
their rows wait, and then the folder is listed. Another build that replaces a file in between is not
detected if the new file has the same size. So a row waits only for a few hundred others, and never
for a large log. A folder with many older files takes many requests to list. So files are asked for
one by one unless most of the archive is new.

**In place, a new `.index` waits until the `.timeindex` beside it is on the disk.** A broker builds
the index files of an old segment only while its `.index` is missing. If a power failure kept only
the `.index`, the broker would use an empty `.timeindex` from then on: retention would use the
file's modification time, and lookups would read the log. So the `.timeindex` files of a group of
segments are flushed first, then their folders, and then the `.index` files are renamed, each
flushed before its rename. On a remote store a file is safe once it is written. A new `.index` also
makes a broker trust the `.timeindex` beside it. So it is not written if another program's
`.timeindex` was kept that does not match the log.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kip33.archive.directory import Segment
from kip33.archive.segment_paths import index_of_row
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import (
    Published,
    TargetIndexFile,
    add_notes,
    add_problems,
    cannot_be_written,
    record,
    state_together,
)
from kip33.builds.index_flusher import FLUSHING_THREADS, IndexFlusher
from kip33.builds.reuse import ours_column
from kip33.catalog.schema import SEGMENTS, IndexFileState
from kip33.errors import FileReadError
from kip33.formats.index_kinds import IndexKind
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.segment_notes import SegmentNote
from kip33.stores.concurrently import LARGE_FILES_AT_ONCE
from kip33.stores.files import (
    FileStatus,
    entries_of,
    listed_status,
    one_line,
    status_of,
)
from kip33.stores.locations import Location

_EXTRA: list["pa.Field[Any]"] = [
    pa.field("transactions", pa.string()),  # the segment's TransactionSummary as JSON
    pa.field("time_index_uri", pa.string()),  # the files that the row waits for are beside it
    pa.field("waiting_offset_index", pa.binary()),  # bytes of a waiting `.index`; null: not waiting
    pa.field("time_index_is_right", pa.bool_()),  # whether the `.timeindex` matches the log
    pa.field(ours_column(IndexKind.TRANSACTION), pa.bool_()),
    # Of the existing `.txnindex`, before the build; null: none.
    pa.field("transaction_index_seen_bytes", pa.int64()),
    pa.field("transaction_index_seen_modified_ms", pa.int64()),
]
PENDING: Final = pa.schema([*SEGMENTS, *_EXTRA])
"""A row of SEGMENTS with the data that completes it."""

LEAST_FILES: Final = 3  # in a folder: for fewer a listing saves nothing
_MOST_SEGMENTS_OF_FOLDER: Final = 4096  # in a task: each group of rows lists the folder again
_MOST_WAITING_ROWS: Final = 512
SMALL_LOG_BYTES: Final = 8 << 20  # one range: the requests of a larger log take longer than its put
_MOST_SEGMENTS: Final = 1024  # of a group
_MOST_BYTES: Final = 1 << 25  # of its `.index` files


def extra_columns(
    build: BuildSpec, segment: Segment, index: BuiltIndexes, ours: Set[IndexKind]
) -> dict[str, Any] | None:
    """Return the columns that only PENDING has; None: the row does not wait.

    It waits if transactions begin or end in the segment, or a `.txnindex` is there.
    """
    transactions = index.transactions
    if transactions is None or IndexKind.TRANSACTION not in build.kinds:
        return None
    seen = segment.index_file(IndexKind.TRANSACTION)
    if transactions.changes_nothing and seen is None:
        return None
    return {
        "transactions": transactions.to_json(),
        "time_index_uri": build.index_location(segment).uri,
        ours_column(IndexKind.TRANSACTION): IndexKind.TRANSACTION in ours,
        "transaction_index_seen_bytes": seen.size_bytes if seen else None,
        "transaction_index_seen_modified_ms": seen.modified_ms if seen else None,
    }


def transaction_index_in(row: Mapping[str, Any], data: bytes | None) -> TargetIndexFile:
    """Return the `.txnindex` of a row of PENDING."""
    place = index_of_row(Location.of(row["time_index_uri"]), IndexKind.TRANSACTION)
    size_bytes, modified_ms = (
        row[f"transaction_index_seen_{of}"] for of in ("bytes", "modified_ms")
    )
    seen = None if size_bytes is None else FileStatus(size_bytes, modified_ms)
    return TargetIndexFile(IndexKind.TRANSACTION, place, data, seen)


class WaitingIndex(NamedTuple):
    """An `.index` that waits for the file beside it."""

    file: TargetIndexFile
    is_first_right: bool  # whether the file beside it matches the log
    log_changed: Callable[[], bool]  # whether the log differs from its listing


class Built(NamedTuple):
    """A catalog row and the figures of its work."""

    row: dict[str, Any]
    bytes_read: int  # of the log
    pending: dict[str, Any] | None = None  # more columns, if the row waits for its `.txnindex`
    waiting: WaitingIndex | None = None  # the `.index`, if it waits for the `.timeindex`


class WaitingPuts:
    """The segments of a task whose index files were put, in groups that wait for a listing."""

    def __init__(self, build: BuildSpec, files: pa.Table) -> None:
        """Take the files of the task's bin. If puts are not listed, no segment waits."""
        paths = files["path"].to_pylist() if build.lists_puts else []
        self._in_folder = Counter(_folder(str(path)) for path in paths)
        self._group: list[Built] = []

    def waits(self, segment: Segment) -> bool:
        """Return whether the segment's index files are put without reading back their sizes."""
        if not self._in_folder or (segment.size_bytes or 0) > SMALL_LOG_BYTES:
            return False
        return LEAST_FILES <= self._in_folder[_folder(segment.path)] <= _MOST_SEGMENTS_OF_FOLDER

    def complete(self, built: Built) -> Iterator[Built]:
        """Add a segment; yield the segments that are complete, in order."""
        if not self._in_folder or (not self._group and not _unknown_files(built.row)):
            yield built
            return
        self._group.append(built)
        if len(self._group) >= _MOST_WAITING_ROWS:
            yield from self.complete_all()

    def complete_all(self) -> Iterator[Built]:
        """Look up the files that wait; yield their segments. A fault is its row's `index_error`."""
        group, self._group = self._group, []
        folders: defaultdict[Location, list[tuple[dict[str, Any], IndexKind, Location]]]
        folders = defaultdict(list)
        for built in group:
            for kind, place in _unknown_files(built.row):
                folders[place.parent].append((built.row, kind, place))
        with ThreadPoolExecutor(LARGE_FILES_AT_ONCE, thread_name_prefix="kip33-list") as pool:
            listed = pool.map(lambda one: _listed(one[0], len(one[1])), folders.items())
            for statuses, files in zip(listed, folders.values(), strict=True):
                for row, kind, place in files:
                    _fill_in(row, kind, place, statuses.get(place.path))
        yield from group


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _unknown_files(row: dict[str, Any]) -> list[tuple[IndexKind, Location]]:
    """Return kind and place of the row's index files that were put and not read back."""
    return [
        (kind, index_of_row(Location.of(row["index_uri"]), kind))
        for kind in (IndexKind.TIME, IndexKind.OFFSET)
        if row.get(f"{kind}_bytes") is not None and row[f"{kind}_modified_ms"] is None
    ]


def _listed(folder: Location, files: int) -> dict[str, FileStatus]:
    """Return the files of a folder by path; empty if it is cheaper or necessary to ask for each."""
    if files < LEAST_FILES:
        return {}
    try:
        entries = entries_of(folder)
    except FileReadError:
        return {}
    return {info.path: listed_status(folder, info) for info in entries if info.is_file}


def _fill_in(
    row: dict[str, Any], kind: IndexKind, place: Location, listed: FileStatus | None
) -> None:
    """Complete the columns of one file; of a file that the listing lacks, the status is read."""
    expected = row[f"{kind}_bytes"]
    try:
        is_right = listed is not None and listed.size_bytes == expected
        status = listed if is_right else status_of(place)
        size_bytes = status.size_bytes if status else None
        if size_bytes != expected:
            raise FileReadError(
                f"{place.uri}: {expected} bytes were written, but the file has {size_bytes} bytes"
            )
    except FileReadError as error:
        add_problems(row, cannot_be_written(place, one_line(error)))
        row["index_file"] = IndexFileState.STALE  # the next build tries again
        record(row, kind, None)
        return
    assert status is not None
    row[f"{kind}_modified_ms"] = status.modified_ms


class WaitingIndexes:
    """The segments of a task whose `.index` files wait, in groups."""

    def __init__(self, build: BuildSpec, flusher: IndexFlusher) -> None:
        """Begin with none."""
        self._build, self._flusher = build, flusher
        self._group: list[Built] = []
        self._bytes = 0

    def complete(self, built: Built) -> Iterator[Built]:
        """Begin to flush a segment's files; yield the segments that are complete, in order."""
        self._flusher.add(built.row)
        if not self._group and built.waiting is None:
            yield built
            return
        self._group.append(built)
        self._bytes += len(built.waiting.file.data or b"") if built.waiting else 0
        if len(self._group) >= _MOST_SEGMENTS or self._bytes >= _MOST_BYTES:
            yield from self.complete_all()

    def complete_all(self) -> Iterator[Built]:
        """Write the `.index` files that wait; yield their segments. PublishError as the flusher."""
        if not self._group:
            return
        self._flusher.wait()
        group, self._group, self._bytes = self._group, [], 0
        with ThreadPoolExecutor(FLUSHING_THREADS, thread_name_prefix="kip33-index") as pool:
            for built in pool.map(partial(with_offset_index, self._build), group):
                self._flusher.add_folder(built.row)
                yield built


def with_offset_index(build: BuildSpec, built: Built) -> Built:
    """Return a segment after its `.index` was written, if it waited."""
    if built.waiting is None:
        return built
    publish_offset_index(build, built.row, built.waiting, ours=False)
    return built._replace(waiting=None)


def publish_offset_index(
    build: BuildSpec, row: dict[str, Any], waiting: WaitingIndex, *, ours: bool
) -> None:
    """Write a new `.index` and add it to its row.

    It is not written if a file beside it is missing, stale or does not match the log.
    """
    is_there = row["index_file"] in (IndexFileState.WRITTEN, IndexFileState.KEPT)
    if not is_there or not waiting.is_first_right:
        add_notes(row, SegmentNote.LEFT_TO_BROKER)
        return
    log = Location.of(row["log_uri"]) if build.in_place else None
    published = Published(log, log_changed=waiting.log_changed)
    published.add(waiting.file, ours=ours, overwrite=build.overwrite)
    if published.files[0]:
        record(row, IndexKind.OFFSET, published.files[0])
    published.add_to(row)
    row["index_file"] = state_together((row["index_file"], published.state))
