"""Stage the segments of a restore: the work of one share.

Segments that an earlier run staged completely are not copied again.
"""

import os
import socket
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from kip33.errors import RestoreError
from kip33.restore.restore_plan import STAGED_FACTS, STAGED_PARTITIONS, STAGED_RUN
from kip33.restore.restore_request import SourceSegment
from kip33.restore.segment_copy import (
    CopyOptions,
    SegmentFacts,
    identity_of,
    not_written,
    read_facts,
    restore_segment,
)
from kip33.rules.index_builder import TopicSettings
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, read_whole, status_of, write_new
from kip33.stores.locations import Location
from kip33.stores.own_files import flush_filesystems, remove, set_flushing

FLUSHED_BYTES: Final = 1 << 29  # bytes that are copied again, at most, after a run was killed
FLUSHED_SEGMENTS: Final = 256
_MOST_RUN_BYTES: Final = 100
_FIELDS: list["pa.Field[pa.DataType]"] = [
    pa.field("path", pa.string()),  # the URI of the log
    pa.field("size_bytes", pa.int64()),
    pa.field("number", pa.int64()),  # the place in `StagingJob.segments`
]
STAGED: Final = pa.schema(_FIELDS)


class StagingJob(NamedTuple):
    """The segments of a restore and how they are staged; sent to every task."""

    staging: Location  # LOG_DIR/.kip33-restore
    source: Location
    segments: tuple[SourceSegment, ...]
    settings: TopicSettings
    is_linked: bool
    leader_epoch: int | None = None
    is_flushed: bool = True
    native: bool = True  # loading compiled code takes as long as a small restore
    run_id: str = ""  # in the file `run`

    def files(self) -> pa.Table:
        """Return the segments as a table that an engine divides."""
        rows = [
            {"path": one.log.uri, "size_bytes": one.size_bytes, "number": number}
            for number, one in enumerate(self.segments)
        ]
        return pa.Table.from_pylist(rows, STAGED)

    def directory(self, segment: SourceSegment) -> Location:
        """Return where the files of a segment are staged."""
        return self.staging.child(f"{STAGED_PARTITIONS}/{segment.directory_name}")

    def require_shared(self) -> None:
        """Raise RestoreError where the staging directory is not that of the run, as on a cluster.

        Tasks of Spark may run on machines that have another directory of this name, or none.
        """
        place = self.staging.child(STAGED_RUN)
        try:
            run_id = read_whole(place, most_bytes=_MOST_RUN_BYTES).decode(errors="replace")
            problem = "" if run_id == self.run_id else f"is of run {run_id!r}, not {self.run_id!r}"
        except OSError as error:
            problem = one_line(error)
        if problem:
            raise RestoreError(
                f"{place.uri} on {socket.gethostname()}: {problem}; the log directory must be "
                "mounted on all machines that run tasks, or give --engine local"
            )

    def facts_place(self, segment: SourceSegment) -> Location:
        """Return the place of the file with a segment's facts."""
        name = segment.file_name("log").removesuffix(".log")
        return self.staging.child(f"{STAGED_FACTS}/{segment.directory_name}/{name}.json")

    def identity(self, segment: SourceSegment) -> str:
        """Return the text by which a later run recognizes the segment and its options."""
        return identity_of(segment, self.copy_options(segment))

    def links(self, segment: SourceSegment) -> bool:
        """Return whether the log becomes a hard link: a broker appends to the last one."""
        return self.is_linked and not segment.is_last and not segment.log.inside

    def copy_options(self, segment: SourceSegment) -> CopyOptions:
        """Return how the files of a segment are made."""
        settings = self.settings.of(segment.topic)
        return CopyOptions(settings, self.links(segment), self.leader_epoch)


class StagedSegment(NamedTuple):
    """The number of a segment in the job, and its facts."""

    number: int
    facts: SegmentFacts


def stage_bin(job: StagingJob, number: int, files: pa.Table) -> Iterator[StagedSegment]:
    """Stage the segments of one share; yield their facts. `number` is not used.

    The facts of a segment are written when its files are on the disk, many segments at a time.
    Raises PublishError if a file cannot be written, RestoreError if this machine does not have the
    log directory.
    """
    job.require_shared()
    set_flushing(job.is_flushed)
    waiting: list[StagedSegment] = []
    numbers: list[int] = files["number"].to_numpy().tolist()
    staged = map_in_order(
        job.source,
        numbers,
        partial(_stage, job),
        held_bytes=lambda segment: job.segments[segment].size_bytes,
    )
    for segment in staged:
        if not segment.facts.was_there:
            waiting.append(segment)
        waiting_bytes = sum(waiting_segment.facts.kept_bytes for waiting_segment in waiting)
        if waiting_bytes >= FLUSHED_BYTES or len(waiting) >= FLUSHED_SEGMENTS:
            _write_facts(job, waiting)
            waiting = []
        yield segment
    _write_facts(job, waiting)


def _stage(job: StagingJob, number: int) -> StagedSegment:
    segment = job.segments[number]
    place = job.facts_place(segment)
    facts = read_facts(place, job.identity(segment))
    if facts is None or not _is_staged(job, segment, facts):
        remove(place)
        facts = restore_segment(
            segment, job.directory(segment), job.copy_options(segment), native=job.native
        )
    return StagedSegment(number, facts)


def _is_staged(job: StagingJob, segment: SourceSegment, facts: SegmentFacts) -> bool:
    """Return whether the files that an earlier run staged are there, with their sizes."""
    sizes = zip(("log", "index", "timeindex"), (facts.kept_bytes, *facts.index_bytes), strict=True)
    directory = job.directory(segment)
    for kind, size_bytes in sizes:
        status = status_of(directory.child(segment.file_name(kind)))
        if status is None or status.size_bytes != size_bytes:
            return False
    return True


def _write_facts(job: StagingJob, staged: list[StagedSegment]) -> None:
    """Write the facts of segments whose files are on the disk; one with a problem has none."""
    good = [one for one in staged if one.facts.problem is None]
    if not good:
        return
    place = job.staging
    try:
        flush_filesystems([job.staging])
        for one in good:
            segment = job.segments[one.number]
            place = job.facts_place(segment)
            temporary = place.parent.child(f".{place.name}")
            remove(temporary)
            write_new(temporary.path, one.facts.to_bytes(job.identity(segment)))
            os.replace(temporary.path, place.path)  # noqa: PTH105 - paths, as the filesystem has them
    except OSError as error:
        raise not_written(place, error) from error
