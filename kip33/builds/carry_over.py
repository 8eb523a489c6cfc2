"""Rows of the newest snapshot that are copied into the next one.

    reused     the segment is unchanged
    carried    this build did not list it: another topic, or a directory that cannot be listed
    dropped    not copied: the segment no longer exists

Two kinds of carried rows lose their settings, so that the next build that lists the segment reads
it again and a search does not trust its index files. First, a row that was written too soon after
the segment's last change: the time of the next snapshot is not the time of that listing. Second, a
row whose index file may have been written by a build that was killed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column
from kip33.archive.sources import matches
from kip33.builds.reusable_rows import Int64s, Mask, ReusableRows
from kip33.builds.reuse import ListingMatch, may_change_unseen
from kip33.catalog.catalog import Snapshot, SnapshotPart
from kip33.catalog.draft import Draft, PartWriter
from kip33.catalog.schema import SEGMENTS

ROWS_PER_PART: Final = 250_000
LEAVE: Final = -1
LISTED: Final = ("active_segment", "topic_id", "partition_metadata_modified_ms")
SETTINGS: Final = ("build_settings", "time_index_settings", "offset_index_settings")


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
    *,
    suspect: Mask,
    topics: Sequence[str],
    unlistable: tuple[str, ...],
) -> CarryOver:
    """Decide for each row of `snapshot` whether it is reused, carried or dropped.

    `match` and `files`, a LISTING, are in the listing's order, `suspect` is in the snapshot's: rows
    whose index file may differ from what they say. `topics` are the globs of this build,
    `unlistable` the URIs, with a slash at the end, of directories that could not be listed.
    """
    listed_at = np.full(known.rows, LEAVE, np.int64)
    reused = match.at[match.reusable]
    listed_at[reused] = np.flatnonzero(match.reusable)
    taken = np.zeros(known.rows, bool)
    taken[reused] = True
    listed = np.zeros(known.rows, bool)
    listed[match.at[match.at >= 0]] = True
    unseen = is_unwanted(known.topic, topics) | is_below(known.log_uri, unlistable)
    carried = known.is_segment & ~listed & unseen
    dropped = known.is_segment & ~listed & ~carried
    too_soon = may_change_unseen(known.last_modified_ms, snapshot.created_ms)
    unsettled = carried & (too_soon | suspect)
    return CarryOver(
        snapshot,
        taken | carried,
        unsettled,
        listed_at,
        files.select(LISTED),
        dropped,
        len(reused),
        int(carried.sum()),
        int(dropped.sum()),
    )


def is_unwanted(topic: Column, topics: Sequence[str]) -> Mask:
    """Return which rows are of a topic that a build with these globs skips."""
    unwanted = [name for name in pc.unique(topic).to_pylist() if not matches(name, topics)]
    mask: Mask = pc.is_in(topic, value_set=pa.array(unwanted, pa.string())).to_numpy()
    return mask


def is_below(log_uri: Column, directories: tuple[str, ...]) -> Mask:
    """Return which logs are below one of some directories, URIs with a slash at the end."""
    mask = np.zeros(len(log_uri), bool)
    for directory in directories:
        mask |= pc.starts_with(log_uri, directory).to_numpy()
    return mask


def carry_over_rows(draft: Draft, takeover: CarryOver) -> Iterator[SnapshotPart]:
    """Write the copied rows into staging; yield their parts, numbered from 0.

    Raises CatalogError if the snapshot was damaged in between, PublishError if a part cannot be
    written.
    """
    yield from write_parts(draft, _taken_over(draft, takeover))


def _taken_over(draft: Draft, takeover: CarryOver) -> Iterator[pa.Table]:
    begin = 0
    for piece in draft.catalog.read_pieces(takeover.snapshot):
        end = begin + piece.num_rows
        rows = np.flatnonzero(takeover.taken[begin:end])
        if len(rows):
            at = takeover.listed_at[begin:end][rows]
            taken = _as_listed(piece.take(rows), takeover.listed, at)
            yield without_settings(taken, takeover.unsettled[begin:end][rows])
        begin = end


def write_parts(draft: Draft, tables: Iterable[pa.Table]) -> Iterator[SnapshotPart]:
    """Write rows into staging, some 100,000 per part; yield the parts, numbered from 0."""
    number = 0
    writer = PartWriter(draft.staging, number)
    for table in tables:
        writer.append_table(table)
        if writer.rows >= ROWS_PER_PART:
            yield writer.publish()
            number += 1
            writer = PartWriter(draft.staging, number)
    if writer.rows:
        yield writer.publish()


def _as_listed(rows: pa.Table, listed: pa.Table, at: Int64s) -> pa.Table:
    """Return rows with the values that do not depend on the log's bytes, from the listing."""
    leave = at == LEAVE
    now = listed.take(pa.array(at, mask=leave))
    for name in LISTED:
        rows = _with_column(rows, name, pc.if_else(pa.array(leave), rows[name], now[name]))
    return rows


def without_settings(rows: pa.Table, unsettled: Mask) -> pa.Table:
    """Return the rows, without the settings of unsettled ones."""
    for name in SETTINGS:
        rows = _with_column(rows, name, pc.if_else(pa.array(unsettled), None, rows[name]))
    return rows


def _with_column(rows: pa.Table, name: str, column: Column) -> pa.Table:
    number = SEGMENTS.get_field_index(name)
    return rows.set_column(number, SEGMENTS.field(number), column)
