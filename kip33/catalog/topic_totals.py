"""Totals of a snapshot per topic, computed some partitions at a time."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

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
_OF_SUMS: Final = ["topic", "topic_id", "status"]  # what sums are of
_COPIED: Final = ("size_bytes", "record_count", "time_index_entries", "last_modified_ms")
_NOT_SUMMED: Final = {"first": "min", "largest": "max", "last_modified_ms": "max"}
_Sums: TypeAlias = dict[str, Any]


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
    each = [_sums(_summands(rows)) for rows in partitions(catalog, snapshot, _COLUMNS)]
    sums: defaultdict[str, list[_Sums]] = defaultdict(list)
    for row in _sums(pa.concat_tables(each)).to_pylist():
        sums[row["topic"] or ""].append(row)
    several = {topic for topic, rows in sums.items() if len(_by_topic_id(rows)) > 1}
    by_name: dict[str, TopicsOfName] = {}
    if several:
        pieces = catalog.read_pieces(snapshot, ["topic", *OF_TOPICS], several)
        by_name = topics_by_name(pa.concat_tables(pieces))
    return [
        _totals_of(topic, rows, by_name.get(topic, TopicsOfName()))
        for topic, rows in sorted(sums.items())
    ]


def _summands(rows: pa.Table) -> pa.Table:
    """Return what is summed of whole partitions, a row for each segment."""
    runs = runs_of(rows, PARTITION)
    bases, lasts = (
        pc.fill_null(rows[name], UNKNOWN_OFFSET).to_numpy()
        for name in ("base_offset", "last_offset")
    )
    kinds = np.where(bases == UNKNOWN_OFFSET, APART, overlaps(runs, bases, lasts))
    first = rows["first_batch_timestamp"]
    is_of_log = pc.equal(rows["largest_timestamp_source"], TimestampSource.LOG.value)
    has_batches = pc.greater(rows["batch_count"], 0)
    columns = {
        **{name: rows[name] for name in (*_OF_SUMS, *_COPIED)},
        "segments": np.ones(rows.num_rows, np.int64),
        "partitions": np.diff(runs, prepend=-1),
        "uncounted": pc.cast(pc.and_(pc.is_null(rows["record_count"]), has_batches), pa.int64()),
        **{name: (kinds == kind).astype(np.int64) for kind, name in NAMES.items()},
        "first": pc.if_else(pc.greater_equal(first, 0), first, None),
        "largest": pc.if_else(is_of_log, rows["largest_timestamp"], None),
    }
    return pa.table(columns)


def _sums(rows: pa.Table) -> pa.Table:
    """Return the sums of rows, with the same columns, for each topic, topic id and status."""
    names = [name for name in rows.column_names if name not in _OF_SUMS]
    asked: Any = [(name, _NOT_SUMMED.get(name, "sum")) for name in names]
    found = rows.group_by(_OF_SUMS).aggregate(asked)
    return found.select([*_OF_SUMS, *map("_".join, asked)]).rename_columns([*_OF_SUMS, *names])


def _totals_of(topic: str, rows: Sequence[_Sums], topics: TopicsOfName) -> TopicTotals:
    firsts = (row["first"] for row in rows if row["first"] is not None)
    largest = max((row["largest"] for row in rows if row["largest"] is not None), default=-1)
    not_ok: Counter[str] = Counter()
    for row in rows:
        if row["status"] not in UNDAMAGED_STATUSES:
            not_ok[row["status"]] += row["segments"]
    shared = {name: _total(rows, name) for name in sorted(NAMES.values())}
    return TopicTotals(
        topic,
        _total(rows, "partitions"),
        _total(rows, "segments"),
        _total(rows, "size_bytes"),
        None if _total(rows, "uncounted") else _total(rows, "record_count"),
        _total(rows, "time_index_entries"),
        min(firsts, default=None),
        largest if largest >= 0 else None,
        dict(sorted(not_ok.items())),
        {name: count for name, count in shared.items() if count},
        _topic_ids(_by_topic_id(rows), topics),
    )


def _total(rows: Iterable[_Sums], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def _by_topic_id(rows: Iterable[_Sums]) -> dict[str, list[_Sums]]:
    by_id: defaultdict[str, list[_Sums]] = defaultdict(list)
    for row in rows:
        if row["topic_id"] is not None:
            by_id[row["topic_id"]].append(row)
    return by_id


def _topic_ids(by_id: dict[str, list[_Sums]], topics: TopicsOfName) -> list[dict[str, Any]]:
    """Return the known topic ids, the newest first; the others are of topics deleted before."""
    modified_ms = {
        topic_id: max(row["last_modified_ms"] or 0 for row in rows)
        for topic_id, rows in by_id.items()
    }
    order = sorted(by_id, key=lambda one: (topics.is_older(one), -modified_ms[one], one))
    return [
        {
            "topic_id": topic_id,
            "segments": _total(by_id[topic_id], "segments"),
            "log_bytes": _total(by_id[topic_id], "size_bytes"),
            "newest": not topics.is_older(topic_id),
        }
        for topic_id in order
    ]
