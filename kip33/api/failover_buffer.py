"""The measured buffer of a failover: `kip33 failover --buffer auto`, `buffer_ms="auto"` in Python.

With LogAppendTime an unread record's timestamp on cluster A is at least that of the last record
read. It was produced at most the largest latency of A before that. On cluster B its timestamp is
the time of production, or later by B's latency, which is negative if a producer's clock is ahead.
So the buffer is the largest latency of A, plus how far a producer's clock is ahead of B's.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kip33.audits.timestamp_plan import (
    AuditClock,
    PartitionProfile,
    TimestampQuestion,
    execute_timestamps,
    plan_timestamps,
    topic_profiles,
)
from kip33.catalog.tiers import CatalogSnapshot
from kip33.errors import LocationError
from kip33.local.local_engine import LocalEngine
from kip33.rules.policies import human_bytes, human_duration
from kip33.rules.timestamp_profile import LatencyHistogram, LimitChoice


class MeasuredBuffer(NamedTuple):
    """The buffer in ms, and one line that says where it is from."""

    buffer_ms: int
    why: str


def measured_buffer(
    first: CatalogSnapshot,
    second: CatalogSnapshot,
    topics: Iterable[str],
    now_ms: int,
    warn: Callable[[str], None],
) -> MeasuredBuffer:
    """Return the buffer for some topics, from the catalogs of clusters A and B.

    ValueError, one line, if the latency of a topic on cluster A cannot be measured.
    """
    wanted = sorted(topics)
    here = _profiles(first, wanted, now_ms, warn)
    unknown = sorted(set(wanted) - {one.topic for one in here if _has_latency(one)})
    if unknown:
        names = ", ".join(unknown[:5]) + (" and more" if len(unknown) > 5 else "")
        raise ValueError(
            f"buffer auto: {first.catalog.location.uri}: the latency of {names} is not known: it "
            "needs topics with only LogAppendTime batches, of message format v2; give a buffer, "
            "such as 15m"
        )
    there = _profiles(second, wanted, now_ms, warn)
    latency, latency_there = _sum_of(here), _sum_of(there)
    largest = max(0, latency.largest or 0)
    ahead = max(0, -(latency_there.smallest or 0))
    bytes_read = sum(one.bytes_read for one in (*here, *there))
    why = (
        f"Buffer: {human_duration(largest + ahead)}, the largest latency of "
        f"{latency.count:,} LogAppendTime batches of --from"
    )
    why += f", and {human_duration(ahead)} for a producer's clock ahead of --to" if ahead else ""
    return MeasuredBuffer(largest + ahead, f"{why}; {human_bytes(bytes_read)} of headers read")


def _profiles(
    source: CatalogSnapshot, topics: list[str], now_ms: int, warn: Callable[[str], None]
) -> list[PartitionProfile]:
    """Return the profile of each topic in a catalog; a warning for each log that is not read."""
    question = TimestampQuestion(LimitChoice(), AuditClock.FILE_TIME, now_ms)
    try:
        place = source.catalog.location.uri
        plan = plan_timestamps(place, question, topics=topics, snapshot=source.snapshot)
    except LocationError:  # the catalog has none of the topics
        return []
    found = list(topic_profiles(execute_timestamps(plan, LocalEngine(tell=warn))))
    for problem in (problem for one in found for problem in one.problems):
        warn(f"{problem}; its latency is not known")
    return found


def _has_latency(one: PartitionProfile) -> bool:
    return one.profile.timestamp_type == "LogAppendTime" and one.profile.latency.count > 0


def _sum_of(profiles: Iterable[PartitionProfile]) -> LatencyHistogram:
    total = LatencyHistogram()
    for one in profiles:
        total.merge(one.profile.latency)
    return total
