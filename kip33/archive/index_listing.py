"""The index files in a listing: those beside the logs, and those where a build puts its own."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kip33.archive.directory import Directory, Infos, Partition, Segment, Visit
from kip33.archive.segment_paths import index_names
from kip33.drafts.designs import DRAFT_FILES
from kip33.errors import FileReadError
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.partition_metadata import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kip33.stores.files import FileStatus, entries_of, is_file, listed_ms, listed_status
from kip33.stores.locations import Location
from kip33.stores.own_files import TEMPORARY_SUFFIX

UNKNOWN_STATUS: Final = FileStatus(-2, None)  # the file may exist: no file has this size


_NO_FILE: Final = (None, None)  # in place of a FileStatus
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


class SmallFiles(NamedTuple):
    """What a listing shows of a broker's small files beside the logs."""

    partition_metadata_modified_ms: int | None = None
    has_epoch_checkpoint: bool | None = None

    def with_file(self, place: Location, info: Any) -> "SmallFiles":
        """These files and one more, if it is one of them; `place` is their directory."""
        if info.base_name == PARTITION_METADATA:
            status = listed_status(place, info)
            return self._replace(partition_metadata_modified_ms=status and status.modified_ms)
        if info.base_name == LEADER_EPOCH_CHECKPOINT:
            return self._replace(has_epoch_checkpoint=True)
        return self


NO_SMALL_FILES: Final = SmallFiles()


class DirectoryToRead(NamedTuple):
    """A directory whose logs are described by small files, or by headers of their own."""

    visit: Visit
    partition: Partition
    at_target: Statuses  # the index files where a build puts them

    def segment(self, log: Any) -> Segment:
        """Return a segment from its log's entry, before any file is opened."""
        visit, name = self.visit, log.base_name
        segment = Segment(
            visit.path_of(name),
            *self.partition[:3],
            base_offset=None,
            size_bytes=None,
            last_modified_ms=listed_ms(log, visit.place),
            active_segment=None,
            topic_id=self.partition.topic_id,
        )
        names = index_names(name, visit.time_index)
        return with_index_files(segment, "target", self.at_target, names)


def with_index_files(
    segment: Segment, where: str, statuses: Statuses, names: tuple[str, ...]
) -> Segment:
    """Return a segment with its index files `beside` the log, or at the `target` of a build.

    `names` are those of its time index, `.index` and, at the target, `.txnindex`.
    """
    fields: dict[str, Any] = {}
    for kind, name in zip(IndexKind, names, strict=False):
        size_bytes, modified_ms = statuses.get(name, _NO_FILE)
        fields[f"{where}_{kind}_bytes"] = size_bytes
        fields[f"{where}_{kind}_modified_ms"] = modified_ms
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
    small_files: SmallFiles = NO_SMALL_FILES,
) -> None:
    """Add segments whose log is a separate file; `logs` are base offsets and entries."""
    beside, at_target = files
    prefix = f"{visit.below}/" if visit.below else ""
    names = [info.base_name for _, info in logs]

    def same(value: Any) -> list[Any]:
        return [value] * len(logs)

    columns = [
        [prefix + name for name in names],
        same(partition.log_dir),
        same(partition.topic),
        same(partition.partition),
        [base_offset for base_offset, _ in logs],
        [info.size for _, info in logs],
        [listed_ms(info, visit.place) for _, info in logs],
        *map(same, (None, None, None, None, partition.topic_id)),
        *map(same, small_files),
    ]
    beside_names, target_names = (
        zip(*(index_names(name, kind) for name in names), strict=True)
        for kind in (TIME_INDEX_FILE, visit.time_index)
    )
    for statuses, of_kinds in ((beside, [*beside_names][:2]), (at_target, target_names)):
        for of_kind in of_kinds:
            found: list[Any] = [statuses.get(name, _NO_FILE) for name in of_kind]
            columns += map(list, zip(*found, strict=True))
    directory.logs.append(columns)


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
        name: listed_status(place, info)
        for info in infos
        if (name := info.base_name).endswith(INDEX_SUFFIXES) and is_file(info)
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
        if unfinished.fullmatch(info.base_name) and is_file(info)
    ]
