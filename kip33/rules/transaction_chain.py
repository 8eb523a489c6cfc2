"""Find the transactions that are open at the start of each segment of a partition.

The catalog's column `open_transactions` has the transactions open at a segment's end, as JSON:

    {"5": 1000}    only one: producer 5's, which began at offset 1000
    {}             no transaction is open
    "unchanged"    the segment has no transactions: the same are open at its start and at its end
    null           unknown
"""

import json
from collections.abc import Mapping
from typing import Final

UNCHANGED: Final = '"unchanged"'

Open = Mapping[int, int]
"""The first offset of each producer's open transaction."""


def open_as_json(open_at_end: Open | None) -> str | None:
    """Return the column's value, producers in order."""
    if open_at_end is None:
        return None
    return json.dumps({str(producer): open_at_end[producer] for producer in sorted(open_at_end)})


def open_from_json(text: str | None, open_at_start: Open | None) -> Open | None:
    """Return the transactions open at the segment's end from the column's value; None: unknown.

    >>> open_from_json('{"5": 1000}', None), open_from_json(UNCHANGED, {6: 7})
    ({5: 1000}, {6: 7})
    """
    if text is None:
        return None
    if text == UNCHANGED:
        return open_at_start
    return {int(producer): first_offset for producer, first_offset in json.loads(text).items()}


class TransactionChain:
    """Tracks open transactions over a partition's segments, oldest first.

    They are unknown after a gap between two segments, and before the first segment unless it starts
    at offset 0.
    """

    def __init__(self) -> None:
        """Start before the oldest segment."""
        self._base_offset: int | None = None
        self._next_offset: int | None = None
        self._open: Open | None = None

    def open_at(self, base_offset: int) -> Open | None:
        """Return the transactions open at the start of the next segment; None: unknown."""
        if base_offset == 0:
            return {}
        return self._open if self.goes_on_at(base_offset) else None

    def goes_on_at(self, base_offset: int) -> bool:
        """Return whether the previous segment ends where this one begins."""
        return base_offset == self._next_offset

    def pass_segment(
        self, base_offset: int, last_offset: int | None, open_at_end: Open | None
    ) -> None:
        """Process a segment. After two with one base offset, which may differ, it is unknown."""
        is_second = base_offset == self._base_offset
        self._base_offset = base_offset
        self._next_offset = None if last_offset is None else last_offset + 1
        self._open = None if is_second else open_at_end
