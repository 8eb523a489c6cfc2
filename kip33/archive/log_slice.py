"""The part of a segment's file that is of its log.

A file may have more than its log: both tiers of tiered storage keep the newest closed segments,
a compaction that was interrupted leaves two segments with the same offsets, and records before the
log start offset are deleted for readers. A slice says from which offset to which a file is read.
Whoever opens one never sees a batch outside.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from kip33.archive.log_window import (
    LOCAL_BYTES,
    NO_END,
    REMOTE_BYTES,
    LogWindow,
    Meter,
    checked_position,
)
from kip33.archive.segment_paths import beside
from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import BatchColumns, BatchHeader, are_wrappers
from kip33.formats.index_pages import OFFSET_WIDTHS, TIME_WIDTHS, IndexPages
from kip33.formats.names import TIME_INDEX_FILE
from kip33.stores.files import opened
from kip33.stores.locations import Location


class LogSlice(NamedTuple):
    """A log file, where its index files are, and which of its offsets are read."""

    log: Location
    time_index: Location | None = None  # of a catalog; None: beside the log
    from_offset: int = 0  # smaller ones are of other segments
    until_offset: int | None = None  # from here on other segments are the log; None: to its end
    base_offset: int = 0  # of the segment
    valid_bytes: int | None = None  # None: not known

    def inside(self, batches: BatchColumns) -> BatchColumns:
        """Return the batches that have offsets of the slice, or may have, of a log in order."""
        found: BatchColumns = batches[: self.end_in(batches)]
        if not self.from_offset:
            return found
        may_have_any = are_wrappers(found) & (found["last_offset"] == 0)  # see `has_any_offset`
        inside: BatchColumns = found[may_have_any | (found["last_offset"] >= self.from_offset)]
        return inside

    def ends_in(self, batches: BatchColumns) -> bool:
        """Return whether no batch after these has an offset of the slice."""
        return self.end_in(batches) < len(batches)

    def end_in(self, batches: BatchColumns) -> int:
        """Return how many of these are before the end.

        The header of a wrapper of v0 or v1 does not say where it begins.
        """
        if self.until_offset is None:
            return len(batches)
        is_after = (batches["base_offset"] >= self.until_offset) & ~are_wrappers(batches)
        return int(is_after.argmax()) if is_after.any() else len(batches)

    def time_index_pages(self, files: ExitStack, meter: Meter) -> IndexPages | None:
        """Return its `.timeindex`, open until `files` close; None without a readable one.

        The file of another design has another name, and is not taken.
        """
        places = [
            place
            for place in self._time_indexes
            if (place.inside or place.path).endswith(TIME_INDEX_FILE)
        ]
        return _opened_index(places, TIME_WIDTHS, files, meter)

    def offset_index(self, files: ExitStack, meter: Meter) -> IndexPages | None:
        """Return its `.index`, open until `files` close; None without a readable one."""
        places = [beside(place, "index") for place in self._time_indexes]
        return _opened_index(places, OFFSET_WIDTHS, files, meter)

    @property
    def _time_indexes(self) -> list[Location]:
        """Return where its time index may be: where the catalog says, and beside the log."""
        beside_log = beside(self.log, "timeindex")
        return [self.time_index or beside_log, beside_log]

    @contextmanager
    def opened(self, meter: Meter, *, check_crc: bool = False) -> Iterator["OpenSlice"]:
        """Open the log, and its `.index` on demand; raises the OSError of the store.

        With `check_crc` a batch that does not match its CRC is treated as damage.
        """
        with ExitStack() as files:
            read_into, size_bytes = files.enter_context(opened(self.log))
            valid_bytes = size_bytes if self.valid_bytes is None else self.valid_bytes
            window = LogWindow(
                meter.metered(read_into),
                min(size_bytes, valid_bytes),
                most_bytes=LOCAL_BYTES if self.log.is_local else REMOTE_BYTES,
                check_crc=check_crc,
                max_batch_bytes=meter.max_batch_bytes,
                between=(
                    self.from_offset,
                    NO_END if self.until_offset is None else self.until_offset,
                ),
            )
            if size_bytes < valid_bytes:
                window.damage = f"{size_bytes} bytes found, the catalog says {valid_bytes}"
            yield OpenSlice(self, window, files, meter)


def _opened_index(
    places: Iterable[Location], widths: tuple[int, int], files: ExitStack, meter: Meter
) -> IndexPages | None:
    """Return the first of these index files that can be read, open until `files` close."""
    for place in dict.fromkeys(places):
        try:
            read_into, size_bytes = files.enter_context(opened(place))
        except (FileReadError, Kip33Error):
            continue
        return IndexPages(meter.metered(read_into), size_bytes, widths)
    return None


class OpenSlice(NamedTuple):
    """An open log, of which only the batches of the slice are read."""

    of: LogSlice
    window: LogWindow
    files: ExitStack
    meter: Meter

    def headers(self) -> Iterator[BatchHeader]:
        """Yield the headers of the batches; `window.damage` says why the walk ended early."""
        yield from self.window.headers(self.position_for(self.of.from_offset))

    def position_for(self, offset: int) -> int:
        """Return a position at or before an offset where a walk can begin: an index point, or 0."""
        if offset <= self.of.base_offset:
            return 0
        index = self.of.offset_index(self.files, self.meter)
        return checked_position(self.window, index, base_offset=self.of.base_offset, offset=offset)
