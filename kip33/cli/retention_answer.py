"""The answer of `kip33 retention`, whichever engine evaluated the catalog."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.holes import read_holes
from kip33.catalog.schema import SEGMENTS
from kip33.cli.retention_question import AskedRetention
from kip33.retention.evaluated_tables import (
    answer_columns,
    delete_records_of,
    freed_table,
    partitions_table,
    segment_tables,
    totals_of,
    write_tables,
)
from kip33.retention.evaluation import EvaluatedCatalog, evaluate_columns
from kip33.retention.snapshot_sums import SnapshotSums, judged_segments, sum_snapshot
from kip33.stores.locations import Location

Row = dict[str, Any]


@dataclass(frozen=True)
class RetentionAnswer:
    """A judged catalog. Its rows have the column names of the results in `kip33.spark`."""

    workers: int  # processes or cores that were used
    partitions: pa.Table
    freed: pa.Table | None  # None: not asked for
    holes: pa.Table  # `catalog.holes.HOLES`
    columns: Sequence[str]  # of the segments
    segments: Callable[[], Iterable[Row]]  # by partition, oldest first
    broker_differences: Callable[[int], Sequence[Row]]
    """Return segments whose index differs from the log, at most this number.

    Those that a broker judges differently are first.
    """

    @cached_property
    def totals(self) -> Row:
        """Return the sums over all partitions."""
        return totals_of(self.partitions)

    def worst(self, most: int) -> list[Row]:
        """Return partitions; those with the most blocked bytes are first."""
        sizes = [self.partitions[f"{what}_bytes"].to_numpy() for what in ("deletable", "blocked")]
        order = np.lexsort([-size for size in sizes])[:most]
        return list(rows_of(self.partitions.take(pa.array(order))))

    def delete_records(
        self, *, trust_last_modified: bool, left_out: Collection[tuple[str, int]]
    ) -> Row:
        """Return the input of `kafka-delete-records.sh`."""
        rows = rows_of(self.partitions)
        return delete_records_of(rows, trust_last_modified=trust_last_modified, left_out=left_out)


def local_answer(
    asked: AskedRetention, evaluated: EvaluatedCatalog | None, output: Location | None
) -> RetentionAnswer:
    """Return the answer of this process; its tables are written to `output`.

    `evaluated` has all rows at once; None: a range of partitions at a time is evaluated.
    """
    place = asked.catalog, asked.snapshot
    if evaluated:
        one, topics, policies = evaluated, asked.options.topics, asked.request.policies
        holes = read_holes(*place, topics, policies=policies)
        freed = freed_table(one, asked.moments_ms)
        sums = SnapshotSums(partitions_table(one), freed, holes)
    else:
        sums = sum_snapshot(*place, asked.sums_request)

    def segments() -> Iterator[pa.Table]:
        if evaluated:
            return segment_tables(evaluated, *place, asked.options.topics)
        return judged_segments(*place, asked.judged_request)

    none = evaluate_columns(columns_of([]), asked.judged_request)
    answer = RetentionAnswer(
        1,
        sums.partitions,
        sums.freed if asked.moments_ms else None,
        sums.holes,
        [*SEGMENTS.names, *answer_columns(none, 0, 0)],
        lambda: (row for table in segments() for row in rows_of(table)),
        lambda most: _broker_differences(evaluated, most) if evaluated else [],
    )
    if output:
        write_tables(output, "segments", segments())
        write_sums(answer, output)
    return answer


def write_sums(answer: RetentionAnswer, output: Location) -> None:
    """Write the tables of --output that have sums."""
    write_tables(output, "partitions", [answer.partitions])
    if answer.freed is not None:
        write_tables(output, "freed", [answer.freed])


def _broker_differences(evaluated: EvaluatedCatalog, most: int) -> list[Row]:
    differs, columns = evaluated.broker_differs, evaluated.columns
    numbers = np.flatnonzero(differs | evaluated.misread)
    numbers = numbers[np.argsort(~differs[numbers], kind="stable")][:most]
    names = ("log_dir", "topic", "partition", "base_offset", "largest_timestamp")
    found = []
    for number in numbers.tolist():
        [row] = rows_of(pa.table(answer_columns(evaluated, number, number + 1)))
        found.append(row | {name: one[0] for name, one in columns.rows(number, 1, names).items()})
    return found


def rows_of(table: pa.Table) -> Iterator[Row]:
    """Yield a table's rows; maps become dicts."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    for row in table.to_pylist():
        for name in maps:
            row[name] = dict(row[name])
        yield row
