"""What a catalog alone tells about timestamps; no log is opened.

The numbers of batches out of order and of suspicious batches are lower limits. A catalog counts the
batches out of order within each segment, and has only the largest timestamp of each segment.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import numpy as np

from kip33.audits.timestamp_plan import TimestampPlan, keys_of
from kip33.audits.timestamp_rows import TIMESTAMPS
from kip33.catalog.catalog import Catalog
from kip33.formats.batch import NO_TIMESTAMP
from kip33.rules.policies import MAX_INT64
from kip33.rules.retention import Codes
from kip33.rules.segment_summary import TIMESTAMP_TYPES
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import suspicions_of_records, timestamp_type_of

_FIGURES: Final = ("log_uri", "batch_count", "out_of_order_batches", "timestamp_types")


def catalog_rows(catalog: Catalog, plan: TimestampPlan) -> list[dict[str, Any]]:
    """Return a row of TIMESTAMPS for each partition and log directory; null: needs the logs."""
    assert plan.snapshot is not None
    figures: dict[str, dict[str, Any]] = {}
    for piece in catalog.read_pieces(plan.snapshot, list(_FIGURES)):
        figures.update((row["log_uri"], row) for row in piece.to_pylist())
    rows = plan.files.to_pylist()
    codes = _suspicions(plan, rows)
    numbered = zip(keys_of(plan.files), rows, codes.tolist(), strict=True)
    return list(_rows(plan, figures, groupby(numbered, key=lambda one: one[0])))


def _rows(plan: TimestampPlan, figures: dict[str, dict[str, Any]], groups: Any) -> Iterator[Any]:
    for (topic, partition, log_dir, _), members in groups:
        segments = [(row, code) for _, row, code in members]
        known = [(row, code) for row, code in segments if row["error"] is None]
        found = [figures[row["log_uri"]] for row, _ in known]
        largest = max((_largest_of(row) for row, _ in known), default=NO_TIMESTAMP)
        types = {name for one in found for name in one["timestamp_types"] or ()}
        bits = sum(1 << k for k, name in enumerate(TIMESTAMP_TYPES) if name in types)
        limits = plan.question.limits.of(topic)
        row: dict[str, Any] = dict.fromkeys(TIMESTAMPS.names)
        row |= {"log_dir": log_dir, "topic": topic, "partition": partition}
        row |= {
            "segments": len(segments),
            "batches": sum(one["batch_count"] or 0 for one in found),
            "timestamp_type": timestamp_type_of(bits, has_timestamp=largest >= 0),
            "policy_timestamp_type": plan.question.limits.timestamp_type(topic),
            "largest_timestamp": None if largest < 0 else largest,
            "out_of_order_batches": sum(one["out_of_order_batches"] or 0 for one in found),
            "before_max_ms": limits.before_max_ms,
            "after_max_ms": limits.after_max_ms,
            "clock": plan.question.clock.value,
            "bytes_read": 0,
            "problems": [
                f"{row['log_uri']}: {row['error']}" for row, _ in segments if row["error"]
            ],
        }
        for number, kind in enumerate(SUSPICIONS[:-1]):
            row[kind.value] = sum(code == number for _, code in known)
        yield row


def _largest_of(row: Mapping[str, Any]) -> int:
    largest = row["max_timestamp"]
    return NO_TIMESTAMP if largest is None else int(largest)


def _suspicions(plan: TimestampPlan, rows: list[dict[str, Any]]) -> Codes:
    """Return what is suspicious about each segment's largest timestamp."""
    largest = [_largest_of(row) for row in rows]
    topics = {row["topic"] for row in rows}
    limits = {topic: plan.question.limits.of(topic).after_max_ms for topic in topics}
    after_max = [MAX_INT64 if (limit := limits[row["topic"]]) is None else limit for row in rows]
    return suspicions_of_records(
        np.array(largest, np.int64), np.array(after_max, np.int64), now_ms=plan.question.now_ms
    )
