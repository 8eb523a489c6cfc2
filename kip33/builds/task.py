"""Build the segments of one bin: their index files and catalog rows, the work of one task."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kip33
from kip33.archive.directory import Segment
from kip33.archive.listing import LISTING
from kip33.archive.segment_paths import beside, index_of_row
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import add_notes, publisher_of, put_into
from kip33.builds.small_logs import GROUP_ROWS, PlainRows, SmallLogs, groups_small_logs
from kip33.builds.transaction_files import PENDING, extra_columns
from kip33.catalog.catalog import id_of
from kip33.catalog.draft import PartWriter
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.drafts.designs import design_of
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_kinds import IndexKind
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.indexing.published_files import (
    IndexPublisher,
    PublishedFiles,
    SegmentFiles,
    TargetFile,
    in_groups,
)
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
from kip33.rules.publication import IndexFileState, Owner, There, Wanted, decide
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


class TaskResult(NamedTuple):
    """The result of a task: its parts and figures, but no rows."""

    part: SnapshotPart
    bytes_read: int  # of logs
    files_written: int = 0  # index files
    pending: SnapshotPart | None = None  # rows that wait for their `.txnindex`
    unreadable: int = 0  # logs
    first_unreadable: tuple[str, str] | None = None  # the smallest URI, and the reason


class KnownSegment(NamedTuple):
    """A segment and what the catalog knows about it."""

    segment: Segment
    ours: frozenset[IndexKind] = frozenset()  # existing files of these kinds may be replaced
    log_is_new: bool = False  # to a catalog that has a snapshot
    largest_before: int = NO_TIMESTAMP  # of earlier segments, if the index design needs it


class _Scanned(NamedTuple):
    """A segment that was read: its row so far, and the index files that it should have."""

    row: dict[str, Any]
    files: SegmentFiles
    bytes_read: int = 0  # of the log
    pending: dict[str, Any] | None = None  # more columns, if the row waits for its `.txnindex`
    file_time_offset: int | None = None  # the row's, if its `.timeindex` has the log's bytes


class Built(NamedTuple):
    """A catalog row and the figures of its work."""

    row: dict[str, Any]
    bytes_read: int  # of the log
    pending: dict[str, Any] | None = None  # more columns, if the row waits for its `.txnindex`
    files_written: int = 0


def build_bin(build: BuildSpec, staging: Location, number: int, files: pa.Table) -> TaskResult:
    """Build the segments of one bin and publish their rows as one part: the work of one task.

    `files` are of `KnownSegments.to_read`; `number` is the part's.
    """
    set_flushing(build.fsync)
    with temporary_files_of(id_of(staging.name)):
        result = _BinResult(staging, number)
        publisher = publisher_of(build)
        logs = SmallLogs(build) if groups_small_logs(build, files.num_rows) else None
        if logs is None:
            built = build_segments(build, _segments(files), publisher)
            while some := [*islice(built, GROUP_ROWS)]:
                result.add_group(PlainRows.none(len(some)), some)
        else:
            for first in range(0, files.num_rows, GROUP_ROWS):
                group = files.slice(first, GROUP_ROWS)
                plain = logs.done_of(group, publisher)
                rest = _segments(group.filter(pa.array(~plain.is_done)))
                result.add_group(plain, [*build_segments(build, rest, publisher)])
        publisher.finish()
        return result.publish()


def build_segments(
    build: BuildSpec,
    segments: Iterable[KnownSegment],
    publisher: IndexPublisher,
    *,
    native: bool = True,
) -> Iterator[Built]:
    """Read each segment, publish index files a group at a time, yield the segments in order.

    Existing files of other programs are replaced only with `overwrite`. No error is raised for a
    segment: a fault of the log or of publishing is the row's `status` and `error`. A `.txnindex` is
    not written here, nor an `.index` that waits for one.
    """
    scanned = map_in_order(
        build.source,
        segments,
        partial(_scan_segment, build, native=native),
        held_bytes=lambda known: known.segment.size_bytes or 0,
    )
    for group in in_groups(scanned, lambda one: one.files):
        published = publisher.publish([one.files for one in group])
        yield from map(_built, group, published)


class _BinResult:
    """The parts and the figures of a bin so far."""

    def __init__(self, staging: Location, number: int) -> None:
        self._writer = PartWriter(staging, number)
        self._pending = PartWriter(staging, number, "pending", PENDING)
        self._bytes_read = self._files_written = self._unreadable = 0
        self._first_unreadable: tuple[str, str] | None = None

    def add_group(self, plain: PlainRows, others: Sequence[Built]) -> None:
        """Add the segments of a group: the rows of plain logs, and the others, in their order."""
        at = np.flatnonzero(~plain.is_done)
        ready = [number for number, built in enumerate(others) if not built.pending]
        rows = pa.Table.from_pylist([others[number].row for number in ready], SEGMENTS)
        if plain.rows.num_rows:
            order = np.argsort(np.concatenate([np.flatnonzero(plain.is_done), at[ready]]))
            rows = pa.concat_tables([plain.rows, rows]).take(pa.array(order))
        if rows.num_rows:
            self._writer.append_table(rows)
        self._bytes_read += pc.sum(plain.rows["size_bytes"]).as_py() or 0
        self._files_written += plain.files_written
        for built in others:
            if built.pending:
                self._pending.append(built.row | built.pending)
            self._count(built)

    def _count(self, built: Built) -> None:
        self._bytes_read += built.bytes_read
        self._files_written += built.files_written
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


def _segments(files: pa.Table) -> Iterator[KnownSegment]:
    """Yield a bin's segments with what the catalog knows about them."""
    for batch in files.to_batches(max_chunksize=GROUP_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            segment, (*ours, log_is_new, largest) = row[: len(LISTING)], row[len(LISTING) :]
            kinds = frozenset(compress(_KINDS, ours))
            yield KnownSegment(Segment(*segment), kinds, log_is_new, largest)


def _scan_segment(build: BuildSpec, known: KnownSegment, *, native: bool) -> _Scanned:
    """Read one segment; nothing is written. A fault of the log is the row's `status`."""
    segment = known.segment
    build = build.of_topic(segment.topic)
    log = segment.log(build.source)
    if segment.is_directory:
        index = unreadable(segment.error or "not listed")
        return _Scanned(_row_of(build, segment, log, index), SegmentFiles(log))
    built_before = IndexKind.TIME in known.ours and segment.target_time_index_bytes is not None
    asks_tail = build.read_tail and not segment.error
    if asks_tail and not built_before:  # kip33's index is of the log before its change
        row = _row_without_reading(build, segment, log)
        if row:
            return _Scanned(row, SegmentFiles(log), LAST_HEADER_BYTES)
    file_time = FileTimeEntry.of(build.settings.untimestamped, segment)
    index, verdict = _index(build, known, log, file_time, native=native)
    row = _row_of(build, segment, log, index)
    if verdict and verdict.verdict in GOOD:
        row["time_index_entries"] = verdict.entries
    files, notes = _files(build, known, index, verdict)
    if index.is_understated:
        notes.append(SegmentNote.UNDERSTATED)
    if _lacks_transaction_index(build, segment, index):
        notes.append(SegmentNote.HIDES_ABORTS)
    add_notes(row, *notes)
    pending: dict[str, Any] | None = None
    if index.transactions and IndexKind.TRANSACTION in build.kinds:
        row["open_transactions"] = UNCHANGED if index.transactions.changes_nothing else None
        pending = extra_columns(build, segment, index.transactions, known.ours)
        if pending and files.new_index and len(index.transactions.aborts):
            pending["waiting_offset_index"] = files.new_index.data
            files = files._replace(new_index=None)
    has_file_time = file_time is not None and has_no_timestamps(index)
    offset = file_time.offset if file_time and has_file_time else None
    return _Scanned(row, files, index.bytes_read, pending, offset)


def _built(scanned: _Scanned, published: PublishedFiles) -> Built:
    """Return a segment after its index files were published."""
    row, pending = scanned.row, scanned.pending
    put_into(row, published)
    if published.states and row["index_file"]:
        row["index_uri"] = scanned.files.files[0].place.uri
    if scanned.file_time_offset is not None and row.get("time_index_matches"):
        row["file_time_offset"] = scanned.file_time_offset
    if pending:
        pending["time_index_is_right"] = published.is_right
    return Built(row, scanned.bytes_read, pending, published.written)


def _index(
    build: BuildSpec,
    known: KnownSegment,
    log: Location,
    file_time: FileTimeEntry | None,
    *,
    native: bool,
) -> tuple[BuiltIndexes, SegmentVerdict | None]:
    """Return the segment's indexes and, with `only_damaged`, the verdict on what is there."""
    segment, time_index = known.segment, build.index_location(known.segment)
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
    is_last, next_base_offset = bool(segment.active_segment), segment.next_base_offset
    return with_whole_log(index, is_last=is_last, next_base_offset=next_base_offset), verdict


def _files(
    build: BuildSpec, known: KnownSegment, index: BuiltIndexes, verdict: SegmentVerdict | None
) -> tuple[SegmentFiles, list[SegmentNote]]:
    """Return the index files that a segment should have, and notes on those not asked for."""
    segment, time_index = known.segment, build.index_location(known.segment)
    targets: dict[IndexKind, TargetFile] = {}
    notes: list[SegmentNote] = []
    data = {IndexKind.TIME: index.time_index_data, IndexKind.OFFSET: index.offset_index_data}
    in_recovery = _in_recovery(index) if build.in_place else None
    for kind in data:
        wanted = Wanted.BYTES
        if kind is IndexKind.OFFSET and in_recovery:
            wanted = in_recovery
        elif data[kind] is None:
            wanted = Wanted.UNPROVEN if index.status in NOT_READ else Wanted.NONE
        elif verdict and verdict.on(kind) in GOOD:
            wanted = Wanted.GOOD
        if kind in build.kinds:
            targets[kind] = TargetFile(
                kind,
                index_of_row(time_index, kind),
                wanted,
                data[kind],
                IndexKind.TIME in known.ours,
                segment.index_file(kind),
                _is_same(verdict, kind, build) if wanted is Wanted.GOOD and verdict else None,
            )
        elif in_recovery:
            is_there = segment.target_offset_index_bytes is not None
            there = There.OTHER if is_there else There.NOTHING
            note = decide(kind, in_recovery, Owner.ANOTHERS, there).note
            notes += [note] if note else []
    if IndexKind.TRANSACTION in build.kinds & known.ours and index.transactions is None:
        kind = IndexKind.TRANSACTION  # this log gives none now
        wanted = Wanted.UNPROVEN if index.status in NOT_READ else Wanted.NONE
        place, seen = index_of_row(time_index, kind), segment.index_file(kind)
        targets[kind] = TargetFile(kind, place, wanted, None, True, seen)
    may_be_new = build.in_place and may_have_offset_index(index.recovered_status)
    is_new = may_be_new and segment.target_offset_index_bytes is None
    return SegmentFiles(
        segment.log(build.source),
        new_index=targets.pop(IndexKind.OFFSET, None) if is_new else None,
        files=tuple(targets.values()),
        size_bytes=segment.size_bytes,
        last_modified_ms=segment.last_modified_ms,
        before_log=known.log_is_new,
    ), notes


def _in_recovery(index: BuiltIndexes) -> Wanted | None:
    """Return what a broker does with a log that its recovery would change, None for others."""
    if index.is_split:
        return Wanted.SPLIT
    return {CUT: Wanted.CUT, REFUSED: Wanted.REFUSED}.get(index.recovered_status)


def _is_same(verdict: SegmentVerdict, kind: IndexKind, build: BuildSpec) -> bool | None:
    """Return True if a good file has the bytes that the settings give from the log."""
    is_same = verdict.on(kind) == IndexVerdict.IDENTICAL
    if kind is IndexKind.TIME:
        is_same &= verdict.dialect == build.settings.dialect
    return is_same or None


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
    build: BuildSpec, segment: Segment, log: Location, index: BuiltIndexes
) -> dict[str, Any]:
    """Return the row of a log that was read, or could not be, without its index files."""
    row = _listed(build, segment, log)
    row["status"] = index.status
    row["error"] = index.error
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
        if not build.kinds:
            row["index_file"] = IndexFileState.NONE
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
