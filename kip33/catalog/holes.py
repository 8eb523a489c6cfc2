"""Missing and shared offsets of a snapshot: holes between segments, and segments that overlap.

Also partitions with two directories, `orders-0` and `orders-00`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import split_uris
from kip33.catalog.partitions import names_in, partitions, topics_with_several_ids
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_findings import NEW, new_first
from kip33.catalog.segment_order import PARTITION, joined, runs_of
from kip33.catalog.topics_by_name import copies_in
from kip33.formats.names import two_directories_in
from kip33.rules.offset_holes import (
    KINDS,
    MISSING,
    UNKNOWN_END,
    HoleKind,
    HoleTotals,
    SegmentEnds,
    find_holes,
)
from kip33.rules.policies import MAX_INT64, Policies
from kip33.rules.retention import Int64s, RetentionMode
from kip33.rules.segment_summary import DAMAGED_STATUSES, SegmentStatus
from kip33.rules.topics_of_a_name import ids_of_topics

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("first_offset", pa.int64(), nullable=False),  # the first missing one
    pa.field("last_offset", pa.int64(), nullable=False),  # the last missing one
    pa.field("missing_offsets", pa.int64(), nullable=False),
    pa.field("hole", pa.string(), nullable=False),  # a HoleKind
    pa.field("after", pa.string(), nullable=False),  # log_uri of the segment before
    pa.field("before", pa.string(), nullable=False),  # log_uri of the segment after
]
HOLES: Final = pa.schema(_FIELDS)
_COMPARED: Final = ["topic_id", "batches_crc32", "record_count", "status", "log_uri"]
OF_HOLES: Final = [*PARTITION, "base_offset", "last_offset", *_COMPARED]


def read_holes(
    catalog: Catalog,
    snapshot: Snapshot,
    topics: Sequence[str] = (),
    *,
    policies: Policies | None = None,
) -> pa.Table:
    """Return the holes of a snapshot as HOLES, by log directory, topic, partition and offset.

    `topics` are globs. A topic is compacted if `policies` say so, or if a segment of the partition
    has fewer records than offsets. Raises CatalogError if a part is damaged.
    """
    reborn = topics_with_several_ids(names_in(catalog, snapshot))
    each = partitions(catalog, snapshot, OF_HOLES, topics)
    found = pa.concat_tables([holes_of(rows, policies, reborn=reborn) for rows in each])
    return with_other_replicas(catalog, snapshot, found, policies, reborn=reborn)


def with_other_replicas(
    catalog: Catalog,
    snapshot: Snapshot,
    of_replicas: pa.Table,
    policies: Policies | None,
    *,
    reborn: Collection[str],
) -> pa.Table:
    """Return the holes of replicas that were looked at alone, with those that others fill.

    The partitions with a hole are read again: their replicas are elsewhere in the snapshot.
    """
    if not of_replicas.num_rows:
        return of_replicas
    asked = of_replicas.select(["topic", "partition"]).group_by(["topic", "partition"])
    keys = _partition_names(asked.aggregate([]))
    topics: set[Any] = set(of_replicas["topic"].to_pylist())
    pieces = catalog.read_pieces(snapshot, OF_HOLES, topics)
    wanted = (piece.filter(pc.is_in(_partition_names(piece), value_set=keys)) for piece in pieces)
    rows = pa.concat_tables([SEGMENTS.empty_table().select(OF_HOLES), *wanted])
    return in_order([holes_of(rows, policies, reborn=reborn)])


def hole_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what says that two rows of HOLES are of the same hole: one that grows is another."""
    return tuple(row[name] for name in (*PARTITION, "first_offset", "last_offset", "hole"))


def new_holes_first(catalog: Catalog, snapshot: Snapshot, before: Snapshot | None) -> list[str]:
    """Return a line for each hole that is not filled; those that `before` has not are first."""
    rows = [row for row in read_holes(catalog, snapshot).to_pylist() if row["hole"] in MISSING]
    if before is None:
        return [hole_text(row) for row in rows]
    earlier = set(map(hole_key, read_holes(catalog, before).to_pylist()))
    is_new = [hole_key(row) not in earlier for row in rows]
    lines = [new_first(hole_text(row), one) for row, one in zip(rows, is_new, strict=True)]
    return sorted(lines, key=lambda line: not line.startswith(NEW))


def hole_text(row: Mapping[str, Any]) -> str:
    """Return a row of HOLES as `orders-0: offsets 3 to 7, 5 missing`."""
    log_dir = f"{row['log_dir']}/" if row["log_dir"] else ""
    return (
        f"{log_dir}{row['topic']}-{row['partition']}: offsets {row['first_offset']:,} to "
        f"{row['last_offset']:,}, {row['missing_offsets']:,} missing"
    )


def in_order(tables: Iterable[pa.Table]) -> pa.Table:
    """Return some tables of HOLES as one, in order."""
    return joined(tables, (*PARTITION, "first_offset"))


def _partition_names(rows: pa.Table) -> Any:
    numbers = pc.cast(rows["partition"], pa.string())
    return pc.binary_join_element_wise(rows["topic"], numbers, "-").combine_chunks()


def holes_of(rows: pa.Table, policies: Policies | None, *, reborn: Collection[str]) -> pa.Table:
    """Return the holes in rows of a snapshot, which have the columns OF_HOLES, in their order.

    The rows are those of whole partitions: with all replicas, or each log directory alone, where no
    other fills a hole. `reborn` are the topics whose name several topics have.
    """
    is_placed = pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"]))
    rows = rows.filter(pc.and_(is_placed, pc.is_valid(rows["partition"])))
    one_topic = _ids_of_topics(rows, reborn)  # others are no replicas
    names = pc.binary_join_element_wise(_partition_names(rows), one_topic, "/").dictionary_encode()
    partitions = names.indices.to_numpy().astype(np.int64)
    runs = runs_of(rows, PARTITION)
    order = np.lexsort((partitions, runs))  # which moves rows of topics of one name alone
    rows, partitions, runs = rows.take(pa.array(order)), partitions[order], runs[order]
    replicas = runs * (len(names.dictionary) + 1) + partitions
    holes = find_holes(_segment_ends(rows, partitions, replicas, policies))
    before = rows.take(pa.array(holes.before))
    columns = {
        **{name: before[name] for name in PARTITION},
        "first_offset": pa.array(holes.first_offsets),
        "last_offset": pa.array(holes.ends - 1),
        "missing_offsets": pa.array(holes.ends - holes.first_offsets),
        "hole": pa.array([KINDS[kind].value for kind in holes.kinds.tolist()], pa.string()),
        "after": rows["log_uri"].take(pa.array(holes.after)),
        "before": before["log_uri"],
    }
    return pa.table(columns, schema=HOLES)


def hole_totals(holes: pa.Table) -> HoleTotals:
    """Return the sums of the rows of `read_holes`."""
    counts = pc.value_counts(holes["hole"]).to_pylist()
    is_missing = pc.not_equal(holes["hole"], HoleKind.FILLED.value)
    offsets = pc.sum(holes.filter(is_missing)["missing_offsets"]).as_py()
    by_hole = {str(count["values"]): int(count["counts"]) for count in counts}
    return HoleTotals(dict(sorted(by_hole.items())), offsets or 0)


def _segment_ends(
    rows: pa.Table, partitions: Int64s, replicas: Int64s, policies: Policies | None
) -> SegmentEnds:
    is_empty = pc.equal(rows["status"], SegmentStatus.EMPTY.value)
    last = pc.if_else(is_empty, pc.subtract(rows["base_offset"], 1), rows["last_offset"])
    end = pc.add(pc.min_element_wise(last, MAX_INT64 - 1, skip_nulls=False), 1)
    span = pc.subtract(end, rows["base_offset"])
    statuses = pa.array([status.value for status in DAMAGED_STATUSES])
    is_invalid = pc.equal(rows["status"], SegmentStatus.INVALID.value)
    is_split = pc.and_(is_invalid, pc.is_valid(rows["last_offset"]))  # by a broker that starts
    is_damaged = pc.and_(pc.is_in(rows["status"], value_set=statuses), pc.invert(is_split))
    is_sparse = pc.fill_null(pc.less(rows["record_count"], span), False)
    is_compacted = pc.is_in(rows["topic"], value_set=_compacted_topics(rows, policies))
    return SegmentEnds(
        partitions,
        replicas,
        rows["base_offset"].to_numpy(),
        pc.fill_null(end, UNKNOWN_END).to_numpy(),
        is_damaged.to_numpy(),
        pc.or_(is_sparse, is_compacted).to_numpy(),
    )


def _compacted_topics(rows: pa.Table, policies: Policies | None) -> Any:
    topics: list[Any] = rows["topic"].unique().to_pylist() if policies else []
    compacted = [
        topic
        for topic in topics
        if policies and RetentionMode.COMPACT in (policies.of(topic).cleanup_policy or ())
    ]
    return pa.array(compacted, pa.string())


def _ids_of_topics(rows: pa.Table, reborn: Collection[str]) -> Any:
    """Return the topic id of each row whose topic has several, of one topic the same one.

    Replicas of one topic may disagree. All other rows have an empty text.
    """
    is_reborn = pc.is_in(rows["topic"], value_set=pa.array(reborn, pa.string()))
    several = rows.filter(is_reborn)
    ids = [one for one in pc.unique(several["topic_id"]).to_pylist() if one is not None]
    copies = copies_in(several) if len(ids) > 1 else {}
    same = ids_of_topics(ids, chain.from_iterable(copies.values()))
    first = pa.array([same[one][0] for one in ids], pa.string())
    known = first.take(pc.index_in(rows["topic_id"], value_set=pa.array(ids, pa.string())))
    return pc.fill_null(pc.if_else(is_reborn, known, ""), "").combine_chunks()


class DirectoriesOfPartitions:
    """Collects the directories of each partition."""

    def __init__(self) -> None:
        self._directories: dict[tuple[Any, ...], set[str]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add catalog rows with the columns log_dir, topic, partition, base_offset, log_uri."""
        rows = rows.filter(pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"])))
        keys = rows.select(PARTITION).append_column("directory", split_uris(rows["log_uri"])[0])
        for row in keys.group_by([*PARTITION, "directory"]).aggregate([]).to_pylist():
            key = tuple(row[name] for name in PARTITION)
            self._directories.setdefault(key, set()).add(row["directory"])

    def doubled(self) -> tuple[str, ...]:
        """Return a note, `A and B`, for each partition with two directories."""
        pairs = map(two_directories_in, self._directories.values())
        return tuple(sorted(" and ".join(pair) for pair in pairs if pair))
