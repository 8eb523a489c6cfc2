"""The partitions of a restore's source: the segments that make up each log, and its problems.

The segments come from a listing, from a catalog, or from the catalogs of two tiers. `catalog.logs`
says which copy of a partition has its log at which offset: a segment may be restored in part, and
the next one may be of another broker or of the remote tier.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.layouts import layout_of
from kip33.archive.listing import with_topic_ids
from kip33.archive.sources import matches, require_segments
from kip33.catalog.logs import (
    DAMAGED,
    IS_REMOTE,
    LogNote,
    Logs,
    logs_of,
    replica_lines,
    unsure_text,
)
from kip33.errors import RestoreError
from kip33.formats.names import (
    METADATA_TOPIC,
    is_topic,
    partition_dir_name,
    two_directories_in,
)
from kip33.records.scanned_copies import logs_of_archive
from kip33.restore.restore_request import PartitionName, RestoreRequest, SourceSegment
from kip33.rules.offset_holes import HoleKind, OffsetSpan, holes_between
from kip33.rules.policies import require_topics
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

ONLY_THE_LAST: Final = "only the end of a partition's last segment can be cut"
_NO_METADATA: Final = (
    f"{METADATA_TOPIC} is left out: it has the cluster's metadata, no records of topics; a broker "
    "gets it from the other controllers, or from kafka-storage.sh format"
)
_COLUMNS: Final = (
    *("log_uri", "log_dir", "topic", "partition", "base_offset", "size_bytes", "last_modified_ms"),
    *("error", "topic_id", "status", "valid_bytes", "last_offset", "record_count", "max_timestamp"),
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
    replica: str  # the log directory in the source that has the log's end
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
    damaged: tuple[LogNote, ...] = ()  # last logs of other copies
    obstacle: str | None = None  # the data at its place: a problem, unless it is all there already
    there: RestoredBefore | None = None
    copies: tuple[str, ...] = ()  # the log directories that have the partition

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
    """The partitions by topic and number, and what is not restored."""

    partitions: list[PartitionPlan]
    problems: tuple[str, ...]  # of directories that cannot be listed
    notes: tuple[str, ...]  # on what is left out


def find_partitions(
    request: RestoreRequest, on_progress: OnProgress = tell_nobody
) -> FoundPartitions:
    """The partitions of a source, each with the segments that make up its log.

    Raises LocationError if there are no segments, RestoreError if none is of such a partition,
    CatalogError for a damaged catalog.
    """
    if request.catalog is None:
        logs, copies, notes = _listed(request, on_progress)
    else:
        logs, copies, notes = _catalogued(request)
    partitions: dict[PartitionName, list[SourceSegment]] = {}
    problems: dict[str, None] = {}
    for row in logs.rows.to_pylist():
        if None in (row["topic"], row["partition"], row["base_offset"]):
            problems[f"{row['log_uri']}: {row['error']}; its segments are not restored"] = None
        elif row["topic"] == METADATA_TOPIC:
            notes[_NO_METADATA] = None
        elif request.partitions is None or row["partition"] in request.partitions:
            segments = partitions.setdefault((row["topic"], row["partition"]), [])
            segments.append(SourceSegment.of(row, is_first=not segments))
    of_these = [one for one in logs.notes if (one.topic, one.partition) in partitions]
    damaged = [one for one in of_these if one.kind == DAMAGED]
    notes |= dict.fromkeys([*_older_topics(logs), *replica_lines(of_these)])
    unknown = _of_unknown_topics(logs, request)
    plans = []
    for name in sorted({*partitions, *unknown}):
        segments = partitions.get(name, [])
        replica = segments[-1].log_dir if segments else None
        ids = copies.get(name, {})
        topic_id = next(filter(None, ids.values()), None)  # also of a copy that is not read
        plan = PartitionPlan(
            *(*name, replica or "", max(1, len(ids))), own_topic_id=topic_id, copies=(*sorted(ids),)
        )
        plan = replace(plan, damaged=tuple(one for one in damaged if one[:2] == name))
        problem = unknown.get(name)
        plans.append(
            replace(plan, problem=problem) if problem else _with_segments(request, plan, segments)
        )
    if not plans:
        places = " and ".join(one.uri for one in request.sources)
        raise RestoreError(
            f"{places}: no segment of such a partition found; check --topic, --partitions and "
            "--replica" + "".join(f"; {note}" for note in notes)
        )
    return FoundPartitions(plans, tuple(problems), tuple(notes))


def _older_topics(logs: Logs) -> Iterator[str]:
    """Yield a line that names each topic that was deleted, and where its partitions are."""
    older: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for row in logs.older.filter(pc.is_valid(logs.older["topic_id"])).to_pylist():
        where = older.setdefault((row["topic"], row["topic_id"]), set())
        where.add((row["log_dir"] or "", row["partition"]))
    for (topic, topic_id), where in sorted(older.items()):
        topics = logs.topics[topic]
        log_dirs = ", ".join(sorted({log_dir for log_dir, _ in where if log_dir}))
        numbers = ", ".join(str(number) for number in sorted({number for _, number in where}))
        remedy = "give --replica to restore it" if log_dirs else "give its directories as SOURCE"
        by_files = " (by the times of its files, which a copy may change)" * topics.by_files
        yield (
            f"topic {topic}: the newest topic of this name{by_files}, with the id "
            f"{' or '.join(topics.newest_ids)}, is restored; an older one with the id {topic_id} "
            f"is left out ({log_dirs or 'SOURCE'}, partitions {numbers}): {remedy}"
        )


def _of_unknown_topics(logs: Logs, request: RestoreRequest) -> dict[PartitionName, str]:
    """Why partitions are refused that may be of any of several topics of their name."""
    unknown = logs.older.filter(pc.is_null(logs.older["topic_id"])).to_pylist()
    return {
        (row["topic"], row["partition"]): f"{Location.of(row['log_uri']).parent.uri}: its topic id "
        "is not known, and there are several topics of this name; give --replica"
        for row in unknown
        if request.replica is None
        and (request.partitions is None or row["partition"] in request.partitions)
    }


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
    topic_id = next((one.topic_id for one in segments if one.topic_id), plan.own_topic_id)
    notes = tuple(islice(_unsure(segments), 1))
    return replace(plan, segments=chosen, own_topic_id=topic_id, notes=notes)


def _unsure(segments: Sequence[SourceSegment]) -> Iterator[str]:
    for one in segments:
        if one.unsure_from is not None:
            yield unsure_text(one.unsure_from, one.certainty or 0)


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
        if before.status == SegmentStatus.TRUNCATED and before.until_offset is None:
            yield f"{before.log.uri}: {before.error}; {ONLY_THE_LAST}"
    if not request.allow_unsure:
        yield from (f"{why}; give --allow-unsure to restore them, too" for why in _unsure(segments))
    spans = [segment.span for segment in segments]
    if request.catalog and not request.allow_holes:
        yield from (text for text, is_certain in missing_between(spans) if is_certain)
    yield from overlaps_between(spans)


_Copies: TypeAlias = dict[PartitionName, dict[str, str | None]]
"""The log directories of each partition, with their topic ids."""
_Found: TypeAlias = tuple[Logs, _Copies, dict[str, None]]
"""The logs, the copies of each partition, and notes."""


def _listed(request: RestoreRequest, on_progress: OnProgress) -> _Found:
    """The logs of an archive, and a line on topic ids that are damaged."""
    source, layout = request.source, layout_of(request.layout)
    listing = require_segments(source, request.topics, layout=layout, on_progress=on_progress)
    listing.table, warnings = with_topic_ids(source, listing.table)
    logs = logs_of_archive(listing, layout, request.replica, request.partitions)
    return logs, _log_dirs(listing.table, logs), dict.fromkeys([*warnings, *logs.warnings])


def _catalogued(request: RestoreRequest) -> _Found:
    assert request.catalog is not None
    known = request.catalog.topics()
    require_topics(request.topics, known)
    topics = [*(topic for topic in known if matches(topic, request.topics)), None]
    rows = request.catalog.copies(_COLUMNS, topics)
    logs = logs_of(rows, request.replica)
    is_local = pc.invert(pc.fill_null(rows[IS_REMOTE], False))
    return logs, _log_dirs(rows.filter(is_local), logs), {}


def _log_dirs(rows: pa.Table, logs: Logs) -> _Copies:
    """The log directories that have segments of each partition's newest topic."""
    key = ["topic", "partition", "log_dir", "topic_id"]
    each, older = (
        {tuple(row.values()) for row in some.select(key).to_pylist()} for some in (rows, logs.older)
    )
    found: _Copies = {}
    for topic, partition, log_dir, topic_id in each - older:
        ids = found.setdefault((topic, partition), {})
        ids[log_dir or ""] = topic_id or ids.get(log_dir or "")
    return found


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
