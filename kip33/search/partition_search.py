"""Offsets for times in one partition: the first record at or after each of them.

A segment whose batches are all earlier is not opened. Each other segment is opened once, oldest
first, and searched for the times that are not answered yet, in ascending order. The answer is exact
to the record. A search reads a few KiB of an index, and batches from the one that an entry names.
Without index files it walks the headers from the segment's start. `kip33/search/README.md` says
which files are trusted, and what a search cannot detect.

If Kafka would answer "unknown" although a later segment has a record, `as_kafka` gives that answer
and a note names what hid the record; otherwise the search continues.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cache
from typing import Final

from kip33.archive.log_slice import OpenSlice
from kip33.archive.log_window import Meter
from kip33.errors import FileReadError, Kip33Error
from kip33.rules.search import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    READS_THE_MAX,
    TRAPS,
    Exactness,
    SearchResult,
    choice_for_max,
    largest_of,
    require_target,
    trap,
)
from kip33.rules.segment_summary import SegmentStatus
from kip33.search.answers import Answer, Hit, Pending, SearchOptions
from kip33.search.index_lookup import IndexLookup
from kip33.search.searched_segment import MAX_BELIEVED, SearchedSegment, holes_of, losses_of
from kip33.search.segment_search import LATER_THAN_ALL_MS, SegmentSearch, opened_search
from kip33.search.tier_ends import (
    brokers_choice,
    earliest_local,
    end_of_empty_active,
    last_of_broker,
    latest_tiered,
    maxima_of_broker,
)
from kip33.stores.files import one_line

_PASSED_OVER: Final = "skipped: a record there could be earlier"
_IN_A_HOLE: Final = "a record there could be the answer"
_BELIEVED: Final = (
    "unverified segments were skipped by the last entry of their .timeindex: entries that it lost "
    "could name an earlier record"
)


def search_partition(
    segments: Sequence[SearchedSegment],
    targets_ms: Sequence[int],
    how: SearchOptions = SearchOptions(),  # noqa: B008 - it cannot be changed
    *,
    log_start_offset: int | None = None,
) -> list[Answer]:
    """Return the answer for each target, in their order; `segments` of one partition, any order.

    A target is a time in ms, or one of TARGETS of `kip33.rules.search`; anything else is a
    ValueError. Records below `log_start_offset` are ignored. `as_kafka` answers as a
    broker of `kafka_version` with correct indexes would. `index_only` opens no log, ignores
    `as_kafka`, and trusts an entry whose neighbours are in order. A segment that cannot be searched
    is skipped with a note; no error is raised. A batch that decompresses to more than
    `max_batch_bytes` is not read further; if the answer may be in it, it has exactness `batch`.
    """
    for target in targets_ms:
        require_target(target)
    every = sorted(segments, key=lambda one: (one.begin_offset, bool(one.is_remote), one.log_uri))
    ordered = [segment for segment in every if not segment.is_unread]
    if not ordered:
        none = SearchResult.NO_SUCH_PARTITION
        return [Answer(t, None, None, none, Exactness.RECORD, 0, None) for t in targets_ms]
    how = how._replace(as_kafka=how.as_kafka and not how.index_only)
    meter = Meter(how.max_batch_bytes, how.max_record_bytes)
    known = _PartitionSegments(ordered, log_start_offset, meter, how)
    search = _Search(known, meter, how, every)
    found = {target: search.pending(target) for target in set(targets_ms)}
    waiting = [pending for pending in found.values() if pending.answer is None]
    search.ask(sorted(waiting, key=lambda pending: (pending.time_ms, pending.target_ms)))
    return search.answers([found[target] for target in targets_ms])


class _PartitionSegments:
    """The segments of one partition, oldest first, for searches from a log start offset on.

    `losses` has for each segment what was lost before it or in it, `holes` what is missing after
    it, `maxima` its largest timestamp, None if unknown, -1 without any. A file is read at most once
    to answer the questions below.
    """

    def __init__(
        self,
        segments: list[SearchedSegment],
        log_start_offset: int | None,
        meter: Meter,
        how: SearchOptions,
    ) -> None:
        """Take segments in ascending order of their base offsets."""
        self.ordered = segments
        self.start_offset = max(segments[0].begin_offset, log_start_offset or 0)
        self.losses = losses_of(segments, self.start_offset)
        self.holes = holes_of(segments, self.start_offset)
        self.maxima = [None if s.doubt else -1 if s.is_bare else s.max_timestamp for s in segments]
        # The log of an unverified segment may go on after the last entry of its index, and the
        # index may have lost its last entries. So such a log is searched, unless only the indexes
        # are asked, or a broker's answer: then a note says so.
        is_believed = how.index_only or how.as_kafka
        self.has_unverified = any(s.status == SegmentStatus.UNVERIFIED for s in segments)
        for place, segment in enumerate(segments):
            is_last = place + 1 == len(segments)
            if segment.status == SegmentStatus.UNVERIFIED and (is_last or not is_believed):
                segments[place] = segment._replace(max_timestamp=None)
        self._index_only, self._meter = how.index_only, meter
        self._look_for_records = cache(self._looked_for_records)
        self._look_for_timestamp = cache(self._looked_for_timestamp)

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
        if segment.is_bare or segment.record_count == 0 or segment.ends_before(self.start_offset):
            return False
        is_whole = segment.until_offset is None and segment.from_offset is None
        if segment.base_offset >= self.start_offset and is_whole:
            return True
        counts, note = self._look_for_records(segment)
        pending.notes += [note] if note else []
        return counts

    def _looked_for_records(self, segment: SearchedSegment) -> tuple[bool, str | None]:
        """Return whether a segment may have such a record, and a note if that is unknown."""
        try:
            with self._walked(segment) as log:
                counts, why = any(map(log.window.has_record, log.headers())), log.window.damage
            if counts or not why:
                return counts, None
        except (FileReadError, Kip33Error) as error:
            why = one_line(error)
        unknown = "it may have the partition's first record"
        return True, f"{segment.log_uri}: cannot be read: {why}; {unknown}"

    def _walked(self, segment: SearchedSegment) -> AbstractContextManager[OpenSlice]:
        return segment.between(self.start_offset).opened(self._meter, check_crc=True)

    def not_found(self) -> SearchResult:
        """The result of a search without a record.

        NO_TIMESTAMPS if there are records at or after the log start offset, and no batch there has
        a time: they would be skipped as if they were before the target. Else AFTER_END.
        """
        known = [place for place, one in enumerate(self.ordered) if self._is_known(one)]
        has_records = any(self.ordered[place].record_count != 0 for place in known)
        if has_records and not any(map(self._has_timestamp, known)):
            return SearchResult.NO_TIMESTAMPS
        return SearchResult.AFTER_END

    def _is_known(self, segment: SearchedSegment) -> bool:
        is_left_out = segment.doubt or segment.is_bare
        return not (is_left_out or segment.ends_before(self.start_offset))

    def _has_timestamp(self, place: int) -> bool:
        """Return whether a batch at or after the log start offset has a timestamp."""
        segment, known = self.ordered[place], self.maxima[place]
        if known is None or known < 0:
            return False
        if self._index_only or segment.base_offset >= self.start_offset:
            return True
        return self._look_for_timestamp(segment)

    def _looked_for_timestamp(self, segment: SearchedSegment) -> bool:
        try:
            with self._walked(segment) as log:
                return any(
                    header.last_offset >= self.start_offset and header.max_timestamp >= 0
                    for header in log.headers()
                )
        except (FileReadError, Kip33Error):
            return True  # the search that found nothing said why

    def largest_record(self, claimed_ms: int) -> tuple[int, Hit] | None:
        """Return the record with the largest timestamp, None if no record can be read.

        Its segment's number is before it.

        `claimed_ms` is the largest timestamp in the headers; no record has it. First the batches
        with the largest claims below it are decoded, then those that claim more than these have. No
        batch is decoded twice, so the cost is proportional to the log's size.
        """
        claimed = -1
        for segment in self.ordered:
            if not segment.ends_before(self.start_offset) and segment.may_hold(claimed + 1):
                with suppress(FileReadError, Kip33Error), self._opened(segment) as search:
                    claimed = max(claimed, search.largest_below(claimed_ms))
        best = self._largest(None, claimed, None)
        if claimed >= 0:
            best = self._largest(best, 0, claimed)
        return best

    def _largest(
        self, best: tuple[int, Hit] | None, claimed_from: int, claimed_below: int | None
    ) -> tuple[int, Hit] | None:
        """Return a segment's number and its hit, or `best` if that is larger.

        Of equal timestamps the first in the partition wins.
        """
        for place, segment in enumerate(self.ordered):
            least = max(best[1].claimed, 0) if best else 0
            is_late_enough = segment.may_hold(max(least, claimed_from, 0))
            if segment.ends_before(self.start_offset) or not is_late_enough:
                continue
            with suppress(FileReadError, Kip33Error), self._opened(segment) as search:
                hit = search.find_largest(least, claimed_from, claimed_below)
                if hit and (best is None or _is_larger(place, hit, best)):
                    best = place, hit
        return best

    def _opened(self, segment: SearchedSegment) -> AbstractContextManager[SegmentSearch]:
        """Open a segment again; a fault was noted when it was searched before."""
        return opened_search(segment, segment.between(self.start_offset), self._meter)


class _Search:
    """The segments of one partition, oldest first, and the options of the search."""

    def __init__(
        self,
        segments: _PartitionSegments,
        meter: Meter,
        how: SearchOptions,
        every: Sequence[SearchedSegment],
    ) -> None:
        """Take the segments to search, and all of both tiers, with copies."""
        self._known, self._segments = segments, segments.ordered
        self._every = every
        self._start_offset = segments.start_offset
        self._as_kafka, self._index_only = how.as_kafka, how.index_only
        self._max_of_index = how.as_kafka and how.kafka_version < READS_THE_MAX
        self._meter = meter

    def pending(self, target_ms: int) -> Pending:
        """Return a target, already answered if the catalog alone has the answer."""
        pending = Pending(target_ms, target_ms)
        if target_ms == EARLIEST:
            if self._known.losses[0]:
                pending.notes.append(f"{self._segments[0].log_uri}: {self._known.losses[0]}")
            pending.settle(SearchResult.FOUND, self._start_offset)
        elif target_ms == LATEST:
            self._settle_latest(pending)
        elif target_ms in (EARLIEST_LOCAL, LATEST_TIERED):
            self._settle_tier(pending)
        elif target_ms == MAX_TIMESTAMP:
            unknown = not self._as_kafka and any(
                s.may_hold(LATER_THAN_ALL_MS) for s in self._segments
            )
            maxima = self._known.maxima
            if self._as_kafka:
                maxima, note = maxima_of_broker(self._segments, maxima)
                pending.notes += [note] if note else []
            pending.time_ms = LATER_THAN_ALL_MS if unknown else largest_of(maxima)
            pending.choice = choice_for_max(maxima)
            if self._as_kafka and self._known.has_unverified:
                pending.pass_over(MAX_BELIEVED)
            if self._max_of_index and pending.choice is not None and pending.time_ms < 0:
                pending.settle(SearchResult.FOUND, self._segments[pending.choice].base_offset)
        else:
            choice = brokers_choice(self._segments, target_ms, self._start_offset)
            pending.choice, pending.then = choice
        return pending

    def _settle_tier(self, pending: Pending) -> None:
        """Answer where the local tier begins, or where the remote tier ends."""
        if pending.target_ms == LATEST_TIERED:
            found = latest_tiered(self._every, as_kafka=self._as_kafka)
        else:
            found = earliest_local(self._every, self._start_offset, as_kafka=self._as_kafka)
        if found.doubt:
            pending.pass_over(found.doubt)
        result = SearchResult.FOUND if found.is_there else SearchResult.NOT_IN_TIER
        pending.settle(result, found.offset)

    def _settle_latest(self, pending: Pending) -> None:
        active_end = end_of_empty_active(self._every) if self._as_kafka else None
        if active_end is not None:
            pending.settle(SearchResult.FOUND, max(active_end, self._start_offset))
            return
        last = last_of_broker(self._segments) if self._as_kafka else self._segments[-1]
        longest = last if self._as_kafka else max(self._segments, key=lambda s: s.span.end)
        is_known = last.last_offset is not None or last.status == SegmentStatus.TRUNCATED
        if not last.doubt and (is_known or last.is_bare):
            end = longest.span.end
            if why := longest.doubt_at(end - 1):
                pending.pass_over(why)
            if end > max(last.span.end, last.base_offset):
                pending.pass_over(f"{longest.log_uri}: ends after the last segment, {last.log_uri}")
            end_offset = max(end, last.base_offset, self._start_offset)
            pending.settle(SearchResult.FOUND, end_offset)
        else:
            pending.pass_over(f"{last.log_uri}: {last.status}, so the last offset is not known")
            pending.settle(SearchResult.FOUND)
        if self._known.losses[-1] and not last.doubt:
            pending.pass_over(f"{last.log_uri}: {self._known.losses[-1]}, so the log may end later")

    def ask(self, waiting: list[Pending]) -> None:
        for place, segment in enumerate(self._segments):
            unanswered = [pending for pending in waiting if pending.answer is None]
            if segment.doubt:
                self._note_loss(place, unanswered)
                continue
            self._note_file_time(segment, unanswered)
            asking = [pending for pending in unanswered if self._asks(pending, place)]
            is_believed = self._as_kafka or segment.max_timestamp is not None
            if segment.status == SegmentStatus.UNVERIFIED and is_believed:
                for pending in unanswered:
                    is_noted = self._as_kafka and pending.target_ms == MAX_TIMESTAMP
                    if pending not in asking and not is_noted:
                        pending.pass_over(_BELIEVED)
            if asking and self._index_only:
                self._ask_index(segment, asking)
            elif asking:
                self._ask_segment(place, asking)
            self._note_loss(place, [pending for pending in unanswered if pending.answer is None])
        for pending in waiting:
            if pending.target_ms == MAX_TIMESTAMP:
                for place in range(len(self._segments)):
                    self._note_loss(place, [pending])  # the largest could be anywhere
                if not self._as_kafka:
                    self._seek_smaller(pending)

    def _note_file_time(self, segment: SearchedSegment, unanswered: list[Pending]) -> None:
        """Say where records without timestamps may be late enough, by the time of their file."""
        if not segment.has_file_time or segment.ends_before(self._start_offset):
            return
        time_ms, offset = segment.largest_timestamp, max(segment.base_offset, self._start_offset)
        for pending in unanswered:
            if time_ms is not None and 0 <= pending.target_ms <= time_ms:
                pending.notes.append(
                    f"{segment.log_uri}: records from offset {offset} on have no timestamps; the "
                    f"log file's time, {time_ms}, is late enough, but it is not trusted"
                )

    def _note_loss(self, place: int, unanswered: list[Pending]) -> None:
        if self._known.losses[place]:
            what = f"{self._segments[place].log_uri}: {self._known.losses[place]}, {_PASSED_OVER}"
            for pending in unanswered:
                pending.pass_over(what)
        if self._known.holes[place]:
            note = f"{self._known.holes[place]}: {_IN_A_HOLE}"
            for pending in unanswered:
                if self._as_kafka:  # a broker answers without them
                    pending.notes.append(note)
                else:
                    pending.pass_over(note)

    def _asks(self, pending: Pending, place: int) -> bool:
        segment = self._segments[place]
        if self._as_kafka and pending.target_ms == MAX_TIMESTAMP:
            return place == pending.choice and not segment.is_bare
        if self._as_kafka and (pending.choice is None or place < pending.choice):
            return False
        is_late_enough = pending.time_ms >= 0 and segment.may_hold(pending.time_ms)
        return is_late_enough and not segment.ends_before(self._start_offset)

    def _ask_index(self, segment: SearchedSegment, asking: list[Pending]) -> None:
        with ExitStack() as files:
            indexes = IndexLookup(segment, files, self._meter)
            for pending in asking:
                before = self._meter.bytes_read
                first = max(segment.begin_offset, self._start_offset)
                offset = max(indexes.first_offset_for(pending.time_ms), first)
                pending.bytes_read += self._meter.bytes_read - before
                pending.notes += [f"{segment.log_uri}: {note}" for note in indexes.notes]
                if segment.until_offset is not None and offset >= segment.until_offset:
                    continue
                if why := segment.doubt_at(offset):
                    pending.pass_over(why)
                pending.settle(SearchResult.FOUND, offset, None, Exactness.INDEX)

    def _ask_segment(self, place: int, asking: list[Pending]) -> None:
        segment = self._segments[place]
        of_log = segment.between(self._start_offset)
        if self._as_kafka:  # a broker reads the file whole
            of_log = of_log._replace(until_offset=None)
        with ExitStack() as files:
            search: SegmentSearch | None = None
            for pending in asking:
                before = self._meter.bytes_read
                try:
                    if search is None:
                        search = files.enter_context(opened_search(segment, of_log, self._meter))
                    self._ask(pending, place, search)
                except (FileReadError, Kip33Error) as error:
                    what = f"cannot be read: {one_line(error)}, {_PASSED_OVER}"
                    pending.pass_over(f"{segment.log_uri}: {what}")
                pending.bytes_read += self._meter.bytes_read - before

    def _ask(self, pending: Pending, place: int, search: SegmentSearch) -> None:
        if pending.target_ms == MAX_TIMESTAMP and self._as_kafka:
            find_max = search.find_indexed_max if self._max_of_index else search.find_max
            hit = find_max(pending.time_ms)
        else:
            hit = search.find(pending.time_ms)
        pending.notes += search.notes
        if hit is None:
            pending.passed_over |= search.log.damage is not None
            return
        self._note_hit(pending, place, hit)
        if self._as_kafka and place not in (pending.choice, pending.then):
            pending.notes.append(
                f"{self._trap(pending)}; the record at offset {hit.offset} is late enough"
            )
            if pending.then is None or place > pending.then:
                pending.settle(self._known.not_found())
            else:
                pending.choice, pending.then = pending.then, None
            return
        if self._as_kafka and hit.exactness == Exactness.BATCH:
            pending.notes.append("a broker returns an error there")
        is_time = pending.target_ms != MAX_TIMESTAMP  # a header may claim less than its records
        is_later = is_time and hit.timestamp is not None and hit.timestamp > pending.time_ms
        is_first = (
            is_later and search.begins_with(hit) and self._known.is_bare_before(place, pending)
        )
        result = SearchResult.BEFORE_START if is_first else SearchResult.FOUND
        pending.settle(result, hit.offset, hit.timestamp, hit.exactness)

    def _note_hit(self, pending: Pending, place: int, hit: Hit) -> None:
        if hit.note:
            pending.notes.append(hit.note)
        if why := self._segments[place].doubt_at(hit.offset):
            pending.pass_over(why)

    def _trap(self, pending: Pending) -> str:
        """Return why a broker finds nothing in the one segment that it searches."""
        segment = self._segments[pending.choice or 0]
        why = trap(
            max_timestamp=segment.max_timestamp,
            target_ms=pending.time_ms,
            begins_below_start=segment.base_offset < self._start_offset,
        )
        return f"{why}: Kafka searches only {segment.log_uri} and finds no record: {TRAPS[why]}"

    def _seek_smaller(self, pending: Pending) -> None:
        """Answer with the largest timestamp of a record if headers claim larger ones."""
        if pending.answer is not None or pending.time_ms < 0 or self._index_only:
            return
        before = self._meter.bytes_read
        found = self._known.largest_record(pending.time_ms)
        if found:
            place, hit = found
            self._note_hit(pending, place, hit)
            pending.settle(SearchResult.FOUND, hit.offset, hit.timestamp, hit.exactness)
        pending.bytes_read += self._meter.bytes_read - before

    def answers(self, asked: list[Pending]) -> list[Answer]:
        """Return the answers after all segments were searched; equal targets share one answer."""
        unanswered = [pending for pending in asked if pending.answer is None]
        before = self._meter.bytes_read
        otherwise = self._known.not_found() if unanswered else SearchResult.AFTER_END
        for pending in unanswered[:1]:
            pending.bytes_read += self._meter.bytes_read - before
        exactness = Exactness.INDEX if self._index_only else Exactness.RECORD
        answers = []
        for pending in asked:
            is_trapped = self._as_kafka and pending.choice is not None and pending.time_ms >= 0
            if pending.answer is None and is_trapped:
                pending.notes.append(self._trap(pending))
                pending.settle(otherwise)
            answers.append(pending.settled(otherwise, exactness))
            pending.bytes_read = 0
        return answers


def _is_larger(place: int, hit: Hit, best: tuple[int, Hit]) -> bool:
    """Return whether a hit is later than the best so far, or equal and before it."""
    return (hit.claimed, -place, -hit.offset) > (best[1].claimed, -best[0], -best[1].offset)
