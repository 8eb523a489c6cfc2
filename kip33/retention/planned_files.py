"""Check the files of a planned segment again before they are deleted."""

from typing import Final, NamedTuple

from pyarrow import fs

from kip33.archive.segment_paths import PlannedFile, as_found, is_link, is_log, link_in
from kip33.formats.names import SEGMENT_KINDS
from kip33.retention.plan import PlannedPartition, PlannedSegment
from kip33.stores.locations import Location

LINK: Final = (
    "is a symbolic link: deleting the link would not delete its target, and a moved "
    "link may point to a missing file; delete both by hand, or replace the link with "
    "the file"
)
_LINKED_DIRECTORY: Final = (
    "is a link: its target may be outside SOURCE or have another name, so kip33 deletes nothing "
    "there; make it a directory, or delete by hand"
)


class Look(NamedTuple):
    """The current state of a planned segment's files."""

    there: list[PlannedFile]  # planned, and as planned
    gone: list[PlannedFile]  # planned, but missing
    others: list[str]  # one line each: not as planned, or not in the plan

    @property
    def log_is_there(self) -> bool:
        """Return whether its log exists, as planned or not."""
        return not any(is_log(file) for file in self.gone)


def linked_directory(
    directory: Location, index_directory: Location | None, source: Location
) -> str | None:
    """Return why nothing is deleted in a partition whose directory is reached by a link.

    This is true of both directories; a link above SOURCE or above the index directory is no reason.
    """
    link = link_in(directory, source)
    if link is None and index_directory is not None:
        below = directory.path.removeprefix(source.path).strip("/")
        root = index_directory.path.removesuffix(below)
        link = link_in(index_directory, index_directory._replace(path=root))
    return f"{link.uri} {_LINKED_DIRECTORY}" if link else None


def look_at(
    partition: PlannedPartition, segment: PlannedSegment, listed: list[PlannedFile]
) -> Look:
    """Return the current files of a segment; OSError if a store does not answer.

    `listed` are the files from an earlier listing of the directory. These are checked again, and so
    are all files that Kafka may put beside the log.
    """
    stem = segment.log.name.removesuffix(".log")
    planned = {partition.place(file): file for file in segment.files}
    beside = [*(f"{stem}.{kind}" for kind in SEGMENT_KINDS), *(file.name for file in listed)]
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
    """Return the status of files, existing or not, with one request to each store."""
    found: list[tuple[Location, fs.FileInfo]] = []
    for root in dict.fromkeys(place.root for place in places):
        mine = [place for place in places if place.root == root]
        infos = mine[0].filesystem().get_file_info([place.path for place in mine])
        found += zip(mine, infos, strict=True)
    return found


def info_of(place: Location) -> fs.FileInfo | None:
    """Return the status of a file, None if it does not exist."""
    [(_, info)] = infos_of([place])
    return None if info.type == fs.FileType.NotFound else info


def difference_of(place: Location, file: PlannedFile, info: fs.FileInfo) -> str | None:
    """Return the difference of an existing file from the plan, None if there is no difference."""
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
