"""`kip33.scan_polars`: an archive or a catalog as a lazy frame of Polars.

The filter of a query narrows what is read; Polars applies the filter itself. Polars is an extra, so
it is imported only when a frame is made.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final, Unpack

from kip33.records.partitions import Source
from kip33.records.reading import Reading, ReadOptions
from kip33.records.record_request import Comparison, FilterBounds
from kip33.stores.filesystem_option import Filesystem, StorageOptions

if TYPE_CHECKING:
    import polars as pl

_OPERATORS: Final[dict[Comparison, Callable[["pl.Expr", "pl.Expr"], Any]]] = {
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


def scan_polars(
    source: Source,
    *,
    skipped: list[str] | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    **options: Unpack[ReadOptions],
) -> "pl.LazyFrame":
    """Return what `kip33.read_arrow` returns as a lazy frame; arguments and columns are the same.

    >>> frame = scan_polars("archive", topic="orders", end_offset=3)
    >>> frame.select("offset").collect()["offset"].to_list()
    [0, 1, 2]

    - `skipped`: with `on_error="skip"`, a list that gets a line for each damage
    - `options`: those of `kip33.read_arrow`

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
        columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None, _: int | None
    ) -> "Iterator[pl.DataFrame]":
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


def _bounds_of(predicate: "pl.Expr") -> FilterBounds:
    """Return the bounds implied by the filter; unsupported expressions give none."""
    return _within(FilterBounds(), predicate)


def _within(bounds: FilterBounds, expr: "pl.Expr") -> FilterBounds:
    """Return the bounds with what an expression implies.

    `Expr.meta.pop` gives the parts of an expression. Its operator is found by building it again
    from them with each operator: Polars has no other public way.
    """
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
    bounds: FilterBounds, left: "pl.Expr", comparison: Comparison, right: "pl.Expr"
) -> FilterBounds:
    if left.meta.is_literal() and comparison in _MIRRORED:
        left, comparison, right = right, _MIRRORED[comparison], left
    name = _column(left)
    if name is None or not right.meta.is_literal():
        return bounds
    import polars as pl

    values = _values(pl.select(right).to_series())
    if comparison == Comparison.IN:
        return bounds.where(name, comparison, values)
    return bounds.where(name, comparison, values[0]) if len(values) == 1 else bounds


def _column(expr: "pl.Expr") -> str | None:
    """Return the name of an expression that is nothing but a column."""
    import polars as pl

    names = expr.meta.root_names()
    return names[0] if len(names) == 1 and expr.meta.eq(pl.col(names[0])) else None


def _values(literal: "pl.Series") -> list[Any]:
    """Return the values of a literal, times in ms; those without a time zone are None."""
    import polars as pl

    if isinstance(literal.dtype, pl.List):
        literal = literal.explode()
    kind = literal.dtype
    if not isinstance(kind, pl.Datetime):
        return literal.to_list()
    if kind.time_zone is None:
        return [None] * len(literal)
    unit = _UNITS_OF_MS[kind.time_unit]
    return [None if one is None else one // unit for one in literal.to_physical().to_list()]
