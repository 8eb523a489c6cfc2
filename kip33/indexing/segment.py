"""One segment end to end: read it, scan it, apply the rules, report what Kafka would do with it.

The status, and what it means for the index:

    ok          every byte belongs to a valid batch
    empty       the file has 0 bytes; the index is empty, too
    truncated   a valid prefix of `valid_bytes` bytes, which recovery keeps; `error` says why
    invalid     Kafka would write no index (it does not load, splits or empties the log), so neither
                does kip33
    unreadable  the bytes could not be read
    archived    they cannot be read before they are restored from S3 Glacier
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kip33.archive.directory import Segment
from kip33.drafts.designs import other_entries
from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error, counted
from kip33.formats.batch import (
    MAX_INT32,
    MAX_SEGMENT_BYTES,
    NO_TIMESTAMP,
    BatchColumns,
    BatchHeader,
    decode_header,
)
from kip33.formats.byte_sources import ReadInto, ViewAt
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.partition_metadata import EpochStart
from kip33.formats.scan import BatchScan
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
)
from kip33.rules.index_builder import IndexBuilder, IndexSettings
from kip33.rules.index_entries import preallocated_bytes
from kip33.rules.index_tail import ENTRIES_READ, LAST_HEADER_BYTES, distrust
from kip33.rules.leader_epochs import LeaderEpochs
from kip33.rules.segment_summary import (
    UNDAMAGED_STATUSES,
    SegmentStatus,
    is_whole_before_zeros,
    new_summary,
    summarize,
)
from kip33.rules.transactions import NO_TRANSACTIONS, OpenTransactions, TransactionSummary
from kip33.rules.untimestamped import entry_offset, index_of_file_time
from kip33.stores.files import FileStatus, is_archived, one_line, opened, scanned
from kip33.stores.locations import Location

SPLIT: Final = "its offsets span 2^31 or more; Kafka splits the segment when it recovers it"
_HAS_BATCHES = (SegmentStatus.OK, SegmentStatus.TRUNCATED)


@dataclass(frozen=True)
class BuiltIndexes:
    """The two indexes of one segment, and the results of scanning it.

    `time_index_data` and `offset_index_data` are the bytes of the index files, None if Kafka writes
    no index. `time_index` and `offset_index` are the same as a `TimeIndex` and an `OffsetIndex`.
    `status` is one of the module's statuses; `error` says in one line why it is not `ok` or
    `empty`. Sizes are in bytes. `summary` is a record of `rules.segment_summary.SUMMARY_RECORD`
    with the magics of its batches. `transactions` gives the `.txnindex`, see
    `rules.transaction_index`.
    """

    status: SegmentStatus
    error: str | None
    size_bytes: int
    valid_bytes: int
    time_index_data: bytes | None
    offset_index_data: bytes | None
    summary: np.void
    magics: tuple[int, ...]
    bytes_read: int
    transactions: TransactionSummary | None = None  # None if Kafka writes no index
    base_offset: int = 0
    leader_epochs: tuple[EpochStart, ...] = ()
    batches_crc32: int = 0  # of the CRCs of its batches, 4 bytes each, big-endian
    only_zeros_follow: bool = False  # after its valid bytes
    is_split: bool = False  # `invalid`, but all batches are valid: Kafka splits the segment

    @property
    def end_offset(self) -> int:
        """Return the offset after its last record, its base offset if it has no batch."""
        return int(self.summary["last_offset"]) + 1 if self.valid_bytes else self.base_offset

    @property
    def is_understated(self) -> bool:
        """Return whether a header's max timestamp is below that of the first record."""
        return bool(self.summary["understated"])

    @property
    def recovered_status(self) -> SegmentStatus:
        """Return its status for a broker that recovers it: zeros at the end are cut, too."""
        if self.only_zeros_follow and self.status in UNDAMAGED_STATUSES:
            return SegmentStatus.TRUNCATED
        return self.status

    @property
    def time_index(self) -> TimeIndex | None:
        """Return the entries of the `.timeindex`, None if Kafka writes no index."""
        data = self.time_index_data
        return None if data is None else TimeIndex.from_bytes(data, base_offset=self.base_offset)

    @property
    def offset_index(self) -> OffsetIndex | None:
        """Return the entries of the `.index`, None if Kafka writes no index."""
        data = self.offset_index_data
        return None if data is None else OffsetIndex.from_bytes(data, base_offset=self.base_offset)


class _Gathered:
    """The data that a scan collects besides the indexes."""

    def __init__(self) -> None:
        self.summary = new_summary()
        self.seen_magics = np.zeros(256, np.uint8)
        self.failure: tuple[int, str] | None = None  # where and why Kafka fails to load
        self.batches_crc32 = 0
        self._epochs = LeaderEpochs()
        self._transactions: OpenTransactions | None = None  # most segments have none

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        speed(summarize)(batches, self.summary, self.seen_magics)
        self.batches_crc32 = zlib.crc32(batches["crc"].astype(">u4").tobytes(), self.batches_crc32)
        if self.failure is None:
            failure = self._epochs.append(batches, speed)
            self.failure = failure or self._append_transactions(batches, speed)

    def _append_transactions(self, batches: BatchColumns, speed: Speed) -> tuple[int, str] | None:
        if self._transactions is None:
            if not self.summary["marked"][0]:
                return None
            self._transactions = OpenTransactions()
        return self._transactions.append(batches, speed)

    def result(
        self,
        status: SegmentStatus,
        error: str | None,
        *,
        size_bytes: int,
        valid_bytes: int = 0,
        bytes_read: int = 0,
        builder: IndexBuilder | None = None,
        only_zeros_follow: bool = False,
    ) -> BuiltIndexes:
        transactions: TransactionSummary | None = None
        if builder:
            found = self._transactions
            transactions = found.summary() if found else NO_TRANSACTIONS
        return BuiltIndexes(
            status,
            error,
            size_bytes,
            valid_bytes,
            builder.time_index if builder else None,
            builder.offset_index if builder else None,
            self.summary[0],
            _magics_of(self.seen_magics.tobytes()),
            bytes_read,
            transactions,
            builder.base_offset if builder else 0,
            self._epochs.starts,
            self.batches_crc32,
            only_zeros_follow,
        )


@lru_cache(maxsize=64)
def _magics_of(seen: bytes) -> tuple[int, ...]:
    return tuple(number - 128 for number, is_seen in enumerate(seen) if is_seen)


Watcher: TypeAlias = Callable[[BatchColumns, Speed], None]
"""Another consumer of the same batches: verification."""


def index_segment(  # parameters: where the bytes come from, and how the scan runs
    read_into: ReadInto,
    size_bytes: int,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
    watcher: Watcher | None = None,
    on_batches: Callable[[BatchColumns], None] | None = None,
    view_at: ViewAt | None = None,
    largest_before: int = NO_TIMESTAMP,
) -> BuiltIndexes:
    """Return the indexes of the segment that `read_into` reads, `size_bytes` long.

    `view_at` gives its bytes if they are already in memory. `largest_before` is the largest
    timestamp of the partition's earlier segments, for designs that need it. `on_batches` is called
    with the batches, whose array is reused; a `watcher` also needs their records.

    Damage, refusals and load failures are a status, not an exception. OSError is passed on, and so
    is CorruptSegmentError for a file that shrinks while it is read.
    """
    gathered = _Gathered()
    if size_bytes > MAX_SEGMENT_BYTES:
        too_long = (
            f"{size_bytes} bytes: Kafka does not open segments of more than "
            f"{MAX_SEGMENT_BYTES} bytes"
        )
        return gathered.result(SegmentStatus.INVALID, too_long, size_bytes=size_bytes)
    dialect = settings.kafka_dialect
    others = other_entries(settings.dialect, base_offset=base_offset, largest_before=largest_before)
    builder = IndexBuilder(dialect, settings, base_offset=base_offset, topic=topic, others=others)
    scan = BatchScan(
        read_into,
        size_bytes,
        check_crc=settings.check_crc,
        seek_max_record=dialect.first_record or watcher is not None,
        native=native,
        view_at=view_at,
    )
    speed = compiled if scan.native else plain
    for batches in scan:
        builder.append(batches, speed)
        gathered.append(batches, speed)
        if on_batches:
            on_batches(batches)
        if watcher:
            watcher(batches, speed)
        elif gathered.failure or (builder.refusal and not builder.is_beyond_int32):
            break
    builder.close(scan.valid_bytes, speed)
    status, error, valid_bytes = _outcome(scan, builder, gathered)
    is_whole = scan.valid_bytes == size_bytes and not (scan.load_failure or gathered.failure)
    last_offset = int(gathered.summary["last_offset"][0])
    is_split = builder.is_beyond_int32 and is_whole and last_offset - base_offset > MAX_INT32
    if is_split:
        error = SPLIT
    found = gathered.result(
        status,
        error,
        size_bytes=size_bytes,
        valid_bytes=valid_bytes,
        bytes_read=scan.bytes_read,
        builder=None if status == SegmentStatus.INVALID else builder,
        only_zeros_follow=status == SegmentStatus.TRUNCATED and scan.only_zeros_follow,
    )
    return replace(found, is_split=is_split)


def _outcome(
    scan: BatchScan, builder: IndexBuilder, gathered: _Gathered
) -> tuple[SegmentStatus, str | None, int]:
    """Return status, error and valid bytes, as Kafka's recovery would treat the segment."""
    refusals = [refusal for refusal in (builder.refusal, gathered.failure) if refusal]
    if refusals:
        position, why = min(refusals)
        return SegmentStatus.INVALID, f"at byte {position}: {why}", position
    if scan.load_failure:
        return SegmentStatus.INVALID, scan.load_failure, scan.valid_bytes
    if scan.valid_bytes < scan.size_bytes:
        return SegmentStatus.TRUNCATED, scan.damage, scan.valid_bytes
    return SegmentStatus.OK if scan.size_bytes else SegmentStatus.EMPTY, None, scan.valid_bytes


def unreadable(
    error: str | None, size_bytes: int = 0, status: SegmentStatus = SegmentStatus.UNREADABLE
) -> BuiltIndexes:
    """Return the result for a segment whose bytes could not be read; `status` is in NOT_READ."""
    return _Gathered().result(status, error, size_bytes=size_bytes)


def index_file(
    log: Location,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
    watcher: Watcher | None = None,
    largest_before: int = NO_TIMESTAMP,
) -> BuiltIndexes:
    """Return the indexes of the segment file `log`. Errors are a status, never an exception."""
    size_bytes = 0
    try:
        with scanned(log) as (read_into, size_bytes, view_at):
            return index_segment(
                read_into,
                size_bytes,
                base_offset=base_offset,
                topic=topic,
                settings=settings,
                native=native,
                watcher=watcher,
                view_at=view_at,
                largest_before=largest_before,
            )
    except CorruptSegmentError as error:
        return unreadable(str(error), size_bytes)
    except FileReadError as error:
        archived = is_archived(error)
        status = SegmentStatus.ARCHIVED if archived else SegmentStatus.UNREADABLE
        return unreadable(one_line(error), size_bytes, status)


def with_whole_log(
    index: BuiltIndexes, *, is_last: bool, next_base_offset: int | None
) -> BuiltIndexes:
    """Return the indexes of a scanned log; zeros after its last batch may be no damage.

    `error` is then a note, and the status is that of the batches.
    """
    if not index.only_zeros_follow or not is_whole_before_zeros(
        index.end_offset, is_last=is_last, next_base_offset=next_base_offset
    ):
        return index
    zeros = index.size_bytes - index.valid_bytes
    note = (
        f"the last {counted(zeros, 'byte')} are zeros, as in a preallocated file or after a power "
        "failure; they are not of the log"
    )
    status = SegmentStatus.OK if index.valid_bytes else SegmentStatus.EMPTY
    return replace(index, status=status, error=note)


class FileTimeEntry(NamedTuple):
    """The entry of a closed segment whose log has no timestamps: `--untimestamped`."""

    last_modified_ms: int
    offset: int

    @classmethod
    def of(cls, rule: str, segment: Segment) -> "FileTimeEntry | None":
        """Return the entry for a listed segment, None if the rule gives it none."""
        if segment.base_offset is None or segment.last_modified_ms is None:
            return None
        next_base_offset = None if segment.active_segment else segment.next_base_offset
        offset = entry_offset(rule, segment.base_offset, next_base_offset, segment.last_modified_ms)
        return None if offset is None else cls(segment.last_modified_ms, offset)


def with_file_time(index: BuiltIndexes, entry: FileTimeEntry | None) -> BuiltIndexes:
    """Return the indexes of a scanned log, with the entry if the log has batches but no times."""
    if entry is None or not has_no_timestamps(index):
        return index
    data = index_of_file_time(*entry, base_offset=index.base_offset)
    return replace(index, time_index_data=data)


def has_no_timestamps(index: BuiltIndexes) -> bool:
    """Return whether a log has batches, and none of them a timestamp."""
    is_read = index.status in _HAS_BATCHES and index.time_index_data is not None
    return bool(
        is_read
        and index.summary["batch_count"]
        and int(index.summary["max_timestamp"]) <= NO_TIMESTAMP
    )


class TailIndexes(NamedTuple):
    """A segment's index files in one directory, as listed."""

    place: Location  # of the `.timeindex`
    time_index: FileStatus
    offset_index: FileStatus | None  # None: missing


class Tail(NamedTuple):
    """The last entry of a `.timeindex` and the first batch of its log, read without the rest."""

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
    """Return the facts at the end of an index, None if it cannot be trusted: `--read tail`.

    With `offset_index`, the `.index` must be there, too. A file that cannot be read is not trusted:
    the caller then reads the log and finds the error.
    """
    size = files.time_index.size_bytes
    if not size or not _is_whole(files.time_index, TIME_ENTRY_BYTES, segment_index_bytes):
        return None
    if offset_index and not _is_whole(files.offset_index, OFFSET_ENTRY_BYTES, segment_index_bytes):
        return None
    try:
        with opened(files.place) as (read_into, now):
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


def _is_whole(file: FileStatus | None, entry_bytes: int, segment_index_bytes: int) -> bool:
    """Return whether the file has complete entries only, and is not preallocated by a broker."""
    if file is None or file.size_bytes % entry_bytes:
        return False
    return file.size_bytes not in preallocated_bytes(segment_index_bytes, entry_bytes)
