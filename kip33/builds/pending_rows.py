"""Rows of segments with transactions, between the task that read them and the end of the build.

A task does not know which transactions are open at the start of its segment: another task may have
the previous segment. It therefore writes the row into staging with the segment's own transactions.
Later `builds.transaction_files` writes the `.txnindex` and completes the row. With
`--producer-snapshots` the same is true for the producers' states, so all rows wait.

In place, a new `.index` waits, too: a broker rebuilds a `.txnindex` only if the `.index` is
missing.
"""

from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.archive.directory import Segment
from kip33.archive.segment_paths import beside
from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import Published, PublishedFile, Wanted
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.draft import STAYS
from kip33.catalog.schema import SEGMENTS
from kip33.errors import CatalogError
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.broker_start import may_have_offset_index
from kip33.rules.transactions import TransactionSummary
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

MOST_PART_BYTES: Final = 2**31 - 1
TXNINDEX: Final = "txnindex"
PRODUCERS: Final = "snapshot"
_COLUMNS_OF: Final = {TXNINDEX: "transaction_index", PRODUCERS: "producer_snapshot"}
_EXTRA: list["pa.Field[Any]"] = [
    pa.field("transactions", pa.string()),  # the segment's TransactionSummary as JSON
    pa.field("transaction_index_uri", pa.string()),
    pa.field("transaction_index_listed", pa.bool_()),  # whether the file existed before the build
    pa.field("ours", pa.bool_()),  # whether this catalog's builds wrote the existing files
    pa.field("waiting_offset_index", pa.binary()),  # bytes of a waiting `.index`; null: not waiting
    pa.field("index_settings", pa.string()),  # that give its bytes
    pa.field("time_index_is_right", pa.bool_()),  # whether the `.timeindex` matches the log
    pa.field("seen_bytes", pa.int64()),  # of the `.txnindex` before the build; null: none
    pa.field("seen_modified_ms", pa.int64()),
    pa.field("producer_snapshot_uri", pa.string()),  # null: the build writes no `.snapshot`
    pa.field("producer_snapshot_ours", pa.bool_()),
    pa.field("producer_snapshot_seen_bytes", pa.int64()),  # before the build; null: none
    pa.field("producer_snapshot_seen_modified_ms", pa.int64()),
]
PENDING: Final = pa.schema([*SEGMENTS, *_EXTRA])
"""A row of SEGMENTS with the data that completes it."""


class PendingRow(NamedTuple):
    """One such row; `row` has the columns of SEGMENTS."""

    row: dict[str, Any]
    transactions: str
    transaction_index_uri: str
    transaction_index_listed: bool
    ours: bool
    waiting_offset_index: bytes | None
    index_settings: str
    time_index_is_right: bool
    seen_bytes: int | None
    seen_modified_ms: int | None
    producer_snapshot_uri: str | None
    producer_snapshot_ours: bool
    producer_snapshot_seen_bytes: int | None
    producer_snapshot_seen_modified_ms: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return a row of PENDING."""
        _, *extra = self
        return self.row | dict(zip((field.name for field in _EXTRA), extra, strict=True))


def is_pending(segment: Segment, transactions: TransactionSummary) -> bool:
    """Return whether the row waits: transactions begin or end here, or a `.txnindex` is there."""
    return not transactions.changes_nothing or segment.target_transaction_index_bytes is not None


def offset_index_waits(build: BuildSpec, segment: Segment, index: BuiltIndexes) -> bool:
    """Return whether the `.index` waits for the `.txnindex`: a new one in place, beside aborts."""
    if not build.offset_index or not build.in_place or index.transactions is None:
        return False
    is_new = segment.target_offset_index_bytes is None and may_have_offset_index(index.status)
    return is_new and len(index.transactions.aborts) > 0


def pending_row(
    build: BuildSpec,
    segment: Segment,
    row: dict[str, Any],
    transactions: TransactionSummary,
    waiting_offset_index: bytes | None,
) -> PendingRow:
    """Return the row of a segment that waits for its `.txnindex` or `.snapshot`.

    Perhaps it also waits for its `.index`.
    """
    return PendingRow(
        row,
        transactions.to_json(),
        _place_of(build, segment, TXNINDEX).uri,
        segment.target_transaction_index_bytes is not None,
        False,
        waiting_offset_index,
        build.index_settings,
        False,
        segment.target_transaction_index_bytes,
        segment.target_transaction_index_modified_ms,
        _place_of(build, segment, PRODUCERS).uri if build.producer_snapshots else None,
        False,
        segment.target_producer_snapshot_bytes,
        segment.target_producer_snapshot_modified_ms,
    )


def withdraw(
    build: BuildSpec, segment: Segment, row: dict[str, Any], kind: str, *, is_unreadable: bool
) -> None:
    """Delete our file of a kind if its log gives no index any more; errors become the row's note.

    `kind` is TXNINDEX or PRODUCERS.
    """
    published = Published()
    place = _place_of(build, segment, kind)
    wanted = Wanted(place, None, build.index_settings, listed=True)
    published.add(wanted, ours=True, overwrite=False, proves_nothing=is_unreadable)
    row["error"] = "; ".join(filter(None, (row["error"], *published.notes))) or None
    left = published.files[0]
    if left:
        name_in_row(row, kind, left)


def name_in_row(row: dict[str, Any], kind: str, file: PublishedFile) -> None:
    """Put a published `.txnindex` or `.snapshot` into its row."""
    columns = _COLUMNS_OF[kind]
    row[f"{columns}_bytes"] = file.size_bytes
    row[f"{columns}_modified_ms"] = file.modified_ms
    row[f"{columns}_crc32c"] = file.crc32c


def _place_of(build: BuildSpec, segment: Segment, kind: str) -> Location:
    return beside(build.index_location(segment), kind)


def read_staged(
    staging: Location, part: SnapshotPart, columns: list[str] | None = None
) -> pa.Table:
    """Return a part that a task of this build wrote into staging; CatalogError if it is missing."""
    place = staging.child(part.name)
    try:
        data = read_whole(place, most_bytes=MOST_PART_BYTES)
        return pq.read_table(pa.BufferReader(data), columns=columns, use_threads=False)
    except (OSError, ValueError) as error:
        raise CatalogError(
            f"{place.uri}: this part cannot be read: {error}; the snapshot is not committed, "
            f"{STAYS}: run the command again"
        ) from error


def pending_rows(table: pa.Table) -> list[PendingRow]:
    """Return the rows of a table of PENDING."""
    names = [field.name for field in _EXTRA]
    return [
        PendingRow({name: row[name] for name in SEGMENTS.names}, *(row[name] for name in names))
        for row in table.to_pylist()
    ]
