"""Where a search begins with the entries of one of KIP-33's drafts.

The drafts say little about lookups. kip33 uses, of the entries in file order:

    minute, inline   the last entry below the time, by binary search. Both designs assume that
                     timestamps never decrease. Otherwise the search may begin too late.
    bucket           the same; its entries always increase
    minute-map       of all entries at or after the time's minute, the one with the lowest offset:
                     the entries are in no order, so all of them must be read

No record before the entry's offset (minute, inline: nor at it) is at or after the time, if the
draft's condition holds (`DraftDialect.needs_order`).
"""

import numpy as np

from kip33.rules.draft_entries import MINUTE_MAP, MINUTE_MS, DraftDialect, Int64s

NO_SLOT = -1


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


def slots_for(draft: DraftDialect, rows: Int64s, targets: Int64s) -> Int64s:
    """Return for each time the slot of the entry at which its search begins; -1: at the start.

    `rows` are the entries in the order of the file, with absolute or relative offsets.
    """
    if not len(rows):
        return np.full(len(targets), NO_SLOT, np.int64)
    if draft is not MINUTE_MAP:
        return slots_below(rows[:, times_column(draft)], targets)
    order = np.argsort(rows[:, 0])
    minutes, offsets = rows[order, 0], rows[order, 1]
    lowest = np.minimum.accumulate(offsets[::-1])[::-1]  # of each entry and all later minutes
    at = np.searchsorted(minutes, targets // MINUTE_MS * MINUTE_MS)
    by_offset = np.argsort(rows[:, 1], kind="stable")
    found = np.minimum(at, len(rows) - 1)
    slots = by_offset[np.searchsorted(rows[by_offset, 1], lowest[found])]
    return np.where(at < len(rows), slots, NO_SLOT)


def times_column(draft: DraftDialect) -> int:
    """Return which column of the entries has the timestamp."""
    return list(draft.entry.names or ()).index("timestamp")


def turning_times(draft: DraftDialect, rows: Int64s) -> Int64s:
    """Return the smallest time of each range of times that begin at the same entry.

    A search begins at the same place for all times of a range, and the record that is wanted is
    never earlier for a later time. So a start that is right for these times is right for all.
    """
    step = MINUTE_MS if draft is MINUTE_MAP else 1
    times: Int64s = np.unique(rows[:, times_column(draft)]) + step
    return times
