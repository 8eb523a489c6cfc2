"""Which segments there are: a log directory, or a tree of them, as one Arrow table.

    SOURCE/orders-0/00000000000000000042.log             log_dir ""
    SOURCE/broker-1/orders-0/00000000000000000042.log    log_dir "broker-1"
    SOURCE/00000000000000000042.log                      where SOURCE is a partition's directory

A row is a segment file, or a directory that could not be listed (then `error` says why). Files and
directories that Kafka would delete at load (`.deleted`, `-delete`, ...) are counted, not listed.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.formats.names import PartitionDir, parse_partition_dir, parse_segment_file
from kip33.storage.files import reason
from kip33.storage.locations import Location

MAX_DEPTH: Final = 32  # of directories below SOURCE

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.string()),  # below SOURCE
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("active_segment", pa.bool_()),  # the partition's last, by name
    pa.field("error", pa.string()),
]
LISTING: Final = pa.schema(_FIELDS)
"""Size and time are the listing's; a file may have changed when it is read."""


class Segment(NamedTuple):
    """One row of LISTING; of an unlistable directory all but `path` and `error` may be None."""

    path: str
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    size_bytes: int | None
    last_modified_ms: int | None
    active_segment: bool | None
    error: str | None = None


@dataclass
class Listing:
    """The segments below a source, sorted by path, and what was passed over, by kind."""

    source: Location
    table: pa.Table
    passed_over: Counter[str] = field(default_factory=Counter)
    log_dirs: frozenset[str] = frozenset()  # of all segments, those of unwanted topics as well

    def segments(self) -> Iterator[Segment]:
        """Yield the rows as values."""
        return segments_of(self.table)


def segments_of(table: pa.Table) -> Iterator[Segment]:
    """Yield the rows of a table of LISTING."""
    for batch in table.to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Segment(*row)


def list_tree(source: Location) -> Listing:
    """Return every segment below `source`, with its size and modification time.

    A directory that cannot be listed is a row with an `error`; the rest is listed all the same.
    """
    rows: list[Segment] = []
    passed_over: Counter[str] = Counter()
    pending: list[tuple[str, tuple[str, ...]]] = [("", (_real_path(source, ""),))]
    while pending:
        below, above = pending.pop()  # `above`: the real paths down to it
        place = source.child(below) if below else source
        partition_dir = parse_partition_dir(place.name)
        try:
            infos = place.filesystem().get_file_info(fs.FileSelector(place.path))
        except OSError as error:
            rows.append(_unlistable(below, partition_dir, reason(error)))
            continue
        for info in infos:
            path = f"{below}/{info.base_name}" if below else info.base_name
            if info.type == fs.FileType.Directory:
                inner = parse_partition_dir(info.base_name)
                if inner and inner.kind:
                    passed_over[f"-{inner.kind} directories"] += 1
                    continue
                real = _real_path(place.child(info.base_name), above[-1])
                if real in above:
                    rows.append(_unlistable(path, None, "a link back to a directory above it"))
                elif len(above) > MAX_DEPTH:
                    rows.append(_unlistable(path, None, f"more than {MAX_DEPTH} directories deep"))
                else:
                    pending.append((path, (*above, real)))
            elif partition_dir and info.base_name.count(".log"):
                _add_file(rows, passed_over, path, partition_dir, info)
    rows.sort(key=lambda row: row.path)
    log_dirs = frozenset(row.log_dir for row in rows if row.log_dir is not None)
    return Listing(source, _table(rows), passed_over, log_dirs)


def _real_path(directory: Location, real_parent: str) -> str:
    """Return the path without links; only on local disk are there any."""
    if directory.is_local and (not real_parent or os.path.islink(directory.path)):  # noqa: PTH114
        return os.path.realpath(directory.path)
    return f"{real_parent}/{directory.name}"


def _add_file(
    rows: list[Segment],
    passed_over: Counter[str],
    path: str,
    partition_dir: PartitionDir,
    info: Any,
) -> None:
    name = parse_segment_file(info.base_name)
    if name is None:
        passed_over["files not named as segments"] += 1
    elif name.suffix:
        passed_over[f".{name.suffix} files"] += 1
    elif name.kind == "log":
        rows.append(
            Segment(
                path,
                _log_dir(path.rpartition("/")[0]),
                partition_dir.topic,
                partition_dir.partition,
                name.base_offset,
                info.size,
                info.mtime_ns // 1_000_000,
                False,
            )
        )


def _log_dir(partition_path: str) -> str:
    return partition_path.rpartition("/")[0]


def _unlistable(below: str, partition_dir: PartitionDir | None, why: str) -> Segment:
    topic, partition = (
        (partition_dir.topic, partition_dir.partition) if partition_dir else (None,) * 2
    )
    return Segment(below, _log_dir(below), topic, partition, None, None, None, None, why)


def _table(rows: list[Segment]) -> pa.Table:
    """Return the rows as LISTING, the last segment of each partition marked as active."""
    last: dict[tuple[Any, ...], int] = {}
    for i, row in enumerate(rows):
        key = (row.log_dir, row.topic, row.partition)
        if row.error is None and (
            key not in last or (rows[last[key]].base_offset or 0) <= (row.base_offset or 0)
        ):
            last[key] = i
    active = set(last.values())
    columns = list(zip(*rows, strict=True)) or [()] * len(LISTING)
    arrays = [pa.array(values, kind.type) for values, kind in zip(columns, LISTING, strict=True)]
    arrays[LISTING.get_field_index("active_segment")] = pa.array(
        [i in active if row.error is None else None for i, row in enumerate(rows)], pa.bool_()
    )
    return pa.Table.from_arrays(arrays, schema=LISTING)
