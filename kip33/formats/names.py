"""Names of the files and directories below a broker's log directory.

    orders-0/                                      topic orders, partition 0
        00000000000000000042.log                   the segment whose first offset is 42 or more
        00000000000000000042.index .timeindex      its indexes
        00000000000000000042.txnindex              only where a transaction was aborted
        00000000000000000042.snapshot              producer state at offset 42; not of a segment
        00000000000000000042.log.deleted           waits for deletion; deleted when Kafka starts
        00000000000000000042.log.cleaned           a cleaner's unfinished output; deleted as well
        00000000000000000042.log.swap              its finished output, not yet renamed into place
    orders-0.<32 hex digits>-delete/               topic deleted; the name may be truncated
    orders-0.<32 hex digits>-future/               being moved here from another log directory
    orders-0.<32 hex digits>-stray/                not a replica of this broker (KRaft); truncated
    __cluster_metadata-0/
        00000000000000000042-0000000003.checkpoint KRaft snapshot up to offset 42, epoch 3

A listing contains many other names, so `parse_*` returns None for them.
Kafka: `LogFileUtils`, `LocalLog.parseTopicPartitionName`, `Snapshots`.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

METADATA_TOPIC: Final = "__cluster_metadata"
# In the order in which Kafka deletes them: `LogSegment.deleteIfExists`, and then
# `UnifiedLog.deleteProducerSnapshots`.
SEGMENT_KINDS: Final = ("log", "index", "timeindex", "txnindex", "snapshot")
TIME_INDEX_FILE: Final = "timeindex"  # how the names of these files end
FILE_SUFFIXES: Final = ("deleted", "cleaned", "swap")
DIRECTORY_KINDS: Final = ("delete", "future", "stray")
MAX_TOPIC_LENGTH: Final = 249
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1

_SEGMENT_FILE = re.compile(
    rf"([0-9]+)\.({'|'.join(SEGMENT_KINDS)})(?:\.({'|'.join(FILE_SUFFIXES)}))?"
)
_CHECKPOINT_FILE = re.compile(
    r"([0-9]{20})-([0-9]{10})(?:\.checkpoint(?:\.(deleted))?|-.*\.checkpoint\.(part))"
)
_PARTITION_DIR = re.compile(
    rf"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)(?:\.[^\s.]+-(?P<kind>{'|'.join(DIRECTORY_KINDS)}))?"
)


class SegmentFile(NamedTuple):
    """A file named by an offset; `suffix` is empty, `deleted`, `cleaned` or `swap`."""

    base_offset: int
    kind: str
    suffix: str = ""


class CheckpointFile(NamedTuple):
    """A KRaft snapshot: the state up to `end_offset`; `suffix` is empty, `deleted` or `part`."""

    end_offset: int
    epoch: int
    suffix: str = ""


class PartitionDir(NamedTuple):
    """A partition's directory; `kind` is empty, or `delete`, `future` or `stray`.

    The topic of a `delete` or `stray` directory may be truncated: its full name is then unknown.
    """

    topic: str
    partition: int
    kind: str = ""


def segment_file_name(base_offset: int, kind: str, suffix: str = "") -> str:
    """Return the name with 20 digits; `ValueError` for an offset, kind or suffix unknown to Kafka.

    >>> segment_file_name(42, "timeindex")
    '00000000000000000042.timeindex'
    """
    if not 0 <= base_offset <= _MAX_INT64:
        raise ValueError(f"base offset {base_offset}: not a non-negative int64")
    if kind not in SEGMENT_KINDS or suffix not in ("", *FILE_SUFFIXES):
        raise ValueError(f"no such segment file: .{kind} with suffix {suffix!r}")
    return f"{base_offset:020d}.{kind}" + (f".{suffix}" if suffix else "")


def parse_segment_file(name: str) -> SegmentFile | None:
    """Return the parsed file name, or None. As in Kafka, any number of digits is valid: `7.log`.

    >>> parse_segment_file("00000000000000000042.log.swap")
    SegmentFile(base_offset=42, kind='log', suffix='swap')
    """
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > _MAX_INT64:
        return None
    return SegmentFile(int(match[1]), match[2], match[3] or "")


def parse_checkpoint_file(name: str) -> CheckpointFile | None:
    """Return the parsed name of a KRaft snapshot, or None."""
    match = _CHECKPOINT_FILE.fullmatch(name)
    if match is None or int(match[1]) > _MAX_INT64 or int(match[2]) > _MAX_INT32:
        return None
    return CheckpointFile(int(match[1]), int(match[2]), match[3] or match[4] or "")


def partition_dir_name(topic: str, partition: int) -> str:
    """Return `<topic>-<partition>`; `ValueError` for a topic or partition that Kafka refuses."""
    if not is_topic(topic) or not 0 <= partition <= _MAX_INT32:
        raise ValueError(f"no partition of Kafka: topic {topic!r}, partition {partition}")
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Return the parsed directory name, or None; topics may contain dots, dashes and digits.

    >>> parse_partition_dir("x.y-3-0")
    PartitionDir(topic='x.y-3', partition=0, kind='')
    """
    match = _PARTITION_DIR.fullmatch(name)
    if match is None or int(match["partition"]) > _MAX_INT32 or not is_topic(match["topic"]):
        return None
    return PartitionDir(match["topic"], int(match["partition"]), match["kind"] or "")


def two_directories_in(directories: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two directories that have the name of one partition, None if there is one.

    `directories` are paths or URIs of one log directory and one partition. To a broker, and to
    kip33, `orders-0` and `orders-00` are one partition; which one a log belongs to is unknown.

    >>> two_directories_in(["file:///a/orders-0", "file:///a/orders-00", "file:///a/2024-01-01"])
    ('file:///a/orders-0', 'file:///a/orders-00')
    """
    found: dict[PartitionDir, str] = {}
    for directory in sorted(set(directories)):
        partition = parse_partition_dir(directory.rpartition("/")[2])
        if partition is None or partition.kind:
            continue
        first = found.setdefault(partition, directory)
        if first.rpartition("/")[2] != directory.rpartition("/")[2]:
            return first, directory
    return None


def is_topic(name: str) -> bool:
    """Return whether Kafka allows this name for a topic."""
    legal = re.fullmatch(r"[a-zA-Z0-9._-]+", name) is not None and name not in (".", "..")
    return legal and len(name) <= MAX_TOPIC_LENGTH
