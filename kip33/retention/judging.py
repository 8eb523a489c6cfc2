"""A snapshot's segments, partition by partition, with what retention decides of each.

The rows are sorted as Arrow columns; Python's objects are those of one partition, or of one batch
of rows. `rules.retention` decides; here is only which rows make a partition, and which of the
deletable ones may go into a plan (D11).
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog
from kip33.catalog.index_file_state import IndexFileState
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.snapshot import Snapshot
from kip33.formats.names import partition_dir_of
from kip33.rules.retention import Decision, Limits, SegmentFigures, judge
from kip33.rules.segment_status import SegmentStatus

JUDGED_ROWS_PER_BATCH: Final = 1 << 16  # as Python's objects
_ORDER: Final = ("log_dir", "topic", "partition", "base_offset", "directory_uri", "name")
_REPEATED: Final = (
    *("log_dir", "topic", "directory_uri", "index_directory_uri"),
    *("largest_timestamp_source", "status"),
)
_READ: Final = [
    *("log_dir", "topic", "partition", "base_offset", "log_uri", "index_uri", "index_file"),
    *("largest_timestamp_source", "status", "size_bytes", "last_modified_ms"),
    *("largest_timestamp", "time_index_bytes", "offset_index_bytes"),
]


class CatalogRow(NamedTuple):
    """What retention asks of a catalog row; `base_offset` is None for an unlistable directory."""

    log_dir: str
    topic: str
    partition: int
    base_offset: int | None
    directory_uri: str  # that the log lies in
    name: str
    index_directory_uri: str | None  # of index files that builds wrote; None: none, or beside it
    largest_timestamp_source: str | None
    status: str
    size_bytes: int | None
    last_modified_ms: int | None
    largest_timestamp: int | None
    time_index_bytes: int | None
    offset_index_bytes: int | None

    @property
    def log_uri(self) -> str:
        """Return the URI of the log."""
        return f"{self.directory_uri}/{self.name}"


class JudgedPartition(NamedTuple):
    """The rows of one partition, oldest first, and a decision for each."""

    log_dir: str
    topic: str
    partition: int
    limits: Limits
    rows: list[CatalogRow]
    decisions: list[Decision]
    unlistable_uri: str | None  # a directory above it, or itself, that could not be listed

    @property
    def key(self) -> tuple[str, str, int]:
        """Return log_dir, topic and number."""
        return self.log_dir, self.topic, self.partition

    def deletable(self) -> list[tuple[CatalogRow, Decision]]:
        """Return what may expire: the oldest run, as the rule decides."""
        pairs = zip(self.rows, self.decisions, strict=True)
        return [(row, decision) for row, decision in pairs if decision.deletable]

    def why_unplannable(self, row: CatalogRow, *, trust_last_modified: bool) -> str | None:
        """Return why a deletable row may not go into a plan, None if it may (D11)."""
        if self.unlistable_uri:
            return f"{self.unlistable_uri} could not be listed, so segments may be missing"
        if row.directory_uri != self.rows[0].directory_uri:
            return f"{row.log_uri} and {self.rows[0].log_uri} belong to the same partition"
        if row.status == SegmentStatus.UNVERIFIED:
            return f"{row.log_uri} is unverified: the build did not read its log"
        if row.largest_timestamp_source == "last_modified" and not trust_last_modified:
            return (
                f"{row.log_uri} has no timestamps, only its file's modification time, which "
                "copying may change"
            )
        return None


LimitsOf: TypeAlias = Callable[[str, str, int], Limits | None]
"""What a partition, by log_dir, topic and number, is judged by; None: it is passed over."""


def judged_partitions(
    catalog: Catalog, snapshot: Snapshot, limits_of: LimitsOf, *, now_ms: int
) -> Iterator[JudgedPartition]:
    """Yield the partitions of a snapshot by log directory, topic and number.

    Raises CatalogError where a part is damaged.
    """
    rows = _columns(catalog, snapshot)
    directories = rows.filter(pc.is_null(rows["base_offset"]))
    unlistable = tuple(f"{row.log_uri}/" for row in _as_rows(directories))
    rows = _in_order(rows.filter(pc.is_valid(rows["topic"])))
    for (log_dir, topic, partition), group in groupby(_as_rows(rows), key=_partition_of):
        limits = limits_of(log_dir, topic, partition)
        if limits is None:
            continue
        segments = list(group)
        figures = [
            SegmentFigures(
                row.base_offset,
                row.size_bytes,
                row.largest_timestamp,
                row.status,
                None
                if row.base_offset is None
                else partition_dir_of(row.log_uri, topic, partition),
            )
            for row in segments
        ]
        decisions = judge(figures, limits, now_ms=now_ms)
        above = _above(segments, unlistable)
        yield JudgedPartition(log_dir, topic, partition, limits, segments, decisions, above)


def _columns(catalog: Catalog, snapshot: Snapshot) -> pa.Table:
    """Return the columns of CatalogRow; what repeats, above all directories, stands there once."""
    pieces = [_compact(piece) for piece in catalog.read_pieces(snapshot, _READ)]
    return pa.concat_tables(pieces or [_compact(SEGMENTS.empty_table())]).unify_dictionaries()


def _compact(rows: pa.Table) -> pa.Table:
    directory, name = _split(rows["log_uri"])
    index_directory, _ = _split(rows["index_uri"])
    is_written = pc.equal(rows["index_file"], IndexFileState.WRITTEN).fill_null(False)
    is_elsewhere = pc.and_(is_written, pc.not_equal(index_directory, directory).fill_null(False))
    columns = {
        **{column: rows[column] for column in _READ},
        "directory_uri": directory,
        "name": name,
        "index_directory_uri": pc.if_else(is_elsewhere, index_directory, None),
    }
    compact = {
        field: columns[field].dictionary_encode() if field in _REPEATED else columns[field]
        for field in CatalogRow._fields
    }
    return pa.table(compact)


def _split(uris: Any) -> tuple[Any, Any]:
    """Return the directories of URIs and the names in them."""
    parts = pc.split_pattern(uris, "/", max_splits=1, reverse=True)
    return pc.list_element(parts, 0), pc.list_element(parts, 1)


def _in_order(rows: pa.Table) -> pa.Table:
    """Return the rows by partition, oldest first, and before these directories without offset."""
    keys = {name: _ranks(rows[name]) for name in ("log_dir", "topic", "directory_uri")}
    keys |= {"partition": rows["partition"], "name": rows["name"]}
    keys["base_offset"] = pc.fill_null(rows["base_offset"], -1)
    order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in _ORDER])
    return rows.take(order)


def _ranks(column: Any) -> Any:
    """Return for each value of a dictionary encoded column its place in the order of all."""
    if not column.num_chunks:
        return pa.chunked_array([], pa.int32())
    values = column.chunk(0).dictionary  # all chunks have the same one
    ranks = pc.rank(values, sort_keys="ascending")
    return pa.chunked_array([ranks.take(chunk.indices) for chunk in column.chunks])


def _as_rows(table: pa.Table) -> Iterator[CatalogRow]:
    for batch in table.to_batches(max_chunksize=JUDGED_ROWS_PER_BATCH):
        plain = (
            pc.cast(column, pa.string()) if field in _REPEATED else column
            for field, column in zip(CatalogRow._fields, batch.columns, strict=True)
        )
        yield from map(CatalogRow, *(column.to_pylist() for column in plain))


def _partition_of(row: CatalogRow) -> tuple[str, str, int]:
    return row.log_dir, row.topic, row.partition


def _above(rows: list[CatalogRow], unlistable: tuple[str, ...]) -> str | None:
    """Return the first directory of `unlistable` that contains a row, or that is the row's."""
    if not unlistable:
        return None
    uris = [f"{row.log_uri}/" for row in rows]
    return next((uri[:-1] for uri in unlistable if any(u.startswith(uri) for u in uris)), None)
