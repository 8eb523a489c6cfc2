"""The log directory that a restore writes into, as it is found."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kip33.archive.sources import OF_A_BROKER, RESTORE_JOURNAL, RESTORE_STAGING
from kip33.errors import LocationError, RestoreError
from kip33.formats.names import (
    METADATA_TOPIC,
    parse_partition_dir,
    parse_segment_file,
    segment_file_name,
)
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    MAX_PARTITION_METADATA_BYTES,
    PARTITION_METADATA,
    PartitionMetadata,
    parse_epoch_checkpoint,
)
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


STAGED_PARTITIONS: Final = "partitions"
STAGED_FACTS: Final = "facts"
STAGED_RUN: Final = "run"
REPLACED: Final = "replaced"
_SMALL_FILES: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
_FACTS: Final = re.compile(r"\.?[0-9]{20}\.json", re.ASCII)
_PIECE_BYTES: Final = 1 << 20
_MOST_NAMES: Final = 3  # in a message


class PartitionFolder(NamedTuple):
    """What is at a partition's place in the log directory."""

    obstacle: str | None  # why a restore does not replace it; None: as made for a new topic
    topic_id: str | None


class LogDirState(NamedTuple):
    """The partitions of a log directory, by the names of their directories."""

    place: Location
    partitions: tuple[str, ...]
    is_cleanly_shut: bool
    is_formatted: bool  # it has `meta.properties`
    free_bytes: int

    def others(self, names: set[str]) -> list[str]:
        """Return the partitions that are not among `names` and that a broker loads as logs."""
        metadata = f"{METADATA_TOPIC}-0"  # a broker recovers it each time
        return sorted(name for name in self.partitions if name not in names and name != metadata)


def read_log_dir(place: Location) -> LogDirState:
    """Return the state of a log directory; an absent one is empty.

    Raises LocationError if it is not on this machine, RestoreError if it cannot be read or has a
    foreign file where a restore has its own.
    """
    if not place.is_local:
        raise LocationError(
            f"{place.uri}: expected a log directory on this machine; restore on the broker's "
            "machine, or into a directory that you copy there"
        )
    above = place
    try:
        while not os.path.isdir(above.path):  # noqa: PTH112 - a path, as the filesystem has it
            if os.path.lexists(above.path):
                raise LocationError(f"{above.uri}: is a file, expected a directory")
            above = above.parent
        disk = os.statvfs(above.path)
        free_bytes = disk.f_bavail * disk.f_frsize
        if above != place:
            return LogDirState(place, (), False, False, free_bytes)
        require_own_files(place)
        with os.scandir(place.path) as entries:
            names = sorted(entry.name for entry in entries)
        partitions = tuple(name for name in names if _is_partition(place, name))
        return LogDirState(
            place, partitions, CLEAN_SHUTDOWN in names, OF_A_BROKER in names, free_bytes
        )
    except OSError as error:
        raise RestoreError(
            f"{place.uri}: cannot be read: {one_line(error)}; fix it and run the command again"
        ) from error


def require_own_files(log_dir: Location) -> None:
    """Raise RestoreError for anything but a restore's own files at the places of its files."""
    staging = log_dir.child(RESTORE_STAGING)
    kinds = ((log_dir.child(RESTORE_JOURNAL), stat.S_ISREG), (staging, stat.S_ISDIR))
    for place, is_expected in kinds:
        with suppress(FileNotFoundError):
            if not is_expected(os.lstat(place.path).st_mode):
                what = "a file" if is_expected is stat.S_ISREG else "a directory"
                raise RestoreError(
                    f"{place.uri}: no restore made this, expected {what} of a restore or nothing; "
                    "move it away and run the command again"
                )
    with suppress(FileNotFoundError):
        foreign = sorted(_foreign_in(staging))
        if foreign:
            raise RestoreError(
                f"{staging.uri}: no restore made {_named(foreign)}; move it away and run the "
                "command again"
            )


def _foreign_in(folder: Location, above: tuple[str, ...] = ()) -> Iterator[str]:
    with os.scandir(folder.path) as entries:
        for entry in entries:
            path = (*above, entry.name)
            if entry.is_dir(follow_symlinks=False) and _is_own_folder(*path):
                yield from _foreign_in(folder.child(entry.name), path)
            elif not entry.is_file(follow_symlinks=False) or not _is_own_file(*path):
                yield "/".join(path)


def _is_own_folder(kind: str, partition: str = "", *below: str) -> bool:
    is_kind = kind in (STAGED_PARTITIONS, STAGED_FACTS, REPLACED)
    return is_kind and not below and (not partition or is_partition_name(partition))


def _is_own_file(kind: str, partition: str = "", name: str = "", *below: str) -> bool:
    if not name or below:
        return (kind, partition) == (STAGED_RUN, "")
    is_facts = kind == STAGED_FACTS
    return bool(_FACTS.fullmatch(name)) if is_facts else is_file_of_a_partition(name)


def is_partition_name(name: str) -> bool:
    """Return whether a broker loads a directory of this name as a partition."""
    named = parse_partition_dir(name)
    return named is not None and not named.kind


def is_file_of_a_partition(name: str) -> bool:
    """Return whether a restore writes a file of this name into a partition."""
    parsed = parse_segment_file(name)
    return name in _SMALL_FILES or (
        parsed is not None and name == segment_file_name(parsed.base_offset, parsed.kind)
    )


def _is_partition(place: Location, name: str) -> bool:
    return is_partition_name(name) and os.path.isdir(place.child(name).path)  # noqa: PTH112


def partition_folder(place: Location) -> PartitionFolder | None:
    """Return what is at a partition's place, None if nothing; OSError if it cannot be read."""
    if not os.path.lexists(place.path):
        return None
    obstacle = obstacle_at(place)
    return PartitionFolder(obstacle, None if obstacle else topic_id_in(place))


def obstacle_at(place: Location) -> str | None:
    """Return why a restore does not replace what is at a partition's place, None if it does.

    It replaces a directory as a broker makes it for a new topic. OSError if it cannot be read.
    """
    if not stat.S_ISDIR(os.lstat(place.path).st_mode):
        return "this is a link or no directory, which a restore does not replace"
    with os.scandir(place.path) as entries:
        names = sorted(entry.name for entry in entries)
    others = [name for name in names if not _is_of_a_new_topic(place.child(name))]
    if not others:
        return None
    has_data = any(parsed and parsed.kind == "log" for parsed in map(parse_segment_file, others))
    what = "data" if has_data else "files that no broker makes for a new topic"
    return f"the partition has {what}, which a restore does not replace: {_named(others)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {more:,} others" if more > 0 else shown


def _is_of_a_new_topic(place: Location) -> bool:
    """Return whether a file is as a broker makes it for a new topic, before the first record."""
    status = os.lstat(place.path)
    parsed = parse_segment_file(place.name)
    if not stat.S_ISREG(status.st_mode):
        return False
    if parsed:
        is_first = place.name == segment_file_name(0, parsed.kind)
        may_be_allocated = parsed.kind in ("index", "timeindex")  # by a broker that was killed
        return is_first and (not status.st_size or (may_be_allocated and _is_zeros(place)))
    if place.name not in _SMALL_FILES:
        return False
    try:
        data = read_whole(place, most_bytes=MAX_PARTITION_METADATA_BYTES)
        if place.name == PARTITION_METADATA:
            PartitionMetadata.from_bytes(data)
            return True
        return not any(one.start_offset for one in parse_epoch_checkpoint(data.decode()))
    except ValueError:
        return False


def _is_zeros(place: Location) -> bool:
    with open(place.path, "rb") as file:  # noqa: PTH123 - a path, as the filesystem has it
        while piece := file.read(_PIECE_BYTES):
            if piece.count(0) != len(piece):
                return False
    return True


def topic_id_in(directory: Location) -> str | None:
    """Return the id in a directory's `partition.metadata`; None without one, or a damaged one.

    Raises OSError if the file cannot be read.
    """
    place = directory.child(PARTITION_METADATA)
    try:
        data = read_whole(place, most_bytes=MAX_PARTITION_METADATA_BYTES)
        return PartitionMetadata.from_bytes(data).topic_id
    except (FileNotFoundError, ValueError):
        return None
