"""A range of a file, read as if it were a file of its own."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from kip33.formats.windows import ReadInto
from kip33.stores.locations import Location

OpenFile: TypeAlias = Callable[[Location], AbstractContextManager[tuple[ReadInto, int]]]
"""Opens a file as it lies in its store: `files.opened`."""


def range_of(read_into: ReadInto, start: int, size_bytes: int) -> ReadInto:
    """Return a function that reads the `size_bytes` from `start` on as positions from 0."""

    def read_range(position: int, view: memoryview) -> int:
        room = size_bytes - position
        return read_into(start + position, view[:room]) if room > 0 else 0

    return read_range
