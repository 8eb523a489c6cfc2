"""The segments of one partition, and what is known of their records during a search."""

from typing import Final

from kip33.errors import FileReadError, Kip33Error
from kip33.rules.search import SearchResult
from kip33.rules.search import not_found as result_without_record
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.answers import Pending
from kip33.search.log_window import Meter
from kip33.search.offset_lookup import counts_from, has_timestamp_from
from kip33.search.searched_segment import SearchedSegment, losses_of
from kip33.stores.files import one_line

_NO_LIMIT: Final = 2**63 - 1


class PartitionSegments:
    """The segments of one partition, oldest first, for searches from a log start offset on.

    `losses` has for each segment what was lost before it or in it, `maxima` its largest timestamp,
    None if unknown, -1 without any. A file is read at most once to answer the questions below.
    """

    def __init__(
        self,
        segments: list[SearchedSegment],
        log_start_offset: int | None,
        meter: Meter,
        *,
        index_only: bool,
        as_kafka: bool,
    ) -> None:
        """Take segments in ascending order of their base offsets."""
        self.ordered = segments
        self.start_offset = max(segments[0].base_offset, log_start_offset or 0)
        next_bases = [*(s.base_offset for s in segments[1:]), _NO_LIMIT]
        self.losses = [
            None if next_base <= self.start_offset else loss
            for loss, next_base in zip(losses_of(segments), next_bases, strict=True)
        ]
        self.maxima = [None if s.doubt else -1 if s.is_bare else s.max_timestamp for s in segments]
        # The log of an unverified segment may go on after the last entry of its index, and the
        # index may have lost its last entries. So such a log is searched, unless only the indexes
        # are asked, or a broker's answer: then a note says so.
        is_believed = index_only or as_kafka
        self.has_unverified = any(s.status == SegmentStatus.UNVERIFIED for s in segments)
        for place, segment in enumerate(segments):
            is_last = place + 1 == len(segments)
            if segment.status == SegmentStatus.UNVERIFIED and (is_last or not is_believed):
                segments[place] = segment._replace(max_timestamp=None)
        self._index_only, self._meter = index_only, meter
        self._timed: dict[int, bool] = {}  # by place: see _has_timestamp
        self._counting: dict[int, tuple[bool, str | None]] = {}  # by place: see _counts

    def is_below_start(self, segment: SearchedSegment) -> bool:
        """Return whether all records of a segment are before the log start offset."""
        return segment.last_offset is not None and segment.last_offset < self.start_offset

    def is_bare_before(self, place: int, pending: Pending) -> bool:
        """Return whether no earlier segment has a record at or after the log start offset.

        A segment may have batches without records, if compaction emptied them all. And its last
        batch may end after the log start offset although all its records are before it.
        """
        return not any(self._counts(earlier, pending) for earlier in range(place))

    def _counts(self, place: int, pending: Pending) -> bool:
        """Return whether a segment may have a record at or after the log start offset."""
        segment = self.ordered[place]
        if self.losses[place]:
            return True
        if segment.is_bare or segment.record_count == 0 or self.is_below_start(segment):
            return False
        if segment.base_offset >= self.start_offset:
            return True
        if place not in self._counting:
            self._counting[place] = self._looked_for_records(segment)
        counts, note = self._counting[place]
        pending.notes += [note] if note else []
        return counts

    def _looked_for_records(self, segment: SearchedSegment) -> tuple[bool, str | None]:
        """Return whether a segment may have such a record, and a note if that is unknown."""
        try:
            return counts_from(segment, self.start_offset, self._meter), None
        except (FileReadError, Kip33Error) as error:
            unknown = "it may have the partition's first record"
            return True, f"{segment.log_uri}: cannot be read: {one_line(error)}; {unknown}"

    def not_found(self) -> SearchResult:
        """Return the result of a search without a record: AFTER_END where a time is known.

        If there are batches at or after the log start offset, only their times count: otherwise
        batches without timestamps would be skipped as if they were before the target.
        """
        places = range(len(self.ordered))
        counted = [place for place in places if self._may_count(self.ordered[place])]
        if counted and not any(self._has_timestamp(place) for place in counted):
            return SearchResult.NO_TIMESTAMPS
        return result_without_record(self.maxima)

    def _may_count(self, segment: SearchedSegment) -> bool:
        return not (segment.doubt or segment.is_bare or self.is_below_start(segment))

    def _has_timestamp(self, place: int) -> bool:
        """Return whether a batch at or after the log start offset has a timestamp."""
        segment, known = self.ordered[place], self.maxima[place]
        if known is None or known < 0:
            return False
        if self._index_only or segment.base_offset >= self.start_offset:
            return True
        if place not in self._timed:
            self._timed[place] = self._looked_for_timestamp(segment)
        return self._timed[place]

    def _looked_for_timestamp(self, segment: SearchedSegment) -> bool:
        try:
            return has_timestamp_from(segment, self.start_offset, self._meter)
        except (FileReadError, Kip33Error):
            return True  # the search that found nothing said why
