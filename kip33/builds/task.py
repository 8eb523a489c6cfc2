"""Build one segment's index files and its catalog row: the work of a task for each file."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from kip33.archive.directory import Segment
from kip33.archive.listing import LISTING
from kip33.archive.segment_paths import beside
from kip33.builds.build_spec import BuildSpec, file_time_settings_json
from kip33.builds.catalog_row import row_of
from kip33.builds.index_files import Published, Wanted, log_has_changed
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.listed_puts import ListedPuts
from kip33.builds.pending_rows import (
    PENDING,
    PRODUCERS,
    TXNINDEX,
    is_pending,
    offset_index_waits,
    pending_row,
    withdraw,
)
from kip33.builds.tail_rows import row_without_reading
from kip33.builds.waiting_indexes import (
    Built,
    WaitingIndex,
    WaitingIndexes,
    waits_for_time_index,
    with_offset_index,
)
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.draft import PartWriter
from kip33.formats.batch import NO_TIMESTAMP
from kip33.indexing.segment import (
    BuiltIndexes,
    FileTimeEntry,
    has_no_timestamps,
    index_file,
    unreadable,
    with_file_time,
)
from kip33.indexing.verification import verify_file
from kip33.rules.broker_start import CUT, REFUSED, hidden_aborts_note, may_have_offset_index
from kip33.rules.index_tail import LAST_HEADER_BYTES
from kip33.rules.index_verdict import GOOD, IndexVerdict
from kip33.rules.producer_state import changes_as_json
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.rules.transaction_index import UNCHANGED
from kip33.rules.transactions import BEGAN_HERE, KNOWN_BY
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import FileStatus
from kip33.stores.locations import Location
from kip33.stores.own_files import set_flushing

LISTED_ROWS_AT_ONCE = 4096  # rows of a bin's listing that are Python objects at one time


class TaskResult(NamedTuple):
    """What a task returns: its parts and figures, but no rows."""

    part: SnapshotPart
    bytes_read: int  # of logs
    pending: SnapshotPart | None = (
        None  # rows that wait for their `.txnindex`: `builds.pending_rows`
    )
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
    puts = ListedPuts(build, files)
    build_one = partial(_build_one, build, puts)
    read = map_in_order(build.source, _segments(files), build_one, held_bytes=_log_bytes)
    indexed = chain(chain.from_iterable(map(waiting.complete, read)), waiting.complete_all())
    for built in chain(chain.from_iterable(map(puts.complete, indexed)), puts.complete_all()):
        if built.pending:
            pending.append(built.pending.as_dict())
        else:
            writer.append(built.row)
        bytes_read += built.bytes_read
        if built.row["status"] == SegmentStatus.UNREADABLE:
            unreadable += 1
            found = (built.row["log_uri"], built.row["error"] or "")
            first_unreadable = min(first_unreadable or found, found)
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
    largest_before: int  # timestamp of earlier segments; only for the dialect `bucket`


def _segments(files: pa.Table) -> Iterator[_Work]:
    """Yield a bin's segments with what the catalog knows about them."""
    for batch in files.to_batches(max_chunksize=LISTED_ROWS_AT_ONCE):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            fields, known = row[: len(LISTING)], row[len(LISTING) :]
            yield _Work(Segment(*fields), *known)


def _log_bytes(work: _Work) -> int:
    return work.segment.size_bytes or 0


def _build_one(build: BuildSpec, puts: ListedPuts, work: _Work) -> Built:
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
    only with `overwrite` (D10). `transaction_index_ours` is the same for the `.txnindex`, and
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
        return Built(row_of(build, segment, log, index, Published()), 0)
    built_before = ours and segment.target_time_index_bytes is not None
    asks_tail = build.read_tail and not segment.error
    if asks_tail and not built_before:  # our index is of the log before its change
        row = row_without_reading(build, segment, log)
        if row:
            return Built(row, LAST_HEADER_BYTES)
    index, wanted = _indexes(build, segment, log, largest_before, native=native)
    waits = offset_index_waits(build, segment, index)
    log_changed = partial(log_has_changed, log, segment.size_bytes, segment.last_modified_ms)
    published = Published(log if build.in_place else None, log_changed=log_changed)
    waits_here = not waits and waits_for_time_index(build, segment, index.status)
    offset_waits = waits_here and len(wanted) > 1
    for file in wanted[:1] if waits or offset_waits else wanted:
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
        offset_index = wanted[1]._replace(flush_first=True, reads_back=reads_back)
        waiting = WaitingIndex(offset_index, published.is_first_right, log_changed)
    row = row_of(build, segment, log, index, published)
    entries = wanted[0].good_entries
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
) -> tuple[BuiltIndexes, list[Wanted]]:
    """Return the segment's indexes and the files that are wanted, the `.timeindex` first."""
    target = build.index_location(segment)
    offset_target = beside(target, "index") if build.offset_index else None
    base_offset, topic = segment.base_offset or 0, segment.topic or ""
    settings = build.index_settings
    file_time = FileTimeEntry.of(build.settings.untimestamped, segment)
    good: int | None = None
    offset_good: int | None = None
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
        good = verdict.entries if verdict.verdict in GOOD else None
        offset_good = 0 if verdict.offset_index_verdict in GOOD else None
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
    time_index = Wanted(
        target,
        index.time_index_data,
        time_settings,
        segment.target_time_index_bytes is not None,
        good,
        good_settings,
        _seen(segment.target_time_index_bytes, segment.target_time_index_modified_ms),
    )
    if offset_target is None or (build.in_place and index.status in (CUT, REFUSED)):
        return index, [time_index]
    offset_index = Wanted(
        offset_target,
        index.offset_index_data,
        settings,
        segment.target_offset_index_bytes is not None,
        offset_good,
        offset_settings,
        _seen(segment.target_offset_index_bytes, segment.target_offset_index_modified_ms),
    )
    return index, [time_index, offset_index]


def _seen(size_bytes: int | None, modified_ms: int | None) -> FileStatus | None:
    return None if size_bytes is None else FileStatus(size_bytes, modified_ms)
