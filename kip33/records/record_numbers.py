"""How many records have a timestamp, from the headers of batches where that is exact.

A header has the number of records and the largest timestamp. All records of a batch have this
timestamp if there is one record, or with LogAppendTime. With CreateTime the others may be older by
any time, so the records of such a batch are read.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.formats.batch import (
    CODEC_MASK,
    CODEC_NAMES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    BatchColumns,
)
from kip33.formats.held_batches import HeldBatches
from kip33.formats.whole_bodies import RecordLimits, UnreadableBatch
from kip33.records.columns import RECORDS, UNDECIDED, of_segment
from kip33.records.partitions import ReadSegment
from kip33.records.record_table import RecordRows

HOW_MANY: Final = "records"
_NUMBER_FIELD: "pa.Field[Any]" = pa.field(HOW_MANY, pa.int64(), nullable=False)
NUMBERS: Final = pa.schema(
    [*(RECORDS.field(name) for name in ("topic", "timestamp", UNDECIDED)), _NUMBER_FIELD]
)
"""A row: how many records of a topic have a timestamp."""

_LAST_CODEC: Final = CODEC_NAMES.index("zstd")
_LEAST_RECORD_BYTES: Final = 7  # of magic 2, without key, value and headers


class NumberRows:
    """Turns batches into numbers of records."""

    def __init__(self, schema: pa.Schema, max_batch_bytes: int) -> None:
        """Fill columns of `schema`, some of NUMBERS with the last one."""
        self._schema, self._limits = schema, RecordLimits()
        of_records = [field for field in schema if field.name != HOW_MANY]
        self._records = RecordRows(pa.schema(of_records), max_batch_bytes)

    def use(self, limits: RecordLimits) -> None:
        """Return records inside `limits` from now on."""
        self._limits = limits
        self._records.use(limits)

    def add(
        self, segment: ReadSegment, held: HeldBatches, undecided: str | None
    ) -> Iterator[pa.RecordBatch | UnreadableBatch]:
        """Yield record batches, and the batches that cannot be read."""
        limits, batches = self._limits, held.batches
        is_exact = _are_exact(batches)
        is_exact &= batches["base_offset"] >= limits.first_offset
        is_exact &= batches["last_offset"] <= limits.last_offset
        for found in self._records.add(
            segment, held._replace(batches=batches[~is_exact]), undecided
        ):
            yield found if isinstance(found, UnreadableBatch) else self._of_records(found)
        times = batches["max_timestamp"]
        if limits.only_with_timestamp:
            is_exact &= (times >= limits.first_timestamp) & (times <= limits.last_timestamp)
            is_exact &= times != NO_TIMESTAMP
        if is_exact.any():
            yield self._of_headers(segment, batches[is_exact], undecided)

    def finish(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        """Yield the records that were collected."""
        yield from map(self._of_records, self._records.finish(segment))

    def _of_records(self, records: pa.RecordBatch) -> pa.RecordBatch:
        ones = pa.array(np.ones(records.num_rows, np.int64))
        return pa.RecordBatch.from_arrays([*records.columns, ones], schema=self._schema)

    def _of_headers(
        self, segment: ReadSegment, batches: BatchColumns, undecided: str | None
    ) -> pa.RecordBatch:
        times = batches["max_timestamp"]
        columns: dict[str, Any] = {
            "timestamp": pa.array(times, mask=times == NO_TIMESTAMP),
            UNDECIDED: pa.array([undecided] * len(batches), pa.string()),
            HOW_MANY: pa.array(batches["records_count"].astype(np.int64)),
        }
        arrays = [
            columns[field.name].cast(field.type)
            if field.name in columns
            else of_segment(field, segment, len(batches))
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _are_exact(batches: BatchColumns) -> npt.NDArray[np.bool_]:
    """Return which headers have the number of records and the timestamp of all.

    Brokers write no max timestamp for a record before 1970; the base timestamp shows it. The bytes
    of an uncompressed batch must have room for its records.
    """
    counts, attributes = batches["records_count"].astype(np.int64), batches["attributes"]
    is_stamped = (attributes & LOG_APPEND_TIME != 0) & (batches["magic"] > 0)
    is_one_time = (batches["max_timestamp"] != NO_TIMESTAMP) | (
        batches["base_timestamp"] == NO_TIMESTAMP
    )
    room = batches["size_bytes"].astype(np.int64) - RECORD_BATCH_OVERHEAD
    codecs = attributes & CODEC_MASK
    is_plain = (batches["magic"] >= 2) & (codecs == 0)
    has_room = ~is_plain | (counts * _LEAST_RECORD_BYTES <= room)
    is_told = (counts >= 0) & ((counts <= 1) | is_stamped) & (codecs <= _LAST_CODEC)
    found: npt.NDArray[np.bool_] = is_told & is_one_time & has_room
    return found
