"""The current files of one partition's directory, by segment."""

import os
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.formats.names import SEGMENT_KINDS, parse_segment_file
from kip33.stores.files import has_text_name, modified_ns
from kip33.stores.locations import Location
from kip33.stores.read_faults import READ_FAULTS

NO_TIME: Final = -1  # the store does not report a modification time


class PlannedFile(NamedTuple):
    """One file to delete, with the size and time it must have."""

    name: str
    size_bytes: int
    last_modified_ns: int
    in_index_dir: bool = False  # False: beside the log


class PartitionFiles(NamedTuple):
    """The segments in a listing of a partition's directory."""

    segments: dict[int, list[PlannedFile]]  # by base offset; the files in Kafka's order
    swaps: frozenset[int]  # base offsets of logs that a broker renames into place when it loads

    def logs(self) -> list[int]:
        """Return the base offsets of the logs, in order; repeated if two logs have the same."""
        return sorted(
            base_offset
            for base_offset, files in self.segments.items()
            for file in files
            if is_log(file)
        )


def list_partition(directory: Location, *, may_be_absent: bool = False) -> PartitionFiles:
    """Return the segment files in a directory; FileReadError if it cannot be listed."""
    selector = fs.FileSelector(directory.path, allow_not_found=may_be_absent)
    segments: dict[int, list[PlannedFile]] = {}
    swaps: set[int] = set()
    with READ_FAULTS:
        infos = directory.filesystem().get_file_info(selector)
    for info in filter(has_text_name, infos):
        name = parse_segment_file(info.base_name)
        if name is None or name.kind not in SEGMENT_KINDS or info.type != fs.FileType.File:
            continue
        if not name.suffix:
            segments.setdefault(name.base_offset, []).append(as_found(info, directory))
        elif (name.kind, name.suffix) == ("log", "swap"):
            swaps.add(name.base_offset)
    for files in segments.values():
        files.sort(key=_in_order)
    return PartitionFiles(segments, frozenset(swaps))


def is_link(place: Location) -> bool:
    """Return whether a file is a link: moved, it might dangle; deleted, it would free nothing."""
    return place.is_local and os.path.islink(place.path)  # noqa: PTH114


def link_in(place: Location, root: Location) -> Location | None:
    """Return the first link on the way from `root`, which may be one itself, down to `place`."""
    if not place.is_local:
        return None
    path = root.path.rstrip("/")
    for name in place.path.removeprefix(path).strip("/").split("/"):
        path = f"{path}/{name}"
        if os.path.islink(path):  # noqa: PTH114
            return Location(place.root, path)
    return None


def is_log(file: PlannedFile) -> bool:
    """Return whether a file of a segment is its log."""
    return file.name.endswith(".log")


def as_found(info: fs.FileInfo, place: Location) -> PlannedFile:
    """Return a file in its current state; `place` is any location of its store."""
    modified = modified_ns(info, place)
    return PlannedFile(info.base_name, info.size, NO_TIME if modified is None else modified)


def in_deletion_order(files: list[PlannedFile]) -> tuple[PlannedFile, ...]:
    """Return a segment's files in Kafka's order; per kind, the one beside the log is first."""
    return tuple(sorted(files, key=_in_order))


def _in_order(file: PlannedFile) -> tuple[int, bool, str]:
    return SEGMENT_KINDS.index(file.name.rpartition(".")[2]), file.in_index_dir, file.name
