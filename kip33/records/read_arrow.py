"""`kip33.read_arrow`: an archive or a catalog as a stream of Arrow record batches."""

from collections.abc import Sequence

import pyarrow as pa

from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time
from kip33.records.partitions import Source
from kip33.records.reading import OneOrMore, Reading
from kip33.stores.filesystem_option import Filesystem, StorageOptions


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
    topic, partition and offset. If segments share offsets, the record of the earliest one is
    returned; on Spark, and with `start_offset`, this needs a catalog. Each record batch has rows of
    one segment and at most 64 MiB of keys, values and headers, unless a single record has more. A
    catalog shows which segments are not needed; of a log that has grown since, the new part is not
    read.

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
    LocationError, and CorruptSegmentError for a record that would have a reason in `_undecided`;
    "skip" appends one line to the list `skipped`, if it is given. Batches after an unreadable one
    are read. A batch that decompresses to more than `max_batch_bytes` counts as unreadable.

    If the newest snapshot of a catalog is damaged, an older one is read, with a Python warning;
    with `on_error="fail"` CatalogError is raised.

    Raises ValueError for a wrong argument, LocationError if there are no segments, CatalogError if
    the catalog is damaged.
    """
    reading = Reading.of(
        level=level,
        topic=topic,
        partition=partition,
        log_dir=log_dir,
        columns=columns,
        start_time=start_time,
        end_time=end_time,
        start_offset=start_offset,
        end_offset=end_offset,
        isolation=isolation,
        include_control=include_control,
        on_error=on_error,
        disorder=disorder,
        max_batch_bytes=max_batch_bytes,
        layout=layout,
    )
    return reading.read(reading.partitions(source, storage_options, filesystem), skipped)
