"""The difference of two snapshots: one row per segment that changed.

    changes          the segment's log file ...
    added            is only in the later snapshot
    gone             is only in the earlier one
    grown, shrunk    has another size
    status changed   has another status
    modified         has the same size but another modification time, or other values or another
                     error with the same status

A segment may have several changes. Values that follow from a size or a status are not reported
again. Values that depend only on a build's settings (entries, the state of the index file) are not
compared. Rows of both snapshots are matched by their keys (`catalog.segment_order`), including rows
of directories that could not be listed.
"""

from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import KEY, order_of, side_by_side


class SegmentChange(StrEnum):
    """A change of a segment's log file; each member is its own text."""

    ADDED = "added"
    GONE = "gone"
    GROWN = "grown"
    SHRUNK = "shrunk"
    STATUS_CHANGED = "status changed"
    MODIFIED = "modified"


_FIGURES: Final = (
    "size_bytes",  # known in only one snapshot: neither grown nor shrunk
    "valid_bytes",
    "last_offset",
    "batch_count",
    "record_count",
    "first_batch_timestamp",
    "max_timestamp",
    "offset_of_max_timestamp",
    "largest_timestamp",
    "out_of_order_batches",
    "error",
)
_COLUMNS: Final = list(dict.fromkeys([*KEY, "status", "last_modified_ms", *_FIGURES]))

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("changes", pa.list_(pa.string()), nullable=False),
    pa.field("size_bytes_before", pa.int64()),  # null if the segment was added
    pa.field("size_bytes_after", pa.int64()),  # null if the segment was removed
    pa.field("status_before", pa.string()),
    pa.field("status_after", pa.string()),
]
DIFFERENCE: Final = pa.schema(_FIELDS)


def difference(catalog: Catalog, before: Snapshot, after: Snapshot) -> pa.Table:
    """Return the segments that changed from `before` to `after`: a DIFFERENCE, in their order.

    Only changed rows are held, and some parts of each snapshot. Raises CatalogError if a part is
    damaged.
    """
    none = SEGMENTS.empty_table().select(_COLUMNS)
    runs = [catalog.read_pieces(one, _COLUMNS) for one in (before, after)]
    found = [_changed(old, new) for old, new in side_by_side(runs, none) if not old.equals(new)]
    return pa.concat_tables([DIFFERENCE.empty_table(), *found])


def count_changes(changed: pa.Table) -> dict[str, int]:
    """Return the number of rows of a DIFFERENCE for each change that occurs."""
    names: Any = pc.list_flatten(changed["changes"])
    number = {pair["values"]: pair["counts"] for pair in names.value_counts().to_pylist()}
    return {change: number[change] for change in SegmentChange if change in number}


def _changed(old: pa.Table, new: pa.Table) -> pa.Table:
    """Return a row for each segment that changed, from the rows of both up to the same key."""
    before, after = _aligned(old, new)
    sizes = before["size_bytes"], after["size_bytes"]
    is_added, is_gone = (pc.is_null(rows["status"]).to_numpy() for rows in (before, after))
    is_grown, is_shrunk = (
        pc.fill_null(compared(*sizes), False).to_numpy() for compared in (pc.less, pc.greater)
    )
    has_other_status = differs(before, after, "status")
    is_modified = np.logical_or.reduce([differs(before, after, name) for name in _FIGURES])
    is_modified &= ~has_other_status
    is_modified |= differs(before, after, "last_modified_ms")
    stayed = ~is_added & ~is_gone
    columns = (is_grown, is_shrunk, has_other_status, is_modified & ~is_grown & ~is_shrunk)
    flags = np.stack([is_added, is_gone, *(column & stayed for column in columns)], axis=1)
    keys = pa.table({name: pc.coalesce(after[name], before[name]) for name in KEY})
    order = order_of(keys)
    order = order[flags[order].any(axis=1)]
    flags, numbers = flags[order], pa.array(order)
    lists = pa.ListArray.from_arrays(
        pa.array(np.append(0, np.cumsum(flags.sum(axis=1))), pa.int32()),
        pa.array(list(SegmentChange)).take(pa.array(np.nonzero(flags)[1])),
    )
    shown = [
        rows[name].take(numbers) for name in ("size_bytes", "status") for rows in (before, after)
    ]
    return pa.table([keys["log_uri"].take(numbers), lists, *shown], schema=DIFFERENCE)


def _aligned(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return all segments before and after, one row for each; nulls where one is not there."""
    was_at = pc.index_in(new["log_uri"], value_set=old["log_uri"])
    was = old.select(KEY).take(was_at)
    is_other = [differs(was, new, name) for name in KEY]
    was_at = pc.if_else(pa.array(np.logical_or.reduce(is_other)), None, was_at)
    is_gone = np.ones(old.num_rows, bool)
    is_gone[was_at.drop_null().to_numpy()] = False
    gone = old.filter(pa.array(is_gone))
    nothing = new.take(pa.nulls(gone.num_rows, pa.int64()))
    return pa.concat_tables([old.take(was_at), gone]), pa.concat_tables([new, nothing])


def differs(before: pa.Table, after: pa.Table, name: str) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return the rows where a column differs; null equals null."""
    one, other = before[name], after[name]
    is_other = pc.fill_null(pc.not_equal(one, other), False)
    found = pc.or_(is_other, pc.xor(one.is_null(), other.is_null()))
    return np.asarray(found.to_numpy(), bool)
