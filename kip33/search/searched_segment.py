"""The facts about a segment that a search has before it opens a file: one row of the catalog."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from kip33.catalog.tiers import unsure_text
from kip33.rules.offset_holes import UNKNOWN_END, HoleKind, holes_of_one
from kip33.rules.policies import MAX_INT64
from kip33.rules.search import may_hold
from kip33.rules.segment_summary import NOT_READ, SegmentStatus

_LEFT_BEHIND: Final = (
    "an earlier leader wrote its records, and a later one never had them: this replica was left "
    "behind"
)
MAX_BELIEVED: Final = (
    "the largest timestamp of an unverified segment is the last entry of its .timeindex: entries "
    "that it lost could name a later record"
)


class SearchedSegment(NamedTuple):
    """The fields of a catalog row that a search needs.

    Without a row it has the defaults: a search uses the index files beside the log, if any.
    """

    log_uri: str
    base_offset: int
    last_offset: int | None = None
    size_bytes: int | None = None
    valid_bytes: int | None = None
    max_timestamp: int | None = None  # -1: no timestamps; None: unknown
    largest_timestamp: int | None = None  # Kafka's: the file's time if there are no timestamps
    status: str = SegmentStatus.UNVERIFIED
    index_uri: str | None = None  # the .timeindex of the catalog
    record_count: int | None = None  # None: unknown
    # Size and time of the index files after the build; a file with others is another file.
    time_index_bytes: int | None = None
    offset_index_bytes: int | None = None
    time_index_matches: bool | None = None  # its bytes are those of a scan; None: unknown
    offset_index_matches: bool | None = None  # both: the bytes of one scan
    dialect: str | None = None  # of a time index that matches
    file_time_offset: int | None = None  # of the time index's entry, if that has the file's time
    time_index_modified_ms: int | None = None
    offset_index_modified_ms: int | None = None
    out_of_order_batches: int | None = None  # with a timestamp below an earlier batch's
    smallest_timestamp: int | None = None  # of all records; None: unknown
    offset_of_max_timestamp: int | None = None  # last offset of the first batch that has it
    # Of two tiers put together: see `catalog.tiers`.
    is_remote: bool | None = None  # None: there is one tier
    is_copy: bool = False  # another segment has its records
    until_offset: int | None = None  # from here on another segment is read
    outside_from: int | None = None  # from here on its records were lost to a later leader
    unsure_from: int | None = None  # from here on they may have been, see `catalog.tiers`
    latest_epoch: int | None = None  # of its batches

    @property
    def doubt(self) -> str | None:
        """Return the status if it excludes the log's batches from a search, else None."""
        is_lost = self.status in (SegmentStatus.INVALID, *NOT_READ)
        return self.status if is_lost else None

    @property
    def is_bare(self) -> bool:
        """Return whether the segment certainly has no batch."""
        return not self.doubt and (self.status == SegmentStatus.EMPTY or self.size_bytes == 0)

    @property
    def is_outside(self) -> bool:
        """Return whether all its records were lost to a later leader."""
        return self.outside_from is not None and self.outside_from <= self.base_offset

    @property
    def is_read(self) -> bool:
        """Return whether it is of the log, and no other segment has its records."""
        return not self.is_copy and not self.is_outside

    def doubt_at(self, offset: int) -> str | None:
        """Return why its record at an offset may not be of the log, None if it surely is."""
        if self.unsure_from is None or offset < self.unsure_from:
            return None
        return f"{self.log_uri}: {unsure_text(self.unsure_from)}"

    @property
    def end_offset(self) -> int:
        """Return the offset after the last known one, or the base offset."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    @property
    def read_end(self) -> int:
        """Return the offset after the last known one that is read of it."""
        until = self.until_offset
        return self.end_offset if until is None else min(self.end_offset, until)

    @property
    def has_file_time(self) -> bool:
        """Return whether its index has the log file's time, for records without timestamps."""
        return self.file_time_offset is not None

    def may_hold(self, target_ms: int) -> bool:
        """Return whether it may have a record at or after a time."""
        return not self.doubt and not self.is_bare and may_hold(self.max_timestamp, target_ms)


OF_TIERS: Final = (
    *("is_remote", "is_copy", "until_offset", "outside_from", "unsure_from", "latest_epoch"),
)
"""The fields that one catalog does not have."""


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
    first = next((segment for segment in segments if not segment.is_remote), None)
    if first is None:
        return TierEnd(is_there=False)
    doubt = f"{first.log_uri}: {_LEFT_BEHIND}" if first.is_outside and not as_kafka else None
    return TierEnd(True, max(first.base_offset, start_offset), doubt)


def latest_tiered(segments: Sequence[SearchedSegment], *, as_kafka: bool) -> TierEnd:
    """Return the last offset of the log in whole remote segments; doubtful if others end later.

    `segments` are all of both tiers, in order. A broker asks the remote tier for the latest of its
    leader epochs that is there, and goes no farther than that epoch in its own log, even if no
    segment has that offset (`RemoteLogManager.findHighestRemoteOffset`).
    """
    remote = [segment for segment in segments if segment.is_remote]
    of_log = [segment for segment in remote if not segment.is_outside]
    asked = [one for one in remote if one.outside_from != one.base_offset] if as_kafka else of_log
    ends = [
        (min(one.last_offset, MAX_INT64 if one.outside_from is None else one.outside_from - 1), one)
        for one in asked
        if one.status == SegmentStatus.OK and one.last_offset is not None
    ]
    is_there = any(not segment.is_bare for segment in of_log) or bool(ends)
    offset, segment = max(ends, key=itemgetter(0), default=(None, None))
    last = of_log[-1] if of_log else None
    doubt = None
    if last and not last.is_bare and (offset is None or last.base_offset > offset):
        doubt = f"{last.log_uri}: {last.status}, so the remote tier may end later"
    elif offset is not None and segment:
        doubt = segment.doubt_at(offset)
    local = [segment for segment in segments if not segment.is_remote]
    is_end_known = all(one.is_bare or one.last_offset is not None for one in local)
    if as_kafka and offset is not None and local and is_end_known:
        offset = min(offset, max(one.end_offset for one in local) - 1)
    return TierEnd(is_there, offset, doubt)


def losses_of(segments: Sequence[SearchedSegment]) -> list[str | None]:
    """Return for each segment why records may be lost, None if all of them can be read.

    `segments` are of one partition, in order. A truncated segment lost nothing if the next one
    begins where its valid bytes end.
    """
    next_bases = next_bases_of(segments)
    return [
        _loss(segment, next_base) for segment, next_base in zip(segments, next_bases, strict=True)
    ]


def holes_of(segments: Sequence[SearchedSegment]) -> list[str | None]:
    """Return for each segment which offsets are surely missing after it, None if none are.

    `segments` are of one partition, in order. What follows damage is a loss, see `losses_of`.
    """
    notes: list[str | None] = [None] * len(segments)
    columns = (
        [segment.base_offset for segment in segments],
        [_log_end(segment) for segment in segments],
        [bool(s.doubt) or s.status == SegmentStatus.TRUNCATED for s in segments],
        [_is_sparse(segment) for segment in segments],
    )
    for after, first, end, kind in holes_of_one(*columns):
        if kind == HoleKind.CERTAIN:
            where = f"{segments[after].log_uri}: offsets {first} to {end - 1}"
            notes[after] = f"{where} are missing after it"
    return notes


def _log_end(segment: SearchedSegment) -> int:
    """Return the offset after the last one that belongs to the log, or UNKNOWN_END."""
    if segment.last_offset is None:
        return segment.base_offset if segment.is_bare else UNKNOWN_END
    end = segment.last_offset + 1
    return end if segment.until_offset is None else min(end, segment.until_offset)


def _is_sparse(segment: SearchedSegment) -> bool:
    """Return whether it has fewer records than offsets, as after compaction."""
    if segment.record_count is None or segment.last_offset is None:
        return False
    return segment.record_count < segment.last_offset + 1 - segment.base_offset


def next_bases_of(segments: Sequence[SearchedSegment]) -> list[int | None]:
    """Return for each segment the base offset of the next one, None for the last."""
    return [*(segment.base_offset for segment in segments[1:]), None][: len(segments)]


def _loss(segment: SearchedSegment, next_base: int | None) -> str | None:
    if segment.doubt or segment.status != SegmentStatus.TRUNCATED:
        return segment.doubt
    if next_base is not None and next_base <= segment.end_offset:
        return None
    return f"{segment.status} at offset {segment.end_offset}"
