"""Rows and files of a build that wait for other segments, a listing, or a file beside them.

**Rows with transactions wait for the end of the build.** A task does not know which transactions
are open at the start of its segment: another task may have the previous segment. It therefore
writes the row into staging with the segment's own transactions. Later `builds.transaction_files`
writes the `.txnindex` and completes the row. With `--producer-snapshots` the same is true for the
producers' states, so all rows wait. In place, a new `.index` waits, too: a broker rebuilds a
`.txnindex` only if the `.index` is missing.

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.archive.directory import Segment
from kip33.archive.segment_paths import beside, index_of_row
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import (
    CANNOT_BE_WRITTEN,
    Published,
    PublishedFile,
    TargetIndexFile,
    state_together,
)
from kip33.builds.index_flusher import FLUSHING_THREADS, IndexFlusher
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.draft import STAYS
from kip33.catalog.schema import SEGMENTS, IndexFileState
from kip33.errors import CatalogError, FileReadError
from kip33.formats.names import TIME_INDEX_FILE
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.broker_start import may_have_offset_index
from kip33.rules.transactions import TransactionSummary
from kip33.stores.concurrently import LARGE_FILES_AT_ONCE
from kip33.stores.files import (
    FileStatus,
    entries_of,
    listed_status,
    one_line,
    read_whole,
    status_of,
)
from kip33.stores.locations import Location

MOST_PART_BYTES: Final = 2**31 - 1
TXNINDEX: Final = "txnindex"
PRODUCERS: Final = "snapshot"
_COLUMNS_OF: Final = {TXNINDEX: "transaction_index", PRODUCERS: "producer_snapshot"}
_EXTRA: list["pa.Field[Any]"] = [
    pa.field("transactions", pa.string()),  # the segment's TransactionSummary as JSON
    pa.field("transaction_index_uri", pa.string()),
    pa.field("transaction_index_listed", pa.bool_()),  # whether the file existed before the build
    pa.field("ours", pa.bool_()),  # whether this catalog's builds wrote the existing files
    pa.field("waiting_offset_index", pa.binary()),  # bytes of a waiting `.index`; null: not waiting
    pa.field("index_settings", pa.string()),  # that give its bytes
    pa.field("time_index_is_right", pa.bool_()),  # whether the `.timeindex` matches the log
    pa.field("seen_bytes", pa.int64()),  # of the `.txnindex` before the build; null: none
    pa.field("seen_modified_ms", pa.int64()),
    pa.field("producer_snapshot_uri", pa.string()),  # null: the build writes no `.snapshot`
    pa.field("producer_snapshot_ours", pa.bool_()),
    pa.field("producer_snapshot_seen_bytes", pa.int64()),  # before the build; null: none
    pa.field("producer_snapshot_seen_modified_ms", pa.int64()),
]
PENDING: Final = pa.schema([*SEGMENTS, *_EXTRA])
"""A row of SEGMENTS with the data that completes it."""

LEAST_FILES: Final = 3  # in a folder: for fewer a listing saves nothing
_MOST_SEGMENTS_OF_FOLDER: Final = 4096  # in a task: each group of rows lists the folder again
_MOST_WAITING_ROWS: Final = 512
SMALL_LOG_BYTES: Final = 8 << 20  # one range: the requests of a larger log take longer than its put
_KINDS: Final = (("time", TIME_INDEX_FILE), ("offset", "index"))
_MOST_SEGMENTS: Final = 1024  # of a group
_MOST_BYTES: Final = 1 << 25  # of its `.index` files
LEFT_TO_THE_BROKER: Final = (
    "the .index is not written either: a broker rebuilds both if it finds no .index"
)


class PendingRow(NamedTuple):
    """One such row; `row` has the columns of SEGMENTS."""

    row: dict[str, Any]
    transactions: str
    transaction_index_uri: str
    transaction_index_listed: bool
    ours: bool
    waiting_offset_index: bytes | None
    index_settings: str
    time_index_is_right: bool
    seen_bytes: int | None
    seen_modified_ms: int | None
    producer_snapshot_uri: str | None
    producer_snapshot_ours: bool
    producer_snapshot_seen_bytes: int | None
    producer_snapshot_seen_modified_ms: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return a row of PENDING."""
        _, *extra = self
        return self.row | dict(zip((field.name for field in _EXTRA), extra, strict=True))


def is_pending(segment: Segment, transactions: TransactionSummary) -> bool:
    """Return whether the row waits: transactions begin or end here, or a `.txnindex` is there."""
    return not transactions.changes_nothing or segment.target_transaction_index_bytes is not None


def offset_index_waits(build: BuildSpec, segment: Segment, index: BuiltIndexes) -> bool:
    """Return whether the `.index` waits for the `.txnindex`: a new one in place, beside aborts."""
    if not build.offset_index or not build.in_place or index.transactions is None:
        return False
    is_new = segment.target_offset_index_bytes is None and may_have_offset_index(index.status)
    return is_new and len(index.transactions.aborts) > 0


def pending_row(
    build: BuildSpec,
    segment: Segment,
    row: dict[str, Any],
    transactions: TransactionSummary,
    waiting_offset_index: bytes | None,
) -> PendingRow:
    """Return the row of a segment that waits for its `.txnindex` or `.snapshot`.

    Perhaps it also waits for its `.index`.
    """
    return PendingRow(
        row,
        transactions.to_json(),
        _place_of(build, segment, TXNINDEX).uri,
        segment.target_transaction_index_bytes is not None,
        False,
        waiting_offset_index,
        build.index_settings,
        False,
        segment.target_transaction_index_bytes,
        segment.target_transaction_index_modified_ms,
        _place_of(build, segment, PRODUCERS).uri if build.producer_snapshots else None,
        False,
        segment.target_producer_snapshot_bytes,
        segment.target_producer_snapshot_modified_ms,
    )


def withdraw(
    build: BuildSpec, segment: Segment, row: dict[str, Any], kind: str, *, is_unreadable: bool
) -> None:
    """Delete our file of a kind if its log gives no index any more; errors become the row's note.

    `kind` is TXNINDEX or PRODUCERS.
    """
    published = Published()
    place = _place_of(build, segment, kind)
    target = TargetIndexFile(place, None, build.index_settings, listed=True)
    published.add(target, ours=True, overwrite=False, proves_nothing=is_unreadable)
    row["error"] = "; ".join(filter(None, (row["error"], *published.notes))) or None
    left = published.files[0]
    if left:
        name_in_row(row, kind, left)


def name_in_row(row: dict[str, Any], kind: str, file: PublishedFile) -> None:
    """Put a published `.txnindex` or `.snapshot` into its row."""
    columns = _COLUMNS_OF[kind]
    row[f"{columns}_bytes"] = file.size_bytes
    row[f"{columns}_modified_ms"] = file.modified_ms
    row[f"{columns}_crc32c"] = file.crc32c


def _place_of(build: BuildSpec, segment: Segment, kind: str) -> Location:
    return beside(build.index_location(segment), kind)


def read_staged(
    staging: Location, part: SnapshotPart, columns: list[str] | None = None
) -> pa.Table:
    """Return a part that a task of this build wrote into staging; CatalogError if it is missing."""
    place = staging.child(part.name)
    try:
        data = read_whole(place, most_bytes=MOST_PART_BYTES)
        return pq.read_table(pa.BufferReader(data), columns=columns, use_threads=False)
    except (OSError, ValueError) as error:
        raise CatalogError(
            f"{place.uri}: this part cannot be read: {error}; the snapshot is not committed, "
            f"{STAYS}: run the command again"
        ) from error


def pending_rows(table: pa.Table) -> list[PendingRow]:
    """Return the rows of a table of PENDING."""
    names = [field.name for field in _EXTRA]
    return [
        PendingRow({name: row[name] for name in SEGMENTS.names}, *(row[name] for name in names))
        for row in table.to_pylist()
    ]


class WaitingIndex(NamedTuple):
    """An `.index` that waits for the file beside it."""

    file: TargetIndexFile
    is_first_right: bool  # whether the file beside it matches the log
    log_changed: Callable[[], bool]  # whether the log differs from its listing


class Built(NamedTuple):
    """A catalog row and the figures of its work."""

    row: dict[str, Any]
    bytes_read: int  # of the log
    pending: PendingRow | None = None  # the row, if it waits for its `.txnindex`
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
        """Look up the files that wait; yield their segments. A fault is its row's `error`."""
        group, self._group = self._group, []
        folders: defaultdict[Location, list[tuple[dict[str, Any], str, Location]]]
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


def _unknown_files(row: dict[str, Any]) -> list[tuple[str, Location]]:
    """Return kind and place of the row's index files that were put and not read back."""
    return [
        (kind, index_of_row(Location.of(row["index_uri"]), suffix))
        for kind, suffix in _KINDS
        if row.get(f"{kind}_index_bytes") is not None and row[f"{kind}_index_modified_ms"] is None
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


def _fill_in(row: dict[str, Any], kind: str, place: Location, listed: FileStatus | None) -> None:
    """Complete the columns of one file; of a file that the listing lacks, the status is read."""
    expected = row[f"{kind}_index_bytes"]
    try:
        is_right = listed is not None and listed.size_bytes == expected
        status = listed if is_right else status_of(place)
        size_bytes = status.size_bytes if status else None
        if size_bytes != expected:
            raise FileReadError(
                f"{place.uri}: {expected} bytes were written, but the file has {size_bytes} bytes"
            )
    except FileReadError as error:
        note = f"{place.uri}{CANNOT_BE_WRITTEN}{one_line(error)}"
        row["error"] = "; ".join(filter(None, (row["error"], note)))
        row["index_file"] = IndexFileState.STALE  # the next build tries again
        for column in ("bytes", "modified_ms", "settings", "crc32c"):
            row[f"{kind}_index_{column}"] = None
        return
    assert status is not None
    row[f"{kind}_index_modified_ms"] = status.modified_ms


def waits_for_time_index(build: BuildSpec, segment: Segment, status: str) -> bool:
    """Return whether a segment's `.index` waits: a new one, in place."""
    is_new = segment.target_offset_index_bytes is None
    return build.in_place and build.offset_index and is_new and may_have_offset_index(status)


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
    row = built.row
    notes = publish_offset_index(build, row, built.waiting, ours=False)
    row["error"] = "; ".join(filter(None, (row["error"], *notes))) or None
    return built._replace(waiting=None)


def publish_offset_index(
    build: BuildSpec, row: dict[str, Any], waiting: WaitingIndex, *, ours: bool
) -> list[str]:
    """Write a new `.index` and add it to its row; return notes on it.

    It is not written if a file beside it is missing, stale or does not match the log.
    """
    is_there = row["index_file"] in (IndexFileState.WRITTEN, IndexFileState.KEPT)
    if not is_there or not waiting.is_first_right:
        return [LEFT_TO_THE_BROKER]
    log = Location.of(row["log_uri"]) if build.in_place else None
    published = Published(log, log_changed=waiting.log_changed)
    published.add(waiting.file, ours=ours, overwrite=build.overwrite, proves_nothing=False)
    left = published.files[0]
    if left:
        row["offset_index_bytes"] = left.size_bytes
        row["offset_index_modified_ms"] = left.modified_ms
        row["offset_index_settings"] = left.settings
        row["offset_index_crc32c"] = left.crc32c
    row["index_file"] = state_together((row["index_file"], published.state))
    return published.notes
