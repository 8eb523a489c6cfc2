"""Archives of very many segments that take little disk: hard links to a few files.

    FOLDER/archive/broker-1/batches-16k-7/00000000000000020480.log         all as old as OLD_SECONDS
    FOLDER/archive/broker-1/batches-16k-7/00000000000000020480.timeindex   what a build gives

All partitions have the same content. The times are in the past, as in an archive: a log that was
modified just now would be read again by the next build.
"""

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from kip33 import build_time_index
from tests.benchmarks.segments import KINDS, segment_name, write_segment

BROKER: Final = "broker-1"
OLD_SECONDS: Final = 1_700_000_000
OFFSETS_APART: Final = 1_000


class Shape(NamedTuple):
    """The dimensions of an archive; a partition has `files` segments."""

    title: str
    kind: str
    segment_bytes: int
    files: int
    partitions: int

    @property
    def segments(self) -> int:
        return self.files * self.partitions


def link_archive(shape: Shape, folder: Path) -> Path:
    """Return an archive of this shape, which is made if it does not exist."""
    archive = folder / "archive"
    if archive.exists():
        return archive
    [kind] = [kind for kind in KINDS if kind.name == shape.kind]
    models = []
    for number in range(shape.files):
        log = write_segment(kind, folder, size_bytes=shape.segment_bytes, number=number).path
        index = log.with_suffix(".timeindex")
        index.write_bytes(build_time_index(str(log)).time_index_data or b"")
        models += [log, index]
    for model in models:
        os.utime(model, (OLD_SECONDS, OLD_SECONDS))
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    for number in range(shape.partitions):
        partition = unfinished / BROKER / f"{kind.name}-{number}"
        partition.mkdir(parents=True)
        for model in models:
            (partition / model.name).hardlink_to(model)
    return unfinished.replace(archive)


def touch_archive(folder: Path, *, partitions: int, segments_each: int) -> Path:
    """Return a new archive of empty segments, made as fast as possible."""
    archive = folder / "archive"
    for number in range(partitions):
        partition = archive / BROKER / f"payments-events-{number}"
        partition.mkdir(parents=True)
        for place in range(segments_each):
            file = os.open(
                partition / segment_name(place * OFFSETS_APART), os.O_CREAT | os.O_WRONLY
            )
            os.utime(file, (OLD_SECONDS, OLD_SECONDS))
            os.close(file)
    return archive
