"""In a bucket, the sizes and times of new index files come from listings of their folders.

A put does not say when the store received a file, and a size that is read back shows that the store
kept all bytes. One request for each file answers both, and a listing answers for a thousand files.
So if a task puts several small files into a folder, their rows wait, and then the folder is listed.

Another build that replaces a file in between is not detected if the new file has the same size. So
a row waits only for a few hundred others, and never for a large log. A folder with many older files
takes many requests to list. So files are asked for one by one unless most of the archive is new.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from kip33.archive.directory import Segment
from kip33.archive.segment_paths import index_of_row
from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import CANNOT_BE_WRITTEN
from kip33.builds.waiting_indexes import Built
from kip33.catalog.schema import IndexFileState
from kip33.errors import FileReadError
from kip33.formats.draft_indexes import TIME_INDEX_FILE
from kip33.stores.concurrently import LARGE_FILES_AT_ONCE
from kip33.stores.files import FileStatus, entries_of, listed_status, one_line, status_of
from kip33.stores.locations import Location

LEAST_FILES: Final = 3  # in a folder: for fewer a listing saves nothing
MOST_SEGMENTS_OF_FOLDER: Final = 4096  # in a task: each group of rows lists the folder again
MOST_WAITING_ROWS: Final = 512
SMALL_LOG_BYTES: Final = 8 << 20  # one range: the requests of a larger log take longer than its put
_KINDS: Final = (("time", TIME_INDEX_FILE), ("offset", "index"))


class ListedPuts:
    """The segments of a task whose index files were put, in groups that wait for a listing."""

    def __init__(self, build: BuildSpec, files: pa.Table) -> None:
        """Take the files of the task's bin. If puts are not listed, no segment waits."""
        paths = files["path"].to_pylist() if build.lists_puts else []
        self._in_folder = Counter(_folder(str(path)) for path in paths)
        self._group: list[Built] = []

    def waits(self, segment: Segment) -> bool:
        """Return whether the segment's index files are put without reading back their sizes."""
        if not self._in_folder or (segment.size_bytes or 0) > SMALL_LOG_BYTES:
            return False
        return LEAST_FILES <= self._in_folder[_folder(segment.path)] <= MOST_SEGMENTS_OF_FOLDER

    def complete(self, built: Built) -> Iterator[Built]:
        """Add a segment; yield the segments that are complete, in order."""
        if not self._in_folder or (not self._group and not _unknown_files(built.row)):
            yield built
            return
        self._group.append(built)
        if len(self._group) >= MOST_WAITING_ROWS:
            yield from self.complete_all()

    def complete_all(self) -> Iterator[Built]:
        """Look up the files that wait; yield their segments. A fault is its row's `error`."""
        group, self._group = self._group, []
        folders: defaultdict[Location, list[tuple[dict[str, Any], str, Location]]]
        folders = defaultdict(list)
        for built in group:
            for kind, place in _unknown_files(built.row):
                folders[place.parent].append((built.row, kind, place))
        with ThreadPoolExecutor(LARGE_FILES_AT_ONCE, thread_name_prefix="kip33-list") as pool:
            listed = pool.map(lambda one: _listed(one[0], len(one[1])), folders.items())
            for statuses, files in zip(listed, folders.values(), strict=True):
                for row, kind, place in files:
                    _fill_in(row, kind, place, statuses.get(place.path))
        yield from group


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _unknown_files(row: dict[str, Any]) -> list[tuple[str, Location]]:
    """Return kind and place of the row's index files that were put and not read back."""
    return [
        (kind, index_of_row(Location.of(row["index_uri"]), suffix))
        for kind, suffix in _KINDS
        if row.get(f"{kind}_index_bytes") is not None and row[f"{kind}_index_modified_ms"] is None
    ]


def _listed(folder: Location, files: int) -> dict[str, FileStatus]:
    """Return the files of a folder by path; empty if it is cheaper or necessary to ask for each."""
    if files < LEAST_FILES:
        return {}
    try:
        entries = entries_of(folder)
    except FileReadError:
        return {}
    return {info.path: listed_status(folder, info) for info in entries if info.is_file}


def _fill_in(row: dict[str, Any], kind: str, place: Location, listed: FileStatus | None) -> None:
    """Complete the columns of one file; a file that the listing lacks is asked for."""
    expected = row[f"{kind}_index_bytes"]
    try:
        is_right = listed is not None and listed.size_bytes == expected
        status = listed if is_right else status_of(place)
        found = status.size_bytes if status else None
        if found != expected:
            raise FileReadError(
                f"{place.uri}: {expected} bytes were written, but the file has {found} bytes"
            )
    except FileReadError as error:
        note = f"{place.uri}{CANNOT_BE_WRITTEN}{one_line(error)}"
        row["error"] = "; ".join(filter(None, (row["error"], note)))
        row["index_file"] = IndexFileState.STALE  # the next build tries again
        for column in ("bytes", "modified_ms", "settings", "crc32c"):
            row[f"{kind}_index_{column}"] = None
        return
    assert status is not None
    row[f"{kind}_index_modified_ms"] = status.modified_ms
