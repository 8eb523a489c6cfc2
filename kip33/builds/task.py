"""Build the segments of one bin: their index files and catalog rows, the work of one task."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kip33
from kip33.archive.directory import Segment
from kip33.archive.listing import LISTING
from kip33.archive.segment_paths import beside, index_of_row
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import (
    FILES_WRITTEN,
    Published,
    TargetIndexFile,
    add_notes,
    log_has_changed,
    record,
)
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.pending_rows import (
    PENDING,
    Built,
    WaitingIndex,
    WaitingIndexes,
    WaitingPuts,
    extra_columns,
    with_offset_index,
)
from kip33.builds.small_logs import GROUP_ROWS, SmallLogs, groups_small_logs
from kip33.catalog.catalog import id_of
from kip33.catalog.draft import PartWriter
from kip33.catalog.schema import SEGMENTS, IndexFileState
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.drafts.designs import design_of
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_kinds import IndexKind
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.indexing.segment import (
    BuiltIndexes,
    FileTimeEntry,
    Tail,
    TailIndexes,
    has_no_timestamps,
    index_file,
    read_tail,
    unreadable,
    with_file_time,
    with_whole_log,
)
from kip33.indexing.verification import SegmentVerdict, verify_file
from kip33.rules.broker_start import CUT, REFUSED, may_have_offset_index
from kip33.rules.index_tail import LAST_HEADER_BYTES
from kip33.rules.index_verdict import GOOD, IndexVerdict
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.segment_summary import (
    NOT_READ,
    SUMMARY_RECORD,
    TIMESTAMP_TYPES,
    SegmentStatus,
    TimestampSource,
    codec_names,
    largest_timestamp,
    names_of,
    smallest_timestamp,
)
from kip33.rules.transaction_index import UNCHANGED
from kip33.rules.transactions import BEGAN_HERE, KNOWN_BY
from kip33.stores.concurrently import map_in_order
from kip33.stores.locations import Location
from kip33.stores.own_files import set_flushing, temporary_files_of

_KINDS: Final = tuple(IndexKind)
_SUMMARY_FIELDS: Final = SUMMARY_RECORD.names or ()
LISTED_ROWS_AT_ONCE: Final = 4096  # rows of a bin's listing that are Python objects at one time


class TaskResult(NamedTuple):
    """The result of a task: its parts and figures, but no rows."""

    part: SnapshotPart
    bytes_read: int  # of logs
    files_written: int = 0  # index files
    pending: SnapshotPart | None = None  # rows that wait for their `.txnindex`
    unreadable: int = 0  # logs
    first_unreadable: tuple[str, str] | None = None  # the smallest URI, and the reason


def build_bin(build: BuildSpec, staging: Location, number: int, files: pa.Table) -> TaskResult:
    """Build the segments of one bin and publish their rows as one part: the work of one task.

    `files` are of `KnownSegments.to_read`; `number` is the part's.
    """
    set_flushing(build.fsync)
    with temporary_files_of(id_of(staging.name)):
        return _build_bin(build, staging, number, files)


def _build_bin(build: BuildSpec, staging: Location, number: int, files: pa.Table) -> TaskResult:
    result = _BinResult(staging, number)
    flusher = IndexFlusher()
    if groups_small_logs(build, files.num_rows):
        logs = SmallLogs(build, flusher)
        for first in range(0, files.num_rows, GROUP_ROWS):
            _build_group(build, logs, flusher, files.slice(first, GROUP_ROWS), result)
    else:
        for built in _built(build, files, flusher):
            result.add(built)
    flusher.flush()
    return result.publish()


def _built(build: BuildSpec, files: pa.Table, flusher: IndexFlusher) -> Iterator[Built]:
    """Yield the segments of a bin one after another, when nothing of them waits any more."""
    waiting = WaitingIndexes(build, flusher)
    puts = WaitingPuts(build, files)
    read = map_in_order(
        build.source,
        _segments(files),
        partial(_build_one, build, puts),
        held_bytes=lambda work: work.segment.size_bytes or 0,
    )
    indexed = chain(chain.from_iterable(map(waiting.complete, read)), waiting.complete_all())
    yield from chain(chain.from_iterable(map(puts.complete, indexed)), puts.complete_all())


def _build_group(
    build: BuildSpec, logs: SmallLogs, flusher: IndexFlusher, group: pa.Table, result: "_BinResult"
) -> None:
    """Build the plain logs of a group together, and the others one by one; the order stays."""
    plain = logs.done_of(group)
    others = [*_built(build, group.filter(pa.array(~plain.is_done)), flusher)]
    of_others = pa.Table.from_pylist([built.row for built in others], SEGMENTS)
    places = np.concatenate([np.flatnonzero(plain.is_done), np.flatnonzero(~plain.is_done)])
    rows = pa.concat_tables([plain.rows, of_others]).take(pa.array(np.argsort(places)))
    result.add_group(rows, plain.rows, others)


class _BinResult:
    """The parts and the figures of a bin so far."""

    def __init__(self, staging: Location, number: int) -> None:
        self._writer = PartWriter(staging, number)
        self._pending = PartWriter(staging, number, "pending", PENDING)
        self._bytes_read = self._files_written = self._unreadable = 0
        self._first_unreadable: tuple[str, str] | None = None

    def add(self, built: Built) -> None:
        """Add a segment."""
        if built.pending:
            self._pending.append(built.row | built.pending)
        else:
            self._writer.append(built.row)
        self._count(built)

    def add_group(self, rows: pa.Table, plain: pa.Table, others: Sequence[Built]) -> None:
        """Add the rows of a group: each plain log has an index file that was written."""
        self._writer.append_table(rows)
        self._bytes_read += pc.sum(plain["size_bytes"]).as_py() or 0
        self._files_written += plain.num_rows
        for built in others:
            self._count(built)

    def _count(self, built: Built) -> None:
        self._bytes_read += built.bytes_read
        self._files_written += built.row.get(FILES_WRITTEN, 0)
        if built.row["status"] == SegmentStatus.UNREADABLE:
            self._unreadable += 1
            log = (built.row["log_uri"], built.row["error"] or "")
            self._first_unreadable = min(self._first_unreadable or log, log)

    def publish(self) -> TaskResult:
        """Write the parts."""
        pending_part = self._pending.publish() if self._pending.rows else None
        return TaskResult(
            *(self._writer.publish(), self._bytes_read, self._files_written, pending_part),
            *(self._unreadable, self._first_unreadable),
        )


class KnownSegment(NamedTuple):
    """A segment and what the catalog knows about it."""

    segment: Segment
    ours: frozenset[IndexKind] = frozenset()  # existing files of these kinds may be replaced
    log_is_new: bool = False  # to a catalog that has a snapshot
    largest_before: int = NO_TIMESTAMP  # of earlier segments, if the index design needs it


def _segments(files: pa.Table) -> Iterator[KnownSegment]:
    """Yield a bin's segments with what the catalog knows about them."""
    for batch in files.to_batches(max_chunksize=LISTED_ROWS_AT_ONCE):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            segment, (*ours, log_is_new, largest) = row[: len(LISTING)], row[len(LISTING) :]
            kinds = frozenset(compress(_KINDS, ours))
            yield KnownSegment(Segment(*segment), kinds, log_is_new, largest)


def _build_one(build: BuildSpec, puts: WaitingPuts, known: KnownSegment) -> Built:
    built = build_segment(build, known, reads_back=not puts.waits(known.segment))
    return built if build.source.is_local else with_offset_index(build, built)


def build_segment(
    build: BuildSpec, known: KnownSegment, *, reads_back: bool = True, native: bool = True
) -> Built:
    """Read one segment, publish its index files, return its catalog row.

    Existing files of other programs are replaced only with `overwrite`. Without `reads_back` the
    row lacks the times of files that are put into a bucket.
    No error is raised: a fault of the log or of publishing is the row's `status` and `error`. A
    `.txnindex` is not written here, nor an `.index` that waits.
    """
    segment, ours = known.segment, IndexKind.TIME in known.ours
    build = build.of_topic(segment.topic)
    log, time_index = segment.log(build.source), build.index_location(segment)
    if segment.is_directory:
        index = unreadable(segment.error or "not listed")
        return Built(_row_of(build, segment, log, time_index, index, Published()), 0)
    built_before = ours and segment.target_time_index_bytes is not None
    asks_tail = build.read_tail and not segment.error
    if asks_tail and not built_before:  # kip33's index is of the log before its change
        row = _row_without_reading(build, segment, log)
        if row:
            return Built(row, LAST_HEADER_BYTES)
    file_time = FileTimeEntry.of(build.settings.untimestamped, segment)
    index, files = _indexes(
        build, known, log, time_index, file_time, reads_back=reads_back, native=native
    )
    log_changed = partial(log_has_changed, log, segment.size_bytes, segment.last_modified_ms)
    published = Published(log if build.in_place else None, log_changed=log_changed)
    waiting_file: TargetIndexFile | None = None
    if _offset_index_waits(build, segment, index):
        waiting_file = files.pop(IndexKind.OFFSET)
    for file in files.values():
        published.add(
            file,
            ours=ours,
            overwrite=build.overwrite,
            proves_nothing=index.status in NOT_READ,
        )
    if build.in_place and index.recovered_status in (CUT, REFUSED):
        place = beside(time_index, "index")
        published.withhold(place, index, ours=ours, asked=IndexKind.OFFSET in build.kinds)
    row = _row_of(build, segment, log, time_index, index, published)
    if index.is_understated:
        add_notes(row, SegmentNote.UNDERSTATED)
    if row.get("time_index_matches") and file_time and has_no_timestamps(index):
        row["file_time_offset"] = file_time.offset
    entries = files[IndexKind.TIME].good_entries
    if entries is not None:
        row["time_index_entries"] = entries
    has_aborts = index.transactions is not None and len(index.transactions.aborts) > 0
    waiting: WaitingIndex | None = None
    if waiting_file and not has_aborts:
        offset_index = waiting_file._replace(flush_first=True, before_log=False)
        waiting = WaitingIndex(offset_index, published.is_first_right, log_changed)
    if index.transactions and IndexKind.TRANSACTION in build.kinds:
        row["open_transactions"] = UNCHANGED if index.transactions.changes_nothing else None
        pending = extra_columns(build, segment, index, known.ours)
        if pending:
            waits = waiting_file and has_aborts
            pending["waiting_offset_index"] = index.offset_index_data if waits else None
            pending["time_index_is_right"] = published.is_first_right
        return Built(row, index.bytes_read, pending, waiting)
    if IndexKind.TRANSACTION in build.kinds & known.ours:
        _withdraw(build, segment, row, is_unreadable=index.status in NOT_READ)
    if _lacks_transaction_index(build, segment, index):
        add_notes(row, SegmentNote.HIDES_ABORTS)
    return Built(row, index.bytes_read, waiting=waiting)


def _offset_index_waits(build: BuildSpec, segment: Segment, index: BuiltIndexes) -> bool:
    """Return whether the `.index` is new and in place: it waits for the files beside it.

    It waits for the `.txnindex` if transactions were aborted, otherwise for the `.timeindex`.
    """
    is_new = segment.target_offset_index_bytes is None and may_have_offset_index(
        index.recovered_status
    )
    return build.in_place and IndexKind.OFFSET in build.kinds and is_new


def _withdraw(
    build: BuildSpec, segment: Segment, row: dict[str, Any], *, is_unreadable: bool
) -> None:
    """Delete our `.txnindex` whose log gives no index now; errors are the row's."""
    published = Published()
    place = index_of_row(build.index_location(segment), IndexKind.TRANSACTION)
    target = TargetIndexFile(IndexKind.TRANSACTION, place, None)
    published.add(target, ours=True, overwrite=False, proves_nothing=is_unreadable)
    published.add_to(row)
    if published.files[0]:
        record(row, IndexKind.TRANSACTION, published.files[0])


def _lacks_transaction_index(build: BuildSpec, segment: Segment, index: BuiltIndexes) -> bool:
    """Return whether an `.index` keeps a broker from writing a `.txnindex` that was lost.

    For builds in place without `--offset-index`; with it, `builds.transaction_files` finds this. A
    marker without records of its producer in this segment may have aborted nothing.
    """
    if IndexKind.OFFSET in build.kinds or not build.in_place or index.transactions is None:
        return False
    if segment.target_offset_index_bytes is None:
        return False
    if not may_have_offset_index(index.recovered_status):
        return False
    has_aborted = bool((index.transactions.aborts[:, KNOWN_BY] & BEGAN_HERE).any())
    return has_aborted and not segment.target_transaction_index_bytes


def _indexes(
    build: BuildSpec,
    known: KnownSegment,
    log: Location,
    time_index: Location,
    file_time: FileTimeEntry | None,
    *,
    reads_back: bool,
    native: bool,
) -> tuple[BuiltIndexes, dict[IndexKind, TargetIndexFile]]:
    """Return the segment's indexes and the files to publish, the `.timeindex` first."""
    segment = known.segment
    base_offset, topic = segment.base_offset or 0, segment.topic or ""
    verdict: SegmentVerdict | None = None
    if segment.error:
        index = unreadable(segment.error)
    elif build.only_damaged:
        verdict, index = verify_file(
            log,
            time_index,
            beside(time_index, "index") if IndexKind.OFFSET in build.kinds else None,
            base_offset=base_offset,
            topic=topic,
            settings=build.settings,
            native=native,
            file_time=file_time,
        )
    else:
        index = index_file(
            log,
            base_offset=base_offset,
            topic=topic,
            settings=build.settings,
            native=native,
            largest_before=known.largest_before,
        )
        index = with_file_time(index, file_time)
    index = with_whole_log(
        index, is_last=bool(segment.active_segment), next_base_offset=segment.next_base_offset
    )
    files: dict[IndexKind, TargetIndexFile] = {}
    data = {IndexKind.TIME: index.time_index_data, IndexKind.OFFSET: index.offset_index_data}
    for kind in data:
        if kind not in build.kinds:
            continue
        if kind is IndexKind.OFFSET and build.in_place and index.recovered_status in (CUT, REFUSED):
            continue  # it is withheld
        file = TargetIndexFile(
            kind,
            index_of_row(time_index, kind),
            data[kind],
            segment.index_file(kind),
            before_log=known.log_is_new,
            reads_back=reads_back,
        )
        if verdict and verdict.on(kind) in GOOD:
            entries = verdict.entries if kind is IndexKind.TIME else 0
            is_same = verdict.on(kind) == IndexVerdict.IDENTICAL
            if kind is IndexKind.TIME:
                is_same &= verdict.dialect == build.settings.dialect
            file = file._replace(good_entries=entries, good_matches=is_same or None)
        files[kind] = file
    return index, files


def _tail_row(build: BuildSpec, segment: Segment, log: Location, tail: Tail) -> dict[str, Any]:
    """Return the row of a log that was not read: unknown columns are null."""
    names_next = build.settings.dialect == "kip33"  # such an entry names the offset after a batch
    row = _listed(build, segment, log) | {
        "size_bytes": tail.log_bytes,
        "index_uri": tail.files.place.uri,
        "first_batch_timestamp": tail.first_batch.max_timestamp,
        "max_timestamp": tail.last_entry.timestamp,
        "offset_of_max_timestamp": None if names_next else tail.last_entry.offset,
        "largest_timestamp": tail.last_entry.timestamp,
        "largest_timestamp_source": TimestampSource.TIME_INDEX,
        "time_index_entries": tail.files.time_index.size_bytes // TIME_ENTRY_BYTES,
        "status": SegmentStatus.UNVERIFIED,
        "index_file": IndexFileState.KEPT,
        "time_index_bytes": tail.files.time_index.size_bytes,
        "time_index_modified_ms": tail.files.time_index.modified_ms,
    }
    if IndexKind.OFFSET in build.kinds and tail.files.offset_index:
        row["offset_index_bytes"], row["offset_index_modified_ms"] = tail.files.offset_index
    return row


def _listed(build: BuildSpec, segment: Segment, log: Location) -> dict[str, Any]:
    """Return the columns that come from the listing and the settings."""
    return {
        "log_dir": segment.log_dir,
        "topic": segment.topic,
        "partition": segment.partition,
        "base_offset": segment.base_offset,
        "log_uri": log.uri,
        "size_bytes": segment.size_bytes,
        "last_modified_ms": segment.last_modified_ms,
        "active_segment": segment.active_segment,
        "topic_id": segment.topic_id,
        "partition_metadata_modified_ms": segment.partition_metadata_modified_ms,
        "kip33_version": kip33.__version__,
        **build.settings_of_row,
    }


def _row_of(
    build: BuildSpec,
    segment: Segment,
    log: Location,
    time_index: Location,
    index: BuiltIndexes,
    published: Published,
) -> dict[str, Any]:
    """Return the row of a log that was read, or could not be, and of its index files."""
    row = _listed(build, segment, log)
    row["status"] = index.status
    row["error"] = index.error
    published.add_to(row)
    row["index_file"] = published.state
    if row["index_file"]:
        row["index_uri"] = time_index.uri
        for kind, file in zip((IndexKind.TIME, IndexKind.OFFSET), published.files, strict=True):
            record(row, kind, file)
    # What the other figures of an invalid log count depends on where the scan stopped. One that
    # Kafka splits is read to its end.
    if index.status == SegmentStatus.INVALID:
        last_offset = int(index.summary["last_offset"]) if index.is_split else None
        sizes = {"size_bytes": index.size_bytes, "valid_bytes": index.valid_bytes}
        return row | sizes | {"last_offset": last_offset}
    if index.status in NOT_READ:
        return row
    # One call for all numbers: each field of a record is an object of numpy.
    summary = dict(zip(_SUMMARY_FIELDS, index.summary.item(), strict=True))
    max_timestamp = summary["max_timestamp"]
    row["size_bytes"] = index.size_bytes
    row["valid_bytes"] = index.valid_bytes
    row["batch_count"] = summary["batch_count"]
    row["out_of_order_batches"] = summary["out_of_order_batches"]
    row["record_count"] = None if summary["wrappers"] else summary["record_count"]
    row["max_timestamp"] = max_timestamp
    row["timestamp_types"] = list(names_of(summary["timestamp_types"], TIMESTAMP_TYPES))
    row["magics"] = list(index.magics)
    row["codecs"] = list(codec_names(summary["codecs"]))
    row["leader_epochs"] = [epoch for epoch, _ in index.leader_epochs]
    row["leader_epoch_offsets"] = [offset for _, offset in index.leader_epochs]
    row["batches_crc32"] = index.batches_crc32
    if summary["batch_count"]:
        row["last_offset"] = summary["last_offset"]
        row["first_batch_timestamp"] = summary["first_batch_timestamp"]
        row["smallest_timestamp"] = smallest_timestamp(summary)
    if max_timestamp >= 0:
        row["offset_of_max_timestamp"] = summary["offset_of_max_timestamp"]
    if index.time_index_data is not None:
        row["largest_timestamp"], row["largest_timestamp_source"] = largest_timestamp(
            max_timestamp, segment.last_modified_ms or 0
        )
        entry_bytes = design_of(build.settings.dialect).entry.itemsize
        row["time_index_entries"] = len(index.time_index_data) // entry_bytes
    return row


def _row_without_reading(
    build: BuildSpec, segment: Segment, log: Location
) -> dict[str, Any] | None:
    """Return the row from the end of a `.timeindex`, None if no `.timeindex` can be trusted.

    The file of the index directory is tried first, then the one beside the log.
    """
    places = {build.index_location(segment): "target"}
    places.setdefault(beside(log, "timeindex"), "beside")
    for place, where in places.items():
        time_index = segment.index_file(IndexKind.TIME, where)
        if time_index is None or _is_older(time_index.modified_ms, log, segment):
            continue  # the log may have grown since: the last entry may be stale
        tail = read_tail(
            log,
            TailIndexes(place, time_index, segment.index_file(IndexKind.OFFSET, where)),
            base_offset=segment.base_offset or 0,
            next_base_offset=segment.next_base_offset,
            segment_index_bytes=build.settings.segment_index_bytes,
            offset_index=IndexKind.OFFSET in build.kinds,
        )
        if tail:
            return _tail_row(build, segment, log, tail)
    return None


def _is_older(index_modified_ms: int | None, log: Location, segment: Segment) -> bool:
    """Return whether an index is older than its log; unknown times prove nothing."""
    if index_modified_ms is None or segment.last_modified_ms is None:
        return True
    ticks_ms = 1000 if log.is_object_store else 1
    return index_modified_ms // ticks_ms < segment.last_modified_ms // ticks_ms
