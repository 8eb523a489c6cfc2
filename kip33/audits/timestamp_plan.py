"""The plan of an audit of timestamps: which logs are read, and what is asked of each.

The logs are those below a SOURCE, or those of a catalog's snapshot. Of a catalog the largest
timestamp before each segment is known, so each log is read once. Of a SOURCE a log is read a second
time if an earlier segment has a later timestamp than its first batch.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed
from kip33.archive.sources import matches, require_segments
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.errors import LocationError
from kip33.formats.batch import NO_TIMESTAMP
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.rules.timestamp_profile import LimitChoice
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("number", pa.int64(), nullable=False),  # the row's own
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("max_timestamp", pa.int64()),  # of the catalog; null: unknown
    pa.field("error", pa.string()),  # why the log is not read
    pa.field("largest_before", pa.int64(), nullable=False),  # of the partition's earlier segments
]
AUDITED: Final = pa.schema(_FIELDS)
"""One row per log, by partition, log directory and base offset."""

_OF_LISTING: Final = (
    *("log_dir", "topic", "partition", "base_offset", "size_bytes", "last_modified_ms", "error"),
)
_OF_CATALOG: Final = (*_OF_LISTING, "log_uri", "max_timestamp", "status")
_UNREAD: Final = (SegmentStatus.INVALID, *NOT_READ)


class AuditClock(StrEnum):
    """What stands in for the broker's clock at the append of a CreateTime batch."""

    FILE_TIME = "file-time"  # the time of the segment's file, which is not before the append
    NOW = "now"  # as if the archive were produced again


class TimestampQuestion(NamedTuple):
    """What is asked of all segments; sent to every task."""

    limits: LimitChoice
    clock: AuditClock
    now_ms: int

    def clock_ms(self, last_modified_ms: int | None) -> int | None:
        """Return the time that stands in for the broker's clock, None if it is unknown."""
        return last_modified_ms if self.clock == AuditClock.FILE_TIME else self.now_ms


class TimestampPlan(NamedTuple):
    """The logs to read, rows of AUDITED, and what is asked; no log is opened yet."""

    question: TimestampQuestion
    files: pa.Table
    source: Location  # the store of the logs
    snapshot: Snapshot | None = None  # None: the logs below a SOURCE

    @property
    def size_bytes(self) -> int:
        """Return the size of all logs."""
        return int(pc.sum(self.files["size_bytes"]).as_py() or 0)


def plan_timestamps(
    source: str,
    question: TimestampQuestion,
    *,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    snapshot: Snapshot | None = None,
    on_listed: Listed | None = None,
) -> TimestampPlan:
    """Return the plan for a SOURCE, or for a catalog and its chosen snapshot.

    Raises LocationError if there are no segments, CatalogError for a damaged catalog.
    """
    place = Location.of(source)
    if snapshot is not None:
        return _of_catalog(Catalog(place), snapshot, question, topics)
    listing = require_segments(place, topics, layout=layout_of(layout), on_listed=on_listed)
    table = listing.table
    uris = [segment.log(place).uri for segment in listing.segments()]
    columns = {name: table[name] for name in _OF_LISTING}
    columns["log_uri"] = pa.chunked_array([pa.array(uris, pa.string())])
    columns["max_timestamp"] = pa.chunked_array([pa.nulls(len(uris), pa.int64())])
    return TimestampPlan(question, _in_order(pa.table(columns)), place)


def is_catalog(place: Location) -> bool:
    """Return whether a place has a catalog; LocationError if there is no such directory."""
    require_directory(place, "SOURCE|CATALOG")
    return bool(Catalog(place).commit_names())


def with_largest_before(files: pa.Table, largest: Sequence[int]) -> pa.Table:
    """Return the rows with the largest timestamp of the earlier segments of each partition.

    `largest` has the largest timestamp of each row, -1 without one.
    """
    before, so_far, previous = [], NO_TIMESTAMP, None
    for key, timestamp in zip(keys_of(files), largest, strict=True):
        so_far = so_far if key == previous else NO_TIMESTAMP
        before.append(so_far)
        so_far, previous = max(so_far, timestamp), key
    column = pa.array(before, pa.int64())
    return files.set_column(AUDITED.get_field_index("largest_before"), "largest_before", column)


def keys_of(files: pa.Table) -> list[tuple[str | None, int | None, str | None, str]]:
    """Return topic, partition, log directory and directory of each row.

    The directory tells partitions without a name apart.
    """
    columns = (files[name].to_pylist() for name in ("topic", "partition", "log_dir", "log_uri"))
    return [(t, p, d, "" if t is not None else uri) for t, p, d, uri in zip(*columns, strict=True)]


def _of_catalog(
    catalog: Catalog, snapshot: Snapshot, question: TimestampQuestion, topics: Sequence[str]
) -> TimestampPlan:
    pieces = []
    for piece in catalog.read_pieces(snapshot, list(_OF_CATALOG)):
        if topics:
            names = pc.unique(piece["topic"]).to_pylist()
            wanted = pa.array([name for name in names if matches(name, topics)], pa.string())
            piece = piece.filter(pc.is_in(piece["topic"], value_set=wanted))
        pieces.append(piece)
    rows = pa.concat_tables(pieces) if pieces else None
    if rows is None or rows.num_rows == 0:
        wanted_text = f" of topics {', '.join(topics)}" if topics else ""
        raise LocationError(f"{catalog.location.uri}: the catalog has no segments{wanted_text}")
    is_unread = pc.is_in(rows["status"], value_set=pa.array([*_UNREAD], pa.string()))
    why = pc.binary_join_element_wise(rows["status"], pc.fill_null(rows["error"], ""), ": ")
    error = pc.if_else(is_unread, why, pa.scalar(None, pa.string()))
    rows = rows.set_column(rows.column_names.index("error"), "error", error)
    return TimestampPlan(question, _in_order(rows), Location.of(snapshot.source), snapshot)


def _in_order(rows: pa.Table) -> pa.Table:
    """Return rows of AUDITED, sorted, with what is known of the timestamps before each."""
    order = ("topic", "partition", "log_dir", "base_offset", "log_uri")
    rows = rows.sort_by([(name, "ascending") for name in order])
    columns = {field.name: rows[field.name] for field in list(AUDITED)[1:-1]}
    count = rows.num_rows
    number = pa.chunked_array([pa.array(range(count), pa.int64())])
    before = pa.chunked_array([pa.array([NO_TIMESTAMP] * count, pa.int64())])
    table = pa.table({"number": number, **columns, "largest_before": before}).cast(AUDITED)
    largest = pc.fill_null(table["max_timestamp"], NO_TIMESTAMP).to_pylist()
    return with_largest_before(table, largest)
