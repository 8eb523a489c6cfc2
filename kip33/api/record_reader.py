"""`kip33.read_arrow`, `scan_polars` and `write_records`: records by this process or by workers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Unpack

import pyarrow as pa

from kip33.archive import common_options as common
from kip33.archive.moments import current_ms
from kip33.archive.output_files import require_free
from kip33.catalog.catalog import warn_caller
from kip33.catalog.schema import with_time_columns
from kip33.local.local_engine import LocalEngine
from kip33.options import Path, parsed, picked, takes
from kip33.records.counting import CountOptions, RecordCount
from kip33.records.parallel_reading import ParallelReading
from kip33.records.partitions import Source, places_of
from kip33.records.polars_filter import bounds_of
from kip33.records.reading import Reading, ReadOptions
from kip33.records.record_selection import (
    RecordSelection,
    SelectedRecords,
    SelectOptions,
    format_of_name,
    write_selection,
)
from kip33.records.written_records import WriteRequest, WrittenRecords, write_new_records
from kip33.rules.policies import duration, positive_ms
from kip33.stores.filesystem_option import place_on, places_on

if TYPE_CHECKING:
    import polars as pl


_MOST_PROBLEMS: Final = 1_000  # lines that are kept


class LocalReadOptions(ReadOptions, total=False):
    """The options of `read_arrow` and `scan_polars`."""

    skipped: Annotated[list[str] | None, "With `skip`: a list that gets a line for each damage."]
    storage_options: common.StoreSettings
    filesystem: common.GivenFilesystem
    workers: common.MostWorkers


class LocalWriteOptions(ReadOptions, common.WorkerRun, total=False):
    """The options of `write_records`."""


class LocalCountOptions(CountOptions, common.WorkerRun, total=False):
    """The options of `count_records`."""


class LocalFileOptions(ReadOptions, SelectOptions, common.WorkerRun, total=False):
    """The options of `write_record_file`."""


@takes(LocalReadOptions, workers=1)
def read_arrow(source: Source, **options: Unpack[LocalReadOptions]) -> pa.RecordBatchReader:
    """Return an archive as Arrow record batches, which are read while they are used.

    >>> reader = read_arrow("archive", topic="orders", columns=["offset", "value"], end_offset=3)
    >>> reader.read_all()["offset"].to_pylist()
    [0, 1, 2]

    - `options`: see `ReadOptions`

    `level` is what a row is: "records", "batches" (from headers, nothing is decompressed) or
    "segments". `kip33/api/RESULTS.md` lists the columns, of which `columns` chooses some; what is
    not chosen is not copied. Columns of records have the names and types of Spark's Kafka source.

    `source` is an archive, a partition's directory, a log or a catalog, as a path or URI; a
    `Segment`; or what `open_catalog` returns, for one catalog or those of two tiers. `layout` is
    that of an archive. `topic` is a name or a glob, or several of them; `partition` a number or
    several. Of a partition that several brokers have, their one log is read, or what the one in
    `log_dir` has. Rows are in the order of topic, partition and offset. If segments share offsets,
    the record of the earliest one is returned; on Spark, and with `start_offset`, this needs a
    catalog. Each record batch has rows of one segment and at most 64 MiB of keys, values and
    headers, unless a single record has more. A catalog shows which segments are not needed; of a
    log that has grown since, the new part is not read.

    Only records with `start_time` <= timestamp < `end_time` and `start_offset` <= offset <
    `end_offset` are returned; of other levels, what may have such records. With a time, records
    without a timestamp are not. A text without a zone is UTC. Headers of batches tell which may
    have such records: one whose header claims only earlier times, which no broker writes, is read
    if its first timestamp shows it, and a catalog does not have that. Without `disorder`, later
    segments are read too, because they may have an old record, unless the catalog has their
    smallest timestamp. `disorder` ("1h", or ms) promises that no record is older than an earlier
    one by more than this; then reading stops early.

    `isolation="read_committed"` leaves out records of aborted transactions, and all records from
    the first one of the oldest open transaction on, as a consumer does. It reads all headers of the
    partition first. If the log has a gap or damage, the records of transactions that are open there
    are returned, with the reason in `_undecided`. A Python warning names each log that ends with an
    open transaction; on Spark it is in the standard error of the worker. Control records are left
    out unless `include_control`.

    A batch whose records cannot be read, the damaged end of a log, a file that cannot be opened, a
    log of which a broker would keep nothing (its records are returned), and offsets that a catalog
    shows to be missing between two segments: `on_error="fail"`, the default, raises
    CorruptSegmentError, UnsupportedFormatError or UnreadableLogError, and CorruptSegmentError for a
    record that would have a reason in `_undecided`; "row" gives one row with the reason in
    `_corrupt`, with null in the other columns that are unknown; "skip" appends one line to the list
    `skipped`, if it is given, but a file that cannot be opened is UnreadableLogError then, too: it
    may be there again. Batches after an unreadable one are then read, also those behind a wrong
    CRC, if the size of that batch leads to one with a right CRC and later offsets: the reason names
    the bytes and offsets between. A batch that decompresses to more than `max_batch_bytes` counts
    as unreadable.

    With `workers` the rows and their order are the same, in other record batches. A worker has at
    most 128 MiB that were not taken yet, or one record batch, beside what it reads. Workers end
    with the reader: at its end, with an error, with `close()`, or when it is no longer used.

    If the newest snapshot of a catalog is damaged, or leader epochs do not tell whether records of
    two tiers are of the log, CatalogError is raised. With another `on_error` an older snapshot, and
    these records, are read, with a Python warning.

    Raises ValueError for a wrong argument, LocationError if there are no segments, CatalogError if
    the catalog is damaged, and as in a build WorkerLostError and WorkerStartError.
    """
    reading = Reading.of(**picked(ReadOptions, options))
    engine = LocalEngine(options["workers"], tell=warn_caller)
    partitions = reading.partitions(source, options["storage_options"], options["filesystem"])
    batches = ParallelReading(reading, engine, _itself).read(partitions, options["skipped"])
    return pa.RecordBatchReader.from_batches(reading.schema, batches)


@takes(LocalReadOptions, workers=1)
def scan_polars(source: Source, **options: Unpack[LocalReadOptions]) -> "pl.LazyFrame":
    """Return what `kip33.read_arrow` returns as a lazy frame; arguments and columns are the same.

    >>> frame = scan_polars("archive", topic="orders", end_offset=3)
    >>> frame.select("offset").collect()["offset"].to_list()
    [0, 1, 2]

    - `options`: see `ReadOptions`

    Nothing is listed or read before a query runs, and each query lists again. Only the columns that
    a query needs are read. Of its filter, comparisons of `topic`, `partition`, `offset` and
    `timestamp` with constants choose what is read; Polars itself filters the rest. Reading stops
    at the limit of `head`; with such a limit, `workers` start after the first GiB. The frame needs
    polars (extra `polars`).

    Raises ValueError for a wrong argument and ImportError without polars. A query raises
    LocationError if there are no segments, CatalogError if the catalog is damaged, and as in a
    build WorkerLostError and WorkerStartError.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise ImportError(
            "scan_polars: polars is not installed, expected 2.0 or later; run pip install "
            "'kip33[polars]'"
        ) from error
    reading, engine = (
        Reading.of(**picked(ReadOptions, options)),
        LocalEngine(options["workers"], tell=warn_caller),
    )
    access = (options["storage_options"], options["filesystem"])

    def frames(
        columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None, _: int | None
    ) -> "Iterator[pl.DataFrame]":
        narrowed = reading if columns is None else reading.with_columns(columns)
        if predicate is not None and n_rows is None:  # a limit counts the rows before the filter
            narrowed = narrowed.inside(bounds_of(predicate))
        partitions = narrowed.partitions(source, *access)
        parallel, skipped = ParallelReading(narrowed, engine, _itself), options["skipped"]
        with closing(parallel.read(partitions, skipped, may_stop=n_rows is not None)) as batches:
            for batch in batches:
                frame = pl.DataFrame(batch)
                if n_rows is not None:
                    frame = frame.head(n_rows)
                    n_rows -= frame.height
                yield frame if predicate is None else frame.filter(predicate)
                if n_rows == 0:
                    return

    return register_io_source(frames, schema=pl.DataFrame(reading.schema.empty_table()).schema)


@takes(LocalCountOptions)
def count_records(source: Source, per: int | str, **options: Unpack[LocalCountOptions]) -> pa.Table:
    """Count the records of an archive by topic and period, by their timestamps.

    >>> counted = count_records("archive", "1d", topic="orders", start_time="2023-11-16")
    >>> counted.select(["time", "records"]).to_pylist()
    [{'time': '2023-11-16T00:00:00.000Z', 'records': 500}]

    - `source`: as of `read_arrow`
    - `per`: the length of a period, such as "1h"; periods begin at multiples of it since
      1970, UTC
    - `options`: see `CountOptions`

    The columns are `counts` in RESULTS.md. A period without records has no row. Records without a
    timestamp are in a row without a start, unless a time is given. Control records are not counted;
    of a partition that several brokers have, one replica is. A batch with one record, or with
    LogAppendTime, is counted from its header; of the others the timestamps are read.

    Damage is a Python warning; with `on_error="fail"` an error is raised, as by `read_arrow`.
    Raises Kip33Error for more than a million periods, and else what `read_arrow` raises.
    """
    found = RecordCount(parsed("per", partial(positive_ms, parse=duration), per), options)
    access = (options["storage_options"], options["filesystem"])
    partitions = found.reading.partitions(source, *access)
    found.read(
        partitions,
        LocalEngine(options["workers"], tell=warn_caller),
        warn_caller,
        options["on_progress"],
    )
    for line in found.lines():
        warn_caller(line)
    return with_time_columns(found.table())


@takes(LocalWriteOptions, on_error="skip")
def write_records(
    source: Path | Sequence[Path], to: Path, **options: Unpack[LocalWriteOptions]
) -> WrittenRecords:
    """Add the new records of a catalog's logs to a folder of Parquet files, by topic and day.

    >>> from kip33 import build_index
    >>> built = build_index("archive", index_files=False, catalog="rows")
    >>> first = write_records("rows", "tables", topic="orders")
    >>> first.records, write_records("rows", "tables", topic="orders").records
    (8500, 0)

    - `source`: a catalog; with tiered storage, the catalogs of both tiers
    - `to`: the folder, a path or URI; other files in it are refused
    - `options`: see `ReadOptions`; `on_error` is `skip` or `fail`

    Each call begins where the last one has ended, partition by partition, so no record is written
    twice. A file is `TO/topic=orders/2024-05-01/part-....parquet`, with the columns `topic`, a
    text, and `day`, a date (UTC) or null. Spark, pandas and Arrow read the folder as one table,
    DuckDB and Polars with a pattern, `TO/topic=*/*/*.parquet`. The other columns are `partition`,
    `offset`, `timestamp`, `timestampType`, `key`, `value` and `headers`, or those of `columns`. All
    calls for a folder have the same source and the same options, but for topics and partitions.
    What was written is committed by one file; a call that is interrupted adds nothing, or the next
    one completes it.

    Returns what was added (`written_records` in RESULTS.md). Damage is skipped and counted. Missing
    offsets, and last logs that no build could read, are a warning. With `on_error="fail"` all of
    these are errors. Raises
    LocationError for a log that cannot be read, a topic that was created again, a log that was cut
    after it was written, or a folder with files of others; CatalogError for a folder with
    other options or another source; PublishError if a file cannot be written, or another call
    wrote at the same time; ValueError for a wrong argument. Then no record is added.
    """
    access = (options["storage_options"], options["filesystem"])
    *places, target = places_on([*places_of(source), to], *access)
    read = picked(ReadOptions, options)
    request = WriteRequest.of([one.uri for one in places], target.uri, **read)
    on_progress = options["on_progress"]
    engine = LocalEngine(options["workers"], on_progress=on_progress, tell=warn_caller)
    return write_new_records(request, engine, now_ms=current_ms(), warn=warn_caller)


@takes(LocalFileOptions, on_error="skip")
def write_record_file(
    source: Source, output: Path, **options: Unpack[LocalFileOptions]
) -> SelectedRecords:
    """Write selected records to a new file: lines of JSON, JSON, CSV or Parquet, by its name.

    >>> done = write_record_file("archive", "three.jsonl", topic="orders", grep="order", limit=3)
    >>> done.records, done.output.rpartition("/")[2]
    (3, 'three.jsonl')

    - `source`: as of `read_arrow`
    - `output`: a path or URI that ends in `.json`, `.jsonl`, `.csv` or `.parquet`
    - `options`: see `ReadOptions` and `SelectOptions`

    Keys and values are texts if they are UTF-8, else base64 below another name; Parquet has the
    bytes. With `decode`, values are JSON, in Parquet of the type of their schema. The file appears
    when it is complete, and no file is replaced. Returns what was written (`selected_records` in
    RESULTS.md). Raises LocationError for a source or schemas that are not there, PublishError if
    the file is there or cannot be written, ValueError for a wrong argument.
    """
    access = (options["storage_options"], options["filesystem"])
    place = place_on(output, *access)
    require_free(place, "output")
    selection = RecordSelection(
        source,
        picked(ReadOptions, options),
        picked(SelectOptions, options),
        LocalEngine(options["workers"], tell=warn_caller),
        warn_caller,
        to_columns=format_of_name(place.name) == "parquet",
        access=access,
    )

    def ending() -> dict[str, Any]:
        return selection.done(place.uri).as_record()

    write_selection(selection, place, _MOST_PROBLEMS, ending, options["on_progress"])
    return selection.done(place.uri)


def _itself(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    return (batch,)
