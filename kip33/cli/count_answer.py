"""The answer of `kip33 count`: numbers of records by topic and period.

They are from the headers of batches where that is exact. A header has the number of records and the
largest timestamp. All records of a batch have this timestamp if there is one record, or with
LogAppendTime. With CreateTime the others may be older by any time. So from the first segment with
such a batch on, a partition's records are read, and from the first segment on that shares offsets
with an earlier one.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.cli.engine_option import leave_pandas_out
from kip33.cli.options import publish_summary
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    iso_time,
    show,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.cli.records_answer import (
    MOST_DAMAGE_WARNINGS,
    problems_text,
    warn_of_damage,
)
from kip33.cli.records_options import ON_ERROR_FAILS, CountCommand
from kip33.errors import Kip33Error
from kip33.formats.batch import RECORD_BATCH_OVERHEAD
from kip33.records.columns import UNDECIDED
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Isolation, Reading
from kip33.records.record_request import Faults, LogsRead
from kip33.stores.progress import Phase, Progress

MOST_PERIODS: Final = 1_000_000  # in memory, of all topics
_COLUMNS: Final = ("topic", "period_start", "time", "records")

_Counted: TypeAlias = Counter[tuple[str | None, int | None]]
"""Records by topic and number of the period, None for records without a timestamp."""
_LOG_APPEND_TIME: Final = 1
_LEAST_RECORD_BYTES: Final = 7  # of magic 2, without key, value and headers
_OF_HEADERS: Final = (
    *("topic", "timestampType", "max_timestamp", "records_count"),
    *("magic", "codec", "size_bytes"),
)


class RecordCount:
    """Counts the records of a request; `damaged` is the number of places that cannot be read.

    `undecided` is the number of records that may be of aborted transactions.
    """

    def __init__(self, request: CountCommand) -> None:
        """Start with nothing."""
        self._request = request
        self.counted: _Counted = Counter()
        self.records = self.damaged = self.undecided = 0
        self.problems: list[str] = []
        self.logs = LogsRead()

    def add(self, found: _Counted) -> None:
        """Add numbers of records; Kip33Error, one line, for too many periods."""
        self.counted.update(found)
        self.records += found.total()
        if len(self.counted) > MOST_PERIODS:
            raise Kip33Error(
                f"more than {MOST_PERIODS:,} periods found; give a longer --per, or --from and "
                "--until"
            )

    def skip(self, problems: list[str]) -> None:
        """Count places that cannot be read; the list is emptied."""
        self.damaged += len(problems)
        self.problems += problems[: MOST_DAMAGE_WARNINGS - len(self.problems)]
        problems.clear()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by topic and period; those without a timestamp come last."""
        ordered = sorted(self.counted, key=lambda one: (one[0] or "", one[1] is None, one[1]))
        return [self._row(topic, period) for topic, period in ordered]

    def _row(self, topic: str | None, period: int | None) -> dict[str, Any]:
        start = None if period is None else period * self._request.per_ms
        time_text = None if start is None else iso_time(start)
        found = (topic, start, time_text, self.counted[topic, period])
        return dict(zip(_COLUMNS, found, strict=True))


def show_counts(request: CountCommand) -> None:
    """Print the numbers of records."""
    leave_pandas_out()
    started = time.monotonic()
    count = RecordCount(request)
    skipped: list[str] = []
    undecided: list[int] = []
    with progress_line("count") as on_progress:
        for found in _counted_batches(request, skipped, undecided, count.logs):
            count.add(found)
            count.skip(skipped)
            on_progress(Progress(Phase.READING_LOGS, count.records, unit="record"))
    count.skip(skipped)
    count.undecided = sum(undecided)
    count.logs.require_one()
    warn_of_damage(count.problems, count.damaged)
    if count.logs.unreadable:
        warn(count.logs.unreadable_text())
    rows = count.rows()
    seconds = time.monotonic() - started
    summary: dict[str, Any] = {
        "records": count.records,
        "periods": len(rows),
        "damaged": count.damaged,
    }
    if Isolation(request.read["isolation"]) == Isolation.READ_COMMITTED:
        summary["undecided"] = count.undecided
    summary |= {"seconds": round(seconds, 3)}
    publish_summary(request.summary_file, summary)
    answer = Output(
        page=_page(rows, count, seconds),
        rows=[RowList("counts", rows, columns=_COLUMNS)],
        summary=summary,
        summary_key="summary",
    )
    show(answer, request.output_format)


def _page(rows: Sequence[Row], count: RecordCount, seconds: float) -> Iterator[Table | str]:
    columns = (
        Column("topic", lambda row: row["topic"] or "-", is_name=True),
        Column("from", "time", rank=0),
        Column("records", "records", rank=0),
    )
    yield Table(columns, rows)
    records, periods = counted(count.records, "record"), counted(len(rows), "period")
    problems = problems_text(count.damaged, count.undecided)
    yield f"{records} in {periods}; {problems}read in {seconds:.1f} s"


def _counted_batches(
    request: CountCommand, skipped: list[str], undecided: list[int], logs: LogsRead
) -> Iterator[_Counted]:
    """Yield numbers of records, to be added up; `skipped` and `logs` get what cannot be read.

    `undecided` gets numbers of records that may be of aborted transactions.
    """
    is_committed = Isolation(request.read["isolation"]) == Isolation.READ_COMMITTED
    columns = ["topic", "timestamp", *([UNDECIDED] if is_committed else [])]
    by_record = Reading.of(**(request.read | {"columns": columns}))
    for partition in by_record.partitions(request.source, warn=warn, choice=ON_ERROR_FAILS):
        is_in_order = request.read["disorder"] is not None  # reading may stop inside the partition
        parts = [partition] if is_in_order else by_record.parts([partition])
        headers = _HeaderCount(request, parts)
        if not is_committed:
            yield from headers.counted(skipped, logs)
        for batch in by_record.read(headers.others, skipped, logs):
            counts = np.ones(batch.num_rows, np.int64)
            if is_committed:
                undecided.append(batch.num_rows - batch.column(UNDECIDED).null_count)
            yield _by_period(batch, batch.column("timestamp"), counts, request.per_ms)


class _HeaderCount:
    """Counts the first parts of a partition from headers; `others` are those that it does not."""

    def __init__(self, request: CountCommand, parts: list[PartitionSegments]) -> None:
        """Take the parts, in their order."""
        self.others = parts
        self._request = request

    def counted(self, skipped: list[str], logs: LogsRead) -> Iterator[_Counted]:
        """Yield the records of each part, until a part has a batch that must be read."""
        reading = Reading.of(**(self._request.read | {"level": "batches", "columns": _OF_HEADERS}))
        lines: list[str] = []
        reader = reading.segment_reader(Faults(reading.on_error, reading.schema, lines, logs))
        while self.others:
            counted: _Counted = Counter()
            for batch in reader.read(self.others[0]):
                if reader.first_new_offset or not _is_exact(batch):
                    self._begin_at(reader.first_new_offset)
                    return
                counted.update(self._counted(batch))
            yield counted
            skipped += lines
            lines.clear()
            self.others = self.others[1:]

    def _begin_at(self, first_new_offset: int) -> None:
        """Leave out of the other parts what the counted ones have."""
        [[segment, *rest], *later] = self.others
        if not rest:
            segment = segment._replace(first_new_offset=first_new_offset)
        self.others = [[segment, *rest], *later]

    def _counted(self, batch: pa.RecordBatch) -> _Counted:
        """Count batches; those outside the times are left out."""
        times = batch.column("max_timestamp")
        counts = batch.column("records_count").to_numpy(zero_copy_only=False).astype(np.int64)
        milliseconds = times.cast(pa.int64())
        for limit, compare in (
            (self._request.read["start_time"], pc.greater_equal),
            (self._request.read["end_time"], pc.less),
        ):
            if limit is not None:
                is_inside = pc.fill_null(compare(milliseconds, limit), False)
                counts = counts * is_inside.to_numpy(zero_copy_only=False)
        return _by_period(batch, times, counts, self._request.per_ms)


def _is_exact(batch: pa.RecordBatch) -> bool:
    """Return whether headers have the timestamps of all records."""
    counts = batch.column("records_count")
    is_alone = pc.less_equal(counts, 1)
    is_stamped = pc.equal(batch.column("timestampType"), _LOG_APPEND_TIME)
    is_known = not counts.null_count and bool(pc.all(pc.or_(is_alone, is_stamped)).as_py())
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
