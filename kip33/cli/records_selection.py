"""The records that `kip33 records` shows: the columns to read, the filter, and what was counted."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.cli.output import warn
from kip33.cli.records_options import RecordsRequest
from kip33.records.columns import CORRUPT, UNDECIDED, chosen
from kip33.records.record_request import LogsRead

_SEGMENT: Final = ("log_dir", "topic", "partition", "base_offset")
_PAYLOAD: Final = ("key", "value")


class RecordSelection:
    """Reads the selected records; `records` and the other numbers are counted meanwhile.

    `undecided` of the records may be of aborted transactions; None if these were not left out.
    `topics` are those of the partitions that are read, None for an unknown one.
    """

    def __init__(
        self, request: RecordsRequest, default_columns: Sequence[str] | None, limit: int | None
    ) -> None:
        """Choose the columns; ValueError, one line, for an unknown one. `limit`: None or rows."""
        self._request = request
        self._reading = request.reading()
        names = self._reading.schema.names
        if wanted := request.columns or default_columns:
            problems = [name for name in names if name.startswith("_")]
            names = list(dict.fromkeys([*wanted, *problems]))
        self._schema = chosen(self._reading.schema, names)
        self._limit, self._rows = limit, 0
        self.records = self.payload_bytes = self.damaged = 0
        self.undecided = 0 if UNDECIDED in self._reading.schema.names else None
        self.problems: list[str] = []  # the first of them, unless they are rows
        self.topics: set[str | None] = set()
        self.logs = LogsRead()
        self._segments: set[tuple[Any, ...]] = set()

    @property
    def segments(self) -> int:
        """Return how many segments had records between the times."""
        return len(self._segments)

    def read(self, most_problems: int) -> pa.RecordBatchReader:
        """Return the selected records until the limit; keep the first `most_problems` lines."""
        skipped: list[str] = []
        partitions = self._reading.partitions(self._request.source, warn=warn)
        self.topics = {segments[0].topic for segments in partitions}
        reading = self._reading.with_columns(self._columns_to_read())
        reader = reading.read(partitions, skipped, self.logs)
        batches = self._batches(reader, skipped, most_problems)
        return pa.RecordBatchReader.from_batches(self._schema, batches)

    def _batches(
        self, reader: pa.RecordBatchReader, skipped: list[str], most_problems: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                self._count_problems(skipped, most_problems)
                found = self._selected(batch)
                if found.num_rows:
                    self._rows += found.num_rows
                    yield found
                if self._rows == self._limit:
                    return
            self._count_problems(skipped, most_problems)
            self.logs.require_one()
        finally:
            reader.close()

    def _columns_to_read(self) -> list[str]:
        """Return the columns to show, those of the filter, and those that name the segment."""
        filtered = _PAYLOAD if self._request.grep is not None else ()
        by_key = ("key",) if self._request.where_key is not None else ()
        return list(dict.fromkeys((*self._schema.names, *filtered, *by_key, *_SEGMENT)))

    def _count_problems(self, skipped: list[str], most: int) -> None:
        self.damaged += len(skipped)
        self.problems += skipped[: most - len(self.problems)]
        skipped.clear()

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected records of a batch, with the columns to show."""
        is_corrupt = batch.column(CORRUPT).is_valid() if CORRUPT in batch.schema.names else None
        if is_corrupt is not None and pc.any(is_corrupt).as_py():  # one row that is no record
            self.damaged += 1
            return batch.select(self._schema.names)
        if batch.num_rows:
            self._segments.add(tuple(batch.column(name)[0].as_py() for name in _SEGMENT))
        batch = self._matching(batch)
        if self._limit is not None:
            batch = batch.slice(0, self._limit - self._rows)
        batch = batch.select(self._schema.names)
        self.records += batch.num_rows
        if self.undecided is not None:
            self.undecided += batch.num_rows - batch.column(UNDECIDED).null_count
        for name in set(_PAYLOAD) & set(batch.schema.names):
            self.payload_bytes += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
        return batch

    def _matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        where_key, grep = self._request.where_key, self._request.grep
        if where_key is not None:
            wanted = pa.scalar(where_key.encode(), pa.binary())
            batch = batch.filter(pc.equal(batch.column("key"), wanted))
        if grep is not None:
            found = [
                pc.fill_null(pc.match_substring(batch.column(name), grep.encode()), False)
                for name in _PAYLOAD
            ]
            batch = batch.filter(pc.or_(*found))
        return batch
