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
compared. Rows of both snapshots are matched by `log_uri`, including rows of directories that could
not be listed.
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot


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
_SHOWN: Final = ["log_uri", "size_bytes", "status"]
_COLUMNS: Final = list(dict.fromkeys([*_SHOWN, "last_modified_ms", *_FIGURES]))

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("changes", pa.list_(pa.string()), nullable=False),
    pa.field("size_bytes_before", pa.int64()),  # null if the segment was added
    pa.field("size_bytes_after", pa.int64()),  # null if the segment was removed
    pa.field("status_before", pa.string()),
    pa.field("status_after", pa.string()),
]
DIFFERENCE: Final = pa.schema(_FIELDS)

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


def difference(catalog: Catalog, before: Snapshot, after: Snapshot) -> pa.Table:
    """Return the segments that changed from `before` to `after`: a DIFFERENCE sorted by `log_uri`.

    Both snapshots' compared columns are in memory, about 100 bytes per segment plus its URI. Raises
    CatalogError if a part is damaged.
    """
    old, new = catalog.read(before, _COLUMNS), catalog.read(after, _COLUMNS)
    chunks: Any = pc.index_in(new["log_uri"], value_set=old["log_uri"])
    was_at = chunks.combine_chunks()
    in_both = was_at.is_valid()
    stayed = _Stayed(old, new, in_both, was_at.drop_null())
    is_gone = np.ones(old.num_rows, bool)
    is_gone[stayed.was_at.to_numpy()] = False
    gone = old.select(_SHOWN).filter(pa.array(is_gone))
    added = new.select(_SHOWN).filter(pc.invert(in_both))
    pieces = [
        _rows(gone["log_uri"], gone, _nothing(gone), _all(SegmentChange.GONE, gone)),
        _rows(added["log_uri"], _nothing(added), added, _all(SegmentChange.ADDED, added)),
        _changed(stayed),
    ]
    return pa.concat_tables(pieces).sort_by("log_uri")


def count_changes(changed: pa.Table) -> dict[str, int]:
    """Return the number of rows of a DIFFERENCE for each change that occurs."""
    names: Any = pc.list_flatten(changed["changes"])
    number = {pair["values"]: pair["counts"] for pair in names.value_counts().to_pylist()}
    return {change: number[change] for change in SegmentChange if change in number}


class _Stayed(NamedTuple):
    """The segments that are in both snapshots, read one column at a time to save copies."""

    old: pa.Table
    new: pa.Table
    in_both: Any  # a flag for each row of `new`
    was_at: Any  # for each flagged row, its row in `old`

    def both(self, name: str) -> tuple[Any, Any]:
        """Return a column before and after, aligned by segment."""
        return self.old[name].take(self.was_at), self.new[name].filter(self.in_both)

    def differs(self, name: str) -> _Flags:
        """Return flags of the rows where a column differs; null equals null."""
        before, after = self.both(name)
        other = pc.fill_null(pc.not_equal(before, after), False)
        return _flags(pc.or_(other, pc.xor(before.is_null(), after.is_null())))

    def rows(self, numbers: "np.ndarray[Any, Any]") -> tuple[pa.Table, pa.Table]:
        """Return the reported columns of some of the segments, before and after."""
        now_at = np.flatnonzero(_flags(self.in_both))[numbers]
        old = self.old.select(_SHOWN).take(self.was_at.take(pa.array(numbers)))
        return old, self.new.select(_SHOWN).take(pa.array(now_at))


def _changed(stayed: _Stayed) -> pa.Table:
    """Return a row for each segment that is in both snapshots and changed."""
    before, after = stayed.both("size_bytes")
    changes = np.zeros((len(before), len(SegmentChange)), bool)
    column = {change: changes[:, place] for place, change in enumerate(SegmentChange)}
    grown, shrunk = column[SegmentChange.GROWN], column[SegmentChange.SHRUNK]
    status, modified = column[SegmentChange.STATUS_CHANGED], column[SegmentChange.MODIFIED]
    grown[:] = _flags(pc.fill_null(pc.greater(after, before), False))
    shrunk[:] = _flags(pc.fill_null(pc.less(after, before), False))
    status[:] = stayed.differs("status")
    for name in _FIGURES:
        modified |= stayed.differs(name)
    modified &= ~status
    modified |= stayed.differs("last_modified_ms")
    modified &= ~grown & ~shrunk
    numbers = np.flatnonzero(changes.any(axis=1))
    old, new = stayed.rows(numbers)
    return _rows(new["log_uri"], old, new, changes[numbers])


def _rows(uris: Any, old: pa.Table, new: pa.Table, changes: _Flags) -> pa.Table:
    """Return a DIFFERENCE from aligned rows of `old` and `new`, with one flag per change."""
    names: Any = pa.array(list(SegmentChange))
    ends = np.concatenate([[0], np.cumsum(changes.sum(axis=1))])
    lists = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), names.take(pa.array(np.nonzero(changes)[1]))
    )
    sizes, statuses = ([table[name] for table in (old, new)] for name in ("size_bytes", "status"))
    return pa.table([uris, lists, *sizes, *statuses], schema=DIFFERENCE)


def _nothing(rows: pa.Table) -> pa.Table:
    """Return the same number of rows with null size and status."""
    size, status = pa.nulls(rows.num_rows, pa.int64()), pa.nulls(rows.num_rows, pa.string())
    return pa.table({"size_bytes": size, "status": status})


def _all(change: str, rows: pa.Table) -> _Flags:
    """Return flags that give all rows this one change."""
    return np.tile(np.array([name == change for name in SegmentChange]), (rows.num_rows, 1))


def _flags(booleans: Any) -> _Flags:
    """Return Arrow booleans, which have no nulls, as a numpy array."""
    return np.asarray(booleans, bool)
