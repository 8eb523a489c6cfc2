"""The index files in a listing: those beside the logs, and those where a build puts its own."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from pyarrow import fs

from kip33.archive.directory import Directory, Infos, Partition, Segment, Visit
from kip33.archive.segment_paths import index_names
from kip33.drafts.designs import DRAFT_FILES
from kip33.errors import FileReadError
from kip33.formats.index_kinds import IndexKind
from kip33.stores.files import FileStatus, entries_of, listed_ms, listed_status
from kip33.stores.locations import Location
from kip33.stores.own_files import TEMPORARY_SUFFIX

UNKNOWN_STATUS: Final = FileStatus(-2, None)  # the file may exist: no file has this size


class _NoFile(NamedTuple):
    size_bytes: None = None
    modified_ms: None = None


NOT_THERE: Final = _NoFile()
# Time indexes of other designs end in `.index`, too.
INDEX_SUFFIXES: Final = tuple(kind.suffix for kind in IndexKind)
_FILES: Final = (*(kind.file for kind in IndexKind), "snapshot", *DRAFT_FILES)  # that kip33 writes
_KINDS: Final = "|".join(map(re.escape, _FILES))
Statuses: TypeAlias = dict[str, FileStatus]
"""Index files by name."""


class ListedIndexes(NamedTuple):
    """Index files by name: those beside the logs, and those where a build puts them."""

    beside: Statuses
    at_target: Statuses


def with_beside(segment: Segment, statuses: Statuses, names: tuple[str, str]) -> Segment:
    """Return a segment with the index files beside its log; `names`: its `.timeindex`, `.index`."""
    return _with_files(segment, "beside", statuses, names)


def with_target(segment: Segment, statuses: Statuses, names: tuple[str, str, str]) -> Segment:
    """Return a segment with the index files where a build puts them; names as `index_names`."""
    return _with_files(segment, "target", statuses, names)


def _with_files(
    segment: Segment, where: str, statuses: Statuses, names: tuple[str, ...]
) -> Segment:
    fields: dict[str, Any] = {}
    for kind, name in zip(IndexKind, names, strict=False):
        status = statuses.get(name, NOT_THERE)
        fields[f"{where}_{kind}_bytes"] = status.size_bytes
        fields[f"{where}_{kind}_modified_ms"] = status.modified_ms
    return segment._replace(**fields)


def index_files(
    directory: Directory,
    visit: Visit,
    infos: Infos,
    logs: Sequence[str],
    unfinished: re.Pattern[str],
) -> ListedIndexes:
    """Return the index files of logs by their suffixes; add temporary ones to `unfinished`.

    `logs` are names; `unfinished` matches the names of temporary index files.
    """
    beside = index_statuses(visit.place, infos)
    if visit.target == visit.place:
        directory.unfinished.extend(_unfinished(visit.place, infos, unfinished))
        return ListedIndexes(beside, beside)
    return ListedIndexes(beside, list_target(directory, visit, logs, unfinished))


def add_segments(
    directory: Directory,
    visit: Visit,
    partition: Partition,
    logs: Sequence[tuple[int, Any]],
    files: ListedIndexes,
    metadata: FileStatus | None = None,
) -> None:
    """Add segments whose log is a separate file; `logs` are base offsets and entries.

    `metadata` is the status of the directory's `partition.metadata`.
    """
    beside, at_target = files
    prefix = f"{visit.below}/" if visit.below else ""
    for base_offset, info in logs:
        times, *others = index_names(info.base_name)
        target_times, *_ = index_names(info.base_name, visit.time_index)
        found: list[Any] = [beside.get(name, NOT_THERE) for name in (times, others[0])]
        found += [at_target.get(name, NOT_THERE) for name in (target_times, *others)]
        directory.segments.append(
            Segment(
                prefix + info.base_name,
                partition.log_dir,
                partition.topic,
                partition.partition,
                base_offset,
                info.size,
                listed_ms(info, visit.place),
                None,
                None,
                None,
                None,
                partition.topic_id,
                metadata.modified_ms if metadata else None,
                *chain.from_iterable(found),
            )
        )


def list_target(
    directory: Directory, visit: Visit, logs: Sequence[str], unfinished: re.Pattern[str]
) -> Statuses:
    """Return the index files where a build puts them, by name; `logs` are names, too.

    In a directory that cannot be listed, every file may exist and belong to another program.
    """
    target = visit.target
    if target is None:
        return {}
    try:
        infos = entries_of(target)
    except NotADirectoryError:
        return {}
    except FileReadError:
        return {
            index: UNKNOWN_STATUS for name in logs for index in index_names(name, visit.time_index)
        }
    directory.unfinished.extend(_unfinished(target, infos, unfinished))
    return index_statuses(target, infos)


def index_statuses(place: Location, infos: Infos) -> Statuses:
    """Return the index files among the entries of the directory `place`, by their names."""
    return {
        info.base_name: listed_status(place, info)
        for info in infos
        if info.type == fs.FileType.File and info.base_name.endswith(INDEX_SUFFIXES)
    }


def unfinished_of(stems: str) -> re.Pattern[str]:
    """Return the pattern of temporary names of index files whose stems match `stems`."""
    return re.compile(rf"\.(?:{stems})\.(?:{_KINDS})\.[0-9a-f]{{32}}{re.escape(TEMPORARY_SUFFIX)}")


def _unfinished(
    place: Location, infos: Infos, unfinished: re.Pattern[str]
) -> list[tuple[Location, int]]:
    return [
        (place.child(info.base_name), listed_ms(info, place))
        for info in infos
        if info.type == fs.FileType.File and unfinished.fullmatch(info.base_name)
    ]
