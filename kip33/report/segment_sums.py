"""The sums of a report over segments, made while the partitions of a snapshot are judged.

A report looks at the segments twice: for these sums, and to draw those of the few partitions that
it shows. So it never holds more than some partitions.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import int64_column_of
from kip33.catalog.segment_order import PARTITION
from kip33.report.facts import AgeFacts, DisorderFacts
from kip33.retention.evaluation import JudgedRows, RetentionRequest, judged_tables
from kip33.retention.partition_texts import name_of
from kip33.retention.snapshot_sums import SUMMED, SnapshotSums, sums_of, sums_of_all
from kip33.rules.retention import (
    Bools,
    Int64Column,
    Int64s,
    RetentionReason,
    is_reason,
)
from kip33.rules.suspicious_timestamps import SUSPICIONS, YEAR_1990_MS, Suspicion

MOST_EXAMPLES: Final = 3
_DAY_MS: Final = 86_400_000
_FIRST: Final = "first_batch_timestamp"
_OF_BATCHES: Final = (_FIRST, "batch_count", "out_of_order_batches")
DRAWN: Final = (*SUMMED, _FIRST)
"""The columns of a catalog that `timelines` needs."""
_MOST_DISORDER: Final = 15
_NEAR: Final = 4  # an axis ends at `now` if that adds at most a quarter
_AGES: Final = (  # below this age
    ("in the future", 0),
    ("less than 1 day", _DAY_MS),
    ("1 to 7 days", 7 * _DAY_MS),
    ("7 to 30 days", 30 * _DAY_MS),
    ("30 to 90 days", 90 * _DAY_MS),
    ("90 days to 1 year", 365 * _DAY_MS),
    ("1 to 3 years", 3 * 365 * _DAY_MS),
)
_OLDEST: Final = "3 years and more"
_UNKNOWN: Final = "no timestamp"


class Doubt(StrEnum):
    """Why the largest timestamp of a segment is less certain, or not judged."""

    BY_FILE = "by file"
    UNVERIFIED = "unverified"
    TIERED = "tiered"
    NOT_UPLOADED = "not uploaded"
    OTHER_RECORDS = "other records"


class TimeAxis(NamedTuple):
    """The time from the oldest to the newest segment, without timestamps that are wrong."""

    from_ms: int
    until_ms: int


@dataclass
class SegmentKind:
    """The segments of a kind: their number, their size, and the largest."""

    segments: int = 0
    bytes: int = 0
    largest: list[tuple[int, str]] = field(default_factory=list)  # bytes and log URI

    def add(self, judged: JudgedRows, which: Bools) -> None:
        """Add the chosen rows."""
        numbers = np.flatnonzero(which)
        if not numbers.size:
            return
        sizes = judged.segments.size_bytes[numbers]
        order = np.argsort(-sizes, kind="stable")[:MOST_EXAMPLES]
        uris = judged.columns.log_uris(numbers[order])
        found = [*self.largest, *zip(sizes[order].tolist(), uris, strict=True)]
        self.segments += int(numbers.size)
        self.bytes += int(sizes.sum())
        self.largest = sorted(found, key=lambda one: -one[0])[:MOST_EXAMPLES]


def untrusted(judged: JudgedRows) -> Bools:
    """Return which segments are damaged, unverified, tiered, or judged by their file's time."""
    summed = judged.summed
    doubted = summed.by_file | summed.is_unverified | summed.is_doubtful
    return np.asarray(doubted | summed.is_tiered)


class SegmentSums:
    """All that a report says of segments together."""

    def __init__(self, request: RetentionRequest) -> None:
        """Begin for a question whose `moments_ms` are the days of the forecast."""
        self._request = request
        self._parts: list[SnapshotSums] = []
        self._untrusted: list[Int64s] = []
        self._disorder: list[tuple[Int64s, Int64s, Int64s]] = []
        self._ages = np.zeros((2, len(_AGES) + 2), np.int64)
        self._oldest, self._newest = 2**63 - 1, -1
        self.by_status: Counter[str] = Counter()
        self.kinds: dict[str, SegmentKind] = {kind: SegmentKind() for kind in (*SUSPICIONS, *Doubt)}
        """By `Suspicion` or `Doubt`."""

    def add(self, judged: JudgedRows) -> None:
        """Add the rows of a table, which have the columns SUMMED and those of batches."""
        first, batches, disordered = (int64_column_of(judged.rows[one]) for one in _OF_BATCHES)
        self._parts.append(sums_of(judged, self._request))
        self._untrusted.append(judged.summed.number_of(untrusted(judged)))
        self._disorder.append(
            (
                judged.summed.total_of(batches),
                judged.summed.total_of(disordered),
                judged.summed.number_of(disordered.known & (disordered.values > 0)),
            )
        )
        for status in judged.columns.texts("status"):
            self.by_status[status] += int(judged.columns.equals("status", status).sum())
        for kind, which in _kinds_in(judged):
            self.kinds[kind].add(judged, which)
        self._add_ages(judged)
        self._add_times(judged, first)

    def _add_ages(self, judged: JudgedRows) -> None:
        largest, now_ms = judged.segments.largest_timestamp, judged.now_ms
        age = now_ms - np.where(largest.known, largest.values, 0)
        # A timestamp far ahead may overflow the difference.
        age = np.where(largest.values > now_ms, -1, age)
        limits = np.array([limit for _, limit in _AGES], np.int64)
        bucket = np.where(largest.known, np.searchsorted(limits, age, side="right"), len(_AGES) + 1)
        np.add.at(self._ages[0], bucket, 1)
        np.add.at(self._ages[1], bucket, judged.segments.size_bytes)

    def _add_times(self, judged: JudgedRows, begins: Int64Column) -> None:
        largest = judged.segments.largest_timestamp
        plausible = (-1, SUSPICIONS.index(Suspicion.BACKFILL))
        fine = largest.known & np.isin(judged.suspicions, plausible)
        fine &= largest.values >= YEAR_1990_MS
        begun = fine & begins.known & (begins.values >= YEAR_1990_MS)
        begun &= begins.values <= largest.values
        if fine.any():
            self._newest = max(self._newest, int(largest.values[fine].max()))
            self._oldest = min(self._oldest, int(largest.values[fine].min()))
        if begun.any():
            self._oldest = min(self._oldest, int(begins.values[begun].min()))

    def of_snapshot(self, catalog: Catalog, snapshot: Snapshot) -> SnapshotSums:
        """Return the sums of partitions, with the holes that no replica fills."""
        return sums_of_all(catalog, snapshot, self._request, self._parts)

    @property
    def untrusted_segments(self) -> Int64s:
        """Return the number of untrusted segments of each partition."""
        return np.concatenate(self._untrusted)

    @property
    def disordered_batches(self) -> int:
        """Return the number of batches below an earlier one."""
        return sum(int(disordered.sum()) for _, disordered, _ in self._disorder)

    def ages(self) -> tuple[AgeFacts, ...]:
        """Return segments and bytes for each age of the largest timestamp, the newest first."""
        names = [*(name for name, _ in _AGES), _OLDEST, _UNKNOWN]
        return tuple(AgeFacts(*one) for one in zip(names, *self._ages.tolist(), strict=True))

    def disorder(
        self, partitions: pa.Table
    ) -> tuple[tuple[DisorderFacts, ...], int, DisorderFacts]:
        """Return the partitions with the most disorder, the number of the others, and their sum."""
        counts, disordered, segments = map(np.concatenate, zip(*self._disorder, strict=True))
        order = np.argsort(-disordered, kind="stable")
        order = order[disordered[order] > 0]

        def facts(name: str, numbers: Int64s) -> DisorderFacts:
            of_these = (int(one[numbers].sum()) for one in (counts, disordered, segments))
            return DisorderFacts(name, *of_these)

        shown, others = order[:_MOST_DISORDER], order[_MOST_DISORDER:]
        rows = partitions.select([*PARTITION]).take(pa.array(shown))
        names = map(name_of, rows.to_pylist())
        return (
            tuple(facts(name, shown[[at]]) for at, name in enumerate(names)),
            others.size,
            facts("others", others),
        )

    def axis(self) -> TimeAxis:
        """Return the axis on which the segments are drawn."""
        now_ms, from_ms, until_ms = self._request.now_ms, self._oldest, self._newest
        if until_ms < 0:
            return TimeAxis(now_ms - _DAY_MS, now_ms)
        if until_ms < now_ms <= until_ms + (until_ms - from_ms) // _NEAR:
            until_ms = now_ms
        return TimeAxis(from_ms, max(until_ms, from_ms + 1))


def summed(catalog: Catalog, snapshot: Snapshot, request: RetentionRequest) -> SegmentSums:
    """Return the sums of a snapshot; CatalogError for a damaged part."""
    sums = SegmentSums(request)
    for judged in judged_tables(catalog, snapshot, request, [*SUMMED, *_OF_BATCHES]):
        sums.add(judged)
    return sums


def forecast_moments(now_ms: int, days: int) -> list[int]:
    """Return the times of a forecast: now, and each of the next days."""
    return [now_ms + day * _DAY_MS for day in range(days + 1)]


def _kinds_in(judged: JudgedRows) -> Iterator[tuple[str, Bools]]:
    """Yield each kind, and which rows are of it."""
    summed, reasons = judged.summed, judged.decisions.reason
    for code, kind in enumerate(SUSPICIONS):
        yield kind, np.equal(judged.suspicions, code)
    yield Doubt.BY_FILE, summed.by_file
    yield Doubt.UNVERIFIED, summed.is_unverified
    yield Doubt.TIERED, summed.is_tiered
    yield Doubt.NOT_UPLOADED, is_reason(reasons, RetentionReason.NOT_UPLOADED)
    yield Doubt.OTHER_RECORDS, is_reason(reasons, RetentionReason.OTHER_RECORDS)
