"""The partitions of an archive or a catalog, each as the list of its segments.

A partition that several brokers have, or both tiers of tiered storage, has one log: `catalog.logs`
says which segments make it up, and which offsets of each. Of an archive without a catalog the
copies of such a partition are scanned first (`records.scanned_copies`).
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from kip33.archive.directory import Segment
from kip33.archive.layouts import Layout, layout_of
from kip33.archive.log_slice import LogSlice
from kip33.archive.log_window import LogWindow
from kip33.archive.segment_paths import UNRENAMED, base_offset_in, is_log, list_partition
from kip33.archive.sources import log_of, matches, require_log, require_segments
from kip33.catalog.catalog import (
    Catalog,
    Warn,
    catalog_at,
    catalog_unless_source,
    choose,
    warn_caller,
)
from kip33.catalog.logs import (
    CERTAINTY,
    FROM,
    UNSURE_FROM,
    UNTIL,
    Logs,
    Row,
    replica_lines,
    unsure_text,
)
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.errors import FileReadError, LocationError, counted
from kip33.formats.batch import MAX_INT32
from kip33.formats.byte_sources import ReadInto
from kip33.formats.names import parse_partition_dir
from kip33.formats.partition_metadata import EpochStart
from kip33.options import Path
from kip33.records.scanned_copies import logs_of_archive
from kip33.rules.offset_holes import Hole, HoleKind, OffsetSpan, holes_between
from kip33.rules.policies import MAX_INT64, nearest_topics
from kip33.rules.segment_summary import SegmentStatus, is_whole_before_zeros
from kip33.rules.which_log import Kind
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on
from kip33.stores.locations import Location


@runtime_checkable
class HoldsCatalog(Protocol):
    """What `kip33.open_catalog` returns."""

    catalog: Catalog


@runtime_checkable
class HoldsTiers(Protocol):
    """What `kip33.open_catalog` returns for the catalogs of two tiers."""

    @property
    def catalogs(self) -> tuple[Catalog, Catalog]:
        """Return both, in any order."""


Source: TypeAlias = str | os.PathLike[str] | Segment | HoldsCatalog | HoldsTiers
"""A path or URI of an archive, a partition's directory, a log or a catalog; or what is opened."""


class _OfTwoTiers(NamedTuple):
    catalogs: tuple[Catalog, Catalog]


def places_of(source: Path | Sequence[Path]) -> list[str]:
    """Return the place of a source, or those of two catalogs; ValueError for another number."""
    given = [source] if isinstance(source, str | os.PathLike) else [*source]
    if len(given) not in (1, 2):
        raise ValueError(f"source: {len(given)} places found, expected one, or two catalogs")
    return [os.fspath(one) for one in given]


def source_at(places: Sequence[str]) -> Source:
    """Return what is read: a place, or the catalogs of two tiers; LocationError without one."""
    if len(places) == 1:
        return places[0]
    one, other = (catalog_at(Location.of(place)) for place in places)
    return _OfTwoTiers((one, other))


class HeaderFigures(NamedTuple):
    """What a scan of a segment's headers gives."""

    size_bytes: int | None = None
    valid_bytes: int | None = None
    batch_count: int | None = None
    record_count: int | None = None  # None: a v0 or v1 wrapper hides it
    last_offset: int | None = None  # None: no batch
    max_timestamp: int | None = None  # -1: no record has a timestamp


class Span(NamedTuple):
    """A part of a segment's log that is read alone: it begins and ends where batches begin."""

    start: int
    stop: int | None  # batches that begin before it are read; None: all
    first_offset: int  # in the header of the batch at the start
    end_offset: int | None  # in that of the batch at the stop
    log_bytes: int  # how much of the log there was to read

    def is_there(self, read_into: ReadInto, size_bytes: int) -> bool:
        """Return whether a batch begins at the start as it did; not in a log written since."""
        first = next(LogWindow(read_into, size_bytes).headers(self.start), None)
        return first is not None and first.base_offset == self.first_offset


class ReadSegment(NamedTuple):
    """One segment of a partition; None: not known."""

    slice: LogSlice
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    next_base_offset: int | None = None  # of the partition's next segment
    figures: HeaderFigures | None = None  # of a catalog
    smallest_timestamp: int | None = None  # of all records
    open_transactions: str | None = None  # at its end, see `rules.transaction_index`
    listed_bytes: int = 0  # to share the work of several tasks
    damage: str | None = None  # why a catalog's log is valid only in part
    refused: str | None = None  # why a broker would keep nothing of a catalog's log
    hole: Hole | None = None  # before it; after a log that no build has read it is not known
    error: str | None = None  # why the segment cannot be read
    has_inner_times: bool = False  # a wrapper of v0 may have v1 messages: no header has their times
    span: Span | None = None  # None: the whole segment
    topic_id: str | None = None
    batches_crc32: int | None = None  # 0: it has no batch
    unsure_from: int | None = None  # from here on its records may not be of the log
    certainty: int | None = None  # of these records
    leader_epochs: tuple[EpochStart, ...] = ()  # and where they begin in it; empty: not known

    @property
    def log(self) -> Location:
        """Return its file."""
        return self.slice.log

    @property
    def begin_offset(self) -> int | None:
        """The first offset that is read of it; its base offset, or a later one."""
        base = self.base_offset
        return base if base is None else max(base, self.slice.from_offset)

    @property
    def last_offset(self) -> int | None:
        """Return its last offset that is read."""
        last, until = self.figures.last_offset if self.figures else None, self.slice.until_offset
        return last if last is None or until is None else min(last, until - 1)

    @property
    def offsets(self) -> OffsetSpan:
        """Return which offsets are read of it, and how many records."""
        known, begin = self.figures or HeaderFigures(), self.begin_offset or 0
        records = known.record_count
        if records is not None:
            records -= begin - (self.base_offset or 0)
        return OffsetSpan.of(
            *(begin, known.last_offset, self.slice.until_offset, records),
            is_empty=known.batch_count == 0 and not self.damage,
            is_damaged=self.figures is None or self.damage is not None,
        )

    @property
    def max_timestamp(self) -> int | None:
        """Return the largest timestamp of all records of its file, -1 if no record has one."""
        return self.figures.max_timestamp if self.figures and not self.has_inner_times else None

    @property
    def reached_timestamp(self) -> int:
        """Return the largest timestamp of the records that are read; -1: none, or not known."""
        return -1 if self.slice.until_offset is not None else self.max_timestamp or -1

    @property
    def is_checked(self) -> bool:
        """Return whether a build has looked at the order of its offsets."""
        return self.refused is not None or self.figures is not None

    @property
    def missing_before(self) -> str | None:
        """A line about offsets that are surely missing before it, None if none are."""
        is_certain = self.hole is not None and self.hole.kind == HoleKind.CERTAIN
        return f"{self.log.uri}: {self.hole}" if is_certain else None

    def warnings(self, first_offset: int) -> list[str]:
        """Return what a reader from an offset on is told of the log, although it is read."""
        found = []
        if (missing := self.missing_before) and first_offset < (self.begin_offset or 0):
            found.append(missing)
        if self.refused:
            found.append(
                f"{self.log.uri}: {SegmentStatus.INVALID}: {self.refused}; a broker would keep "
                "none of it, and catalogs do not count its records"
            )
        return found

    def is_whole_before_zeros(self, next_offset: int) -> bool:
        """Return whether zeros after its last batch are no damage; `next_offset` follows it."""
        end_offset = max(next_offset, self.base_offset or 0)
        is_last = self.next_base_offset is None
        return is_whole_before_zeros(
            end_offset, is_last=is_last, next_base_offset=self.next_base_offset
        )

    def end_of(self, last_offsets: npt.NDArray[np.int64]) -> int:
        """Return the offset after the last one of some batches, at most the slice's; 0: none.

        What is 2^31 or more after the base offset is ignored: no valid segment has such an offset.
        """
        most = min((self.base_offset or 0) + MAX_INT32, MAX_INT64 - 1)
        end = int(last_offsets[last_offsets <= most].max(initial=-1)) + 1
        until = self.slice.until_offset
        return end if until is None else min(end, until)

    @property
    def has_new_offsets(self) -> bool:
        """Return whether it may have offsets that no earlier segment has."""
        last_offset = None if self.damage else self.last_offset
        return last_offset is None or last_offset >= self.slice.from_offset

    def after(self, end_offset: int) -> Self:
        """Return the segment without the offsets of segments that end here."""
        from_offset = max(self.slice.from_offset, end_offset)
        if self.base_offset is None or self.base_offset >= from_offset:
            return self
        return self._replace(slice=self.slice._replace(from_offset=from_offset))

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
    *("topic_id", "batches_crc32", "last_modified_ms", "smallest_timestamp", "open_transactions"),
    *("magics", "leader_epochs", "leader_epoch_offsets", *HeaderFigures._fields),
]
_KNOWN: Final = (SegmentStatus.OK, SegmentStatus.EMPTY, SegmentStatus.TRUNCATED)


class Tell(NamedTuple):
    """Who gets a line about what is read, and what is not."""

    unsure: Warn = warn_caller  # something was chosen that may not be what the caller means
    ignored: Warn = warn_caller  # a newer snapshot of a catalog is damaged
    left_out: Warn = warn_caller  # it is not known of which topic some logs are


class Selection(NamedTuple):
    """Which partitions are read."""

    topics: tuple[str, ...] = ()  # globs; empty: all
    partitions: frozenset[int] | None = None
    log_dir: str | None = None  # None: one replica of each partition

    def takes(self, topic: str | None, partition: int | None) -> bool:
        """Return whether it has such a partition; an unknown topic or number is."""
        is_asked = self.partitions is None or partition in (None, *self.partitions)
        return is_asked and matches(topic, self.topics)

    def tell_of(self, logs: Logs, tell: Tell) -> None:
        """Say what was chosen, and what is not read, of the topics and copies of these logs."""
        if self.log_dir is not None:
            return
        named: Any = logs.rows["topic"].unique().to_pylist()
        for topic in sorted(topic for topic in logs.topics if topic in named):
            if logs.topics[topic].is_unsure:
                tell.unsure(
                    f"topic {topic}: several topics have this name; that with the newest records "
                    "is read, but its files are not the newest; give the log_dir to read another"
                )
            elif logs.topics[topic].by_files:
                tell.unsure(
                    f"topic {topic}: several topics have this name; that with the newest files is "
                    "read, because no catalog has the times of their records, and a copy may "
                    "change those of files; give the log_dir to choose"
                )
        unknown: defaultdict[str, set[str]] = defaultdict(set)
        for row in logs.older.select(["topic", "partition", "topic_id", "log_dir"]).to_pylist():
            is_asked = self.partitions is None or row["partition"] in self.partitions
            if row["topic_id"] is None and is_asked:
                unknown[row["topic"]].add(row["log_dir"] or "")
        for topic, log_dirs in sorted(unknown.items()):
            tell.left_out(
                f"topic {topic}: {', '.join(map(repr, sorted(log_dirs)))} is not read: its topic "
                "id is not known, and several topics have this name; give the log_dir to read it"
            )


def partitions_of(
    source: Source,
    selection: Selection,
    *,
    layout: str = "kafka",
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
    tell: Tell | None = None,
) -> list[PartitionSegments]:
    """Return the partitions to read, by topic and number.

    Raises LocationError if there are no segments, CatalogError for a damaged catalog, and for two
    that are not of one cluster's tiers.
    """
    tell = tell or Tell()
    if isinstance(source, HoldsCatalog):
        return _of_catalogs(_newest(source.catalog, tell), selection, tell)
    if isinstance(source, HoldsTiers):
        tiers = Tiers.newest(source.catalogs, tell.ignored, tell.unsure)
        return _of_catalogs(tiers, selection, tell)
    if isinstance(source, Segment):
        log = log_of(source, storage_options, filesystem)
        return [[_of_segment(source, log)]]
    place = place_on(source, storage_options, filesystem)
    if place.name.endswith(".log"):
        return [[_of_log(place)]]
    if catalog := catalog_unless_source(place, tell.unsure):
        return _of_catalogs(_newest(catalog, tell), selection, tell)
    return _of_archive(place, selection, layout_of(layout), tell)


def _of_archive(
    place: Location, selection: Selection, layout: Layout, tell: Tell
) -> list[PartitionSegments]:
    """Return the segments below a directory, or those in it if its name is not a partition's."""
    try:
        listing = require_segments(place, selection.topics, layout=layout)
    except LocationError:
        alone = _of_directory(place)
        if not alone:
            raise
        return [_in_order(sorted(alone, key=lambda one: one.base_offset or 0))]
    logs = logs_of_archive(listing, layout, selection.log_dir, selection.partitions)
    holes: dict[Any, Hole] = {
        (note.topic, note.partition, end): Hole(note.from_offset, end, HoleKind.CERTAIN)
        for note in logs.notes
        if note.kind == Kind.HOLE and (end := note.until_offset)
    }
    return [
        [
            one._replace(hole=holes.get((one.topic, one.partition, one.begin_offset), one.hole))
            for one in segments
        ]
        for segments in _read(logs, selection, tell, _of_listed)
    ]


def _of_segment(segment: Segment, log: Location) -> ReadSegment:
    return ReadSegment(
        LogSlice(log),
        *(segment.log_dir, segment.topic, segment.partition, segment.base_offset),
        segment.next_base_offset,
        listed_bytes=segment.size_bytes or 0,
        error=segment.error,
        topic_id=segment.topic_id,
    )


def _of_directory(directory: Location) -> list[ReadSegment]:
    try:
        listed = list_partition(directory)
    except FileReadError:
        return []
    if unrenamed := listed.unrenamed():
        raise LocationError(f"{directory.uri}/{unrenamed}")
    return [
        ReadSegment(LogSlice(directory.child(file.name)), None, None, None, base_offset)
        for base_offset, files in listed.segments.items()
        for file in files
        if is_log(file)
    ]


def _of_log(log: Location) -> ReadSegment:
    """Return the segment of a log that is given alone; LocationError without such a file."""
    require_log(log)
    named = parse_partition_dir(log.parent.name)
    topic, partition = (named.topic, named.partition) if named else (None, None)
    base_offset = base_offset_in(log.name)
    return ReadSegment(LogSlice(log), None, topic, partition, base_offset)


def _of_listed(row: Row) -> ReadSegment:
    return ReadSegment(
        LogSlice(Location.of(row["log_uri"]), None, row[FROM] or 0, row[UNTIL]),
        *(row["log_dir"], row["topic"], row["partition"], row["base_offset"]),
        listed_bytes=row["size_bytes"] or 0,
        error=row["error"],
        topic_id=row["topic_id"],
        unsure_from=row[UNSURE_FROM],
        certainty=row[CERTAINTY],
    )


def _newest(catalog: Catalog, tell: Tell) -> CatalogSnapshot:
    return CatalogSnapshot(catalog, choose(catalog, None, tell.ignored).snapshot)


def _of_catalogs(
    source: CatalogSnapshot | Tiers, selection: Selection, tell: Tell
) -> list[PartitionSegments]:
    """Return the partitions with the segments that make up their logs."""
    known, topics = _topics_in(source, selection)
    logs = source.logs(_FROM_CATALOG, topics, selection.log_dir)
    if known and not logs.rows.num_rows:
        raise _nothing_of(selection, known)
    return _read(logs, selection, tell, _of_row)


def _read(
    logs: Logs, selection: Selection, tell: Tell, segment_of: Callable[[Row], ReadSegment]
) -> list[PartitionSegments]:
    """Return the selected partitions of some logs; `tell` gets what is to be said of them."""
    selection.tell_of(logs, tell)
    notes = (note for note in logs.notes if selection.takes(note.topic, note.partition))
    for line in (*logs.warnings, *replica_lines(notes)):
        tell.unsure(line)
    partitions: dict[tuple[Any, ...], PartitionSegments] = {}
    for row in logs.rows.to_pylist():
        if selection.takes(row["topic"], row["partition"]):
            segment = segment_of(row)
            alone = segment.log.parent.uri if segment.topic is None else ""
            number = -1 if segment.partition is None else segment.partition
            partitions.setdefault((segment.topic or "", number, alone), []).append(segment)
    if not partitions:
        raise _nothing_of(selection)
    return [_in_order(partitions[key]) for key in sorted(partitions)]


def _topics_in(
    source: CatalogSnapshot | Tiers, selection: Selection
) -> tuple[list[str], list[str | None] | None]:
    """Return all topics, and the selected ones and the unknown one; [] and None: all of them."""
    if not selection.topics:
        return [], None
    known = source.topics()
    return known, [*(name for name in known if matches(name, selection.topics)), None]


def _nothing_of(selection: Selection, known: Iterable[str | None] = ()) -> LocationError:
    near = nearest_topics(selection.topics, known)
    return LocationError(f"no segments of {_shown(selection)} found{near}")


def _of_row(row: Row) -> ReadSegment:
    """Return a catalog row; only a log that a build has read gives facts."""
    is_known = row["status"] in _KNOWN
    is_refused = row["status"] == SegmentStatus.INVALID and row["last_offset"] is None  # not split
    is_cut = row[UNTIL] is not None  # then other transactions are open at its end
    is_damaged = row["status"] == SegmentStatus.TRUNCATED and not is_cut
    log = Location.of(row["log_uri"])
    is_never_read = row["base_offset"] is None or log.name.endswith(UNRENAMED)
    return ReadSegment(
        slice=LogSlice(
            log,
            Location.of(row["index_uri"]) if row["index_uri"] else None,
            row[FROM] or 0,
            row[UNTIL],
        ),
        log_dir=row["log_dir"],
        topic=row["topic"],
        partition=row["partition"],
        base_offset=row["base_offset"],
        figures=HeaderFigures(*map(row.get, HeaderFigures._fields)) if is_known else None,
        smallest_timestamp=row["smallest_timestamp"] if is_known else None,
        open_transactions=row["open_transactions"] if is_known and not is_cut else None,
        damage=row["error"] if is_damaged else None,
        refused=row["error"] if is_refused else None,
        error=row["error"] if is_never_read else None,  # other logs may be readable by now
        listed_bytes=row["valid_bytes" if is_known else "size_bytes"] or 0,
        topic_id=row["topic_id"],
        batches_crc32=row["batches_crc32"],
        has_inner_times=row["record_count"] is None and 0 in (row["magics"] or ()),
        unsure_from=row[UNSURE_FROM],
        certainty=row[CERTAINTY],
        leader_epochs=tuple(
            map(EpochStart, row["leader_epochs"] or (), row["leader_epoch_offsets"] or ())
        ),
    )


def unsure_line(partitions: Iterable[PartitionSegments]) -> str | None:
    """Return a line about records of which it is not known whether they are of the log, or None."""
    each = ([one for one in segments if one.unsure_from is not None] for segments in partitions)
    unsure = [min(segments, key=_unsure_from) for segments in each if segments]
    if not unsure:
        return None
    first = unsure[0]
    more = f" and {counted(len(unsure) - 1, 'other partition')}" if len(unsure) > 1 else ""
    why = unsure_text(_unsure_from(first), first.certainty or 0)
    return f"{first.topic}-{first.partition}{more}: {why}"


def _unsure_from(segment: ReadSegment) -> int:
    return segment.unsure_from or 0


def _in_order(ordered: PartitionSegments) -> PartitionSegments:
    """Return the segments of a log, each without what earlier ones have.

    Each gets the offset at which the next one begins.
    """
    following = [*(segment.begin_offset for segment in ordered[1:]), None]
    placed, end = [], 0
    for segment, offset, hole in zip(ordered, following, holes_before(ordered), strict=True):
        placed.append(segment.after(end)._replace(next_base_offset=offset, hole=hole))
        end = max(end, -1 if segment.last_offset is None else segment.last_offset + 1)
    return placed


def holes_before(ordered: PartitionSegments) -> list[Hole | None]:
    """The hole before each segment of a partition, None where no offset is missing."""
    found: list[Hole | None] = [None] * len(ordered)
    for after, first, end, kind in holes_between([one.offsets for one in ordered]):
        found[after + 1] = Hole(first, end, kind)
    return found


def _shown(selection: Selection) -> str:
    parts = [f"topics {', '.join(selection.topics)}"] if selection.topics else []
    if selection.partitions is not None:
        parts.append(f"partitions {', '.join(map(str, sorted(selection.partitions)))}")
    if selection.log_dir is not None:
        parts.append(f"log_dir {selection.log_dir!r}")
    return ", ".join(parts) or "any topic"
