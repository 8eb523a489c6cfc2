"""An archive read by several processes, with the rows and the order of one process.

A part is some small segments, or a span of a large one. A worker reads a part as if it knew no
earlier one. That is right unless earlier segments have some of its offsets, or a span begins where
no batch does. The parent knows when it comes to the part, and then reads it itself.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.errors import FileReadError, Kip33Error
from kip33.records.partitions import PartitionSegments, ReadSegment
from kip33.records.reading import Level, Reading, points_of
from kip33.records.record_request import Faults, LogsRead, RecordRequest
from kip33.records.segment_reader import (
    Begun,
    Reached,
    SegmentReader,
    Span,
    begun_of,
    first_new_of,
    needs,
    offset_index_of,
    request_inside,
    start_of,
)
from kip33.rules.packing import FILE_COST_BYTES, LEAST_BIN_COST
from kip33.stores.files import opened

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
    span: Span | None
    cost_bytes: int


class _Piece(NamedTuple):
    """What a worker sends: a result, or the end of a part; with lines and logs before it."""

    results: list[Any]
    lines: list[str]
    logs: LogsRead
    reached: Reached | None = None


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
    ) -> None:
        """Take what is read, who runs it, and what becomes of record batches."""
        self._reading, self._engine, self._then = reading, engine, then

    def read(
        self,
        partitions: list[PartitionSegments],
        skipped: list[str] | None = None,
        logs: LogsRead | None = None,
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
            with self._reading.read(partitions, lines, logs) as batches:
                yield from chain.from_iterable(map(self._then, batches))
            return
        over: set[int] = set()  # partitions of which no later record is wanted
        parts = _parts_of(partitions, self._reading.request, over)
        run = _PartReader(self._reading, self._then)
        alone = _first_of(parts, LEAST_BIN_COST if may_stop else 0)
        with closing(self._engine.run_in_order(parts, run, workers, _segments_of)) as running:
            yield from self._merged(chain(alone, running), over, lines, logs or LogsRead())

    def _sizes_of(self, partitions: list[PartitionSegments]) -> npt.NDArray[np.int64]:
        request = self._reading.request
        sizes = [
            one.listed_bytes for segments in partitions for one in segments if request.needs(one)
        ]
        return np.array(sizes, np.int64)

    def _merged(
        self,
        running: Iterable[tuple[_Part, Iterator[_Piece] | None]],
        over: set[int],
        lines: list[str],
        logs: LogsRead,
    ) -> Iterator[Result]:
        """Yield the results of parts; `over` gets the partitions that are read no further.

        A part without pieces is read by this process.
        """
        faults = Faults(self._reading.on_error, self._reading.schema, lines, logs)
        reader = self._reading.segment_reader(faults)
        number = -1
        for part, pieces in running:
            if part.number != number:
                number = part.number
                reader.begin(part.begun)
            if reader.is_over:
                over.add(number)
                continue
            agrees = reader.agrees(part.segments, part.span)
            if agrees is None:
                continue
            if pieces is None or not agrees:
                batches = reader.read_instead(part.segments, part.span)
                yield from chain.from_iterable(map(self._then, batches))
                continue
            for piece in pieces:
                lines += piece.lines
                logs.add(piece.logs)
                yield from piece.results
                if piece.reached:
                    reader.follow(part.segments, piece.reached)


def _first_of(parts: Iterator[_Part], cost_bytes: int) -> Iterator[tuple[_Part, None]]:
    """Yield the first parts, until they cost as much as this."""
    while cost_bytes > 0 and (part := next(parts, None)):
        cost_bytes -= part.cost_bytes
        yield part, None


def _segments_of(part: _Part) -> tuple[str, int]:
    return part.segments[0].log.uri, len(part.segments)


class _PartReader(Generic[Result]):
    """Reads parts in a worker process."""

    def __init__(
        self, reading: Reading, then: Callable[[pa.RecordBatch], Iterable[Result]]
    ) -> None:
        """Take what is read; the reader itself is made in the worker."""
        self._reading, self._then = reading, then
        self._reader: SegmentReader | None = None

    def __call__(self, part: _Part) -> Iterator[_Piece]:
        """Yield the results of a part, and at last how far it was read."""
        lines: list[str] = []
        logs = LogsRead()
        faults = Faults(self._reading.on_error, self._reading.schema, lines, logs)
        if self._reader is None:
            self._reader = self._reading.segment_reader(faults)
        reader = self._reader
        reader.begin_anew(part.begun, faults)
        for batch in reader.read_on(part.segments, part.span):
            for result in self._then(batch):
                yield _Piece([result], lines[:], logs.take())
                lines.clear()
        yield _Piece([], lines, logs, reader.reached)


def _parts_of(
    partitions: Iterable[PartitionSegments], request: RecordRequest, over: set[int]
) -> Iterator[_Part]:
    """Yield the parts of partitions, in order."""
    for number, partition in enumerate(partitions):
        begun = begun_of(partition, request)
        if begun is None:
            continue
        segments: PartitionSegments = []
        cost = 0
        for segment in partition:
            if number in over:
                break
            is_needed = needs(begun.request, segment, first_new_of(segment, 0))
            spans = _spans_of(segment, begun.request) if is_needed else []
            weight = segment.listed_bytes + FILE_COST_BYTES // 16 if is_needed else 0
            if segments and (spans or cost + weight > PART_BYTES or len(segments) == MOST_SEGMENTS):
                yield _Part(number, begun, segments, None, cost)
                segments, cost = [], 0
            if spans:
                each = segment.listed_bytes // len(spans)
                yield from (_Part(number, begun, [segment], span, each) for span in spans)
            else:
                segments, cost = [*segments, segment], cost + weight
        if segments:
            yield _Part(number, begun, segments, None, cost)


def _spans_of(segment: ReadSegment, request: RecordRequest) -> list[Span]:
    """Return the spans of a large segment, by its `.index`; none if it is read as a whole.

    It is, where reading may stop inside it: how much is read then depends on where it begins.
    """
    last_offset = request.limits.last_offset
    is_end = segment.next_base_offset is None or segment.next_base_offset > last_offset
    stops = request.disorder_ms is not None or (last_offset < RecordRequest().limits.last_offset)
    if 2 * segment.listed_bytes < 3 * PART_BYTES or segment.error or segment.conflict:
        return []
    if segment.warnings(request.limits.first_offset):  # said once
        return []
    if segment.until_offset is not None or (stops and is_end):
        return []
    inside = request_inside(request, segment, first_new_of(segment, 0))
    with ExitStack() as files:
        try:
            read_into, size_bytes = files.enter_context(opened(segment.log))
            size_bytes = segment.readable_bytes(size_bytes)
            index = offset_index_of(segment, files)
            if index is None:
                return []
            starts = [start_of(segment, inside.limits, read_into, size_bytes)]
            for _, position in points_of(index, size_bytes, PART_BYTES):
                if starts[-1] < position < size_bytes:
                    starts.append(position)
        except (FileReadError, Kip33Error):
            return []
    stops_at = [*starts[1:], None]
    return [Span(*ends, size_bytes) for ends in zip(starts, stops_at, strict=True)]
