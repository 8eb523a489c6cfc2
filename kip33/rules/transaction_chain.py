"""Which transactions are open where each segment of a partition begins.

The catalog's column `open_transactions` says what is open at a segment's end, as JSON:

    {"5": 1000}    of producer 5 one that began at offset 1000, of nobody else
    {}             none
    "unchanged"    the segment has no transaction: what was open before it is open after it
    null           not known
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
    """Return what the column's value says is open at the segment's end; None: not known.

    >>> open_from_json('{"5": 1000}', None), open_from_json(UNCHANGED, {6: 7})
    ({5: 1000}, {6: 7})
    """
    if text is None:
        return None
    if text == UNCHANGED:
        return open_at_start
    return {int(producer): first_offset for producer, first_offset in json.loads(text).items()}


class TransactionChain:
    """Walks over a partition's segments, oldest first, and knows what is open between them.

    What lies in a hole between two segments is not known, nor what lies before the first one,
    unless that is the start of the partition.
    """

    def __init__(self) -> None:
        """Stand before the oldest segment."""
        self._base_offset: int | None = None
        self._next_offset: int | None = None
        self._open: Open | None = None

    def open_at(self, base_offset: int) -> Open | None:
        """Return what is open where the next segment begins; None: not known."""
        if base_offset == 0:
            return {}
        return self._open if self.goes_on_at(base_offset) else None

    def goes_on_at(self, base_offset: int) -> bool:
        """Return whether the segment before ends where this one begins."""
        return base_offset == self._next_offset

    def pass_segment(
        self, base_offset: int, last_offset: int | None, open_at_end: Open | None
    ) -> None:
        """Go over a segment. Two of one base offset may differ: what follows is not known."""
        is_second = base_offset == self._base_offset
        self._base_offset = base_offset
        self._next_offset = None if last_offset is None else last_offset + 1
        self._open = None if is_second else open_at_end
