"""The facts about a segment that a search has before it opens a file: one row of the catalog."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kip33.archive.log_slice import LogSlice
from kip33.archive.log_window import NO_END
from kip33.catalog.logs import OF_LOGS, Row, unsure_text
from kip33.rules.offset_holes import HoleKind, OffsetSpan, holes_between
from kip33.rules.search import may_hold
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.stores.locations import Location

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
    from_offset: int | None = None  # before it another segment is read
    until_offset: int | None = None  # from here on another segment is read
    unsure_from: int | None = None  # from here on its records may be lost: see `catalog.logs`
    certainty: int | None = None  # of these records
    is_unread: bool = False  # others have its records, or they are not of the log
    is_remote: bool | None = None  # for `tier_ends`, like the next ones; None: there is one tier
    outside_from: int | None = None  # from here on its records were lost to a later leader
    leader_epochs: tuple[int, ...] = ()
    leader_epoch_offsets: tuple[int, ...] = ()

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

    def doubt_at(self, offset: int) -> str | None:
        """Return why its record at an offset may not be of the log, None if it surely is."""
        if self.unsure_from is None or offset < self.unsure_from:
            return None
        return f"{self.log_uri}: {unsure_text(self.unsure_from, self.certainty or 0)}"

    @property
    def begin_offset(self) -> int:
        """The first offset that is read of it."""
        return max(self.base_offset, self.from_offset or 0)

    @property
    def end_offset(self) -> int:
        """Return the offset after the last known one, or the base offset."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    @property
    def span(self) -> OffsetSpan:
        """Return what is read of it."""
        begin, records = self.begin_offset, self.record_count
        if records is not None:
            records -= begin - self.base_offset
        return OffsetSpan.of(
            *(begin, self.last_offset, self.until_offset, records),
            is_empty=self.is_bare,
            is_damaged=bool(self.doubt) or self.status == SegmentStatus.TRUNCATED,
        )

    def ends_before(self, offset: int) -> bool:
        """Return whether all its records are known to be before an offset."""
        return self.last_offset is not None and self.last_offset < offset

    @property
    def has_file_time(self) -> bool:
        """Return whether its index has the log file's time, for records without timestamps."""
        return self.file_time_offset is not None

    def between(self, from_offset: int = 0, until_offset: int | None = None) -> LogSlice:
        """Return what is read of it between two offsets; None: to its end."""
        untils = [one for one in (until_offset, self.until_offset) if one is not None]
        return LogSlice(
            Location.of(self.log_uri),
            Location.of(self.index_uri) if self.index_uri else None,
            max(from_offset, self.from_offset or 0),
            min(untils, default=None),
            self.base_offset,
            self.valid_bytes,
        )

    def may_hold(self, target_ms: int) -> bool:
        """Return whether it may have a record at or after a time."""
        return not self.doubt and not self.is_bare and may_hold(self.max_timestamp, target_ms)


_OF_LOG: Final = (
    *("from_offset", "until_offset", "unsure_from", "certainty", "is_unread", "is_remote"),
    "outside_from",
)
_EPOCHS: Final = ("leader_epochs", "leader_epoch_offsets")
SEARCHED: Final = tuple(
    dict.fromkeys((*OF_LOGS, *(name for name in SearchedSegment._fields if name not in _OF_LOG)))
)
"""The catalog's columns that a search needs."""


def segment_of(row: Row, *, is_unread: bool = False) -> SearchedSegment:
    """The segment of a row of a log."""
    known = {name: row[name] for name in SearchedSegment._fields if name in row}
    epochs = {name: tuple(known.get(name) or ()) for name in _EPOCHS}  # it is a key of caches
    return SearchedSegment(**known | epochs | {"is_unread": is_unread})


def losses_of(segments: Sequence[SearchedSegment], offset: int = -1) -> list[str | None]:
    """Return for each segment why records may be lost, None if all of them can be read.

    `segments` are of one partition, in order. A truncated segment lost nothing if the next one
    begins where its valid bytes end. Records before `offset` do not count.
    """
    next_bases = [*(segment.begin_offset for segment in segments[1:]), NO_END]
    pairs = zip(segments, next_bases, strict=False)
    return [
        _loss(segment, next_base) if next_base > offset else None for segment, next_base in pairs
    ]


def holes_of(segments: Sequence[SearchedSegment], offset: int = -1) -> list[str | None]:
    """Return for each segment which offsets are surely missing after it, None if none are.

    `segments` are of one partition, in order. What follows damage is a loss, see `losses_of`.
    Holes that end at `offset`, or before, do not count.
    """
    notes: list[str | None] = [None] * len(segments)
    for after, first, end, kind in holes_between([segment.span for segment in segments]):
        if kind == HoleKind.CERTAIN and end > offset:
            where = f"{segments[after].log_uri}: offsets {first} to {end - 1}"
            notes[after] = f"{where} are missing after it"
    return notes


def _loss(segment: SearchedSegment, next_base: int) -> str | None:
    if (
        segment.doubt
        or segment.status != SegmentStatus.TRUNCATED
        or segment.until_offset is not None
    ):
        return segment.doubt
    if next_base <= segment.end_offset:
        return None
    return f"{segment.status} at offset {segment.end_offset}"
