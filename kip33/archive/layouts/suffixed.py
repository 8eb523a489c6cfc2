"""Layouts with one directory per partition, where logs and indexes differ by their suffixes."""

import re
from collections.abc import Callable
from typing import NamedTuple

from pyarrow import fs

from kip33.archive.directory import Directory, Partition, Visit, add_inner, entries
from kip33.archive.index_listing import add_segments, index_files
from kip33.formats.partition_metadata import PARTITION_METADATA
from kip33.stores.files import FileStatus, listed_status


class SegmentNaming(NamedTuple):
    """How a layout reads names."""

    partition: Callable[[Visit], Partition | None]  # None: not a partition's directory
    base_offset: Callable[[Directory, str], int | None]  # of a file with .log in its name
    unfinished: re.Pattern[str]  # names of temporary index files
    count_others: Callable[[Directory, set[str]], None] | None = None  # all names of a partition


def list_suffixed(names: SegmentNaming, visit: Visit) -> Directory:
    """Return a directory's contents."""
    directory = Directory.empty()
    partition = names.partition(visit)
    infos = entries(directory, visit, partition)
    logs = []
    metadata: FileStatus | None = None
    for info in infos:
        name = info.base_name
        if info.type == fs.FileType.Directory:
            add_inner(directory, visit, name)
        elif partition and ".log" in name:
            base_offset = names.base_offset(directory, name)
            if base_offset is not None:
                logs.append((base_offset, info))
        elif name == PARTITION_METADATA:
            metadata = listed_status(visit.place, info)
    if partition and names.count_others:
        names.count_others(directory, {info.base_name for info in infos})
    if partition and logs:
        file_names = [info.base_name for _, info in logs]
        files = index_files(directory, visit, infos, file_names, names.unfinished)
        add_segments(directory, visit, partition, logs, files, metadata)
    return directory
