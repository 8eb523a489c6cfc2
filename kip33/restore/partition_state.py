"""The files of one local partition directory, as `kip33 truncate` finds them."""

import os
import stat
from typing import Final, NamedTuple

from kip33.errors import LocationError, TruncationError
from kip33.formats.names import (
    CheckpointFile,
    PartitionDir,
    parse_checkpoint_file,
    parse_partition_dir,
    parse_segment_file,
    segment_file_name,
)
from kip33.stores.files import one_line
from kip33.stores.locations import Location

SNAPSHOT: Final = "snapshot"


class FileState(NamedTuple):
    """A file's size and modification time."""

    size_bytes: int
    modified_ns: int


class PartitionState(NamedTuple):
    """The files of a partition that matter for its truncation."""

    directory: Location
    topic: str
    partition: int
    segments: dict[int, dict[str, FileState]]  # by base offset, with a log; files by kind
    snapshots: dict[int, FileState]  # of producers, by offset
    checkpoints: tuple[CheckpointFile, ...]  # KRaft snapshots

    @property
    def base_offsets(self) -> list[int]:
        """Return the base offsets of the segments, in order."""
        return sorted(self.segments)

    def log(self, base_offset: int) -> Location:
        """Return the place of a segment's log."""
        return self.place(base_offset, "log")

    def place(self, offset: int, kind: str) -> Location:
        """Return the place of a file that is named by an offset."""
        return self.directory.child(segment_file_name(offset, kind))


def partition_of(directory: Location) -> PartitionDir:
    """Return topic and partition of a local partition directory, by its name.

    Raises LocationError for a directory that is not local or missing, TruncationError for one that
    is not a partition's.
    """
    if not directory.is_local:
        raise LocationError(
            f"{directory.uri}: expected a partition directory on this machine; copy the partition "
            "to a local disk, truncate the copy and upload it"
        )
    if not os.path.isdir(directory.path):  # noqa: PTH112 - a path, as the filesystem has it
        raise LocationError(f"{directory.uri}: expected a directory such as orders-0")
    name = parse_partition_dir(os.path.basename(os.path.realpath(directory.path)))  # noqa: PTH119
    if name is None or name.kind:
        raise TruncationError(
            f"{directory.uri}: the name is not a partition's, expected <topic>-<partition> such "
            "as orders-0; give the directory that has the .log files"
        )
    return name


def read_partition(directory: Location) -> PartitionState:
    """Return the files of a partition directory.

    Raises TruncationError, one line, for files with which a broker would not simply begin, such as
    a `.swap`, and for links.
    """
    name = partition_of(directory)
    by_base: dict[int, dict[str, FileState]] = {}
    snapshots: dict[int, FileState] = {}
    checkpoints = []
    try:
        with os.scandir(directory.path) as entries:
            listed = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except OSError as error:
        raise TruncationError(
            f"{directory.uri}: cannot be listed: {one_line(error)}; fix it and run the command "
            "again"
        ) from error
    for file_name, status in listed:
        if checkpoint := parse_checkpoint_file(file_name):
            checkpoints += [] if checkpoint.suffix else [checkpoint]
        parsed = parse_segment_file(file_name)
        if parsed is None:
            continue
        place = directory.child(file_name)
        if parsed.suffix == "swap":
            raise TruncationError(
                f"{place.uri}: a broker renames this file when it starts; start the broker on the "
                "copy once and stop it, then run the command again"
            )
        if parsed.suffix:
            continue  # a broker deletes it when it starts
        if file_name != segment_file_name(parsed.base_offset, parsed.kind):
            raise TruncationError(
                f"{place.uri}: expected a name with 20 digits, as Kafka writes it; rename the file"
            )
        if not stat.S_ISREG(status.st_mode):
            raise TruncationError(f"{place.uri}: is a link or not a file; replace it with the file")
        state = FileState(status.st_size, status.st_mtime_ns)
        if parsed.kind == SNAPSHOT:
            snapshots[parsed.base_offset] = state
        else:
            by_base.setdefault(parsed.base_offset, {})[parsed.kind] = state
    segments = {base: files for base, files in sorted(by_base.items()) if "log" in files}
    if not segments:
        raise TruncationError(f"{directory.uri}: no .log files found; give a partition directory")
    return PartitionState(
        directory, name.topic, name.partition, segments, snapshots, tuple(checkpoints)
    )


def require_one_name(place: Location) -> None:
    """Raise TruncationError for a file with hard links: cut in place, all its names are cut."""
    names = os.stat(place.path).st_nlink  # noqa: PTH116 - a path, as the filesystem has it
    if names > 1:
        raise TruncationError(
            f"{place.uri}: the file has {names} names (hard links), and cutting it would cut it "
            "under all of them; copy the partition without hard links"
        )
