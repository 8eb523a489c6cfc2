"""The log of one partition: which copy is read at which offset, and how certain that is.

1. In a leader epoch one leader gives out offsets, and followers cut off what their leader lacks.
   So a copy with a record of epoch E has the log of E's leader up to there: log matching (KIP-101,
   KIP-279; `LeaderEpochFileCache.endOffsetFor`, `AbstractFetcherThread`).
2. The log is that of the latest leader epoch that any copy shows, in a batch or a checkpoint, as
   far as the farthest copy of this epoch (KIP-966: last epoch, then end). Sizes do not count.
3. Another copy has the log up to the end of the last epoch that both show (KIP-320). It is dead
   from where the log has a later epoch, or at a later offset an earlier one.
4. Between these two offsets nothing is certain: no copy shows what the log's leader had. Such
   records are read only where there are no sure ones, the latest epoch first. They are UNSURE.
5. A copy whose last epochs are not known may be of a later leader. So all copies are UNKNOWN after
   the last record that it certainly shares with the log: of one epoch, or with the same bytes.
6. Sure records are equal in all copies. Local copies are read first, then the one that goes
   farthest, has fewest holes, is first. What it lacks (start, hole, damage) the next one gives.
7. A compacted copy has fewer records: neither these nor gaps between good segments are holes. An
   epoch may begin before it is seen, in a checkpoint, too. What fills damage is COMPACTED.
A log directory is one witness; each remote segment is one, because several leaders upload
(`RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`); a checkpoint is a copy without records.

SURE means: in the log of the latest leader of which there is a trace. A leader without a trace
cannot be seen; the note ALONE names the offsets that only one copy has.

In 59,288 simulated worlds none of 988,200 sure records was wrong, no record called dead was of the
log, and no difference was without a note (`tests/rules/test_which_log.py`). A choice by size was
wrong in 23 % of these worlds; what this rule reads is wrong in 5 %, each time marked or noted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import accumulate, pairwise, takewhile
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
Epochs: TypeAlias = tuple[tuple[int, int], ...]  # (epoch, start offset), rising
NEVER: Final = 2**63 - 1
NOT_KNOWN: Final = -1


class Status(IntEnum):
    """How much of a segment can be read."""

    OK = 0
    CUT = 1  # valid up to `nexts`, then damaged
    LOST = 2  # nothing of it can be read


class Certainty(IntEnum):
    """How certain it is that records are of the log."""

    SURE = 0
    COMPACTED = 1  # it was in the log; compaction may have removed it since
    UNSURE = 2  # no copy shows whether the log's leader had it
    UNKNOWN = 3  # a copy with unknown epochs may be of a later leader
    DEAD = 4  # a later leader never had it; read only of a replica that was asked for


class Kind(StrEnum):
    """What a note says of a range of offsets of a copy."""

    DIFFER = "is not of the log from here on: a later leader never had these records"
    UNSURE = "no copy shows whether the log's leader had these records"
    UNKNOWN = "leader epochs are not known: may be of a later leader"
    CONFLICT = "other bytes in the same epoch: not one topic, or a leader lost what it had written"
    BEHIND = "ends before the log"
    ALONE = "only this copy has these: lost, if a later leader without a copy never had them"
    EARLIER = "begins later: another copy has these"
    FILLED = "lacks these (hole or damage), another copy has them"
    POSSIBLE = "has a gap that compaction may have left"
    HOLE = "no copy has these"


class Copy(NamedTuple):
    """A log directory of a partition, or all its segments in the remote tier."""

    name: str
    is_remote: bool = False
    log_start: int = 0  # of the remote tier: the brokers'
    checkpoint: Epochs = ()  # `leader-epoch-checkpoint`; empty: not known


class Segments(NamedTuple):
    """The segments of all copies, in any order; one element for each in a column."""

    copies: Int64s  # numbers of copies
    bases: Int64s
    nexts: Int64s  # last offset of the valid batches + 1; `bases` without any
    records: Int64s  # NOT_KNOWN with wrappers of old formats
    statuses: Int64s
    digests: Int64s  # of the batches' CRCs; NOT_KNOWN
    epoch_places: Int64s  # epochs of segment i: epoch_places[i] to [i + 1]; none: not known
    epochs: Int64s
    epoch_offsets: Int64s  # where each epoch was first seen


class Slice(NamedTuple):
    """Offsets of a segment that are read; the end is exclusive."""

    copy: int
    segment: int
    from_offset: int
    until_offset: int
    certainty: Certainty


class Note(NamedTuple):
    """What is said of a range of offsets of a copy; the end is exclusive."""

    kind: Kind
    copy: int  # NOT_KNOWN in a CONFLICT
    from_offset: int
    until_offset: int
    other: int = NOT_KNOWN  # the copy that has these offsets


class ChosenLog(NamedTuple):
    """The slices that make up a log, in order, and notes on the copies."""

    slices: list[Slice]
    notes: list[Note]
    first: int  # the copy that is read first; NOT_KNOWN: none can be read
    dead_from: Int64s  # of each segment: from here on it is not of the log; NEVER


class _Extent(NamedTuple):
    """A segment as far as it can be read: to its end or its damage."""

    base: int  # not below the log start; `end` or later: all was deleted
    end: int
    row: int
    is_whole: bool
    is_dense: bool
    content: tuple[int, ...] | None  # equal ones have the same bytes; None: not known


class _EpochRun(NamedTuple):
    """Offsets of one epoch in a copy."""

    epoch: int
    first: int
    last: int  # first - 1: the epoch began at first, but no record was seen


@dataclass(eq=False)
class _Witness:
    """Segments of one copy that are of one log, or without segments: a checkpoint."""

    copy: int
    extents: list[_Extent] = field(default_factory=list)
    runs: list[_EpochRun] = field(default_factory=list)  # one for each epoch
    end: int = 0
    unknown_from: int = NEVER  # its epochs are not known from here on
    sure_until: int = 0
    read_until: int = 0  # what is after `sure_until` is unsure
    dead_from: int = NEVER
    left_from: int = NEVER  # dead from here on if what is unsure is of the log

    def add(self, base: int, extent: _Extent, runs: Sequence[_EpochRun]) -> None:
        self.extents.append(extent)
        self.end = max(self.end, extent.end)
        self.unknown_from = NEVER if runs else min(self.unknown_from, base)
        for run in runs:
            if self.runs and self.runs[-1].epoch == run.epoch:
                before = self.runs.pop()
                run = _EpochRun(run.epoch, before.first, max(before.last, run.last))
            self.runs.append(run)

    @property
    def known_end(self) -> int:
        return min(max((run.last + 1 for run in self.runs), default=0), self.left_from)


class _Lineage:
    """The first and the last offset at which each epoch of a log was seen."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def learn(self, witness: _Witness, until: int) -> None:
        for epoch, first, last in witness.runs:
            if first < until or (first == until and epoch in self.first):
                self.first[epoch] = min(first, self.first.get(epoch, NEVER))
                self.last[epoch] = max(min(last, until - 1), self.last.get(epoch, NOT_KNOWN))
        self.epochs = sorted(self.first)
        lasts = (self.last[epoch] for epoch in self.epochs)
        firsts = (self.first[epoch] for epoch in reversed(self.epochs))
        self.last_before = [*accumulate(lasts, max, initial=-1)]
        self.first_from = [*accumulate(firsts, min, initial=NEVER)][::-1]

    def judge(self, witness: _Witness) -> tuple[int, int]:
        """The offset up to which a witness certainly has this log, and from which it is dead."""
        agrees, latest = 0, self.epochs[-1]
        for epoch, first, last in witness.runs:
            earlier = self.last_before[bisect_left(self.epochs, epoch)]
            later = self.first_from[bisect_right(self.epochs, epoch)]
            dead = first if first <= earlier else max(first, later)
            dead = dead if dead <= last else NEVER
            if epoch in self.first and dead > first:
                known = last if epoch == latest else min(last, self.last[epoch])
                agrees = max(agrees, min(known + 1, dead))
            if dead != NEVER:
                return agrees, dead
        return agrees, NEVER

    def settle(self, witnesses: Sequence[_Witness]) -> None:
        """Judge witnesses until nothing new is learned."""
        is_new = True
        while is_new:
            is_new = False
            for one in witnesses:
                agrees, dead = self.judge(one)
                if agrees > one.read_until or dead < one.left_from:
                    is_new = True
                    one.read_until = max(agrees, one.read_until)
                    one.left_from = min(dead, one.left_from)
                    self.learn(one, one.read_until)


def which_log(
    copies: Sequence[Copy],
    segments: Segments,
    *,
    compacted: bool | None = None,
    replica: str | None = None,
) -> ChosenLog:
    """The slices that make up the log of a partition, in order, and notes on its copies.

    `compacted` says whether the topic is compacted; None: as its segments show. With `replica`
    only this local copy and the remote tier are read, with its dead branch; the notes are still
    about all copies.
    """
    is_sparse = (segments.records >= 0) & (segments.records < segments.nexts - segments.bases)
    compacted = bool(is_sparse.any()) if compacted is None else compacted
    witnesses = list(_witnesses(copies, segments, compacted=compacted))
    _judge([one for one in witnesses if one.runs])
    unknown = _settle_unknown(witnesses)
    conflict = NEVER if compacted else _conflict(witnesses)
    names = {replica, *(one.name for one in copies if one.is_remote or replica is None)}
    read = [one for one in witnesses if one.extents and copies[one.copy].name in names]
    read.sort(key=_order(copies, read))
    paint = _Paint(copies, read[0].copy if read else NOT_KNOWN, compacted)
    for one in read:
        paint.add(one, 0, one.sure_until, Certainty.SURE)
    for one in read:
        paint.add(one, one.sure_until, one.read_until, Certainty.UNSURE)
    for one in read:
        if one.left_from == NEVER:
            paint.add(one, one.unknown_from, NEVER, Certainty.UNKNOWN)
        if copies[one.copy].name == replica:
            paint.add(one, 0, NEVER, Certainty.DEAD)
    paint.slices.sort(key=lambda one: one.from_offset)
    slices = [part for one in paint.slices for part in _weakened(one, conflict, unknown)]
    notes = [*_notes_of_copies(copies, witnesses, slices)]
    notes += [Note(Kind.CONFLICT, NOT_KNOWN, conflict, NEVER)] if conflict != NEVER else []
    dead_from = np.full(len(segments.bases), NEVER)
    for one in witnesses:
        left = [extent.row for extent in one.extents if extent.end > one.dead_from]
        dead_from[left] = one.dead_from
    merged = _merged([*notes, *paint.notes(witnesses)])
    return ChosenLog(slices, merged, paint.first, dead_from)


def _merged(notes: Sequence[Note]) -> list[Note]:
    """Notes with one for ranges that follow each other."""
    found: list[Note] = []
    for one in sorted(notes, key=lambda one: (one.copy, one.kind, one.other, *one[2:4])):
        before = found[-1] if found else one
        is_same = (one.kind, one.copy, one.other) == (before.kind, before.copy, before.other)
        if found and is_same and one.from_offset <= before.until_offset:
            until = max(one.until_offset, before.until_offset)
            found[-1] = before._replace(until_offset=until)
        else:
            found.append(one)
    return found


def _witnesses(
    copies: Sequence[Copy], segments: Segments, *, compacted: bool
) -> Iterator[_Witness]:
    columns: list[list[Any]] = [column.tolist() for column in segments]
    one = _Witness(NOT_KNOWN)
    last_of: dict[int, _Witness] = {}
    rows = range(len(columns[0]))
    for copy, base, end, records, status, digest, row in sorted(
        zip(*columns[:6], rows, strict=True), key=lambda one: (*one[:2], -one[2], *one[3:])
    ):
        if status == Status.LOST or end == base:
            continue
        start, is_dense = copies[copy].log_start, records == end - base
        runs = _runs(columns[6:], row, end, is_dense=is_dense)
        if end <= start and runs:  # deleted; its last epoch is still a trace of a leader
            yield _Witness(copy, runs=runs[-1:])
            continue
        if start > base:
            runs = [run._replace(first=max(run.first, start)) for run in runs if run.last >= start]
        if one.copy != copy or not _is_continued(one, base, runs, copies[copy].is_remote):
            if one.extents:
                yield one
            last_of[copy] = one = _Witness(copy)
        content = (base, end, digest) if digest != NOT_KNOWN else None
        is_whole = status == Status.OK and end > start
        extent = _Extent(max(base, start), end, row, is_whole, is_dense, content)
        one.add(base, extent, runs)
    for number, other in enumerate(copies):
        if other.checkpoint:
            # After compaction it has what its broker saw: an epoch may begin before.
            nexts = other.checkpoint if compacted else (*other.checkpoint[1:], other.checkpoint[-1])
            runs = [
                _EpochRun(*entry, after - 1)
                for entry, (_, after) in zip(other.checkpoint, nexts, strict=True)
            ]
            mine = last_of.get(number)
            if compacted and mine and _is_of(other.checkpoint, mine.runs):
                mine.runs += [run for run in runs if run.epoch > mine.runs[-1].epoch]
            else:
                yield _Witness(number, runs=runs)
    if one.extents:
        yield one


def _is_continued(witness: _Witness, base: int, runs: Sequence[_EpochRun], is_remote: bool) -> bool:
    """Whether a segment is of the same log as those before it in its copy.

    In the remote tier only an epoch that both have shows it: several leaders upload.
    """
    if not (witness.runs and runs):
        return not is_remote
    before, after = witness.runs[-1].epoch, runs[0].epoch
    return (before == after and witness.end <= base) if is_remote else before <= after


def _is_of(checkpoint: Epochs, runs: Sequence[_EpochRun]) -> bool:
    """Whether a checkpoint is that of its log: not older, newer, or damaged."""
    ends = [*(start for _, start in checkpoint[1:]), NEVER]
    ranges = {epoch: (start, end) for (epoch, start), end in zip(checkpoint, ends, strict=True)}
    of_runs = [(run, ranges.get(run.epoch, (NEVER, NEVER))) for run in runs]
    return bool(runs) and all(
        start <= run.first and run.last < end for run, (start, end) in of_runs
    )


def _runs(columns: Sequence[list[int]], row: int, end: int, *, is_dense: bool) -> list[_EpochRun]:
    """The offsets at which the epochs of a segment were seen.

    If records are missing, offsets before a new epoch may be of the earlier one or of the new one.
    """
    places, epochs, firsts = columns
    rows = range(*places[row : row + 2])
    ends = [*firsts[rows.start + 1 : rows.stop], end]
    return [
        _EpochRun(epochs[at], firsts[at], after - 1 if is_dense or after == end else firsts[at])
        for at, after in zip(rows, ends, strict=False)
    ]


def _judge(witnesses: Sequence[_Witness]) -> None:
    """Set the offsets up to which each witness is sure, is read, and from which it is dead."""
    lineage, is_sure = _Lineage(), True
    by_latest = sorted(witnesses, key=lambda one: (-one.runs[-1].epoch, -one.end))
    while rest := [one for one in by_latest if is_sure or one.read_until < one.known_end]:
        # What is unsure is assumed together, as far as one ends before the other begins.
        bounds = [NEVER, *(one.runs[0].first for one in rest)]
        together = takewhile(
            lambda pair: pair[0].known_end <= pair[1], zip(rest, bounds, strict=False)
        )
        for one in rest[:1] if is_sure else [one for one, _ in together]:
            one.read_until = one.known_end
            lineage.learn(one, NEVER if is_sure else one.read_until)
        lineage.settle(by_latest)
        for one in witnesses if is_sure else ():
            one.sure_until, one.dead_from = one.read_until, one.left_from
        is_sure = False


def _settle_unknown(witnesses: Sequence[_Witness]) -> int:
    """The offset from which nothing is sure, because a copy's last epochs are not known."""
    rest = [one for one in witnesses if one.unknown_from < one.end]
    if rest and not any(one.runs for one in witnesses):
        first = max(rest, key=lambda one: one.end)
        first.sure_until, first.unknown_from = first.end, NEVER  # if the others have its bytes
        rest.remove(first)
    sure = {
        extent.content
        for one in witnesses
        for extent in one.extents
        if extent.end <= one.sure_until
    }
    for one in rest:
        same = [extent.end for extent in one.extents if extent.content and extent.content in sure]
        one.sure_until = max([one.sure_until, *same])
    for one in witnesses:
        one.read_until = max(one.read_until, one.sure_until)
        one.unknown_from = max(one.unknown_from, one.read_until)
    doubts = [one for one in rest if one.unknown_from < one.end and one.dead_from == NEVER]
    return min((one.sure_until for one in doubts), default=NEVER)


def _conflict(witnesses: Sequence[_Witness]) -> int:
    """The offset from which sure segments of the same offsets have different bytes; NEVER."""
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    found = NEVER
    for one in witnesses:
        found = min(found, one.dead_from if one.dead_from < one.sure_until else NEVER)
        for extent in one.extents:
            is_sure = extent.is_whole and extent.is_dense and extent.end <= one.sure_until
            content = extent.content if is_sure else None
            if content and seen.setdefault(content[:2], content) != content:
                found = min(found, content[0])
    return found


def _order(copies: Sequence[Copy], read: Sequence[_Witness]) -> Any:
    """The key that sorts witnesses in the order in which they are read."""
    keys = {}
    for copy in {one.copy for one in read}:
        parts = [
            (extent.base, min(extent.end, one.read_until))
            for one in read
            if one.copy == copy
            for extent in one.extents
            if extent.base < one.read_until
        ]
        end, has = (
            max((end for _, end in parts), default=0),
            sum(max(end - base, 0) for base, end in parts),
        )
        keys[copy] = (copies[copy].is_remote, -end, -has, copy)
    return lambda one: (keys[one.copy], one.extents[0].base)


class _Paint:
    """The slices of several copies: offsets that one has given are not taken from the next."""

    def __init__(self, copies: Sequence[Copy], first: int, compacted: bool) -> None:
        self.copies, self.first, self.compacted = copies, first, compacted
        self.begins: list[int] = []  # of what is covered: ranges that do not touch
        self.ends: list[int] = []
        self.slices: list[Slice] = []
        self.gaps: list[tuple[int, int]] = []

    def add(self, witness: _Witness, begin: int, end: int, certainty: Certainty) -> None:
        if begin >= end:
            return
        is_fill = self.compacted and witness.copy != self.first
        certainty = max(certainty, Certainty.COMPACTED if is_fill else Certainty.SURE)
        before: _Extent | None = None
        for extent in witness.extents:
            is_gap = before is not None and before.is_whole and before.end < extent.base <= end
            if is_gap and self.compacted and not is_fill and before is not None:
                self.gaps += self._free(max(before.end, begin), extent.base)
            before = extent
            for here in self._free(max(begin, extent.base), min(end, extent.end)):
                self.slices.append(Slice(witness.copy, extent.row, *here, certainty))

    def _free(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of a range that were not covered; now they are."""
        if begin >= end:
            return []
        here = slice(bisect_left(self.ends, begin), bisect_right(self.begins, end))
        begins, ends = [begin, *self.ends[here]], [*self.begins[here], end]
        self.begins[here], self.ends[here] = [min(begin, *ends)], [max(end, *begins)]
        return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]

    def notes(self, witnesses: Sequence[_Witness]) -> Iterator[Note]:
        """What the first copy lacks, and which copy has it."""
        extents = [(extent, one.copy) for one in witnesses for extent in one.extents]
        mine = [extent for extent, copy in extents if copy == self.first]
        start, end = min([one.base for one in mine] or [0]), max([one.end for one in mine] or [0])
        for one in self.slices:
            is_other = one.copy != self.first and not self.copies[self.first].is_remote
            if is_other and one.from_offset < end:
                kind = Kind.EARLIER if one.until_offset <= start else Kind.FILLED
                yield Note(kind, self.first, *one[2:4], one.copy)
        for begin, end in zip(self.ends, self.begins[1:], strict=False):
            yield Note(Kind.HOLE, self.first, begin, end)
        for begin, end in self.gaps:
            others = (copy for extent, copy in extents if extent.base < end and extent.end > begin)
            yield Note(Kind.POSSIBLE, self.first, begin, end, next(others, NOT_KNOWN))


def _weakened(one: Slice, conflict: int, unknown: int) -> Iterator[Slice]:
    """A slice in parts, each with its certainty."""
    bounds = sorted({*one[2:4], *(at for at in (conflict, unknown) if one[2] < at < one[3])})
    for begin, end in pairwise(bounds):
        least = Certainty.UNSURE if begin >= conflict else Certainty.SURE
        least = Certainty.UNKNOWN if begin >= unknown else least
        yield Slice(*one[:2], begin, end, max(one.certainty, least))


def _notes_of_copies(
    copies: Sequence[Copy], witnesses: Sequence[_Witness], slices: Sequence[Slice]
) -> Iterator[Note]:
    """Where copies leave the log, where they are not sure, and where each ends."""
    ends = {one.copy: 0 for one in witnesses if one.extents}
    for one in witnesses:
        if not one.extents:
            continue
        base, end = min(one.extents[0].base, one.unknown_from), one.end
        ends[one.copy] = max(ends[one.copy], min(end, one.left_from))
        unsure_end = max(one.read_until, end if one.left_from < one.dead_from else 0)
        for kind, first, last in (
            (Kind.DIFFER, one.dead_from, end),
            (Kind.UNSURE, one.sure_until, min(unsure_end, one.dead_from, end)),
            (Kind.UNKNOWN, one.unknown_from, end),
        ):
            if max(first, base) < last:
                yield Note(kind, one.copy, max(first, base), last)
    log_end = max((one.until_offset for one in slices), default=0)
    for copy, end in ends.items():
        if end < log_end and not copies[copy].is_remote:
            yield Note(Kind.BEHIND, copy, end, log_end)
    by_end = sorted((end, copy) for copy, end in ends.items())
    if len(by_end) > 1 and by_end[-2][0] < by_end[-1][0] == log_end:
        yield Note(Kind.ALONE, by_end[-1][1], by_end[-2][0], log_end)
