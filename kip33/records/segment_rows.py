"""`level="segments"`: one row per segment, from its catalog row or a scan of its batch headers."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error, LocationError
from kip33.formats.scan import BatchScan
from kip33.records.columns import CORRUPT
from kip33.records.faults import Faults, OnError
from kip33.records.partitions import PartitionSegments
from kip33.records.read_segment import HeaderFigures, ReadSegment
from kip33.records.record_request import RecordRequest
from kip33.stores.files import one_line, opened

_NO_TIMESTAMP: Final = -1


class SegmentRows:
    """Gives a row for each segment; damage is in its column, an error, or counted."""

    def __init__(self, request: RecordRequest, schema: pa.Schema, faults: Faults) -> None:
        """Return the segments that `request` needs, as columns of `schema`."""
        self._request, self._schema, self._faults = request, schema, faults
        self._reads_figures = bool({*HeaderFigures._fields, CORRUPT} & {*schema.names})

    def read(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        rows = []
        for segment in partition:
            if self._request.needs(segment):
                figures, problem = self._figures(segment)
                if problem:
                    self._faults.seen(problem)
                rows.append(self._row(segment, figures, problem))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self._schema)

    def _figures(self, segment: ReadSegment) -> tuple[HeaderFigures, Kip33Error | None]:
        if segment.figures:
            return segment.figures, _known_damage(segment, segment.figures)
        if not self._reads_figures and self._faults.on_error == OnError.ROW:
            return HeaderFigures(), None
        return scanned_figures(segment)

    def _row(
        self, segment: ReadSegment, figures: HeaderFigures, problem: Kip33Error | None
    ) -> dict[str, Any]:
        timestamp = figures.max_timestamp
        return {
            **{name: segment.constant(name) for name in self._schema.names},
            **figures._asdict(),
            "max_timestamp": None if timestamp == _NO_TIMESTAMP else timestamp,
            "log_uri": segment.log.uri,
            CORRUPT: str(problem) if problem else None,
        }


def _known_damage(segment: ReadSegment, figures: HeaderFigures) -> CorruptSegmentError | None:
    if segment.damage is None:
        return None
    return CorruptSegmentError(f"{segment.log.uri}: {segment.damage}", figures.valid_bytes or 0)


def scanned_figures(segment: ReadSegment) -> tuple[HeaderFigures, Kip33Error | None]:
    """Return a segment's figures from its batch headers, and what is wrong with its log."""
    uri = segment.log.uri
    if segment.error:
        return HeaderFigures(), LocationError(f"{uri}: cannot be read: {segment.error}")
    batch_count, record_count, has_wrapper = 0, 0, False
    last_offset, max_timestamp = None, _NO_TIMESTAMP
    try:
        with opened(segment.log) as (read_into, size_bytes):
            scan = BatchScan(read_into, size_bytes)
            for batches in scan:
                batch_count += len(batches)
                record_count += int(batches["records_count"].sum())
                has_wrapper |= bool((batches["records_count"] < 0).any())
                last_offset = int(batches["last_offset"][-1])
                max_timestamp = max(max_timestamp, int(batches["max_timestamp"].max()))
    except FileReadError as error:
        return HeaderFigures(), LocationError(f"{uri}: cannot be read: {one_line(error)}")
    figures = HeaderFigures(
        *(size_bytes, scan.valid_bytes, batch_count, None if has_wrapper else record_count),
        *(last_offset, max_timestamp),
    )
    why = scan.damage or scan.load_failure
    return figures, CorruptSegmentError(f"{uri}: {why}", scan.valid_bytes) if why else None
