"""Totals of a snapshot per topic, computed some partitions at a time."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.partitions import partitions
from kip33.catalog.segment_order import PARTITION, runs_of
from kip33.catalog.topics_by_name import OF_TOPICS, topics_by_name
from kip33.formats.times import UtcTime, utc_time
from kip33.rules.offset_holes import APART, NAMES, UNKNOWN_OFFSET, overlaps
from kip33.rules.segment_summary import UNDAMAGED_STATUSES, TimestampSource
from kip33.rules.topics_of_a_name import TopicsOfName

_COLUMNS: Final = (
    *(*PARTITION, "base_offset", "last_offset", "size_bytes", "record_count", "batch_count"),
    *("time_index_entries", "first_batch_timestamp", "largest_timestamp"),
    *("largest_timestamp_source", "status", "topic_id", "last_modified_ms"),
)


class TopicTotals(NamedTuple):
    """One topic's totals; `record_count` is None if a segment's records were not counted.

    `partitions` counts each replica of a partition (several log directories). The timestamps are
    the log's own, None without any.
    """

    topic: str
    partitions: int
    segments: int
    log_bytes: int
    record_count: int | None
    time_index_entries: int
    first_timestamp: int | None
    largest_timestamp: int | None
    not_ok: dict[str, int]
    overlaps: dict[str, int]  # segments that share offsets with an earlier one, by kind
    topic_ids: list[dict[str, Any]]  # of each: topic_id, segments, log_bytes, newest

    @property
    def first_time(self) -> UtcTime:
        """Return `first_timestamp` as a time."""
        return utc_time(self.first_timestamp)

    @property
    def largest_time(self) -> UtcTime:
        """Return `largest_timestamp` as a time."""
        return utc_time(self.largest_timestamp)


def topics_of(catalog: Catalog, snapshot: Snapshot) -> list[str]:
    """Return the topics of a snapshot, by name; CatalogError if it is damaged."""
    topics: set[Any] = set()
    for piece in catalog.read_pieces(snapshot, ["topic"]):
        topics.update(piece["topic"].unique().to_pylist())
    return sorted(topics - {None})


def topic_totals(catalog: Catalog, snapshot: Snapshot) -> list[TopicTotals]:
    """Return the totals of every topic of a snapshot, by name.

    Segments overlap only in one log directory: replicas in several are expected.
    """
    totals: defaultdict[str, _Totals] = defaultdict(_Totals)
    for rows in partitions(catalog, snapshot, _COLUMNS):
        for row in _sums(rows).to_pylist():
            totals[row["topic"] or ""].add(row)
    several = {name for name in totals if len(totals[name].topic_ids) > 1}
    by_name = _topics_by_name(catalog, snapshot, several) if several else {}
    return [
        TopicTotals(
            topic,
            total.partitions,
            total.segments,
            total.log_bytes,
            total.records if total.all_counted else None,
            total.entries,
            total.first,
            total.largest if total.largest >= 0 else None,
            dict(sorted(total.not_ok.items())),
            dict(sorted((+total.overlaps).items())),
            _topic_ids(total.topic_ids, by_name.get(topic, TopicsOfName())),
        )
        for topic, total in sorted(totals.items())
    ]


def _sums(rows: pa.Table) -> pa.Table:
    """Return the sums of whole partitions for each topic, topic id and status."""
    runs = runs_of(rows, PARTITION)
    bases, lasts = (
        pc.fill_null(rows[name], UNKNOWN_OFFSET).to_numpy()
        for name in ("base_offset", "last_offset")
    )
    kinds = np.where(bases == UNKNOWN_OFFSET, APART, overlaps(runs, bases, lasts))
    first = rows["first_batch_timestamp"]
    is_of_log = pc.equal(rows["largest_timestamp_source"], TimestampSource.LOG.value)
    has_batches = pc.greater(rows["batch_count"], 0)
    summed = {
        **{name: rows[name] for name in ("size_bytes", "record_count", "time_index_entries")},
        "partitions": np.diff(runs, prepend=-1),
        "uncounted": pc.and_(pc.is_null(rows["record_count"]), has_batches),
        **{name: kinds == kind for kind, name in NAMES.items()},
    }
    largest = {
        "largest": pc.if_else(is_of_log, rows["largest_timestamp"], None),
        "last_modified_ms": rows["last_modified_ms"],
    }
    columns = {
        **{name: rows[name] for name in ("topic", "topic_id", "status")},
        **summed,
        **largest,
        "first": pc.if_else(pc.greater_equal(first, 0), first, None),
    }
    asked: Any = [([], "count_all"), ("first", "min")]
    asked += [(name, "sum") for name in summed] + [(name, "max") for name in largest]
    return pa.table(columns).group_by(["topic", "topic_id", "status"]).aggregate(asked)


@dataclass
class _OfTopicId:
    segments: int = 0
    log_bytes: int = 0
    modified_ms: int = 0  # at the latest


@dataclass
class _Totals:
    partitions: int = 0
    segments: int = 0
    log_bytes: int = 0
    records: int = 0
    all_counted: bool = True
    entries: int = 0
    first: int | None = None
    largest: int = -1
    not_ok: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[str] = field(default_factory=Counter)
    topic_ids: dict[str, _OfTopicId] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        """Add a row of `_sums`."""
        segments, log_bytes = row["count_all"], row["size_bytes_sum"] or 0
        self.partitions += row["partitions_sum"]
        self.segments += segments
        self.log_bytes += log_bytes
        if row["topic_id"] is not None:
            of_id = self.topic_ids.setdefault(row["topic_id"], _OfTopicId())
            of_id.segments += segments
            of_id.log_bytes += log_bytes
            of_id.modified_ms = max(of_id.modified_ms, row["last_modified_ms_max"] or 0)
        self.records += row["record_count_sum"] or 0
        self.all_counted &= not row["uncounted_sum"]
        self.entries += row["time_index_entries_sum"] or 0
        firsts = (one for one in (self.first, row["first_min"]) if one is not None)
        self.first = min(firsts, default=None)
        self.largest = max(self.largest, -1 if row["largest_max"] is None else row["largest_max"])
        self.overlaps.update({name: row[f"{name}_sum"] or 0 for name in NAMES.values()})
        if row["status"] not in UNDAMAGED_STATUSES:
            self.not_ok[row["status"]] += segments


def _topics_by_name(
    catalog: Catalog, snapshot: Snapshot, topics: Collection[str]
) -> dict[str, TopicsOfName]:
    pieces = catalog.read_pieces(snapshot, ["topic", *OF_TOPICS], topics)
    return topics_by_name(pa.concat_tables(pieces))


def _topic_ids(by_id: dict[str, _OfTopicId], topics: TopicsOfName) -> list[dict[str, Any]]:
    """Return the known topic ids, the newest first; the others are of topics deleted before."""
    order = sorted(by_id, key=lambda one: (topics.is_older(one), -by_id[one].modified_ms, one))
    return [
        {
            "topic_id": topic_id,
            "segments": by_id[topic_id].segments,
            "log_bytes": by_id[topic_id].log_bytes,
            "newest": not topics.is_older(topic_id),
        }
        for topic_id in order
    ]
