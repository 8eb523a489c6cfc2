"""Totals of a snapshot per topic, computed one row group at a time."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.holes import overlaps_by_topic
from kip33.catalog.topics_by_name import OF_TOPICS, copies_in
from kip33.rules.segment_summary import SegmentStatus, TimestampSource
from kip33.rules.topics_of_a_name import LastChange, topics_of_name

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
    copies = _copies(
        catalog, snapshot, {name for name in totals if len(totals[name].topic_ids) > 1}
    )
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
            _topic_ids(total.topic_ids, copies.get(topic, ())),
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
            largest = row["max_timestamp"]
            change = LastChange(-1 if largest is None else largest, row["last_modified_ms"] or 0)
            of_id.changed = of_id.changed.later(change)
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


def _copies(
    catalog: Catalog, snapshot: Snapshot, topics: Collection[str]
) -> dict[str, list[list[str]]]:
    """Return ids of one topic by topic, see `copies_in`; usually no topic is asked for."""
    if not topics:
        return {}
    of_topics = pc.is_in(pc.field("topic"), value_set=pa.array(topics, pa.string()))
    pieces = catalog.read_pieces(snapshot, ["topic", *OF_TOPICS])
    return copies_in(pa.concat_tables([piece.filter(of_topics) for piece in pieces]))


def _topic_ids(
    by_id: dict[str, _OfTopicId], copies: Collection[Collection[str]]
) -> list[dict[str, Any]]:
    """Return the known topic ids, the newest first; the others are of topics deleted before."""
    topics = topics_of_name({one: by_id[one].changed for one in by_id}, copies)
    order = sorted(
        by_id, key=lambda one: (topics.is_older(one), -by_id[one].changed.modified_ms, one)
    )
    return [
        {
            "topic_id": topic_id,
            "segments": by_id[topic_id].segments,
            "log_bytes": by_id[topic_id].log_bytes,
            "newest": not topics.is_older(topic_id),
        }
        for topic_id in order
    ]
