"""`aiven`: uploads of Aiven's tiered storage plugin to S3, GCS, Azure, HDFS or a file system.

    SOURCE/orders-<topic id>/0/00000000000000000042-<segment id>.log            chunks of the log
                               ....indexes                                      all its indexes
                               ....rsm-manifest                                 describes both

Ids are 22 characters of base64. `log_dir` is the path before the topic's directory, plus the text
that `key.prefix` puts before the topic's name. `kip33.stores.containers.aiven` describes the bytes.
Only the manifest has the true size of a log, so every manifest is read while listing. Raw and zstd
chunks are supported; an encrypted segment is a row with an error. The manifest is uploaded last: a
log without a manifest is an unfinished upload and is ignored. A segment that was uploaded twice is
listed twice, with different ids. Source: `ObjectKeyFactory` of tiered-storage-for-apache-kafka.
"""

import re
from functools import partial
from typing import Any, Final

from pyarrow import fs

from kip33.archive.directory import (
    Directory,
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
from kip33.archive.layouts.kafka import METADATA_WOULD_DANGLE
from kip33.archive.segment_paths import TIERED_LOG
from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error
from kip33.formats.partition_metadata import parse_topic_id
from kip33.stores.containers.aiven import INDEXES, LOG, MANIFEST, Manifest, read_manifest
from kip33.stores.files import FileStatus, listed_status, one_line, opened

_TOPIC_DIR: Final = re.compile(r"([a-zA-Z0-9._-]+)-([A-Za-z0-9_-]{22})")
_UNFINISHED: Final = unfinished_of("[0-9]+-[A-Za-z0-9_-]{22}")


def partition_of(visit: Visit) -> Partition | None:
    """Return the partition of a directory `<topic>-<topic id>/<partition>`."""
    number, topic_dir, _ = visit.names
    found = _TOPIC_DIR.fullmatch(topic_dir)
    if not found or not re.fullmatch("[0-9]{1,10}", number) or int(number) >= 1 << 31:
        return None
    log_dir = parent_of(parent_of(visit.below))
    return Partition(log_dir, found[1], int(number), parse_topic_id(found[2]))


def list_directory(visit: Visit) -> Directory:
    """Return a directory's contents; `more` reads the manifests of its logs."""
    directory = Directory.empty()
    partition = partition_of(visit)
    infos = entries(directory, visit, partition)
    logs = []
    manifests = set()
    indexes_modified_ms: dict[str, int | None] = {}
    for info in infos:
        name = info.base_name
        if info.type == fs.FileType.Directory:
            add_inner(directory, visit, name)
        elif partition and name.endswith(MANIFEST):
            manifests.add(name.removesuffix(MANIFEST))
        elif partition and name.endswith(INDEXES):
            indexes_modified_ms[name] = listed_status(visit.place, info).modified_ms
        elif partition and name.endswith(LOG):
            if TIERED_LOG.fullmatch(name):
                logs.append(info)
            else:
                directory.passed_over["files not named as segments"] += 1
    if partition is None:
        _name_topic(directory, visit)
        return directory
    stems = {info.base_name.removesuffix(LOG) for info in logs}
    _count(directory, "logs without .rsm-manifest: not wholly uploaded", len(stems - manifests))
    _count(directory, ".rsm-manifest files without a log", len(manifests - stems))
    whole = [info for info in logs if info.base_name.removesuffix(LOG) in manifests]
    if whole:
        names = [info.base_name for info in whole]
        at_target = list_target(directory, visit, names, _UNFINISHED)
        found = DirectoryToRead(visit, partition, at_target)
        add_later(directory, whole, partial(_segment, found, indexes_modified_ms))
    return directory


def _name_topic(directory: Directory, visit: Visit) -> None:
    """Add a topic's name and id to the row for its directory, if that could not be listed."""
    found = _TOPIC_DIR.fullmatch(visit.place.name)
    for number, row in enumerate(directory.segments if found else ()):
        if found and row.path == visit.below:
            topic_id = parse_topic_id(found[2])
            directory.segments[number] = row._replace(topic=found[1], topic_id=topic_id)


def _count(directory: Directory, what: str, count: int) -> None:
    if count:
        directory.passed_over[what] += count


def _segment(
    found: DirectoryToRead, indexes_modified_ms: dict[str, int | None], info: Any
) -> Segment:
    """Return the segment of a log, as described by its manifest.

    The times are those of `.indexes` objects, by name.
    """
    name = info.base_name
    named = TIERED_LOG.fullmatch(name)
    base_offset = int(named[1]) if named else 0
    segment = found.segment(info)._replace(base_offset=base_offset, inside="aiven.log")
    try:
        place = found.visit.place.child(name.removesuffix(LOG) + MANIFEST)
        manifest = read_manifest(place, opened)
        owner = _owner(manifest, found.partition, base_offset)
    except (FileReadError, Kip33Error) as error:
        return segment._replace(error=one_line(error))
    readable = {} if manifest.is_encrypted else manifest.indexes
    modified_ms = indexes_modified_ms.get(name.removesuffix(LOG) + INDEXES)
    indexes = {kind: FileStatus(part.size_bytes, modified_ms) for kind, part in readable.items()}
    segment = segment._replace(
        log_dir=owner.log_dir,
        topic=owner.topic,
        size_bytes=manifest.log_bytes,
    )
    return with_index_files(segment, "beside", indexes, ("timeindex", "index"))


def _owner(manifest: Manifest, named: Partition, base_offset: int) -> Partition:
    """Return the segment's partition; CorruptSegmentError if manifest and key disagree.

    The text that `key.prefix` puts before the topic's name becomes part of the `log_dir`.
    """
    topic = manifest.topic or named.topic
    prefix = named.topic.removesuffix(topic)
    same = (manifest.partition, manifest.base_offset) in ((None, None), (named[2], base_offset))
    if prefix + topic != named.topic or not same:
        raise CorruptSegmentError(
            f".rsm-manifest: it describes {topic}-{manifest.partition} from offset "
            f"{manifest.base_offset} on, but its key names another segment"
        )
    if manifest.topic_id not in (None, named.topic_id):
        raise CorruptSegmentError(
            f".rsm-manifest: it describes a segment of the topic id {manifest.topic_id}, but its "
            f"key names {named.topic_id}"
        )
    log_dir = "/".join(filter(None, (named.log_dir, prefix.rstrip("-"))))
    return named._replace(log_dir=log_dir, topic=topic)


AIVEN = Layout(
    "aiven",
    "expected '<topic>-<topic id>/<partition>/<base offset>-<segment id>.log' with its "
    ".rsm-manifest",
    list_directory,
    why_not_deleted=METADATA_WOULD_DANGLE,
)
