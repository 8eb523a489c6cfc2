"""The sums of a snapshot that was judged some partitions at a time, by any engine.

What remains of them has a row per partition, not one per segment.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import JUDGED
from kip33.catalog.holes import OF_HOLES, holes_of, with_other_replicas
from kip33.retention.evaluated_tables import freed_table, partitions_table
from kip33.retention.evaluation import JudgedRows, RetentionRequest

SUMMED: Final = tuple(dict.fromkeys((*JUDGED, *OF_HOLES)))
"""The columns of a catalog that the sums need."""


class SnapshotSums(NamedTuple):
    """The tables of a judged snapshot, or of some partitions, that have no row per segment."""

    partitions: pa.Table  # `evaluated_tables.partitions_table`
    freed: pa.Table  # `evaluated_tables.freed_table`
    holes: pa.Table  # `catalog.holes.HOLES`


def sums_of(judged: JudgedRows, request: RetentionRequest) -> SnapshotSums:
    """Return the sums of some rows, which have the columns SUMMED.

    A hole is shown as if there were no other replica, see `sums_of_all`.
    """
    return SnapshotSums(
        partitions_table(judged),
        freed_table(judged, request.moments_ms),
        holes_of(judged.rows, request.policies_of_holes, reborn=request.reborn),
    )


def sums_of_all(
    catalog: Catalog, snapshot: Snapshot, request: RetentionRequest, parts: Iterable[SnapshotSums]
) -> SnapshotSums:
    """Return the sums of partitions, which are in order, as those of their snapshot.

    There must be one at least. Raises CatalogError if a part of the snapshot is damaged.
    """
    partitions, freed, holes = map(pa.concat_tables, zip(*parts, strict=True))
    sizes: Any = [("segments", "sum"), ("bytes", "sum")]
    every = freed.group_by(["at_ms", "topic"]).aggregate(sizes)
    every = every.select(["at_ms", "topic", "segments_sum", "bytes_sum"])
    every = every.rename_columns(freed.column_names)
    by_time: Any = [("at_ms", "ascending"), ("known", "ascending"), ("topic", "ascending")]
    every = every.append_column("known", pc.is_valid(every["topic"]))  # null is first
    every = every.sort_by(by_time).drop("known")
    policies, reborn = request.policies_of_holes, request.reborn
    holes = with_other_replicas(catalog, snapshot, holes, policies, reborn=reborn)
    return SnapshotSums(partitions, every, holes)
