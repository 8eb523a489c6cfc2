"""The audit of timestamps: its plan, the profile of each log, and the rows of the answer.

The logs are those below a SOURCE, or those of a catalog's snapshot. Each log is a share of the
work; only batch headers are read. Of a catalog the largest timestamp before each segment is known,
so each log is read once. Of a SOURCE a log is read a second time if an earlier segment has a later
timestamp than its first batch.

A catalog alone gives lower limits, without opening a log: it counts the batches out of order within
each segment, and has only the largest timestamp of each segment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine
from kip33.archive.sources import matches
from kip33.audits.audited_logs import (
    LOGS,
    AuditedLog,
    logs_below,
    numbered,
    read_logs,
)
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import SEGMENTS, with_column
from kip33.catalog.segment_order import PARTITION, largest_before
from kip33.catalog.tiers import CatalogSnapshot
from kip33.errors import FileReadError, Kip33Error, LocationError
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.scan import BatchScan
from kip33.rules.policies import MAX_INT64, nearest_topics
from kip33.rules.retention import Codes, Int64s
from kip33.rules.segment_summary import NOT_READ, TIMESTAMP_TYPES, SegmentStatus
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import (
    DISTANCES,
    LatencyHistogram,
    LimitChoice,
    ProfileQuestion,
    TimestampProfile,
    suspicions_of_records,
    timestamp_type_of,
)
from kip33.stores.files import one_line, scanned
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

AUDITED: Final = LOGS.append(SEGMENTS.field("max_timestamp")).append(
    pa.field("largest_before", pa.int64(), nullable=False)
)
"""One row per log, by partition, log directory and base offset."""

_OF_CATALOG: Final = (
    *("log_dir", "topic", "partition", "base_offset", "size_bytes", "last_modified_ms", "error"),
    *("log_uri", "max_timestamp", "status"),
)
_UNREAD: Final = (SegmentStatus.INVALID, *NOT_READ)
_FIGURES: Final = ("log_uri", "batch_count", "out_of_order_batches", "timestamp_types")
_HISTOGRAM: Final = pa.list_(
    pa.struct([pa.field("up_to_ms", pa.int64()), pa.field("batches", pa.int64(), nullable=False)])
)
_ROW_FIELDS: list["pa.Field[Any]"] = [
    *(SEGMENTS.field(name) for name in PARTITION),
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

TIMESTAMPS: Final = pa.schema(_ROW_FIELDS)
"""One row per partition and log directory."""


class AuditClock(StrEnum):
    """What stands in for the broker's clock at the append of a CreateTime batch."""

    FILE_TIME = "file-time"  # the time of the segment's file, which is not before the append
    NOW = "now"  # as if the archive were produced again


class TimestampQuestion(NamedTuple):
    """What is asked of all segments; sent to every task."""

    limits: LimitChoice
    clock: AuditClock
    now_ms: int

    def clock_ms(self, last_modified_ms: int | None) -> int | None:
        """Return the time that stands in for the broker's clock, None if it is unknown."""
        return last_modified_ms if self.clock == AuditClock.FILE_TIME else self.now_ms


class TimestampPlan(NamedTuple):
    """The logs to read, rows of AUDITED, and what is asked; no log is opened yet."""

    question: TimestampQuestion
    files: pa.Table
    snapshot: Snapshot | None = None  # None: the logs below a SOURCE

    @property
    def size_bytes(self) -> int:
        """Return the size of all logs."""
        return int(pc.sum(self.files["size_bytes"]).as_py() or 0)


def plan_timestamps(
    source: str,
    question: TimestampQuestion,
    *,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    snapshot: Snapshot | None = None,
    on_progress: OnProgress = tell_nobody,
) -> TimestampPlan:
    """Return the plan for a SOURCE, or for a catalog and its chosen snapshot.

    Raises LocationError if there are no segments, CatalogError for a damaged catalog.
    """
    if snapshot is not None:
        return _of_catalog(Catalog(Location.of(source)), snapshot, question, topics)
    logs = logs_below(source, topics=topics, layout=layout, on_progress=on_progress)
    return TimestampPlan(question, _in_order(logs))


def with_largest_before(files: pa.Table, largest: Sequence[int]) -> pa.Table:
    """Return the rows with the largest timestamp of the earlier segments of each partition.

    `largest` has the largest timestamp of each row, -1 without one.
    """
    before = largest_before(files, np.array(largest, np.int64))
    return with_column(files, "largest_before", pa.array(before))


def keys_of(files: pa.Table) -> list[tuple[str | None, int | None, str | None, str]]:
    """Return topic, partition, log directory and directory of each row.

    The directory tells partitions without a name apart.
    """
    columns = (files[name].to_pylist() for name in ("topic", "partition", "log_dir", "log_uri"))
    return [(t, p, d, "" if t is not None else uri) for t, p, d, uri in zip(*columns, strict=True)]


def _of_catalog(
    catalog: Catalog, snapshot: Snapshot, question: TimestampQuestion, topics: Sequence[str]
) -> TimestampPlan:
    source = CatalogSnapshot(catalog, snapshot)
    known = source.topics() if topics else []
    chosen = [*(name for name in known if matches(name, topics)), None] if topics else None
    rows = source.rows(_OF_CATALOG, chosen)
    if rows.num_rows == 0:
        wanted_text = f" of topics {', '.join(topics)}" if topics else ""
        near = nearest_topics(topics, known)
        raise LocationError(f"{catalog.location.uri}: no segments{wanted_text} found{near}")
    is_unread = pc.is_in(rows["status"], value_set=pa.array([*_UNREAD], pa.string()))
    why = pc.binary_join_element_wise(rows["status"], pc.fill_null(rows["error"], ""), ": ")
    error = pc.if_else(is_unread, why, pa.scalar(None, pa.string()))
    return TimestampPlan(question, _in_order(with_column(rows, "error", error)), snapshot)


def _in_order(rows: pa.Table) -> pa.Table:
    """Return rows of AUDITED, sorted, with what is known of the timestamps before each."""
    order = ("topic", "partition", "log_dir", "base_offset", "log_uri")
    rows = rows.sort_by([(name, "ascending") for name in order])
    before = pa.array(np.full(rows.num_rows, NO_TIMESTAMP))
    table = numbered(rows.append_column("largest_before", before), AUDITED)
    largest = pc.fill_null(table["max_timestamp"], NO_TIMESTAMP).to_pylist()
    return with_largest_before(table, largest)


def catalog_rows(catalog: Catalog, plan: TimestampPlan) -> list[dict[str, Any]]:
    """Return a row of TIMESTAMPS for each partition and log directory; null: needs the logs."""
    assert plan.snapshot is not None
    topics: list[Any] = plan.files["topic"].unique().to_pylist()
    of_catalog = CatalogSnapshot(catalog, plan.snapshot).rows(_FIGURES, topics)
    figures = {row["log_uri"]: row for row in of_catalog.to_pylist()}
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
    largest = [_largest_of(row) for row in rows]
    topics = {row["topic"] for row in rows}
    limits = {topic: plan.question.limits.of(topic).after_max_ms for topic in topics}
    after_max = [MAX_INT64 if (limit := limits[row["topic"]]) is None else limit for row in rows]
    return suspicions_of_records(
        np.array(largest, np.int64), np.array(after_max, np.int64), now_ms=plan.question.now_ms
    )


class PartitionProfile(NamedTuple):
    """The timestamps of a partition in one log directory.

    `problems` has a line for each log that could not be read to its end, which the profile lacks.
    """

    log_dir: str | None
    topic: str | None
    partition: int | None
    segments: int
    profile: TimestampProfile
    problems: tuple[str, ...]
    bytes_read: int
    unreadable: tuple[str, ...] = ()  # those of the problems that are no damage


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


class _ProfiledSegment(NamedTuple):
    """The profile of a log up to its end, or up to the damage that `error` names."""

    profile: TimestampProfile
    largest_before: int  # the largest timestamp before it that the profile was made with
    bytes_read: int
    error: str | None = None
    is_unreadable: bool = False  # the error is no damage: the log could not be read

    def is_true_for(self, largest_before: int) -> bool:
        """Return whether the profile is the same with another largest timestamp before it.

        It is if both are at most the first timestamp, so that no batch is behind them.
        """
        first = self.profile.first_timestamp
        changed = largest_before != self.largest_before and first >= 0
        return not changed or max(largest_before, self.largest_before) <= first


def _profile_log(question: TimestampQuestion, log: AuditedLog) -> _ProfiledSegment:
    """Return the profile of a log. Errors are a text, never an exception."""
    before, profile = log.largest_before, TimestampProfile()
    if log.error:
        return _ProfiledSegment(profile, before, 0, log.error, is_unreadable=True)
    profile_question = ProfileQuestion(
        question.limits.of(log.topic),
        question.now_ms,
        question.clock_ms(log.last_modified_ms),
        log.last_modified_ms,
        before,
    )
    bytes_read = 0
    try:
        with scanned(log.location) as (read_into, size_bytes, view_at):
            scan = BatchScan(read_into, size_bytes, check_crc=False, view_at=view_at)
            try:
                for batches in scan:
                    profile.append(batches, profile_question)
            finally:
                bytes_read = scan.bytes_read
            return _ProfiledSegment(profile, before, bytes_read, scan.damage)
    except (FileReadError, Kip33Error) as error:
        return _ProfiledSegment(profile, before, bytes_read, one_line(error), is_unreadable=True)


def execute_timestamps(plan: TimestampPlan, engine: Engine) -> list[PartitionProfile]:
    """Return a profile for each partition and log directory, by topic and partition."""
    read = partial(_profile_log, plan.question)
    profiled = read_logs(plan.files, read, engine)
    largest = [segment.profile.largest_timestamp for segment in profiled]
    files = with_largest_before(plan.files, largest)
    before: list[Any] = files["largest_before"].to_pylist()
    wrong = [n for n, segment in enumerate(profiled) if not segment.is_true_for(before[n])]
    if wrong:
        again = read_logs(files.take(pa.array(wrong, pa.int64())), read, engine)
        for number, segment in zip(wrong, again, strict=True):
            bytes_read = profiled[number].bytes_read + segment.bytes_read
            profiled[number] = segment._replace(bytes_read=bytes_read)
    return list(_partitions(files, profiled))


def topic_profiles(found: Iterable[PartitionProfile]) -> Iterator[PartitionProfile]:
    """Yield a profile for each topic, the sum of all its partitions and log directories."""
    for topic, members in groupby(found, key=lambda one: one.topic):
        yield _sum(None, topic, None, members)


def _partitions(files: pa.Table, profiled: list[_ProfiledSegment]) -> Iterator[PartitionProfile]:
    uris: list[Any] = files["log_uri"].to_pylist()
    of_logs = map(_of_segment, profiled, uris)
    keyed = zip(keys_of(files), of_logs, strict=True)
    for (topic, partition, log_dir, _), members in groupby(keyed, key=itemgetter(0)):
        yield _sum(log_dir, topic, partition, (profile for _, profile in members))


def _of_segment(segment: _ProfiledSegment, log_uri: str) -> PartitionProfile:
    problems = (f"{log_uri}: {segment.error}",) if segment.error else ()
    unreadable = problems if segment.is_unreadable else ()
    return PartitionProfile(
        None, None, None, 1, segment.profile, problems, segment.bytes_read, unreadable
    )


def _sum(
    log_dir: str | None,
    topic: str | None,
    partition: int | None,
    members: Iterable[PartitionProfile],
) -> PartitionProfile:
    some, total = list(members), TimestampProfile()
    for one in some:
        total.merge(one.profile)
    return PartitionProfile(
        *(log_dir, topic, partition),
        segments=sum(one.segments for one in some),
        profile=total,
        problems=tuple(line for one in some for line in one.problems),
        bytes_read=sum(one.bytes_read for one in some),
        unreadable=tuple(line for one in some for line in one.unreadable),
    )
