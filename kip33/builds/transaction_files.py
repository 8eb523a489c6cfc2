"""The `.txnindex` files of a build: written after all its segments were read, before the commit.

If the open transactions at a segment's start are unknown (`indexing.transaction_chains`), a segment
with an ABORT marker gets no `.txnindex`, and its row says so.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.segment_paths import beside
from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import (
    CANNOT_BE_WRITTEN,
    FOREIGN_TRANSACTION_INDEX,
    Published,
    Wanted,
    log_has_changed,
    state_together,
)
from kip33.builds.index_flusher import IndexFlusher
from kip33.builds.pending_rows import (
    TXNINDEX,
    PendingRow,
    name_in_row,
    pending_rows,
    read_staged,
)
from kip33.builds.snapshot_files import NO_SNAPSHOT, publish_snapshots
from kip33.builds.waiting_indexes import LEFT_TO_THE_BROKER, WaitingIndex, publish_offset_index
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.draft import PartWriter
from kip33.catalog.schema import IndexFileState
from kip33.errors import is_of_the_machine
from kip33.formats.transaction_index import TransactionIndex
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
        snapshots = publish_snapshots(build, staging, parts, pending)
    finished = []
    for place, part in enumerate(pending):
        flusher = IndexFlusher()
        writer = PartWriter(staging, number + place)
        rows = pending_rows(read_staged(staging, part))
        for row in map_in_order(build.source, rows, partial(_finish, build, done)):
            snapshots.get(row["log_uri"], NO_SNAPSHOT).complete(row)
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
    wanted = Wanted(place, data, pending.index_settings, listed, seen=seen)
    published.add(wanted, ours=pending.ours, overwrite=build.overwrite, proves_nothing=False)
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
    wanted = Wanted(
        place,
        pending.waiting_offset_index,
        pending.index_settings,
        listed=False,
        flush_first=True,
    )
    waiting = WaitingIndex(wanted, pending.time_index_is_right, log_changed)
    return publish_offset_index(build, row, waiting, ours=True)
