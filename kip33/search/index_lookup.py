"""The index files of one segment, and where in its log a search for a time begins.

No file is trusted: a result is a `Start` with a claim that the headers there must confirm. The
entries of a file of an unknown dialect are read in the way that promises less, or in both ways. The
batch at a position of the `.index` must be one that a walk to the offset may begin with; otherwise
the walk begins at the start of the log.

The time index is the catalog's, else the one beside the log. The offset index is beside the time
index, else beside the log. They are opened at first use. A catalog row has the settings, sizes and
modification times of its files: only a file with that size and time is the row's, so that its
dialect is known. `drafts.lookup` reads the files of designs that Kafka lacks.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import Final, NamedTuple

from kip33.archive.log_window import Meter, entries_around, entry_at
from kip33.archive.segment_paths import beside
from kip33.drafts.lookup import DraftIndex, draft_of, why_not_used, widths_of
from kip33.errors import CorruptIndexError, FileReadError, Kip33Error
from kip33.formats.batch import RECORD_BATCH_OVERHEAD
from kip33.formats.index_pages import OFFSET_WIDTHS, TIME_WIDTHS, IndexPages, last_point
from kip33.formats.time_index import TimestampOffset
from kip33.rules.search import (
    Claim,
    first_offset_after,
    names_next_offset,
    reach_of,
)
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.files import one_line, opened, status_of
from kip33.stores.locations import Location

WALKED_BYTES: Final = 16 * 1024  # a shorter stretch of log is read without an index
ENTRY_PROOF_BYTES: Final = 8 * 1024  # approximate cost of checking one entry
POINTS_BACK: Final = (1, 8, 64)  # index points, tried one after the other
_INLINE_WIDTHS: Final = (8, 8)  # offset and position together, then the timestamp


class Start(NamedTuple):
    """Where a search for a time begins, if the headers there confirm the claim."""

    position: int
    first_offset: int  # no record at or after the time is before it
    claim: Claim
    expected_bytes: int | None  # up to the next index point's header; None: to the end
    last_offset: int  # of the batch there, from the offset index
    is_exact: bool = False  # the batch there must have that last offset


class IndexLookup:
    """The two index files of one segment; their faults are in `notes`."""

    def __init__(self, segment: SearchedSegment, files: ExitStack, meter: Meter) -> None:
        """Open nothing yet; files opened later are closed with `files`."""
        self._segment, self._files = segment, _SegmentIndexFiles(segment, files, meter)
        self._latest: tuple[int, int, list[Start]] = (0, 0, [])

    @property
    def notes(self) -> list[str]:
        """Return what is wrong with the files."""
        return self._files.notes

    def distrust(self, why: str) -> None:
        """Stop using these files."""
        self._files.distrust(why)

    @property
    def dialect(self) -> str | None:
        """Return the dialect of the time index, None if it is missing or unknown."""
        self._files.times()
        return self._files.dialect

    def starts_for(self, target_ms: int, end: int) -> list[Start]:
        """Return where to begin in a log of `end` bytes; the first confirmed start is used.

        There are two if the dialect is unknown. Without any, the search begins at the first batch.
        """
        if self._files.draft():
            return self._draft_starts(target_ms, end)
        low, high, starts = self._latest
        if low < target_ms <= high:  # between the same two entries as the previous time
            return [] if self._files.is_distrusted else starts
        try:
            entry, after = self._around(target_ms)
            starts = list(self._starts_at(entry, end)) if entry else []
        except (CorruptIndexError, FileReadError) as error:
            self.distrust(one_line(error))
            return []
        self._latest = entry.timestamp if entry else -1, after.timestamp if after else 0, starts
        return starts

    def upper_start_for(self, target_ms: int, end: int) -> Start | None:
        """Return an index point near the first entry at or after a time, None if there is no entry.

        Both files must come from the same scan. Then the timestamp of an entry was reached after
        the last index point before it; otherwise there would be an earlier entry for it. The
        result may be used only if all entries are true, because a lost entry would hide records.
        """
        if self._files.draft():
            return None
        try:
            entry, after = self._around(target_ms)
            if after is None or not self._files.are_of_one_pass():
                return None
            claim = Claim(after, names_next_offset(self._files.dialect), tight=True)
            start = next(self._place(claim, reach_of(claim) - 1, end), None)
        except (CorruptIndexError, FileReadError) as error:
            self.distrust(one_line(error))
            return None
        floor = (
            first_offset_after(entry, self._files.dialect) if entry else self._segment.base_offset
        )
        return start._replace(first_offset=floor, is_exact=True) if start else None

    @property
    def proof_bytes(self) -> int:
        """Return the approximate cost of checking all entries; a shorter stretch is walked."""
        times = self._files.times()
        return max(WALKED_BYTES, len(times) * ENTRY_PROOF_BYTES if times else 0)

    def all_starts(self, end: int) -> Iterator[Start | None]:
        """Yield for each entry where its batch is expected; None, at the end: an entry is wrong.

        The entries end with the largest timestamp of the segment. If all of them are true, no entry
        is missing, because the row's file has as many as the scan produced.
        """
        times = self._files.times()
        before: TimestampOffset | None = None
        for slot in range(len(times) if times else 0):
            entry = entry_at(times, slot, self._segment.base_offset) if times else None
            if entry is None or (before and not before.timestamp < entry.timestamp):
                yield None
                return
            start = next(self._starts_at(entry, end), None)
            yield start
            before = entry
        if before is None or before.timestamp != self._segment.max_timestamp:
            yield None

    def first_offset_for(self, target_ms: int) -> int:
        """Return, from the entries alone, an offset with no record at or after a time before it.

        Without a usable entry this is the segment's base offset.
        """
        base_offset = self._segment.base_offset
        draft = self._files.draft()
        try:
            if draft:
                draft_entry = draft.entries.entry_for(target_ms)
                return max(base_offset, draft_entry.entry.offset) if draft_entry else base_offset
            entry, _ = self._around(target_ms)
        except (CorruptIndexError, FileReadError) as error:
            self.distrust(one_line(error))
            entry = None
        if entry is None:
            return base_offset
        return max(base_offset, first_offset_after(entry, self._files.dialect))

    def _draft_starts(self, target_ms: int, end: int) -> list[Start]:
        """Return where a search begins with a draft's file: no place, or one."""
        draft = self._files.draft()
        try:
            draft_entry = draft.entries.entry_for(target_ms) if draft else None
            if draft is None or draft_entry is None:
                return []
            claim = Claim(draft_entry.entry, False, tight=False, within_ms=draft.entries.within_ms)
            if draft_entry.position is None:
                return list(self._place(claim, draft_entry.entry.offset, end))
            if draft_entry.position >= end:
                raise CorruptIndexError(
                    f"{draft.place.uri}: position {draft_entry.position} of {end} bytes of the log"
                )
        except (CorruptIndexError, FileReadError) as error:
            self.distrust(one_line(error))
            return []
        first, last = draft_entry.entry.offset, draft_entry.entry.offset
        return [
            Start(draft_entry.position, first, claim, RECORD_BATCH_OVERHEAD, last, is_exact=True)
        ]

    def _starts_at(self, entry: TimestampOffset, end: int) -> Iterator[Start]:
        """Yield where the batch of an entry is expected, for each way to read the entry."""
        readings = (
            (False, True)
            if self._files.dialect is None
            else (names_next_offset(self._files.dialect),)
        )
        for next_offset in readings:
            # An entry with the next offset does not name the batch with its timestamp. That batch
            # is after an earlier index point; which one is known only if one scan wrote both files.
            claim = Claim(entry, next_offset, tight=next_offset)
            is_told = not next_offset or self._files.are_of_one_pass()
            for points_back in (0,) if is_told else POINTS_BACK:
                yield from self._place(claim, reach_of(claim) - next_offset, end, points_back)

    def _around(self, target_ms: int) -> tuple[TimestampOffset | None, TimestampOffset | None]:
        times, segment = self._files.times(), self._segment
        if times is None:
            return None, None
        return entries_around(
            times, target_ms, base_offset=segment.base_offset, last_offset=segment.last_offset
        )

    def _place(self, claim: Claim, offset: int, end: int, points_back: int = 0) -> Iterator[Start]:
        """Yield the last index point at or before an offset, or one further back, or the start.

        Yields nothing if there is no offset index.
        """
        offsets = self._files.offsets()
        if offsets is None:
            return
        slot = last_point(offsets, offset - self._segment.base_offset) - points_back
        if slot < 0:
            if points_back > POINTS_BACK[0] and self._files.dialect is None:
                return  # a wrong index of an unknown writer
            first = offsets[0][1] if len(offsets) else 0
            expected = first + RECORD_BATCH_OVERHEAD if 0 < first < end else None
            yield Start(0, self._segment.base_offset, claim, expected, -1)
            return
        relative, position = offsets[slot]
        expected = None
        if slot + 1 < len(offsets) and offsets[slot + 1] != (0, 0):
            next_relative, next_position = offsets[slot + 1]
            if next_relative <= relative or next_position <= position:
                raise CorruptIndexError(f".index: entries {slot} and {slot + 1} are out of order")
            expected = next_position - position + RECORD_BATCH_OVERHEAD
        if relative < 0 or position >= end:
            raise CorruptIndexError(
                f".index: entry {(relative, position)} is outside of the {end} bytes of the log"
            )
        floor = first_offset_after(claim.entry, self._files.dialect)
        last_offset = self._segment.base_offset + relative
        yield Start(position, floor, claim, expected, last_offset)


class _OpenedDraft(NamedTuple):
    """The file of one of KIP-33's drafts and its entries."""

    place: Location
    entries: DraftIndex


class _Opened(NamedTuple):
    place: Location
    pages: IndexPages
    size_bytes: int
    matches: bool = False  # it has the bytes that a build's scan of the log gave


class _SegmentIndexFiles:
    """The index files of one segment; what is wrong with them is in `notes`."""

    def __init__(self, segment: SearchedSegment, files: ExitStack, meter: Meter) -> None:
        """Open nothing yet; files opened later are closed with `files`."""
        self.notes: list[str] = []
        self.dialect: str | None = None  # of the time index; None: missing, unknown or not opened
        self._segment, self._files, self._meter = segment, files, meter
        self._log = Location.of(segment.log_uri)
        self.is_distrusted = False

    def distrust(self, why: str) -> None:
        self.is_distrusted = True
        self.notes.append(f"the index is not used: {why}")

    def draft(self) -> _OpenedDraft | None:
        """Return the draft's file of the row, None if it has none or the file must not be used."""
        return None if self.is_distrusted else self._draft

    @cached_property
    def _draft(self) -> _OpenedDraft | None:
        segment, draft = self._segment, draft_of(self._segment.index_uri or "")
        if draft is None:
            return None
        if why := why_not_used(draft, segment.out_of_order_batches):
            self.notes.append(why)
            return None
        place = Location.of(segment.index_uri or "")
        file = self._open({place: None}, widths_of(draft))
        size = segment.time_index_bytes, segment.time_index_modified_ms
        if file and segment.time_index_matches and _is_of_row(file, *size):
            return _OpenedDraft(place, DraftIndex(draft, file.pages, segment.base_offset))
        if file:
            self.notes.append(f"{place.uri}: not used: it has changed since the build")
        return None

    def times(self) -> IndexPages | None:
        """Return the time index, None if it is missing or must not be used."""
        return None if self.is_distrusted or self._time is None else self._time.pages

    @cached_property
    def _time(self) -> _Opened | None:
        segment, beside_log = self._segment, beside(self._log, "timeindex")
        uri = None if draft_of(segment.index_uri or "") else segment.index_uri
        named = Location.of(uri) if uri else beside_log
        file = self._open(dict.fromkeys((named, beside_log)), TIME_WIDTHS)
        size = segment.time_index_bytes, segment.time_index_modified_ms
        is_of_row = file and uri and file.place == named and segment.time_index_matches
        if not (file and is_of_row and _is_of_row(file, *size)):
            return file
        self.dialect = segment.dialect
        if segment.has_file_time:
            self.distrust("its entry has the log file's time, not a record's")
            return None
        return file._replace(matches=True)

    def offsets(self) -> IndexPages | None:
        """Return the offset index that belongs to the time index, None if it is missing."""
        return self._offset.pages if self._offset else None

    @cached_property
    def _offset(self) -> _Opened | None:
        segment, times = self._segment, self._draft or self._time
        if times is None:
            return None
        places = (beside(times.place, "index"), beside(self._log, "index"))
        file = self._open(dict.fromkeys(places), OFFSET_WIDTHS)
        if file is None or file.place != places[0] or not segment.offset_index_matches:
            return file
        size = segment.offset_index_bytes, segment.offset_index_modified_ms
        return file._replace(matches=_is_of_row(file, *size))

    def are_of_one_pass(self) -> bool:
        """Return whether both files have the bytes that one scan gives."""
        files = (self._time, self._offset)
        return all(file is not None and file.matches for file in files)

    def _open(self, places: dict[Location, None], widths: tuple[int, int]) -> _Opened | None:
        for place in places:
            try:
                read_into, size_bytes = self._files.enter_context(opened(place))
            except FileNotFoundError:
                continue
            except (FileReadError, Kip33Error) as error:
                self.notes.append(f"{place.uri}: cannot be read: {one_line(error)}")
                continue
            pages = IndexPages(self._meter.metered(read_into), size_bytes, widths)
            return _Opened(place, pages, size_bytes)
        return None


def _is_of_row(file: _Opened, size_bytes: int | None, modified_ms: int | None) -> bool:
    """Return whether an opened file is the one that a row names with its size and time."""
    if modified_ms is None or file.size_bytes != size_bytes:
        return False
    try:
        status = status_of(file.place)
    except FileReadError:
        return False
    return status is not None and tuple(status) == (size_bytes, modified_ms)
