"""The partitions of a report, worst first, and their segments as bars on one axis of time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.report.facts import Bar, BarState, HoleMark, PartitionFacts, Timelines
from kip33.retention.evaluated_tables import partitions_table
from kip33.retention.evaluation import EvaluatedCatalog
from kip33.retention.partition_texts import name_of, policy_text, remarks_of
from kip33.rules.offset_holes import HoleKind
from kip33.rules.retention import Bools, Int64Column, Int64s, RetentionReason, is_reason
from kip33.rules.suspicious_timestamps import SUSPICIONS, YEAR_1990_MS, Suspicion

MOST_PARTITIONS_SHOWN: Final = 30
MOST_BARS: Final = 120  # of a partition; more segments are joined
MOST_MARKS: Final = 20
STATES: Final = tuple(BarState)
_DAY_MS: Final = 86_400_000
_NEAR: Final = 4  # an axis ends at `now` if that adds at most a quarter


class TimeAxis(NamedTuple):
    """The time from the oldest to the newest segment, without timestamps that are wrong."""

    from_ms: int
    until_ms: int


@dataclass(frozen=True)
class PartitionRanking:
    """What decides which partitions a report shows."""

    evaluated: EvaluatedCatalog
    holes: pa.Table  # of `catalog.holes`

    @cached_property
    def untrusted(self) -> Bools:
        """Return which segments are damaged, unverified, tiered, or judged by their file's time."""
        summed = self.evaluated.summed
        doubted = summed.by_file | summed.is_unverified | summed.is_doubtful
        return np.asarray(doubted | summed.is_tiered)

    @cached_property
    def untrusted_segments(self) -> Int64s:
        """Return the number of these in each partition."""
        return self.evaluated.summed.number_of(self.untrusted)

    @cached_property
    def holes_of(self) -> dict[int, list[dict[str, Any]]]:
        """Return the rows of the holes by the number of the partition."""
        keys = self.evaluated.columns.keys
        numbers = {(log_dir or "", *rest): at for at, (log_dir, *rest) in enumerate(keys)}
        found: dict[int, list[dict[str, Any]]] = {}
        for row in self.holes.to_pylist():
            at = numbers[row["log_dir"], row["topic"], row["partition"]]
            found.setdefault(at, []).append(row)
        return found

    @cached_property
    def missing_offsets(self) -> Int64s:
        """Return the missing offsets of each partition, without those that a replica fills."""
        return self._offsets_in({kind for kind in HoleKind if kind is not HoleKind.FILLED})

    def worst_first(self) -> Int64s:
        """Return the numbers of the partitions, those with the most serious problems first."""
        sums = self.evaluated.sums
        surely = self._offsets_in({HoleKind.CERTAIN, HoleKind.AFTER_DAMAGE})
        return np.lexsort(
            [
                -sums.number("bytes"),
                -sums.number("deletable_bytes"),
                -self._holes,
                -self.untrusted_segments,
                -sums.number("blocked_bytes"),
                -sums.number("doubtful_segments"),
                -surely,
            ]
        )

    @cached_property
    def _holes(self) -> Int64s:
        found = np.zeros(self.evaluated.columns.starts.size, np.int64)
        for at, rows in self.holes_of.items():
            found[at] = len(rows)
        return found

    def _offsets_in(self, kinds: set[HoleKind]) -> Int64s:
        found = np.zeros(self.evaluated.columns.starts.size, np.int64)
        for at, rows in self.holes_of.items():
            found[at] = sum(row["missing_offsets"] for row in rows if row["hole"] in kinds)
        return found


def make_timelines(ranking: PartitionRanking, begins: Int64Column) -> Timelines:
    """Return the worst partitions with their bars, and the sums of the others.

    `begins` has the first timestamp of each segment, in the order of the evaluated columns.
    """
    evaluated = ranking.evaluated
    order = ranking.worst_first()
    shown, others = order[:MOST_PARTITIONS_SHOWN], order[MOST_PARTITIONS_SHOWN:]
    axis = _axis(evaluated, begins)
    states = _states(evaluated)
    rows = partitions_table(evaluated).take(pa.array(shown)).to_pylist()
    partitions = []
    for at, row in zip(shown.tolist(), rows, strict=True):
        facts = _sums(ranking, np.array([at]), row | {"suspicions": dict(row["suspicions"])})
        drawn = _DrawnSegments.of(evaluated, begins, axis, at)
        partitions.append(
            replace(
                facts,
                bars=drawn.bars(states, ranking.untrusted),
                marks=drawn.marks(evaluated, ranking.holes_of.get(at, ())),
            )
        )
    rest = _sums(ranking, others, None) if others.size else None
    return Timelines(*axis, tuple(partitions), others.size, rest)


def _sums(ranking: PartitionRanking, numbers: Int64s, row: dict[str, Any] | None) -> PartitionFacts:
    """Return the sums of some partitions; `row` is that of the only one."""
    sums = ranking.evaluated.sums

    def total(name: str) -> int:
        return int(sums.number(name)[numbers].sum())

    return PartitionFacts(
        name_of(row) if row else "others",
        policy_text(row) if row else "",
        total("segments"),
        total("bytes"),
        total("deletable_segments"),
        total("deletable_bytes"),
        total("blocked_segments"),
        total("blocked_bytes"),
        int(ranking.untrusted_segments[numbers].sum()),
        int(ranking.missing_offsets[numbers].sum()),
        sum(len(ranking.holes_of.get(at, ())) for at in numbers.tolist()),
        tuple(remarks_of(row)) if row else (),
    )


def _states(evaluated: EvaluatedCatalog) -> npt.NDArray[np.int8]:
    """Return the state of each segment, as its index in STATES."""
    decisions, blockers = evaluated.judged.decisions, evaluated.sums.blocking_rows
    states = np.full(evaluated.columns.size, STATES.index(BarState.KEPT), np.int8)
    states[decisions.deletable] = STATES.index(BarState.EXPIRED)
    states[is_reason(decisions.reason, RetentionReason.BLOCKED)] = STATES.index(BarState.BLOCKED)
    states[blockers.values[blockers.known]] = STATES.index(BarState.BLOCKER)
    return states


def _axis(evaluated: EvaluatedCatalog, begins: Int64Column) -> TimeAxis:
    largest, now_ms = evaluated.judged.segments.largest_timestamp, evaluated.now_ms
    plausible = (-1, SUSPICIONS.index(Suspicion.BACKFILL))
    fine = largest.known & np.isin(evaluated.suspicions, plausible)
    newest = largest.values[fine & (largest.values >= YEAR_1990_MS)]
    first = fine & begins.known & (begins.values >= YEAR_1990_MS)
    oldest = np.concatenate([begins.values[first & (begins.values <= largest.values)], newest])
    if not newest.size:
        return TimeAxis(now_ms - _DAY_MS, now_ms)
    from_ms, until_ms = int(oldest.min()), int(newest.max())
    if until_ms < now_ms <= until_ms + (until_ms - from_ms) // _NEAR:
        until_ms = now_ms
    return TimeAxis(from_ms, max(until_ms, from_ms + 1))


class _DrawnSegments(NamedTuple):
    """The segments of a partition and where they are drawn: nowhere if no time is known."""

    first: int  # number of the first row
    begins: Int64s
    ends: Int64s
    largest: Int64Column
    sizes: Int64s

    @classmethod
    def of(
        cls, evaluated: EvaluatedCatalog, begins: Int64Column, axis: TimeAxis, at: int
    ) -> "_DrawnSegments":
        """Return a partition's segments; one begins at the latest where the next one does."""
        first = int(evaluated.columns.starts[at])
        rows = slice(first, first + int(evaluated.columns.lengths[at]))
        largest = evaluated.judged.segments.largest_timestamp.take(rows)
        starts = _filled(begins.take(rows), largest)
        if starts is None:
            starts = np.zeros(0, np.int64)
            return cls(first, starts, starts, largest, starts)
        starts = np.clip(starts, *axis)
        following = np.append(starts[1:], axis.until_ms)
        ends = np.where(largest.known, np.clip(largest.values, *axis), starts)
        ends = np.maximum(np.minimum(ends, np.maximum(following, starts)), starts)
        return cls(first, starts, ends, largest, evaluated.judged.segments.size_bytes[rows])

    def bars(self, states: npt.NDArray[np.int8], untrusted: Bools) -> tuple[Bar, ...]:
        """Return a bar for each segment, or for all in a part of the axis if there are many."""
        size = self.begins.size
        if not size:
            return ()
        if size <= MOST_BARS:
            groups = list(np.arange(size).reshape(-1, 1))
        else:
            low, high = int(self.begins.min()), int(self.ends.max())
            cells = (self.begins - low) * MOST_BARS // (high - low + 1)
            order = np.argsort(cells, kind="stable")
            groups = np.split(order, np.flatnonzero(np.diff(cells[order])) + 1)
        return tuple(self._bar(group, states, untrusted) for group in groups)

    def _bar(self, group: Int64s, states: npt.NDArray[np.int8], untrusted: Bools) -> Bar:
        known = self.largest.values[group][self.largest.known[group]]
        return Bar(
            int(self.begins[group].min()),
            int(self.ends[group].max()),
            STATES[int(states[group + self.first].min())],
            int(group.size),
            int(self.sizes[group].sum()),
            int(untrusted[group + self.first].sum()),
            int(known.max()) if known.size else None,
        )

    def marks(
        self, evaluated: EvaluatedCatalog, holes: Sequence[dict[str, Any]]
    ) -> tuple[HoleMark, ...]:
        """Return the largest holes, between the segments before and after each."""
        if not self.begins.size or not holes:
            return ()
        rows = np.arange(self.first, self.first + self.begins.size)
        places = {uri: at for at, uri in enumerate(evaluated.columns.log_uris(rows))}
        largest = sorted(holes, key=lambda one: -int(one["missing_offsets"]))[:MOST_MARKS]
        marks = []
        for hole in sorted(largest, key=lambda one: int(one["first_offset"])):
            end = int(self.ends[places[hole["after"]]])
            begin = max(end, int(self.begins[places[hole["before"]]]))
            offsets = (hole["first_offset"], hole["last_offset"])
            marks.append(HoleMark(end, begin, hole["hole"], *offsets))
        return tuple(marks)


def _filled(begins: Int64Column, largest: Int64Column) -> Int64s | None:
    """Return where segments begin; what is not known is taken from a neighbour. None: unknown."""
    known = begins.known & (begins.values >= 0)
    by_largest = largest.known & (largest.values >= 0) & ~known
    before = np.roll(largest.values, 1)  # an unknown begin is the end of the segment before
    has_before = np.roll(largest.known, 1) & (before >= 0) & (before <= largest.values)
    has_before[0] = False
    values = np.where(has_before, before, largest.values)
    values = np.where(by_largest, values, begins.values)
    known |= by_largest
    if not known.any():
        return None
    places = np.where(known, np.arange(known.size), -1)
    places = np.maximum.accumulate(places)
    places[places < 0] = np.flatnonzero(known)[0]
    return np.asarray(values[places], np.int64)
