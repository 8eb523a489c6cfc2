"""`kip33.scan_polars`: an archive or a catalog as a lazy frame of Polars."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from kip33.records.partitions import Source
from kip33.records.reading import Reading, ReadOptions
from kip33.stores.filesystem_option import Filesystem, StorageOptions

if TYPE_CHECKING:
    import polars as pl


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
            from kip33.records.polars_filter import bounds_of

            narrowed = narrowed.inside(bounds_of(predicate))
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
