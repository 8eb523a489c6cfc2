"""Rows of other snapshots in the next one: copied from the newest, merged with concurrent builds.

    reused     the segment is unchanged
    carried    this build did not list it: another topic, or a directory that cannot be listed
    dropped    not copied: the segment no longer exists

Two kinds of carried rows lose their settings, so that the next build that lists the segment reads
it again and a search does not trust its index files. First, a row that was written too soon after
the segment's last change: the time of the next snapshot is not the time of that listing. Second, a
row whose index file may have been written by a build that was killed.

If another build committed a snapshot since this one began, the rows of both are merged, so that no
build's rows are lost:

- For segments that this build did not list, the row of the newer snapshot is used.
- For segments that both builds listed, the row of the later listing is used.
- A segment that only the newer snapshot has stays. If it no longer exists, the next build drops it.
  Without its row the owner of its index files would be unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import CHECKPOINTS
from kip33.archive.sources import matches
from kip33.builds.reuse import Int64s, ListingMatch, Mask, ReusableRows, may_change_unseen
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.difference import differs
from kip33.catalog.draft import Draft
from kip33.catalog.ordered_parts import write_parts
from kip33.catalog.schema import BUILD_SETTINGS, SEGMENTS, with_column
from kip33.catalog.segment_order import merged
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.errors import CatalogError
from kip33.formats.index_kinds import IndexKind

LEAVE: Final = -1
LISTED: Final = ("active_segment", "topic_id", "partition_metadata_modified_ms", *CHECKPOINTS)
SETTINGS: Final = (
    *BUILD_SETTINGS,
    *("time_index_matches", "offset_index_matches", "file_time_offset"),
)
_COMPARED: Final = [
    *("size_bytes", "last_modified_ms", *BUILD_SETTINGS, "status", "kip33_version"),
    *(f"{kind}_{what}" for kind in IndexKind for what in ("bytes", "modified_ms")),
]
_KEYS: Final = ["log_uri", "topic", "base_offset", *_COMPARED]


class ListingScope(NamedTuple):
    """Which segments a build listed, and when."""

    base: Snapshot | None  # the newest snapshot when it began
    topics: Sequence[str]  # globs
    unlistable: tuple[str, ...]  # URIs of directories, with a slash at the end
    now_ms: int  # when its listing began

    @property
    def is_partial(self) -> bool:
        """Return whether there may be segments that it did not list."""
        return bool(self.topics or self.unlistable)

    def at(self, rows: pa.Table) -> Mask:
        """Return which segments it listed, of rows with the columns `topic` and `log_uri`."""
        topics = pc.unique(rows["topic"]).to_pylist()
        unwanted = [topic for topic in topics if not matches(topic, self.topics)]
        unseen: Mask = pc.is_in(rows["topic"], pa.array(unwanted, pa.string())).to_numpy()
        for directory in self.unlistable:
            unseen = unseen | pc.starts_with(rows["log_uri"], directory).to_numpy()
        return ~unseen


class CarryOver(NamedTuple):
    """Which rows of `snapshot` are copied, in the order of `snapshot`."""

    snapshot: Snapshot
    taken: Mask
    unsettled: Mask  # of these rows: another build must read the log again
    listed_at: Int64s  # of these rows: where `listed` has their new values; LEAVE: unchanged
    listed: pa.Table  # LISTED
    gone: Mask  # dropped: their segments no longer exist
    reused: int
    carried: int
    dropped: int


def plan_carry_over(
    snapshot: Snapshot,
    known: ReusableRows,
    match: ListingMatch,
    files: pa.Table,
    scope: ListingScope,
    *,
    suspect: Mask,
) -> CarryOver:
    """Decide for each row of `snapshot` whether it is reused, carried or dropped.

    `match` and `files`, a LISTING, are in the listing's order, `suspect` is in the snapshot's: rows
    whose index file may differ from what they say.
    """
    listed_at = np.full(known.rows, LEAVE, np.int64)
    reused = match.at[match.reusable]
    listed_at[reused] = np.flatnonzero(match.reusable)
    taken = np.zeros(known.rows, bool)
    taken[reused] = True
    listed = np.zeros(known.rows, bool)
    listed[match.at[match.at >= 0]] = True
    unseen = ~scope.at(pa.table({"topic": known.topic, "log_uri": known.log_uri}))
    carried = known.is_segment & ~listed & unseen
    dropped = known.is_segment & ~listed & ~carried
    too_soon = may_change_unseen(known.last_modified_ms, snapshot.created_ms)
    unsettled = carried & (too_soon | suspect)
    return CarryOver(
        snapshot=snapshot,
        taken=taken | carried,
        unsettled=unsettled,
        listed_at=listed_at,
        listed=files.select(LISTED),
        gone=dropped,
        reused=len(reused),
        carried=int(carried.sum()),
        dropped=int(dropped.sum()),
    )


def carry_over_rows(draft: Draft, carry_over: CarryOver) -> Iterator[SnapshotPart]:
    """Write the copied rows into staging, in order; yield their parts.

    Raises CatalogError if the snapshot was damaged meanwhile, PublishError if a part cannot be
    written.
    """
    pieces = draft.catalog.read_pieces(carry_over.snapshot)
    tables = (
        without_settings(
            _as_listed(taken, carry_over.listed, carry_over.listed_at[rows]),
            carry_over.unsettled[rows],
        )
        for taken, rows in _chosen(pieces, carry_over.taken)
    )
    yield from write_parts(draft, tables)


def _as_listed(rows: pa.Table, listed: pa.Table, at: Int64s) -> pa.Table:
    """Return rows with the values that do not depend on the log's bytes, from the listing."""
    leave = at == LEAVE
    now = listed.take(pa.array(at, mask=leave))
    for name in LISTED:
        rows = with_column(rows, name, pc.if_else(pa.array(leave), rows[name], now[name]))
    return rows


def without_settings(rows: pa.Table, unsettled: Mask) -> pa.Table:
    """Return the rows, without the settings of unsettled ones."""
    if not unsettled.any():
        return rows
    for name in SETTINGS:
        rows = with_column(rows, name, pc.if_else(pa.array(unsettled), None, rows[name]))
    return rows


_Pieces = Callable[[list[str] | None], Iterator[pa.Table]]
"""Reads rows of a build or a snapshot piece by piece, with all columns or some."""


def merge(
    catalog: Catalog, own: _Pieces, newer: Snapshot, scope: ListingScope
) -> tuple[Iterator[pa.Table], int]:
    """Return the rows of a build, which `own` reads, merged with those of `newer`, in order.

    And how many of them are of `newer`. Raises CatalogError if a part of either is damaged.
    """

    def others(columns: list[str] | None) -> Iterator[pa.Table]:
        return catalog.read_pieces(newer, columns)

    mine, theirs = _table(own(_KEYS)), _table(others(_KEYS))
    base = _base_rows(catalog, scope.base)
    is_segment = pc.is_valid(mine["base_offset"]).to_numpy()
    at = pc.index_in(mine["log_uri"], value_set=theirs["log_uri"]).fill_null(-1).to_numpy()
    is_theirs = at >= 0
    from_theirs = ~scope.at(mine)
    if newer.created_ms > scope.now_ms and theirs.num_rows:
        from_theirs |= is_theirs & _changed_since(theirs, base)[at]
    keep = ~(is_segment & from_theirs)
    take = _rows_of_others(theirs, mine.filter(pa.array(keep)), base, scope)
    too_soon = may_change_unseen(
        pc.fill_null(theirs["last_modified_ms"], 0).to_numpy(), newer.created_ms
    )

    kept = (rows for rows, _ in _chosen(own(None), keep))
    taken = (
        without_settings(rows, too_soon[numbers]) for rows, numbers in _chosen(others(None), take)
    )
    return merged([kept, taken]), int(take.sum())


def _rows_of_others(theirs: pa.Table, kept: pa.Table, base: pa.Table, scope: ListingScope) -> Mask:
    """Return which rows of the newer snapshot belong to other builds and stay."""
    absent = pc.invert(pc.is_in(theirs["log_uri"], value_set=kept["log_uri"])).to_numpy()
    was_known = pc.is_in(theirs["log_uri"], value_set=base["log_uri"]).to_numpy()
    dropped = scope.at(theirs) & was_known & ~_changed_since(theirs, base)
    is_segment = pc.is_valid(theirs["base_offset"]).to_numpy()
    taken: Mask = is_segment & absent & ~dropped
    return taken


def _base_rows(catalog: Catalog, base: Snapshot | None) -> pa.Table:
    try:
        return _table(catalog.read_pieces(base, _KEYS)) if base else _table(iter(()))
    except CatalogError:  # pruned or damaged since: the base is unknown
        return _table(iter(()))


def _table(pieces: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables([SEGMENTS.empty_table().select(_KEYS), *pieces])


def _changed_since(rows: pa.Table, base: pa.Table) -> Mask:
    """Return which rows differ from the base: another build has listed them since."""
    before = base.take(pc.index_in(rows["log_uri"], value_set=base["log_uri"]))
    is_other = [differs(before, rows, name) for name in ("log_uri", *_COMPARED)]
    changed: Mask = np.logical_or.reduce(is_other)
    return changed


def _chosen(pieces: Iterator[pa.Table], chosen: Mask) -> Iterator[tuple[pa.Table, Int64s]]:
    """Yield the chosen rows of each piece, and their numbers in all pieces together."""
    begin = 0
    for piece in pieces:
        rows = np.flatnonzero(chosen[begin : begin + piece.num_rows])
        if len(rows):
            yield piece.take(rows), rows + begin
        begin += piece.num_rows
