"""The sums of a snapshot that was judged a range of partitions at a time, by any engine.

A range has all replicas of its partitions, so its holes are found from the same rows. What remains
of a range has a row per partition, not one per segment.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import JUDGED, columns_of
from kip33.catalog.holes import OF_HOLES, holes_of
from kip33.catalog.holes import in_order as holes_in_order
from kip33.catalog.partition_ranges import (
    BY_PARTITION,
    BY_REPLICA,
    rows_in_ranges,
)
from kip33.catalog.schema import SEGMENTS
from kip33.retention.evaluated_tables import (
    freed_table,
    judged_rows,
    partitions_table,
)
from kip33.retention.evaluation import RetentionRequest, evaluate_columns
from kip33.rules.policies import Policies

SUMMED: Final = tuple(dict.fromkeys((*JUDGED, *OF_HOLES)))
"""The columns of a catalog that the sums need."""


class SnapshotSums(NamedTuple):
    """The tables of a judged snapshot, or of a range, that have no row per segment."""

    partitions: pa.Table  # `evaluated_tables.partitions_table`
    freed: pa.Table  # `evaluated_tables.freed_table`
    holes: pa.Table  # `catalog.holes.HOLES`


@dataclass(frozen=True)
class SumsRequest:
    """What is summed; sent to every task."""

    request: RetentionRequest
    moments_ms: Sequence[int]  # for `freed`
    of_holes: Policies  # which topics are compacted
    reborn: frozenset[str]  # `partition_ranges.reborn_topics`

    def sums_of(self, rows: pa.Table) -> SnapshotSums:
        """Return the sums of some rows with the columns SUMMED, of whole partitions."""
        evaluated = evaluate_columns(columns_of([rows]), self.request)
        return SnapshotSums(
            partitions_table(evaluated),
            freed_table(evaluated, self.moments_ms),
            holes_of(rows, self.of_holes, reborn=self.reborn),
        )


def merged(parts: Iterable[SnapshotSums]) -> SnapshotSums:
    """Return the sums of ranges as those of all, in order; there must be one range at least."""
    partitions, freed, holes = zip(*parts, strict=True)
    sizes: Any = [("segments", "sum"), ("bytes", "sum")]
    every = pa.concat_tables(freed).group_by(["at_ms", "topic"]).aggregate(sizes)
    every = every.select(["at_ms", "topic", "segments_sum", "bytes_sum"])
    return SnapshotSums(
        _sorted(pa.concat_tables(partitions), BY_REPLICA),
        _sorted(every.rename_columns(freed[0].column_names), ("at_ms", "topic")),
        holes_in_order(holes),
    )


def _sorted(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return rows in order, null first."""
    columns = {f"{key} is known": pc.is_valid(rows[key]) for key in keys}
    sorted_by: Any = [(name, "ascending") for key in keys for name in (f"{key} is known", key)]
    order = pc.sort_indices(pa.table(columns | {key: rows[key] for key in keys}), sorted_by)
    return rows.take(order)


def sum_snapshot(
    catalog: Catalog, snapshot: Snapshot, counts: pa.Table, asked: SumsRequest
) -> SnapshotSums:
    """Return the sums of a snapshot; CatalogError if a part is damaged.

    `counts` are those of `partition_ranges.count_rows`.
    """
    topics = asked.request.topics
    each = rows_in_ranges(catalog, snapshot, SUMMED, BY_PARTITION, topics, counts=counts)
    return merged(map(asked.sums_of, each))


def judged_segments(
    catalog: Catalog, snapshot: Snapshot, counts: pa.Table, request: RetentionRequest
) -> Iterator[pa.Table]:
    """Yield the rows of the catalog in order with their decisions, some at a time."""
    topics = request.topics
    each = rows_in_ranges(catalog, snapshot, SEGMENTS.names, BY_REPLICA, topics, counts=counts)
    for rows in each:
        yield from judged_rows(evaluate_columns(columns_of([rows]), request), rows)
