"""What the filter of a query of Polars implies for what must be read.

The filter only narrows what is read; Polars applies it itself. Polars is an extra, so it is
imported only when a query runs.
"""

from collections.abc import Callable
from itertools import permutations
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from kip33.records.record_request import Comparison, FilterBounds

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


def bounds_of(predicate: "pl.Expr") -> FilterBounds:
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
