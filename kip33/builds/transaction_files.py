"""The `.txnindex` and `.snapshot` files of a build, written after all its segments were read.

If the open transactions at a segment's start are unknown (`indexing.partition_fold`), a segment
with an ABORT marker gets no `.txnindex`, and its row says so.

`.snapshot` files are written with `--producer-snapshots`. A broker that rolled the segments has one
at each base offset but the first, and so has a build. It writes none at the end of the last
segment: the end moves with each build, and a broker deletes a file that is at no base offset when
it starts. `kip33 restore` makes that one. The states at a base offset depend on all segments
before. Each row has what its segment changes (`producer_changes`), so the states are computed from
the catalog's rows without reading logs again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.segment_paths import beside
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import (
    FILES_WRITTEN,
    Published,
    PublishedFile,
    TargetIndexFile,
    add_notes,
    add_problems,
    add_written,
    cannot_be_written,
    log_has_changed,
    record,
    state_together,
)
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.pending_rows import (
    WaitingIndex,
    publish_offset_index,
    read_staged,
    target_in,
)
from kip33.builds.reuse import ours_column
from kip33.catalog.draft import PartWriter
from kip33.catalog.schema import IndexFileState
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.errors import is_of_the_machine
from kip33.formats.index_kinds import IndexKind
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.partition_fold import (
    FoldedSegment,
    Key,
    SegmentLink,
    fold_partition,
    snapshot_beside,
)
from kip33.indexing.partition_replay import KnownProducers
from kip33.rules.broker_start import may_have_offset_index
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transaction_index import UNCHANGED, CompletedTransactions, open_as_json
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import make_durable

INDEXED_STATUSES: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)
_KEY: Final = ("log_dir", "topic", "partition")
_LINK: Final = [
    *(*_KEY, "base_offset", "last_offset", "status"),
    *("log_uri", "index_uri", "open_transactions"),
]
_CRC: Final = f"{IndexKind.PRODUCERS}_crc32c"
_WAITING: Final = [
    *("size_bytes", "last_modified_ms", "time_index_uri", ours_column(IndexKind.PRODUCERS)),
    *(f"{IndexKind.PRODUCERS}_seen_bytes", f"{IndexKind.PRODUCERS}_seen_modified_ms"),
]
_Row: TypeAlias = dict[str, Any]


def finish_transactions(
    build: BuildSpec,
    staging: Location,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
    number: int,
) -> tuple[list[SnapshotPart], int]:
    """Write the `.txnindex` and `.snapshot` files of `pending`.

    Returns its rows, completed, as parts from `number`, and the number of files that were put.

    `parts` are all other rows of the new snapshot, also in staging. A fault of an index file is its
    row's `index_error`. Raises CatalogError if a part is missing, PublishError if a part cannot be
    written.
    """
    pending = [part for part in pending if part.rows]
    if not pending:
        return [], 0
    done = _fold(build, staging, parts, pending)
    finished, files_written = [], 0
    for place, part in enumerate(pending):
        flusher = IndexFlusher()
        writer = PartWriter(staging, number + place)
        rows = read_staged(staging, part).to_pylist()
        for row in map_in_order(build.source, rows, partial(_finish, build, done)):
            writer.append(row)
            flusher.add(row)
            files_written += row.get(FILES_WRITTEN, 0)
        flusher.flush()
        finished.append(writer.publish())
    return finished, files_written


class _SnapshotOutcome(NamedTuple):
    """A segment's `.snapshot` after the build: the file, its state, notes and problems."""

    file: PublishedFile | None = None
    state: IndexFileState | None = None
    is_wanted: bool = False  # whether there should be a file
    notes: tuple[SegmentNote, ...] = ()
    problems: tuple[str, ...] = ()
    written: int = 0  # 1 if it was put

    def complete(self, row: _Row) -> None:
        """Record it in the segment's row."""
        add_written(row, self.written)
        if self.file:
            record(row, IndexKind.PRODUCERS, self.file)
        if row["index_file"] and (self.is_wanted or self.file):
            row["index_file"] = state_together((row["index_file"], self.state))
        add_notes(row, *self.notes)
        add_problems(row, *self.problems)


_Done: TypeAlias = dict[str, tuple[CompletedTransactions | None, _SnapshotOutcome]]
"""The results of pending rows, by the URIs of their logs."""


def _fold(
    build: BuildSpec,
    staging: Location,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> _Done:
    """Fold the partitions that have pending rows, and write their `.snapshot` files on the way."""
    with_producers = IndexKind.PRODUCERS in build.kinds
    links: dict[Key, list[SegmentLink]] = defaultdict(list)
    first: dict[Key, _Row] = {}
    waiting: dict[str, _Row] = {}

    def add(row: _Row, changes: str | None, *, is_pending: bool) -> None:
        key = _key(row)
        first[key] = min(first.get(key, row), row, key=_place_in_log)
        links[key].append(_link(row, changes, wants_producers=is_pending and with_producers))

    for part in pending:
        columns = [*_LINK, *_WAITING, "transactions", "producer_changes"]
        for row in read_staged(staging, part, columns).to_pylist():
            add(row, row.pop("producer_changes"), is_pending=True)
            if with_producers:
                waiting[row["log_uri"]] = row
    known = _known_producers(staging, parts, first) if with_producers else {}
    topics = pa.array(sorted({topic for _, topic, _ in links}), pa.string())
    for part in parts:
        table = read_staged(staging, part, [*_LINK, "producer_changes"])
        table = table.filter(pc.is_in(table["topic"], value_set=topics))
        changes = table["producer_changes"]
        for number, row in enumerate(table.select(_LINK).to_pylist()):
            key = _key(row)
            if row["base_offset"] is not None and key in links:
                is_before = key in known and row["base_offset"] < known[key].offset
                is_needed = with_producers and not is_before
                add(row, changes[number].as_py() if is_needed else None, is_pending=False)

    def folded() -> Iterator[FoldedSegment]:
        for key, of_partition in links.items():
            start = known.get(key)
            if with_producers and start is None:
                start = _at_start(first[key])
            yield from fold_partition(of_partition, start)

    return dict(map_in_order(build.index_dir, folded(), partial(_publish_snapshot, build, waiting)))


def _key(row: _Row) -> Key:
    return tuple(row[name] for name in _KEY)


def _place_in_log(row: _Row) -> tuple[int, str]:
    return row["base_offset"], row["log_uri"]


def _link(row: _Row, changes: str | None, *, wants_producers: bool) -> SegmentLink:
    return SegmentLink(
        row["base_offset"],
        row["log_uri"],
        row["last_offset"] if row["status"] in INDEXED_STATUSES else None,
        row["open_transactions"],
        row.get("transactions"),
        changes,
        wants_producers,
    )


def _known_producers(
    staging: Location, parts: Sequence[SnapshotPart], pending: Mapping[Key, _Row]
) -> dict[Key, KnownProducers]:
    """Return the states at the newest base offset before all pending rows that has a `.snapshot`.

    `pending` are the first pending rows of their partitions. The file must still have the CRC of
    its row.
    """
    newest: dict[Key, _Row] = {}
    for part in parts:
        table = read_staged(staging, part, [*_KEY, "base_offset", "index_uri", _CRC])
        for row in table.filter(pc.is_valid(table[_CRC])).to_pylist():
            key = _key(row)
            if key in pending and row["base_offset"] < pending[key]["base_offset"]:
                newest[key] = max(newest.get(key, row), row, key=lambda row: row["base_offset"])
    known = {}
    for key, row in newest.items():
        snapshot = snapshot_beside(Location.of(row["index_uri"]), crc32c=row[_CRC])
        if snapshot is not None:
            known[key] = KnownProducers(row["base_offset"], snapshot.producers)
    return known


def _at_start(first: _Row) -> KnownProducers | None:
    """Return the producers at the first segment's base offset, None if no `.snapshot` has them."""
    for uri in (first["index_uri"], first["log_uri"]) if first["base_offset"] else ():
        snapshot = snapshot_beside(Location.of(uri)) if uri else None
        if snapshot is not None:
            return KnownProducers(first["base_offset"], snapshot.producers)
    return None


def _publish_snapshot(
    build: BuildSpec, waiting: Mapping[str, _Row], folded: FoldedSegment
) -> tuple[str, tuple[CompletedTransactions | None, _SnapshotOutcome]]:
    """Publish a segment's `.snapshot`; return what its row gets from the fold."""
    outcome = _SnapshotOutcome()
    if folded.producers:
        data, problem = folded.producers
        row = waiting[folded.log_uri]
        problems = [f"the .snapshot is not written: {problem}"] if problem else []
        outcome = _SnapshotOutcome(problems=tuple(problems))
        target = target_in(row, IndexKind.PRODUCERS, data)
        if data is not None or target.seen:
            published = Published(log_changed=_log_changed(row))
            ours = row[ours_column(IndexKind.PRODUCERS)]
            published.add(target, ours=ours, overwrite=build.overwrite)
            outcome = _SnapshotOutcome(
                published.files[0],
                published.state,
                data is not None,
                tuple(published.notes),
                (*problems, *published.problems),
                published.written,
            )
    return folded.log_uri, (folded.transactions, outcome)


def _log_changed(row: _Row) -> Callable[[], bool]:
    log = Location.of(row["log_uri"])
    return partial(log_has_changed, log, row["size_bytes"], row["last_modified_ms"])


def _finish(build: BuildSpec, done: _Done, row: _Row) -> _Row:
    """Write a segment's files; return its row, completed."""
    completed, snapshot = done[row["log_uri"]]
    assert completed is not None  # a pending row wants its transactions
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
    snapshot.complete(row)
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
    return target_in(row, IndexKind.TRANSACTION, data)


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
