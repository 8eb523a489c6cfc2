"""The type of a layout: how it finds the segments below a SOURCE, and what is allowed there."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kip33.archive.directory import Directory, Visit

ListDirectory: TypeAlias = Callable[[Visit], Directory]
"""Lists one directory. It raises nothing: an unreadable entry is a segment with an `error`."""


class Layout(NamedTuple):
    """One layout of an archive."""

    name: str  # in `--layout` and in a snapshot's commit
    expected: str  # for the error if no segment is found: names '...' expected
    list_directory: ListDirectory
    in_place: bool = False  # whether index files may be put beside the logs
    why_not_deleted: str | None = "its files belong to another program"  # None: a plan may delete
