"""The `.txnindex` and `.snapshot` files of a build, written after all its segments were read.

If the open transactions at a segment's start are unknown (`indexing.transaction_chains`), a segment
with an ABORT marker gets no `.txnindex`, and its row says so.

`.snapshot` files are written with `--producer-snapshots`. A broker that rolled the segments has one
at each base offset but the first, and so has a build. It writes none at the end of the last
segment: the end moves with each build, and a broker deletes a file that is at no base offset when
it starts. `kip33 restore` makes that one. The states at a base offset depend on all segments
before. Each row has what its segment changes (`producer_changes`), so the states are computed from
the catalog's rows without reading logs again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.segment_paths import beside
from kip33.builds.build_options import BuildSpec
from kip33.builds.index_files import (
    CANNOT_BE_WRITTEN,
    FOREIGN_TRANSACTION_INDEX,
    Published,
    PublishedFile,
    TargetIndexFile,
    log_has_changed,
    state_together,
)
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.pending_rows import (
    LEFT_TO_THE_BROKER,
    PRODUCERS,
    TXNINDEX,
    PendingRow,
    WaitingIndex,
    name_in_row,
    pending_rows,
    publish_offset_index,
    read_staged,
)
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.draft import PartWriter
from kip33.catalog.schema import IndexFileState
from kip33.errors import is_of_the_machine
from kip33.formats.producer_snapshot import ProducerState
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.partition_replay import KnownProducers
from kip33.indexing.producer_chains import (
    ProducerLink,
    StatesAtBase,
    producers_beside,
    states_at_bases,
)
from kip33.indexing.transaction_chains import ChainLink, Key, completed_by_log
from kip33.rules.broker_start import hidden_aborts_note, may_have_offset_index
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transaction_index import UNCHANGED, CompletedTransactions, open_as_json
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import FileStatus, one_line, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import make_durable

INDEXED_STATUSES: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)
_KEY: Final = ("log_dir", "topic", "partition")
_CHAIN: Final = [*_KEY, "base_offset", "last_offset", "status", "log_uri", "open_transactions"]
_CRC: Final = "producer_snapshot_crc32c"
_LINK: Final = [*_KEY, "base_offset", "log_uri", "index_uri", "producer_changes"]
_WAITING: Final = [
    *("producer_snapshot_uri", "producer_snapshot_ours", "index_settings"),
    *("producer_snapshot_seen_bytes", "producer_snapshot_seen_modified_ms"),
    *("size_bytes", "last_modified_ms"),
]


def finish_transactions(
    build: BuildSpec,
    staging: Location,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
    number: int,
) -> list[SnapshotPart]:
    """Write the `.txnindex` and `.snapshot` files of `pending`.

    Returns its rows, completed, as parts from `number`.

    `parts` are all other rows of the new snapshot, also in staging. A fault of an index file is its
    row's `error`. Raises CatalogError if a part is missing, PublishError if a part cannot be
    written.
    """
    pending = [part for part in pending if part.rows]
    if not pending:
        return []
    done = completed_by_log(_links(staging, parts, pending))
    snapshots = {}
    if build.producer_snapshots:
        snapshots = _publish_snapshots(build, staging, parts, pending)
    finished = []
    for place, part in enumerate(pending):
        flusher = IndexFlusher()
        writer = PartWriter(staging, number + place)
        rows = pending_rows(read_staged(staging, part))
        for row in map_in_order(build.source, rows, partial(_finish, build, done)):
            snapshots.get(row["log_uri"], _NO_SNAPSHOT).complete(row)
            writer.append(row)
            flusher.add(row)
        flusher.flush()
        finished.append(writer.publish())
    return finished


def _links(
    staging: Location, parts: Iterable[SnapshotPart], pending: Iterable[SnapshotPart]
) -> dict[Key, list[ChainLink]]:
    """Return the segments of the partitions that have pending rows."""
    links: dict[Key, list[ChainLink]] = defaultdict(list)
    for part in pending:
        _add_links(links, read_staged(staging, part, [*_CHAIN, "transactions"]))
    topics = pa.array(sorted({topic for _, topic, _ in links}), pa.string())
    wanted = set(links)
    for part in parts:
        table = read_staged(staging, part, _CHAIN)
        _add_links(links, table.filter(pc.is_in(table["topic"], value_set=topics)), wanted)
    return links


def _add_links(
    links: dict[Key, list[ChainLink]], table: pa.Table, wanted: set[Key] | None = None
) -> None:
    for row in table.to_pylist():
        key = tuple(row[name] for name in _KEY)
        if row["base_offset"] is not None and (wanted is None or key in wanted):
            ends = row["last_offset"] if row["status"] in INDEXED_STATUSES else None
            links[key].append(
                ChainLink(
                    row["base_offset"],
                    row["log_uri"],
                    ends,
                    row["open_transactions"],
                    row.get("transactions"),
                )
            )


def _finish(
    build: BuildSpec, done: dict[str, CompletedTransactions], pending: PendingRow
) -> dict[str, Any]:
    """Write a segment's files; return its row, completed."""
    row = pending.row
    completed = done[row["log_uri"]]
    if row["open_transactions"] != UNCHANGED:
        row["open_transactions"] = open_as_json(completed.open_at_end)
    log = Location.of(row["log_uri"])
    log_changed = partial(log_has_changed, log, row["size_bytes"], row["last_modified_ms"])
    published = Published(log if build.in_place else None, log_changed=log_changed)
    place = Location.of(pending.transaction_index_uri)
    is_there = _publish_transaction_index(build, pending, completed, place, published)
    notes = list(published.notes)
    if completed.problem:
        notes.append(f"the .txnindex is not written: {completed.problem}")
    if pending.waiting_offset_index is not None:
        # Without an expected content nothing was published, and a broker's file is trusted.
        is_right = published.is_first_right or row["transaction_index_bytes"] is None
        if is_there and (is_right or completed.aborted is None):
            notes += _publish_offset_index(build, pending, place, log_changed)
        else:
            notes.append(LEFT_TO_THE_BROKER)
    elif build.in_place and _hides_aborts(pending, completed, is_there=is_there):
        notes.append(hidden_aborts_note(beside(place, "index").uri))
    row["error"] = "; ".join(filter(None, (row["error"], *notes))) or None
    return row


def _hides_aborts(pending: PendingRow, completed: CompletedTransactions, *, is_there: bool) -> bool:
    """Return whether an `.index` keeps a broker from writing a missing `.txnindex`.

    If the right content is unknown, our own `.txnindex` is treated as missing, a broker's is not.
    """
    row = pending.row
    has_index = may_have_offset_index(row["status"]) and row["offset_index_bytes"] is not None
    return has_index and (not is_there or bool(completed.problem and pending.ours))


def _publish_transaction_index(
    build: BuildSpec,
    pending: PendingRow,
    completed: CompletedTransactions,
    place: Location,
    published: Published,
) -> bool:
    """Publish the `.txnindex` and record it in the row.

    Returns whether it exists or is not needed. Recovery writes no file, or an empty one, if no
    transaction was aborted. If the right content is unknown, our own file is removed, except in
    place, where the `.index` beside it would keep a broker from writing it again.
    """
    row, listed = pending.row, pending.transaction_index_listed
    data = None
    if completed.aborted is not None:
        entries = TransactionIndex.from_entries(completed.aborted, base_offset=row["base_offset"])
        data = entries.to_bytes()
    if not listed and not data:
        return data is not None
    if data is None and (build.in_place or not pending.ours):
        there = status_of(place)
        if there:
            row["transaction_index_bytes"], row["transaction_index_modified_ms"] = there
        if there and not pending.ours:
            published.notes.append(FOREIGN_TRANSACTION_INDEX)
        return there is not None
    seen: FileStatus | None = None
    if pending.seen_bytes is not None:
        seen = FileStatus(pending.seen_bytes, pending.seen_modified_ms)
    is_empty = data == b""
    if is_empty and pending.ours:
        data = None  # it is removed: a first build writes none
    target = TargetIndexFile(place, data, pending.index_settings, listed, seen=seen)
    published.add(target, ours=pending.ours, overwrite=build.overwrite, proves_nothing=False)
    left = published.files[0]
    if left:
        name_in_row(row, TXNINDEX, left)
    if row["index_file"] and (data is not None or published.state):
        row["index_file"] = state_together((row["index_file"], published.state))
    return is_empty or left is not None


def _publish_offset_index(
    build: BuildSpec, pending: PendingRow, beside_it: Location, log_changed: Callable[[], bool]
) -> list[str]:
    """Publish the `.index` that waited; return notes on it."""
    row = pending.row
    place = beside(beside_it, "index")
    if row["transaction_index_bytes"] is not None:
        try:
            make_durable(beside_it)  # a power failure must not leave the .index without it
        except OSError as error:
            if is_of_the_machine(error):
                raise
            if row["index_file"]:
                row["index_file"] = IndexFileState.STALE  # the next build tries again
            return [f"{place.uri}{CANNOT_BE_WRITTEN}{beside_it.name}: {one_line(error)}"]
    target = TargetIndexFile(
        place,
        pending.waiting_offset_index,
        pending.index_settings,
        listed=False,
        flush_first=True,
    )
    waiting = WaitingIndex(target, pending.time_index_is_right, log_changed)
    return publish_offset_index(build, row, waiting, ours=True)


class _SnapshotOutcome(NamedTuple):
    """A segment's `.snapshot` after the build: the file, its state and notes."""

    file: PublishedFile | None = None
    state: IndexFileState | None = None
    is_wanted: bool = False  # whether there should be a file
    notes: tuple[str, ...] = ()

    def complete(self, row: dict[str, Any]) -> None:
        """Record it in the segment's row."""
        if self.file:
            name_in_row(row, PRODUCERS, self.file)
        if row["index_file"] and (self.is_wanted or self.file):
            row["index_file"] = state_together((row["index_file"], self.state))
        row["error"] = "; ".join(filter(None, (row["error"], *self.notes))) or None


_NO_SNAPSHOT: Final = _SnapshotOutcome()


def _publish_snapshots(
    build: BuildSpec,
    staging: Location,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> dict[str, _SnapshotOutcome]:
    """Write the `.snapshot` files of pending rows; return the outcomes, by the log's URI.

    `parts` are all other rows of the new snapshot. CatalogError if a part is missing.
    """
    waiting: dict[str, dict[str, Any]] = {}
    rows: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for part in pending:
        for row in read_staged(staging, part, [*_LINK, *_WAITING]).to_pylist():
            waiting[row["log_uri"]] = row
            rows[_key(row)].append(row)
    starts = _starts(staging, parts, rows)
    for part in parts:
        for row in _rows_since(read_staged(staging, part, _LINK), rows, starts).to_pylist():
            rows[_key(row)].append(row)
    states = (
        state for key, of_one in rows.items() for state in _states(of_one, starts.get(key), waiting)
    )
    return dict(map_in_order(build.index_dir, states, partial(_publish, build, waiting)))


def _key(row: dict[str, Any]) -> Key:
    return tuple(row[name] for name in _KEY)


def _starts(
    staging: Location, parts: Sequence[SnapshotPart], rows: dict[Key, list[dict[str, Any]]]
) -> dict[Key, KnownProducers]:
    """Return the states at the newest base offset before all pending rows that has a `.snapshot`.

    The file must still have the CRC of its row. A partition without one begins at its start.
    """
    first = {key: min(row["base_offset"] for row in waiting) for key, waiting in rows.items()}
    newest: dict[Key, dict[str, Any]] = {}
    for part in parts:
        table = read_staged(staging, part, [*_KEY, "base_offset", "index_uri", _CRC])
        for row in table.filter(pc.is_valid(table[_CRC])).to_pylist():
            key = _key(row)
            if row["base_offset"] < first.get(key, 0):
                before = newest.get(key)
                if before is None or before["base_offset"] < row["base_offset"]:
                    newest[key] = row
    starts = {}
    for key, row in newest.items():
        producers = producers_beside(Location.of(row["index_uri"]), crc32c=row[_CRC])
        if producers is not None:
            starts[key] = KnownProducers(row["base_offset"], producers)
    return starts


def _rows_since(
    table: pa.Table, rows: dict[Key, list[dict[str, Any]]], starts: dict[Key, KnownProducers]
) -> pa.Table:
    """Return the segments of the partitions that have pending rows, from their start on."""
    from_offset = {key: starts[key].offset if key in starts else 0 for key in rows}
    columns = (table[name].to_pylist() for name in (*_KEY, "base_offset"))
    is_needed = [
        base_offset is not None and base_offset >= from_offset.get(tuple(key), base_offset + 1)
        for *key, base_offset in zip(*columns, strict=True)
    ]
    return table.filter(pa.array(is_needed, pa.bool_()))


def _states(
    rows: list[dict[str, Any]], known: KnownProducers | None, waiting: dict[str, dict[str, Any]]
) -> Iterator[StatesAtBase]:
    """Yield the states at the base offsets of a partition's segments that wait."""
    links = [
        ProducerLink(
            row["base_offset"], row["log_uri"], row["producer_changes"], row["log_uri"] in waiting
        )
        for row in rows
    ]
    if known is None:
        first = min(rows, key=lambda row: (row["base_offset"], row["log_uri"]))
        return states_at_bases(links, _at_start(first))
    return states_at_bases(links, known.producers)


def _at_start(first: dict[str, Any]) -> tuple[ProducerState, ...] | None:
    """Return the states at the first segment's base offset, None if no `.snapshot` has them."""
    if first["base_offset"] == 0:
        return None
    places = filter(None, (first["index_uri"], first["log_uri"]))
    found = (producers_beside(Location.of(uri)) for uri in places)
    return next((one for one in found if one is not None), None)


def _publish(
    build: BuildSpec, waiting: dict[str, dict[str, Any]], states: StatesAtBase
) -> tuple[str, _SnapshotOutcome]:
    row = waiting[states.log_uri]
    seen_bytes = row["producer_snapshot_seen_bytes"]
    seen = None
    if seen_bytes is not None:
        seen = FileStatus(seen_bytes, row["producer_snapshot_seen_modified_ms"])
    notes = [f"the .snapshot is not written: {states.problem}"] if states.problem else []
    if states.data is None and seen is None:
        return states.log_uri, _SnapshotOutcome(notes=tuple(notes))
    log = Location.of(states.log_uri)
    log_changed = partial(log_has_changed, log, row["size_bytes"], row["last_modified_ms"])
    published = Published(log_changed=log_changed)
    place = Location.of(row["producer_snapshot_uri"])
    target = TargetIndexFile(place, states.data, row["index_settings"], seen is not None, seen=seen)
    ours = row["producer_snapshot_ours"]
    published.add(target, ours=ours, overwrite=build.overwrite, proves_nothing=False)
    notes += published.notes
    is_wanted = states.data is not None
    outcome = _SnapshotOutcome(published.files[0], published.state, is_wanted, tuple(notes))
    return states.log_uri, outcome
