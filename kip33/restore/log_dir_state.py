"""The log directory that a restore writes into, as it is found."""

import os
import stat
from typing import Final, NamedTuple

from kip33.archive.broker_log_dirs import OF_A_BROKER
from kip33.errors import LocationError, RestoreError
from kip33.formats.names import METADATA_TOPIC, parse_partition_dir, parse_segment_file
from kip33.formats.partition_metadata import (
    MAX_PARTITION_METADATA_BYTES,
    PARTITION_METADATA,
    PartitionMetadata,
)
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


class PartitionFolder(NamedTuple):
    """A partition's directory in the log directory."""

    is_empty: bool  # as a broker makes it for a new topic: one log of 0 bytes at offset 0
    topic_id: str | None


class LogDirState(NamedTuple):
    """The partitions of a log directory, by the names of their directories."""

    place: Location
    partitions: dict[str, PartitionFolder]
    is_cleanly_shut: bool
    is_formatted: bool  # it has `meta.properties`
    free_bytes: int

    def others(self, names: set[str]) -> list[str]:
        """Return the partitions that are not among `names` and that a broker loads as logs."""
        metadata = f"{METADATA_TOPIC}-0"  # a broker recovers it each time
        return sorted(name for name in self.partitions if name not in names and name != metadata)


def read_log_dir(place: Location) -> LogDirState:
    """Return the state of a log directory; an absent one is empty.

    Raises LocationError if it is not on this machine, RestoreError if it cannot be read.
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
            return LogDirState(place, {}, False, False, free_bytes)
        with os.scandir(place.path) as entries:
            names = sorted(entry.name for entry in entries)
        folders = {name: _folder(place.child(name)) for name in names if _is_partition(place, name)}
        return LogDirState(
            place, folders, CLEAN_SHUTDOWN in names, OF_A_BROKER in names, free_bytes
        )
    except OSError as error:
        raise RestoreError(
            f"{place.uri}: cannot be read: {one_line(error)}; fix it and run the command again"
        ) from error


def _is_partition(place: Location, name: str) -> bool:
    named = parse_partition_dir(name)
    is_folder = os.path.isdir(place.child(name).path)  # noqa: PTH112
    return named is not None and not named.kind and is_folder


def is_empty_partition(place: Location) -> bool:
    """Return whether a directory is as a broker makes it for a new topic."""
    is_empty = True
    with os.scandir(place.path) as entries:
        for entry in entries:
            named = parse_segment_file(entry.name)
            status = entry.stat(follow_symlinks=False)
            if named is None:
                is_empty &= stat.S_ISREG(status.st_mode)
            elif named.kind == "log" or named.kind == "snapshot":
                is_empty &= (named.base_offset, named.suffix, status.st_size) == (0, "", 0)
            else:
                is_empty &= (named.base_offset, named.suffix) == (0, "")
    return is_empty


def _folder(place: Location) -> PartitionFolder:
    is_empty = is_empty_partition(place)
    return PartitionFolder(is_empty, topic_id_in(place) if is_empty else None)


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
