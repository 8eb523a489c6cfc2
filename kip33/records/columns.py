"""The columns of a table of records."""

from typing import Any, Final

import pyarrow as pa

from kip33.records.partitions import ReadSegment

CORRUPT: Final = "_corrupt"
UNDECIDED: Final = "_undecided"

_HEADER: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
)
_OF_SEGMENT: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # between SOURCE and the partition's directory
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),  # of the segment
]
_PROBLEMS: list["pa.Field[Any]"] = [
    pa.field(UNDECIDED, pa.string()),  # why the outcome of its transaction is unknown
    pa.field(CORRUPT, pa.string()),  # why a batch or the rest of a log cannot be read
]
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("ms", "UTC")),  # null without one
    pa.field("timestampType", pa.int32()),  # 0 CreateTime, 1 LogAppendTime, -1 none
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(_HEADER)),  # null without headers
]
_BATCH_FIELDS: list["pa.Field[Any]"] = [
    pa.field("position", pa.int64()),  # in the log
    pa.field("size_bytes", pa.int64()),
    pa.field("magic", pa.int32()),
    pa.field("codec", pa.string()),
    pa.field("timestampType", pa.int32()),
    pa.field("first_offset", pa.int64()),  # null of a v0 or v1 wrapper
    pa.field("last_offset", pa.int64()),
    pa.field("base_timestamp", pa.timestamp("ms", "UTC")),
    pa.field("max_timestamp", pa.timestamp("ms", "UTC")),  # null without one
    pa.field("records_count", pa.int32()),  # null of a v0 or v1 wrapper
    pa.field("crc", pa.int64()),
    pa.field("is_transactional", pa.bool_()),
    pa.field("is_control", pa.bool_()),
    pa.field("has_delete_horizon", pa.bool_()),
    pa.field("leader_epoch", pa.int32()),  # these four are null of v0 and v1
    pa.field("producer_id", pa.int64()),
    pa.field("producer_epoch", pa.int32()),
    pa.field("base_sequence", pa.int32()),
]
_SEGMENT_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_uri", pa.string()),
    pa.field("size_bytes", pa.int64()),
    pa.field("valid_bytes", pa.int64()),  # complete, valid batches from the start
    pa.field("batch_count", pa.int64()),
    pa.field("record_count", pa.int64()),  # null with a v0 or v1 wrapper
    pa.field("last_offset", pa.int64()),  # null without a batch
    pa.field("max_timestamp", pa.timestamp("ms", "UTC")),  # null without one
]
RECORDS: Final = pa.schema([*_OF_SEGMENT, *_FIELDS, *_PROBLEMS])
"""The columns of `level="records"`; names and types are those of Spark's Kafka source."""
BATCHES: Final = pa.schema([*_OF_SEGMENT, *_BATCH_FIELDS, *_PROBLEMS])
"""The columns of `level="batches"`."""
SEGMENT_TABLE: Final = pa.schema([*_OF_SEGMENT, *_SEGMENT_FIELDS, *_PROBLEMS[1:]])
"""The columns of `level="segments"`."""


def of_segment(field: "pa.Field[Any]", segment: ReadSegment, rows: int) -> "pa.Array[Any]":
    """Return a column that has the segment's value in all rows, or null if it has none."""
    value: Any = pa.scalar(segment.constant(field.name), field.type)
    column: pa.Array[Any] = pa.repeat(value, rows)
    return column


def corrupt_row(schema: pa.Schema, segment: ReadSegment, why: str) -> pa.RecordBatch:
    """Return a record batch of one row, which says why something cannot be read."""
    columns = [
        pa.array([why], pa.string()) if field.name == CORRUPT else of_segment(field, segment, 1)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
