"""The answer of `kip33 retention`, and how this process makes it: in one pass over the catalog."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog_columns import OF_FILES
from kip33.catalog.partitions import partitions
from kip33.catalog.schema import SEGMENTS
from kip33.cli.retention_question import AskedRetention
from kip33.retention.broker_files import SEEN
from kip33.retention.evaluated_tables import (
    TableWriter,
    answer_columns,
    delete_records_of,
    segment_rows,
    totals_of,
)
from kip33.retention.evaluation import JudgedRows, RetentionRequest, judge_rows, judged_tables
from kip33.retention.make_plan import DeletionDoubts, PlanInProgress, planning
from kip33.retention.snapshot_sums import SUMMED, SnapshotSums, sums_of, sums_of_all
from kip33.rules.retention import Bools
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, Phase, Progress

Row = dict[str, Any]
MOST_DIFFERENCES: Final = 100  # rows in the table of the broker's view
_ROWS_AT_ONCE: Final = 1_000
_OF_DIFFERENCES: Final = ["log_dir", "topic", "partition", "base_offset", "largest_timestamp"]


@dataclass(frozen=True)
class RetentionAnswer:
    """A judged catalog. Its rows have the column names of the results in `kip33.spark`."""

    workers: int  # processes or cores that were used
    partitions: pa.Table
    freed: pa.Table | None  # None: not asked for
    holes: pa.Table  # `catalog.holes.HOLES`
    columns: Sequence[str]  # of the segments
    segments: Callable[[], Iterable[Row]]  # by partition, oldest first
    broker_differences: Callable[[], Sequence[Row]]
    """Return segments whose index differs from the log, at most MOST_DIFFERENCES.

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


class JudgedHere(NamedTuple):
    """What one pass over the partitions of a snapshot left."""

    sums: SnapshotSums
    plan: PlanInProgress | None  # None: not asked for
    doubts: DeletionDoubts | None  # None: nothing is emitted
    broker: "_BrokersView"


def judge_here(
    asked: AskedRetention,
    on_progress: OnProgress,
    output: Location | None = None,
    require: Callable[[pa.Table], None] = lambda _: None,
) -> JudgedHere:
    """Judge the snapshot in this process, in one pass for all that is asked of it.

    The tables of `output` are complete before a plan is published. `require` is called with the row
    of each partition; if it raises, no plan is published.
    """
    options, place = asked.options, (asked.catalog, asked.snapshot)
    of_files = OF_FILES if options.plan_file or options.emit else ()
    columns = SEGMENTS.names if output else [*SUMMED, *of_files]
    broker, sums, done = _BrokersView(), _Sums(asked.request), 0
    with _plan(asked) as plan:
        doubts = DeletionDoubts.of(asked.basis, *place) if options.emit else None
        rows = _SegmentRows(output) if output else None
        consumers = [one for one in (sums, plan, doubts, broker, rows) if one]
        for judged in judged_tables(*place, asked.request, columns):
            for consumer in consumers:
                consumer.add(judged)
            done += judged.columns.size
            on_progress(Progress(Phase.EVALUATING, done, asked.snapshot.rows))
        all_sums = sums_of_all(*place, asked.request, sums.parts)
        require(all_sums.partitions)
        if rows and output:
            rows.writer.end()
            write_sums(all_sums.partitions, _freed(asked, all_sums), output)
        if doubts:
            doubts.require_policies()
        if plan:
            plan.end()
    return JudgedHere(all_sums, plan, doubts, broker)


@contextmanager
def _plan(asked: AskedRetention) -> Iterator[PlanInProgress | None]:
    """Yield the plan, which is published if the block ends without an error; None: not asked."""
    file = asked.options.plan_file
    if file is None:
        yield None
        return
    with planning(asked.basis, asked.catalog, asked.snapshot, Location.of(file)) as plan:
        yield plan


class _Sums:
    """The sums of each table of a stream."""

    def __init__(self, request: RetentionRequest) -> None:
        self._request = request
        self.parts: list[SnapshotSums] = []

    def add(self, judged: JudgedRows) -> None:
        self.parts.append(sums_of(judged, self._request))


class _SegmentRows:
    """The rows of --output."""

    def __init__(self, output: Location) -> None:
        self.writer = TableWriter(output, "segments")

    def add(self, judged: JudgedRows) -> None:
        for rows in segment_rows(judged):
            self.writer.add(rows)


class _BrokersView:
    """What a broker sees of all rows, and the first that it judges or reads differently."""

    def __init__(self) -> None:
        self._seen = [SEEN.empty_table()]
        self._judged_differently: list[Row] = []
        self._misread: list[Row] = []

    def add(self, judged: JudgedRows) -> None:
        if judged.broker:
            self._seen.append(judged.broker.seen)
            differs = judged.broker_differs
            _take(self._judged_differently, judged, differs)
            _take(self._misread, judged, judged.misread & ~differs)

    @property
    def seen(self) -> pa.Table:
        """Return what it sees of each row, as SEEN."""
        return pa.concat_tables(self._seen)

    @property
    def differences(self) -> list[Row]:
        """Return the rows that differ, at most MOST_DIFFERENCES."""
        return [*self._judged_differently, *self._misread][:MOST_DIFFERENCES]


def _take(found: list[Row], judged: JudgedRows, which: Bools) -> None:
    for number in np.flatnonzero(which)[: MOST_DIFFERENCES - len(found)].tolist():
        [row] = rows_of(pa.table(answer_columns(judged, number, number + 1)))
        [values] = judged.rows.slice(number, 1).select(_OF_DIFFERENCES).to_pylist()
        found.append(row | values)


def local_answer(asked: AskedRetention, judged: JudgedHere) -> RetentionAnswer:
    """Return the answer of this process."""
    sums = judged.sums
    none = judge_rows(SEGMENTS.empty_table(), asked.request)
    return RetentionAnswer(
        workers=1,
        partitions=sums.partitions,
        freed=_freed(asked, sums),
        holes=sums.holes,
        columns=[*SEGMENTS.names, *answer_columns(none, 0, 0)],
        segments=lambda: (
            row for table in _segments(asked, judged.broker.seen) for row in rows_of(table)
        ),
        broker_differences=lambda: judged.broker.differences,
    )


def _freed(asked: AskedRetention, sums: SnapshotSums) -> pa.Table | None:
    """Return what becomes deletable at the asked times; None if none were asked for."""
    return sums.freed if asked.request.moments_ms else None


def _segments(asked: AskedRetention, seen: pa.Table) -> Iterator[pa.Table]:
    """Yield all rows with their decisions; index files are not read again."""
    at, request = 0, asked.request
    for rows in partitions(asked.catalog, asked.snapshot, SEGMENTS.names, request.topics):
        yield from segment_rows(judge_rows(rows, request, seen.slice(at, rows.num_rows)))
        at += rows.num_rows


def write_sums(partitions: pa.Table, freed: pa.Table | None, output: Location) -> None:
    """Write the tables of --output that have sums."""
    for name, table in (("partitions", partitions), ("freed", freed)):
        if table is not None:
            writer = TableWriter(output, name)
            writer.add(table)
            writer.end()


def rows_of(table: pa.Table) -> Iterator[Row]:
    """Yield a table's rows; maps become dicts."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    for some in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in some.to_pylist():
            for name in maps:
                row[name] = dict(row[name])
            yield row
