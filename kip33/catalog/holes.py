"""Missing and shared offsets of a snapshot: holes between segments, and segments that overlap.

Also partitions with two directories, `orders-0` and `orders-00`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import repeated, split_uris
from kip33.catalog.partitions import names_in, partitions, topics_with_several_ids
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.topics_by_name import copies_in
from kip33.formats.names import two_directories_in
from kip33.rules.offset_holes import (
    APART,
    KINDS,
    NAMES,
    UNKNOWN_END,
    UNKNOWN_OFFSET,
    HoleKind,
    HoleTotals,
    SegmentEnds,
    find_holes,
    overlaps,
)
from kip33.rules.policies import MAX_INT64, Policies
from kip33.rules.retention import Int64s, RetentionMode
from kip33.rules.segment_summary import SegmentStatus
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
_KEY: Final = ("log_dir", "topic", "partition")
_PLACED: Final = [*_KEY, "base_offset", "last_offset"]
_COMPARED: Final = ["topic_id", "batches_crc32", "record_count", "status", "log_uri"]
OF_HOLES: Final = [*_PLACED, *_COMPARED]
_DAMAGED: Final = (SegmentStatus.TRUNCATED, SegmentStatus.INVALID, SegmentStatus.UNREADABLE)
_UNKNOWN_ID: Final = ""


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


def _partition_names(rows: pa.Table) -> Any:
    numbers = pc.cast(rows["partition"], pa.string())
    return pc.binary_join_element_wise(rows["topic"], numbers, "-").combine_chunks()


def in_order(tables: Iterable[pa.Table]) -> pa.Table:
    """Return some tables of HOLES as one, in order."""
    keys: Any = [(name, "ascending") for name in (*_KEY, "first_offset")]
    return pa.concat_tables(tables).sort_by(keys)


def holes_of(rows: pa.Table, policies: Policies | None, *, reborn: Collection[str]) -> pa.Table:
    """Return the holes in rows of a snapshot, which have the columns OF_HOLES.

    The rows are those of whole partitions, in any order: with all replicas, or each log directory
    alone, where no other fills a hole. `reborn` are the topics whose name several topics have.
    """
    one_topic = _ids_of_one_topic(rows, reborn)
    rows = _compact(rows.combine_chunks())
    log_dirs = repeated(rows["log_dir"])[1]
    topic_names, of_topics = repeated(rows["topic"])
    numbers = rows["partition"].to_numpy()
    bases = rows["base_offset"].to_numpy()
    is_reborn = np.array([topic in reborn for topic in topic_names], bool)[of_topics]
    of_one_topic = _topic_codes(rows["topic_id"], one_topic)  # others are no replicas
    topics = np.where(is_reborn, of_one_topic, -1)
    order = np.lexsort((bases, log_dirs, topics, numbers, of_topics))
    partitions = _numbered(of_topics[order], numbers[order], topics[order])
    segments = SegmentEnds(
        partitions,
        _numbered(partitions, log_dirs[order]),
        bases[order],
        rows["end"].to_numpy()[order],
        rows["is_damaged"].to_numpy()[order],
        rows["is_sparse"].to_numpy()[order]
        | _is_compacted(topic_names, policies)[of_topics[order]],
    )
    holes = find_holes(segments)
    before = rows.take(pa.array(order[holes.before]))
    columns = {
        **{name: pc.cast(before[name], HOLES.field(name).type) for name in _KEY},
        "first_offset": pa.array(holes.first_offsets),
        "last_offset": pa.array(holes.ends - 1),
        "missing_offsets": pa.array(holes.ends - holes.first_offsets),
        "hole": pa.array([KINDS[kind].value for kind in holes.kinds.tolist()], pa.string()),
        "after": rows["log_uri"].take(pa.array(order[holes.after])),
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


def _compact(rows: pa.Table) -> pa.Table:
    """Return the columns that are compared, of segments whose place in a partition is known."""
    is_placed = pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"]))
    rows = rows.filter(pc.and_(is_placed, pc.is_valid(rows["partition"])))
    is_empty = pc.equal(rows["status"], SegmentStatus.EMPTY.value)
    last = pc.if_else(is_empty, pc.subtract(rows["base_offset"], 1), rows["last_offset"])
    end = pc.add(pc.min_element_wise(last, MAX_INT64 - 1, skip_nulls=False), 1)
    span = pc.subtract(end, rows["base_offset"])
    statuses = pa.array([status.value for status in _DAMAGED])
    is_invalid = pc.equal(rows["status"], SegmentStatus.INVALID.value)
    is_split = pc.and_(is_invalid, pc.is_valid(rows["last_offset"]))  # by a broker that starts
    is_damaged = pc.and_(pc.is_in(rows["status"], value_set=statuses), pc.invert(is_split))
    return pa.table(
        {
            **{name: rows[name].dictionary_encode() for name in _KEY[:2]},
            "topic_id": pc.fill_null(rows["topic_id"], _UNKNOWN_ID).dictionary_encode(),
            "partition": rows["partition"],
            "base_offset": rows["base_offset"],
            "end": pc.fill_null(end, UNKNOWN_END),
            "is_damaged": is_damaged,
            "is_sparse": pc.fill_null(pc.less(rows["record_count"], span), False),
            "log_uri": rows["log_uri"],
        }
    )


def _is_compacted(topics: Sequence[str | None], policies: Policies | None) -> npt.NDArray[np.bool_]:
    if policies is None:
        return np.zeros(len(topics), bool)
    of_topics = [policies.of(topic or "").cleanup_policy or () for topic in topics]
    return np.array([RetentionMode.COMPACT in policy for policy in of_topics], bool)


def _ids_of_one_topic(rows: pa.Table, reborn: Collection[str]) -> dict[str, str]:
    """Return one topic id for those of each topic that has several; replicas may disagree."""
    of_topics = rows.filter(pc.is_in(rows["topic"], value_set=pa.array(reborn, pa.string())))
    ids = [one for one in pc.unique(of_topics["topic_id"]).to_pylist() if one is not None]
    copies = copies_in(of_topics) if len(ids) > 1 else {}
    return {
        one: same[0]
        for one, same in ids_of_topics(ids, chain.from_iterable(copies.values())).items()
    }


def _topic_codes(column: Any, one_topic: Mapping[str, str]) -> Int64s:
    """Return a number for the topic of each topic id, -1 where it is not known."""
    texts, codes = repeated(column)
    names = [one_topic.get(text or "", text or "") for text in texts]
    numbers = [-1 if name == _UNKNOWN_ID else names.index(name) for name in names]
    return np.array(numbers, np.int64)[codes]


def _numbered(*columns: npt.NDArray[Any]) -> Int64s:
    """Return a number that grows by one where a value changes."""
    changes = np.zeros(len(columns[0]), bool)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.cumsum(changes)


def overlaps_by_topic(catalog: Catalog, snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the number of segments for each kind of `rules.offset_holes.NAMES`, by topic.

    Topics without overlaps are left out. Only segments of one log directory are compared: replicas
    in several are expected. Raises CatalogError if a part is damaged.
    """
    pieces = [_placed_offsets(piece) for piece in catalog.read_pieces(snapshot, _PLACED)]
    rows = pa.concat_tables(
        pieces or [_placed_offsets(SEGMENTS.empty_table())]
    ).unify_dictionaries()
    texts = [repeated(rows[name])[1] for name in _KEY[:2]]
    codes = [*texts, rows["partition"].to_numpy()]
    base_offsets = rows["base_offset"].to_numpy()
    order = np.lexsort((base_offsets, *codes))
    partitions = _numbered(*(code[order] for code in codes))
    kinds = overlaps(partitions, base_offsets[order], rows["last_offset"].to_numpy()[order])
    at = np.flatnonzero(kinds != APART)
    topics = pc.cast(rows["topic"], pa.string()).take(pa.array(order[at]))
    counts: dict[str, Counter[str]] = {}
    for topic, kind in zip(topics.to_pylist(), kinds[at].tolist(), strict=True):
        counts.setdefault(topic, Counter())[NAMES[kind]] += 1
    return {topic: dict(sorted(count.items())) for topic, count in sorted(counts.items())}


class DirectoriesOfPartitions:
    """Collects the directories of each partition."""

    def __init__(self) -> None:
        self._directories: dict[tuple[Any, ...], set[str]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add catalog rows with the columns log_dir, topic, partition, base_offset, log_uri."""
        rows = rows.filter(pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"])))
        keys = rows.select(_KEY).append_column("directory", split_uris(rows["log_uri"])[0])
        for row in keys.group_by([*_KEY, "directory"]).aggregate([]).to_pylist():
            key = tuple(row[name] for name in _KEY)
            self._directories.setdefault(key, set()).add(row["directory"])

    def doubled(self) -> tuple[str, ...]:
        """Return a note, `A and B`, for each partition with two directories."""
        pairs = map(two_directories_in, self._directories.values())
        return tuple(sorted(" and ".join(pair) for pair in pairs if pair))


def _placed_offsets(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"])))
    columns: dict[str, Any] = {name: rows[name].dictionary_encode() for name in _KEY[:2]}
    columns |= {"partition": rows["partition"], "base_offset": rows["base_offset"]}
    columns["last_offset"] = pc.fill_null(rows["last_offset"], UNKNOWN_OFFSET)
    return pa.table(columns)
