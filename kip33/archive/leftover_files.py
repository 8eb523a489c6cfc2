"""Files below a SOURCE that belong to no segment: by name, with their sizes.

A listing for a build only counts them. This one lists the same directories for their names.
"""

import re
import threading
from collections.abc import Sequence
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.archive.directory import Directory, Visit
from kip33.archive.index_listing import INDEX_SUFFIXES, unfinished_of
from kip33.archive.layouts import Layout
from kip33.archive.layouts.aiven import AIVEN
from kip33.archive.layouts.hdfs_rsm import HDFS_RSM
from kip33.archive.listing import list_tree
from kip33.archive.segment_paths import TIERED_LOG, UUID
from kip33.drafts.designs import DRAFT_FILES
from kip33.errors import READ_FAULTS, FileReadError
from kip33.formats.names import parse_checkpoint_file, parse_partition_dir, parse_segment_file
from kip33.stores.containers.aiven import INDEXES, LOG, MANIFEST
from kip33.stores.files import has_text_name, listed_status, one_line, shown_name
from kip33.stores.locations import Location


class LeftoverKind(StrEnum):
    """What a leftover is; each member is its own text."""

    ORPHAN = "index file of kip33 without a log"  # this catalog's builds wrote it
    INDEX = "index file without a log"
    TEMPORARY = "temporary file of kip33"  # of a build that runs or was killed
    DELETED = ".deleted file"
    CLEANED = ".cleaned file"
    SWAP = ".swap file"
    DELETE = "-delete directory"
    STRAY = "-stray directory"
    FUTURE = "-future directory"
    UPLOAD = "upload without a manifest"
    MANIFEST = "manifest without a log"
    OTHER = "unknown file"


class Leftover(NamedTuple):
    """A file, or a directory with its files, that belongs to no segment."""

    uri: str
    kind: LeftoverKind
    files: int
    size_bytes: int
    last_modified_ms: int | None  # None: of a directory, or the store has no time


class LeftoverFiles(NamedTuple):
    """Leftovers in any order, and one line for each directory that could not be listed."""

    found: list[Leftover]
    problems: list[str]


INDEX_END: Final = (
    r"\.(?:" + "|".join(map(re.escape, ("timeindex", "txnindex", *DRAFT_FILES, "index"))) + ")$"
)
RSM_LOG: Final = "log"  # in the directory of a segment
MARKED_DIRECTORIES: Final = (LeftoverKind.DELETE, LeftoverKind.STRAY, LeftoverKind.FUTURE)
OWN_TEMPORARY: Final = unfinished_of(".+")
# Files that brokers and uploaders keep beside segments.
_KNOWN: Final = re.compile(
    r"partition\.metadata|leader-epoch-checkpoint|offset\.wm|_metadata|\.lock"
    r"|meta\.properties|\.kafka_cleanshutdown|quorum-state|remote_log_snapshot|bootstrap\.checkpoint"
    r"|[a-z-]+-checkpoint|.+\.snapshot|.+\.leader_epoch_checkpoint|\.kafka-storage\.lock"
)


def list_leftovers(
    source: Location, layout: Layout, exclude: Sequence[Location] = ()
) -> LeftoverFiles:
    """Return the leftovers below a source, except in the directories of `exclude`."""
    walk = _Walk(layout, exclude)
    list_tree(source, layout=layout._replace(list_directory=walk.list_directory))
    return LeftoverFiles(walk.found, walk.problems)


class _Walk:
    """Lists directories as a layout does, and keeps the names of what belongs to no segment."""

    def __init__(self, layout: Layout, exclude: Sequence[Location]) -> None:
        self._layout, self._exclude = layout, exclude
        self._lock = threading.Lock()
        self.found: list[Leftover] = []
        self.problems: list[str] = []

    def list_directory(self, visit: Visit) -> Directory:
        directory = self._layout.list_directory(visit)
        unlisted = [row for row in directory.segments if row.is_directory]
        problems = [f"{visit.source.child(row.path).uri}: {row.error}" for row in unlisted]
        paths = [row.path for row in directory.segments if not row.is_directory]
        paths += chain.from_iterable(columns[0] for columns in directory.logs)
        logs = {path.rpartition("/")[2] for path in paths}
        try:
            found = _leftovers(self._layout, visit, logs)
        except FileReadError as error:
            found = []
            problems = problems or [f"{visit.place.uri}: {one_line(error)}"]
        with self._lock:
            self.found += found
            self.problems += problems
        inner = [
            below
            for below in directory.inner
            if not any(place.contains(below.place) for place in self._exclude)
        ]
        return Directory.empty()._replace(inner=inner)


def _leftovers(layout: Layout, visit: Visit, logs: set[str]) -> list[Leftover]:
    """Return the leftovers in a directory; `logs` are the names of its logs."""
    place = visit.place
    files: list[fs.FileInfo] = []
    found = []
    with READ_FAULTS:
        listed = place.filesystem().get_file_info(fs.FileSelector(place.path))
    for info in listed:
        if not has_text_name(info):
            uri = f"{place.uri}/{shown_name(info)}"
            found.append(Leftover(uri, LeftoverKind.OTHER, 1, max(info.size or 0, 0), None))
        elif info.type != fs.FileType.Directory:
            files.append(info)
        elif (named := parse_partition_dir(info.base_name)) and named.kind:
            kind = LeftoverKind(f"-{named.kind} directory")
            found.append(_directory_with_files(place.child(info.base_name), kind))
    names = {info.base_name for info in files}
    for info in files:
        kind_of_file = _kind_of(layout, visit, info.base_name, names, logs)
        if kind_of_file:
            found.append(leftover_file(place, info, kind_of_file))
    return found


def leftover_file(store: Location, info: fs.FileInfo, kind: LeftoverKind) -> Leftover:
    """Return a file of a listing; `store` is any location of its store."""
    status = listed_status(store, info)
    uri = Location(store.root, info.path).uri
    return Leftover(uri, kind, 1, status.size_bytes or 0, status.modified_ms)


def _directory_with_files(place: Location, kind: LeftoverKind) -> Leftover:
    """Return a directory with the number and size of all files in it; OSError as the store does."""
    selector = fs.FileSelector(place.path, recursive=True)
    with READ_FAULTS:
        infos = place.filesystem().get_file_info(selector)
    sizes = [info.size or 0 for info in infos if info.type == fs.FileType.File]
    return Leftover(place.uri, kind, len(sizes), sum(sizes), None)


def _kind_of(
    layout: Layout, visit: Visit, name: str, names: set[str], logs: set[str]
) -> LeftoverKind | None:
    """Return what kind of leftover a file is; None: it belongs to a segment, or is known."""
    if OWN_TEMPORARY.fullmatch(name):
        return LeftoverKind.TEMPORARY
    if _KNOWN.fullmatch(name) or parse_checkpoint_file(name):
        return None
    if layout.name == AIVEN.name:
        return _kind_of_upload(name, names)
    if layout.name == HDFS_RSM.name:
        return _kind_in_rsm(visit, name, names)
    named = parse_segment_file(name)
    if named and named.suffix:
        return LeftoverKind(f".{named.suffix} file")
    if name in logs:
        return None
    if name.endswith(INDEX_SUFFIXES):
        stem = re.sub(INDEX_END, "", name)
        return None if logs & {stem, f"{stem}.log"} else LeftoverKind.INDEX
    return LeftoverKind.OTHER


def _kind_of_upload(name: str, names: set[str]) -> LeftoverKind | None:
    for suffix in (LOG, INDEXES, MANIFEST):
        stem = name.removesuffix(suffix)
        if stem == name or not TIERED_LOG.fullmatch(stem + LOG):
            continue
        if suffix == MANIFEST:
            return None if stem + LOG in names else LeftoverKind.MANIFEST
        return None if stem + MANIFEST in names else LeftoverKind.UPLOAD
    return LeftoverKind.OTHER


def _kind_in_rsm(visit: Visit, name: str, names: set[str]) -> LeftoverKind | None:
    """Return the kind of a file; a segment is one file, or a directory with a file `log`."""
    if RSM_LOG in names or UUID.fullmatch(name):
        return None
    return LeftoverKind.UPLOAD if UUID.fullmatch(visit.place.name) else LeftoverKind.OTHER
