"""The profile of timestamps: their type, their order, their distance from clocks, their latency.

A profile is made from batch headers. The profiles of a partition's segments, one after the other,
add up to the profile of the partition, if each segment is profiled with the largest timestamp
before it. Batches without a timestamp are only counted. Brokers write no largest timestamp for
records before 1970; that of the first record shows them, and is suspicious.

The limits `message.timestamp.before.max.ms` and `after.max.ms` are those of Kafka's `LogValidator`:
a batch is rejected if a record's timestamp is more than the limit before or after the broker's
clock at the append. A header has the largest timestamp and that of the first record, so a later
record that is older than the first one is not seen.

With LogAppendTime a v2 batch keeps the first record's timestamp of its producer
(`DefaultRecordBatch.setMaxTimestamp`). The difference is the latency of the append. It includes the
difference of the two clocks, so it can be negative.
"""

import math
from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from kip33.formats.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchColumns,
)
from kip33.rules.policies import MAX_INT64, Policies
from kip33.rules.retention import NO_LIMIT, Bools, Codes, Int64Column, Int64s
from kip33.rules.suspicious_timestamps import (
    DEFAULT_AFTER_MAX_MS,
    SUSPICIONS,
    TimestampColumns,
    suspicions_of,
)

_SECOND: Final = 1_000
_DAY: Final = 86_400_000
DISTANCES: Final = (
    *(0, 10, 100, _SECOND, 10 * _SECOND, 60 * _SECOND, 600 * _SECOND, 3_600 * _SECOND),
    *(_DAY, 7 * _DAY, 365 * _DAY),
)
"""The largest distance in ms of each class but the last one, which has no largest."""
CLASSES: Final = len(DISTANCES) + 1

PERCENTILE_ERROR: Final = 1 / 128
_EXACT: Final = 256  # durations below it have a bucket each
_PER_POWER: Final = 128
_SHIFT: Final = 7  # of 128
_POWERS: Final = np.left_shift(np.int64(1), np.arange(63))

_SUMMED: Final = (
    *("batches", "without_timestamp", "judged_by_append_time", "judged_by_clock"),
    *("rejected_before", "rejected_after", "behind", "before_file", "after_file", "suspicious"),
)
NONE, MIXED = "none", "mixed"
_TYPE_OF_BIT: Final = {0: NONE, 1: NONE, 2: "CreateTime", 4: "LogAppendTime"}


class TimestampLimits(NamedTuple):
    """How far a timestamp may be before and after the broker's clock, in ms; None: any distance."""

    before_max_ms: int | None = None
    after_max_ms: int | None = None


class LimitChoice(NamedTuple):
    """The limits that a user gives, in ms, and those that apply to a topic; None if not given.

    A limit for one side comes first, then `difference_max_ms` (Kafka before 4.0, KIP-32), then the
    topic's policy, then the defaults of Kafka 4: none before, an hour after.
    """

    before_max_ms: int | None = None
    after_max_ms: int | None = None
    difference_max_ms: int | None = None
    policies: Policies | None = None

    def of(self, topic: str | None) -> TimestampLimits:
        """Return the limits of a topic, None for the topic of an unknown directory."""
        policy = self.policies.of(topic) if self.policies and topic is not None else None
        return TimestampLimits(
            _first_limit(
                self.before_max_ms,
                self.difference_max_ms,
                policy and policy.message_timestamp_before_max_ms,
            ),
            _first_limit(
                self.after_max_ms,
                self.difference_max_ms,
                policy and policy.message_timestamp_after_max_ms,
                DEFAULT_AFTER_MAX_MS,
            ),
        )

    def timestamp_type(self, topic: str | None) -> str | None:
        """Return `message.timestamp.type` of the topic's policy, None if it has none."""
        if self.policies is None or topic is None:
            return None
        return self.policies.of(topic).message_timestamp_type


def _first_limit(*limits: int | None) -> int | None:
    """Return the first limit that is set; Kafka's largest number means no limit."""
    found = next((limit for limit in limits if limit is not None), None)
    return None if found == MAX_INT64 else found


class ProfileQuestion(NamedTuple):
    """The settings and times with which a segment is profiled."""

    limits: TimestampLimits
    now_ms: int  # for timestamps that are suspicious
    clock_ms: int | None  # stands in for the broker's clock; None: unknown, nothing is judged
    file_ms: int | None  # when the file was modified
    largest_before: int = NO_TIMESTAMP  # of the partition's earlier segments


class TimestampProfile:
    """The profile of some batches, in the order of a partition.

    `types` has bit k for `segment_summary.TIMESTAMP_TYPES[k]`. Classes of distances are counted as
    in DISTANCES: `behind` the largest timestamp so far (0: in order), `before_file` and
    `after_file` from the file's time. `suspicious` counts the kinds of SUSPICIONS.
    """

    def __init__(self) -> None:
        self.batches = self.without_timestamp = self.types = 0
        self.first_timestamp = self.largest_timestamp = NO_TIMESTAMP
        self.furthest_behind_ms = 0
        self.behind = np.zeros(CLASSES, np.int64)
        self.before_file = np.zeros(CLASSES, np.int64)
        self.after_file = np.zeros(CLASSES, np.int64)
        self.judged_by_append_time = self.judged_by_clock = 0
        self.rejected_before = self.rejected_after = 0
        self.suspicious = np.zeros(len(SUSPICIONS), np.int64)
        self.latency = LatencyHistogram()

    @property
    def out_of_order(self) -> int:
        """Return how many batches are behind the largest timestamp before them."""
        return int(self.behind[1:].sum())

    @property
    def timestamp_type(self) -> str:
        """Return `CreateTime`, `LogAppendTime`, `none` (no timestamps), or `mixed`."""
        return timestamp_type_of(self.types, has_timestamp=self.batches > self.without_timestamp)

    def append(self, batches: BatchColumns, question: ProfileQuestion) -> None:
        """Add the next batches of a segment, columns of BATCH."""
        self.batches += len(batches)
        self.types |= _types_of(batches)
        timed = _only(batches, batches["max_timestamp"] >= 0)
        first = _first_timestamps(batches)
        is_before_1970 = (batches["max_timestamp"] < 0) & (first < NO_TIMESTAMP)
        self.without_timestamp += len(batches) - len(timed) - int(is_before_1970.sum())
        self.suspicious += _suspicious(batches["max_timestamp"], first, question)
        if not len(timed):
            return
        timestamps = timed["max_timestamp"]
        before = max(self.largest_timestamp, question.largest_before)
        largest = np.maximum.accumulate(np.concatenate(([before], timestamps)))
        behind = np.maximum(largest[:-1] - timestamps, 0)
        self.behind += _classes_of(behind)
        self.furthest_behind_ms = max(self.furthest_behind_ms, int(behind.max()))
        if self.first_timestamp < 0:
            self.first_timestamp = int(timestamps[0])
        self.largest_timestamp = max(self.largest_timestamp, int(timestamps.max()))
        if question.file_ms is not None:
            older = question.file_ms - timestamps
            self.before_file += _classes_of(older[older >= 0])
            self.after_file += _classes_of(-older[older < 0])
        self._judge(timed, question)

    def merge(self, later: "TimestampProfile") -> None:
        """Add the profile of batches that follow; it was made with the largest timestamp here."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.types |= later.types
        if self.first_timestamp < 0:
            self.first_timestamp = later.first_timestamp
        self.largest_timestamp = max(self.largest_timestamp, later.largest_timestamp)
        self.furthest_behind_ms = max(self.furthest_behind_ms, later.furthest_behind_ms)
        self.latency.merge(later.latency)

    def _judge(self, timed: BatchColumns, question: ProfileQuestion) -> None:
        """Compare producers' timestamps with the broker's clock, or with what stands in for it."""
        produced = _only(timed, timed["attributes"] & CONTROL == 0)
        newest, first = produced["max_timestamp"], produced["base_timestamp"]
        stamped = produced["attributes"] & LOG_APPEND_TIME != 0
        has_first = (produced["attributes"] & DELETE_HORIZON == 0) & (produced["records_count"] > 0)
        has_first &= (produced["magic"] >= 2) & (first >= 0)
        appended = stamped & has_first
        self.latency.add(newest[appended] - first[appended])
        self.judged_by_append_time += int(appended.sum())
        self._count_rejected(first[appended], first[appended], newest[appended], question.limits)
        if question.clock_ms is not None:
            oldest = np.where(has_first, np.minimum(first, newest), newest)[~stamped]
            clock = np.full(len(oldest), question.clock_ms, np.int64)
            self.judged_by_clock += len(oldest)
            self._count_rejected(oldest, newest[~stamped], clock, question.limits)

    def _count_rejected(
        self, oldest: Int64s, newest: Int64s, clock: Int64s, limits: TimestampLimits
    ) -> None:
        """Count the batches that fail each of Kafka's two checks; all times are 0 or more."""
        if limits.before_max_ms is not None:
            self.rejected_before += int((clock - oldest > limits.before_max_ms).sum())
        if limits.after_max_ms is not None:
            self.rejected_after += int((newest - clock > limits.after_max_ms).sum())


def timestamp_type_of(types: int, *, has_timestamp: bool) -> str:
    """Return the type of batches whose types have these bits; `none` without a timestamp."""
    return _TYPE_OF_BIT.get(types, MIXED) if has_timestamp else NONE


def _only(batches: BatchColumns, which: Bools) -> BatchColumns:
    """Return the batches for which `which` is true, without a copy if these are all."""
    return batches if which.all() else batches[which]


def _types_of(batches: BatchColumns) -> int:
    """Return a bit for each timestamp type, as `segment_summary.summarize` does."""
    is_v0 = batches["magic"] == 0
    stamped = ~is_v0 & (batches["attributes"] & LOG_APPEND_TIME != 0)
    created = ~is_v0 & ~stamped
    return sum(bit for bit, found in ((1, is_v0), (2, created), (4, stamped)) if found.any())


def _classes_of(distances: Int64s) -> Int64s:
    """Return how many distances are in each class."""
    classes = np.searchsorted(DISTANCES, distances, side="left")
    return np.bincount(classes, minlength=CLASSES).astype(np.int64)


def suspicions_of_records(timestamps: Int64s, after_max_ms: Int64s, *, now_ms: int) -> Codes:
    """Return what is suspicious about timestamps of records, by the rule of retention.

    `after_max_ms` is 2^63 - 1 without a limit. The checks that compare with a segment's file are
    left out. NO_TIMESTAMP is not judged; other negative ones are before 1970.
    """
    known: Bools = timestamps != NO_TIMESTAMP
    columns = TimestampColumns(
        largest_timestamp=Int64Column(timestamps, known),
        is_of_record=known,
        is_create_time=np.zeros(len(timestamps), bool),
        last_modified_ms=Int64Column(timestamps, ~known),
        retention_ms=np.full(len(timestamps), NO_LIMIT, np.int64),
        after_max_ms=after_max_ms,
    )
    return suspicions_of(columns, now_ms=now_ms)


def _first_timestamps(batches: BatchColumns) -> Int64s:
    """Return the timestamps of the first records, NO_TIMESTAMP where headers do not have them."""
    has_first = (batches["magic"] >= 2) & (batches["records_count"] > 0)
    has_first &= batches["attributes"] & (DELETE_HORIZON | LOG_APPEND_TIME | CONTROL) == 0
    return np.where(has_first, batches["base_timestamp"], NO_TIMESTAMP).astype(np.int64)


def _suspicious(largest: Int64s, first: Int64s, question: ProfileQuestion) -> Int64s:
    """Return how many batches have a suspicious timestamp, by kind: the largest, or the first."""
    limit = question.limits.after_max_ms
    after_max = np.full(len(largest), MAX_INT64 if limit is None else limit, np.int64)
    codes = suspicions_of_records(largest, after_max, now_ms=question.now_ms)
    of_first = suspicions_of_records(first, after_max, now_ms=question.now_ms)
    codes = np.where(codes < 0, of_first, codes)
    return np.bincount(codes[codes >= 0], minlength=len(SUSPICIONS)).astype(np.int64)


class LatencyHistogram:
    """Counts durations in ms, so that percentiles have a bounded error; two histograms add up.

    Durations from -255 to 255 ms have a bucket each. From 256 ms on each power of two has 128
    buckets, so a bucket is at most 1/128 as wide as its durations. A percentile is the upper end of
    its bucket: never below the exact value, and at most 0.8 % of it above. `count`, `smallest` and
    `largest` are exact; the last two are None without durations.
    """

    def __init__(self) -> None:
        self.count = self.negative = 0
        self.smallest: int | None = None
        self.largest: int | None = None
        self._counts: Counter[int] = Counter()  # by bucket, -1 - bucket for a negative duration

    def add(self, durations: Int64s) -> None:
        """Count durations, each above -2^63."""
        if not durations.size:
            return
        is_negative = durations < 0
        buckets = _bucket_of(np.abs(durations))
        found, counts = np.unique(np.where(is_negative, -1 - buckets, buckets), return_counts=True)
        self._counts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        self.count += durations.size
        self.negative += int(is_negative.sum())
        self._stretch(int(durations.min()), int(durations.max()))

    def merge(self, other: "LatencyHistogram") -> None:
        """Count what another histogram has counted."""
        if other.smallest is None or other.largest is None:
            return
        self._counts.update(other._counts)
        self.count += other.count
        self.negative += other.negative
        self._stretch(other.smallest, other.largest)

    def percentile(self, percent: float) -> int | None:
        """Return the smallest duration that `percent` of all do not exceed; None without any.

        It is never too small, and too large by at most PERCENTILE_ERROR of it.
        """
        if self.smallest is None or self.largest is None:
            return None
        left = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                end = -_ends(-1 - bucket)[0] if bucket < 0 else _ends(bucket)[1]
                return min(max(end, self.smallest), self.largest)
        return self.largest

    def _stretch(self, smallest: int, largest: int) -> None:
        self.smallest = smallest if self.smallest is None else min(self.smallest, smallest)
        self.largest = largest if self.largest is None else max(self.largest, largest)


def _bucket_of(durations: Int64s) -> Int64s:
    """Return the bucket of each duration of 0 or more."""
    power = np.maximum(np.searchsorted(_POWERS, durations, side="right") - 1, _SHIFT)
    leading = durations >> (power - _SHIFT)  # 128 to 255 from 256 ms on
    wide = _EXACT + (power - _SHIFT - 1) * _PER_POWER + leading - _PER_POWER
    return np.where(durations < _EXACT, durations, wide).astype(np.int64)


def _ends(bucket: int) -> tuple[int, int]:
    """Return the smallest and the largest duration of a bucket of 0 or more."""
    if bucket < _EXACT:
        return bucket, bucket
    power, leading = divmod(bucket - _EXACT, _PER_POWER)
    shift = power + 1
    smallest = (leading + _PER_POWER) << shift
    return smallest, smallest + (1 << shift) - 1
