"""The index files of one segment: which are used, and which of them are the catalog row's own.

The time index is the catalog's, else the one beside the log. The offset index is beside the time
index, else beside the log. They are opened at first use.

A row has the settings, sizes and modification times of its files. Only a file with that size and
time is the file of the row, so that its dialect is known. Any other file is unknown.
"""

import json
from contextlib import ExitStack
from typing import NamedTuple

from kip33.archive.segment_paths import beside
from kip33.errors import FileReadError, Kip33Error
from kip33.formats.index_pages import OFFSET_WIDTHS, TIME_WIDTHS, IndexPages
from kip33.rules.untimestamped import FILE_TIME_OFFSET
from kip33.search.draft_index import DraftIndex, draft_of, why_not_used, widths_of
from kip33.search.log_window import Meter
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.files import one_line, opened, status_of
from kip33.stores.locations import Location


class OpenedDraft(NamedTuple):
    """The file of one of KIP-33's drafts and its entries."""

    place: Location
    entries: DraftIndex


class _Opened(NamedTuple):
    place: Location
    pages: IndexPages
    size_bytes: int
    settings: str | None  # of this file; None: unknown


class SegmentIndexFiles:
    """The index files of one segment; what is wrong with them is in `notes`."""

    def __init__(self, segment: SearchedSegment, files: ExitStack, meter: Meter) -> None:
        """Open nothing yet; files opened later are closed with `files`."""
        self.notes: list[str] = []
        self.dialect: str | None = None  # of the time index; None: missing, unknown or not opened
        self._segment, self._files, self._meter = segment, files, meter
        self._log = Location.of(segment.log_uri)
        self._time: _Opened | None = None
        self._offset: _Opened | None = None
        self._draft: OpenedDraft | None = None
        self._is_time_open = self._is_offset_open = self._is_draft_open = False
        self.is_distrusted = False

    def distrust(self, why: str) -> None:
        """Stop using these files."""
        self.is_distrusted = True
        self.notes.append(f"the index is not used: {why}")

    def draft(self) -> OpenedDraft | None:
        """Return the draft's file of the row, None if it has none or the file must not be used."""
        if self.is_distrusted:
            return None
        draft = None if self._is_draft_open else draft_of(self._segment)
        self._is_draft_open = True
        if draft is None:
            return self._draft
        why = why_not_used(draft, self._segment)
        if why:
            self.notes.append(why)
            return None
        segment, place = self._segment, Location.of(self._segment.index_uri or "")
        file = self._open({place: None}, widths_of(draft))
        size = segment.time_index_bytes, segment.time_index_modified_ms
        if file and _settings_of(file, segment.time_index_settings, *size):
            index = DraftIndex(draft, file.pages, segment.base_offset)
            self._draft = OpenedDraft(place, index)
        elif file:
            self.notes.append(f"{place.uri}: not used: it has changed since the build")
        return self._draft

    def times(self) -> IndexPages | None:
        """Return the time index, None if it is missing or must not be used."""
        if self.is_distrusted:
            return None
        if not self._is_time_open:
            self._is_time_open = True
            segment, beside_log = self._segment, beside(self._log, "timeindex")
            uri = None if draft_of(segment) else segment.index_uri
            named = Location.of(uri) if uri else beside_log
            self._time = self._open(dict.fromkeys((named, beside_log)), TIME_WIDTHS)
            if self._time and uri and self._time.place == named:
                size = segment.time_index_bytes, segment.time_index_modified_ms
                settings = _settings_of(self._time, segment.time_index_settings, *size)
                self._time = self._time._replace(settings=settings)
                said = json.loads(settings) if settings else {}
                self.dialect = said.get("dialect")
                if FILE_TIME_OFFSET in said:
                    self.distrust("its entry has the log file's time, not a record's")
                    return None
        return self._time.pages if self._time else None

    def offsets(self) -> IndexPages | None:
        """Return the offset index that belongs to the time index, None if it is missing."""
        times = self._draft or self._time
        if not self._is_offset_open and times:
            self._is_offset_open = True
            segment = self._segment
            places = (beside(times.place, "index"), beside(self._log, "index"))
            self._offset = self._open(dict.fromkeys(places), OFFSET_WIDTHS)
            if self._offset and self._offset.place == places[0]:
                size = segment.offset_index_bytes, segment.offset_index_modified_ms
                settings = _settings_of(self._offset, segment.offset_index_settings, *size)
                self._offset = self._offset._replace(settings=settings)
        return self._offset.pages if self._offset else None

    def are_of_one_pass(self) -> bool:
        """Return whether both files have the bytes that one scan with the same settings gives."""
        if self.offsets() is None or not self._time or not self._offset:
            return False
        return self._time.settings is not None and self._time.settings == self._offset.settings

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
            return _Opened(place, pages, size_bytes, None)
        return None


def _settings_of(
    file: _Opened, settings: str | None, size_bytes: int | None, modified_ms: int | None
) -> str | None:
    """Return a row's settings if an opened file is the row's file, else None."""
    if settings is None or modified_ms is None or file.size_bytes != size_bytes:
        return None
    try:
        status = status_of(file.place)
    except FileReadError:
        return None
    return settings if status and tuple(status) == (size_bytes, modified_ms) else None
