"""Where a search begins with the entries of one of KIP-33's drafts.

The drafts say little about lookups. kip33 uses, of the entries in file order:

    minute, inline   the last entry below the time, by binary search. Both designs assume that
                     timestamps never decrease. Otherwise the search may begin too late.
    bucket           the same; its entries always increase
    minute-map       of all entries at or after the time's minute, the one with the lowest offset:
                     the entries are in no order, so all of them must be read

No record before the entry's offset (minute, inline: nor at it) is at or after the time, if the
draft's condition holds (`IndexDesign.needs_order`). A catalog row counts the batches with a
timestamp below an earlier batch's (`out_of_order_batches`): if there is one, or the number is
unknown, the file of `minute` or `inline` is not used.
"""

from typing import Final, NamedTuple

import numpy as np

from kip33.drafts.designs import DRAFTS, MINUTE_MS, IndexDesign, Int64s
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_pages import TIME_WIDTHS, IndexPages
from kip33.formats.time_index import TimestampOffset

NO_SLOT: Final = -1
_INLINE_WIDTHS: Final = (8, 8)  # offset and position together, then the timestamp


def slots_below(timestamps: Int64s, targets: Int64s) -> Int64s:
    """Return for each time the slot of the last entry below it, by binary search; -1: none.

    If the timestamps are out of order, the result is what a binary search finds.

    >>> slots_below(np.array([10, 20, 30]), np.array([10, 11, 99])).tolist()
    [-1, 0, 2]
    """
    low = np.full(len(targets), NO_SLOT, np.int64)
    high = np.full(len(targets), len(timestamps), np.int64)
    while len(targets) and (high - low > 1).any():
        middle = (low + high) // 2
        is_below = (middle >= 0) & (timestamps[np.maximum(middle, 0)] < targets)
        is_open = high - low > 1
        low = np.where(is_open & is_below, middle, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


def slots_for(design: IndexDesign, rows: Int64s, targets: Int64s) -> Int64s:
    """Return for each time the slot of the entry at which its search begins; -1: at the start.

    `rows` are the entries in the order of the file, with absolute or relative offsets.
    """
    if not len(rows):
        return np.full(len(targets), NO_SLOT, np.int64)
    if not design.is_map:
        return slots_below(rows[:, _times_column(design)], targets)
    order = np.argsort(rows[:, 0])
    minutes, offsets = rows[order, 0], rows[order, 1]
    lowest = np.minimum.accumulate(offsets[::-1])[::-1]  # of each entry and all later minutes
    at = np.searchsorted(minutes, targets // MINUTE_MS * MINUTE_MS)
    by_offset = np.argsort(rows[:, 1], kind="stable")
    found = np.minimum(at, len(rows) - 1)
    slots = by_offset[np.searchsorted(rows[by_offset, 1], lowest[found])]
    return np.where(at < len(rows), slots, NO_SLOT)


def _times_column(design: IndexDesign) -> int:
    """Return which column of the entries has the timestamp."""
    return list(design.entry.names or ()).index("timestamp")


def turning_times(design: IndexDesign, rows: Int64s) -> Int64s:
    """Return the smallest time of each range of times that begin at the same entry.

    A search begins at the same place for all times of a range, and the record that is wanted is
    never earlier for a later time. So a start that is right for these times is right for all.
    """
    step = MINUTE_MS if design.is_map else 1
    times: Int64s = np.unique(rows[:, _times_column(design)]) + step
    return times


class DraftEntry(NamedTuple):
    """An entry, with an absolute offset; `position` is in the log, None if the file has none."""

    entry: TimestampOffset
    position: int | None


class DraftIndex:
    """An open file of a draft."""

    def __init__(self, draft: IndexDesign, pages: IndexPages, base_offset: int) -> None:
        self._draft, self._pages, self._base_offset = draft, pages, base_offset
        self.within_ms = draft.within_ms  # how much later than its entry a batch may be
        self._rows: Int64s | None = None

    def entry_for(self, target_ms: int) -> DraftEntry | None:
        """Return the entry at which a search for a time begins, None without one.

        Raises CorruptIndexError if the file has become shorter.
        """
        slot = self._slot(target_ms)
        if slot == NO_SLOT:
            return None
        first, second = self._pages[slot]
        if not self._draft.has_positions:
            return DraftEntry(TimestampOffset(first, self._base_offset + second), None)
        if second == NO_TIMESTAMP:  # says nothing about the batches before it
            return None
        relative, position = first >> 32, first & 0xFFFF_FFFF
        return DraftEntry(TimestampOffset(second, self._base_offset + relative), position)

    def _slot(self, target_ms: int) -> int:
        if self._draft.has_positions:
            return self._pages.last(lambda _, timestamp: timestamp < target_ms)
        if not self._draft.is_map:
            return self._pages.last(lambda timestamp, _: timestamp < target_ms)
        if self._rows is None:
            rows = [self._pages[slot] for slot in range(len(self._pages))]
            self._rows = np.array(rows, np.int64).reshape(-1, 2)
        return int(slots_for(self._draft, self._rows, np.array([target_ms]))[0])


def draft_of(uri: str) -> IndexDesign | None:
    """Return the draft whose file is at a URI, None for a `.timeindex` or no file."""
    return next((draft for draft in DRAFTS.values() if uri.endswith(f".{draft.file}")), None)


def widths_of(draft: IndexDesign) -> tuple[int, int]:
    """Return the widths of the two numbers of an entry, as `IndexPages` takes them."""
    return _INLINE_WIDTHS if draft.has_positions else TIME_WIDTHS


def why_not_used(draft: IndexDesign, out_of_order_batches: int | None) -> str | None:
    """Return why a segment's file must not be used, None if it may.

    `out_of_order_batches` is the number in the segment's catalog row, None if it is unknown.
    """
    count = out_of_order_batches
    if not draft.needs_order or count == 0:
        return None
    return (
        f"the index of dialect {draft.name} is not used: it needs timestamps in order, and "
        f"{'any number of' if count is None else f'{count:,}'} batches may be earlier than one "
        "before them"
    )
