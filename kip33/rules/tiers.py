"""Put the segments of two tiers together into one log: each record once.

Brokers upload closed segments and keep them for a while, so both tiers have the newest of them.
Segments need not begin at the same offsets in both: after a change of leaders the new leader
uploads its own segments, which may begin in the middle of one that is there already. And a leader
may have uploaded records that the next leader never had. So the bucket may have segments that share
offsets, and the leader epochs of their batches say which ones are of the log (Kafka 4.3:
`RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`): see `rules.leader_epochs.lineage_of`.

Of equal records those of the local tier are read, as brokers do, and a segment that is whole before
one that is not. A segment is read from its start up to where the next one begins.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kip33.formats.partition_metadata import EpochStart
from kip33.rules.leader_epochs import lineage_of, where_it_leaves
from kip33.rules.offset_holes import UNKNOWN_END, Int64s, Mask, Ranges, is_covered
from kip33.rules.retention import running_max

UNKNOWN_FIGURE: Final = -(2**63)
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

    def latest(self) -> Int64s:
        """Return the latest of each segment; UNKNOWN_FIGURE without any."""
        has_any = self.places[1:] > self.places[:-1]
        latest = np.full(len(has_any), UNKNOWN_FIGURE)
        latest[has_any] = self.epochs[self.places[1:][has_any] - 1]
        return latest


class TierSegments(NamedTuple):
    """The segments of both tiers, in any order; one element for each in a column."""

    partitions: Int64s  # numbers, different for each local replica
    base_offsets: Int64s
    ends: Int64s  # exclusive; UNKNOWN_END
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


def partitions_in_doubt(segments: TierSegments) -> Int64s:
    """Return the partitions whose segments share offsets and are no plain copies.

    Also those where the remote tier ends after the local one: a leader that lost its records may
    have uploaded them.
    """
    is_same, _ = _compared(segments)
    ends = np.where(segments.ends == UNKNOWN_END, segments.base_offsets, segments.ends)
    is_damaged = ~(segments.is_whole | segments.is_cut) & segments.is_remote
    left = np.flatnonzero(~is_same)
    order = left[np.lexsort((segments.base_offsets[left], segments.partitions[left]))]
    numbers, bases = segments.partitions[order], segments.base_offsets[order]
    so_far = running_max(ends[order], np.flatnonzero(np.diff(numbers, prepend=-1)))
    shares = (numbers[1:] == numbers[:-1]) & (so_far[:-1] > bases[1:])
    shares |= (numbers[1:] == numbers[:-1]) & (bases[1:] == bases[:-1])
    found = [numbers[1:][shares], segments.partitions[is_damaged]]
    local, both = (_largest_ends(segments, ends, mask) for mask in (~segments.is_remote, None))
    found.append(np.array([key for key, end in local.items() if both[key] > end], np.int64))
    return np.unique(np.concatenate(found))


def put_together(
    segments: TierSegments, checkpoints: Mapping[int, Epochs] | None = None
) -> PutTogether:
    """Return what is read of each segment.

    `checkpoints` has the leader epochs of partitions' local logs, for those in doubt where they are
    known: there an epoch without a batch counts, too.

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
        is_same, is_different, np.full(rows, UNKNOWN_END), np.full(rows, UNKNOWN_END)
    )
    doubtful = partitions_in_doubt(segments)
    at = np.flatnonzero(np.isin(segments.partitions, doubtful) & ~is_same)
    order = at[np.lexsort((segments.base_offsets[at], segments.partitions[at]))]
    bounds = np.flatnonzero(np.diff(segments.partitions[order], prepend=-1, append=-1))
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        of_partition = order[first:end]
        number = int(segments.partitions[of_partition[0]])
        checkpoint = (checkpoints or {}).get(number, ())
        _resolve(_pieces(segments, of_partition), checkpoint, found)
    return found


def _pieces(segments: TierSegments, rows: Int64s) -> list[_TierSegment]:
    """Return some segments, in order; a damaged one ends at the latest where the next begins."""
    bases = segments.base_offsets[rows].tolist()
    ends = segments.ends[rows].tolist()
    pieces = []
    for base, end, row in zip(bases, ends, rows.tolist(), strict=True):
        kind = _REMOTE if segments.is_remote[row] else _LOCAL
        if segments.is_cut[row]:
            kind, end = _CUT, max(end, base)
        elif not segments.is_whole[row] or end == UNKNOWN_END:
            kind = _DAMAGED
            following = bisect_right(bases, base)
            end = bases[following] if following < len(bases) else base
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
    chosen = dict(_chain(usable))
    for piece, end in chosen.items():
        if end < piece.end:
            found.until_offsets[piece.number] = end
    others = [piece for piece in usable if piece not in chosen]
    others += [piece for piece in pieces if piece.kind == _DAMAGED and not piece.is_local]
    for piece in others:
        having = [(one.base, end) for one, end in chosen.items() if _may_stand_for(one, piece)]
        is_empty = piece.end <= piece.base and piece.kind == _DAMAGED
        found.is_copy[piece.number] = not is_empty and _covers(having, piece)


def _may_stand_for(one: _TierSegment, other: _TierSegment) -> bool:
    """Return whether records of `one` are those of `other` at the same offsets.

    Without epochs they may be other records, but a broker reads its own. What it cut is lost there.
    """
    if other.is_local:
        return not one.is_local and (other.kind == _CUT or bool(one.epochs and other.epochs))
    return one.is_local or bool(one.epochs and (other.epochs or other.kind == _DAMAGED))


def _covers(ranges: Sequence[tuple[int, int]], piece: _TierSegment) -> bool:
    zeros = np.zeros(len(ranges), np.int64)
    firsts, ends = np.array(ranges, np.int64).reshape(-1, 2).T
    asked = Ranges(np.zeros(1, np.int64), np.array([piece.base]), np.array([piece.end]))
    return bool(is_covered(asked, Ranges(zeros, firsts, ends))[0])


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


def _compared(segments: TierSegments) -> tuple[Mask, Mask]:
    """Return which segments are the same as an earlier one, local before remote, and which differ.

    Only whole segments with the same first and last offset and the same latest leader epoch, as far
    as it is known, are compared.
    """
    rows = len(segments.partitions)
    is_same, is_different = np.zeros(rows, bool), np.zeros(rows, bool)
    whole = np.flatnonzero((segments.is_whole | segments.is_cut) & (segments.ends != UNKNOWN_END))
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


def _largest_ends(segments: TierSegments, ends: Int64s, mask: Mask | None) -> dict[int, int]:
    chosen = slice(None) if mask is None else mask
    order = np.argsort(segments.partitions[chosen], kind="stable")
    numbers, values = segments.partitions[chosen][order], ends[chosen][order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    if not len(starts):
        return {}
    largest = np.maximum.reduceat(values, starts)
    return dict(zip(numbers[starts].tolist(), largest.tolist(), strict=True))
