"""The table of `OpenedCatalog.retention`: one row per segment with retention's decision.

The columns have the same names and meanings as those of `kip33.spark.evaluate_retention`.
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from kip33.retention.judging import CatalogRow, JudgedPartition
from kip33.rules.policies import Policies, Policy
from kip33.rules.retention import Decision

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


def retention_table(judged: Iterable[JudgedPartition], policies: Policies) -> pa.Table:
    """Return the judged segments as a table of RETENTION, in their order."""
    batches = [_batch(one, policies.of(one.topic)) for one in judged]
    return pa.Table.from_batches(batches, RETENTION)


def _batch(judged: JudgedPartition, policy: Policy) -> pa.RecordBatch:
    pairs = zip(judged.rows, judged.decisions, strict=True)
    rows = [_row(row, decision, judged, policy) for row, decision in pairs]
    return pa.RecordBatch.from_pylist(rows, RETENTION)


def _row(
    row: CatalogRow, decision: Decision, judged: JudgedPartition, policy: Policy
) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in RETENTION.names if hasattr(row, name)},
        "policy": policy.match,
        "mode": policy.mode,
        "retention_ms": policy.retention_ms,
        "retention_bytes": policy.retention_bytes,
        "log_start_offset": judged.limits.log_start_offset,
        **decision._asdict(),
    }
