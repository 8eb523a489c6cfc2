"""Put the segments of two tiers together into one log: each record once.

Brokers upload closed segments and keep them for a while, so both tiers have the newest of them.
Segments need not begin at the same offsets in both: after a change of leaders the new leader
uploads its own segments, which may begin in the middle of one that is there already. And a leader
may have uploaded records that the next leader never had. So the bucket may have segments that share
offsets, and the leader epochs of their batches say which ones are of the log (Kafka 4.3:
`RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`): see `rules.leader_epochs.lineage_of`.

Of equal records those of the local tier are read, as brokers do, and a segment that is whole before
one that is not. A segment is read from its start up to where the next one begins.

Only leader epochs tell whether records after the end of the local log are of the log. Where those
of a remote segment, or of the end of the local log, are not known, such records are unsure.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kip33.formats.partition_metadata import EpochStart
from kip33.rules.leader_epochs import lineage_of, where_it_leaves
from kip33.rules.offset_holes import UNKNOWN_END, Int64s, Mask
from kip33.rules.retention import running_max

UNKNOWN_FIGURE: Final = -(2**63)
NO_NEXT: Final = 2**63 - 1
Epochs: TypeAlias = tuple[EpochStart, ...]
_LOCAL, _REMOTE, _CUT, _DAMAGED = range(4)  # in the order in which they are read


class EpochColumns(NamedTuple):
    """The leader epochs of segments: those of segment i are at `places[i]` to `places[i + 1]`."""

    places: Int64s
    epochs: Int64s
    first_offsets: Int64s

    def of(self, segment: int) -> Epochs:
        """Return those of a segment; none if they are not known."""
        here = slice(*self.places[segment : segment + 2].tolist())
        columns = (self.epochs[here].tolist(), self.first_offsets[here].tolist())
        return tuple(map(EpochStart, *columns))

    def first(self) -> Int64s:
        """Return the first of each segment; UNKNOWN_FIGURE without any."""
        return self._at(self.places[:-1])

    def latest(self) -> Int64s:
        """Return the latest of each segment; UNKNOWN_FIGURE without any."""
        return self._at(self.places[1:] - 1)

    def _at(self, places: Int64s) -> Int64s:
        has_any = self.places[1:] > self.places[:-1]
        found = np.full(len(has_any), UNKNOWN_FIGURE)
        found[has_any] = self.epochs[places[has_any]]
        return found


class TierSegments(NamedTuple):
    """The segments of both tiers, in order, local ones first; one element for each in a column."""

    partitions: Int64s  # numbers, different for each local replica
    base_offsets: Int64s
    ends: Int64s  # exclusive, the base offset of an empty one; UNKNOWN_END
    is_remote: Mask
    is_whole: Mask  # all its batches are valid
    is_cut: Mask  # its batches are valid up to `ends`, and then it is damaged
    figures: Int64s  # a row for each: what copies have in common; UNKNOWN_FIGURE
    epochs: EpochColumns


class PutTogether(NamedTuple):
    """What two tiers have twice; one element for each segment in a column."""

    is_copy: Mask  # other segments have its records
    is_different: Mask  # the same offsets as another segment, but not the same records
    outside_from: Int64s  # from here on no record is of the log, by its epoch; UNKNOWN_END: all are
    until_offsets: Int64s  # from here on another segment is read; UNKNOWN_END: it is read whole
    unsure_from: Int64s  # from here on records may have been lost; UNKNOWN_END: all are of the log


class _TierSegment(NamedTuple):
    """A segment of a partition whose segments share offsets."""

    base: int
    end: int  # exclusive
    kind: int
    number: int  # in the columns
    epochs: Epochs

    @property
    def is_local(self) -> bool:
        return self.kind in (_LOCAL, _CUT)


def put_together(
    segments: TierSegments, checkpoints_of: Callable[[Int64s], Mapping[int, Epochs]] = lambda _: {}
) -> PutTogether:
    """Return what is read of each segment.

    `checkpoints_of` returns the leader epochs of the local logs of some partitions, where they are
    known: those without a batch, too. It is asked about partitions that are in doubt.

    >>> none = EpochColumns(np.zeros(5, np.int64), *(np.zeros(0, np.int64),) * 2)
    >>> of = TierSegments(
    ...     partitions=np.zeros(4, np.int64), base_offsets=np.array([0, 10, 10, 20]),
    ...     ends=np.array([10, 20, 20, 30]), is_remote=np.array([True, True, False, False]),
    ...     is_whole=np.ones(4, bool), is_cut=np.zeros(4, bool),
    ...     figures=np.array([[7], [8], [8], [9]]), epochs=none,
    ... )
    >>> put_together(of).is_copy.tolist()
    [False, True, False, False]
    """
    is_same, is_different = _compared(segments)
    rows = len(segments.partitions)
    found = PutTogether(
        is_same, is_different, *(np.full(rows, UNKNOWN_END) for _ in PutTogether._fields[2:])
    )
    ends = _ends(segments)
    groups = list(_groups(segments, ends, np.flatnonzero(~is_same)))
    asked = np.unique(segments.partitions[[group[0] for group in groups]])
    checkpoints = dict(checkpoints_of(asked)) if groups else {}
    for group in groups:
        number, pieces = int(segments.partitions[group[0]]), _pieces(segments, ends, group)
        if any(_contradicts(checkpoints.get(number, ()), one) for one in pieces if one.is_local):
            checkpoints[number] = ()
        _resolve(pieces, checkpoints.get(number, ()), found)
    _mark_unsure(segments, checkpoints, found)
    return found


def _ends(segments: TierSegments) -> Int64s:
    """Return the ends; a damaged segment ends at the latest where the next one begins."""
    bases = segments.base_offsets
    nexts = next_bases(segments.partitions, bases)
    nexts = np.where(nexts == NO_NEXT, bases, nexts)
    return np.where(_has_end(segments), segments.ends, np.where(segments.is_cut, bases, nexts))


def _has_end(segments: TierSegments) -> Mask:
    """Return where the end of the valid batches is known."""
    found: Mask = (segments.is_whole | segments.is_cut) & (segments.ends != UNKNOWN_END)
    return found


def next_bases(partitions: Int64s, bases: Int64s) -> Int64s:
    """Return for each segment where the next one of its partition begins; NO_NEXT without one.

    Those that begin at one offset have the same next one.
    """
    changes = (np.diff(partitions, prepend=-1) != 0) | (np.diff(bases, prepend=-1) != 0)
    begins = np.flatnonzero(changes)  # of those that begin at one offset
    is_inner = np.diff(partitions[begins]) == 0
    nexts = np.append(np.where(is_inner, bases[begins[1:]], NO_NEXT), NO_NEXT)[: len(begins)]
    return np.repeat(nexts, np.diff(begins, append=len(bases)))


def _groups(segments: TierSegments, ends: Int64s, rows: Int64s) -> Iterator[Int64s]:
    """Yield those of `rows` that are in doubt, in order, the ones that share offsets together.

    In doubt are, besides these, damaged remote ones, and those after the end of the local log: a
    leader that lost its records may have uploaded them. And those before and after a change of
    leaders at the end of a segment: the next leader may have begun before.
    """
    is_doubtful = segments.is_remote & ~segments.is_whole
    is_doubtful |= ends > _local_ends(segments, ends)
    numbers, bases = segments.partitions[rows], segments.base_offsets[rows]
    so_far = running_max(ends[rows], np.flatnonzero(np.diff(numbers, prepend=-1)))
    is_apart = (so_far[:-1] <= bases[1:]) & (bases[1:] != bases[:-1])
    is_apart &= ~_has_new_leader(segments, rows)
    begins = np.flatnonzero(np.append(True, (numbers[1:] != numbers[:-1]) | is_apart)[: len(rows)])
    bounds = np.append(begins, len(rows))
    is_chosen = np.diff(bounds) > 1
    if len(begins):
        is_chosen |= np.logical_or.reduceat(is_doubtful[rows], begins)
    for at in np.flatnonzero(is_chosen).tolist():
        yield rows[bounds[at] : bounds[at + 1]]


def _has_new_leader(segments: TierSegments, order: Int64s) -> Mask:
    """Return for each but the first of `order` if it begins with another epoch than those before.

    A broker's own log has rising epochs, so of two local ones only those that fall are in doubt.
    """
    partitions, first = segments.partitions[order], segments.epochs.first()[order]
    changes = np.flatnonzero(np.diff(partitions, prepend=-1))
    latest = running_max(segments.epochs.latest()[order], changes)[:-1]
    is_known = (first[1:] != UNKNOWN_FIGURE) & (latest != UNKNOWN_FIGURE)
    is_remote = segments.is_remote[order]
    may_rise = ~is_remote[1:] & ~is_remote[:-1]
    is_other = np.where(may_rise, first[1:] < latest, first[1:] != latest)
    found: Mask = is_known & is_other & (partitions[1:] == partitions[:-1])
    return found


def _local_ends(segments: TierSegments, ends: Int64s) -> Int64s:
    """Return for each segment where its partition's local log ends; beyond all without one."""
    found = np.full(segments.partitions.max(initial=-1) + 1, NO_NEXT)
    here = ~segments.is_remote
    found[segments.partitions[here]] = -1
    np.maximum.at(found, segments.partitions[here], ends[here])
    return found[segments.partitions]


def _pieces(segments: TierSegments, ends: Int64s, rows: Int64s) -> list[_TierSegment]:
    columns = (
        *(segments.base_offsets[rows].tolist(), ends[rows].tolist(), rows.tolist()),
        *(mask[rows].tolist() for mask in (segments.is_remote, segments.is_whole, segments.is_cut)),
    )
    pieces = []
    for base, end, row, is_remote, is_whole, is_cut in zip(*columns, strict=True):
        kind = _CUT if is_cut else _REMOTE if is_remote else _LOCAL
        kind = kind if is_whole or is_cut else _DAMAGED
        pieces.append(_TierSegment(base, end, kind, row, segments.epochs.of(row)))
    return pieces


def _resolve(pieces: Sequence[_TierSegment], checkpoint: Epochs, found: PutTogether) -> None:
    """Fill in what is read of the segments of one partition."""
    valid = [piece for piece in pieces if piece.kind != _DAMAGED]
    lineage = lineage_of([piece.epochs for piece in valid if piece.epochs], checkpoint)
    usable = []
    for piece in valid:
        until = where_it_leaves(piece.epochs, piece.end, lineage)
        if until is not None:
            found.outside_from[piece.number] = found.until_offsets[piece.number] = until
            found.is_different[piece.number] &= until > piece.base
        if not found.is_different[piece.number] and (until is None or until > piece.base):
            usable.append(piece._replace(end=piece.end if until is None else until))
    empty = [piece for piece in usable if piece.end == piece.base]
    chosen = dict(_chain([piece for piece in usable if piece.end > piece.base]))
    for piece, end in chosen.items():
        if end < piece.end:
            found.until_offsets[piece.number] = end
    read = list(chosen)
    bases = [piece.base for piece in read]
    for piece in empty:  # within a segment that is read it ends no log
        found.is_copy[piece.number] = any(one.base <= piece.base < chosen[one] for one in read)
    others = [piece for piece in usable if piece.end > piece.base and piece not in chosen]
    others += [piece for piece in pieces if piece.kind == _DAMAGED and piece.end > piece.base]
    for piece in others:
        after = read[max(bisect_right(bases, piece.base) - 1, 0) :]
        found.is_copy[piece.number] = _covers(after, chosen, piece)


def _contradicts(checkpoint: Epochs, piece: _TierSegment) -> bool:
    """Return whether a checkpoint is not that of a local segment: older, newer, or damaged."""
    own = lineage_of([piece.epochs] if piece.epochs else [], checkpoint)
    return where_it_leaves(piece.epochs, piece.end, own) is not None


def _may_stand_for(one: _TierSegment, other: _TierSegment) -> bool:
    """Return whether records of `one` are those of `other` at the same offsets.

    Without epochs they may be other records, but a broker reads its own. What it cut is lost there.
    """
    if other.is_local:
        return not one.is_local and (other.kind == _CUT or bool(one.epochs and other.epochs))
    return one.is_local or bool(one.epochs and (other.epochs or other.kind == _DAMAGED))


def _covers(
    read: Sequence[_TierSegment], ends: Mapping[_TierSegment, int], piece: _TierSegment
) -> bool:
    """Return whether segments that are read, in order, have all records of `piece`."""
    reached = piece.base
    for one in read:
        if one.base > reached or reached >= piece.end:
            break
        if _may_stand_for(one, piece):
            reached = max(reached, ends[one])
    return reached >= piece.end


def _chain(pieces: Sequence[_TierSegment]) -> Iterator[tuple[_TierSegment, int]]:
    """Yield the segments that are read, each with the offset where its reading ends."""
    reach = _local_reach(pieces)
    best: dict[int, _TierSegment] = {}
    for piece in sorted(pieces, key=lambda one: (one.base, one.kind, -one.end)):
        other = best.setdefault(piece.base, piece)
        is_longer = piece.end > reach.get(other.number, other.end)
        if is_longer and piece.epochs and other.epochs:  # the local log ends before it
            best[piece.base] = piece
    ordered, bases = list(best.values()), list(best)
    at = 0
    while at < len(ordered):
        piece = ordered[at]
        last = bisect_right(bases, piece.end)
        following = _next(piece, ordered[at + 1 : last], reach)
        end = piece.end if following is None else min(piece.end, following.base)
        yield piece, end
        at = last if following is None else bases.index(following.base, at)


def _next(
    piece: _TierSegment, candidates: Sequence[_TierSegment], reach: Mapping[int, int]
) -> _TierSegment | None:
    """Return what is read after `piece`: what leads farthest; None: what begins after its end.

    If several do, the local log is read as early as it can be, and `piece` as far as it can be.
    """
    best: tuple[tuple[int, bool, int], _TierSegment] | None = None
    for one in candidates:
        end, is_local = reach.get(one.number, one.end), one.number in reach
        may_follow = one.base == piece.end or (is_local and not piece.is_local)
        may_follow |= _may_stand_for(one, piece) and bool(one.epochs and piece.epochs)
        rank = end, is_local, -one.base if is_local else one.base
        is_later = end > piece.end or (end == piece.end and is_local and not piece.is_local)
        if may_follow and is_later and (best is None or rank > best[0]):
            best = rank, one
    return best and best[1]


def _local_reach(pieces: Sequence[_TierSegment]) -> dict[int, int]:
    """Return for each whole segment of the local tier where the local log from there ends."""
    local = sorted((one for one in pieces if one.is_local), key=lambda one: one.base)
    ends = {one.base: one.end for one in local}
    reach: dict[int, int] = {}
    for one in reversed(local):
        ends[one.base] = max(one.end, ends.get(one.end, one.end))
        if one.kind == _LOCAL:
            reach[one.number] = ends[one.base]
    return reach


def _mark_unsure(
    segments: TierSegments, checkpoints: Mapping[int, Epochs], found: PutTogether
) -> None:
    """Fill in from where on records may be of no log, because leader epochs are not known.

    A local log goes at least to where a segment begins whose end is not known, a remote segment of
    unknown end up to the next one. What is not after the end of the local log is in no doubt.
    """
    partitions, bases, has_end = *segments[:2], segments.ends != UNKNOWN_END
    has_epochs = segments.epochs.latest() != UNKNOWN_FIGURE
    least_ends = np.where(has_end, segments.ends, bases)
    local_ends = _local_ends(segments, least_ends)
    tells = np.ones(partitions.max(initial=-1) + 1, bool)  # whose epoch at the local end is known
    local = np.flatnonzero(~segments.is_remote & ~(has_end & (least_ends == bases)))
    starts = np.flatnonzero(np.diff(partitions[local], prepend=-1))
    local = local[least_ends[local] >= running_max(least_ends[local], starts)]
    tells[partitions[local]] = has_epochs[local]  # of the last one
    tells[[number for number, epochs in checkpoints.items() if epochs]] = True
    at = np.flatnonzero(segments.is_remote & ~found.is_copy & ~found.is_different)
    ends = np.where(has_end[at], segments.ends[at], next_bases(partitions[at], bases[at]))
    until = found.until_offsets[at]
    ends = np.where(until == UNKNOWN_END, ends, np.minimum(ends, until))
    is_unsure = (ends > local_ends[at]) & (ends > bases[at])
    is_unsure &= ~(has_epochs[at] & tells[partitions[at]])
    at = at[is_unsure]
    found.unsure_from[at] = np.maximum(bases[at], local_ends[at])


def _compared(segments: TierSegments) -> tuple[Mask, Mask]:
    """Return which segments are the same as an earlier one, local before remote, and which differ.

    Only whole segments with the same first and last offset and the same latest leader epoch, as far
    as it is known, are compared.
    """
    rows = len(segments.partitions)
    is_same, is_different = np.zeros(rows, bool), np.zeros(rows, bool)
    whole = np.flatnonzero(_has_end(segments))
    if not len(whole):
        return is_same, is_different
    columns = [segments.is_remote, segments.ends, segments.base_offsets, segments.partitions]
    latest = segments.epochs.latest()
    order, begins = _grouped(columns, whole)
    of_group = np.maximum.reduceat(latest[order], np.flatnonzero(begins))[np.cumsum(begins) - 1]
    latest[order] = np.where(latest[order] == UNKNOWN_FIGURE, of_group, latest[order])
    order, begins = _grouped([segments.is_remote, latest, *columns[1:]], whole)
    first = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    mine, theirs = segments.figures[order], segments.figures[first]
    is_unknown = (mine == UNKNOWN_FIGURE) | (theirs == UNKNOWN_FIGURE)
    is_equal = ((mine == theirs) | is_unknown).all(axis=1)
    is_compared = ~begins & segments.is_remote[order]
    is_same[order] = is_compared & is_equal
    is_different[order] = is_compared & ~is_equal
    return is_same, is_different


def _grouped(columns: Sequence[Any], rows: Int64s) -> tuple[Int64s, Mask]:
    """Return rows sorted by columns, the last one first, and where all but the first one change."""
    order = rows[np.lexsort(tuple(column[rows] for column in columns))]
    keys = np.stack([column[order] for column in columns[1:]])
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return order, begins
