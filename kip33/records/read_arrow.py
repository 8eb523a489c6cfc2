"""`kip33.read_arrow`: an archive or a catalog as a stream of Arrow record batches."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time
from kip33.records.batch_rows import BatchRows
from kip33.records.columns import BATCHES, CORRUPT, RECORDS, SEGMENT_TABLE, UNDECIDED, chosen
from kip33.records.faults import Faults, OnError
from kip33.records.partitions import PartitionSegments, Selection, Source, partitions_of
from kip33.records.record_request import RecordRequest, disorder_of, limits_of
from kip33.records.record_rows import RecordRows
from kip33.records.segment_reader import SegmentReader
from kip33.records.segment_rows import SegmentRows
from kip33.stores.filesystem_option import Filesystem
from kip33.stores.storage_options import StorageOptions

OneOrMore: TypeAlias = str | Sequence[str]


class Level(StrEnum):
    """What a row is."""

    RECORDS = "records"
    BATCHES = "batches"
    SEGMENTS = "segments"


class Isolation(StrEnum):
    """Which transactional records are returned, by Kafka's names."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class PartitionReader(Protocol):
    """What reads the partitions of a level."""

    def read(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""


_COLUMNS: Final = {
    Level.RECORDS: RECORDS,
    Level.BATCHES: BATCHES,
    Level.SEGMENTS: SEGMENT_TABLE,
}


def read_arrow(  # parameters: each selects rows or columns, or says how to read
    source: Source,
    *,
    level: str = "records",
    topic: OneOrMore | None = None,
    partition: int | Sequence[int] | None = None,
    log_dir: str | None = None,
    columns: Sequence[str] | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    isolation: str = "read_uncommitted",
    include_control: bool = False,
    on_error: str = "row",
    skipped: list[str] | None = None,
    disorder: str | int | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    layout: str = "kafka",
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> pa.RecordBatchReader:
    """Return an archive as Arrow record batches, which are read while they are used.

    `level` is what a row is: "records", "batches" (from headers, nothing is decompressed) or
    "segments". `kip33/api/RESULTS.md` lists the columns, of which `columns` chooses some; what is
    not chosen is not copied. Columns of records have the names and types of Spark's Kafka source.

    `source` is an archive, a partition's directory, a log or a catalog, as a path or URI; a
    `Segment`; or what `open_catalog` returns. `layout` is that of an archive. `topic` is a name or
    a glob, or several of them; `partition` a number or several. Of a partition that several brokers
    have, the most complete replica is read, or the one in `log_dir`. Rows are in the order of
    topic, partition and offset. Each record batch has rows of one segment and at most 64 MiB of
    keys, values and headers, unless a single record has more. A catalog shows which segments are
    not needed; of a log that has grown since, the new part is not read.

    Only records with `start_time` <= timestamp < `end_time` and `start_offset` <= offset <
    `end_offset` are returned; of other levels, what may have such records. With a time, records
    without a timestamp are not. A time is ms since 1970 or a `datetime` with a time zone. Without
    `disorder`, later segments are read too, because they may have an old record, unless the catalog
    has their smallest timestamp. `disorder` ("1h", or ms) promises that no record is older than an
    earlier one by more than this; then reading stops early.

    `isolation="read_committed"` leaves out records of aborted transactions, and all records from
    the first one of the oldest open transaction on, as a consumer does. It reads all headers of the
    partition first. If the log has a gap or damage, the records of transactions that are open there
    are returned, with the reason in `_undecided`. Control records are left out unless
    `include_control`.

    A batch whose records cannot be read, the damaged end of a log, and a file that cannot be
    opened: `on_error="row"` gives one row with the reason in `_corrupt`, with null in the other
    columns that are unknown; "fail" raises CorruptSegmentError, UnsupportedFormatError or
    LocationError; "skip" appends one line to the list `skipped`, if it is given. Batches after an
    unreadable one are read. A batch that decompresses to more than `max_batch_bytes` counts as
    unreadable.

    Raises ValueError for a wrong argument, LocationError if there are no segments, CatalogError if
    the catalog is damaged.
    """
    kind, choice = Level(level), OnError(on_error)
    request = RecordRequest(
        limits_of(start_time, end_time, start_offset, end_offset),
        include_control,
        disorder_of(disorder),
        Isolation(isolation) == Isolation.READ_COMMITTED,
    )
    schema = chosen(_schema(kind, choice, request), columns)
    partitions = partitions_of(
        source,
        Selection(_topics(topic), _numbers(partition), log_dir),
        layout=layout,
        storage_options=storage_options,
        filesystem=filesystem,
    )
    faults = Faults(choice, schema, [] if skipped is None else skipped)
    reader: PartitionReader
    if kind == Level.SEGMENTS:
        reader = SegmentRows(request, schema, faults)
    elif kind == Level.BATCHES:
        reader = SegmentReader(request, BatchRows(schema), faults)
    else:
        reader = SegmentReader(request, RecordRows(schema, max_batch_bytes), faults)
    return pa.RecordBatchReader.from_batches(schema, _rows(reader, partitions))


def _schema(kind: Level, choice: OnError, request: RecordRequest) -> pa.Schema:
    """Return all columns of a level, with those of problems that the caller wants to see."""
    hidden = set()
    if choice != OnError.ROW:
        hidden.add(CORRUPT)
    if not request.only_committed:
        hidden.add(UNDECIDED)
    return pa.schema([field for field in _COLUMNS[kind] if field.name not in hidden])


def _rows(
    reader: PartitionReader, partitions: Sequence[PartitionSegments]
) -> Iterator[pa.RecordBatch]:
    for partition in partitions:
        yield from reader.read(partition)


def _topics(topic: OneOrMore | None) -> tuple[str, ...]:
    if topic is None:
        return ()
    return (topic,) if isinstance(topic, str) else tuple(topic)


def _numbers(partition: int | Sequence[int] | None) -> frozenset[int] | None:
    if partition is None:
        return None
    return frozenset((partition,) if isinstance(partition, int) else partition)
