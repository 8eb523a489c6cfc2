"""What a layout is: how the segments below a SOURCE are found, and what may be done there."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kip33.archive.directory import Directory, Visit

ListDirectory: TypeAlias = Callable[[Visit], Directory]
"""Lists one directory. It raises nothing: what cannot be read is a segment with an `error`."""


class Layout(NamedTuple):
    """Where the segments of an archive are."""

    name: str  # as `--layout` has it, and a snapshot's commit
    expected: str  # what is said to who finds nothing: names '...' expected
    list_directory: ListDirectory
    in_place: bool = False  # whether index files may be put beside the logs
    why_not_deleted: str | None = "its files belong to another program"  # None: a plan may
