"""What only a tier is asked: where the local one begins and the remote one ends, and by a broker.

Of one catalog all segments are local. A broker looks in the remote tier first, and knows no records
that both have as one.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from kip33.archive.log_window import NO_END
from kip33.formats.partition_metadata import EpochStart
from kip33.rules.leader_epochs import with_later_epochs
from kip33.rules.search import kafkas_choice, largest_of
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.searched_segment import SearchedSegment

_LEFT_BEHIND: Final = (
    "an earlier leader wrote its records, and a later one never had them: this replica was left "
    "behind"
)


class TierEnd(NamedTuple):
    """Where one of two tiers begins or ends; without `is_there` the tier has no such segment."""

    is_there: bool
    offset: int | None = None
    doubt: str | None = None  # why the offset may be another one


def earliest_local(
    segments: Sequence[SearchedSegment], start_offset: int, *, as_kafka: bool
) -> TierEnd:
    """Return where the local log begins, which may be one whose records were all lost.

    `segments` are all of both tiers, in order; the log begins at `start_offset`, or later.
    """
    first = next(iter(_local(segments)), None)
    if first is None:
        return TierEnd(is_there=False)
    doubt = f"{first.log_uri}: {_LEFT_BEHIND}" if first.is_outside and not as_kafka else None
    return TierEnd(True, max(first.base_offset, start_offset), doubt)


def latest_tiered(segments: Sequence[SearchedSegment], *, as_kafka: bool) -> TierEnd:
    """Return the last offset of the log in whole remote segments; doubtful if others end later.

    `segments` are all of both tiers, in order.
    """
    remote = [segment for segment in segments if segment.is_remote]
    of_log = [segment for segment in remote if not segment.is_outside]
    whole = [
        one for one in remote if one.status == SegmentStatus.OK and one.last_offset is not None
    ]
    local = _local(segments)
    epochs = _epoch_ends(local) if as_kafka and all(one.leader_epochs for one in whole) else []
    # Without an epoch in common the local batches do not show which ones the broker knows.
    if (highest := _highest_of_broker(whole, epochs)) is not None:
        return TierEnd(True, highest)
    ends = [
        (
            min(one.last_offset or 0, NO_END if one.outside_from is None else one.outside_from - 1),
            one,
        )
        for one in whole
        if not one.is_outside
    ]
    is_there = any(not segment.is_bare for segment in of_log) or bool(ends)
    offset, segment = max(ends, key=itemgetter(0), default=(None, None))
    last = of_log[-1] if of_log else None
    doubt = None
    if last and not last.is_bare and (offset is None or last.base_offset > offset):
        doubt = f"{last.log_uri}: {last.status}, so the remote tier may end later"
    elif offset is not None and segment:
        doubt = segment.doubt_at(offset)
    is_end_known = all(one.is_bare or one.last_offset is not None for one in local)
    if as_kafka and offset is not None and local and is_end_known:
        offset = min(offset, max(one.end_offset for one in local) - 1)
    return TierEnd(is_there, offset, doubt)


def _epoch_ends(local: Sequence[SearchedSegment]) -> list[tuple[int, int]]:
    """The leader epochs of a broker's log and where each ends; of the last one the log's end."""
    starts: tuple[EpochStart, ...] = ()
    for one in local:
        found = map(EpochStart, one.leader_epochs, one.leader_epoch_offsets)
        starts = with_later_epochs(starts, found)
    ends = [
        *(one.start_offset for one in starts[1:]),
        max((one.end_offset for one in local), default=0),
    ]
    return [(one.epoch, end) for one, end in zip(starts, ends, strict=False)]


def _highest_of_broker(
    remote: Sequence[SearchedSegment], epochs: Sequence[tuple[int, int]]
) -> int | None:
    """The last offset of the latest of a broker's leader epochs that the remote tier has.

    It goes no farther than that epoch in the broker's own log, even if no segment has that offset
    (`RemoteLogManager.findHighestRemoteOffset`).
    """
    for epoch, end in reversed(epochs):
        found = [
            following - 1
            for one in remote
            for known, following in zip(
                one.leader_epochs,
                [*one.leader_epoch_offsets[1:], one.end_offset],
                strict=False,
            )
            if known == epoch
        ]
        if found:
            return min(max(found), end - 1)
    return None


def end_of_empty_active(segments: Sequence[SearchedSegment]) -> int | None:
    """Return where a broker's log ends, if its active segment is empty; else None."""
    local = _local(segments)
    return local[-1].base_offset if local and local[-1].is_bare else None


def last_of_broker(segments: Sequence[SearchedSegment]) -> SearchedSegment:
    """The last segment of a broker's own log, if it has one."""
    return (_local(segments) or segments)[-1]


def maxima_of_broker(
    segments: Sequence[SearchedSegment], maxima: Sequence[int | None]
) -> tuple[list[int | None], str | None]:
    """Return the largest timestamps without those of the remote tier, which no broker sees.

    With a note if the largest of all is there.
    """
    local = _of_local(segments, maxima)
    remote = largest_of(maxima)
    note = (
        f"the remote tier has timestamp {remote}; Kafka looks for the largest in the local tier "
        "only (KAFKA-17552)"
    )
    return local, note if remote > largest_of(local) else None


def brokers_choice(
    segments: Sequence[SearchedSegment], target_ms: int, start_offset: int
) -> tuple[int | None, int | None]:
    """Return the numbers of the segments in which a broker looks: a remote one, then a local one.

    Of the remote tier only segments count that begin before the local tier, and whose records
    are all of the log (`RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`).
    """
    largest = [None if one.doubt else one.largest_timestamp for one in segments]
    here = kafkas_choice(_of_local(segments, largest), target_ms)
    before: list[int | None] = []
    for segment, claimed in zip(segments, largest, strict=True):
        if not segment.is_remote:
            break
        is_asked = segment.outside_from is None and not segment.ends_before(start_offset)
        before.append(claimed if is_asked else None)
    remote = kafkas_choice(before, target_ms)
    return (here, None) if remote is None else (remote, here)


def _local(segments: Sequence[SearchedSegment]) -> list[SearchedSegment]:
    return [segment for segment in segments if not segment.is_remote]


def _of_local(segments: Sequence[SearchedSegment], known: Sequence[int | None]) -> list[int | None]:
    pairs = zip(segments, known, strict=True)
    return [None if segment.is_remote else one for segment, one in pairs]
