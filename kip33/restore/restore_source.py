"""The partitions of a restore's source: the replica of each that is restored, and its problems.

The segments come from a listing, from a catalog, or from the catalogs of two tiers: then those of
each replica are its own and the remote ones that its log directory does not have.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple, Self

from kip33.archive.layouts import KAFKA, layout_of
from kip33.archive.listing import (
    segments_of,
    with_log_dirs_by_topic_id,
    with_neighbours,
    with_topic_ids,
)
from kip33.archive.sources import matches, require_segments
from kip33.catalog.tiers import Row, unsure_text
from kip33.catalog.topics_by_name import topics_of_segments
from kip33.errors import RestoreError
from kip33.formats.names import (
    METADATA_TOPIC,
    is_topic,
    partition_dir_name,
    two_directories_in,
)
from kip33.restore.restore_request import PartitionName, RestoreRequest, SourceSegment
from kip33.rules.offset_holes import HoleKind, OffsetSpan, holes_between, most_complete_of
from kip33.rules.policies import require_topics
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.topics_of_a_name import TopicsOfName
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

ONLY_THE_LAST: Final = "only the end of a partition's last segment can be cut"
_NO_METADATA: Final = (
    f"{METADATA_TOPIC} is left out: it has the cluster's metadata, no records of topics; a broker "
    "gets it from the other controllers, or from kafka-storage.sh format"
)
UPLOADED_TWICE: Final = ("aiven", "hdfs-rsm", "local-tiered")  # layouts with ids of segments
_COLUMNS: Final = (
    *("log_uri", "log_dir", "topic", "partition", "base_offset", "size_bytes", "last_modified_ms"),
    *("error", "topic_id", "status", "valid_bytes", "last_offset", "record_count", "max_timestamp"),
    "batches_crc32",
)


class RestoredBefore(NamedTuple):
    """What a partition has that is there already, as this restore would write it."""

    start_offset: int
    end_offset: int
    largest_epoch: int


@dataclass(frozen=True)
class PartitionPlan:
    """One partition: its segments in order, and what is known of its topic."""

    topic: str
    partition: int
    replica: str  # the log directory in the source
    replicas: int
    segments: tuple[SourceSegment, ...] = ()
    topic_id: str | None = None
    own_topic_id: str | None = None  # in the source
    problem: str | None = None  # why it cannot be restored
    earlier: tuple[SourceSegment, ...] = ()  # not restored, before the first one
    asked_start: int | None = None  # None: the first segment's base offset
    log_start: int | None = None  # by the source's log-start-offset-checkpoint
    starts_at_end: bool = False  # no record is at or after `--from`
    is_unreadable: bool = False  # the problem is a log that could not be read
    notes: tuple[str, ...] = ()
    obstacle: str | None = None  # the data at its place: a problem, unless it is all there already
    there: RestoredBefore | None = None

    @property
    def name(self) -> str:
        """Return the name of its directory."""
        return partition_dir_name(self.topic, self.partition)

    @property
    def size_bytes(self) -> int:
        """Return the size of its logs in the source."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def remote_segments(self) -> int:
        """Return how many segments come from the remote tier."""
        return sum(bool(segment.is_remote) for segment in self.segments)


class FoundPartitions(NamedTuple):
    """The chosen replica of each partition by topic and number, and what is not restored."""

    partitions: list[PartitionPlan]
    problems: tuple[str, ...]  # of directories that cannot be listed
    notes: tuple[str, ...]  # on what is left out


def find_partitions(
    request: RestoreRequest, on_progress: OnProgress = tell_nobody
) -> FoundPartitions:
    """Return the partitions of a source, each with the replica to restore.

    Raises LocationError if there are no segments, RestoreError if none is of such a partition,
    CatalogError for a damaged catalog.
    """
    if request.catalog is None:
        rows, notes = _listed(request, on_progress)
    else:
        rows, notes = _catalogued(request), []
    found: list[SourceSegment] = []
    problems: dict[str, None] = {}
    for row in rows:
        if None in (row["topic"], row["partition"], row["base_offset"]):
            problems[f"{row['log'].uri}: {row['error']}; its segments are not restored"] = None
        else:
            found.append(SourceSegment.of(row))
    if any(one.topic == METADATA_TOPIC for one in found):
        notes.append(_NO_METADATA)
    by_topic = _ByTopic.of(request, found)
    notes += by_topic.older_topics()
    partitions = [
        one
        for key in sorted({*by_topic.replicas, *by_topic.unknown})
        if (one := _of_known_topic(request, key, by_topic))
    ]
    if not partitions:
        places = " and ".join(one.uri for one in request.sources)
        raise RestoreError(
            f"{places}: no segment of such a partition found; check --topic, --partitions and "
            "--replica" + "".join(f"; {note}" for note in notes)
        )
    return FoundPartitions(partitions, tuple(problems), tuple(notes))


class _ByTopic(NamedTuple):
    """The segments of the newest topic of each name, and those of others."""

    topics: Mapping[str, TopicsOfName]
    replicas: dict[PartitionName, dict[str, list[SourceSegment]]]
    unknown: dict[PartitionName, SourceSegment]  # one whose topic is not known
    older: dict[tuple[str, str], set[tuple[str, int]]]  # topic and id -> log_dir and partition

    @classmethod
    def of(cls, request: RestoreRequest, found: Sequence[SourceSegment]) -> Self:
        """Return the segments of the asked partitions; `--replica` says of which topic it is."""
        asked = [one for one in found if request.replica in (None, one.log_dir)]
        sorted_ = cls(topics_of_segments(asked), {}, {}, {})
        for segment in found:
            is_asked = request.partitions is None or segment.partition in request.partitions
            if is_asked and segment.topic != METADATA_TOPIC:
                sorted_._add(segment, is_named=request.replica is not None)
        return sorted_

    def _add(self, segment: SourceSegment, *, is_named: bool) -> None:
        topic, partition = segment.topic, segment.partition
        log_dir, topic_id = segment.log_dir or "", segment.topic_id
        is_older = self.topics.get(topic, TopicsOfName()).is_older(topic_id)
        if not is_older or (is_named and topic_id is None):
            self.replicas.setdefault((topic, partition), {}).setdefault(log_dir, []).append(segment)
        elif topic_id is None:
            self.unknown[topic, partition] = segment
        else:
            self.older.setdefault((topic, topic_id), set()).add((log_dir, partition))

    def older_topics(self) -> list[str]:
        """Return a line for each topic that was deleted."""
        older = sorted(self.older.items())
        return [_older_topic(*key, self.topics[key[0]], where) for key, where in older]


def _older_topic(
    topic: str, topic_id: str, topics: TopicsOfName, where: set[tuple[str, int]]
) -> str:
    """Return the line that names a topic that was deleted, and where its partitions are."""
    log_dirs = ", ".join(sorted({log_dir for log_dir, _ in where if log_dir}))
    numbers = ", ".join(str(number) for number in sorted({number for _, number in where}))
    remedy = "give --replica to restore it" if log_dirs else "give its directories alone as SOURCE"
    by_files = " (by the times of its files, which a copy may change)" if topics.by_files else ""
    return (
        f"topic {topic}: the newest topic of this name{by_files}, with the id "
        f"{' or '.join(topics.newest_ids)}, is restored; an older one with the id {topic_id} is "
        f"left out ({log_dirs or 'SOURCE'}, partitions {numbers}): {remedy}"
    )


def _of_known_topic(
    request: RestoreRequest, name: PartitionName, by_topic: _ByTopic
) -> PartitionPlan | None:
    """Return the chosen replica; a problem if the topic of a segment is not known."""
    chosen = _chosen(request, *name, by_topic.replicas.get(name, {}))
    unknown = by_topic.unknown.get(name)
    if unknown is None:
        return chosen
    plan = chosen or PartitionPlan(*name, unknown.log_dir or "", 1)
    return replace(
        plan,
        problem=f"{unknown.log.parent.uri}: its topic id is not known, and there are several "
        "topics of this name; give --replica",
    )


def _chosen(
    request: RestoreRequest, topic: str, partition: int, replicas: dict[str, list[SourceSegment]]
) -> PartitionPlan | None:
    """Return the replica to restore: the most complete of those without a known problem."""
    by_replica = {}
    for replica, segments in replicas.items():
        if request.replica in (None, replica):
            in_order = attrgetter("base_offset", "log.uri")
            segments = sorted(_without_second_uploads(request, segments), key=in_order)
            one = PartitionPlan(topic, partition, replica, len(replicas))
            by_replica[replica] = _with_segments(request, one, segments)
    good = [replica for replica, one in by_replica.items() if one.problem is None]
    extents = {replica: [one.extent for one in replicas[replica]] for replica in good or by_replica}
    chosen = most_complete_of(extents)
    return None if chosen is None else by_replica[chosen]


def _without_second_uploads(
    request: RestoreRequest, segments: list[SourceSegment]
) -> Iterator[SourceSegment]:
    """Yield the segments, of uploads with one base offset only the largest, then the latest.

    A broker uploads a segment again, under another id, if the first attempt was not completed. What
    two tiers show to be different is not such an attempt.
    """
    uploads: dict[int, list[SourceSegment]] = {}
    is_uploaded = request.layout in UPLOADED_TWICE
    for segment in segments:
        if is_uploaded and segment.is_remote is not False and not segment.is_different:
            uploads.setdefault(segment.base_offset, []).append(segment)
        else:
            yield segment
    for same in uploads.values():
        yield max(same, key=lambda one: (one.size_bytes, one.last_modified_ms or 0, one.log.uri))


def _with_segments(
    request: RestoreRequest, plan: PartitionPlan, segments: list[SourceSegment]
) -> PartitionPlan:
    problem = next(_problems(request, plan.topic, segments), None)
    if problem:
        return replace(plan, problem=problem)
    next_bases = [*(segment.base_offset for segment in segments[1:]), None]
    chosen = tuple(
        segment._replace(next_base_offset=next_base, is_last=next_base is None)
        for segment, next_base in zip(segments, next_bases, strict=True)
    )
    topic_id = next((one.topic_id for one in segments if one.topic_id), None)
    unsure = [one.unsure_from for one in segments if one.unsure_from is not None]
    notes = (unsure_text(min(unsure)),) if unsure else ()
    return replace(plan, segments=chosen, own_topic_id=topic_id, notes=notes)


def _problems(request: RestoreRequest, topic: str, segments: list[SourceSegment]) -> Iterator[str]:
    if not is_topic(topic):
        yield f"{topic!r} is not a name that Kafka allows for a topic"
    for segment in segments:
        if segment.problem:
            yield f"{segment.log.uri}: {segment.problem}"
    directories = two_directories_in(
        os.path.dirname(segment.log.uri)  # noqa: PTH120 - a URI
        for segment in segments
    )
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
    spans = [segment.span for segment in segments]
    if request.catalog and not request.allow_holes:
        yield from (text for text, is_certain in missing_between(spans) if is_certain)
    yield from overlaps_between(spans)


def _listed(request: RestoreRequest, on_progress: OnProgress) -> tuple[list[Row], list[str]]:
    """Return the rows of an archive with their topic ids, and a line on ids that are damaged.

    As `kip33 build`, which writes the ids into a catalog.
    """
    source, layout = request.source, layout_of(request.layout)
    listing = require_segments(source, request.topics, layout=layout, on_progress=on_progress)
    files, warnings = with_topic_ids(source, listing.table)
    if layout != KAFKA:  # where log_dir is a path
        files = with_neighbours(with_log_dirs_by_topic_id(files))
    found: list[Row] = [
        dict.fromkeys(_COLUMNS)
        | segment._asdict()
        | {
            "log": segment.log(source) if segment.path else source,
            "base_offset": None if segment.is_directory else segment.base_offset,
            "status": SegmentStatus.UNVERIFIED,
        }
        for segment in segments_of(files)
    ]
    return found, [*warnings]


def _catalogued(request: RestoreRequest) -> list[Row]:
    assert request.catalog is not None
    known = request.catalog.topics()
    require_topics(request.topics, known)
    topics = [*(topic for topic in known if matches(topic, request.topics)), None]
    rows = request.catalog.log_rows(_COLUMNS, topics).to_pylist()
    return [row | {"log": Location.of(row["log_uri"])} for row in rows]


def overlaps_between(spans: Sequence[OffsetSpan]) -> Iterator[str]:
    """Yield a line for each segment that ends after the next one begins.

    >>> [text] = overlaps_between([OffsetSpan(0, 10, 10), OffsetSpan(8, 20, 12)])
    >>> text
    'the segment at offset 0 ends at 10, after the next one begins at 8; expected no segment twice'
    """
    for span, following in pairwise(spans):
        if span.end > following.base_offset:
            yield (
                f"the segment at offset {span.base_offset} ends at {span.end}, after the next one "
                f"begins at {following.base_offset}; expected no segment twice"
            )


def missing_between(spans: Sequence[OffsetSpan]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each hole, and whether records are certainly missing there.

    >>> list(missing_between([OffsetSpan(0, 10, 10), OffsetSpan(20, 30, 10)]))
    [('offsets 10 to 19 are missing: no segment has them', True)]
    """
    for _, first, end, kind in holes_between(spans):
        is_certain = kind == HoleKind.CERTAIN
        why = "no segment has them" if is_certain else "the topic is compacted"
        yield f"offsets {first} to {end - 1} are missing: {why}", is_certain
