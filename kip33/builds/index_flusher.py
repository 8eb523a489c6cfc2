"""Flush index files to the disk during a task, before a catalog row names them.

A few threads flush one file each: the file system then writes several files together, and the scan
continues. At the end the folders are flushed, so that the names are safe, too.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from kip33.catalog.index_file_state import IndexFileState
from kip33.errors import PublishError
from kip33.stores.durable_files import flush, flush_filesystems, is_flushing
from kip33.stores.files import one_line
from kip33.stores.locations import Location

FLUSHING_THREADS: Final = 8
MOST_WAITING: Final = 1024  # files; with more, the scan waits for the oldest
INDEX_FILE_KINDS: Final = (
    ("time_index_bytes", "timeindex"),
    ("offset_index_bytes", "index"),
    ("transaction_index_bytes", "txnindex"),
)


class IndexFlusher:
    """Flushes the index files of some rows, and at the end their folders."""

    def __init__(self) -> None:
        """Start without files."""
        self._pool = ThreadPoolExecutor(FLUSHING_THREADS, thread_name_prefix="kip33-flush")
        self._waiting: deque[tuple[Location, Future[None]]] = deque()
        self._folders: dict[str, Location] = {}
        self._not_flushed: set[Location] = set()  # folders of files that could not be opened

    def add(self, row: dict[str, Any]) -> None:
        """Begin to flush the index files of a catalog row.

        The files of a `stale` row need no flush, because the next build writes them again.
        """
        is_promised = row.get("index_file") in (IndexFileState.WRITTEN, IndexFileState.KEPT)
        uri = row.get("index_uri") if is_promised else None
        if not is_flushing() or not uri or not uri.startswith("file:"):
            return
        place = Location.of(uri)
        self._folders.setdefault(place.parent.path, place.parent)
        stem = place.path.removesuffix("timeindex")
        for column, kind in INDEX_FILE_KINDS:
            if row.get(column) is not None:
                self._waiting.append((place.parent, self._pool.submit(flush, stem + kind)))
        while len(self._waiting) > MOST_WAITING:
            self._wait_for_oldest()

    def add_folder(self, row: dict[str, Any]) -> None:
        """Flush the folder of a row's index files at the end, because a file in it is new."""
        uri = row.get("index_uri")
        if uri and uri.startswith("file:") and is_flushing():
            folder = Location.of(uri).parent
            self._folders.setdefault(folder.path, folder)

    def flush(self) -> None:
        """Wait as `wait` does; called once, at the end."""
        try:
            self.wait()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def wait(self) -> None:
        """Wait until all files and folders so far are on the disk; PublishError if that fails."""
        try:
            while self._waiting:
                self._wait_for_oldest()
            for one in [self._pool.submit(flush, folder) for folder in self._folders]:
                one.result()
            flush_filesystems(sorted(self._not_flushed, key=lambda folder: folder.path))
            self._folders, self._not_flushed = {}, set()
        except OSError as error:
            raise PublishError(
                f"index files cannot be flushed to the disk: {one_line(error)}; the snapshot is "
                "not committed: fix it and run the command again, or build with --no-fsync"
            ) from error

    def _wait_for_oldest(self) -> None:
        folder, one = self._waiting.popleft()
        try:
            one.result()
        except (PermissionError, FileNotFoundError):  # it cannot be opened, or was renamed
            self._not_flushed.add(folder)
