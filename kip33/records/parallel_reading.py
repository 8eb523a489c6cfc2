"""An archive read by several processes, with the rows and the order of one process.

A part is some small segments, or a span of a large one. A worker reads a part as if it knew no
earlier one. That is right unless earlier segments have some of its offsets, or a span begins where
no batch does. The parent knows when it comes to the part, and then reads it itself.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
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
from kip33.rules.packing import FILE_COST_BYTES
from kip33.stores.files import opened

PART_BYTES: Final = 1 << 24  # of logs, about
_MOST_SEGMENTS: Final = 256  # of a part
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


class _Piece(NamedTuple):
    """What a worker sends: a result, or the end of a part; with the lines before it."""

    results: list[Any]
    lines: list[str]
    reached: Reached | None = None
    logs: LogsRead | None = None


class ParallelReading(Generic[Result]):
    """Reads partitions in worker processes if that pays; `then` makes a result of their batches.

    `then` runs where a record batch is read, so it and its results are sent between processes.
    """

    def __init__(
        self, reading: Reading, engine: PartEngine, then: Callable[[pa.RecordBatch], Result]
    ) -> None:
        """Take what is read, who runs it, and what becomes of record batches."""
        self._reading, self._engine, self._then = reading, engine, then

    def read(
        self,
        partitions: list[PartitionSegments],
        skipped: list[str] | None = None,
        logs: LogsRead | None = None,
    ) -> Iterator[Result]:
        """Yield the results of partitions in order; the arguments are those of `Reading.read`.

        The rows of segments are read in this process: they are few, and most are in the catalog.
        """
        workers = 1
        if self._reading.level != Level.SEGMENTS:
            workers = self._engine.workers_for(self._sizes_of(partitions))
        if workers == 1:
            yield from map(self._then, self._reading.read(partitions, skipped, logs))
            return
        lines: list[str] = [] if skipped is None else skipped
        yield from self._by_workers(partitions, workers, lines, logs or LogsRead())

    def _sizes_of(self, partitions: list[PartitionSegments]) -> npt.NDArray[np.int64]:
        request = self._reading.request
        sizes = [
            one.listed_bytes for segments in partitions for one in segments if request.needs(one)
        ]
        return np.array(sizes, np.int64)

    def _by_workers(
        self, partitions: list[PartitionSegments], workers: int, lines: list[str], logs: LogsRead
    ) -> Iterator[Result]:
        over: set[int] = set()  # partitions of which no later record is wanted
        parts = _parts_of(partitions, self._reading.request, over)
        run = _PartReader(self._reading, self._then)
        with closing(self._engine.run_in_order(parts, run, workers, _segments_of)) as running:
            yield from self._merged(running, over, lines, logs)

    def _merged(
        self,
        running: Iterable[tuple[_Part, Iterator[_Piece]]],
        over: set[int],
        lines: list[str],
        logs: LogsRead,
    ) -> Iterator[Result]:
        """Yield the results of parts; `over` gets the partitions that are read no further."""
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
            if agrees is False:
                yield from map(self._then, reader.read_instead(part.segments, part.span))
            elif agrees:
                for piece in pieces:
                    lines += piece.lines
                    yield from piece.results
                    if piece.reached and piece.logs:
                        logs.add(piece.logs)
                        reader.follow(part.segments, piece.reached)


def _segments_of(part: _Part) -> tuple[str, int]:
    return part.segments[0].log.uri, len(part.segments)


class _PartReader(Generic[Result]):
    """Reads parts in a worker process."""

    def __init__(self, reading: Reading, then: Callable[[pa.RecordBatch], Result]) -> None:
        """Take what is read; the reader itself is made in the worker."""
        self._reading, self._then = reading, then
        self._reader: SegmentReader | None = None

    def __call__(self, part: _Part) -> Iterator[_Piece]:
        """Yield the results of a part, and at last how far it was read."""
        lines: list[str] = []
        faults = Faults(self._reading.on_error, self._reading.schema, lines, LogsRead())
        if self._reader is None:
            self._reader = self._reading.segment_reader(faults)
        reader = self._reader
        reader.begin_anew(part.begun, faults)
        for batch in reader.read_on(part.segments, part.span):
            yield _Piece([self._then(batch)], lines[:])
            lines.clear()
        yield _Piece([], lines, reader.reached, faults.logs)


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
            if segments and (
                spans or cost + weight > PART_BYTES or len(segments) == _MOST_SEGMENTS
            ):
                yield _Part(number, begun, segments, None)
                segments, cost = [], 0
            if spans:
                yield from (_Part(number, begun, [segment], span) for span in spans)
            else:
                segments, cost = [*segments, segment], cost + weight
        if segments:
            yield _Part(number, begun, segments, None)


def _spans_of(segment: ReadSegment, request: RecordRequest) -> list[Span]:
    """Return the spans of a large segment, by its `.index`; none if it is read as a whole.

    It is, where reading may stop inside it: how much is read then depends on where it begins.
    """
    last_offset = request.limits.last_offset
    is_end = segment.next_base_offset is None or segment.next_base_offset > last_offset
    stops = request.disorder_ms is not None or (last_offset < RecordRequest().limits.last_offset)
    if 2 * segment.listed_bytes < 3 * PART_BYTES or segment.error or (stops and is_end):
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
