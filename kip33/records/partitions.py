"""The partitions of an archive or a catalog, each as the list of its segments.

A partition that several brokers have is read from one log directory, the most complete one, as in a
search. In an archive without a catalog a log counts with its size and its first offset.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.directory import Segment
from kip33.archive.layouts import Layout, layout_of
from kip33.archive.listing import with_topic_ids
from kip33.archive.segment_paths import base_offset_in, is_log, list_partition
from kip33.archive.sources import log_of, matches, require_log, require_segments
from kip33.catalog.catalog import Catalog, Warn, catalog_unless_source, choose, warn_caller
from kip33.errors import FileReadError, LocationError
from kip33.formats.batch import MAX_INT32
from kip33.formats.names import parse_partition_dir
from kip33.rules.offset_holes import Extent, most_complete_of, newest_topic_id
from kip33.rules.policies import MAX_INT64, nearest_topics
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on
from kip33.stores.locations import Location


@runtime_checkable
class HoldsCatalog(Protocol):
    """What `kip33.open_catalog` returns."""

    catalog: Catalog


Source: TypeAlias = str | os.PathLike[str] | Segment | HoldsCatalog
"""A path or URI of an archive, a partition's directory, a log or a catalog; or an opened one."""


class HeaderFigures(NamedTuple):
    """What a scan of a segment's headers gives."""

    size_bytes: int | None = None
    valid_bytes: int | None = None
    batch_count: int | None = None
    record_count: int | None = None  # None: a v0 or v1 wrapper hides it
    last_offset: int | None = None  # None: no batch
    max_timestamp: int | None = None  # -1: no record has a timestamp


class OffsetShare(NamedTuple):
    """The offsets of a segment that one task reads."""

    first_offset: int
    end_offset: int  # exclusive


class ReadSegment(NamedTuple):
    """One segment of a partition; None: not known."""

    log: Location
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    next_base_offset: int | None = None  # of the partition's next segment
    figures: HeaderFigures | None = None  # of a catalog
    smallest_timestamp: int | None = None  # of all records
    open_transactions: str | None = None  # at its end, see `rules.transaction_index`
    listed_bytes: int = 0  # to share the work of several tasks
    extent: Extent = Extent()  # to compare replicas
    first_new_offset: int = 0  # smaller ones are in earlier segments; 0: none is known to be
    index_uri: str | None = None  # of the catalog's .timeindex
    damage: str | None = None  # why a catalog's log is valid only in part
    error: str | None = None  # why the segment cannot be read
    only_v2: bool = False  # all its batches are complete and of magic 2, by a catalog
    share: OffsetShare | None = None  # None: the whole segment
    topic_id: str | None = None
    last_modified_ms: int | None = None  # of the log

    @property
    def last_offset(self) -> int | None:
        """Return its last offset."""
        return self.figures.last_offset if self.figures else None

    @property
    def max_timestamp(self) -> int | None:
        """Return the largest timestamp of all records, -1 if no record has one."""
        return self.figures.max_timestamp if self.figures else None

    def end_of(self, last_offsets: npt.NDArray[np.int64]) -> int:
        """Return the offset after the last one of some batches, 0 without any.

        What is 2^31 or more after the base offset is ignored: no valid segment has such an offset.
        """
        most = min((self.base_offset or 0) + MAX_INT32, MAX_INT64 - 1)
        return int(last_offsets[last_offsets <= most].max(initial=-1)) + 1

    def is_before(self, later: "ReadSegment") -> bool:
        """Return whether both are of one replica of a partition, in order."""
        if None in (self.base_offset, later.base_offset) or self.of_replica != later.of_replica:
            return False
        return (self.base_offset or 0) <= (later.base_offset or 0)

    @property
    def of_replica(self) -> tuple[str | None, str | int | None, int | None]:
        """Return what the segments of one replica have in common."""
        return self.log_dir, self.topic or self.log.parent.uri, self.partition

    def readable_bytes(self, size_bytes: int) -> int:
        """Return how much of a log of `size_bytes` is read: no more than its catalog describes."""
        known = self.figures.size_bytes if self.figures else None
        return size_bytes if known is None else min(size_bytes, known)

    def constant(self, column: str) -> Any:
        """Return the value that a column has in all rows of the segment, None for other columns."""
        return getattr(self, column) if column in _CONSTANT else None


_CONSTANT: Final = ("log_dir", "topic", "partition", "base_offset")

PartitionSegments: TypeAlias = list[ReadSegment]
"""The segments of one replica of a partition, by base offset."""

_FROM_CATALOG: Final = [
    *("log_dir", "topic", "partition", "base_offset", "log_uri", "index_uri", "status", "error"),
    *(
        "topic_id",
        "last_modified_ms",
        "smallest_timestamp",
        "open_transactions",
        "magics",
        *HeaderFigures._fields,
    ),
]
_OF_EXTENT: Final = ("status", "size_bytes", "valid_bytes", "last_offset")
_KNOWN: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)


class Selection(NamedTuple):
    """Which partitions are read."""

    topics: tuple[str, ...] = ()  # globs; empty: all
    partitions: frozenset[int] | None = None
    log_dir: str | None = None  # None: one replica of each partition

    def takes(self, segment: ReadSegment) -> bool:
        """Return whether a segment is of such a partition; an unknown topic or number is."""
        return (
            matches(segment.topic, self.topics)
            and (self.partitions is None or segment.partition in (None, *self.partitions))
            and self.log_dir in (None, segment.log_dir)
        )


def partitions_of(
    source: Source,
    selection: Selection,
    *,
    layout: str = "kafka",
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    warn: Warn = warn_caller,
) -> list[PartitionSegments]:
    """Return the partitions to read, by topic and number.

    `warn` gets a line for each newer snapshot of a catalog that is ignored. Raises LocationError if
    there are no segments, CatalogError for a damaged catalog.
    """
    if isinstance(source, HoldsCatalog):
        return _replicas(_of_catalog(source.catalog, selection, warn), selection)
    if isinstance(source, Segment):
        return [[_of_listed(source, log_of(source, storage_options, filesystem))]]
    place = place_on(source, storage_options, filesystem)
    if place.name.endswith(".log"):
        return [[_of_log(place)]]
    if catalog := catalog_unless_source(place, warn):
        return _replicas(_of_catalog(catalog, selection, warn), selection)
    return _replicas(_of_archive(place, selection, layout_of(layout)), selection)


def _of_archive(place: Location, selection: Selection, layout: Layout) -> list[ReadSegment]:
    """Return the segments below a directory, or those in it if its name is not a partition's."""
    try:
        listing = require_segments(place, selection.topics, layout=layout)
    except LocationError:
        alone = _of_directory(place)
        if not alone:
            raise
        return alone
    if len(listing.log_dirs) > 1 and selection.log_dir is None:  # replicas of the same topic?
        listing.table = with_topic_ids(place, listing.table).files
    listed = [_of_listed(segment, segment.log(place)) for segment in listing.segments()]
    return [segment for segment in _of_newest(listed, selection) if selection.takes(segment)]


def _of_directory(directory: Location) -> list[ReadSegment]:
    try:
        segments = list_partition(directory).segments
    except FileReadError:
        return []
    return [
        ReadSegment(directory.child(file.name), None, None, None, base_offset)
        for base_offset, files in segments.items()
        for file in files
        if is_log(file)
    ]


def _of_log(log: Location) -> ReadSegment:
    """Return the segment of a log that is given alone; LocationError without such a file."""
    require_log(log)
    named = parse_partition_dir(log.parent.name)
    topic, partition = (named.topic, named.partition) if named else (None, None)
    base_offset = base_offset_in(log.name)
    return ReadSegment(log, None, topic, partition, base_offset)


def _of_listed(segment: Segment, log: Location) -> ReadSegment:
    return ReadSegment(
        log,
        segment.log_dir,
        segment.topic,
        segment.partition,
        segment.base_offset,
        segment.next_base_offset,
        listed_bytes=segment.size_bytes or 0,
        extent=Extent(segment.size_bytes or 0, segment.base_offset),
        error=segment.error,
        topic_id=segment.topic_id,
        last_modified_ms=segment.last_modified_ms,
    )


def _of_catalog(catalog: Catalog, selection: Selection, warn: Warn) -> list[ReadSegment]:
    snapshot = choose(catalog, None, warn).snapshot
    found = []
    known: set[str | None] = set()
    for piece in catalog.read_pieces(snapshot, _FROM_CATALOG):
        if selection.topics:
            topics = piece["topic"]
            of_piece = pc.unique(topics).to_pylist()
            known.update(of_piece)
            named = [name for name in of_piece if matches(name, selection.topics)]
            piece = piece.filter(pc.is_in(topics, value_set=pa.array(named, pa.string())))
        found += [_of_row(row) for row in piece.to_pylist()]
    if known and not found:
        near = nearest_topics(selection.topics, known)
        raise LocationError(f"no segments of {_shown(selection)} found{near}")
    return [segment for segment in _of_newest(found, selection) if selection.takes(segment)]


def _of_newest(segments: list[ReadSegment], selection: Selection) -> list[ReadSegment]:
    """Return the segments of the newest topic of each name, unless a log_dir is selected."""
    changed: defaultdict[str | None, dict[str | None, int]] = defaultdict(dict)
    for segment in segments:
        times = changed[segment.topic]
        times[segment.topic_id] = max(times.get(segment.topic_id, 0), segment.last_modified_ms or 0)
    newest = {topic: newest_topic_id(times) for topic, times in changed.items()}
    if selection.log_dir is not None or not any(newest.values()):
        return segments
    return [segment for segment in segments if newest[segment.topic] in (None, segment.topic_id)]


def _of_row(row: dict[str, Any]) -> ReadSegment:
    """Return a catalog row; only a log that a build has read gives facts."""
    is_known = row["status"] in _KNOWN
    return ReadSegment(
        log=Location.of(row["log_uri"]),
        log_dir=row["log_dir"],
        topic=row["topic"],
        partition=row["partition"],
        base_offset=row["base_offset"],
        figures=HeaderFigures(*map(row.get, HeaderFigures._fields)) if is_known else None,
        smallest_timestamp=row["smallest_timestamp"] if is_known else None,
        open_transactions=row["open_transactions"] if is_known else None,
        index_uri=row["index_uri"],
        damage=row["error"] if row["status"] == SegmentStatus.TRUNCATED else None,
        error=row["error"] if row["base_offset"] is None else None,  # a directory, not listed
        listed_bytes=row["valid_bytes" if is_known else "size_bytes"] or 0,
        extent=Extent.of(*(row[name] for name in _OF_EXTENT)),
        topic_id=row["topic_id"],
        last_modified_ms=row["last_modified_ms"],
        only_v2=row["status"] == SegmentStatus.OK and row["magics"] == [2],
    )


def _replicas(segments: Iterable[ReadSegment], selection: Selection) -> list[PartitionSegments]:
    """Return each partition's segments, from the most complete replica unless one is selected."""
    partitions: dict[tuple[Any, ...], dict[str, PartitionSegments]] = {}
    for segment in segments:
        alone = segment.log.parent.uri if segment.topic is None else ""
        key = (segment.topic or "", -1 if segment.partition is None else segment.partition, alone)
        replicas = partitions.setdefault(key, {})
        replicas.setdefault(segment.log_dir or "", []).append(segment)
    found = []
    for key in sorted(partitions):
        replicas = partitions[key]
        best = most_complete_of({name: [one.extent for one in replicas[name]] for name in replicas})
        found.append(_in_order(replicas[best or ""]))
    if not found:
        raise LocationError(f"no segments of {_shown(selection)} found")
    return found


def _in_order(segments: PartitionSegments) -> PartitionSegments:
    """Return segments by base offset; those without one come last.

    Each gets the next one's base offset, and the offset after the last one of those before.
    """
    ordered = sorted(
        segments,
        key=lambda segment: (segment.base_offset is None, segment.base_offset, segment.log.uri),
    )
    following = [*(segment.base_offset for segment in ordered[1:]), None]
    placed, first_new = [], 0
    for segment, offset in zip(ordered, following, strict=True):
        placed.append(segment._replace(next_base_offset=offset, first_new_offset=first_new))
        first_new = max(first_new, -1 if segment.last_offset is None else segment.last_offset + 1)
    return placed


def _shown(selection: Selection) -> str:
    parts = [f"topics {', '.join(selection.topics)}"] if selection.topics else []
    if selection.partitions is not None:
        parts.append(f"partitions {', '.join(map(str, sorted(selection.partitions)))}")
    if selection.log_dir is not None:
        parts.append(f"log_dir {selection.log_dir!r}")
    return ", ".join(parts) or "any topic"
