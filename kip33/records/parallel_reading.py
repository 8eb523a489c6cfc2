"""An archive read by several processes, with the rows and the order of one process.

A part is some small segments, or a span of a large one. A catalog tells which offsets earlier
segments have, so a worker reads a part as it is. Without a catalog this is known only after the
earlier parts were read: if a part then shares offsets with them, this process reads it again
itself. If no batch begins where the next span should, the worker reads the rest of the segment.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.catalog.catalog import Warn, warn_caller
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Level, Reading
from kip33.records.record_request import Faults, RecordRequest
from kip33.records.segment_reader import SegmentReader
from kip33.records.segment_spans import spans_of
from kip33.records.transaction_fates import Begun, begun_of
from kip33.rules.packing import FILE_COST_BYTES, LEAST_BIN_COST

PART_BYTES: Final = 1 << 24  # of logs, about
MOST_SEGMENTS: Final = 256  # of a part
Result = TypeVar("Result")
Part = TypeVar("Part")
Piece = TypeVar("Piece")


class PartEngine(Protocol):
    """Runs parts in worker processes: `kip33.local.local_engine`."""

    def workers_for(self, sizes_bytes: npt.NDArray[np.int64]) -> int:
        """Return the most workers for files of these sizes: 1 if a second one would not pay."""
        ...

    def run_in_order(
        self,
        parts: Iterable[Part],
        run: Callable[[Part], Iterable[Piece]],
        workers: int,
        segments_of: Callable[[Part], tuple[str, int]],
    ) -> Generator[tuple[Part, Iterator[Piece]], None, None]:
        """Yield each part with the pieces that `run` gives for it in a worker, in order."""
        ...


class _Part(NamedTuple):
    """What a worker reads at once."""

    number: int  # of the partition
    begun: Begun
    segments: PartitionSegments
    cost_bytes: int

    def after(self, next_offset: int) -> "_Part":
        """Return the part without smaller offsets, which earlier segments have."""
        return self._replace(segments=[one.after(next_offset) for one in self.segments])


class _End(NamedTuple):
    """How far a part was read."""

    next_offset: int  # after the last one
    is_over: bool  # no later record of the partition is wanted
    reaches_stop: bool  # of its span; if not, all that can be read of the segment was


class _Piece(NamedTuple):
    """What a worker sends: some results, or the end of a part; with the lines before it."""

    results: list[Any]
    lines: list[str]
    end: _End | None = None


class ParallelReading(Generic[Result]):
    """Reads partitions in worker processes if that pays; `then` makes results of their batches.

    `then` runs where a record batch is read, so it and its results are sent between processes. It
    gives some results at a time, so that they need not be in memory together.
    """

    def __init__(
        self,
        reading: Reading,
        engine: PartEngine,
        then: Callable[[pa.RecordBatch], Iterable[Result]],
        warn: Warn = warn_caller,
    ) -> None:
        """Take what is read, who runs it, what becomes of record batches, and who is warned."""
        self._reading, self._engine, self._then = reading, engine, then
        self._warn = warn

    def read(
        self,
        partitions: list[PartitionSegments],
        skipped: list[str] | None = None,
        *,
        may_stop: bool = False,
    ) -> Generator[Result, None, None]:
        """Yield the results of partitions in order; the arguments are those of `Reading.read`.

        The rows of segments are read in this process: they are few, and most are in the catalog.
        With `may_stop` the caller may need only the first results. Then this process begins alone,
        and workers start after as much work as one process does alone.
        """
        workers = 1
        if self._reading.level != Level.SEGMENTS:
            workers = self._engine.workers_for(self._sizes_of(partitions))
        lines: list[str] = [] if skipped is None else skipped
        if workers == 1:
            with self._reading.read(partitions, lines, warn=self._warn) as batches:
                yield from chain.from_iterable(map(self._then, batches))
            return
        over: set[int] = set()  # partitions of which no later record is wanted
        parts = _parts_of(partitions, self._reading.request, over, self._warn)
        alone = _first_of(parts, LEAST_BIN_COST if may_stop else 0)
        run = _PartReader(self._reading, self._then)
        with closing(self._engine.run_in_order(parts, run, workers, _segments_of)) as running:
            for piece in self._pieces(chain(alone, running), over):
                lines += piece.lines
                yield from piece.results

    def _sizes_of(self, partitions: list[PartitionSegments]) -> npt.NDArray[np.int64]:
        request = self._reading.request
        sizes = [
            one.listed_bytes for segments in partitions for one in segments if request.needs(one)
        ]
        return np.array(sizes, np.int64)

    def _pieces(
        self, running: Iterable[tuple[_Part, Iterator[_Piece] | None]], over: set[int]
    ) -> Iterator[_Piece]:
        """Yield the pieces of parts; `over` gets the partitions that are read no further.

        A part without pieces is read by this process.
        """
        here = _PartReader(self._reading, self._then)
        number, log, is_whole = -1, None, False
        before = next_offset = 0  # after the last one before this segment, and so far
        for part, pieces in running:
            if part.number != number:
                number, next_offset = part.number, 0
            if number in over or (is_whole and part.segments[-1].log == log):
                continue
            if part.segments[-1].log != log:
                log, before = part.segments[-1].log, next_offset
            new = part.after(before)
            for piece in here(new) if pieces is None or new != part else pieces:
                yield piece
                if end := piece.end:
                    next_offset, is_whole = max(next_offset, end.next_offset), not end.reaches_stop
                    if end.is_over:
                        over.add(number)


def _first_of(parts: Iterator[_Part], cost_bytes: int) -> Iterator[tuple[_Part, None]]:
    """Yield the first parts, until they cost as much as this."""
    while cost_bytes > 0 and (part := next(parts, None)):
        cost_bytes -= part.cost_bytes
        yield part, None


def _segments_of(part: _Part) -> tuple[str, int]:
    return part.segments[0].log.uri, len(part.segments)


class _PartReader(Generic[Result]):
    """Reads parts, in a worker process or in this one."""

    def __init__(
        self, reading: Reading, then: Callable[[pa.RecordBatch], Iterable[Result]]
    ) -> None:
        """Take what is read; the reader itself is made where it reads."""
        self._reading, self._then = reading, then
        self._lines: list[str] = []
        self._reader: SegmentReader | None = None

    def __call__(self, part: _Part) -> Iterator[_Piece]:
        """Yield the results of a part, and at last how far it was read."""
        reading = self._reading
        if self._reader is None:
            faults = Faults(reading.on_error, reading.schema, self._lines)
            self._reader = reading.segment_reader(faults)
        reader = self._reader
        for batch in reader.read_part(part.begun, part.segments, takes_over=True):
            for result in self._then(batch):
                yield self._piece([result])
        yield self._piece([], _End(reader.next_offset, reader.is_over, reader.reaches_stop))

    def _piece(self, results: list[Result], end: _End | None = None) -> _Piece:
        lines = self._lines[:]
        self._lines.clear()
        return _Piece(results, lines, end)


def _parts_of(
    partitions: Iterable[PartitionSegments], request: RecordRequest, over: set[int], warn: Warn
) -> Iterator[_Part]:
    """Yield the parts of partitions, in order.

    `warn` gets a line for each partition that an open transaction ends before its log does.
    """
    for number, partition in enumerate(partitions):
        begun = begun_of(partition, request)
        if begun is None:
            continue
        if begun.notice:
            warn(begun.notice)
        segments: PartitionSegments = []
        cost = 0
        for segment in begun.request.needed_of(partition):
            if number in over:
                break
            spans = spans_of(segment, begun.request, PART_BYTES)
            weight = segment.listed_bytes + FILE_COST_BYTES // 16
            is_full = cost + weight > PART_BYTES or len(segments) == MOST_SEGMENTS
            if segments and (len(spans) > 1 or is_full):
                yield _Part(number, begun, segments, cost)
                segments, cost = [], 0
            if len(spans) > 1:
                yield from (_Part(number, begun, [span], span.listed_bytes) for span in spans)
            else:
                segments, cost = [*segments, segment], cost + weight
        if segments:
            yield _Part(number, begun, segments, cost)
