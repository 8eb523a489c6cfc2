"""The segments that can be restored: which replica of each partition, and what is wrong with it."""

import os
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from kip33.archive.listing import Listed
from kip33.errors import RestoreError
from kip33.formats.names import METADATA_TOPIC, is_topic, two_directories_in
from kip33.restore.found_segments import FoundSegment, found_segments
from kip33.restore.partition_holes import SegmentEnd, holes_between
from kip33.restore.restore_request import PartitionName, RestoreRequest, SourceSegment
from kip33.rules.offset_holes import most_complete_of
from kip33.rules.segment_summary import SegmentStatus

ONLY_THE_LAST: Final = "only the end of a partition's last segment can be cut"
UPLOADED_TWICE: Final = ("aiven", "hdfs-rsm", "local-tiered")  # layouts with ids of segments


class FoundPartition(NamedTuple):
    """One replica of a partition, and why it cannot be restored, if so."""

    topic: str
    partition: int
    replica: str  # the log directory in the source
    replicas: int
    segments: tuple[SourceSegment, ...]
    topic_id: str | None = None  # if names in the source show it
    problem: str | None = None


class FoundPartitions(NamedTuple):
    """The chosen replicas by topic and number, and directories that cannot be listed."""

    partitions: tuple[FoundPartition, ...]
    problems: tuple[str, ...]


def find_partitions(request: RestoreRequest, on_listed: Listed | None = None) -> FoundPartitions:
    """Return the partitions of the source that are asked for.

    Raises LocationError if there are no segments, RestoreError if none is of such a partition,
    CatalogError for a damaged catalog.
    """
    by_name: dict[PartitionName, dict[str, list[FoundSegment]]] = {}
    problems = []
    for segment in found_segments(request, on_listed):
        if segment.topic is None or segment.partition is None or segment.base_offset is None:
            problems.append(f"{segment.log.uri}: {segment.error}; its segments are not restored")
        elif segment.topic == METADATA_TOPIC:  # of the cluster, not of its records
            continue
        elif request.partitions is None or segment.partition in request.partitions:
            replicas = by_name.setdefault((segment.topic, segment.partition), {})
            replicas.setdefault(segment.log_dir or "", []).append(segment)
    found = [
        one
        for (topic, partition), replicas in sorted(by_name.items())
        if (one := _chosen(request, topic, partition, replicas))
    ]
    if not found:
        raise RestoreError(
            f"{request.source.uri}: no segment of such a partition found; check --topics, "
            "--partitions and --replica"
        )
    return FoundPartitions(tuple(found), tuple(problems))


def _chosen(
    request: RestoreRequest, topic: str, partition: int, replicas: dict[str, list[FoundSegment]]
) -> FoundPartition | None:
    """Return the replica to restore: the most complete of those without a known problem."""
    found = {}
    for replica, segments in replicas.items():
        if request.replica in (None, replica):
            segments.sort(key=_in_order)
            if request.layout in UPLOADED_TWICE:
                segments = list(_without_second_uploads(segments))
            topic_id = next((one.topic_id for one in segments if one.topic_id), None)
            one = FoundPartition(topic, partition, replica, len(replicas), (), topic_id)
            found[replica] = _with_segments(request, one, segments)
    good = [replica for replica, one in found.items() if one.problem is None] or list(found)
    extents = {replica: [one.extent for one in replicas[replica]] for replica in good}
    chosen = most_complete_of(extents)
    return None if chosen is None else found[chosen]


def _in_order(segment: FoundSegment) -> tuple[int, str]:
    return segment.base_offset or 0, segment.log.uri


def _without_second_uploads(segments: list[FoundSegment]) -> Iterator[FoundSegment]:
    """Yield one segment for each base offset: the largest, then the latest.

    A broker uploads a segment again, under another id, if the first attempt was not completed.
    """
    for _, same in groupby(segments, key=lambda one: one.base_offset):
        yield max(
            same, key=lambda one: (one.size_bytes or 0, one.last_modified_ms or 0, one.log.uri)
        )


def _with_segments(
    request: RestoreRequest, found: FoundPartition, segments: list[FoundSegment]
) -> FoundPartition:
    problem = next(_problems(request, found, segments), None)
    if problem:
        return found._replace(problem=problem)
    last = len(segments) - 1
    return found._replace(
        segments=tuple(
            SourceSegment(
                one.log,
                found.topic,
                found.partition,
                one.base_offset or 0,
                one.size_bytes or 0,
                one.last_modified_ms,
                is_last=number == last,
                max_timestamp=one.max_timestamp,
            )
            for number, one in enumerate(segments)
        )
    )


def _problems(
    request: RestoreRequest, found: FoundPartition, segments: list[FoundSegment]
) -> Iterator[str]:
    if not is_topic(found.topic):
        yield f"{found.topic!r} is not a name that Kafka allows for a topic"
    for one in segments:
        if one.problem:
            yield f"{one.log.uri}: {one.problem}"
    directories = two_directories_in(_directories(segments))
    if directories:
        yield (
            f"{directories[0]} and {directories[1]} are directories of the same partition; which "
            "one is right is not known: remove the other one"
        )
    for before, after in pairwise(segments):
        if before.base_offset == after.base_offset:
            yield (
                f"{before.log.uri} and {after.log.uri} have the same base offset; which one is "
                "right is not known: remove the other one"
            )
        if before.status == SegmentStatus.TRUNCATED:
            yield f"{before.log.uri}: {before.error}; {ONLY_THE_LAST}"
    if request.catalog and not request.allow_holes:
        ends = [SegmentEnd(*_end_of(one)) for one in segments]
        yield from (text for text, is_certain in holes_between(ends) if is_certain)


def _end_of(one: FoundSegment) -> tuple[int, int, int | None]:
    base_offset = one.base_offset or 0
    end = base_offset if one.last_offset is None else one.last_offset + 1
    return base_offset, end, one.record_count


def _directories(segments: Iterable[FoundSegment]) -> Iterator[str]:
    for one in segments:
        yield os.path.dirname(one.log.uri)  # noqa: PTH120 - a URI
