"""Build the segments of one bin: their index files and catalog rows, the work of one task."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.directory import Segment
from kip33.archive.listing import LISTING, log_uris
from kip33.archive.segment_paths import beside, index_of_row
from kip33.builds.build_options import BuildSpec
from kip33.builds.largest_before import LARGEST_BEFORE
from kip33.builds.reuse import ours_column
from kip33.builds.segment_rows import BuiltRows, LogFigures, rows_of
from kip33.builds.small_logs import GROUP_ROWS, SmallLogs, groups_small_logs
from kip33.builds.transaction_files import PENDING, WAITS, with_waiting
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
    PublishedFile,
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
from kip33.rules.segment_summary import NOT_READ, SegmentStatus, new_summary
from kip33.rules.transaction_index import UNCHANGED
from kip33.rules.transactions import BEGAN_HERE, KNOWN_BY
from kip33.stores.concurrently import map_in_order
from kip33.stores.locations import Location
from kip33.stores.own_files import set_flushing, temporary_files_of

_KINDS: Final = tuple(IndexKind)


class TaskResult(NamedTuple):
    """The result of a task: its parts and figures, but no rows."""

    part: SnapshotPart
    bytes_read: int  # of logs
    files_written: int = 0  # index files
    pending: SnapshotPart | None = None  # rows that wait for their `.txnindex`


class KnownSegment(NamedTuple):
    """A segment and what the catalog knows about it."""

    segment: Segment
    ours: frozenset[IndexKind] = frozenset()  # existing files of these kinds may be replaced
    log_is_new: bool = False  # to a catalog that has a snapshot
    largest_before: int = NO_TIMESTAMP  # of earlier segments, if the index design needs it


class _Scanned(NamedTuple):
    """A segment that was read, and the index files that it should have."""

    indexes: BuiltIndexes
    files: SegmentFiles
    time_index: Location  # the place of its time index
    entries: int | None = None  # of that
    notes: Sequence[SegmentNote] = ()
    kept: PublishedFiles | None = None  # of a log that was not read: the files that it was told by
    open_transactions: str | None = None
    transactions: str | None = None  # as JSON, if the row waits for its `.txnindex`
    waiting_offset_index: bytes | None = None  # if its `.index` waits, too
    file_time_offset: int | None = None  # the row's, if its `.timeindex` has the log's bytes


def build_bin(build: BuildSpec, staging: Location, number: int, files: pa.Table) -> TaskResult:
    """Build the segments of one bin and publish their rows as one part: the work of one task.

    `files` are of `KnownSegments.to_read`; `number` is the part's.
    """
    set_flushing(build.fsync)
    with temporary_files_of(id_of(staging.name)):
        result = _BinResult(staging, number)
        publisher = build.publisher()
        if groups_small_logs(build, files.num_rows):
            logs = SmallLogs(build)
            for first in range(0, files.num_rows, GROUP_ROWS):
                group = files.slice(first, GROUP_ROWS)
                is_done, plain = logs.done_of(group, publisher)
                others = group.filter(pa.array(~is_done))
                built = [plain, *build_segments(build, others, publisher)]
                result.add(_in_order(is_done, built))
        else:
            for one in build_segments(build, files, publisher):
                result.add(one)
        publisher.finish()
        return result.publish()


def build_segments(
    build: BuildSpec, files: pa.Table, publisher: IndexPublisher, *, native: bool = True
) -> Iterator[BuiltRows]:
    """Read each segment, publish index files a group at a time, yield the rows of each group.

    `files` are of `KnownSegments.to_read`. Existing files of other programs are replaced only with
    `overwrite`. No error is raised for a segment: a fault of the log or of publishing is the row's
    `status` and `error`. A `.txnindex` is not written here, nor an `.index` that waits for one.
    """
    scanned = map_in_order(
        build.source,
        _segments(files),
        partial(_scan_segment, build, native=native),
        held_bytes=lambda known: known.segment.size_bytes or 0,
    )
    done = 0
    for group in in_groups(scanned, lambda one: one.files):
        published = publisher.publish([one.files for one in group])
        yield _built(build, files.slice(done, len(group)), group, published)
        done += len(group)


class _BinResult:
    """The parts and the figures of a bin so far."""

    def __init__(self, staging: Location, number: int) -> None:
        self._writer = PartWriter(staging, number)
        self._pending = PartWriter(staging, number, "pending", PENDING)
        self._bytes_read = self._files_written = 0

    def add(self, built: BuiltRows) -> None:
        """Add the next segments."""
        rows = built.rows
        if WAITS in rows.column_names:
            is_ready = pc.is_null(rows[WAITS])
            if waiting := rows.num_rows - (pc.sum(is_ready).as_py() or 0):
                pending = rows.filter(pc.invert(is_ready)) if waiting < rows.num_rows else rows
                self._pending.append_table(pending)
                rows = rows.filter(is_ready)
            rows = rows.select(SEGMENTS.names)
        if rows.num_rows:
            self._writer.append_table(rows)
        self._bytes_read += built.bytes_read
        self._files_written += built.files_written

    def publish(self) -> TaskResult:
        """Write the parts."""
        pending_part = self._pending.publish() if self._pending.rows else None
        part = self._writer.publish()
        return TaskResult(part, self._bytes_read, self._files_written, pending_part)


def _in_order(is_done: npt.NDArray[np.bool_], built: Sequence[BuiltRows]) -> BuiltRows:
    """Return the rows of plain logs, the first ones, and of the others, in the group's order."""
    rows = pa.concat_tables([one.rows for one in built], promote_options="default")
    if not is_done.all():
        at = np.concatenate([np.flatnonzero(is_done), np.flatnonzero(~is_done)])
        rows = rows.take(pa.array(np.argsort(at)))
    figures = (sum(each) for each in zip(*(one[1:] for one in built), strict=True))
    return BuiltRows(rows, *figures)


def _segments(files: pa.Table) -> Iterator[KnownSegment]:
    """Yield a bin's segments with what the catalog knows about them."""
    known = [*LISTING.names, *map(ours_column, _KINDS), "log_is_new", LARGEST_BEFORE]
    for batch in files.select(known).to_batches(max_chunksize=GROUP_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            segment, (*ours, log_is_new, largest) = row[: len(LISTING)], row[len(LISTING) :]
            kinds = frozenset(compress(_KINDS, ours))
            yield KnownSegment(Segment(*segment), kinds, log_is_new, largest)


def _scan_segment(build: BuildSpec, known: KnownSegment, *, native: bool) -> _Scanned:
    """Read one segment; nothing is written. A fault of the log is the row's `status`."""
    segment = known.segment
    build = build.of_topic(segment.topic)
    log, time_index = segment.log(build.source), build.index_location(segment)
    if segment.is_directory:
        index = unreadable(segment.error or "not listed")
        return _Scanned(index, SegmentFiles(log), time_index)
    built_before = IndexKind.TIME in known.ours and segment.target_time_index_bytes is not None
    asks_tail = build.read_tail and not segment.error
    if asks_tail and not built_before:  # kip33's index is of the log before its change
        told = _without_reading(build, segment, log)
        if told:
            return told
    file_time = FileTimeEntry.of(build.settings.untimestamped, segment)
    index, verdict = _index(build, known, log, file_time, native=native)
    files, notes = _files(build, known, index, verdict)
    if index.is_understated:
        notes.append(SegmentNote.UNDERSTATED)
    if _lacks_transaction_index(build, segment, index):
        notes.append(SegmentNote.HIDES_ABORTS)
    open_transactions: str | None = None
    transactions: str | None = None
    waiting: bytes | None = None
    if index.transactions and IndexKind.TRANSACTION in build.kinds:
        open_transactions = UNCHANGED if index.transactions.changes_nothing else None
        if not index.transactions.changes_nothing or segment.index_file(IndexKind.TRANSACTION):
            transactions = index.transactions.to_json()
        if transactions and files.new_index and len(index.transactions.aborts):
            waiting, files = files.new_index.data, files._replace(new_index=None)
    has_file_time = file_time is not None and has_no_timestamps(index)
    return _Scanned(
        index,
        files,
        time_index,
        _entries(build, index, verdict),
        notes,
        open_transactions=open_transactions,
        transactions=transactions,
        waiting_offset_index=waiting,
        file_time_offset=file_time.offset if file_time and has_file_time else None,
    )


def _entries(build: BuildSpec, index: BuiltIndexes, verdict: SegmentVerdict | None) -> int | None:
    """Return the entries of the time index that the log gives, or of a good one that is there."""
    if verdict and verdict.verdict in GOOD:
        return verdict.entries
    if index.time_index_data is None:
        return None
    return len(index.time_index_data) // design_of(build.settings.dialect).entry.itemsize


def _built(
    build: BuildSpec,
    listed: pa.Table,
    group: Sequence[_Scanned],
    published: Sequence[PublishedFiles],
) -> BuiltRows:
    """Return the rows of a group after its index files were published."""
    found = [one.kept or done for one, done in zip(group, published, strict=True)]
    for one, done in zip(group, found, strict=True):
        done.notes[:0] = one.notes
    file_times = [
        one.file_time_offset if done.state and done.matches(IndexKind.TIME) else None
        for one, done in zip(group, found, strict=True)
    ]
    rows = rows_of(
        build,
        listed,
        LogFigures.of([one.indexes for one in group]),
        found,
        log_uri=log_uris(build.source, listed["path"], listed["inside"]),
        index_uri=pa.array([one.time_index.uri for one in group], pa.string()),
        time_index_entries=pa.array([one.entries for one in group], pa.int64()),
        open_transactions=pa.array([one.open_transactions for one in group], pa.string()),
        file_time_offset=pa.array(file_times, pa.int64()),
    )
    if any(one.transactions for one in group):
        rows = with_waiting(
            rows,
            listed,
            transactions=[one.transactions for one in group],
            time_index_uri=[one.time_index.uri for one in group],
            waiting_offset_index=[one.waiting_offset_index for one in group],
            time_index_is_right=[done.is_right for done in found],
        )
    return BuiltRows(
        rows,
        sum(one.indexes.bytes_read for one in group),
        sum(one.written for one in found),
    )


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


def _of_tail(build: BuildSpec, log: Location, tail: Tail) -> _Scanned:
    """Return a log that was not read: the row's other columns are null."""
    names_next = build.settings.dialect == "kip33"  # such an entry names the offset after a batch
    summary = new_summary()
    summary["batch_count"] = 1  # at least
    summary["first_batch_timestamp"] = tail.first_batch.max_timestamp
    summary["max_timestamp"] = tail.last_entry.timestamp
    summary["offset_of_max_timestamp"] = -1 if names_next else tail.last_entry.offset
    index = unreadable(None, tail.log_bytes, SegmentStatus.UNVERIFIED)
    files = {IndexKind.TIME: tail.files.time_index}
    if IndexKind.OFFSET in build.kinds and tail.files.offset_index:
        files[IndexKind.OFFSET] = tail.files.offset_index
    return _Scanned(
        replace(index, summary=summary[0], bytes_read=LAST_HEADER_BYTES),
        SegmentFiles(log),
        tail.files.place,
        tail.files.time_index.size_bytes // TIME_ENTRY_BYTES,
        kept=PublishedFiles(
            {kind: PublishedFile(*status, None, None) for kind, status in files.items()},
            [IndexFileState.KEPT],
        ),
    )


def _without_reading(build: BuildSpec, segment: Segment, log: Location) -> _Scanned | None:
    """Return what the end of a `.timeindex` tells, None if no `.timeindex` can be trusted.

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
            return _of_tail(build, log, tail)
    return None


def _is_older(index_modified_ms: int | None, log: Location, segment: Segment) -> bool:
    """Return whether an index is older than its log; unknown times prove nothing."""
    if index_modified_ms is None or segment.last_modified_ms is None:
        return True
    ticks_ms = 1000 if log.is_object_store else 1
    return index_modified_ms // ticks_ms < segment.last_modified_ms // ticks_ms
