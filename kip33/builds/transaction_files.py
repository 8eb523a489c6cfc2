"""The `.txnindex` files of a build, written after all its segments were read.

A task does not know which transactions are open at the start of its segment: another task may have
the previous segment. It therefore writes the row into staging with the segment's own transactions,
and here the row is completed. In place, a new `.index` waits with it: a broker rebuilds a
`.txnindex` only if the `.index` is missing.

If the open transactions at a segment's start are unknown (`indexing.partition_state`), a segment
with an ABORT marker gets no `.txnindex`, and its row says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.segment_paths import index_of_row
from kip33.builds.build_options import BuildSpec
from kip33.builds.reuse import ours_column
from kip33.builds.segment_rows import file_columns
from kip33.catalog.draft import Draft
from kip33.catalog.ordered_parts import merged_rows, write_parts
from kip33.catalog.partitions import whole_partitions
from kip33.catalog.schema import SEGMENTS, with_column
from kip33.catalog.segment_order import KEY, PARTITION, partition_begins, place_of, values_at
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.formats.index_kinds import IndexKind
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.partition_state import SegmentLink, fold_partition
from kip33.indexing.published_files import PublishedFiles, SegmentFiles, TargetFile, in_groups
from kip33.rules.broker_start import may_have_offset_index
from kip33.rules.publication import IndexFileState, Wanted
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transaction_index import UNCHANGED, CompletedTransactions, open_as_json
from kip33.stores.files import FileStatus
from kip33.stores.locations import Location

INDEXED_STATUSES: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)
_BESIDE: Final = (IndexKind.TIME, IndexKind.OFFSET)
_LINK: Final = [*KEY, "last_offset", "record_count", "status", "open_transactions"]
_Row: TypeAlias = dict[str, Any]
_SEEN: Final = tuple(f"target_{IndexKind.TRANSACTION}_{what}" for what in ("bytes", "modified_ms"))
WAITS: Final = "transactions"  # not null in a row that waits
_EXTRA: list["pa.Field[Any]"] = [
    pa.field(WAITS, pa.string()),  # the segment's TransactionSummary as JSON
    pa.field("time_index_uri", pa.string()),  # the `.txnindex` and the `.index` are beside it
    pa.field("waiting_offset_index", pa.binary()),  # bytes of a waiting `.index`; null: not waiting
    pa.field("time_index_is_right", pa.bool_()),  # whether the `.timeindex` matches the log
    pa.field(ours_column(IndexKind.TRANSACTION), pa.bool_()),
    *(pa.field(name, pa.int64()) for name in _SEEN),  # the file before the build; null: none
]
PENDING: Final = pa.schema([*SEGMENTS, *_EXTRA])
"""A row of SEGMENTS with the data that completes it."""


def with_waiting(rows: pa.Table, listed: pa.Table, **scanned: Sequence[Any]) -> pa.Table:
    """Return rows as those of PENDING, of segments of which some wait.

    `listed` has the columns of `KnownSegments.to_read`, `scanned` the others of PENDING.
    """
    for field in _EXTRA:
        values = scanned.get(field.name)
        column = listed[field.name] if values is None else pa.array(values, field.type)
        rows = rows.append_column(field, column)
    return rows


class _Completed(NamedTuple):
    """A row whose transactions are known, and its files."""

    row: _Row
    transactions: CompletedTransactions
    files: SegmentFiles


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
    publisher, files_written = build.publisher(), 0

    def tables() -> Iterator[pa.Table]:
        nonlocal files_written
        folded = _folded(build, draft, parts, pending)
        for group in in_groups(folded, lambda one: one.files):
            published = publisher.publish([one.files for one in group])
            files_written += sum(one.written for one in published)
            yield _finished(build, group, published)

    finished = tuple(write_parts(draft, tables()))
    publisher.finish()
    return finished, files_written


def _folded(
    build: BuildSpec,
    draft: Draft,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> Iterator[_Completed]:
    """Yield the pending rows in order, each with its files."""
    for waiting, others in _partitions(draft, parts, pending):
        folded = fold_partition([_link(row) for row in (*waiting, *others)])
        for row, (_, transactions) in zip(waiting, folded, strict=True):
            yield _completed(build, row, transactions)


def _partitions(
    draft: Draft, parts: Sequence[SnapshotPart], pending: Sequence[SnapshotPart]
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
    last_offset = row["last_offset"] if row["status"] in INDEXED_STATUSES else None
    if row["status"] == SegmentStatus.EMPTY:
        last_offset = row["base_offset"] - 1
    return SegmentLink(
        row["base_offset"],
        row["log_uri"],
        last_offset,
        row["open_transactions"],
        row.get("transactions"),
        row["record_count"],
        is_damaged=row["status"] == SegmentStatus.TRUNCATED,
    )


def _completed(build: BuildSpec, row: _Row, transactions: CompletedTransactions) -> _Completed:
    """Return a pending row with its transactions, and the files that it should have."""
    if row["open_transactions"] != UNCHANGED:
        row["open_transactions"] = open_as_json(transactions.open_at_end)
    time_index = Location.of(row["time_index_uri"])
    target = _transaction_index(build, row, transactions, time_index)
    # Without an expected content a broker's file is trusted, but not that none is there.
    is_known = target.wanted is not Wanted.UNJUDGED or target.seen is not None
    is_promised = row["index_file"] in (IndexFileState.WRITTEN, IndexFileState.KEPT)
    new_index: TargetFile | None = None
    if row["waiting_offset_index"] is not None:
        place = index_of_row(time_index, IndexKind.OFFSET)
        data = row["waiting_offset_index"]
        new_index = TargetFile(IndexKind.OFFSET, place, Wanted.BYTES, data, is_ours=True)
    beside: list[str] = []
    if row["index_file"] == IndexFileState.WRITTEN:
        kinds = [kind for kind in _BESIDE if row[f"{kind}_bytes"] is not None]
        beside = [index_of_row(time_index, kind).path for kind in kinds]
    files = SegmentFiles(
        Location.of(row["log_uri"]),
        files=(target,) if target.seen or target.data else (),
        new_index=new_index,
        is_beside_right=is_known and is_promised and row["time_index_is_right"],
        beside=beside,
        size_bytes=row["size_bytes"],
        last_modified_ms=row["last_modified_ms"],
    )
    return _Completed(row, transactions, files)


def _transaction_index(
    build: BuildSpec, row: _Row, transactions: CompletedTransactions, time_index: Location
) -> TargetFile:
    """Return the `.txnindex` that a row should have.

    Recovery writes no file, or an empty one, if no transaction was aborted. If the right content is
    unknown, our own file is removed, except in place, where the `.index` beside it would keep a
    broker from writing it again.
    """
    kind = IndexKind.TRANSACTION
    size_bytes, modified_ms = (row[name] for name in _SEEN)
    seen = None if size_bytes is None else FileStatus(size_bytes, modified_ms)
    is_ours: bool = row[ours_column(kind)]
    wanted = Wanted.NONE if is_ours and not build.in_place else Wanted.UNJUDGED
    data: bytes | None = None
    if transactions.aborted is not None:
        base_offset = row["base_offset"]
        entries = TransactionIndex.from_entries(transactions.aborted, base_offset=base_offset)
        data = entries.to_bytes()
        wanted = Wanted.BYTES if data else Wanted.EMPTY
    return TargetFile(kind, index_of_row(time_index, kind), wanted, data, is_ours, seen)


def _finished(
    build: BuildSpec, group: Sequence[_Completed], published: Sequence[PublishedFiles]
) -> pa.Table:
    """Return the rows of a group after its files were published."""
    for (row, transactions, _), done in zip(group, published, strict=True):
        before = row["index_file"]
        done.states = [before, *done.states] if before else []
        done.notes[:0] = row["notes"] or ()
        done.problems[:0] = filter(None, [row["index_error"]])
        if transactions.problem:
            done.problems.append(f"the .txnindex is not written: {transactions.problem}")
        is_there = transactions.aborted == () or IndexKind.TRANSACTION in done.files
        waits = row["waiting_offset_index"] is not None
        if build.in_place and not waits and _hides_aborts(row, transactions, is_there=is_there):
            done.notes.append(SegmentNote.HIDES_ABORTS)
    rows = pa.Table.from_pylist([one.row for one in group], SEGMENTS)
    for name, column in file_columns(published).items():
        is_of_a_file = name not in ("index_file", "notes", "index_error")  # new beside the others
        after = pc.coalesce(column, rows[name]) if is_of_a_file else column
        rows = with_column(rows, name, after)
    return rows


def _hides_aborts(row: _Row, transactions: CompletedTransactions, *, is_there: bool) -> bool:
    """Return whether an `.index` keeps a broker from writing a missing `.txnindex`.

    If the right content is unknown, our own `.txnindex` is treated as missing, a broker's is not.
    """
    has_index = may_have_offset_index(row["status"]) and row["offset_index_bytes"] is not None
    ours = row[ours_column(IndexKind.TRANSACTION)]
    return has_index and (not is_there or bool(transactions.problem and ours))
