"""The partitions of a report, worst first, and their segments as bars on one axis of time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.catalog.catalog_columns import int64_column_of
from kip33.catalog.segment_order import PARTITION
from kip33.report.facts import Bar, BarState, HoleMark, PartitionFacts, Timelines
from kip33.report.segment_sums import TimeAxis, untrusted
from kip33.retention.evaluation import JudgedRows
from kip33.retention.partition_texts import name_of, policy_text, remarks_of
from kip33.rules.offset_holes import HoleKind
from kip33.rules.retention import Bools, Int64Column, Int64s, RetentionReason, is_reason

MOST_PARTITIONS_SHOWN: Final = 30
MOST_BARS: Final = 120  # of a partition; more segments are joined
MOST_MARKS: Final = 20
STATES: Final = tuple(BarState)


@dataclass(frozen=True)
class PartitionRanking:
    """What decides which partitions a report shows."""

    partitions: pa.Table  # `evaluated_tables.partitions_table`
    untrusted_segments: Int64s  # of each partition
    holes: pa.Table  # of `catalog.holes`

    def number(self, name: str) -> Int64s:
        """Return a number of each partition."""
        return np.asarray(self.partitions[name].to_numpy())

    @cached_property
    def keys(self) -> list[tuple[str, str | None, int | None]]:
        """Return log directory, topic and number of each partition."""
        rows = self.partitions.select([*PARTITION]).to_pylist()
        return [(one["log_dir"] or "", one["topic"], one["partition"]) for one in rows]

    @cached_property
    def holes_of(self) -> dict[int, list[dict[str, Any]]]:
        """Return the rows of the holes by the number of the partition."""
        numbers = {key: at for at, key in enumerate(self.keys)}
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
        surely = self._offsets_in({HoleKind.CERTAIN, HoleKind.AFTER_DAMAGE})
        return np.lexsort(
            [
                -self.number("bytes"),
                -self.number("deletable_bytes"),
                -self._of_holes(len),
                -self.untrusted_segments,
                -self.number("blocked_bytes"),
                -self.number("doubtful_segments"),
                -surely,
            ]
        )

    def _offsets_in(self, kinds: set[HoleKind]) -> Int64s:
        return self._of_holes(
            lambda rows: sum(row["missing_offsets"] for row in rows if row["hole"] in kinds)
        )

    def _of_holes(self, number: Callable[[list[dict[str, Any]]], int]) -> Int64s:
        """Return a number of the holes of each partition."""
        found = np.zeros(self.partitions.num_rows, np.int64)
        for at, rows in self.holes_of.items():
            found[at] = number(rows)
        return found


def make_timelines(
    judged: Iterable[JudgedRows], ranking: PartitionRanking, axis: TimeAxis
) -> Timelines:
    """Return the worst partitions with their bars, and the sums of the others.

    `judged` are the partitions that are shown, and maybe others; their rows have the columns DRAWN.
    """
    order = ranking.worst_first()
    shown, others = order[:MOST_PARTITIONS_SHOWN], order[MOST_PARTITIONS_SHOWN:]
    drawn = _drawn(judged, ranking, axis, shown)
    rows = ranking.partitions.take(pa.array(shown)).to_pylist()
    partitions = []
    for at, row in zip(shown.tolist(), rows, strict=True):
        facts = _sums(ranking, np.array([at]), row | {"suspicions": dict(row["suspicions"])})
        bars, marks = drawn.get(at, ((), ()))
        partitions.append(replace(facts, bars=bars, marks=marks))
    rest = _sums(ranking, others, None) if others.size else None
    return Timelines(*axis, tuple(partitions), others.size, rest)


def topics_shown(ranking: PartitionRanking) -> list[str]:
    """Return the topics of the partitions that are shown."""
    shown = ranking.worst_first()[:MOST_PARTITIONS_SHOWN]
    topics: list[Any] = ranking.partitions["topic"].take(pa.array(shown)).to_pylist()
    return sorted({topic for topic in topics if topic is not None})


def _drawn(
    judged: Iterable[JudgedRows], ranking: PartitionRanking, axis: TimeAxis, shown: Int64s
) -> dict[int, tuple[tuple[Bar, ...], tuple[HoleMark, ...]]]:
    """Return bars and marks by the number of the partition."""
    wanted = {ranking.keys[at]: at for at in shown.tolist()}
    drawn = {}
    for table in judged:
        states, doubted = _states(table), untrusted(table)
        for place, (log_dir, topic, number) in enumerate(table.columns.keys):
            at = wanted.get((log_dir or "", topic, number))
            if at is not None:
                segments = _DrawnSegments.of(table, axis, place)
                marks = segments.marks(table, ranking.holes_of.get(at, ()))
                drawn[at] = (segments.bars(states, doubted), marks)
    return drawn


def _sums(ranking: PartitionRanking, numbers: Int64s, row: dict[str, Any] | None) -> PartitionFacts:
    """Return the sums of some partitions; `row` is that of the only one."""

    def total(name: str) -> int:
        return int(ranking.number(name)[numbers].sum())

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


def _states(judged: JudgedRows) -> npt.NDArray[np.int8]:
    """Return the state of each segment, as its index in STATES."""
    decisions, blockers = judged.decisions, judged.sums.blocking_rows
    states = np.full(judged.columns.size, STATES.index(BarState.KEPT), np.int8)
    states[decisions.deletable] = STATES.index(BarState.EXPIRED)
    states[is_reason(decisions.reason, RetentionReason.BLOCKED)] = STATES.index(BarState.BLOCKED)
    states[blockers.values[blockers.known]] = STATES.index(BarState.BLOCKER)
    return states


class _DrawnSegments(NamedTuple):
    """The segments of a partition and where they are drawn: nowhere if no time is known."""

    first: int  # number of the first row
    begins: Int64s
    ends: Int64s
    largest: Int64Column
    sizes: Int64s

    @classmethod
    def of(cls, judged: JudgedRows, axis: TimeAxis, at: int) -> "_DrawnSegments":
        """Return a partition's segments; one begins at the latest where the next one does."""
        first, length = int(judged.columns.starts[at]), int(judged.columns.lengths[at])
        rows = slice(first, first + length)
        largest = judged.segments.largest_timestamp.take(rows)
        begins = int64_column_of(judged.rows["first_batch_timestamp"].slice(first, length))
        starts = _filled(begins, largest)
        if starts is None:
            starts = np.zeros(0, np.int64)
            return cls(first, starts, starts, largest, starts)
        starts = np.clip(starts, *axis)
        following = np.append(starts[1:], axis.until_ms)
        ends = np.where(largest.known, np.clip(largest.values, *axis), starts)
        ends = np.maximum(np.minimum(ends, np.maximum(following, starts)), starts)
        return cls(first, starts, ends, largest, judged.segments.size_bytes[rows])

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

    def marks(self, judged: JudgedRows, holes: Sequence[dict[str, Any]]) -> tuple[HoleMark, ...]:
        """Return the largest holes, between the segments before and after each."""
        if not self.begins.size or not holes:
            return ()
        rows = np.arange(self.first, self.first + self.begins.size)
        places = {uri: at for at, uri in enumerate(judged.columns.log_uris(rows))}
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
