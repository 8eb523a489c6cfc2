"""`hdfs-rsm`: both forms of HDFS's RemoteStorageManager for Kafka's tiered storage.

    SOURCE/orders-0-<topic id>/<segment id>/log          one directory per segment: .index is
                                            timeindex    `index` and .timeindex `timeindex` in it
    SOURCE/orders-0-<topic id>/<segment id>              one file per segment (`containers.rsm`)

The listing shows which form it is. Ids are 22 characters of base64. Older archives have UUIDs with
dashes, and may not have the topic's id; the oldest ones name a segment's directory by its first and
last offset. Other names have no base offset, so the offset of the first batch is read while
listing. It is the base offset, because tiered storage does not support compacted topics.
All bytes are raw. A segment that was uploaded twice is listed twice, with different ids. Source:
`HDFSRemoteStorageManager` of kafka-remote-storage.
"""

import re
from functools import partial
from typing import Any, Final

from pyarrow import fs

from kip33.archive.directory import (
    Directory,
    Infos,
    Layout,
    Partition,
    Segment,
    Visit,
    add_inner,
    add_later,
    entries,
    parent_of,
)
from kip33.archive.index_listing import (
    DirectoryToRead,
    list_target,
    unfinished_of,
    with_index_files,
)
from kip33.archive.layouts.kafka import METADATA_WOULD_DANGLE, partition_named
from kip33.archive.segment_paths import UUID
from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error
from kip33.formats.batch import LOG_OVERHEAD, MAX_SEGMENT_BYTES
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.partition_metadata import parse_topic_id
from kip33.stores.containers.rsm import HeaderPart, read_parts
from kip33.stores.files import FileStatus, listed_status, one_line, opened
from kip33.stores.locations import Location

_WITH_TOPIC_ID: Final = re.compile(rf"(.+-[0-9]+)-({UUID.pattern})")
_OFFSETS: Final = re.compile(r"([0-9]{20})-[0-9]{20}")  # a directory's first and last offset
_UNFINISHED: Final = unfinished_of(f"log|{UUID.pattern}")
_START_BYTES: Final = LOG_OVERHEAD + 5  # the start of a batch, from its offset to its magic


def partition_of(name: str, below: str) -> Partition | None:
    """Return the partition of a directory named `<topic>-<partition>[-<topic id>]`."""
    found = _WITH_TOPIC_ID.fullmatch(name)
    topic_id = parse_topic_id(found[2]) if found else None
    return partition_named(found[1] if found else name, below, topic_id)


def list_directory(visit: Visit) -> Directory:
    """Return a directory's contents; it is a partition's, a segment's, or above them."""
    directory = Directory.empty()
    name, parent, _ = visit.names
    above = partition_of(parent, parent_of(visit.below))
    partition = partition_of(name, visit.below)
    infos = entries(directory, visit, above or partition)
    if above and _segments_own(directory, visit, above, infos):
        return directory
    files = []
    for info in infos:
        if info.type == fs.FileType.Directory:
            add_inner(directory, visit, info.base_name)
        elif partition and UUID.fullmatch(info.base_name):
            files.append(info)
        elif partition:
            directory.passed_over["files not named as segments"] += 1
    if partition and files:
        names = [info.base_name for info in files]
        at_target = list_target(directory, visit, names, _UNFINISHED)
        found = DirectoryToRead(visit, partition, at_target)
        add_later(directory, files, partial(_segment, found))
    return directory


def _segments_own(directory: Directory, visit: Visit, partition: Partition, infos: Infos) -> bool:
    """Add the segment if this is a segment's directory; return whether it is."""
    log = next((i for i in infos if i.base_name == "log" and i.type == fs.FileType.File), None)
    if log is None:
        return False
    named = _OFFSETS.fullmatch(visit.names[0])
    files = [info for info in infos if info.type == fs.FileType.File]
    beside = {info.base_name: listed_status(visit.place, info) for info in files}
    at_target = list_target(directory, visit, ["log"], _UNFINISHED)
    segment = DirectoryToRead(visit, partition, at_target).segment(log)
    segment = segment._replace(size_bytes=log.size)
    segment = with_index_files(segment, "beside", beside, ("timeindex", "index"))
    try:
        base_offset = int(named[1]) if named else _first_offset(visit.place.child("log"))
        segment = segment._replace(base_offset=base_offset)
    except (FileReadError, Kip33Error) as error:
        segment = segment._replace(error=one_line(error))
    directory.segments.append(segment)
    return True


def _first_offset(log: Location) -> int:
    with opened(log) as (read_into, size_bytes):
        return first_offset(read_into, HeaderPart(0, size_bytes))


def first_offset(read_into: ReadInto, log: HeaderPart) -> int:
    """Return the offset of a log's first batch, its base offset.

    Raises CorruptSegmentError if size and magic are not those of a batch.
    """
    start = read_fully(read_into, log.position, min(_START_BYTES, log.size_bytes))
    if len(start) == _START_BYTES:
        offset = int.from_bytes(start[:8], signed=True)
        batch_bytes = int.from_bytes(start[8:LOG_OVERHEAD], signed=True)
        if offset >= 0 and 0 < batch_bytes <= MAX_SEGMENT_BYTES and start[-1] <= 2:
            return offset
    raise CorruptSegmentError(
        f"the log of {log.size_bytes} bytes does not begin with a batch, so its base "
        "offset is unknown"
    )


def _segment(found: DirectoryToRead, info: Any) -> Segment:
    """Return the segment of a file, as described by its header."""
    segment = found.segment(info)._replace(inside="rsm.log")
    try:
        with opened(found.visit.place.child(info.base_name)) as (read_into, file_bytes):
            parts = read_parts(read_into, file_bytes)
            base_offset = first_offset(read_into, parts["log"])
    except (FileReadError, Kip33Error) as error:
        return segment._replace(error=one_line(error))
    modified_ms = listed_status(found.visit.place, info).modified_ms
    indexes = {kind: FileStatus(part.size_bytes, modified_ms) for kind, part in parts.items()}
    segment = segment._replace(base_offset=base_offset, size_bytes=parts["log"].size_bytes)
    return with_index_files(segment, "beside", indexes, ("timeindex", "index"))


HDFS_RSM = Layout(
    "hdfs-rsm",
    "expected '<topic>-<partition>-<topic id>/<segment id>', a file or a directory with 'log'",
    list_directory,
    why_not_deleted=METADATA_WOULD_DANGLE,
)
