"""Rows about a replay under other settings: segments, sizes of indexes, retention points."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from kip33.audits.roll_replayed_log import ReplayedLog, Segments
from kip33.audits.roll_what_if import ReplayedPartition
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.rules.retention import NEVER_MS
from kip33.rules.roll_replay import (
    REPLAY_ENDS,
)


def retention_points(segments: Segments, retention_ms: int) -> npt.NDArray[np.int64]:
    """Return when each segment becomes deletable by time, with all older ones; -1: never.

    A segment without a timestamp, and all after it, are never: retention uses its file's time.
    """
    largest = segments["max_timestamp"]
    if retention_ms < 0:
        return np.full(largest.size, -1, np.int64)
    is_late = largest > NEVER_MS - retention_ms - 1
    moments = np.where(is_late, NEVER_MS, largest + retention_ms + 1)
    running = np.maximum.accumulate(moments) if moments.size else moments
    is_known = np.logical_and.accumulate(largest >= 0)
    return np.where(is_known, running, -1)


def offset_index_bytes(segments: Segments) -> npt.NDArray[np.int64]:
    """Return the size of each segment's `.index`."""
    return np.asarray(segments["offset_entries"] * OFFSET_ENTRY_BYTES)


def time_index_bytes(segments: Segments) -> npt.NDArray[np.int64]:
    """Return the size of each segment's `.timeindex`, closed."""
    return np.asarray(segments["time_entries"] * TIME_ENTRY_BYTES)


def segment_rows(
    found: ReplayedPartition, replay: ReplayedLog, retention_ms: int
) -> Iterator[dict[str, Any]]:
    """Yield the segments of a replay as rows for JSON."""
    segments = replay.segments
    columns = {
        "deletable_at_ms": retention_points(segments, retention_ms),
        "offset_index_bytes": offset_index_bytes(segments),
        "time_index_bytes": time_index_bytes(segments),
    }
    for number, segment in enumerate(segments):
        at_ms = int(columns["deletable_at_ms"][number])
        yield {
            "log_dir": found.log_dir,
            "topic": found.topic,
            "partition": found.partition,
            "reading": replay.reading,
            "base_offset": int(segment["base_offset"]),
            "last_offset": int(segment["last_offset"]) if segment["batches"] else None,
            "batches": int(segment["batches"]),
            "size_bytes": int(segment["size_bytes"]),
            "start_timestamp": int(segment["start_timestamp"]),
            "max_timestamp": int(segment["max_timestamp"]),
            "ended_by": REPLAY_ENDS[int(segment["reason"])],
            "offset_index_bytes": int(columns["offset_index_bytes"][number]),
            "time_index_bytes": int(columns["time_index_bytes"][number]),
            "deletable_at_ms": None if at_ms < 0 else at_ms,
        }


def replay_sums(found: ReplayedPartition, replay: ReplayedLog, retention_ms: int) -> dict[str, Any]:
    """Return one row for JSON about a replay: its number of segments, sizes and retention."""
    segments = replay.segments
    moments = retention_points(segments, retention_ms)
    first = segments["first_timestamp"]
    timed = (moments >= 0) & (moments < NEVER_MS) & (first >= 0)
    kept = moments[timed] - first[timed]
    reasons = np.bincount(segments["reason"], minlength=len(REPLAY_ENDS)).tolist()
    counts = {f"{why}_segments": n for why, n in zip(REPLAY_ENDS, reasons, strict=True)}
    return {
        "log_dir": found.log_dir,
        "topic": found.topic,
        "partition": found.partition,
        "reading": replay.reading,
        "segments": int(segments.size),
        "archived_segments": found.archived_segments,
        **counts,
        "bytes": int(segments["size_bytes"].sum()),
        "largest_segment_bytes": int(segments["size_bytes"].max()),
        "offset_index_bytes": int(offset_index_bytes(segments).sum()),
        "time_index_bytes": int(time_index_bytes(segments).sum()),
        "retention_ms": retention_ms,
        "longest_kept_ms": int(kept.max()) if kept.size else None,
        "all_deletable_at_ms": int(moments[-1]) if moments[-1] >= 0 else None,
        "untimed_segments": replay.untimed,
        "unknown_starts": replay.unknown_starts,
        "oversized_batches": replay.oversized_batches,
        "doubts": list(found.doubts),
    }
