"""One directory of an archive: what every layout does with its names, links and index files."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pyarrow import fs

from kip33.formats.names import parse_partition_dir
from kip33.stores.files import has_text_name, one_line, shown_name
from kip33.stores.locations import Location

MAX_DEPTH: Final = 32  # of directories below SOURCE
Infos: TypeAlias = list[Any]  # of `fs.FileInfo`: what a store says of a directory's entries


class Segment(NamedTuple):
    """One row of LISTING; of an unlistable directory all but `path` and `error` may be None.

    A log that cannot be read while listing has an `error` as well, and perhaps no base offset.
    `path` is relative to the source, sizes are in bytes, times in ms since 1970.
    """

    path: str
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    size_bytes: int | None
    last_modified_ms: int | None
    active_segment: bool | None
    next_base_offset: int | None = None
    error: str | None = None
    beside_time_index_bytes: int | None = None
    beside_offset_index_bytes: int | None = None
    target_time_index_bytes: int | None = None
    target_offset_index_bytes: int | None = None
    inside: str | None = None
    beside_time_index_modified_ms: int | None = None
    beside_offset_index_modified_ms: int | None = None
    target_time_index_modified_ms: int | None = None
    target_offset_index_modified_ms: int | None = None
    target_transaction_index_bytes: int | None = None
    target_transaction_index_modified_ms: int | None = None
    source: Location | None = None  # that `path` lies below; only `list_segments` sets it

    @property
    def log_uri(self) -> str:
        """Return the absolute URI of its log; ValueError where its source is not known."""
        if self.source is None:
            raise ValueError(f"{self.path}: a segment whose source is not known; list_segments")
        return self.log(self.source).uri

    @property
    def is_directory(self) -> bool:
        """Return whether this is what could not be listed, and no file."""
        return self.last_modified_ms is None

    def log(self, source: Location) -> Location:
        """Return where its log is."""
        place = source.child(self.path)
        return place._replace(inside=self.inside) if self.inside else place


class Partition(NamedTuple):
    """Whose segments those of a directory are."""

    log_dir: str
    topic: str
    partition: int


class Directory(NamedTuple):
    """What one directory holds."""

    segments: list[Segment]
    inner: list["Visit"]  # to list next
    passed_over: Counter[str]
    unfinished: list[tuple[Location, int]]  # temporary index files and their times in ms
    more: list[Callable[[], "Directory"]]  # segments that are found only by reading small files

    @classmethod
    def empty(cls) -> Self:
        """Return one that nothing is known of yet."""
        return cls([], [], Counter(), [], [])


class Visit(NamedTuple):
    """A directory to be listed."""

    source: Location
    index_dir: Location | None  # where a build puts index files, at the same path
    below: str  # SOURCE: the path to it
    above: tuple[str, ...]  # the real paths from SOURCE down to it

    @property
    def place(self) -> Location:
        """Return where it is."""
        return self.source.child(self.below) if self.below else self.source

    @property
    def target(self) -> Location | None:
        """Return where a build puts the index files of its segments."""
        return self.index_dir.child(self.below) if self.index_dir and self.below else self.index_dir

    def path_of(self, name: str) -> str:
        """Return the path below SOURCE of a file in it."""
        return f"{self.below}/{name}" if self.below else name

    @property
    def names(self) -> tuple[str, str, str]:
        """Return its own name, its parent's and that one's parent's; above SOURCE as well."""
        parts = ("", "", *self.place.path.split("/"))
        return parts[-1], parts[-2], parts[-3]


def parent_of(below: str) -> str:
    """Return the path below SOURCE of the parent of a path."""
    return below.rpartition("/")[0]


def entries(directory: Directory, visit: Visit, partition: Partition | None) -> Infos:
    """Return a directory's entries; where it cannot be listed none, and a row says why."""
    place = visit.place
    try:
        infos: Infos = place.filesystem().get_file_info(fs.FileSelector(place.path))
    except OSError as error:
        directory.segments.append(unlistable(visit.below, partition, one_line(error)))
        return []
    return _with_text_names(directory, visit, infos)


def _with_text_names(directory: Directory, visit: Visit, infos: Infos) -> Infos:
    """Return the entries whose names are UTF-8; count the files that are not, note directories."""
    found = []
    for info in infos:
        if has_text_name(info):
            found.append(info)
        elif info.type == fs.FileType.Directory:
            path = visit.path_of(shown_name(info))
            directory.segments.append(unlistable(path, None, "the name is not UTF-8: rename it"))
        else:
            directory.passed_over["files whose names are not UTF-8"] += 1
    return found


def add_inner(directory: Directory, visit: Visit, name: str) -> None:
    """Remember a directory in this one, unless Kafka would delete it or it is a loop."""
    inner = parse_partition_dir(name)
    if inner and inner.kind:
        directory.passed_over[f"-{inner.kind} directories"] += 1
        return
    path = visit.path_of(name)
    real = real_path(visit.place.child(name), visit.above[-1])
    if real in visit.above:
        why = "a link to a directory above itself"
    elif len(visit.above) > MAX_DEPTH:
        why = f"more than {MAX_DEPTH} directories deep"
    else:
        directory.inner.append(visit._replace(below=path, above=(*visit.above, real)))
        return
    directory.segments.append(unlistable(path, None, why))


def unlistable(below: str, partition: Partition | None, why: str) -> Segment:
    """Return the row of a directory that cannot be listed."""
    log_dir, topic, number = partition or (parent_of(below), None, None)
    return Segment(below, log_dir, topic, number, None, None, None, None, None, why)


def real_path(directory: Location, real_parent: str) -> str:
    """Return the path without links; only on local disk are there any."""
    if directory.is_local and (not real_parent or os.path.islink(directory.path)):  # noqa: PTH114
        return os.path.realpath(directory.path)
    return f"{real_parent}/{directory.name}"
