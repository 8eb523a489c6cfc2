"""`kafka`: a broker's log directory, a tree of several log directories, or a copy of them.

    SOURCE/orders-0/00000000000000000042.log             log_dir ""
    SOURCE/broker-1/orders-0/00000000000000000042.log    log_dir "broker-1"
    SOURCE/00000000000000000042.log                      if SOURCE is a partition's directory

`.index` and `.timeindex` are beside each log; all bytes are raw. `kip33.formats.names` has the
other names that a broker uses.
"""

from functools import partial
from typing import Final

from kip33.archive.directory import Directory, Layout, Partition, Visit, parent_of
from kip33.archive.index_listing import unfinished_of
from kip33.archive.layouts.suffixed import SegmentNaming, list_suffixed
from kip33.formats.names import parse_partition_dir, parse_segment_file

LOST_TIME_INDEX: Final = ".log.swap files without their .timeindex.swap"


def partition_of(visit: Visit) -> Partition | None:
    """Return the partition of a directory named `<topic>-<partition>`."""
    named = parse_partition_dir(visit.place.name)
    return Partition(parent_of(visit.below), named.topic, named.partition) if named else None


def base_offset_of(directory: Directory, name: str) -> int | None:
    """Return the base offset in a segment file's name; count other files."""
    named = parse_segment_file(name)
    if named is None:
        directory.passed_over["files not named as segments"] += 1
    elif named.suffix:
        directory.passed_over[f".{named.suffix} files"] += 1
    elif named.kind == "log":
        return named.base_offset
    return None


def _count_lost_time_indexes(directory: Directory, names: set[str]) -> None:
    """Count `.log.swap` files, a cleaner's finished output, without their time index.

    A broker that starts renames `.log.swap` into place. It does not recover such a segment, with
    or without index files, so the segment keeps an empty `.timeindex` for ever.
    """
    for name in names:
        log = parse_segment_file(name)
        if log and (log.kind, log.suffix) == ("log", "swap"):
            stem = name.removesuffix(".log.swap")
            if f"{stem}.timeindex.swap" not in names:
                directory.passed_over[LOST_TIME_INDEX] += 1


NAMES = SegmentNaming(
    partition_of, base_offset_of, unfinished_of("[0-9]+"), count_others=_count_lost_time_indexes
)
KAFKA = Layout(
    "kafka",
    "expected '<topic>-<partition>/<base offset>.log', directly below it or in "
    "directories of brokers",
    partial(list_suffixed, NAMES),
    in_place=True,
    why_not_deleted=None,
)
