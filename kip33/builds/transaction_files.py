"""The `.txnindex` files of a build, written after all its segments were read.

If the open transactions at a segment's start are unknown (`indexing.partition_fold`), a segment
with an ABORT marker gets no `.txnindex`, and its row says so.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.segment_paths import beside
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import (
    FILES_WRITTEN,
    Published,
    TargetIndexFile,
    add_notes,
    add_problems,
    cannot_be_written,
    log_has_changed,
    record,
    state_together,
)
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.pending_rows import (
    PENDING,
    WaitingIndex,
    publish_offset_index,
    transaction_index_in,
)
from kip33.builds.reuse import ours_column
from kip33.catalog.draft import ROWS_AS_OBJECTS, Draft
from kip33.catalog.ordered_parts import merged_rows, write_parts
from kip33.catalog.partitions import whole_partitions
from kip33.catalog.schema import SEGMENTS, IndexFileState
from kip33.catalog.segment_order import KEY, PARTITION, partition_begins, place_of, values_at
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.errors import is_of_the_machine
from kip33.formats.index_kinds import IndexKind
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.partition_fold import SegmentLink, fold_partition
from kip33.rules.broker_start import may_have_offset_index
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transaction_index import UNCHANGED, CompletedTransactions, open_as_json
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import make_durable

INDEXED_STATUSES: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)
_LINK: Final = [*KEY, "last_offset", "status", "index_uri", "open_transactions"]
_Row: TypeAlias = dict[str, Any]


def finish_transactions(
    build: BuildSpec,
    draft: Draft,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> tuple[tuple[SnapshotPart, ...], int]:
    """Write the `.txnindex` files of `pending`.

    Returns parts with its rows, completed, and the number of files that were put.

    `parts` are all other rows of the new snapshot, also in staging. A fault of an index file is its
    row's `index_error`. Raises CatalogError if a part is missing, PublishError if a part cannot be
    written.
    """
    flusher, files_written = IndexFlusher(), 0

    def tables() -> Iterator[pa.Table]:
        nonlocal files_written
        folded = _folded(draft, parts, pending)
        rows = map_in_order(build.source, folded, partial(_finish, build))
        while some := list(islice(rows, ROWS_AS_OBJECTS)):
            for row in some:
                flusher.add(row)
                files_written += row.get(FILES_WRITTEN, 0)
            yield pa.Table.from_pylist(some, SEGMENTS)

    finished = tuple(write_parts(draft, tables()))
    flusher.flush()
    return finished, files_written


def _folded(
    draft: Draft,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> Iterator[tuple[_Row, CompletedTransactions]]:
    """Yield the pending rows in order, each with its transactions."""
    for waiting, others in _partitions(draft, parts, pending):
        links = [_link(row) for row in (*waiting, *others)]
        folded = (completed for _, completed in fold_partition(links))
        yield from zip(waiting, folded, strict=True)


def _partitions(
    draft: Draft,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> Iterator[tuple[list[_Row], list[_Row]]]:
    """Yield the pending rows of each partition, in order, and its other rows."""
    of_topics = draft.catalog.read_parts(draft.staging, pending, ["topic"])
    topics = {topic for rows in of_topics for topic in pc.unique(rows["topic"]).to_pylist()}
    wanted = pa.array(sorted(topics), pa.string())
    tables = merged_rows(draft, [part for part in parts if part.may_have(topics)], _LINK)
    others = _by_partition(
        rows.filter(pc.and_(pc.is_valid(rows["base_offset"]), pc.is_in(rows["topic"], wanted)))
        for rows in tables
    )
    other = next(others, None)
    for place, waiting in _by_partition(merged_rows(draft, pending, PENDING.names)):
        while other and other[0] < place:
            other = next(others, None)
        is_same = other is not None and other[0] == place
        yield waiting.to_pylist(), other[1].to_pylist() if other and is_same else []


def _by_partition(tables: Iterable[pa.Table]) -> Iterator[tuple[Any, pa.Table]]:
    """Yield the place and the rows of each partition."""
    for table in whole_partitions(tables, least=1):
        begins = [*np.flatnonzero(partition_begins(table)).tolist(), table.num_rows]
        for begin, end in pairwise(begins):
            yield place_of(values_at(table, begin, PARTITION)), table.slice(begin, end - begin)


def _link(row: _Row) -> SegmentLink:
    return SegmentLink(
        row["base_offset"],
        row["log_uri"],
        row["last_offset"] if row["status"] in INDEXED_STATUSES else None,
        row["open_transactions"],
        row.get("transactions"),
    )


def _log_changed(row: _Row) -> Callable[[], bool]:
    log = Location.of(row["log_uri"])
    return partial(log_has_changed, log, row["size_bytes"], row["last_modified_ms"])


def _finish(build: BuildSpec, waiting: tuple[_Row, CompletedTransactions]) -> _Row:
    """Write a segment's files; return its row, completed."""
    row, completed = waiting
    if row["open_transactions"] != UNCHANGED:
        row["open_transactions"] = open_as_json(completed.open_at_end)
    log = Location.of(row["log_uri"])
    published = Published(log if build.in_place else None, log_changed=_log_changed(row))
    target = _transaction_index(row, completed)
    is_there = _publish_transaction_index(build, row, target, published)
    published.add_to(row)
    if completed.problem:
        add_problems(row, f"the .txnindex is not written: {completed.problem}")
    if row["waiting_offset_index"] is not None:
        # Without an expected content nothing was published, and a broker's file is trusted.
        is_right = published.is_first_right or row["transaction_index_bytes"] is None
        if is_there and (is_right or completed.aborted is None):
            _publish_offset_index(build, row, target.place)
        else:
            add_notes(row, SegmentNote.LEFT_TO_BROKER)
    elif build.in_place and _hides_aborts(row, completed, is_there=is_there):
        add_notes(row, SegmentNote.HIDES_ABORTS)
    return row


def _hides_aborts(row: _Row, completed: CompletedTransactions, *, is_there: bool) -> bool:
    """Return whether an `.index` keeps a broker from writing a missing `.txnindex`.

    If the right content is unknown, our own `.txnindex` is treated as missing, a broker's is not.
    """
    has_index = may_have_offset_index(row["status"]) and row["offset_index_bytes"] is not None
    ours = row[ours_column(IndexKind.TRANSACTION)]
    return has_index and (not is_there or bool(completed.problem and ours))


def _transaction_index(row: _Row, completed: CompletedTransactions) -> TargetIndexFile:
    data = None
    if completed.aborted is not None:
        entries = TransactionIndex.from_entries(completed.aborted, base_offset=row["base_offset"])
        data = entries.to_bytes()
    return transaction_index_in(row, data)


def _publish_transaction_index(
    build: BuildSpec, row: _Row, target: TargetIndexFile, published: Published
) -> bool:
    """Publish the `.txnindex` and record it in the row.

    Returns whether it exists or is not needed. Recovery writes no file, or an empty one, if no
    transaction was aborted. If the right content is unknown, our own file is removed, except in
    place, where the `.index` beside it would keep a broker from writing it again.
    """
    ours, data = row[ours_column(IndexKind.TRANSACTION)], target.data
    if not target.seen and not data:
        return data is not None
    if data is None and (build.in_place or not ours):
        there = status_of(target.place)
        if there:
            row["transaction_index_bytes"], row["transaction_index_modified_ms"] = there
        if there and not ours:
            published.notes.append(SegmentNote.NOT_JUDGED)
        return there is not None
    is_empty = data == b""
    if is_empty and ours:
        data = None  # it is removed: a first build writes none
    published.add(target._replace(data=data), ours=ours, overwrite=build.overwrite)
    left = published.files[0]
    if left:
        record(row, IndexKind.TRANSACTION, left)
    if row["index_file"] and (data is not None or published.state):
        row["index_file"] = state_together((row["index_file"], published.state))
    return is_empty or left is not None


def _publish_offset_index(build: BuildSpec, row: _Row, beside_it: Location) -> None:
    """Publish the `.index` that waited."""
    place = beside(beside_it, "index")
    if row["transaction_index_bytes"] is not None:
        try:
            make_durable(beside_it)  # a power failure must not leave the .index without it
        except OSError as error:
            if is_of_the_machine(error):
                raise
            if row["index_file"]:
                row["index_file"] = IndexFileState.STALE  # the next build tries again
            why = f"{beside_it.name}: {one_line(error)}"
            add_problems(row, cannot_be_written(place, why))
            return
    data = row["waiting_offset_index"]
    target = TargetIndexFile(IndexKind.OFFSET, place, data, flush_first=True)
    waiting = WaitingIndex(target, row["time_index_is_right"], _log_changed(row))
    publish_offset_index(build, row, waiting, ours=True)
