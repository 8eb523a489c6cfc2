"""A segment's index files, asked where in its log a search for a time begins.

The time index is the catalog's, else the one beside the log; the offset index lies beside the time
index, else beside the log. Neither is believed: what they say is a `Start`, with a claim that the
headers there must bear out. They are opened when first asked.
"""

from contextlib import ExitStack
from typing import NamedTuple

from kip33.errors import CorruptIndexError, Kip33Error
from kip33.formats.batch import RECORD_BATCH_OVERHEAD
from kip33.formats.time_index import TimestampOffset
from kip33.rules.search import (
    Claim,
    first_offset_after,
    names_next_offset,
    reach_of,
    require_order,
)
from kip33.storage.files import opened, reason
from kip33.storage.index_pages import OFFSET_WIDTHS, TIME_WIDTHS, IndexPages
from kip33.storage.locations import Location
from kip33.storage.log_window import Meter
from kip33.storage.searched import SearchedSegment
from kip33.storage.segment_files import beside


class Start(NamedTuple):
    """Where a search for a time begins, if the headers there bear the claim out."""

    position: int
    first_offset: int  # no record at or after the time lies before it
    claim: Claim
    expected_bytes: int | None  # up to the next index point's header; None: to the end


class _Opened(NamedTuple):
    place: Location
    pages: IndexPages
    size_bytes: int


class SegmentIndexes:
    """The two index files of one segment; what is wrong with them is in `notes`."""

    def __init__(self, segment: SearchedSegment, files: ExitStack, meter: Meter) -> None:
        """Open nothing yet; what is opened later closes with `files`."""
        self.notes: list[str] = []
        self._segment, self._files, self._meter = segment, files, meter
        self._log = Location.of(segment.log_uri)
        self._time: _Opened | None = None
        self._offset: _Opened | None = None
        self._is_time_open = self._is_offset_open = self._is_bad = False
        self._dialect: str | None = None
        self._latest: tuple[int, int, Start | None] = (0, 0, None)

    def distrust(self, why: str) -> None:
        """Never ask these files again."""
        self._is_bad = True
        self.notes.append(f"its index is not used: {why}")

    def start_for(self, target_ms: int, end: int) -> Start | None:
        """Return where to begin in a log of `end` bytes, None: at its first batch."""
        low, high, start = self._latest
        if low < target_ms <= high:  # between the same two entries as the time before
            return None if self._is_bad else start
        try:
            return self._start_for(target_ms, end)
        except (CorruptIndexError, OSError) as error:
            self.distrust(reason(error))
            return None

    def first_offset_for(self, target_ms: int) -> int:
        """Return an offset before which no record at or after a time lies, from the entries alone.

        The segment's base offset where they do not tell.
        """
        base_offset = self._segment.base_offset
        try:
            entry, _ = self._around(target_ms)
        except (CorruptIndexError, OSError) as error:
            self.distrust(reason(error))
            entry = None
        if entry is None:
            return base_offset
        return max(base_offset, first_offset_after(entry, self._dialect))

    def _start_for(self, target_ms: int, end: int) -> Start | None:
        entry, after = self._around(target_ms)
        next_offset = names_next_offset(self._dialect)
        loose = tight = None
        if entry:
            claim = Claim(entry, next_offset, tight=False)
            loose = self._place(claim, reach_of(claim), end)
        if after and self._both_are_ours():
            # The same pass wrote both files: a later largest timestamp that an entry records came
            # after the last index point before that entry, or the entry were there already.
            claim = Claim(after, next_offset, tight=True)
            tight = self._place(claim, reach_of(claim) - 1, end)
        if tight and (loose is None or tight.position > loose.position):
            floor = first_offset_after(entry, self._dialect) if entry else self._segment.base_offset
            loose = tight._replace(first_offset=floor)
        self._latest = entry.timestamp if entry else -1, after.timestamp if after else 0, loose
        return loose

    def _around(self, target_ms: int) -> tuple[TimestampOffset | None, TimestampOffset | None]:
        """Return the last entry strictly below a time and the one behind it.

        Entries of zeros are padding: not below anything, and none.
        """
        times = self._times()
        if times is None:
            return None, None
        slot = times.last(
            lambda timestamp, relative: (timestamp, relative) != (0, 0) and timestamp < target_ms
        )
        around = [self._entry(times, slot + step) for step in (-1, 0, 1, 2)]
        require_order(
            [entry for entry in around if entry],
            base_offset=self._segment.base_offset,
            last_offset=self._segment.last_offset,
        )
        return around[1], around[2]

    def _entry(self, times: IndexPages, slot: int) -> TimestampOffset | None:
        if not 0 <= slot < len(times) or times[slot] == (0, 0):
            return None
        timestamp, relative = times[slot]
        return TimestampOffset(timestamp, self._segment.base_offset + relative)

    def _place(self, claim: Claim, offset: int, end: int) -> Start | None:
        """Return the last index point at or before an offset, None where there is none."""
        offsets = self._offsets()
        if offsets is None:
            return None
        relative_offset = offset - self._segment.base_offset
        slot = offsets.last(lambda relative, position: position > 0 and relative <= relative_offset)
        if slot < 0:
            return None
        relative, position = offsets[slot]
        expected = None
        if slot + 1 < len(offsets) and offsets[slot + 1] != (0, 0):
            next_relative, next_position = offsets[slot + 1]
            if next_relative <= relative or next_position <= position:
                raise CorruptIndexError(f".index: entries {slot} and {slot + 1} are out of order")
            expected = next_position - position + RECORD_BATCH_OVERHEAD
        if relative < 0 or position >= end:
            raise CorruptIndexError(f".index: {relative, position} is no place in {end} bytes")
        floor = first_offset_after(claim.entry, self._dialect)
        return Start(position, floor, claim, expected)

    def _times(self) -> IndexPages | None:
        if self._is_bad:
            return None
        if not self._is_time_open:
            self._is_time_open = True
            beside_log = beside(self._log, "timeindex")
            named = Location.of(self._segment.index_uri) if self._segment.index_uri else beside_log
            self._time = self._open(dict.fromkeys((named, beside_log)), TIME_WIDTHS)
            if self._time and self._segment.index_uri and self._time.place == named:
                self._dialect = self._segment.dialect
        return self._time.pages if self._time else None

    def _offsets(self) -> IndexPages | None:
        if not self._is_offset_open and self._time:
            self._is_offset_open = True
            places = (beside(self._time.place, "index"), beside(self._log, "index"))
            self._offset = self._open(dict.fromkeys(places), OFFSET_WIDTHS)
        return self._offset.pages if self._offset else None

    def _both_are_ours(self) -> bool:
        """Return whether both files are what one build left: known dialect, the sizes it wrote."""
        if self._dialect is None or self._offsets() is None or not self._time or not self._offset:
            return False
        segment = self._segment
        sizes = (self._time.size_bytes, self._offset.size_bytes)
        is_beside = self._offset.place.parent == self._time.place.parent
        return is_beside and sizes == (segment.time_index_bytes, segment.offset_index_bytes)

    def _open(self, places: dict[Location, None], widths: tuple[int, int]) -> _Opened | None:
        for place in places:
            try:
                read_into, size_bytes = self._files.enter_context(opened(place))
            except FileNotFoundError:
                continue
            except (OSError, Kip33Error) as error:
                self.notes.append(f"{place.uri}: cannot be read: {reason(error)}")
                continue
            pages = IndexPages(self._meter.metered(read_into), size_bytes, widths)
            return _Opened(place, pages, size_bytes)
        return None
