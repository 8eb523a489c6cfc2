"""The files of one partition's directory, by segment, as they are now."""

import os
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.formats.names import parse_segment_file
from kip33.storage.files import has_text_name, modified_ns
from kip33.storage.locations import Location
from kip33.storage.retention_plan import KINDS, PlannedFile, PlannedPartition, PlannedSegment

LINK: Final = (
    "is a link to a file elsewhere: without it that file would stay, and moved it could lead "
    "nowhere; delete link and file by hand, or put the file itself there"
)
NO_TIME: Final = -1  # for a modification time that the store does not tell


class PartitionFiles(NamedTuple):
    """What a listing of a partition's directory shows of its segments."""

    segments: dict[int, list[PlannedFile]]  # by base offset; the files in Kafka's order
    swaps: frozenset[int]  # base offsets of logs that a broker renames into place when it loads

    def logs(self) -> list[int]:
        """Return the base offsets of the logs, in order; one twice if two logs have it."""
        return sorted(
            base_offset
            for base_offset, files in self.segments.items()
            for file in files
            if is_log(file)
        )


def list_partition(directory: Location, *, may_be_absent: bool = False) -> PartitionFiles:
    """Return the segment files in a directory; OSError where it cannot be listed."""
    selector = fs.FileSelector(directory.path, allow_not_found=may_be_absent)
    segments: dict[int, list[PlannedFile]] = {}
    swaps: set[int] = set()
    for info in filter(has_text_name, directory.filesystem().get_file_info(selector)):
        name = parse_segment_file(info.base_name)
        if name is None or name.kind not in KINDS or info.type != fs.FileType.File:
            continue
        if not name.suffix:
            segments.setdefault(name.base_offset, []).append(as_found(info, directory))
        elif (name.kind, name.suffix) == ("log", "swap"):
            swaps.add(name.base_offset)
    for files in segments.values():
        files.sort(key=_in_order)
    return PartitionFiles(segments, frozenset(swaps))


def is_link(place: Location) -> bool:
    """Return whether a file is a link: moved it would dangle, deleted it would free nothing."""
    return place.is_local and os.path.islink(place.path)  # noqa: PTH114


def is_log(file: PlannedFile) -> bool:
    """Return whether a file of a segment is its log."""
    return file.name.endswith(".log")


def as_found(info: fs.FileInfo, place: Location) -> PlannedFile:
    """Return a file as it is now; `place` is on its store."""
    modified = modified_ns(info, place)
    return PlannedFile(info.base_name, info.size, NO_TIME if modified is None else modified)


def in_order(files: list[PlannedFile]) -> tuple[PlannedFile, ...]:
    """Return a segment's files in Kafka's order, of each kind the one beside the log first."""
    return tuple(sorted(files, key=_in_order))


def _in_order(file: PlannedFile) -> tuple[int, bool, str]:
    return KINDS.index(file.name.rpartition(".")[2]), file.in_index_dir, file.name


class Look(NamedTuple):
    """A planned segment's files as they are now."""

    there: list[PlannedFile]  # planned, and as planned
    gone: list[PlannedFile]  # planned, and not there
    others: list[str]  # a line each: not as planned, or not in the plan

    @property
    def log_is_there(self) -> bool:
        """Return whether its log is there, as planned or not."""
        return not any(is_log(file) for file in self.gone)


def look_at(
    partition: PlannedPartition, segment: PlannedSegment, listed: list[PlannedFile]
) -> Look:
    """Return what there is of a segment now; OSError where a store does not say.

    `listed` are the files that a listing of the directory showed before: they are looked at again,
    as are all that Kafka may put beside the log.
    """
    stem = segment.log.name.removesuffix(".log")
    planned = {partition.place(file): file for file in segment.files}
    beside = [*(f"{stem}.{kind}" for kind in KINDS), *(file.name for file in listed)]
    others = {partition.directory.child(name) for name in beside} - planned.keys()
    look = Look([], [], [])
    for place, info in infos_of([*planned, *sorted(others)]):
        file = planned.get(place)
        if file is None:
            if info.type != fs.FileType.NotFound:
                look.others.append(f"{place.uri}: is not in the plan")
        elif info.type == fs.FileType.NotFound:
            look.gone.append(file)
        elif difference := difference_of(place, file, info):
            look.others.append(difference)
        else:
            look.there.append(file)
    return look


def infos_of(places: list[Location]) -> list[tuple[Location, fs.FileInfo]]:
    """Return what the stores say of files, there or not, one request to each store."""
    found: list[tuple[Location, fs.FileInfo]] = []
    for root in dict.fromkeys(place.root for place in places):
        mine = [place for place in places if place.root == root]
        infos = mine[0].filesystem().get_file_info([place.path for place in mine])
        found += zip(mine, infos, strict=True)
    return found


def info_of(place: Location) -> fs.FileInfo | None:
    """Return what a store says of a file, None if it is not there."""
    [(_, info)] = infos_of([place])
    return None if info.type == fs.FileType.NotFound else info


def difference_of(place: Location, file: PlannedFile, info: fs.FileInfo) -> str | None:
    """Return in what a file that is there differs from the plan, None if it does not."""
    if info.type != fs.FileType.File:
        return f"{place.uri}: is no file"
    if is_link(place):
        return f"{place.uri}: {LINK}"
    now = as_found(info, place)
    if now.size_bytes != file.size_bytes:
        return f"{place.uri}: {now.size_bytes} bytes, the plan says {file.size_bytes}"
    if now.last_modified_ns != file.last_modified_ns:
        return (
            f"{place.uri}: modified at {now.last_modified_ns} ns, "
            f"the plan says {file.last_modified_ns}"
        )
    return None
