"""The index files that a listing shows: beside the logs, and where a build puts its own."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyarrow import fs

from kip33.storage.directories import Directory, Infos, Partition, Segment, Visit
from kip33.storage.files import TEMPORARY_SUFFIX, entries_of
from kip33.storage.locations import Location
from kip33.storage.segment_files import index_path

UNKNOWN: Final = -2  # bytes of a file that may be there: no file has so many


class IndexFiles(NamedTuple):
    """Sizes of index files by name: beside the logs, and where a build puts them."""

    beside: dict[str, int]
    at_target: dict[str, int]


def index_files(
    directory: Directory,
    visit: Visit,
    infos: Infos,
    logs: Sequence[str],
    unfinished: re.Pattern[str],
) -> IndexFiles:
    """Return the index files of logs by their suffixes; note those that were never finished.

    `logs` are names; `unfinished` matches the names of temporary index files.
    """
    beside = index_sizes(infos)
    if visit.target == visit.place:
        directory.unfinished.extend(_unfinished(visit.place, infos, unfinished))
        return IndexFiles(beside, beside)
    return IndexFiles(beside, list_target(directory, visit, logs, unfinished))


def add_segments(
    directory: Directory,
    visit: Visit,
    partition: Partition,
    logs: Sequence[tuple[int, Any]],
    files: IndexFiles,
) -> None:
    """Add segments whose log is a file of its own; `logs` are base offsets and entries."""
    beside, at_target = files
    prefix = f"{visit.below}/" if visit.below else ""
    for base_offset, info in logs:
        stem = info.base_name.removesuffix(".log")
        directory.segments.append(
            Segment(
                prefix + info.base_name,
                *partition,
                base_offset,
                info.size,
                info.mtime_ns // 1_000_000,
                None,
                None,
                None,
                beside.get(f"{stem}.timeindex"),
                beside.get(f"{stem}.index"),
                at_target.get(f"{stem}.timeindex"),
                at_target.get(f"{stem}.index"),
            )
        )


def list_target(
    directory: Directory, visit: Visit, logs: Sequence[str], unfinished: re.Pattern[str]
) -> dict[str, int]:
    """Return the sizes of index files where a build puts them, by name; `logs` are names as well.

    In a directory that cannot be listed every file may be there, and be somebody else's.
    """
    target = visit.target
    if target is None:
        return {}
    try:
        infos = entries_of(target)
    except NotADirectoryError:
        return {}
    except OSError:
        kinds = ("timeindex", "index")
        return {index_path(name, kind): UNKNOWN for name in logs for kind in kinds}
    directory.unfinished.extend(_unfinished(target, infos, unfinished))
    return index_sizes(infos)


def index_sizes(infos: Infos) -> dict[str, int]:
    """Return the sizes of the index files among a directory's entries, by name."""
    return {
        info.base_name: info.size
        for info in infos
        if info.type == fs.FileType.File and info.base_name.endswith((".timeindex", ".index"))
    }


def unfinished_of(stems: str) -> re.Pattern[str]:
    """Return what matches the temporary names of index files whose stems match a pattern."""
    return re.compile(
        rf"\.(?:{stems})\.(?:timeindex|index)\.[0-9a-f]{{32}}{re.escape(TEMPORARY_SUFFIX)}"
    )


def _unfinished(
    place: Location, infos: Infos, unfinished: re.Pattern[str]
) -> list[tuple[Location, int]]:
    return [
        (place.child(info.base_name), info.mtime_ns // 1_000_000)
        for info in infos
        if info.type == fs.FileType.File and unfinished.fullmatch(info.base_name)
    ]
