"""The table of `OpenedCatalog.retention`: one row per segment with retention's decision.

The columns have the same names and meanings as those of `kip33.spark.evaluate_retention`.
"""

from typing import Any, Final

import pyarrow as pa

from kip33.retention.evaluated_tables import answer_columns
from kip33.retention.evaluation import EvaluatedCatalog

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("base_offset", pa.int64()),
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("largest_timestamp", pa.int64()),
    pa.field("largest_timestamp_source", pa.string()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("policy", pa.string(), nullable=False),
    pa.field("mode", pa.string(), nullable=False),
    pa.field("retention_ms", pa.int64(), nullable=False),
    pa.field("retention_bytes", pa.int64(), nullable=False),
    pa.field("log_start_offset", pa.int64()),
    pa.field("retention_ms_breached", pa.bool_(), nullable=False),
    pa.field("deletable", pa.bool_(), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("expires_at_ms", pa.int64()),
    pa.field("deletable_at_ms", pa.int64()),
    pa.field("blocked_by_base_offset", pa.int64()),
    pa.field("blocked_by_timestamp", pa.int64()),
]
RETENTION: Final = pa.schema(_FIELDS)


def retention_table(evaluated: EvaluatedCatalog) -> pa.Table:
    """Return the judged segments as a table of RETENTION, in their order.

    A directory that could not be listed is no segment, whatever partition its name suggests.
    """
    columns = evaluated.columns
    answers = answer_columns(evaluated, 0, columns.size)
    found = {
        name: answers[name] if name in answers else columns.column(name) for name in RETENTION.names
    }
    is_segment = columns.int64("base_offset").known & (columns.codes("topic") >= 0)
    return pa.table(found).filter(pa.array(is_segment)).cast(RETENTION)
