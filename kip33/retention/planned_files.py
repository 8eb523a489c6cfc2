"""The files of a planned segment, looked at again before they are deleted."""

from typing import Final, NamedTuple

from pyarrow import fs

from kip33.archive.partition_files import SEGMENT_FILE_KINDS, PlannedFile, as_found, is_link, is_log
from kip33.retention.plan import PlannedPartition, PlannedSegment
from kip33.stores.locations import Location

LINK: Final = (
    "is a symbolic link: deleting the link would not delete its target, and a moved "
    "link may point to a missing file; delete both by hand, or replace the link with "
    "the file"
)


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
    beside = [*(f"{stem}.{kind}" for kind in SEGMENT_FILE_KINDS), *(file.name for file in listed)]
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
        return f"{place.uri}: is not a file"
    if is_link(place):
        return f"{place.uri}: {LINK}"
    now = as_found(info, place)
    if now.size_bytes != file.size_bytes:
        return f"{place.uri}: {now.size_bytes} bytes found, the plan says {file.size_bytes}"
    if now.last_modified_ns != file.last_modified_ns:
        return (
            f"{place.uri}: modified at {now.last_modified_ns} ns, "
            f"the plan says {file.last_modified_ns}"
        )
    return None
