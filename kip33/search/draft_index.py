"""The index file of a KIP-33 draft: the entry at which a search for a time begins.

`rules.draft_entries` says which entry that is. Two drafts are right only if no batch of the segment
has a timestamp below an earlier batch's. The catalog row counts such batches
(`out_of_order_batches`): if there is one, or the number is unknown, the file is not used.
"""

from typing import Final, NamedTuple

import numpy as np

from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_pages import TIME_WIDTHS, IndexPages
from kip33.formats.time_index import TimestampOffset
from kip33.rules.draft_entries import (
    BUCKET,
    DRAFTS,
    INLINE,
    MINUTE_MAP,
    MINUTE_MS,
    NO_SLOT,
    DraftDialect,
    Int64s,
    slots_for,
)
from kip33.search.searched_segment import SearchedSegment

INLINE_WIDTHS: Final = (8, 8)  # offset and position together, then the timestamp


class DraftEntry(NamedTuple):
    """An entry, with an absolute offset; `position` is in the log, None if the file has none."""

    entry: TimestampOffset
    position: int | None


class DraftIndex:
    """An open file of a draft."""

    def __init__(self, draft: DraftDialect, pages: IndexPages, base_offset: int) -> None:
        """Take the file of a segment with this base offset."""
        self._draft, self._pages, self._base_offset = draft, pages, base_offset
        self._rows: Int64s | None = None

    @property
    def within_ms(self) -> int | None:
        """Return how much later than its entry a batch may be; None: it has the same timestamp."""
        return MINUTE_MS if self._draft in (MINUTE_MAP, BUCKET) else None

    def entry_for(self, target_ms: int) -> DraftEntry | None:
        """Return the entry at which a search for a time begins, None without one.

        Raises CorruptIndexError if the file has become shorter.
        """
        slot = self._slot(target_ms)
        if slot == NO_SLOT:
            return None
        first, second = self._pages[slot]
        if self._draft is not INLINE:
            return DraftEntry(TimestampOffset(first, self._base_offset + second), None)
        if second == NO_TIMESTAMP:  # says nothing about the batches before it
            return None
        relative, position = first >> 32, first & 0xFFFF_FFFF
        return DraftEntry(TimestampOffset(second, self._base_offset + relative), position)

    def _slot(self, target_ms: int) -> int:
        if self._draft is INLINE:
            return self._pages.last(lambda _, timestamp: timestamp < target_ms)
        if self._draft is not MINUTE_MAP:
            return self._pages.last(lambda timestamp, _: timestamp < target_ms)
        if self._rows is None:
            rows = [self._pages[slot] for slot in range(len(self._pages))]
            self._rows = np.array(rows, np.int64).reshape(-1, 2)
        return int(slots_for(self._draft, self._rows, np.array([target_ms]))[0])


def draft_of(segment: SearchedSegment) -> DraftDialect | None:
    """Return the draft whose file is in a segment's row, None for a `.timeindex` or no file."""
    uri = segment.index_uri or ""
    return next((one for one in DRAFTS.values() if uri.endswith(f".{one.file}")), None)


def widths_of(draft: DraftDialect) -> tuple[int, int]:
    """Return the widths of the two numbers of an entry, as `IndexPages` takes them."""
    return INLINE_WIDTHS if draft is INLINE else TIME_WIDTHS


def why_not_used(draft: DraftDialect, segment: SearchedSegment) -> str | None:
    """Return why a segment's file must not be used, None if it may."""
    if not draft.needs_order or segment.out_of_order_batches == 0:
        return None
    count = segment.out_of_order_batches
    return (
        f"the index of dialect {draft.name} is not used: it needs timestamps in order, and "
        f"{'any number of' if count is None else f'{count:,}'} batches may be earlier than one "
        "before them"
    )
