"""Verdicts as rows, for the output of `kip33 verify` and `kip33.spark.verify_index`."""

from typing import Any, Final

import pyarrow as pa

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("index_uri", pa.string(), nullable=False),
    pa.field("verdict", pa.string(), nullable=False),
    pa.field("dialect", pa.string()),
    pa.field("entries", pa.int64()),
    pa.field("problems", pa.list_(pa.string()), nullable=False),
    pa.field("offset_index_verdict", pa.string()),
    pa.field("log_status", pa.string(), nullable=False),
    pa.field("log_error", pa.string()),
    pa.field("largest_gap_bytes", pa.int64()),
    pa.field("offset_index_largest_gap_bytes", pa.int64()),
    pa.field("transaction_index_verdict", pa.string()),
    pa.field("producer_snapshot_verdict", pa.string()),
]
SEGMENT_VERDICTS: Final = pa.schema(_FIELDS)
"""The fields of `SegmentVerdict`, in order; one row per segment."""
