"""Numbers of records by topic and period, from headers where that is exact: `record_numbers`."""

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Warn
from kip33.errors import Kip33Error
from kip33.formats.times import iso_time
from kip33.options import Option, picked
from kip33.records.columns import UNDECIDED
from kip33.records.parallel_reading import ParallelReading, PartEngine
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Reading, RecordChoice
from kip33.records.record_numbers import HOW_MANY
from kip33.records.record_request import MOST_PROBLEMS, problem_lines
from kip33.stores.progress import OnProgress, Phase, Progress

MOST_PERIODS: Final = 1_000_000  # in memory, of all topics
_COUNT_FIELDS: list["pa.Field[Any]"] = [
    pa.field("topic", pa.string()),
    pa.field("period_start", pa.int64()),
    pa.field("time", pa.string()),
    pa.field("records", pa.int64(), nullable=False),
]
COUNTS: Final = pa.schema(_COUNT_FIELDS)
"""One row per topic and period with records."""

_Counted: TypeAlias = Counter[tuple[str | None, int | None]]
"""Records by topic and number of the period, None for records without a timestamp."""


class CountOptions(RecordChoice, total=False):
    """Which records are counted, and what damage gives."""

    on_error: Annotated[
        Literal["skip", "fail"],
        Option(
            "For a batch or the end of a log that cannot be read: skip: a warning with the bytes "
            "and offsets that are left out, and the batches after them are counted; fail: an "
            "error, also for records that may be of aborted transactions (with --isolation "
            "read_committed), or of no log (of two tiers without leader epochs).",
            default="skip",
        ),
    ]


class _Found(NamedTuple):
    """Numbers of records to be added up; `undecided` may be of aborted transactions."""

    counted: _Counted
    undecided: int = 0


class RecordCount:
    """Counts records; `damaged` is the number of problems in the logs.

    `undecided` is the number of records that may be of aborted transactions.
    """

    def __init__(self, per_ms: int, asked: CountOptions) -> None:
        """Start with nothing; ValueError for a wrong option."""
        self._per_ms = per_ms
        self.reading = Reading.of(**picked(CountOptions, asked)).of_numbers()
        self.counted: _Counted = Counter()
        self.records = self.damaged = self.undecided = 0
        self.problems: list[str] = []

    @property
    def is_committed(self) -> bool:
        """Return whether records of aborted transactions are left out."""
        return self.reading.request.only_committed

    def read(
        self,
        partitions: list[PartitionSegments],
        engine: PartEngine,
        warn: Warn,
        on_progress: OnProgress,
    ) -> None:
        """Count the records of partitions; UnreadableLogError for a log that cannot be read."""
        skipped: list[str] = []
        reading = ParallelReading(self.reading, engine, partial(_found_in, self._per_ms), warn)
        self._take(reading.read(partitions, skipped), skipped, on_progress)

    def _take(
        self,
        numbers: Generator[_Found, None, None],
        skipped: list[str],
        on_progress: OnProgress,
    ) -> None:
        """Add numbers of records; Kip33Error, one line, for too many periods."""
        with closing(numbers):
            for counted, undecided in numbers:
                self.counted.update(counted)
                self.records += counted.total()
                self.undecided += undecided
                if len(self.counted) > MOST_PERIODS:
                    raise Kip33Error(
                        f"more than {MOST_PERIODS:,} periods found; give a longer --per, or --from "
                        "and --until"
                    )
                self._skip(skipped)
                on_progress(Progress(Phase.READING_LOGS, self.records, unit="record"))
        self._skip(skipped)

    def _skip(self, problems: list[str]) -> None:
        """Count problems in the logs; the list is emptied."""
        self.damaged += len(problems)
        self.problems += problems[: MOST_PROBLEMS - len(self.problems)]
        problems.clear()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by topic and period; those without a timestamp come last."""
        ordered = sorted(self.counted, key=lambda one: (one[0] or "", one[1] is None, one[1]))
        return [self._row(topic, period) for topic, period in ordered]

    def _row(self, topic: str | None, period: int | None) -> dict[str, Any]:
        start = None if period is None else period * self._per_ms
        time_text = None if start is None else iso_time(start)
        found = (topic, start, time_text, self.counted[topic, period])
        return dict(zip(COUNTS.names, found, strict=True))

    def table(self) -> pa.Table:
        """Return the rows as a table of COUNTS."""
        return pa.Table.from_pylist(self.rows(), COUNTS)

    def lines(self) -> Iterator[str]:
        """Yield the problems in the logs."""
        yield from problem_lines(self.problems, self.damaged)


def _found_in(per_ms: int, batch: pa.RecordBatch) -> Iterator[_Found]:
    """Yield the numbers of records by period; a batch has rows of one topic."""
    counts = batch.column(HOW_MANY).to_numpy()
    undecided = 0
    if UNDECIDED in batch.schema.names:
        undecided = int(counts[batch.column(UNDECIDED).is_valid().to_numpy(False)].sum())
    found: _Counted = Counter()
    topic = batch.column("topic")[0].as_py() if batch.num_rows else None
    times = batch.column("timestamp")
    has_time = times.is_valid().to_numpy(zero_copy_only=False)
    milliseconds = pc.drop_null(times).cast(pa.int64()).to_numpy(zero_copy_only=False)
    periods, inverse = np.unique(milliseconds // per_ms, return_inverse=True)
    sums = np.zeros(len(periods), np.int64)
    np.add.at(sums, inverse, counts[has_time])
    for period, count in zip(periods.tolist(), sums.tolist(), strict=True):
        if count:
            found[topic, period] = count
    if without := int(counts[~has_time].sum()):
        found[topic, None] = without
    yield _Found(found, undecided)
