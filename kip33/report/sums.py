"""Sums of a report over segments: by age, by disorder, and what becomes deletable when."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.report.facts import AgeFacts, DisorderFacts, FreedFacts
from kip33.retention.evaluation import EvaluatedCatalog
from kip33.retention.partition_texts import name_of
from kip33.rules.retention import Int64Column, Int64s

MOST_DISORDER: Final = 15
_DAY_MS: Final = 86_400_000
_AGES: Final = (  # below this age
    ("in the future", 0),
    ("less than 1 day", _DAY_MS),
    ("1 to 7 days", 7 * _DAY_MS),
    ("7 to 30 days", 30 * _DAY_MS),
    ("30 to 90 days", 90 * _DAY_MS),
    ("90 days to 1 year", 365 * _DAY_MS),
    ("1 to 3 years", 3 * 365 * _DAY_MS),
)
_OLDEST: Final = "3 years and more"
_UNKNOWN: Final = "no timestamp"


class BatchColumns(NamedTuple):
    """Figures of each segment's batches, in the order of the evaluated columns."""

    first_timestamp: Int64Column
    batches: Int64Column
    out_of_order: Int64Column


def read_batch_columns(
    catalog: Catalog, snapshot: Snapshot, evaluated: EvaluatedCatalog
) -> BatchColumns:
    """Return the columns of a snapshot that was evaluated without globs of topics."""
    names = ["first_batch_timestamp", "batch_count", "out_of_order_batches"]
    rows = catalog.read(snapshot, names)
    return BatchColumns(*(_ordered(rows, name, evaluated.columns.order) for name in names))


def _ordered(rows: pa.Table, name: str, order: Int64s) -> Int64Column:
    values = pc.fill_null(rows[name], 0).to_numpy()
    known = np.asarray(pc.is_valid(rows[name]).to_numpy())
    return Int64Column(np.asarray(values), known).take(order)


def ages_of(evaluated: EvaluatedCatalog) -> tuple[AgeFacts, ...]:
    """Return segments and bytes for each age of the largest timestamp, the newest first."""
    largest, sizes = evaluated.judged.segments.largest_timestamp, evaluated.summed.segments
    age = evaluated.question.now_ms - np.where(largest.known, largest.values, 0)
    # A timestamp far ahead may overflow the difference.
    age = np.where(largest.values > evaluated.question.now_ms, -1, age)
    limits = np.array([limit for _, limit in _AGES], np.int64)
    bucket = np.where(largest.known, np.searchsorted(limits, age, side="right"), len(_AGES) + 1)
    names = [*(name for name, _ in _AGES), _OLDEST, _UNKNOWN]
    found = []
    for number, name in enumerate(names):
        rows = bucket == number
        found.append(AgeFacts(name, int(np.count_nonzero(rows)), int(sizes.size_bytes[rows].sum())))
    return tuple(found)


def disorder_of(
    evaluated: EvaluatedCatalog, batches: BatchColumns
) -> tuple[tuple[DisorderFacts, ...], int, DisorderFacts]:
    """Return the partitions with the most disorder, the number of the others, and their sum."""
    summed, columns = evaluated.summed, evaluated.columns
    everywhere = np.ones(columns.size, bool)
    disordered = _sums(batches.out_of_order, columns.starts)
    segments = summed.number_of(
        everywhere & batches.out_of_order.known & (batches.out_of_order.values > 0)
    )
    counts = _sums(batches.batches, columns.starts)
    order = np.argsort(-disordered, kind="stable")
    order = order[disordered[order] > 0]

    def facts(name: str, numbers: Int64s) -> DisorderFacts:
        return DisorderFacts(
            name, *(int(one[numbers].sum()) for one in (counts, disordered, segments))
        )

    shown, others = order[:MOST_DISORDER], order[MOST_DISORDER:]
    names = [dict(zip(("log_dir", "topic", "partition"), key, strict=True)) for key in columns.keys]
    return (
        tuple(facts(name_of(names[at]), np.array([at])) for at in shown.tolist()),
        others.size,
        facts("others", others),
    )


def _sums(column: Int64Column, starts: Int64s) -> Int64s:
    if not starts.size:
        return np.zeros(0, np.int64)
    values = np.where(column.known, column.values, 0)
    return np.asarray(np.add.reduceat(values, starts), np.int64)


def forecast_of(evaluated: EvaluatedCatalog, days: int) -> tuple[FreedFacts, ...]:
    """Return what becomes deletable on each day from now on; the first is what is deletable now."""
    now_ms = evaluated.question.now_ms
    moments = [now_ms + day * _DAY_MS for day in range(days + 1)]
    segments, sizes = dict.fromkeys(moments, 0), dict.fromkeys(moments, 0)
    for row in evaluated.freed_by(moments):
        segments[row.at_ms] += row.segments
        sizes[row.at_ms] += row.bytes
    return tuple(FreedFacts(at, segments[at], sizes[at]) for at in moments)
