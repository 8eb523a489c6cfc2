"""Partitions that are there already: an earlier restore left exactly what this one would write.

A partition with data is never replaced. If its logs have the names that a restore would give them,
the source is read as for a restore, and everything is compared byte by byte: logs, index files,
snapshots, small files, and the partition's lines in the log directory's checkpoints. Nothing is
written. If all is equal the partition is there already; else it is refused, as any other with data:
a broker wrote to it, or the source or the options are others.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kip33.errors import CorruptSegmentError, is_of_the_machine
from kip33.formats.byte_sources import PIECE_BYTES, read_fully
from kip33.formats.names import parse_segment_file
from kip33.indexing.segment import BuiltIndexes
from kip33.restore.finished_partition import FinishedPartition, finish_partition
from kip33.restore.restore_complete import RestoredPartition, has_offsets
from kip33.restore.restore_plan import RestorePlan
from kip33.restore.restore_request import RestoreRequest, SourceSegment
from kip33.restore.restore_source import PartitionPlan, RestoredBefore
from kip33.restore.restored_segment import STAGED_KINDS, DrySegment, SegmentFacts, StagingJob
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import opened, read_whole
from kip33.stores.locations import Location

_MOST_BYTES: Final = 1 << 31  # of a small file or an index


def with_those_there(plan: RestorePlan, job: StagingJob) -> RestorePlan:
    """Return the plan in which each partition with data is there already, or has a problem."""

    def settled(one: PartitionPlan) -> PartitionPlan:
        if one.obstacle is None:
            return one
        there = _restored_before(one, plan, job) if one.problem is None else None
        if there is None:
            return replace(one, problem=one.obstacle, is_unreadable=False)
        return replace(one, there=there)

    return plan._replace(partitions=tuple(map(settled, plan.partitions)))


class _DiffersError(Exception):
    """Something is not as a restore would write it."""


class _ComparedSegment(DrySegment):
    """A segment whose files are there: its `facts` compare them with those that it would write.

    They raise _DiffersError if one is another.
    """

    def __init__(self, job: StagingJob, segment: SourceSegment, directory: Location) -> None:
        super().__init__(job._replace(is_linked=False), segment)
        self._places = {kind: directory.child(segment.file_name(kind)) for kind in self._places}
        self._log = self._places["log"]

    def _copied(self) -> tuple[BuiltIndexes, bool]:
        with self._opened() as read_into:
            index = self._scan(read_into, self._segment.size_bytes)
            if self._later_epochs or not self._is_kept(index):
                raise _DiffersError
            cut = index.valid_bytes if self._cut_at is None else self._cut_at
            kept_bytes = min(cut, index.valid_bytes)
            with opened(self._log) as (read_there, there_bytes):
                if there_bytes != kept_bytes:
                    raise _DiffersError
                for at in range(0, kept_bytes, PIECE_BYTES):
                    size = min(PIECE_BYTES, kept_bytes - at)
                    if read_fully(read_into, at, size) != read_fully(read_there, at, size):
                        raise _DiffersError
            self._require_unchanged()
        return index, False

    def _write(self, kind: str, content: bytes) -> None:
        _require_same(self._places[kind], content)


def _require_same(place: Location, content: bytes) -> None:
    if read_whole(place, most_bytes=_MOST_BYTES) != content:
        raise _DiffersError


def _restored_before(
    one: PartitionPlan, plan: RestorePlan, job: StagingJob
) -> RestoredBefore | None:
    """Return the offsets of a partition if all of it is as it would be written, else None."""
    log_dir, request = plan.log_dir, plan.request
    others = log_dir.others({of_plan.name for of_plan in plan.partitions})
    if not log_dir.is_cleanly_shut and not others:
        return None  # a restore writes the clean-shutdown file
    directory = log_dir.place.child(one.name)
    try:
        with os.scandir(directory.path) as entries:
            sizes = {
                entry.name: entry.stat().st_size if entry.is_file(follow_symlinks=False) else -1
                for entry in entries
            }
        if not _may_be_same(one.segments, sizes):
            return None
        finished = _compared(one, request, job, directory, set(sizes))
    except OSError as error:
        if is_of_the_machine(error):
            raise
        return None
    except (_DiffersError, CorruptSegmentError):
        return None
    if not has_offsets(log_dir.place, RestoredPartition.of(finished, "")):
        return None
    return RestoredBefore(finished.start_offset, finished.end_offset, finished.largest_epoch)


def _may_be_same(segments: Sequence[SourceSegment], sizes: dict[str, int]) -> bool:
    """Return whether the directory has the logs of the segments, none of them longer."""
    logs = {name for name in sizes if (parsed := parse_segment_file(name)) and parsed.kind == "log"}
    expected = {one.file_name("log"): one.size_bytes for one in segments}
    return logs == expected.keys() and all(0 <= sizes[name] <= expected[name] for name in logs)


def _compared(
    one: PartitionPlan,
    request: RestoreRequest,
    job: StagingJob,
    directory: Location,
    names: set[str],
) -> FinishedPartition:
    """Return the partition as it would be; _DiffersError if a file of its directory is another."""

    def facts_of(segment: SourceSegment) -> SegmentFacts:
        return _ComparedSegment(job, segment, directory).facts()

    facts = [*map_in_order(request.slowest, one.segments, facts_of)]
    finished = finish_partition(one, facts, request)
    expected = {segment.file_name(kind) for segment in one.segments for kind in STAGED_KINDS}
    if finished.problem is not None or names != expected | finished.files.keys():
        raise _DiffersError
    for name, content in finished.files.items():
        _require_same(directory.child(name), content)
    return finished
