"""The partitions of a restore's source: the replica of each that is restored, and its problems.

The segments come from a listing, from a catalog, or from the catalogs of two tiers: then those of
each replica are its own and the remote ones that its log directory does not have.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final, NamedTuple, Self

import pyarrow.compute as pc

from kip33.archive.layouts import KAFKA, layout_of
from kip33.archive.listing import (
    segments_of,
    with_log_dirs_by_topic_id,
    with_neighbours,
    with_topic_ids,
)
from kip33.archive.sources import matches, require_segments
from kip33.catalog.tiers import (
    IS_DIFFERENT,
    IS_REMOTE,
    LATEST_EPOCH,
    UNSURE_FROM,
    UNTIL,
    Tiers,
    unsure_text,
)
from kip33.catalog.topics_by_name import topics_of_segments
from kip33.errors import RestoreError
from kip33.formats.names import (
    METADATA_TOPIC,
    is_topic,
    partition_dir_name,
    two_directories_in,
)
from kip33.restore.restore_request import (
    LogEnd,
    PartitionName,
    RestoreRequest,
    SourceSegment,
)
from kip33.rules.offset_holes import (
    Extent,
    HoleKind,
    holes_of_one,
    most_complete_of,
)
from kip33.rules.policies import require_topics
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.rules.topics_of_a_name import TopicsOfName
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

_OF_TIERS: Final = (IS_REMOTE, IS_DIFFERENT, UNTIL, UNSURE_FROM, LATEST_EPOCH)
_HAS_NO_PLACE: Final = (
    pc.field("topic").is_null()
    | pc.field("partition").is_null()
    | pc.field("base_offset").is_null()
)
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
        return sum(segment.is_remote for segment in self.segments)


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
        found, notes = _listed(request, on_progress)
    else:
        found, notes = _catalogued(request), []
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
    problems = (
        f"{segment.log.uri}: {segment.error}; its segments are not restored"
        for segment in found
        if None in (segment.topic, segment.partition, segment.base_offset)
    )
    return FoundPartitions(partitions, tuple(problems), tuple(notes))


class _ByTopic(NamedTuple):
    """The segments of the newest topic of each name, and those of others."""

    topics: Mapping[str, TopicsOfName]
    replicas: dict[PartitionName, dict[str, list["_FoundSegment"]]]
    unknown: dict[PartitionName, "_FoundSegment"]  # one whose topic is not known
    older: dict[tuple[str, str], set[tuple[str, int]]]  # topic and id -> log_dir and partition

    @classmethod
    def of(cls, request: RestoreRequest, found: Sequence["_FoundSegment"]) -> Self:
        """Return the segments of the asked partitions; `--replica` says of which topic it is."""
        asked = [one for one in found if request.replica in (None, one.log_dir)]
        sorted_ = cls(topics_of_segments(asked), {}, {}, {})
        for segment in found:
            topic, partition = segment.topic, segment.partition
            if topic is None or partition is None or segment.base_offset is None:
                continue
            if topic == METADATA_TOPIC:
                continue
            if request.partitions is None or partition in request.partitions:
                sorted_._add(segment, topic, partition, is_named=request.replica is not None)
        return sorted_

    def _add(self, segment: "_FoundSegment", topic: str, partition: int, *, is_named: bool) -> None:
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


class _FoundSegment(NamedTuple):
    """One segment; of a listing the fields from `status` on are not known, of one tier the last."""

    log: Location
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None  # None: a directory that cannot be listed
    size_bytes: int | None
    last_modified_ms: int | None
    error: str | None
    topic_id: str | None
    status: str = SegmentStatus.UNVERIFIED.value
    valid_bytes: int | None = None
    last_offset: int | None = None
    record_count: int | None = None
    max_timestamp: int | None = None  # -1: no batch has one
    batches_crc32: int | None = None  # 0: it has no batch
    is_remote: bool | None = None  # None: there is one tier
    is_different: bool = False
    until_offset: int | None = None
    unsure_from: int | None = None
    latest_epoch: int | None = None

    @property
    def ends(self) -> tuple[int, int, int | None]:
        """Return its base offset, its end and the least number of records before the end."""
        base_offset = self.base_offset or 0
        end = base_offset if self.last_offset is None else self.last_offset + 1
        if self.until_offset is None or self.until_offset >= end:
            return base_offset, end, self.record_count
        cut = end - self.until_offset
        return base_offset, self.until_offset, self.record_count and self.record_count - cut

    @property
    def extent(self) -> Extent:
        """Return how much of the partition it has."""
        base_offset, end, _ = self.ends
        if self.is_remote is None:
            last_offset = max(base_offset, end - 1)
            return Extent.of(self.status, self.size_bytes, self.valid_bytes, last_offset)
        return Extent.of_tiers(self.status, base_offset, end, self.latest_epoch)

    @property
    def is_split(self) -> bool:
        """Return whether a catalog shows that Kafka splits its log."""
        return self.status == SegmentStatus.INVALID and self.last_offset is not None

    @property
    def end(self) -> LogEnd | None:
        """Return how its log ends; None if no build has read it, or Kafka splits it."""
        if self.is_split:
            return None
        if self.valid_bytes is None or self.size_bytes is None:
            return None
        is_damaged = self.status == SegmentStatus.TRUNCATED
        _, end_offset, _ = self.ends
        return LogEnd(self.size_bytes, self.valid_bytes, is_damaged, end_offset, self.error)

    @property
    def problem(self) -> str | None:
        """Return why it cannot be restored wherever it is in its partition, as far as is known."""
        if self.base_offset is None or self.size_bytes is None:
            return self.error or "its size is not known"
        if self.is_split:
            return None
        if self.status in (SegmentStatus.INVALID, *NOT_READ):
            return self.error or self.status
        return self.error if self.status == SegmentStatus.UNVERIFIED else None


def _chosen(
    request: RestoreRequest, topic: str, partition: int, replicas: dict[str, list[_FoundSegment]]
) -> PartitionPlan | None:
    """Return the replica to restore: the most complete of those without a known problem."""
    by_replica = {}
    for replica, segments in replicas.items():
        if request.replica in (None, replica):
            segments = sorted(_without_second_uploads(request, segments), key=_in_order)
            one = PartitionPlan(topic, partition, replica, len(replicas))
            by_replica[replica] = _with_segments(request, one, segments)
    good = [replica for replica, one in by_replica.items() if one.problem is None]
    extents = {replica: [one.extent for one in replicas[replica]] for replica in good or by_replica}
    chosen = most_complete_of(extents)
    return None if chosen is None else by_replica[chosen]


def _in_order(segment: _FoundSegment) -> tuple[int, str]:
    return segment.base_offset or 0, segment.log.uri


def _without_second_uploads(
    request: RestoreRequest, segments: list[_FoundSegment]
) -> Iterator[_FoundSegment]:
    """Yield the segments, of uploads with one base offset only the largest, then the latest.

    A broker uploads a segment again, under another id, if the first attempt was not completed. What
    two tiers show to be different is not such an attempt.
    """
    uploads: dict[int | None, list[_FoundSegment]] = {}
    is_uploaded = request.layout in UPLOADED_TWICE
    for segment in segments:
        if is_uploaded and segment.is_remote is not False and not segment.is_different:
            uploads.setdefault(segment.base_offset, []).append(segment)
        else:
            yield segment
    for same in uploads.values():
        yield max(
            same, key=lambda one: (one.size_bytes or 0, one.last_modified_ms or 0, one.log.uri)
        )


def _with_segments(
    request: RestoreRequest, plan: PartitionPlan, segments: list[_FoundSegment]
) -> PartitionPlan:
    problem = next(_problems(request, plan.topic, segments), None)
    if problem:
        return replace(plan, problem=problem)
    chosen = tuple(
        SourceSegment(
            segment.log,
            plan.topic,
            plan.partition,
            segment.base_offset or 0,
            segment.size_bytes or 0,
            segment.last_modified_ms,
            is_last=following is None,
            until_offset=segment.until_offset,
            max_timestamp=segment.max_timestamp,
            is_remote=bool(segment.is_remote),
            next_base_offset=following.base_offset if following else None,
            end=segment.end,
            is_split=segment.is_split,
        )
        for segment, following in zip(segments, [*segments[1:], None], strict=True)
    )
    topic_id = next((one.topic_id for one in segments if one.topic_id), None)
    unsure = [one.unsure_from for one in segments if one.unsure_from is not None]
    notes = (unsure_text(min(unsure)),) if unsure else ()
    return replace(plan, segments=chosen, own_topic_id=topic_id, notes=notes)


def _problems(request: RestoreRequest, topic: str, segments: list[_FoundSegment]) -> Iterator[str]:
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
    ends = [segment.ends for segment in segments]
    if request.catalog and not request.allow_holes:
        yield from (text for text, is_certain in holes_between(ends) if is_certain)
    yield from overlaps_between(ends)


def _listed(
    request: RestoreRequest, on_progress: OnProgress
) -> tuple[list[_FoundSegment], list[str]]:
    """Return the segments of an archive with their topic ids, and a line on ids that are damaged.

    As `kip33 build`, which writes the ids into a catalog.
    """
    source, layout = request.source, layout_of(request.layout)
    listing = require_segments(source, request.topics, layout=layout, on_progress=on_progress)
    files, warnings = with_topic_ids(source, listing.table)
    if layout != KAFKA:  # where log_dir is a path
        files = with_neighbours(with_log_dirs_by_topic_id(files))
    found = [
        _FoundSegment(
            segment.log(source) if segment.path else source,
            segment.log_dir,
            segment.topic,
            segment.partition,
            None if segment.is_directory else segment.base_offset,
            *(segment.size_bytes, segment.last_modified_ms, segment.error, segment.topic_id),
        )
        for segment in segments_of(files)
    ]
    return found, [*warnings]


def _catalogued(request: RestoreRequest) -> list[_FoundSegment]:
    catalog = request.catalog
    assert catalog is not None
    known = catalog.topics()
    require_topics(request.topics, known)
    topics = [*(topic for topic in known if matches(topic, request.topics)), None]
    if isinstance(catalog, Tiers):
        rows = catalog.log_rows(_COLUMNS, topics).select([*_COLUMNS, *_OF_TIERS])
        tables = [rows, *(tier.rows(_COLUMNS, topics).filter(_HAS_NO_PLACE) for tier in catalog)]
    else:
        tables = [catalog.rows(_COLUMNS, topics)]
    return [
        _FoundSegment(Location.of(row.pop("log_uri")), **row)
        for piece in chain.from_iterable(table.to_batches() for table in tables)
        for row in piece.to_pylist()
    ]


def overlaps_between(ends: Sequence[tuple[int, int, int | None]]) -> Iterator[str]:
    """Yield a line for each segment that ends after the next one begins.

    `ends` are those of `holes_between`.

    >>> [text] = overlaps_between([(0, 10, 10), (8, 20, 12)])
    >>> text
    'the segment at offset 0 ends at 10, after the next one begins at 8; expected no segment twice'
    """
    for (base_offset, end, _), (following, _, _) in pairwise(ends):
        if end > following:
            yield (
                f"the segment at offset {base_offset} ends at {end}, after the next one begins at "
                f"{following}; expected no segment twice"
            )


def holes_between(ends: Sequence[tuple[int, int, int | None]]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each hole, and whether records are certainly missing there.

    `ends` has each segment's base offset, end offset (exclusive) and number of records, or None.

    >>> list(holes_between([(0, 10, 10), (20, 30, 10)]))
    [('offsets 10 to 19 are missing: no segment has them', True)]
    """
    bases = [first for first, _, _ in ends]
    # fewer records than offsets, as compaction leaves it
    is_sparse = [count is not None and count < end - first for first, end, count in ends]
    of_one = holes_of_one(bases, [end for _, end, _ in ends], [False] * len(ends), is_sparse)
    for _, first, end, kind in of_one:
        is_certain = kind == HoleKind.CERTAIN
        why = "no segment has them" if is_certain else "the topic is compacted"
        yield f"offsets {first} to {end - 1} are missing: {why}", is_certain
