"""What is wrong with segments of a snapshot; first what is new since the snapshot before.

Findings are statuses, and `unwritten`: an index file that a build could not write.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import KEY, side_by_side
from kip33.errors import CatalogError
from kip33.rules.publication import IndexFileState
from kip33.rules.retention import KEPT_STATUSES

Bools: TypeAlias = npt.NDArray[np.bool_]

NEW: Final = "new: "  # the start of a line on a finding that the snapshot before has not
UNWRITTEN: Final = "unwritten"
_MOST_NAMED: Final = 10  # segments of a finding
_FINDINGS: Final = (*KEPT_STATUSES, UNWRITTEN)
_OF_INDEX_FILES: Final = ("time_index_entries", "index_file")
_REASONS: Final = ("error", "index_error")
_COLUMNS: Final = [*KEY, "status", "size_bytes", "valid_bytes", *_OF_INDEX_FILES, *_REASONS]
_GOOD_STATES: Final = (IndexFileState.WRITTEN, IndexFileState.KEPT, IndexFileState.NONE)


def new_first(text: str, is_new: bool | None) -> str:
    """Return the text of a finding, which says if it is new."""
    return f"{NEW}{text}" if is_new else text


class FoundSegment(NamedTuple):
    """A segment with a finding."""

    log_uri: str
    size_bytes: int | None
    byte: int | None  # where its valid batches end; None: it was not read, or is valid to its end
    reason: str
    is_new: bool | None  # the snapshot before had no such finding; None: it is the first

    def text(self, source: str) -> str:
        """Return its path below the archive, the byte and the reason.

        >>> FoundSegment("file:///a/t-0/7.log", 8192, 4096, "a CRC is wrong", True).text("file:///a")
        'new: t-0/7.log, byte 4,096: a CRC is wrong'
        """
        known = self.byte is None or self.reason.startswith("at byte")
        byte = "" if known else f", byte {self.byte:,}"
        text = f"{self.log_uri.removeprefix(f'{source}/')}{byte}: {self.reason}"
        return new_first(text, self.is_new)


@dataclass
class FoundSegments:
    """The segments with one finding: their number, their size, and the first of them."""

    segments: int = 0
    bytes: int = 0
    new: int | None = None  # since the snapshot before; None: the snapshot is the first
    first: list[FoundSegment] = field(default_factory=list)
    """At most _MOST_NAMED: new ones first, then the largest."""

    def add(self, rows: pa.Table, is_new: Bools | None, finding: str) -> None:
        """Add rows with the finding; `is_new` says which are new, None if that is not known."""
        sizes = pc.fill_null(rows["size_bytes"], 0).to_numpy()
        self.segments += rows.num_rows
        self.bytes += int(sizes.sum())
        if is_new is not None:
            self.new = (self.new or 0) + int(is_new.sum())
        order = np.lexsort([-sizes, np.zeros(len(sizes)) if is_new is None else ~is_new])
        order = order[:_MOST_NAMED]
        named = rows.take(pa.array(order)).to_pylist()
        for number, row in zip(order, named, strict=True):
            self.first.append(_named(row, finding, None if is_new is None else is_new[number]))
        self.first = sorted(self.first, key=_rank)[:_MOST_NAMED]


def _named(row: dict[str, Any], finding: str, is_new: np.bool_ | None) -> FoundSegment:
    valid, size = row["valid_bytes"], row["size_bytes"]
    byte = valid if finding != UNWRITTEN and size is not None and valid != size else None
    reason = row["index_error"] if finding == UNWRITTEN else row["error"]
    return FoundSegment(
        *(row["log_uri"], size, byte, reason or row["error"] or finding),
        is_new=None if is_new is None else bool(is_new),
    )


def _rank(one: FoundSegment) -> tuple[bool, int, str]:
    return not one.is_new, -(one.size_bytes or 0), one.log_uri


def read_segment_findings(
    catalog: Catalog, snapshot: Snapshot, before: Snapshot | None
) -> dict[str, FoundSegments]:
    """Return the segments of a snapshot by finding: KEPT_STATUSES, and UNWRITTEN.

    `before` is the snapshot that says what is new; a damaged one does not count. Raises
    CatalogError if a part of `snapshot` is damaged.
    """
    try:
        return _found_by_kind(catalog, snapshot, before)
    except CatalogError:
        if before is None:
            raise
    return _found_by_kind(catalog, snapshot, None)


def _found_by_kind(
    catalog: Catalog, snapshot: Snapshot, before: Snapshot | None
) -> dict[str, FoundSegments]:
    found: defaultdict[str, FoundSegments] = defaultdict(FoundSegments)
    none = SEGMENTS.empty_table().select(_COLUMNS)
    pieces = catalog.read_pieces(snapshot, _COLUMNS)
    earlier = iter(()) if before is None else catalog.read_pieces(before, _COLUMNS)
    for old, new in side_by_side([earlier, pieces], none):
        for finding, rows in _with_findings(new):
            is_new = None
            if before is not None:
                was_at = pc.index_in(rows["log_uri"], value_set=old["log_uri"])
                is_new = ~_has(old.take(was_at), finding)
            found[finding].add(rows, is_new, finding)
    return {finding: found[finding] for finding in _FINDINGS if finding in found}


def _with_findings(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for finding in _FINDINGS:
        which = _has(rows, finding)
        if which.any():
            yield finding, rows.filter(pa.array(which))


def _has(rows: pa.Table, finding: str) -> Bools:
    if finding == UNWRITTEN:
        found = is_unwritten(rows)
    else:
        found = pc.fill_null(pc.equal(rows["status"], str(finding)), False)
    return np.asarray(found.to_numpy(), bool)


def is_unwritten(rows: pa.Table) -> Any:
    """Return for each row whether its log gives index files that are missing or wrong."""
    is_expected = pc.is_valid(rows["time_index_entries"])
    is_there = pc.is_in(rows["index_file"], value_set=pa.array(_GOOD_STATES, pa.string()))
    return pc.and_(is_expected, pc.invert(is_there))
