"""Numbers of records by topic and period.

They are from the headers of batches where that is exact. A header has the number of records and the
largest timestamp. All records of a batch have this timestamp if there is one record, or with
LogAppendTime. With CreateTime the others may be older by any time. So from the first segment with
such a batch on, a partition's records are read, and from the first segment on that shares offsets
with an earlier one.
"""

import re
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Warn
from kip33.errors import Kip33Error
from kip33.formats.batch import RECORD_BATCH_OVERHEAD
from kip33.formats.times import iso_time
from kip33.options import Option, picked
from kip33.records.columns import UNDECIDED
from kip33.records.parallel_reading import (
    MOST_SEGMENTS,
    PART_BYTES,
    ParallelReading,
    PartEngine,
)
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Reading, RecordChoice
from kip33.records.record_request import MOST_PROBLEMS, Faults, LogsRead, problem_lines
from kip33.records.segment_reader import SegmentReader, first_new_of
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
_LOG_APPEND_TIME: Final = 1
_LEAST_RECORD_BYTES: Final = 7  # of magic 2, without key, value and headers
_OF_HEADERS: Final = (
    *("topic", "timestampType", "base_timestamp", "max_timestamp", "records_count"),
    *("magic", "codec", "size_bytes", "last_offset"),
)


class CountOptions(RecordChoice, total=False):
    """Which records are counted, and what damage gives."""

    on_error: Annotated[
        Literal["skip", "fail"],
        Option(
            "For a batch, the end of a log or a file that cannot be read: skip: a warning with the "
            "bytes and offsets that are left out, and the batches after them are counted; fail: an "
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
        self._read: dict[str, Any] = {**picked(CountOptions, asked)}
        every = Reading.of(**self._read)
        of_committed = [UNDECIDED] if every.request.only_committed else []
        self.reading = every.with_columns(["topic", "timestamp", *of_committed])
        self.counted: _Counted = Counter()
        self.records = self.damaged = self.undecided = 0
        self.problems: list[str] = []
        self.logs = LogsRead()

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
        """Count by headers, then by records what headers do not tell.

        Raises NoReadableLogError if there are logs and none can be read.
        """
        others, skipped = partitions, list[str]()
        if not self.is_committed:
            of_headers = Reading.of(**self._read | {"level": "batches", "columns": _OF_HEADERS})
            headers = _HeaderCount(of_headers, self._per_ms, self.reading, partitions)
            self._take(headers.counted(engine, skipped, self.logs), skipped, on_progress)
            others = headers.others
        by_headers, self.problems = self.problems, []
        reading = ParallelReading(self.reading, engine, partial(_found_in, self._per_ms), warn)
        self._take(reading.read(others, skipped, self.logs), skipped, on_progress)
        problems = _in_order([*by_headers, *self.problems], partitions)
        self.problems = problems[:MOST_PROBLEMS]
        self.logs.require_one()

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
        """Yield what is to be said of the logs: problems, and logs that could not be read."""
        yield from problem_lines(self.problems, self.damaged)
        if self.logs.unreadable:
            yield self.logs.unreadable_text()


def _in_order(lines: list[str], partitions: list[PartitionSegments]) -> list[str]:
    """Return lines, each of which begins with a log, in the order of the logs."""
    if not lines:
        return []
    logs = (segment.log.uri for segment in chain.from_iterable(partitions))
    numbers = {uri: number for number, uri in enumerate(logs)}

    def number_of(line: str) -> int:
        names = (line[: colon.start()] for colon in re.finditer(": ", line))
        return next((numbers[name] for name in names if name in numbers), len(numbers))

    return sorted(lines, key=number_of)


def _found_in(per_ms: int, batch: pa.RecordBatch) -> Iterator[_Found]:
    """Yield the numbers of a batch of records."""
    undecided = 0
    if UNDECIDED in batch.schema.names:
        undecided = batch.num_rows - batch.column(UNDECIDED).null_count
    counts = np.ones(batch.num_rows, np.int64)
    yield _Found(_by_period(batch, batch.column("timestamp"), counts, per_ms), undecided)


class _HeaderPart(NamedTuple):
    """Segments of a partition whose headers a worker reads at once, in steps."""

    number: int  # of the partition
    first: int  # of the steps, its number
    steps: list[PartitionSegments]  # each is counted from headers as a whole, or not


class _HeaderStep(NamedTuple):
    """What the headers of a step tell."""

    counted: _Counted | None  # None: its records must be read
    first_new_offset: int  # where they begin; 0: at the start of the step
    next_offset: int  # after the last one of the part so far
    lines: list[str]
    logs: LogsRead


class _HeaderCount:
    """Counts the first segments of partitions from headers; `others` are those that it does not."""

    def __init__(
        self,
        of_headers: Reading,
        per_ms: int,
        by_record: Reading,
        partitions: list[PartitionSegments],
    ) -> None:
        """Take the partitions; where reading may stop inside one, it is one step."""
        is_in_order = by_record.request.disorder_ms is not None
        self._steps = [[one] if is_in_order else by_record.parts([one]) for one in partitions]
        self._run = _HeaderReader(of_headers, per_ms)
        self.others: list[PartitionSegments] = []

    def counted(
        self, engine: PartEngine, skipped: list[str], logs: LogsRead
    ) -> Generator[_Found, None, None]:
        """Yield the records of each step, of a partition until a step must be read."""
        over: set[int] = set()  # partitions with such a step
        number, next_offset = -1, 0
        with closing(self._running(engine, over)) as running:
            for part, found in running:
                if part.number in over:
                    continue
                if part.number != number:
                    number, next_offset = part.number, 0
                for place, step in enumerate(found, part.first):
                    segment = self._steps[number][place][0]
                    first_new = max(step.first_new_offset, first_new_of(segment, next_offset))
                    if step.counted is None or (step.counted and first_new):
                        over.add(number)
                        self._leave(number, place, first_new)
                        break
                    next_offset = max(next_offset, step.next_offset)
                    skipped += step.lines
                    logs.add(step.logs)
                    yield _Found(step.counted)

    def _running(
        self, engine: PartEngine, over: set[int]
    ) -> Generator[tuple[_HeaderPart, Iterator[_HeaderStep]], None, None]:
        sizes = [
            segment.listed_bytes for steps in self._steps for step in steps for segment in step
        ]
        workers = engine.workers_for(np.array(sizes, np.int64))
        parts, run = self._parts(over), self._run
        if workers > 1:
            return engine.run_in_order(parts, run, workers, _segments_of)
        return ((part, run(part)) for part in parts)

    def _parts(self, over: set[int]) -> Iterator[_HeaderPart]:
        for number, steps in enumerate(self._steps):
            first = size_bytes = 0
            for end, step in enumerate(steps, 1):
                if number in over:
                    break
                size_bytes += sum(one.listed_bytes for one in step)
                if size_bytes > PART_BYTES or end - first == MOST_SEGMENTS or end == len(steps):
                    yield _HeaderPart(number, first, steps[first:end])
                    first, size_bytes = end, 0

    def _leave(self, number: int, place: int, first_new_offset: int) -> None:
        """Note that the records of a step and the later ones must be read, from an offset on."""
        left = chain.from_iterable(self._steps[number][place:])
        self.others.append(
            [
                one._replace(first_new_offset=max(one.first_new_offset, first_new_offset))
                for one in left
            ]
        )


def _segments_of(part: _HeaderPart) -> tuple[str, int]:
    return part.steps[0][0].log.uri, sum(map(len, part.steps))


class _HeaderReader:
    """Reads the headers of a part, in this process or in a worker."""

    def __init__(self, reading: Reading, per_ms: int) -> None:
        """Take what is read; the reader itself is made where it is used."""
        self._reading, self._per_ms = reading, per_ms

    def __call__(self, part: _HeaderPart) -> Iterator[_HeaderStep]:
        """Yield what each step tells, until one must be read."""
        reading, lines = self._reading, list[str]()
        logs = LogsRead()
        reader = reading.segment_reader(Faults(reading.on_error, reading.schema, lines, logs))
        for segments in part.steps:
            counted = self._counted(reader, segments)
            is_alone = counted is None and len(segments) == 1
            first_new = reader.first_new_offset if is_alone else 0
            next_offset = reader.reached.next_offset
            yield _HeaderStep(counted, first_new, next_offset, lines[:], logs.take())
            if counted is None:
                return
            lines.clear()

    def _counted(self, reader: SegmentReader, segments: PartitionSegments) -> _Counted | None:
        """Return the records of a step, None if they must be read, or to find the error there."""
        counted: _Counted = Counter()
        untils = [one.until_offset for one in segments if one.until_offset is not None]
        try:
            for batch in reader.read(segments):
                if reader.first_new_offset or not _is_exact(batch, min(untils, default=None)):
                    return None
                counted.update(self._of_batch(batch))
        except Kip33Error:
            return None
        return counted

    def _of_batch(self, batch: pa.RecordBatch) -> _Counted:
        """Count the records of batches; those outside the times are left out."""
        times = batch.column("max_timestamp")
        counts = batch.column("records_count").to_numpy(zero_copy_only=False).astype(np.int64)
        limits = self._reading.request.limits
        if limits.only_with_timestamp:
            ms = times.cast(pa.int64())
            is_inside = pc.and_(
                pc.greater_equal(ms, limits.first_timestamp),
                pc.less_equal(ms, limits.last_timestamp),
            )
            counts = counts * pc.fill_null(is_inside, False).to_numpy(zero_copy_only=False)
        return _by_period(batch, times, counts, self._per_ms)


def _is_exact(batch: pa.RecordBatch, until_offset: int | None) -> bool:
    """Return whether headers have the timestamps of all records, and all are before an offset.

    Brokers write no max timestamp for a record before 1970; the base timestamp shows it.
    """
    if until_offset is not None:
        is_later = pc.greater_equal(batch.column("last_offset"), until_offset)
        if pc.any(is_later).as_py():
            return False
    counts = batch.column("records_count")
    is_alone = pc.less_equal(counts, 1)
    is_stamped = pc.equal(batch.column("timestampType"), _LOG_APPEND_TIME)
    has_largest = batch.column("max_timestamp").is_valid()
    is_one_time = pc.or_(has_largest, batch.column("base_timestamp").is_null())
    is_exact = pc.and_(pc.or_(is_alone, is_stamped), is_one_time)
    is_known = not counts.null_count and bool(pc.all(is_exact).as_py())
    return is_known and not _claims_too_much(batch)


def _claims_too_much(batch: pa.RecordBatch) -> bool:
    """Return whether a header claims more records than its uncompressed bytes can hold."""
    least = pc.multiply(batch.column("records_count").cast(pa.int64()), _LEAST_RECORD_BYTES)
    room = pc.subtract(batch.column("size_bytes").cast(pa.int64()), RECORD_BATCH_OVERHEAD)
    is_plain = pc.and_(pc.equal(batch.column("codec"), "none"), pc.equal(batch.column("magic"), 2))
    return bool(pc.any(pc.and_(is_plain, pc.greater(least, room))).as_py())


def _by_period(
    batch: pa.RecordBatch, times: "pa.Array[Any]", counts: npt.NDArray[np.int64], per_ms: int
) -> _Counted:
    """Return the numbers of records by period; a batch has rows of one topic."""
    found: _Counted = Counter()
    if not batch.num_rows:
        return found
    topic = batch.column("topic")[0].as_py()
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
    return found
