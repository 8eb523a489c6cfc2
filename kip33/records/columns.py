"""The columns of a table of records, and which of them a caller wants."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from kip33.records.read_segment import ReadSegment

CORRUPT: Final = "_corrupt"

_HEADER: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
)
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # between SOURCE and the partition's directory
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),  # of the segment
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("ms", "UTC")),  # null without one
    pa.field("timestampType", pa.int32()),  # 0 CreateTime, 1 LogAppendTime, -1 none
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(_HEADER)),  # null without headers
    pa.field(CORRUPT, pa.string()),  # why a batch or the rest of a log cannot be read
]
RECORDS: Final = pa.schema(_FIELDS)
"""The columns of `level="records"`; names and types are those of Spark's Kafka source."""


def chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns with these names, in this order; None: all. ValueError for another."""
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise ValueError(
            f"columns: {', '.join(map(repr, unknown))} found, expected some of "
            f"{', '.join(schema.names)}"
        )
    return pa.schema([schema.field(name) for name in columns])


def of_segment(field: "pa.Field[Any]", segment: ReadSegment, rows: int) -> "pa.Array[Any]":
    """Return a column that has the segment's value in all rows, or null if it has none."""
    value: Any = pa.scalar(segment.constant(field.name), field.type)
    column: pa.Array[Any] = pa.repeat(value, rows)
    return column
