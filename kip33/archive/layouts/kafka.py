"""Layouts with one directory per partition, where logs and indexes differ by their suffixes.

`kafka`: a broker's log directory, a tree of several log directories, or a copy of them.

    SOURCE/orders-0/00000000000000000042.log             log_dir ""
    SOURCE/broker-1/orders-0/00000000000000000042.log    log_dir "broker-1"
    SOURCE/00000000000000000042.log                      if SOURCE is a partition's directory

`.index` and `.timeindex` are beside each log; all bytes are raw. `kip33.formats.names` has the
other names that a broker uses.

`pinterest`: uploads of Pinterest's tiered storage to a bucket.

    SOURCE/[<bits>/]<cluster>/orders-0/00000000000000000042.log    .index and .timeindex beside it
    SOURCE/[<bits>/]<cluster>/orders-0/offset.wm, _metadata        ignored

`<bits>` are the first bits, as 0 and 1, of the MD5 of `<cluster>-<topic>-<partition>`. They only
spread a bucket's load, so `log_dir` does not contain them. All bytes are raw. `_metadata` also
lists the segments, so kip33 deletes nothing here. Source:
`Utils.getBinaryHashForClusterTopicPartition` and `S3StorageServiceEndpoint` of
pinterest/tiered-storage.

`local-tiered`: Kafka's own `LocalTieredStorage`, written for tests and also used elsewhere.

    SOURCE/orders-0-<topic id>/00000000000000000042-<segment id>.log    .index, .timeindex beside it
                               ....txnindex, .snapshot, .leader_epoch_checkpoint    ignored

Ids are 22 characters of base64. All bytes are raw. A segment that was uploaded twice is listed
twice, with different ids. Source: `RemoteTopicPartitionDirectory`, `RemoteLogSegmentFileset` of
Kafka (tests of its storage module).
"""

import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.archive.directory import (
    Directory,
    Infos,
    Layout,
    Partition,
    Segment,
    Visit,
    add_inner,
    entries,
    parent_of,
)
from kip33.archive.index_listing import (
    NO_SMALL_FILES,
    add_segments,
    index_files,
    unfinished_of,
)
from kip33.archive.segment_paths import TIERED_LOG, UNRENAMED, unrenamed_text
from kip33.formats.names import parse_partition_dir, parse_segment_file
from kip33.formats.partition_metadata import parse_topic_id
from kip33.rules.broker_start import renamed_swaps
from kip33.stores.files import is_file, listed_status

LOST_TIME_INDEX: Final = ".log.swap files without their .timeindex.swap"
METADATA_WOULD_DANGLE: Final = "the brokers' remote log metadata would point to missing files"
_WITH_TOPIC_ID: Final = re.compile(r"(.+-[0-9]+)-([A-Za-z0-9_-]{22})")


class _SegmentNaming(NamedTuple):
    """How a layout reads names."""

    partition: Callable[[Visit], Partition | None]  # None: not a partition's directory
    base_offset: Callable[[Directory, str], int | None]  # of a file with .log in its name
    unfinished: re.Pattern[str]  # names of temporary index files
    add_swaps: Callable[[Directory, Visit, Partition, Infos], None] | None = None


def _list_suffixed(names: _SegmentNaming, visit: Visit) -> Directory:
    """Return a directory's contents."""
    directory = Directory.empty()
    partition = names.partition(visit)
    infos = entries(directory, visit, partition)
    logs = []
    small_files = NO_SMALL_FILES
    for info in infos:
        name = info.base_name
        if not is_file(info) and info.type == fs.FileType.Directory:
            add_inner(directory, visit, name)
        elif partition and ".log" in name:
            base_offset = names.base_offset(directory, name)
            if base_offset is not None:
                logs.append((base_offset, info))
        else:
            small_files = small_files.with_file(visit.place, info)
    if partition and names.add_swaps:
        names.add_swaps(directory, visit, partition, infos)
    if partition and logs:
        file_names = [info.base_name for _, info in logs]
        files = index_files(directory, visit, infos, file_names, names.unfinished)
        add_segments(directory, visit, partition, logs, files, small_files)
    return directory


def partition_named(name: str, below: str, topic_id: str | None = None) -> Partition | None:
    """Return the partition of a directory that a name `<topic>-<partition>` belongs to."""
    named = parse_partition_dir(name)
    return Partition(parent_of(below), named.topic, named.partition, topic_id) if named else None


def _partition_of(visit: Visit) -> Partition | None:
    return partition_named(visit.place.name, visit.below)


def _base_offset_of(directory: Directory, name: str) -> int | None:
    """Return the base offset in a segment file's name; count other files."""
    named = parse_segment_file(name)
    if named is None:
        directory.passed_over["files not named as segments"] += 1
    elif named.suffix:
        directory.passed_over[f".{named.suffix} files"] += 1
    elif named.kind == "log":
        return named.base_offset
    return None


def _add_swaps(directory: Directory, visit: Visit, partition: Partition, infos: Infos) -> None:
    """Add the logs that a broker renames into place when it starts, each with an error.

    Which logs they replace is only known when they are read. A broker does not recover such a
    segment: without its time index it keeps an empty `.timeindex` for ever, and is counted.
    """
    files = {info.base_name: info for info in infos}
    named = {name: file for name in files if (file := parse_segment_file(name))}
    renamed = renamed_swaps(named.values())
    for name, (base_offset, kind, suffix) in named.items():
        if (kind, suffix) != ("log", "swap") or base_offset not in renamed:
            continue
        size_bytes, modified_ms = listed_status(visit.place, files[name])
        row = Segment(
            visit.path_of(name), *partition[:3], base_offset, size_bytes, modified_ms, None
        )
        why = unrenamed_text(name)
        directory.segments.append(row._replace(topic_id=partition.topic_id, error=why))
        if f"{name.removesuffix(UNRENAMED)}.timeindex.swap" not in files:
            directory.passed_over[LOST_TIME_INDEX] += 1


_NAMES: Final = _SegmentNaming(
    _partition_of, _base_offset_of, unfinished_of("[0-9]+"), add_swaps=_add_swaps
)
KAFKA = Layout(
    "kafka",
    "expected '<topic>-<partition>/<base offset>.log', directly below it or in "
    "directories of brokers",
    partial(_list_suffixed, _NAMES),
    in_place=True,
    why_not_deleted=None,
)


def _partition_in_bucket(visit: Visit) -> Partition | None:
    """Return the partition of a directory; `log_dir` does not contain the bits of its hash."""
    found = _partition_of(visit)
    if found is None:
        return None
    before, _, cluster = found.log_dir.rpartition("/")
    above, slash, bits = before.rpartition("/")
    if bits and bits == hash_bits(cluster, found.topic, found.partition)[: len(bits)]:
        return found._replace(log_dir=f"{above}{slash}{cluster}")
    return found


def hash_bits(cluster: str, topic: str, partition: int) -> str:
    """Return all bits of the hash that spreads partitions over a bucket, as 0 and 1.

    >>> hash_bits("test-cluster", "foo123", 133)[:5]
    '10110'
    """
    name = f"{cluster}-{topic}-{partition}"
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest):0128b}"


PINTEREST = Layout(
    "pinterest",
    "expected '[<bits>/]<cluster>/<topic>-<partition>/<base offset>.log'",
    partial(_list_suffixed, _NAMES._replace(partition=_partition_in_bucket)),
    in_place=True,
    why_not_deleted="the _metadata beside them would point to missing files",
)


def _partition_with_id(visit: Visit) -> Partition | None:
    found = _WITH_TOPIC_ID.fullmatch(visit.place.name)
    return partition_named(found[1], visit.below, parse_topic_id(found[2])) if found else None


def _tiered_base_offset(directory: Directory, name: str) -> int | None:
    """Return the base offset in a log's name; count other files."""
    found = TIERED_LOG.fullmatch(name)
    if found and int(found[1]) < 1 << 63:
        return int(found[1])
    directory.passed_over["files not named as segments"] += 1
    return None


LOCAL_TIERED = Layout(
    "local-tiered",
    "expected '<topic>-<partition>-<topic id>/<base offset>-<segment id>.log'",
    partial(
        _list_suffixed,
        _SegmentNaming(
            _partition_with_id, _tiered_base_offset, unfinished_of("[0-9]+-[A-Za-z0-9_-]{22}")
        ),
    ),
    in_place=True,
    why_not_deleted=METADATA_WOULD_DANGLE,
)
