"""What a restore does with each partition; nothing is written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from kip33.archive.listing import Listed
from kip33.archive.log_start_offsets import log_start_offsets
from kip33.errors import LocationError
from kip33.formats.names import partition_dir_name
from kip33.restore.log_dir_state import LogDirState, partition_folder, read_log_dir, topic_id_in
from kip33.restore.restore_range import choose_range
from kip33.restore.restore_request import RestoreRequest, SourceSegment
from kip33.restore.restore_source import FoundPartition, FoundPartitions, find_partitions
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line
from kip33.stores.locations import Location


@dataclass(frozen=True)
class PartitionPlan:
    """One partition: its segments in order, and what is known of its topic."""

    topic: str
    partition: int
    replica: str  # the log directory in the source
    replicas: int
    segments: tuple[SourceSegment, ...]
    topic_id: str | None = None
    own_topic_id: str | None = None  # in the source
    problem: str | None = None
    earlier: tuple[SourceSegment, ...] = ()  # not restored, before the first one
    asked_start: int | None = None  # None: the first segment's base offset
    starts_at_end: bool = False  # no record is at or after `--from`
    is_unreadable: bool = False  # the problem is a log that could not be read

    @property
    def name(self) -> str:
        """Return the name of its directory."""
        return partition_dir_name(self.topic, self.partition)

    @property
    def size_bytes(self) -> int:
        """Return the size of its logs in the source."""
        return sum(segment.size_bytes for segment in self.segments)


class RestorePlan(NamedTuple):
    """The partitions, those that cannot be restored included, and the log directory."""

    request: RestoreRequest
    partitions: tuple[PartitionPlan, ...]
    log_dir: LogDirState
    problems: tuple[str, ...]  # of directories whose partition is not known

    @property
    def wanted(self) -> tuple[PartitionPlan, ...]:
        """Return the partitions that can be restored, as far as is known."""
        return tuple(one for one in self.partitions if one.problem is None)

    @property
    def segments(self) -> tuple[SourceSegment, ...]:
        """Return the segments to restore."""
        return tuple(segment for one in self.wanted for segment in one.segments)


def plan_restore(request: RestoreRequest, on_listed: Listed | None = None) -> RestorePlan:
    """Return how the source is restored into the log directory; nothing is written.

    Raises LocationError for a source or a log directory that cannot be used, RestoreError if there
    is no such partition.
    """
    _require_apart(request.source, request.log_dir)
    log_dir = read_log_dir(request.log_dir)
    found = find_partitions(request, on_listed)
    return RestorePlan(request, tuple(_plans(request, found, log_dir)), log_dir, found.problems)


def _require_apart(source: Location, log_dir: Location) -> None:
    if source.contains(log_dir) or log_dir.contains(source):
        raise LocationError(
            f"{log_dir.uri}: the log directory and SOURCE {source.uri} contain one another; give "
            "another --to"
        )


def _plans(
    request: RestoreRequest, found: FoundPartitions, log_dir: LogDirState
) -> Iterator[PartitionPlan]:
    starts = log_start_offsets(request.source, {one.replica for one in found.partitions})

    def planned(one: FoundPartition) -> PartitionPlan:
        plan = PartitionPlan(
            *(one.topic, one.partition, one.replica, one.replicas, one.segments),
            problem=one.problem,
        )
        if plan.problem is None:
            plan = _in_log_dir(request, plan, one, log_dir)
        if plan.problem is None:
            start = starts.get((one.replica, one.topic, one.partition))
            plan = _in_range(request, plan, start)
        return plan

    yield from map_in_order(request.source, found.partitions, planned)


def _in_range(
    request: RestoreRequest, plan: PartitionPlan, start_offset: int | None
) -> PartitionPlan:
    chosen = choose_range(request, plan.segments, start_offset)
    return replace(
        plan,
        segments=chosen.segments,
        problem=chosen.problem,
        earlier=chosen.earlier,
        asked_start=chosen.start_offset,
        starts_at_end=chosen.starts_at_end,
        is_unreadable=chosen.is_unreadable,
    )


def _in_log_dir(
    request: RestoreRequest, plan: PartitionPlan, found: FoundPartition, log_dir: LogDirState
) -> PartitionPlan:
    """Return the plan with the topic's id, and with a problem if the directory exists."""
    place = log_dir.place.child(plan.name)
    try:
        there = partition_folder(place)
    except OSError as error:
        return replace(plan, problem=f"{place.uri}: cannot be read: {one_line(error)}")
    if there and there.obstacle:
        return replace(
            plan,
            problem=f"{place.uri}: {there.obstacle}; move it away, or choose other partitions",
        )
    given = request.topic_ids.get(plan.topic)
    if there and there.topic_id and given and given != there.topic_id:
        return replace(
            plan,
            problem=f"{place.uri}: topic id {there.topic_id} found, but "
            f"{given} is given; use the id of the cluster that the broker belongs to",
        )
    try:
        own = found.topic_id or topic_id_in(found.segments[0].log.parent)
    except OSError as error:
        return replace(plan, problem=f"{found.segments[0].log.parent.uri}: {one_line(error)}")
    topic_id = (there.topic_id if there else None) or given or own
    return replace(plan, topic_id=topic_id, own_topic_id=own)
