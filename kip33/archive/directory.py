"""List one directory of an archive: what all layouts have in common, and the type of a layout."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pyarrow import fs

from kip33.errors import READ_FAULTS, FileReadError
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import TIME_INDEX_FILE, parse_partition_dir
from kip33.formats.printed_fields import object_html, object_text
from kip33.stores.files import FileStatus, has_text_name, one_line, shown_name
from kip33.stores.locations import Location

MAX_DEPTH: Final = 32  # levels of directories below SOURCE
SMALL_FILES_IN_ROW: Final = 64  # that one thread reads, one after another
Infos: TypeAlias = list[Any]  # of `fs.FileInfo`: a directory's entries


class Segment(NamedTuple):
    """One row of LISTING; for an unlistable directory all but `path` and `error` may be None.

    A log that cannot be read while listing also has an `error`, and its base offset may be None.
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
    inside: str | None = None
    topic_id: str | None = None
    partition_metadata_modified_ms: int | None = None
    has_epoch_checkpoint: bool | None = None  # beside its log
    beside_time_index_bytes: int | None = None
    beside_time_index_modified_ms: int | None = None
    beside_offset_index_bytes: int | None = None
    beside_offset_index_modified_ms: int | None = None
    target_time_index_bytes: int | None = None
    target_time_index_modified_ms: int | None = None
    target_offset_index_bytes: int | None = None
    target_offset_index_modified_ms: int | None = None
    target_transaction_index_bytes: int | None = None
    target_transaction_index_modified_ms: int | None = None
    source: Location | None = None  # the base of `path`; only `list_segments` sets it

    def __repr__(self) -> str:
        """Return what is known of it, on one line."""
        return object_text("Segment", self._shown())

    def _repr_html_(self) -> str:
        return object_html("Segment", self._shown())

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"source": self.source and self.source.uri}

    @property
    def log_uri(self) -> str:
        """Return the absolute URI of its log; ValueError if its source is not known."""
        if self.source is None:
            raise ValueError(f"{self.path}: a segment whose source is not known; list_segments")
        return self.log(self.source).uri

    @property
    def is_directory(self) -> bool:
        """Return whether this is an unlistable directory, not a file."""
        return self.last_modified_ms is None

    def index_file(self, kind: IndexKind, where: str = "target") -> FileStatus | None:
        """Return its index file as listed, None for a missing file.

        `where` is `target`, the place where a build puts it, or `beside`, the log's directory.
        """
        size_bytes = getattr(self, f"{where}_{kind}_bytes")
        if size_bytes is None:
            return None
        return FileStatus(size_bytes, getattr(self, f"{where}_{kind}_modified_ms"))

    def log(self, source: Location) -> Location:
        """Return the location of its log."""
        place = source.child(self.path)
        return place._replace(inside=self.inside) if self.inside else place


class Partition(NamedTuple):
    """The partition of the segments in a directory."""

    log_dir: str
    topic: str
    partition: int
    topic_id: str | None = None  # if names show it


class Directory(NamedTuple):
    """The contents of one directory."""

    segments: list[Segment]
    logs: list[Sequence[list[Any]]]  # more segments: the columns of LISTING, a list for each
    inner: list["Visit"]  # to list next
    passed_over: Counter[str]
    unfinished: list[tuple[Location, int]]  # temporary index files and their times in ms
    more: list[Callable[[], "Directory"]]  # find segments for which small files must be read

    @classmethod
    def empty(cls) -> Self:
        """Return a directory without contents."""
        return cls([], [], [], Counter(), [], [])


class Visit(NamedTuple):
    """A directory to list."""

    source: Location
    index_dir: Location | None  # where a build puts index files, at the same path
    below: str  # its path below SOURCE
    above: tuple[str, ...]  # the real paths from SOURCE down to it
    time_index: str = TIME_INDEX_FILE  # how the names of a build's time indexes end
    is_link: bool = False  # it is a link itself

    @property
    def place(self) -> Location:
        """Return its location."""
        return self.source.child(self.below) if self.below else self.source

    @property
    def target(self) -> Location | None:
        """Return the directory in which a build puts the index files of its segments."""
        return self.index_dir.child(self.below) if self.index_dir and self.below else self.index_dir

    def path_of(self, name: str) -> str:
        """Return the path below SOURCE of a file in it."""
        return f"{self.below}/{name}" if self.below else name

    @property
    def names(self) -> tuple[str, str, str]:
        """Return its name, its parent's and its grandparent's; these may be above SOURCE."""
        parts = ("", "", *self.place.path.split("/"))
        return parts[-1], parts[-2], parts[-3]


def parent_of(below: str) -> str:
    """Return the path below SOURCE of the parent of a path."""
    return below.rpartition("/")[0]


def entries(directory: Directory, visit: Visit, partition: Partition | None) -> Infos:
    """Return a directory's entries; if it cannot be listed, none, and add a row with the error."""
    place = visit.place
    try:
        with READ_FAULTS:
            infos: Infos = place.filesystem().get_file_info(fs.FileSelector(place.path))
    except FileReadError as error:
        directory.segments.append(unlistable(visit.below, partition, one_line(error)))
        return []
    return _with_text_names(directory, visit, infos)


def _with_text_names(directory: Directory, visit: Visit, infos: Infos) -> Infos:
    """Return the entries with UTF-8 names; count other files, add rows for other directories."""
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
    """Add a directory to list next, unless Kafka would delete it or its link makes a loop."""
    inner = parse_partition_dir(name)
    if inner and inner.kind:
        directory.passed_over[f"-{inner.kind} directories"] += 1
        return
    path = visit.path_of(name)
    real = real_path(visit.place.child(name), visit.above[-1])
    is_link = real != f"{visit.above[-1].rstrip('/')}/{name}"
    if real in visit.above:
        why = "a link to a directory above itself"
    elif len(visit.above) > MAX_DEPTH:
        why = f"more than {MAX_DEPTH} directories deep"
    else:
        directory.inner.append(
            visit._replace(below=path, above=(*visit.above, real), is_link=is_link)
        )
        return
    directory.segments.append(unlistable(path, None, why))


def add_later(directory: Directory, infos: Infos, segment_of: Callable[[Any], Segment]) -> None:
    """Add segments for which a small file each must be read, in parts that run in parallel."""

    def read(part: Infos) -> Directory:
        return Directory.empty()._replace(segments=[segment_of(info) for info in part])

    for start in range(0, len(infos), SMALL_FILES_IN_ROW):
        directory.more.append(partial(read, infos[start : start + SMALL_FILES_IN_ROW]))


def unlistable(below: str, partition: Partition | None, why: str) -> Segment:
    """Return the row for a directory that cannot be listed."""
    log_dir, topic, number, topic_id = partition or (parent_of(below), None, None, None)
    row = Segment(below, log_dir, topic, number, None, None, None, None, None, why)
    return row._replace(topic_id=topic_id)


def real_path(directory: Location, real_parent: str) -> str:
    """Return the path with links resolved; only local disks have links."""
    if directory.is_local and (not real_parent or os.path.islink(directory.path)):  # noqa: PTH114
        return os.path.realpath(directory.path)
    return f"{real_parent.rstrip('/')}/{directory.name}"


_ListDirectory: TypeAlias = Callable[[Visit], Directory]
"""Lists one directory. It raises nothing: an unreadable entry is a segment with an `error`."""


class Layout(NamedTuple):
    """One layout of an archive."""

    name: str  # in `--layout` and in a snapshot's commit
    expected: str  # for the error if no segment is found: names '...' expected
    list_directory: _ListDirectory
    in_place: bool = False  # whether index files may be put beside the logs
    why_not_deleted: str | None = "its files belong to another program"  # None: a plan may delete
