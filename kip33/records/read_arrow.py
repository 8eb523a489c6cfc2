"""`kip33.read_arrow`: an archive or a catalog as a stream of Arrow record batches.

What follows for a reading from a filter of Polars; Polars applies the filter itself.

The parts of an expression are taken apart with `Expr.meta.pop`. What an expression is, is found by
putting the parts together again: Polars has no other public way.

`kip33.scan_polars`: an archive or a catalog as a lazy frame of Polars.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final, Unpack

import polars as pl
import pyarrow as pa

from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time
from kip33.records.partitions import Source
from kip33.records.reading import OneOrMore, Reading, ReadOptions
from kip33.records.record_request import Comparison, FilterBounds
from kip33.stores.filesystem_option import Filesystem, StorageOptions

if TYPE_CHECKING:
    import polars as pl


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


_OPERATORS: Final[dict[Comparison, Callable[[pl.Expr, pl.Expr], Any]]] = {
    Comparison.EQUAL: eq,
    Comparison.LESS: lt,
    Comparison.LESS_OR_EQUAL: le,
    Comparison.GREATER: gt,
    Comparison.GREATER_OR_EQUAL: ge,
    Comparison.IN: lambda left, right: left.is_in(right),
}
_MIRRORED: Final = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
_CLOSED: Final = ("both", "left", "right", "none")
_UNITS_OF_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def _bounds_of(predicate: pl.Expr) -> FilterBounds:
    """Return bounds that every row inside the filter is in; what is not understood has none."""
    return _within(FilterBounds(), predicate)


def _within(bounds: FilterBounds, expr: pl.Expr) -> FilterBounds:
    parts = expr.meta.pop()
    if len(parts) == 2:
        for left, right in permutations(parts):
            if expr.meta.eq(left & right):
                return _within(_within(bounds, left), right)
            for comparison, put_together in _OPERATORS.items():
                if expr.meta.eq(put_together(left, right)):
                    return _compared(bounds, left, comparison, right)
    if len(parts) == 3:
        for one, lower, upper in permutations(parts):
            if any(expr.meta.eq(one.is_between(lower, upper, closed)) for closed in _CLOSED):
                bounds = _compared(bounds, one, Comparison.GREATER_OR_EQUAL, lower)
                return _compared(bounds, one, Comparison.LESS_OR_EQUAL, upper)
    return bounds


def _compared(
    bounds: FilterBounds, left: pl.Expr, comparison: Comparison, right: pl.Expr
) -> FilterBounds:
    if left.meta.is_literal() and comparison in _MIRRORED:
        left, comparison, right = right, _MIRRORED[comparison], left
    name = _column(left)
    if name is None or not right.meta.is_literal():
        return bounds
    values = _values(pl.select(right).to_series())
    if comparison == Comparison.IN:
        return bounds.where(name, comparison, values)
    return bounds.where(name, comparison, values[0]) if len(values) == 1 else bounds


def _column(expr: pl.Expr) -> str | None:
    """Return the name of an expression that is nothing but a column."""
    names = expr.meta.root_names()
    return names[0] if len(names) == 1 and expr.meta.eq(pl.col(names[0])) else None


def _values(literal: pl.Series) -> list[Any]:
    """Return the values of a literal, times in ms; those without a time zone are None."""
    if isinstance(literal.dtype, pl.List):
        literal = literal.explode()
    kind = literal.dtype
    if not isinstance(kind, pl.Datetime):
        return literal.to_list()
    if kind.time_zone is None:
        return [None] * len(literal)
    unit = _UNITS_OF_MS[kind.time_unit]
    return [None if one is None else one // unit for one in literal.to_physical().to_list()]


def scan_polars(
    source: Source,
    *,
    skipped: list[str] | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    **options: Unpack[ReadOptions],
) -> "pl.LazyFrame":
    """Return what `kip33.read_arrow` returns as a lazy frame; arguments and columns are the same.

    Nothing is listed or read before a query runs, and each query lists again. Only the columns that
    a query needs are read. Of its filter, comparisons of `topic`, `partition`, `offset` and
    `timestamp` with constants choose what is read; Polars itself filters the rest. Reading stops
    at the limit of `head`. The frame needs polars (extra `polars`).

    Raises ValueError for a wrong argument and ImportError without polars. A query raises
    LocationError if there are no segments, CatalogError if the catalog is damaged.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise ImportError(
            "scan_polars: polars is not installed, expected 2.0 or later; run pip install "
            "'kip33[polars]'"
        ) from error
    reading = Reading.of(**options)

    def frames(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        narrowed = reading if columns is None else reading.with_columns(columns)
        if predicate is not None and n_rows is None:  # a limit counts the rows before the filter
            narrowed = narrowed.inside(_bounds_of(predicate))
        partitions = narrowed.partitions(source, storage_options, filesystem)
        for batch in narrowed.read(partitions, skipped):
            frame = pl.DataFrame(batch)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if n_rows == 0:
                return

    return register_io_source(frames, schema=pl.DataFrame(reading.schema.empty_table()).schema)
