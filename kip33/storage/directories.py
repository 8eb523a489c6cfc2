"""One directory of an archive: its segments, the index files beside them, what lies below."""

import os
import re
from collections import Counter
from typing import Any, Final, NamedTuple

from pyarrow import fs

from kip33.formats.names import PartitionDir, parse_partition_dir, parse_segment_file
from kip33.storage.files import TEMPORARY_SUFFIX, reason
from kip33.storage.locations import Location

UNKNOWN: Final = -2  # bytes of a file that may be there: no file has so many
MAX_DEPTH: Final = 32  # of directories below SOURCE
_UNFINISHED: Final = re.compile(
    rf"\.[0-9]+\.(timeindex|index)\.[0-9a-f]{{32}}{re.escape(TEMPORARY_SUFFIX)}"
)


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
    next_base_offset: int | None = None
    error: str | None = None
    beside_time_index_bytes: int | None = None
    beside_offset_index_bytes: int | None = None
    target_time_index_bytes: int | None = None
    target_offset_index_bytes: int | None = None


class Directory(NamedTuple):
    """What one directory holds."""

    segments: list[Segment]
    inner: list[tuple[str, tuple[str, ...]]]  # to list next: path below SOURCE, real paths to it
    passed_over: Counter[str]
    unfinished: list[tuple[Location, int]]  # temporary index files and their times in ms


def list_directory(
    source: Location, index_dir: Location | None, below: str, above: tuple[str, ...]
) -> Directory:
    """List the directory `below` SOURCE; `above` holds the real paths from SOURCE down to it.

    One that cannot be listed is a segment with an `error`. `index_dir`: where a build puts index
    files, at the same path; the sizes of those there are the segments' `target_...`.
    """
    directory = Directory([], [], Counter(), [])
    place = source.child(below) if below else source
    partition_dir = parse_partition_dir(place.name)
    try:
        infos = place.filesystem().get_file_info(fs.FileSelector(place.path))
    except OSError as error:
        directory.segments.append(_unlistable(below, partition_dir, reason(error)))
        return directory
    logs = []
    for info in infos:
        if info.type == fs.FileType.Directory:
            _add_inner(directory, place, below, above, info.base_name)
        elif partition_dir and ".log" in info.base_name:
            base_offset = _segment_offset(directory, info.base_name)
            if base_offset is not None:
                logs.append((base_offset, info))
    if partition_dir and logs:
        target = index_dir.child(below) if index_dir and below else index_dir
        _add_segments(directory, place, target, below, partition_dir, logs, infos)
    return directory


def _add_inner(
    directory: Directory, place: Location, below: str, above: tuple[str, ...], name: str
) -> None:
    path = f"{below}/{name}" if below else name
    inner = parse_partition_dir(name)
    if inner and inner.kind:
        directory.passed_over[f"-{inner.kind} directories"] += 1
        return
    real = real_path(place.child(name), above[-1])
    if real in above:
        why = "a link back to a directory above it"
    elif len(above) > MAX_DEPTH:
        why = f"more than {MAX_DEPTH} directories deep"
    else:
        directory.inner.append((path, (*above, real)))
        return
    directory.segments.append(_unlistable(path, None, why))


def _segment_offset(directory: Directory, file_name: str) -> int | None:
    """Return the base offset in a segment file's name; count what is none."""
    name = parse_segment_file(file_name)
    if name is None:
        directory.passed_over["files not named as segments"] += 1
    elif name.suffix:
        directory.passed_over[f".{name.suffix} files"] += 1
    elif name.kind == "log":
        return name.base_offset
    return None


def _add_segments(
    directory: Directory,
    place: Location,
    target: Location | None,
    below: str,
    partition_dir: PartitionDir,
    logs: list[tuple[int, Any]],
    infos: list[Any],
) -> None:
    beside = _index_sizes(infos)
    at_target: dict[str, int] = {}
    if target == place:
        at_target = beside
        directory.unfinished.extend(_unfinished(place, infos))
    elif target:
        at_target = _list_target(directory, target, logs)
    log_dir = _parent(below)
    for base_offset, info in logs:
        stem = info.base_name.removesuffix(".log")
        directory.segments.append(
            Segment(
                f"{below}/{info.base_name}" if below else info.base_name,
                log_dir,
                partition_dir.topic,
                partition_dir.partition,
                base_offset,
                info.size,
                info.mtime_ns // 1_000_000,
                None,
                None,
                None,
                beside.get(f"{stem}.timeindex"),
                beside.get(f"{stem}.index"),
                at_target.get(f"{stem}.timeindex"),
                at_target.get(f"{stem}.index"),
            )
        )


def _list_target(
    directory: Directory, target: Location, logs: list[tuple[int, Any]]
) -> dict[str, int]:
    """Return the sizes of index files where a build puts them.

    In a directory that cannot be listed every file may be there, and be somebody else's.
    """
    try:
        selector = fs.FileSelector(target.path, allow_not_found=True)
        infos = target.filesystem().get_file_info(selector)
    except NotADirectoryError:
        return {}
    except OSError:
        stems = [info.base_name.removesuffix(".log") for _, info in logs]
        return {f"{stem}.{kind}": UNKNOWN for stem in stems for kind in ("timeindex", "index")}
    directory.unfinished.extend(_unfinished(target, infos))
    return _index_sizes(infos)


def _index_sizes(infos: list[Any]) -> dict[str, int]:
    return {
        info.base_name: info.size
        for info in infos
        if info.type == fs.FileType.File and info.base_name.endswith((".timeindex", ".index"))
    }


def _unfinished(place: Location, infos: list[Any]) -> list[tuple[Location, int]]:
    return [
        (place.child(info.base_name), info.mtime_ns // 1_000_000)
        for info in infos
        if info.type == fs.FileType.File and _UNFINISHED.fullmatch(info.base_name)
    ]


def real_path(directory: Location, real_parent: str) -> str:
    """Return the path without links; only on local disk are there any."""
    if directory.is_local and (not real_parent or os.path.islink(directory.path)):  # noqa: PTH114
        return os.path.realpath(directory.path)
    return f"{real_parent}/{directory.name}"


def _parent(below: str) -> str:
    return below.rpartition("/")[0]


def _unlistable(below: str, partition_dir: PartitionDir | None, why: str) -> Segment:
    topic, partition = (
        (partition_dir.topic, partition_dir.partition) if partition_dir else (None,) * 2
    )
    return Segment(below, _parent(below), topic, partition, None, None, None, None, None, why)
