"""Profiles of timestamps as rows, for `kip33 timestamps` and `kip33.spark.timestamp_profile`."""

from typing import Any, Final

import pyarrow as pa

from kip33.audits.timestamp_plan import TimestampQuestion
from kip33.audits.timestamp_tree import PartitionProfile
from kip33.formats.batch import NO_TIMESTAMP
from kip33.rules.retention import Int64s
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import DISTANCES, LatencyHistogram

_HISTOGRAM: Final = pa.list_(
    pa.struct([pa.field("up_to_ms", pa.int64()), pa.field("batches", pa.int64(), nullable=False)])
)
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("segments", pa.int64(), nullable=False),
    pa.field("batches", pa.int64(), nullable=False),
    pa.field("batches_without_timestamp", pa.int64()),
    pa.field("timestamp_type", pa.string(), nullable=False),
    pa.field("policy_timestamp_type", pa.string()),
    pa.field("largest_timestamp", pa.int64()),
    pa.field("out_of_order_batches", pa.int64(), nullable=False),
    pa.field("furthest_behind_ms", pa.int64()),
    pa.field("behind", _HISTOGRAM),
    pa.field("before_file", _HISTOGRAM),
    pa.field("after_file", _HISTOGRAM),
    pa.field("before_max_ms", pa.int64()),
    pa.field("after_max_ms", pa.int64()),
    pa.field("clock", pa.string(), nullable=False),
    pa.field("judged_by_append_time", pa.int64()),
    pa.field("judged_by_clock", pa.int64()),
    pa.field("rejected_before", pa.int64()),
    pa.field("rejected_after", pa.int64()),
    *(pa.field(kind.value, pa.int64(), nullable=False) for kind in SUSPICIONS[:-1]),
    pa.field("latency_batches", pa.int64()),
    pa.field("latency_min_ms", pa.int64()),
    pa.field("latency_median_ms", pa.int64()),
    pa.field("latency_p99_ms", pa.int64()),
    pa.field("latency_max_ms", pa.int64()),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("problems", pa.list_(pa.string()), nullable=False),
]
TIMESTAMPS: Final = pa.schema(_FIELDS)
"""One row per partition and log directory."""


def timestamp_row(found: PartitionProfile, question: TimestampQuestion) -> dict[str, Any]:
    """Return the profile of a partition as a row of TIMESTAMPS."""
    profile, limits = found.profile, question.limits.of(found.topic)
    largest = profile.largest_timestamp
    return {
        "log_dir": found.log_dir,
        "topic": found.topic,
        "partition": found.partition,
        "segments": found.segments,
        "batches": profile.batches,
        "batches_without_timestamp": profile.without_timestamp,
        "timestamp_type": profile.timestamp_type,
        "policy_timestamp_type": question.limits.timestamp_type(found.topic),
        "largest_timestamp": None if largest == NO_TIMESTAMP else largest,
        "out_of_order_batches": profile.out_of_order,
        "furthest_behind_ms": profile.furthest_behind_ms,
        "behind": _histogram(profile.behind),
        "before_file": _histogram(profile.before_file),
        "after_file": _histogram(profile.after_file),
        "before_max_ms": limits.before_max_ms,
        "after_max_ms": limits.after_max_ms,
        "clock": question.clock.value,
        "judged_by_append_time": profile.judged_by_append_time,
        "judged_by_clock": profile.judged_by_clock,
        "rejected_before": profile.rejected_before,
        "rejected_after": profile.rejected_after,
        **{
            kind.value: int(count)
            for kind, count in zip(SUSPICIONS[:-1], profile.suspicious, strict=False)
        },
        **_latency(profile.latency),
        "bytes_read": found.bytes_read,
        "problems": list(found.problems),
    }


def _histogram(counts: Int64s) -> list[dict[str, int | None]]:
    """Return the classes with batches; `up_to_ms` None: further than all others."""
    return [
        {"up_to_ms": up_to_ms, "batches": int(count)}
        for up_to_ms, count in zip((*DISTANCES, None), counts, strict=True)
        if count
    ]


def _latency(latency: LatencyHistogram) -> dict[str, int | None]:
    return {
        "latency_batches": latency.count,
        "latency_min_ms": latency.smallest,
        "latency_median_ms": latency.percentile(50),
        "latency_p99_ms": latency.percentile(99),
        "latency_max_ms": latency.largest,
    }
