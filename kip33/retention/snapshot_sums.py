"""The sums of a snapshot that was judged some partitions at a time, by any engine.

What remains of them has a row per partition, not one per segment.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import JUDGED, columns_of
from kip33.catalog.holes import OF_HOLES, holes_of, with_other_replicas
from kip33.catalog.partitions import partitions
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
    """The tables of a judged snapshot, or of some partitions, that have no row per segment."""

    partitions: pa.Table  # `evaluated_tables.partitions_table`
    freed: pa.Table  # `evaluated_tables.freed_table`
    holes: pa.Table  # `catalog.holes.HOLES`


@dataclass(frozen=True)
class SumsRequest:
    """What is summed; sent to every task."""

    request: RetentionRequest
    moments_ms: Sequence[int]  # for `freed`
    of_holes: Policies  # which topics are compacted
    reborn: frozenset[str]  # `partitions.topics_with_several_ids`

    def sums_of(self, rows: pa.Table) -> SnapshotSums:
        """Return the sums of some rows with the columns SUMMED, of whole partitions.

        A hole is shown as if there were no other replica, see `sums_of_all`.
        """
        evaluated = evaluate_columns(columns_of([rows]), self.request)
        return SnapshotSums(
            partitions_table(evaluated),
            freed_table(evaluated, self.moments_ms),
            holes_of(rows, self.of_holes, reborn=self.reborn),
        )

    def sums_of_all(
        self, catalog: Catalog, snapshot: Snapshot, parts: Iterable[SnapshotSums]
    ) -> SnapshotSums:
        """Return the sums of partitions, which are in order, as those of their snapshot.

        There must be one at least. Raises CatalogError if a part of the snapshot is damaged.
        """
        partitions, freed, holes = map(pa.concat_tables, zip(*parts, strict=True))
        sizes: Any = [("segments", "sum"), ("bytes", "sum")]
        every = freed.group_by(["at_ms", "topic"]).aggregate(sizes)
        every = every.select(["at_ms", "topic", "segments_sum", "bytes_sum"])
        every = every.rename_columns(freed.column_names)
        holes = with_other_replicas(catalog, snapshot, holes, self.of_holes, reborn=self.reborn)
        return SnapshotSums(partitions, _by_time(every), holes)


def _by_time(freed: pa.Table) -> pa.Table:
    """Return rows in order of time and topic, null first."""
    keys: Any = [("at_ms", "ascending"), ("known", "ascending"), ("topic", "ascending")]
    return freed.append_column("known", pc.is_valid(freed["topic"])).sort_by(keys).drop("known")


def sum_snapshot(catalog: Catalog, snapshot: Snapshot, asked: SumsRequest) -> SnapshotSums:
    """Return the sums of a snapshot; CatalogError if a part is damaged."""
    each = partitions(catalog, snapshot, SUMMED, asked.request.topics)
    return asked.sums_of_all(catalog, snapshot, map(asked.sums_of, each))


def judged_segments(
    catalog: Catalog, snapshot: Snapshot, request: RetentionRequest
) -> Iterator[pa.Table]:
    """Yield the rows of the catalog in order with their decisions, some at a time."""
    for rows in partitions(catalog, snapshot, SEGMENTS.names, request.topics):
        yield from judged_rows(evaluate_columns(columns_of([rows]), request), rows)
