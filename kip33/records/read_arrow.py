"""`kip33.read_arrow`: an archive or a catalog as a stream of Arrow record batches."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time
from kip33.records.columns import CORRUPT, RECORDS, chosen
from kip33.records.partitions import PartitionSegments, Selection, Source, partitions_of
from kip33.records.record_request import RecordRequest, disorder_of, limits_of
from kip33.records.segment_reader import Faults, OnError, SegmentReader
from kip33.stores.filesystem_option import Filesystem
from kip33.stores.storage_options import StorageOptions

OneOrMore: TypeAlias = str | Sequence[str]


def read_arrow(  # parameters: each selects rows or columns, or says how to read
    source: Source,
    *,
    topic: OneOrMore | None = None,
    partition: int | Sequence[int] | None = None,
    log_dir: str | None = None,
    columns: Sequence[str] | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    include_control: bool = False,
    on_error: str = "row",
    skipped: list[str] | None = None,
    disorder: str | int | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    layout: str = "kafka",
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> pa.RecordBatchReader:
    """Return the records of an archive as Arrow record batches, read while they are used.

    `source` is an archive, a partition's directory, a log or a catalog, as a path or URI; a
    `Segment`; or what `open_catalog` returns. `layout` is that of an archive. `topic` is a name or
    a glob, or several of them; `partition` a number or several. Of a partition that several brokers
    have, the most complete replica is read, or the one in `log_dir`. Records are in the order of
    topic, partition and offset. Each record batch has records of one segment and at most 64 MiB of
    keys, values and headers, unless a single record has more.

    Columns, of which `columns` chooses some: `log_dir`, `topic`, `partition`, `base_offset` (of the
    segment), `offset`, `timestamp` (ms, UTC; null without one), `timestampType` (0 CreateTime, 1
    LogAppendTime, -1 none), `key`, `value`, `headers` (null without headers), and with
    `on_error="row"` `_corrupt`. Names and types are those of Spark's Kafka source. What is not
    chosen is not copied.

    Only records with `start_time` <= timestamp < `end_time` and `start_offset` <= offset <
    `end_offset` are returned. With a time, records without a timestamp are not. A time is ms since
    1970 or a `datetime` with a time zone. Without `disorder`, every later segment is read, because
    it may have an old record. `disorder` ("1h", or ms) promises that no record is older than an
    earlier one by more than this; then reading stops early. Control records are left out unless
    `include_control`; records of aborted transactions are included.

    A batch whose records cannot be read, the damaged end of a log, and a file that cannot be
    opened: `on_error="row"` gives one row with the reason in `_corrupt`, with null in the other
    columns that are unknown; "fail" raises CorruptSegmentError, UnsupportedFormatError or
    LocationError; "skip" appends one line to the list `skipped`, if it is given. Batches after an
    unreadable one are read. A batch that decompresses to more than `max_batch_bytes` counts as
    unreadable.

    Raises ValueError for a wrong argument, LocationError if there are no segments, CatalogError if
    the catalog is damaged.
    """
    choice = OnError(on_error)
    schema = RECORDS if choice == OnError.ROW else RECORDS.remove(RECORDS.get_field_index(CORRUPT))
    schema = chosen(schema, columns)
    request = RecordRequest(
        limits_of(start_time, end_time, start_offset, end_offset),
        include_control,
        disorder_of(disorder),
    )
    partitions = partitions_of(
        source,
        Selection(_topics(topic), _numbers(partition), log_dir),
        layout=layout,
        storage_options=storage_options,
        filesystem=filesystem,
    )
    faults = Faults(choice, [] if skipped is None else skipped)
    reader = SegmentReader(request, schema, faults, max_batch_bytes)
    return pa.RecordBatchReader.from_batches(schema, _records(reader, partitions))


def _records(
    reader: SegmentReader, partitions: Sequence[PartitionSegments]
) -> Iterator[pa.RecordBatch]:
    for partition in partitions:
        yield from reader.records(partition)


def _topics(topic: OneOrMore | None) -> tuple[str, ...]:
    if topic is None:
        return ()
    return (topic,) if isinstance(topic, str) else tuple(topic)


def _numbers(partition: int | Sequence[int] | None) -> frozenset[int] | None:
    if partition is None:
        return None
    return frozenset((partition,) if isinstance(partition, int) else partition)
