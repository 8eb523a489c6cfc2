"""The results of a roll audit as Arrow tables."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kip33.audits.roll_audit import RollAudit
from kip33.rules.retention import Codes, Int64Column
from kip33.rules.roll_verdicts import EARLY_ROLLS, ROLL_DOUBTS, ROLL_REASONS, UNSEEN, Ternary

ROLL_ROWS_AT_ONCE: Final = 20_000
_ROLL_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("last_offset", pa.int64()),
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("status", pa.string(), nullable=False),
    pa.field("valid_bytes", pa.int64()),
    pa.field("segment_ms", pa.int64(), nullable=False),
    pa.field("segment_bytes", pa.int64(), nullable=False),
    pa.field("start_timestamp", pa.int64()),
    pa.field("max_timestamp", pa.int64()),
    pa.field("ended_by", pa.string(), nullable=False),
    pa.field("by_size", pa.bool_()),
    pa.field("by_time", pa.bool_()),
    pa.field("by_index", pa.bool_()),
    pa.field("by_offset_range", pa.bool_()),
    pa.field("doubt", pa.string()),
    pa.field("not_seen", pa.string()),
    pa.field("waited_ms", pa.int64()),
    pa.field("waited_by_file_time", pa.bool_(), nullable=False),
    pa.field("rolls_at_ms", pa.int64()),
    pa.field("overdue_ms", pa.int64()),
    pa.field("oversize_bytes", pa.int64()),
    pa.field("early", pa.string()),
    pa.field("early_ms", pa.int64()),
]
ROLL: Final = pa.schema(_ROLL_FIELDS)
"""One row per segment; also the columns of `kip33.spark.audit_roll`."""

_OF_CATALOG: Final = ("log_dir", "topic", "partition", "base_offset", "last_offset", "status")


def roll_table(audit: RollAudit) -> pa.Table:
    """Return all rows as one table of ROLL."""
    return pa.concat_tables(roll_tables(audit))


def roll_tables(audit: RollAudit) -> Iterator[pa.Table]:
    """Yield the rows in order as tables of ROLL, some at a time."""
    columns, verdicts, of_rows = audit.columns, audit.verdicts, audit.of_rows
    named: dict[str, Any] = {name: columns.column(name) for name in (*_OF_CATALOG, "log_uri")}
    segment_ms = np.array([one.segment_ms for one in audit.settings], np.int64)
    segment_bytes = np.array([one.segment_bytes for one in audit.settings], np.int64)
    for first in range(0, max(1, columns.size), ROLL_ROWS_AT_ONCE):
        part = slice(first, first + ROLL_ROWS_AT_ONCE)
        found = {name: one[part] for name, one in named.items()} | {
            "valid_bytes": _int64s(audit.rows.valid_bytes, part),
            "segment_ms": pa.array(segment_ms[of_rows[part]]),
            "segment_bytes": pa.array(segment_bytes[of_rows[part]]),
            "start_timestamp": _int64s(audit.rows.start_timestamp, part),
            "max_timestamp": _int64s(audit.rows.max_timestamp, part),
            "ended_by": _texts(ROLL_REASONS, verdicts.ended_by[part]),
            "by_size": _bools(verdicts.by_size[part]),
            "by_time": _bools(verdicts.by_time[part]),
            "by_index": _bools(verdicts.by_index[part]),
            "by_offset_range": _bools(verdicts.by_offset_range[part]),
            "doubt": _texts(ROLL_DOUBTS, verdicts.doubt[part]),
            "not_seen": _texts(UNSEEN, verdicts.not_seen[part]),
            "waited_ms": _int64s(verdicts.waited_ms, part),
            "waited_by_file_time": pa.array(verdicts.is_by_file_time[part]),
            "rolls_at_ms": _int64s(verdicts.rolls_at_ms, part),
            "overdue_ms": _int64s(verdicts.overdue_ms, part),
            "oversize_bytes": _int64s(verdicts.oversize_bytes, part),
            "early": _texts(EARLY_ROLLS, verdicts.early[part]),
            "early_ms": _int64s(verdicts.early_ms, part),
        }
        yield pa.table({name: found[name] for name in ROLL.names}).cast(ROLL)


def roll_partitions(audit: RollAudit) -> pa.Table:
    """Return one row per partition: its settings, and how many segments ended for each reason.

    The last columns are the least and the largest value of `segment.bytes` and of `segment.ms` that
    explains all ends; null without such a value, or if a figure is unknown.
    """
    keys = audit.columns.keys
    table: dict[str, Any] = {
        "log_dir": pa.array([key[0] for key in keys], pa.string()),
        "topic": pa.array([key[1] for key in keys], pa.string()),
        "partition": pa.array([key[2] for key in keys], pa.int32()),
        "segment_ms": pa.array([one.segment_ms for one in audit.settings], pa.int64()),
        "segment_bytes": pa.array([one.segment_bytes for one in audit.settings], pa.int64()),
    }
    table |= {name: pa.array(one) for name, one in audit.sums.items()}
    explaining = audit.explaining._asdict()
    every = slice(None)
    return pa.table(
        table | {f"explained_by_{name}": _int64s(one, every) for name, one in explaining.items()}
    )


def _int64s(column: Int64Column, part: slice) -> Any:
    return pa.array(column.values[part], pa.int64(), mask=~column.known[part])


def _bools(values: Ternary) -> Any:
    return pa.array(values == 1, mask=values == -1)


def _texts(members: Sequence[StrEnum], codes: Codes) -> Any:
    """Return the text at each index in `members`, null for -1."""
    texts = pa.array([*(one.value for one in members), None], pa.string())
    return texts.take(pa.array(codes.astype(np.int64) % (len(members) + 1)))
