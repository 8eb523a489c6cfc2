"""Totals of a snapshot per topic, computed one row group at a time.

Also the incarnations of a topic: a topic that was deleted and created again has another topic id.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.holes import overlaps_by_topic
from kip33.rules.offset_holes import LastChange, is_age_unsure, newest_topic_id
from kip33.rules.segment_summary import SegmentStatus, TimestampSource

_COLUMNS = [
    "log_dir",
    "topic",
    "partition",
    "size_bytes",
    "record_count",
    "batch_count",
    "time_index_entries",
    "first_batch_timestamp",
    "largest_timestamp",
    "largest_timestamp_source",
    "status",
    "topic_id",
    "last_modified_ms",
    "max_timestamp",
]
OF_INCARNATIONS: Final = ("topic_id", "last_modified_ms", "max_timestamp")
"""The columns, besides `topic`, that tell incarnations apart."""

IS_OLDER: Final = "is_older"
"""A column that `with_incarnations` adds: whether a newer topic of this name exists."""


IS_AGE_UNSURE: Final = "is_age_unsure"
"""A column that `with_incarnations` adds: whether file times contradict that."""


class TopicTotals(NamedTuple):
    """One topic's totals; `record_count` is None if a segment's records were not counted.

    `partitions` counts each replica of a partition (several log directories). The timestamps are
    the log's own, -1 without any.
    """

    topic: str
    partitions: int
    segments: int
    log_bytes: int
    record_count: int | None
    time_index_entries: int
    first_timestamp: int
    largest_timestamp: int
    not_ok: dict[str, int]
    overlaps: dict[str, int]  # segments that share offsets with an earlier one, by kind
    topic_ids: list[dict[str, Any]]  # of each: topic_id, segments, log_bytes, newest


def topics_of(catalog: Catalog, snapshot: Snapshot) -> list[str]:
    """Return the topics of a snapshot, by name; CatalogError if it is damaged."""
    topics: set[Any] = set()
    for piece in catalog.read_pieces(snapshot, ["topic"]):
        topics.update(piece["topic"].unique().to_pylist())
    return sorted(topics - {None})


def topic_totals(catalog: Catalog, snapshot: Snapshot) -> list[TopicTotals]:
    """Return the totals of every topic of a snapshot, by name."""
    overlapping = overlaps_by_topic(catalog, snapshot)
    totals: defaultdict[str, _Totals] = defaultdict(_Totals)
    for piece in catalog.read_pieces(snapshot, _COLUMNS):
        for row in piece.to_pylist():
            totals[row["topic"] or ""].add(row)
    return [
        TopicTotals(
            topic,
            len(total.partitions),
            total.segments,
            total.log_bytes,
            total.records if total.all_counted else None,
            total.entries,
            total.first if total.first is not None else -1,
            total.largest,
            dict(sorted(total.not_ok.items())),
            overlapping.get(topic, {}),
            _topic_ids(total.topic_ids),
        )
        for topic, total in sorted(totals.items())
    ]


@dataclass
class _OfTopicId:
    segments: int = 0
    log_bytes: int = 0
    changed: LastChange = field(default_factory=LastChange)


@dataclass
class _Totals:
    partitions: set[tuple[str | None, int | None]] = field(default_factory=set)
    segments: int = 0
    log_bytes: int = 0
    records: int = 0
    all_counted: bool = True
    entries: int = 0
    first: int | None = None
    largest: int = -1
    not_ok: Counter[str] = field(default_factory=Counter)
    topic_ids: dict[str, _OfTopicId] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        self.partitions.add((row["log_dir"], row["partition"]))
        self.segments += 1
        self.log_bytes += row["size_bytes"] or 0
        if row["topic_id"] is not None:
            of_id = self.topic_ids.setdefault(row["topic_id"], _OfTopicId())
            of_id.segments += 1
            of_id.log_bytes += row["size_bytes"] or 0
            of_id.changed = of_id.changed.later(_change_of(row))
        self.records += row["record_count"] or 0
        if row["record_count"] is None and row["batch_count"]:
            self.all_counted = False
        self.entries += row["time_index_entries"] or 0
        first = row["first_batch_timestamp"]
        if first is not None and first >= 0:
            self.first = first if self.first is None else min(first, self.first)
        if row["largest_timestamp_source"] == TimestampSource.LOG:
            self.largest = max(self.largest, row["largest_timestamp"])
        if row["status"] not in (SegmentStatus.OK, SegmentStatus.EMPTY):
            self.not_ok[row["status"]] += 1


def _topic_ids(by_id: dict[str, _OfTopicId]) -> list[dict[str, Any]]:
    """Return the known topic ids, the newest first; the others are of topics deleted before."""
    changed: dict[str | None, LastChange] = {
        topic_id: totals.changed for topic_id, totals in by_id.items()
    }
    newest = newest_topic_id(changed) or next(iter(by_id), None)
    return [
        {
            "topic_id": topic_id,
            "segments": by_id[topic_id].segments,
            "log_bytes": by_id[topic_id].log_bytes,
            "newest": topic_id == newest,
        }
        for topic_id in sorted(
            by_id, key=lambda one: (one != newest, -changed[one].modified_ms, one)
        )
    ]


def with_incarnations(rows: pa.Table) -> pa.Table:
    """Return the rows of all segments of their topics with the columns IS_OLDER, IS_AGE_UNSURE."""
    newest, unsure = _newest_ids(rows)
    if not newest:
        older: Any = pa.repeat(pa.scalar(False), rows.num_rows)
    else:
        at = pc.index_in(rows["topic"], value_set=pa.array(list(newest), pa.string()))
        expected = pa.array(list(newest.values()), pa.string()).take(at.combine_chunks())
        is_newest = pc.equal(rows["topic_id"].combine_chunks(), expected).fill_null(False)
        older = pc.and_(pc.is_valid(expected), pc.invert(is_newest))
    is_unsure = pc.is_in(rows["topic"], value_set=pa.array(unsure, pa.string()))
    return rows.append_column(IS_OLDER, older).append_column(IS_AGE_UNSURE, is_unsure)


def _newest_ids(rows: pa.Table) -> tuple[dict[str, str], list[str]]:
    """Return the newest incarnation of each topic with several, and topics where that is unsure."""
    known = rows.filter(pc.and_(pc.is_valid(rows["topic_id"]), pc.is_valid(rows["topic"])))
    pairs = pc.binary_join_element_wise(known["topic_id"], known["topic"], "/")
    if pc.count_distinct(pairs) == pc.count_distinct(known["topic"]):
        return {}, []  # the usual case; `group_by` would import Arrow's engine for queries
    each = known.select(["topic", *OF_INCARNATIONS]).group_by(["topic", "topic_id"])
    seen: defaultdict[str, dict[str | None, LastChange]] = defaultdict(dict)
    largest = each.aggregate([("last_modified_ms", "max"), ("max_timestamp", "max")])
    for row in largest.to_pylist():
        change = {name: row[f"{name}_max"] for name in ("last_modified_ms", "max_timestamp")}
        seen[row["topic"]][row["topic_id"]] = _change_of(change)
    newest = {topic: newest_topic_id(changed) for topic, changed in seen.items()}
    unsure = [topic for topic, changed in seen.items() if is_age_unsure(changed)]
    return {topic: one for topic, one in newest.items() if one is not None}, unsure


def _change_of(row: Mapping[str, Any]) -> LastChange:
    largest = row["max_timestamp"]
    return LastChange(-1 if largest is None else largest, row["last_modified_ms"] or 0)
