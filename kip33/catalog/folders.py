"""The folders of a catalog's snapshots and drafts: their files and latest modification times."""

import re
from typing import Final

from pyarrow import fs

from kip33.catalog.catalog import Catalog
from kip33.catalog.snapshot import sequence_of
from kip33.errors import CatalogError
from kip33.stores.files import entries_of, one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import remove_folder_quietly, remove_quietly

_OWN_NAMES: Final = re.compile(
    r"[a-z]+-[0-9]{5,}(\.[0-9a-f]+)?\.parquet|claims\.arrow|\..+\.[0-9a-f]{32}\.tmp"
)

_ORPHAN_LISTS: Final = re.compile(
    r"[0-9]{20}-[0-9a-f]+\.arrow|\.[0-9]{20}-[0-9a-f]+\.arrow\.[0-9a-f]{32}\.tmp"
)


def has_own_name(path: str) -> bool:
    """Return whether kip33 writes files of this name into folders of snapshots and drafts.

    >>> has_own_name("part-00003.5c1e9b02.parquet"), has_own_name("notes.txt")
    (True, False)
    """
    return _OWN_NAMES.fullmatch(path) is not None


def is_orphan_list(name: str) -> bool:
    """Return whether kip33 writes files of this name into `orphaned`, including unfinished ones.

    >>> is_orphan_list("00000000000000000007-4f0c91aa5c1e.arrow"), is_orphan_list("notes.arrow")
    (True, False)
    """
    return _ORPHAN_LISTS.fullmatch(name) is not None


def remove_own_quietly(folder: Location) -> None:
    """Delete one of our folders, or only our files if it has others; failures are ignored."""
    try:
        infos = entries_of(folder, recursive=True)
    except OSError:
        return
    files = [i.path[len(folder.path) + 1 :] for i in infos if i.type != fs.FileType.Directory]
    if all(map(has_own_name, files)):
        remove_folder_quietly(folder)
        return
    for path in filter(has_own_name, files):
        remove_quietly(folder.child(path))


class Folder:
    """One folder with everything below it."""

    def __init__(self) -> None:
        """Start without files."""
        self.sizes: dict[str, int] = {}  # bytes, by the file's path in the folder
        self.touched_ms: int | None = None  # latest known time; of files only on an object store

    def add(self, path: str, info: fs.FileInfo) -> None:
        """Add an entry of the listing: a file, a subfolder, or the folder itself."""
        if info.type == fs.FileType.File:
            self.sizes[path] = info.size
        time_ms = modified_ms(info)
        if time_ms is not None:
            self.touched_ms = max(time_ms, self.touched_ms or 0)

    @property
    def size_bytes(self) -> int:
        """Return the total size of its files."""
        return sum(self.sizes.values())


def modified_ms(info: fs.FileInfo) -> int | None:
    """Return a modification time, None if the store has none or the file was just deleted.

    Also None if it is negative: Arrow's times overflow in 2262 and continue in 1677.
    """
    time_ns = info.mtime_ns
    return None if time_ns is None or time_ns < 0 else time_ns // 1_000_000


def list_folders(catalog: Catalog, below: str) -> dict[str, Folder]:
    """Return the folders with a snapshot's name in `snapshots` or `staging`, in one listing.

    Raises CatalogError if they cannot be listed.
    """
    place = catalog.location.child(below)
    try:
        infos = entries_of(place, recursive=True)
    except OSError as error:
        raise CatalogError(f"{place.uri}: cannot be listed: {one_line(error)}") from error
    folders: dict[str, Folder] = {}
    for info in infos:
        name, slash, path = info.path[len(place.path) + 1 :].partition("/")
        is_folder = bool(slash) or info.type == fs.FileType.Directory
        if is_folder and sequence_of(name) is not None:
            folders.setdefault(name, Folder()).add(path, info)
    return folders
