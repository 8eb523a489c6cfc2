"""The rows of `level="segments"` and `level="batches"`, from headers; nothing is decompressed.

A segment's row is from the catalog, or from a scan of its batch headers.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error, UnreadableLogError
from kip33.formats.batch import (
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL,
    DELETE_HORIZON,
    LEGACY_HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL,
    BatchColumns,
)
from kip33.formats.held_batches import HeldBatches
from kip33.formats.scan import BatchScan
from kip33.formats.whole_bodies import RecordLimits, UnreadableBatch
from kip33.records.columns import CORRUPT, UNDECIDED, of_segment
from kip33.records.partitions import HeaderFigures, PartitionSegments, ReadSegment
from kip33.records.record_request import Faults, OnError, RecordRequest
from kip33.stores.files import one_line, opened


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
                for warning in segment.warnings(self._request.limits.first_offset):
                    problem = CorruptSegmentError(warning, 0)
                if problem:
                    self._faults.seen(problem)
                rows.append(self._row(segment, figures, problem))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self._schema)

    def _figures(self, segment: ReadSegment) -> tuple[HeaderFigures, Kip33Error | None]:
        is_whole = segment.slice.until_offset is None
        if segment.figures and is_whole and segment.begin_offset == segment.base_offset:
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
            "max_timestamp": None if timestamp == NO_TIMESTAMP else timestamp,
            "log_uri": segment.log.uri,
            CORRUPT: str(problem) if problem else None,
        }


def _known_damage(segment: ReadSegment, figures: HeaderFigures) -> CorruptSegmentError | None:
    if segment.damage is None:
        return None
    return CorruptSegmentError(f"{segment.log.uri}: {segment.damage}", figures.valid_bytes or 0)


def scanned_figures(segment: ReadSegment) -> tuple[HeaderFigures, Kip33Error | None]:
    """Return the figures of a segment's slice from its batch headers, and what is wrong there."""
    uri = segment.log.uri
    if segment.error:
        return HeaderFigures(), UnreadableLogError(f"{uri}: cannot be read: {segment.error}")
    batch_count, record_count, has_wrapper = 0, 0, False
    last_offset, max_timestamp = None, NO_TIMESTAMP
    try:
        with opened(segment.log) as (read_into, size_bytes):
            scan = BatchScan(read_into, size_bytes, native=True)
            cut_at = None
            for every in scan:
                batches = segment.slice.inside(every)
                batch_count += len(batches)
                record_count += int(batches["records_count"].sum())
                has_wrapper |= bool((batches["records_count"] < 0).any())
                if len(batches):
                    last_offset = int(batches["last_offset"][-1])
                    max_timestamp = max(max_timestamp, int(batches["max_timestamp"].max()))
                if segment.slice.ends_in(every):  # the rest of the file is not of the log
                    cut_at = int(every["position"][segment.slice.end_in(every)])
                    break
    except FileReadError as error:
        return HeaderFigures(), UnreadableLogError(f"{uri}: cannot be read: {one_line(error)}")
    figures = HeaderFigures(
        *(size_bytes, scan.valid_bytes if cut_at is None else cut_at, batch_count),
        *(None if has_wrapper else record_count, last_offset, max_timestamp),
    )
    end_offset = 0 if last_offset is None else last_offset + 1
    is_whole = scan.only_zeros_follow and segment.is_whole_before_zeros(end_offset)
    why = None if is_whole or cut_at is not None else scan.damage or scan.load_failure
    return figures, CorruptSegmentError(f"{uri}: {why}", scan.valid_bytes) if why else None


_V2_HEADER: Final = np.dtype(
    [
        *(("base_offset", ">i8"), ("size", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1")),
        *(("crc", ">u4"), ("attributes", ">i2"), ("last_offset_delta", ">i4")),
        *(("base_timestamp", ">i8"), ("max_timestamp", ">i8"), ("producer_id", ">i8")),
        *(("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("records_count", ">i4")),
    ]
)
_FLAGS: Final = {
    "is_transactional": TRANSACTIONAL,
    "is_control": CONTROL,
    "has_delete_horizon": DELETE_HORIZON,
}
_OF_V2: Final = ("producer_epoch", "base_sequence")  # not in rows of BATCH
_SAME: Final = (
    *("position", "size_bytes", "magic", "first_offset", "last_offset", "records_count"),
    *("leader_epoch", "producer_id"),
)


class BatchRows:
    """Turns rows of BATCH into columns; nothing is decompressed."""

    def __init__(self, schema: pa.Schema) -> None:
        """Fill columns of `schema`, some of `columns.BATCHES`."""
        self._schema = schema

    def use(self, limits: RecordLimits) -> None:
        """Do nothing: batches are chosen by the caller."""

    def add(
        self, segment: ReadSegment, held: HeldBatches, undecided: str | None
    ) -> Iterator[pa.RecordBatch | UnreadableBatch]:
        """Yield a row for each batch."""
        batches = held.batches
        if len(batches) == 0:
            return
        is_v2 = batches["magic"] >= 2
        headers = _headers(held, is_v2) if {*_OF_V2, "crc"} & {*self._schema.names} else None
        columns: list[pa.Array[Any]] = []
        for field in self._schema:
            if field.name == UNDECIDED:
                columns.append(pa.array([undecided] * len(batches), pa.string()))
            elif (values := _values(field.name, batches, headers)) is None:
                columns.append(of_segment(field, segment, len(batches)))
            else:
                is_null = _nulls(field, values, batches, is_v2)
                columns.append(pa.array(values, mask=is_null).cast(field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def finish(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        """Yield nothing: rows are not collected."""
        yield from ()


def _headers(held: HeldBatches, is_v2: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
    """Return the fields of each header; those that v0 and v1 lack have any value."""
    count = len(is_v2)
    data = np.zeros((count, RECORD_BATCH_OVERHEAD), np.uint8)
    starts = held.batches["position"] - held.start
    for rows, size in ((is_v2, RECORD_BATCH_OVERHEAD), (~is_v2, LEGACY_HEADER_BYTES)):
        data[rows, :size] = held.data[starts[rows][:, None] + np.arange(size)]
    headers = data.view(_V2_HEADER).reshape(count)
    legacy_crc = data[:, 12:16].copy().view(">u4").reshape(count)
    headers["crc"] = np.where(is_v2, headers["crc"], legacy_crc)
    return headers


def _values(name: str, batches: BatchColumns, headers: npt.NDArray[np.void] | None) -> Any:
    """Return the values of a column, None for a column of the segment."""
    attributes = batches["attributes"]
    if name in _SAME:
        return batches["base_offset" if name == "first_offset" else name]
    if name in _FLAGS:
        return attributes & _FLAGS[name] != 0
    if name == "codec":
        return np.array(CODEC_NAMES)[attributes & CODEC_MASK]
    if name in ("base_timestamp", "max_timestamp"):
        return batches[name]
    if name == "timestampType":
        stamped = (attributes & LOG_APPEND_TIME != 0).astype(np.int32)
        return np.where(batches["magic"] == 0, -1, stamped)
    if headers is not None and name in (*_OF_V2, "crc"):
        return headers[name].astype(np.int64)
    return None


def _nulls(
    field: "pa.Field[Any]", values: Any, batches: BatchColumns, is_v2: npt.NDArray[np.bool_]
) -> Any:
    """Return which values of a column are null, None: no value."""
    name = field.name
    if pa.types.is_timestamp(field.type):
        return values == NO_TIMESTAMP
    if name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        return ~is_v2
    if name == "records_count":
        return batches["records_count"] < 0
    if name == "first_offset":
        return ~is_v2 & (batches["records_count"] < 0)
    return None
