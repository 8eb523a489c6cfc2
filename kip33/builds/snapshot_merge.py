"""Merge a build's rows with a snapshot that another build committed in between.

A build lists some segments and carries the other rows over from its base, the snapshot that was the
newest when it began. If another snapshot is the newest when the build commits, the rows of both are
merged, so that no build's rows are lost:

- For segments that this build did not list, the row of the newer snapshot is used.
- For segments that both builds listed, the row of the later listing is used.
- A segment that only the newer snapshot has stays. If it no longer exists, the next build drops it.
  Without its row the owner of its index files would be unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.builds.carry_over import is_below, is_unwanted, without_settings
from kip33.builds.reuse import may_change_unseen
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import SEGMENTS
from kip33.errors import CatalogError

Mask = npt.NDArray[np.bool_]
Pieces = Callable[[list[str] | None], Iterator[pa.Table]]
"""Reads rows of a build or a snapshot piece by piece, with all columns or some."""

_COMPARED: Final = [
    *("size_bytes", "last_modified_ms", "build_settings", "status", "kip33_version"),
    *("time_index_bytes", "time_index_modified_ms"),
    *("offset_index_bytes", "offset_index_modified_ms"),
    *("transaction_index_bytes", "transaction_index_modified_ms"),
    *("producer_snapshot_bytes", "producer_snapshot_modified_ms"),
]
_KEYS: Final = ["log_uri", "topic", "base_offset", *_COMPARED]


class Looked(NamedTuple):
    """The scope and the time of a build's listing."""

    base: Snapshot | None  # the newest snapshot when it began
    topics: Sequence[str]
    unlistable: tuple[str, ...]  # URIs with a slash at the end
    now_ms: int  # when its listing began

    @property
    def is_partial(self) -> bool:
        """Return whether there may be segments that it did not list."""
        return bool(self.topics or self.unlistable)

    def at(self, rows: pa.Table) -> Mask:
        """Return which segments it listed."""
        unseen = is_unwanted(rows["topic"], self.topics) | is_below(
            rows["log_uri"], self.unlistable
        )
        seen: Mask = ~unseen
        return seen


class Merged(NamedTuple):
    """The rows of a build and of a newer snapshot, as one set."""

    tables: Iterator[pa.Table]
    taken: int  # rows of the newer snapshot among them


def merge(catalog: Catalog, own: Pieces, newer: Snapshot, looked: Looked) -> Merged:
    """Return the rows of a build, which `own` reads, merged with those of `newer`.

    Raises CatalogError if a part of either is damaged.
    """

    def others(columns: list[str] | None) -> Iterator[pa.Table]:
        return catalog.read_pieces(newer, columns)

    mine, theirs = _table(own(_KEYS)), _table(others(_KEYS))
    base = _base_rows(catalog, looked.base)
    is_segment = pc.is_valid(mine["base_offset"]).to_numpy()
    at = pc.index_in(mine["log_uri"], value_set=theirs["log_uri"]).fill_null(-1).to_numpy()
    is_theirs = at >= 0
    from_theirs = ~looked.at(mine)
    if newer.created_ms > looked.now_ms and theirs.num_rows:
        from_theirs |= is_theirs & _changed_since(theirs, base)[at]
    keep = ~(is_segment & from_theirs)
    take = _taken(theirs, mine.filter(pa.array(keep)), base, looked)
    too_soon = may_change_unseen(
        pc.fill_null(theirs["last_modified_ms"], 0).to_numpy(), newer.created_ms
    )

    def tables() -> Iterator[pa.Table]:
        yield from _masked(own(None), keep)
        begin = 0
        for piece in others(None):
            end = begin + piece.num_rows
            rows = np.flatnonzero(take[begin:end])
            if len(rows):
                yield without_settings(piece.take(rows), too_soon[begin:end][rows])
            begin = end

    return Merged(tables(), int(take.sum()))


def _taken(theirs: pa.Table, kept: pa.Table, base: pa.Table, looked: Looked) -> Mask:
    """Return which rows of the newer snapshot belong to other builds and stay."""
    absent = pc.invert(pc.is_in(theirs["log_uri"], value_set=kept["log_uri"])).to_numpy()
    was_known = pc.is_in(theirs["log_uri"], value_set=base["log_uri"]).to_numpy()
    dropped = looked.at(theirs) & was_known & ~_changed_since(theirs, base)
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
    """Return which rows differ from the base: a build listed them in between."""
    at = pc.index_in(rows["log_uri"], value_set=base["log_uri"])
    before = base.take(at.fill_null(0) if base.num_rows else pa.array([], pa.int64()))
    changed = pc.is_null(at).to_numpy()
    if base.num_rows:
        for name in _COMPARED:
            same = _same(rows[name], before[name])
            changed = changed | ~same
    mask: Mask = changed
    return mask


def _same(left: Any, right: Any) -> Mask:
    equal = pc.equal(left, right).fill_null(False)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    mask: Mask = pc.or_(equal, both_null).to_numpy()
    return mask


def _masked(pieces: Iterator[pa.Table], keep: Mask) -> Iterator[pa.Table]:
    begin = 0
    for piece in pieces:
        end = begin + piece.num_rows
        yield piece.filter(pa.array(keep[begin:end]))
        begin = end
