"""The summary of a partition, computed with a plain loop over its judged rows."""

from collections import Counter
from typing import Any

from kip33.rules.retention_rows import MOST_SEGMENTS_NAMED
from tests.builders.random_catalogs import NOW_MS

Row = dict[str, Any]

KEY = ("log_dir", "topic", "partition", "policy", "mode", "retention_ms", "retention_bytes")


def place(row: Any) -> tuple[Any, ...]:
    first = row.base_offset is not None, row.base_offset or 0
    return (*partition_of(row), *first, row.log_uri)


def partition_of(row: Any) -> tuple[str, str, int]:
    return row.log_dir, row.topic, row.partition


def expected_of(rows: list[Any]) -> Row:
    """Return the summary of one partition's rows, given oldest first."""
    of_log = [row for row in rows if row.reason != "unreferenced"]
    kept = next((row for row in of_log if not row.deletable), None)
    blocked = [row for row in rows if row.reason == "blocked"]
    last = rows[-1]
    end = last.base_offset if last.status == "empty" else None
    if last.last_offset is not None:
        end = last.last_offset + 1
    by_file = [
        row
        for row in rows
        if row.largest_timestamp_source == "last_modified" and row.status != "empty"
    ]
    unverified = [row for row in rows if row.status == "unverified"]
    missing = [row for row in rows if row.reason == "not_uploaded"]
    limits = [row.upload_before_ms for row in missing if row.upload_before_ms is not None]
    expected = {
        **{name: rows[0][name] for name in KEY},
        **total("", rows),
        **total("deletable_", [row for row in rows if row.deletable]),
        "log_start_offset": rows[0].log_start_offset,
        "first_base_offset": min(offsets(rows), default=None),
        "first_kept_base_offset": kept.base_offset if kept else None,
        "log_end_offset": end,
        **total("blocked_", blocked),
        "kept_only_by_blocker_bytes": bytes_of([row for row in rows if row.kept_only_by_blocker]),
        **dict.fromkeys(blocking(last, rows)),
        "last_modified_segments": len(by_file),
        "last_modified_base_offsets": sorted(offsets(by_file))[:MOST_SEGMENTS_NAMED],
        "deletable_last_modified_segments": sum(row.deletable for row in by_file),
        "unverified_segments": len(unverified),
        "deletable_unverified_segments": sum(row.deletable for row in unverified),
        "active_expired_segments": sum(
            row.reason == "active_segment" and row.retention_ms_breached for row in rows
        ),
        "doubtful_segments": sum(
            row.status in ("truncated", "invalid", "unreadable") for row in rows
        ),
        "tiered_segments": sum(row.reason == "tiered" for row in rows),
        **total("not_uploaded_", missing),
        "not_uploaded_base_offset": min(offsets(missing), default=None),
        "upload_before_ms": min(limits, default=None),
        **total("other_records_", different := [r for r in rows if r.reason == "other_records"]),
        "other_records_base_offset": min(offsets(different), default=None),
        **total("unreferenced_", [row for row in rows if row.reason == "unreferenced"]),
        "suspicions": dict(Counter(row.suspicion for row in rows if row.suspicion)),
        **total("what_if_deletable_", [row for row in rows if row.what_if_deletable]),
        **total("broker_deletable_", [row for row in rows if row.broker_deletable]),
        "broker_misread_segments": sum(row.broker_index_fault is not None for row in rows),
        "broker_different_segments": sum(row.broker_deletable != row.deletable for row in rows),
    }
    if blocked and kept:
        expected |= blocking(kept, blocked)
    return expected


def blocking(kept: Any, blocked: list[Any]) -> Row:
    at_ms = kept.largest_timestamp
    newest = max(
        (r.largest_timestamp for r in blocked if r.largest_timestamp is not None), default=0
    )
    return {
        "blocking_base_offset": kept.base_offset,
        "blocking_reason": kept.reason,
        "blocking_timestamp": at_ms,
        "blocking_offset_of_max_timestamp": kept.offset_of_max_timestamp,
        "blocking_log_uri": kept.log_uri,
        "blocking_ahead_of_now_ms": None if at_ms is None else at_ms - NOW_MS,
        "blocking_ahead_of_blocked_ms": None if at_ms is None else at_ms - max(0, newest),
        "block_ends_at_ms": blocked[0].deletable_at_ms,
    }


def offsets(rows: list[Any]) -> list[int]:
    return [row.base_offset for row in rows if row.base_offset is not None]


def bytes_of(rows: list[Any]) -> int:
    return sum(row.size_bytes or 0 for row in rows)


def total(prefix: str, rows: list[Any]) -> Row:
    return {f"{prefix}segments": len(rows), f"{prefix}bytes": bytes_of(rows)}
