"""Search an index file with a few small reads, without loading it."""

from collections.abc import Callable
from typing import Final

from kip33.errors import CorruptIndexError
from kip33.formats.byte_sources import ReadInto, read_fully

PAGE_BYTES: Final = 1024
TIME_WIDTHS: Final = (8, 4)
OFFSET_WIDTHS: Final = (4, 4)
WHOLE_BYTES: Final = 8192  # a file up to here is one page


class IndexPages:
    """Entries of two big-endian integers; pages are read on demand and kept.

    An incomplete entry at the end of the file is ignored.
    """

    def __init__(self, read_into: ReadInto, size_bytes: int, widths: tuple[int, int]) -> None:
        """Take an open file of `size_bytes` with entries of two integers of these widths."""
        self._read_into = read_into
        self._split, self._entry_bytes = widths[0], sum(widths)
        self._entries = size_bytes // self._entry_bytes
        whole = self._entries if size_bytes <= WHOLE_BYTES else PAGE_BYTES // self._entry_bytes
        self._page_entries = max(whole, 1)
        self._pages: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._entries

    def __getitem__(self, slot: int) -> tuple[int, int]:
        """Return an entry's two numbers; CorruptIndexError if the file has become shorter."""
        page, place = divmod(slot, self._page_entries)
        at = place * self._entry_bytes
        entry = self._page(page)[at : at + self._entry_bytes]
        if len(entry) < self._entry_bytes:
            raise CorruptIndexError(f"the file ended before entry {slot} of {self._entries}")
        first, second = entry[: self._split], entry[self._split :]
        return int.from_bytes(first, signed=True), int.from_bytes(second, signed=True)

    def last(self, is_before: Callable[[int, int], bool]) -> int:
        """Return the slot of the last entry for which `is_before` is true; -1: not even the first.

        In an ordered index there is one such slot. If entries are out of order there may be
        several, so the caller checks the neighbours.
        """
        low, high = -1, self._entries
        while high - low > 1:
            middle = (low + high) // 2
            if is_before(*self[middle]):
                low = middle
            else:
                high = middle
        return low

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            start = number * self._page_entries
            count = min(self._page_entries, self._entries - start)
            self._pages[number] = read_fully(
                self._read_into, start * self._entry_bytes, count * self._entry_bytes
            )
        return self._pages[number]


def last_point(offsets: IndexPages, relative_offset: int) -> int:
    """Return the slot of the last entry of an `.index` at or before an offset, -1 without one.

    Entries with position 0 are padding.
    """
    return offsets.last(lambda relative, position: position > 0 and relative <= relative_offset)


def last_position(offsets: IndexPages, position: int) -> int:
    """Return the slot of the last entry of an `.index` up to a position, -1 without one."""
    return offsets.last(lambda _, found: 0 < found <= position)
