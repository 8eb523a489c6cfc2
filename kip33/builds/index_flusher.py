"""Flush index files to the disk during a task, before a catalog row names them.

A few threads flush some files each, one after the other: the file system then writes files of
several threads together, and the scan continues. At the end the folders are flushed, so that the
names are safe, too.

After a failed flush a file's bytes can be in memory only, and a later flush of them succeeds. The
next run would find the expected bytes and write nothing. So our files that could not be flushed are
deleted: the next run writes them again.
"""

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kip33.archive.segment_paths import index_of_row
from kip33.catalog.schema import IndexFileState
from kip33.errors import PublishError
from kip33.formats.index_kinds import IndexKind
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, flush_filesystems, is_flushing

FLUSHING_THREADS: Final = 8
FILES_AT_ONCE: Final = 32  # of one thread's work: handing over files one by one costs more CPU
MOST_WAITING: Final = 1024  # files; with more, the scan waits for the oldest


class _IndexFile(NamedTuple):
    path: str
    ours: tuple[str, ...]  # all files of its row if they are ours, else none


class IndexFlusher:
    """Flushes the index files of some rows, and at the end their folders."""

    def __init__(self) -> None:
        """Start without files."""
        self._pool = ThreadPoolExecutor(FLUSHING_THREADS, thread_name_prefix="kip33-flush")
        self._next: list[_IndexFile] = []  # files that no thread has yet
        self._waiting: deque[Future[list[_IndexFile]]] = deque()
        self._folders: dict[str, Location] = {}
        self._not_flushed: list[_IndexFile] = []  # files that could not be opened

    def add(self, row: dict[str, Any]) -> None:
        """Begin to flush the index files of a catalog row.

        The files of a `stale` row need no flush, because the next build writes them again. Raises
        PublishError if files of earlier rows cannot be flushed.
        """
        if not is_flushing():
            return
        is_promised = row.get("index_file") in (IndexFileState.WRITTEN, IndexFileState.KEPT)
        uri = row.get("index_uri") if is_promised else None
        if not uri or not uri.startswith("file:"):
            return
        place = Location.of(uri)
        self._folders.setdefault(place.parent.path, place.parent)
        paths = [
            index_of_row(place, kind).path
            for kind in IndexKind
            if row.get(f"{kind}_bytes") is not None
        ]
        ours = tuple(paths) if row["index_file"] == IndexFileState.WRITTEN else ()
        self._next += [_IndexFile(path, ours) for path in paths]
        self._begin_full()

    def _begin_full(self) -> None:
        if len(self._next) >= FILES_AT_ONCE:
            self._begin_next()
        try:
            self._collect(MOST_WAITING // FILES_AT_ONCE)
        except OSError as error:
            raise _publish_error(error) from error

    def add_folder(self, row: dict[str, Any]) -> None:
        """Flush the folder of a row's index files at the end, because a file in it is new."""
        uri = row.get("index_uri")
        if uri and uri.startswith("file:") and is_flushing():
            folder = Location.of(uri).parent
            self._folders.setdefault(folder.path, folder)

    def add_new(self, folder: Location, names: Sequence[str]) -> None:
        """Begin to flush new index files of a local folder, each the only one of its row."""
        if not is_flushing() or not names:
            return
        self._folders.setdefault(folder.path, folder)
        paths = [folder.child(name).path for name in names]
        self._next += [_IndexFile(path, (path,)) for path in paths]
        self._begin_full()

    def flush(self) -> None:
        """Wait as `wait` does; called once, at the end."""
        try:
            self.wait()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def wait(self) -> None:
        """Wait until all files and folders so far are on the disk; PublishError if that fails."""
        try:
            self._begin_next()
            self._collect(0)
            for one in [self._pool.submit(flush, folder) for folder in self._folders]:
                one.result()
            folders = {os.path.dirname(file.path) for file in self._not_flushed}  # noqa: PTH120
            flush_filesystems(self._folders[folder] for folder in sorted(folders))
            self._folders, self._not_flushed = {}, []
        except OSError as error:
            for file in self._not_flushed:
                _remove(file.ours)
            raise _publish_error(error) from error

    def _collect(self, most_waiting: int) -> None:
        """Wait for the oldest lists; the first OSError of a file is raised after all of them."""
        failure: OSError | None = None
        while len(self._waiting) > most_waiting:
            try:
                self._not_flushed += self._waiting.popleft().result()
            except OSError as error:
                failure = failure or error
        if failure:
            raise failure

    def _begin_next(self) -> None:
        if self._next:
            self._waiting.append(self._pool.submit(_flush_files, self._next))
            self._next = []


def _flush_files(files: list[_IndexFile]) -> list[_IndexFile]:
    """Flush files; return those that cannot be opened, or have another name now.

    Raises the first other OSError after all files were tried; our files that fail are deleted.
    """
    not_flushed = []
    failure: OSError | None = None
    for file in files:
        try:
            flush(file.path)
        except (PermissionError, FileNotFoundError):
            not_flushed.append(file)
        except OSError as error:
            _remove(file.ours)
            failure = failure or error
    if failure:
        raise failure
    return not_flushed


def _remove(ours: tuple[str, ...]) -> None:
    """Delete a row's files, the `.index` first: without it a broker builds all of them."""
    for path in sorted(ours, key=lambda path: not path.endswith(".index")):
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108


def _publish_error(error: OSError) -> PublishError:
    return PublishError(
        f"index files cannot be flushed to the disk: {one_line(error)}; the snapshot is "
        "not committed: fix it and run the command again, or build with --no-fsync"
    )
