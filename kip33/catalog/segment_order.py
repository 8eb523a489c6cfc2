"""The order of an archive's segments: by log directory, topic, partition, base offset and log URI.

A listing is sorted by it once, and the rows of every snapshot are in it. So a partition is a run of
rows, a topic of a log directory is a range of them, and two sorted runs are merged, not sorted
again. A directory that could not be listed has no topic, partition or offset: nulls come first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

KEY: Final = ("log_dir", "topic", "partition", "base_offset", "log_uri")
PARTITION: Final = KEY[:3]
"""The columns that name a row's partition."""

Key: TypeAlias = tuple[str | None, str | None, int | None, int | None, str | None]
"""The values of KEY in a row."""

NO_KEY: Final[Key] = (None, None, None, None, None)

Int64s: TypeAlias = npt.NDArray[np.int64]


def order_of(rows: pa.Table, log_uris: Any = None) -> Int64s:
    """Return the numbers of the rows in order; `log_uris` if the rows have none.

    >>> rows = pa.table({
    ...     "log_dir": ["b", "a", "a"], "topic": ["t", "u", None], "partition": [0, 10, None],
    ...     "base_offset": [0, 0, None], "log_uri": ["file:///b", "file:///a", "file:///a/x"],
    ... })
    >>> order_of(rows).tolist()
    [2, 1, 0]
    """
    texts = [_ranks(rows[name]) for name in ("log_dir", "topic")]
    numbers = [_numbers(rows[name]) for name in ("partition", "base_offset")]
    columns = [*texts, *numbers]
    order: Int64s = np.lexsort(columns[::-1])
    is_tie = np.zeros(len(order), bool)
    if len(order):
        is_tie[1:] = np.logical_and.reduce([np.diff(one[order]) == 0 for one in columns])
    return _by_uri(order, is_tie, rows["log_uri"] if log_uris is None else log_uris)


def _ranks(column: Any) -> Int64s:
    values = pc.unique(column.drop_null())
    values = values.take(pc.sort_indices(values))
    return _numbers(pc.index_in(column, value_set=values))


def _numbers(column: Any) -> Int64s:
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64()), -1).to_numpy())


def _by_uri(order: Int64s, is_tie: npt.NDArray[np.bool_], log_uris: Any) -> Int64s:
    """Sort by URI the few rows that agree in all else with the row before."""
    edges = np.diff(np.concatenate(([False], is_tie, [False])).astype(np.int8))
    for first, end in zip(np.flatnonzero(edges == 1) - 1, np.flatnonzero(edges == -1), strict=True):
        uris = log_uris.take(pa.array(order[first:end])).to_pylist()
        order[first:end] = order[first:end][sorted(range(len(uris)), key=uris.__getitem__)]
    return order


def partition_begins(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows, which are in order, are the first of their partitions.

    >>> partition_begins(pa.table({"log_dir": "aab", "topic": "ttt", "partition": [0, 0, 0]})
    ... ).tolist()
    [True, False, True]
    """
    return np.asarray(np.diff(runs_of(rows, PARTITION), prepend=-1) != 0)


def largest_before(rows: pa.Table, largest: Int64s) -> Int64s:
    """Return for each row the largest of `largest` over the partition's earlier rows.

    The rows of a partition follow each other in order. Without an earlier row it is -1.
    """
    found = np.full(len(largest), -1, np.int64)
    for begin, end in pairwise([*np.flatnonzero(partition_begins(rows)).tolist(), len(largest)]):
        found[begin + 1 : end] = np.maximum.accumulate(largest[begin:end])[:-1]
    return found


def in_order(rows: pa.Table) -> pa.Table:
    """Return the rows in order: the same table if they are."""
    order = order_of(rows)
    return rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))


def joined(tables: Iterable[pa.Table], names: Sequence[str]) -> pa.Table:
    """Return the rows of some tables in order of these columns."""
    keys: Any = [(name, "ascending") for name in names]
    return pa.concat_tables(tables).sort_by(keys)


def runs_of(rows: pa.Table, names: Sequence[str]) -> Int64s:
    """Return a number for each row, which grows by one where a value of these columns changes.

    >>> runs_of(pa.table({"topic": ["t", "t", None], "partition": [0, 1, 1]}), ["topic"]).tolist()
    [0, 0, 1]
    """
    changes = np.zeros(rows.num_rows, np.int64)
    for name in names:
        codes = rows[name].combine_chunks().dictionary_encode().indices
        changes[1:] |= np.diff(pc.fill_null(codes, -1).to_numpy()) != 0
    return np.cumsum(changes)


def key_at(rows: pa.Table, number: int) -> Key:
    """Return the key of a row."""
    return key_of(values_at(rows, number, KEY))


def values_at(rows: pa.Table, number: int, names: Sequence[str]) -> list[Any]:
    """Return some values of a row."""
    return [rows[name][number].as_py() for name in names]


def key_of(values: Sequence[Any]) -> Key:
    """Return values as a key; ValueError if there are more or less."""
    log_dir, topic, partition, base_offset, log_uri = values
    return log_dir, topic, partition, base_offset, log_uri


def place_of(values: Sequence[Any]) -> tuple[tuple[bool, Any], ...]:
    """Return what keys, or the same first values of keys, are compared by.

    >>> place_of(("", None, None, None, "x")) < place_of(("", "t", 0, 0, "a"))
    True
    """
    return tuple((one is not None, one) for one in values)


def merged(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows of some runs in order, each of which is in order; a table of each is held."""
    for some in side_by_side(runs, pa.table({})):
        taken = [rows for rows in some if rows.num_rows]
        yield in_order(pa.concat_tables(taken)) if len(taken) > 1 else taken[0]


def side_by_side(runs: Sequence[Iterator[pa.Table]], none: pa.Table) -> Iterator[list[pa.Table]]:
    """Yield the next rows of each run up to the same key, `none` of a run that has ended.

    Rows with equal keys are in one list. Each run is in order; a table of each is held.
    """
    waiting = [_next_of(run, none) for run in runs]
    while any(rows.num_rows for rows in waiting):
        there = [rows for rows in waiting if rows.num_rows]
        bound = min(place_of(key_at(rows, rows.num_rows - 1)) for rows in there)
        ends = [rows_up_to(rows, bound) for rows in waiting]
        yield [rows.slice(0, end) for rows, end in zip(waiting, ends, strict=True)]
        waiting = [
            rows.slice(end) if end < rows.num_rows else _next_of(run, none)
            for run, rows, end in zip(runs, waiting, ends, strict=True)
        ]


def _next_of(run: Iterator[pa.Table], none: pa.Table) -> pa.Table:
    return next((rows for rows in run if rows.num_rows), none)


def rows_up_to(rows: pa.Table, bound: tuple[tuple[bool, Any], ...], *, before: bool = False) -> int:
    """Return how many of the first rows have a place up to a bound, or `before` it.

    `bound` is a place of KEY, or of its first columns.
    """
    names = KEY[: len(bound)]
    search = bisect_left if before else bisect_right
    return search(
        range(rows.num_rows), bound, key=lambda number: place_of(values_at(rows, number, names))
    )
