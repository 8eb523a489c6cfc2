"""Build the segments of one bin: their index files and catalog rows, the work of one task."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa

import kip33
from kip33.archive.directory import Segment
from kip33.archive.listing import LISTING
from kip33.archive.segment_paths import beside
from kip33.builds.build_options import BuildSpec, file_time_settings_json
from kip33.builds.index_files import Published, TargetIndexFile, log_has_changed
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.pending_rows import (
    PENDING,
    PRODUCERS,
    TXNINDEX,
    Built,
    WaitingIndex,
    WaitingIndexes,
    WaitingPuts,
    is_pending,
    offset_index_waits,
    pending_row,
    waits_for_time_index,
    with_offset_index,
    withdraw,
)
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.draft import PartWriter
from kip33.catalog.schema import IndexFileState
from kip33.drafts.designs import design_of
from kip33.formats.batch import NO_TIMESTAMP
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
)
from kip33.indexing.verification import verify_file
from kip33.rules.broker_start import CUT, REFUSED, hidden_aborts_note, may_have_offset_index
from kip33.rules.index_tail import LAST_HEADER_BYTES
from kip33.rules.index_verdict import GOOD, IndexVerdict
from kip33.rules.producer_state import changes_as_json
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
from kip33.stores.files import FileStatus
from kip33.stores.locations import Location
from kip33.stores.own_files import set_flushing

LISTED_ROWS_AT_ONCE = 4096  # rows of a bin's listing that are Python objects at one time
_NO_FILE: Final = (None, None, None, None)
_INDEX_COLUMNS: Final = tuple(  # of the two index files, in the order of a `PublishedFile`
    tuple(f"{kind}_index_{what}" for what in ("bytes", "modified_ms", "settings", "crc32c"))
    for kind in ("time", "offset")
)


class TaskResult(NamedTuple):
    """The result of a task: its parts and figures, but no rows."""

    part: SnapshotPart
    bytes_read: int  # of logs
    pending: SnapshotPart | None = None  # rows that wait for their `.txnindex`
    unreadable: int = 0  # logs
    first_unreadable: tuple[str, str] | None = None  # the smallest URI, and the reason


def build_bin(build: BuildSpec, staging: Location, number: int, files: pa.Table) -> TaskResult:
    """Build the segments of one bin and publish their rows as one part: the work of one task.

    `files` is a LISTING with the columns `ours`, `transaction_index_ours`,
    `producer_snapshot_ours`, `log_is_new` and LARGEST_BEFORE; `number` is the part's.
    """
    set_flushing(build.fsync)
    writer = PartWriter(staging, number)
    pending = PartWriter(staging, number, "pending", PENDING)
    bytes_read = unreadable = 0
    first_unreadable: tuple[str, str] | None = None
    flusher = IndexFlusher()
    waiting = WaitingIndexes(build, flusher)
    puts = WaitingPuts(build, files)
    build_one = partial(_build_one, build, puts)
    read = map_in_order(
        build.source,
        _segments(files),
        build_one,
        held_bytes=lambda work: work.segment.size_bytes or 0,
    )
    indexed = chain(chain.from_iterable(map(waiting.complete, read)), waiting.complete_all())
    for built in chain(chain.from_iterable(map(puts.complete, indexed)), puts.complete_all()):
        if built.pending:
            pending.append(built.pending.as_dict())
        else:
            writer.append(built.row)
        bytes_read += built.bytes_read
        if built.row["status"] == SegmentStatus.UNREADABLE:
            unreadable += 1
            log = (built.row["log_uri"], built.row["error"] or "")
            first_unreadable = min(first_unreadable or log, log)
    flusher.flush()
    pending_part = pending.publish() if pending.rows else None
    return TaskResult(writer.publish(), bytes_read, pending_part, unreadable, first_unreadable)


class _Work(NamedTuple):
    """A segment and what the catalog knows about it."""

    segment: Segment
    ours: bool  # its index files
    transaction_index_ours: bool
    producer_snapshot_ours: bool
    log_is_new: bool  # to a catalog that has a snapshot
    largest_before: int  # timestamp of earlier segments, if the index design needs it


def _segments(files: pa.Table) -> Iterator[_Work]:
    """Yield a bin's segments with what the catalog knows about them."""
    for batch in files.to_batches(max_chunksize=LISTED_ROWS_AT_ONCE):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            fields, known = row[: len(LISTING)], row[len(LISTING) :]
            yield _Work(Segment(*fields), *known)


def _build_one(build: BuildSpec, puts: WaitingPuts, work: _Work) -> Built:
    built = build_segment(
        build,
        work.segment,
        ours=work.ours,
        transaction_index_ours=work.transaction_index_ours,
        producer_snapshot_ours=work.producer_snapshot_ours,
        log_is_new=work.log_is_new,
        largest_before=work.largest_before,
        reads_back=not puts.waits(work.segment),
    )
    return built if build.source.is_local else with_offset_index(build, built)


def build_segment(  # parameters: what the catalog knows of the segment, and how it is read
    build: BuildSpec,
    segment: Segment,
    *,
    ours: bool,
    transaction_index_ours: bool = False,
    producer_snapshot_ours: bool = False,
    log_is_new: bool = False,
    largest_before: int = NO_TIMESTAMP,
    reads_back: bool = True,
    native: bool = True,
) -> Built:
    """Read one segment, publish its index files, return its catalog row.

    `ours`: this catalog's builds wrote the existing index files, so they may be replaced; others
    only with `overwrite`. `transaction_index_ours` is the same for the `.txnindex`, and
    `producer_snapshot_ours` for the `.snapshot`.
    `log_is_new`: no earlier build knew the log, so a note says that a kept file existed before.
    Without `reads_back` the row lacks the times of files that are put into a bucket.
    No error is raised: a fault of the log or of publishing is the row's `status` and `error`. A
    `.txnindex` or a `.snapshot` is not written here, nor an `.index` that waits.
    """
    build = build.of_topic(segment.topic)
    log = segment.log(build.source)
    if segment.is_directory:
        index = unreadable(segment.error or "not listed")
        return Built(_row_of(build, segment, log, index, Published()), 0)
    built_before = ours and segment.target_time_index_bytes is not None
    asks_tail = build.read_tail and not segment.error
    if asks_tail and not built_before:  # kip33's index is of the log before its change
        row = _row_without_reading(build, segment, log)
        if row:
            return Built(row, LAST_HEADER_BYTES)
    index, files = _indexes(build, segment, log, largest_before, native=native)
    waits = offset_index_waits(build, segment, index)
    log_changed = partial(log_has_changed, log, segment.size_bytes, segment.last_modified_ms)
    published = Published(log if build.in_place else None, log_changed=log_changed)
    waits_here = not waits and waits_for_time_index(build, segment, index.status)
    offset_waits = waits_here and len(files) > 1
    for file in files[:1] if waits or offset_waits else files:
        published.add(
            file._replace(before_log=log_is_new, reads_back=reads_back),
            ours=ours,
            overwrite=build.overwrite,
            proves_nothing=index.status in NOT_READ,
        )
    if build.in_place and index.status in (CUT, REFUSED):
        place = beside(build.index_location(segment), "index")
        published.withhold(place, index, ours=ours, asked=build.offset_index)
    waiting: WaitingIndex | None = None
    if offset_waits:
        offset_index = files[1]._replace(flush_first=True, reads_back=reads_back)
        waiting = WaitingIndex(offset_index, published.is_first_right, log_changed)
    row = _row_of(build, segment, log, index, published)
    entries = files[0].good_entries
    if entries is not None:
        row["time_index_entries"] = entries
    if build.offset_index and index.transactions:
        row["open_transactions"] = UNCHANGED if index.transactions.changes_nothing else None
        if index.producer_changes is not None:
            row["producer_changes"] = changes_as_json(index.producer_changes)
        if build.producer_snapshots or is_pending(segment, index.transactions):
            waiting_data = index.offset_index_data if waits else None
            pending = pending_row(build, segment, row, index.transactions, waiting_data)
            pending = pending._replace(
                ours=transaction_index_ours,
                time_index_is_right=published.is_first_right,
                producer_snapshot_ours=producer_snapshot_ours,
            )
            return Built(row, index.bytes_read, pending, waiting)
    else:
        ours_of = {TXNINDEX: build.offset_index and transaction_index_ours}
        ours_of[PRODUCERS] = build.producer_snapshots and producer_snapshot_ours
        is_unreadable = index.status in NOT_READ
        for kind in (kind for kind, is_ours in ours_of.items() if is_ours):
            withdraw(build, segment, row, kind, is_unreadable=is_unreadable)
    if _lacks_transaction_index(build, segment, index):
        note = hidden_aborts_note(beside(build.index_location(segment), "index").uri)
        row["error"] = "; ".join(filter(None, (row["error"], note)))
    return Built(row, index.bytes_read, waiting=waiting)


def _lacks_transaction_index(build: BuildSpec, segment: Segment, index: BuiltIndexes) -> bool:
    """Return whether an `.index` keeps a broker from writing a `.txnindex` that was lost.

    For builds in place without `--offset-index`; with it, `builds.transaction_files` finds this. A
    marker without records of its producer in this segment may have aborted nothing.
    """
    if build.offset_index or not build.in_place or index.transactions is None:
        return False
    if not may_have_offset_index(index.status) or segment.target_offset_index_bytes is None:
        return False
    has_aborted = bool((index.transactions.aborts[:, KNOWN_BY] & BEGAN_HERE).any())
    return has_aborted and not segment.target_transaction_index_bytes


def _indexes(
    build: BuildSpec, segment: Segment, log: Location, largest_before: int, *, native: bool
) -> tuple[BuiltIndexes, list[TargetIndexFile]]:
    """Return the segment's indexes and the files to publish, the `.timeindex` first."""
    target = build.index_location(segment)
    offset_target = beside(target, "index") if build.offset_index else None
    base_offset, topic = segment.base_offset or 0, segment.topic or ""
    settings = build.index_settings
    file_time = FileTimeEntry.of(build.settings.untimestamped, segment)
    good_entries: int | None = None
    offset_good_entries: int | None = None
    good_settings: str | None = None
    offset_settings: str | None = None
    if segment.error:
        index = unreadable(segment.error)
    elif build.only_damaged:
        verdict, index = verify_file(
            log,
            target,
            offset_target,
            base_offset=base_offset,
            topic=topic,
            settings=build.settings,
            native=native,
            file_time=file_time,
            with_producers=build.producer_snapshots,
        )
        good_entries = verdict.entries if verdict.verdict in GOOD else None
        offset_good_entries = 0 if verdict.offset_index_verdict in GOOD else None
        if (verdict.verdict, verdict.dialect) == (IndexVerdict.IDENTICAL, build.settings.dialect):
            good_settings = settings
        is_same = verdict.offset_index_verdict == IndexVerdict.IDENTICAL
        offset_settings = settings if is_same else None
    else:
        index = index_file(
            log,
            base_offset=base_offset,
            topic=topic,
            settings=build.settings,
            native=native,
            largest_before=largest_before,
            with_producers=build.producer_snapshots,
        )
        index = with_file_time(index, file_time)
    time_settings = settings
    if file_time and has_no_timestamps(index):
        time_settings = file_time_settings_json(build.settings, file_time.offset)
        good_settings = time_settings if good_settings else None
    time_index = TargetIndexFile(
        target,
        index.time_index_data,
        time_settings,
        segment.target_time_index_bytes is not None,
        good_entries,
        good_settings,
        _seen(segment.target_time_index_bytes, segment.target_time_index_modified_ms),
    )
    if offset_target is None or (build.in_place and index.status in (CUT, REFUSED)):
        return index, [time_index]
    offset_index = TargetIndexFile(
        offset_target,
        index.offset_index_data,
        settings,
        segment.target_offset_index_bytes is not None,
        offset_good_entries,
        offset_settings,
        _seen(segment.target_offset_index_bytes, segment.target_offset_index_modified_ms),
    )
    return index, [time_index, offset_index]


def _seen(size_bytes: int | None, modified_ms: int | None) -> FileStatus | None:
    return None if size_bytes is None else FileStatus(size_bytes, modified_ms)


def _tail_row(build: BuildSpec, segment: Segment, log: Location, tail: Tail) -> dict[str, Any]:
    """Return the row of a log that was not read: unknown columns are null."""
    names_next = build.settings.dialect == "kip33"  # such an entry names the offset after a batch
    files = tail.files
    offset_index: tuple[int | None, int | None] = (None, None)
    if build.offset_index:
        offset_index = files.offset_index_bytes, files.offset_index_modified_ms
    return _listed(build, segment, log) | {
        "size_bytes": tail.log_bytes,
        "index_uri": files.time_index.uri,
        "first_batch_timestamp": tail.first_batch.max_timestamp,
        "max_timestamp": tail.last_entry.timestamp,
        "offset_of_max_timestamp": None if names_next else tail.last_entry.offset,
        "largest_timestamp": tail.last_entry.timestamp,
        "largest_timestamp_source": TimestampSource.TIME_INDEX,
        "time_index_entries": (files.time_index_bytes or 0) // TIME_ENTRY_BYTES,
        "status": SegmentStatus.UNVERIFIED,
        "index_file": IndexFileState.KEPT,
        "time_index_bytes": files.time_index_bytes,
        "time_index_modified_ms": files.time_index_modified_ms,
        "offset_index_bytes": offset_index[0],
        "offset_index_modified_ms": offset_index[1],
    }


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
        "build_settings": build.build_settings,
        "kip33_version": kip33.__version__,
    }


def _row_of(
    build: BuildSpec, segment: Segment, log: Location, index: BuiltIndexes, published: Published
) -> dict[str, Any]:
    """Return the row of a log that was read, or could not be, and of its index files."""
    row = _listed(build, segment, log)
    row["status"] = index.status
    row["error"] = "; ".join(filter(None, (index.error, *published.notes))) or None
    row["index_file"] = published.state
    if row["index_file"]:
        row["index_uri"] = build.index_location(segment).uri
        for columns, file in zip(_INDEX_COLUMNS, published.files, strict=True):
            row.update(zip(columns, file or _NO_FILE, strict=True))
    # What the other figures of an invalid log count depends on where the scan stopped.
    if index.status == SegmentStatus.INVALID:
        return row | {"size_bytes": index.size_bytes, "valid_bytes": index.valid_bytes}
    if index.status in NOT_READ:
        return row
    # One call for all numbers: each field of a record is an object of numpy.
    summary = dict(zip(SUMMARY_RECORD.names or (), index.summary.item(), strict=True))
    max_timestamp = summary["max_timestamp"]
    row["size_bytes"] = index.size_bytes
    row["valid_bytes"] = index.valid_bytes
    row["batch_count"] = summary["batch_count"]
    row["out_of_order_batches"] = summary["out_of_order_batches"]
    row["record_count"] = None if summary["wrappers"] else summary["record_count"]
    row["max_timestamp"] = max_timestamp
    row["timestamp_types"] = names_of(summary["timestamp_types"], TIMESTAMP_TYPES)
    row["magics"] = list(index.magics)
    row["codecs"] = codec_names(summary["codecs"])
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
    at_target = TailIndexes(
        build.index_location(segment),
        segment.target_time_index_bytes,
        segment.target_time_index_modified_ms,
        segment.target_offset_index_bytes,
        segment.target_offset_index_modified_ms,
    )
    beside_log = TailIndexes(
        beside(log, "timeindex"),
        segment.beside_time_index_bytes,
        segment.beside_time_index_modified_ms,
        segment.beside_offset_index_bytes,
        segment.beside_offset_index_modified_ms,
    )
    places = (
        [at_target] if at_target.time_index == beside_log.time_index else [at_target, beside_log]
    )
    for files in places:
        if _is_older(files.time_index_modified_ms, log, segment):
            continue  # the log may have grown since: the last entry may be stale
        tail = read_tail(
            log,
            files,
            base_offset=segment.base_offset or 0,
            next_base_offset=segment.next_base_offset,
            segment_index_bytes=build.settings.segment_index_bytes,
            offset_index=build.offset_index,
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
