"""The removal of planned files: each is looked at again, then deleted, or moved to a trash.

A plan may be old, or made by hand. So a file is deleted or moved only if it has the planned size
and time right before that, and a file that is not in the plan is never touched.

On one filesystem a move is a rename. Otherwise the file is copied to a temporary name, the copy's
size is compared with the plan, the copy is renamed, and then the original is deleted. So each
complete file is in one place or the other.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.archive.segment_paths import NS_PER, PlannedFile, TimeUnit, as_found, is_link
from kip33.stores.files import listed_status, opened, size_of
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, make_folder, move, remove_quietly, temporary_of

LINK: Final = (
    "is a symbolic link; links are not planned, because moving may break them and deleting frees "
    "no space: delete both by hand, or replace the link with the file"
)
_COPY_CHUNK_BYTES: Final = 1 << 20


class FilesNow(NamedTuple):
    """Planned files, as they are now."""

    there: list[PlannedFile]  # as planned
    gone: list[PlannedFile]  # missing
    others: list[str]  # one line each: not as planned, or not in the plan


def files_now(
    files: Sequence[PlannedFile], beside: Iterable[Location] = (), unit: TimeUnit = "ns"
) -> FilesNow:
    """Return the current state of planned files; OSError if a store does not answer.

    No other file may be at the places `beside` them. Times are compared in the plan's `unit`.
    """
    planned = {file.place: file for file in files}
    others = set(beside) - planned.keys()
    now = FilesNow([], [], [])
    for place, info in infos_of([*planned, *sorted(others)]):
        file = planned.get(place)
        if file is None:
            if info.type != fs.FileType.NotFound:
                now.others.append(f"{place.uri}: is not in the plan")
        elif info.type == fs.FileType.NotFound:
            now.gone.append(file)
        elif difference := difference_of(file, info, unit):
            now.others.append(difference)
        else:
            now.there.append(file)
    return now


def difference_of(file: PlannedFile, info: fs.FileInfo, unit: TimeUnit | None = "ns") -> str | None:
    """Return how an existing file differs from its plan, None if it does not.

    Without a `unit` its time does not count.
    """
    uri = file.place.uri
    if info.type != fs.FileType.File:
        return f"{uri}: is not a file now"
    if is_link(file.place):
        return f"{uri}: {LINK}"
    if info.size != file.size_bytes:
        return f"{uri}: {info.size} bytes found, the plan says {file.size_bytes}"
    if unit is None:
        return None
    modified: int | None = as_found(info, file.folder).last_modified_ns
    if unit == "ms":
        modified = listed_status(file.folder, info).modified_ms
    planned = file.last_modified_ns // NS_PER[unit]
    if modified == planned:
        return None
    return f"{uri}: modified at {modified} {unit}, the plan says {planned}"


def infos_of(places: Iterable[Location]) -> list[tuple[Location, fs.FileInfo]]:
    """Return the status of files, existing or not, with one request to each store."""
    statuses: list[tuple[Location, fs.FileInfo]] = []
    by_root: dict[str, list[Location]] = {}
    for place in places:
        by_root.setdefault(place.root, []).append(place)
    for of_store in by_root.values():
        infos = of_store[0].filesystem().get_file_info([place.path for place in of_store])
        statuses += zip(of_store, infos, strict=True)
    return statuses


def info_of(place: Location) -> fs.FileInfo | None:
    """Return the status of a file, None if it does not exist."""
    [(_, info)] = infos_of([place])
    return None if info.type == fs.FileType.NotFound else info


def exists(place: Location) -> bool:
    """Return whether there is anything at a place; OSError if the store does not answer."""
    return os.path.lexists(place.path) if place.is_local else info_of(place) is not None


def move_file(
    file: Location, target: Location, *, size_bytes: int, leaves_copy: bool = False
) -> None:
    """Move a file of `size_bytes`; OSError if that fails, FileNotFoundError if it is missing.

    With `leaves_copy` the original stays where a move is not a rename.
    An existing target with the same bytes is treated as the copy of a move that was killed between
    copy and deletion, unless it is a link, or the file itself by another path.
    """
    if exists(target):  # a rename would also replace a link or a pipe
        if _is_one_file(file, target):
            raise FileExistsError(errno.EEXIST, f"it is the same file: {target.uri}")
        if is_link(target) or size_of(target) is None or not _same_bytes(file, target):
            raise FileExistsError(errno.EEXIST, f"another file is there: {target.uri}")
    elif _rename(file, target):
        return
    else:
        _copy(file, target, size_bytes=size_bytes)
    if not leaves_copy:
        file.filesystem().delete_file(file.path)


def _is_one_file(file: Location, target: Location) -> bool:
    """Return whether both paths lead to one file, by a link on the way."""
    if not (file.is_local and target.is_local and os.path.exists(target.path)):  # noqa: PTH110
        return False
    return os.path.samefile(file.path, target.path)  # noqa: PTH121


def _rename(file: Location, target: Location) -> bool:
    """Rename a file if that is one atomic step; return whether it was renamed."""
    if file.root != target.root or file.is_object_store:
        return False
    try:
        move(file, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _copy(file: Location, target: Location, *, size_bytes: int) -> None:
    """Publish a complete copy at `target`, with the file's times and mode on a local disk."""
    temporary = temporary_of(target)
    store = target.filesystem()
    if not target.is_object_store:
        make_folder(target.parent)
    try:
        if file.is_local and target.is_local:
            shutil.copy2(file.path, temporary.path)
        elif file.root == target.root:  # the store itself copies
            store.copy_file(file.path, temporary.path)
        else:
            _stream(file, temporary)
        copied = size_of(temporary)
        if copied != size_bytes:
            raise OSError(f"{target.uri}: {copied} bytes were copied, expected {size_bytes}")
        if target.is_local:
            flush(temporary.path)
        move(temporary, target)  # it flushes the folder before the original is deleted
    except BaseException:
        remove_quietly(temporary)
        raise


def _stream(file: Location, target: Location) -> None:
    buffer = memoryview(bytearray(_COPY_CHUNK_BYTES))
    store = target.filesystem()
    with opened(file) as (read_into, size_bytes), store.open_output_stream(target.path) as stream:
        for position in range(0, size_bytes, _COPY_CHUNK_BYTES):
            stream.write(buffer[: read_into(position, buffer)])


def _same_bytes(one: Location, other: Location) -> bool:
    first, second = (memoryview(bytearray(_COPY_CHUNK_BYTES)) for _ in range(2))
    with opened(one) as (read_one, size_bytes), opened(other) as (read_other, other_bytes):
        return size_bytes == other_bytes and all(
            first[: read_one(position, first)] == second[: read_other(position, second)]
            for position in range(0, size_bytes, _COPY_CHUNK_BYTES)
        )
