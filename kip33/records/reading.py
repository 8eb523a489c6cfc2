"""What `kip33.read_arrow` reads: an archive or a catalog as a stream of Arrow record batches.

A `Reading` has the validated arguments, independent of the source. It can be narrowed by the filter
of a query engine, cut into parts, and sent to tasks. A large segment is divided among several tasks
at entries of its `.index`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain
from typing import (
    Annotated,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    Unpack,
)

import pyarrow as pa

from kip33.archive import common_options as common
from kip33.catalog.catalog import Warn, warn_caller
from kip33.catalog.schema import chosen
from kip33.errors import CatalogError, FileReadError, Kip33Error, LocationError
from kip33.formats.batch import MAX_INT32
from kip33.formats.index_pages import IndexPages, last_position
from kip33.formats.names import is_topic
from kip33.formats.times import Time
from kip33.options import Option, with_defaults
from kip33.records.columns import BATCHES, CORRUPT, RECORDS, SEGMENT_TABLE, UNDECIDED
from kip33.records.partitions import (
    OffsetShare,
    PartitionSegments,
    ReadSegment,
    Selection,
    Source,
    Tell,
    partitions_of,
    unsure_line,
)
from kip33.records.record_request import (
    Faults,
    FilterBounds,
    LogsRead,
    OnError,
    OnErrorName,
    RecordRequest,
    disorder_of,
    limits_of,
)
from kip33.records.record_table import RecordRows
from kip33.records.segment_reader import SegmentReader, offset_index_of
from kip33.records.segment_rows import BatchRows, SegmentRows
from kip33.stores.concurrently import map_in_order
from kip33.stores.filesystem_option import Filesystem, StorageOptions

OneOrMore: TypeAlias = str | Sequence[str]


class Level(StrEnum):
    """What a row is."""

    RECORDS = "records"
    BATCHES = "batches"
    SEGMENTS = "segments"


class Isolation(StrEnum):
    """Which transactional records are returned, by Kafka's names."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


LevelName: TypeAlias = Literal["records", "batches", "segments"]
"""The members of `Level`."""
IsolationName: TypeAlias = Literal["read_uncommitted", "read_committed"]
"""The members of `Isolation`."""


class RecordChoice(TypedDict, total=False):
    """Which records are read, and how."""

    topic: Annotated[
        OneOrMore | None,
        common.TOPIC_GLOBS._replace(default=None, python="A name or a glob, or several."),
    ]
    partition: Annotated[
        int | Sequence[int] | None,
        Option(
            "Only this partition. May be repeated.",
            metavar="N",
            least=0,
            most=MAX_INT32,
            python="A number or several.",
        ),
    ]
    log_dir: Annotated[
        str | None,
        Option(
            "Only this log directory [default: the most complete replica of each partition].",
            metavar="NAME",
        ),
    ]
    start_time: Annotated[
        Time | None,
        Option(
            "Only records at or after this time: ISO 8601, 9:05 (today in UTC), milliseconds, "
            "now-7d.",
            flag="--from",
            metavar="T",
            python="Only records at or after this time.",
        ),
    ]
    end_time: Annotated[
        Time | None,
        Option(
            "Only records before it.",
            flag="--until",
            metavar="T",
            python="Only records before this time.",
        ),
    ]
    disorder: Annotated[
        str | int | None,
        Option(
            "Promise: no record is older than an earlier one by more than this. Then reading "
            "stops soon after --until. Without it, later segments are also read.",
            metavar="1h",
        ),
    ]
    isolation: Annotated[
        IsolationName,
        Option(
            "read_committed: leave out records of aborted and open transactions, as a consumer "
            "does.",
            default="read_uncommitted",
        ),
    ]
    max_batch_bytes: common.MaxBatchBytes
    layout: common.LayoutName


class ReadOptions(RecordChoice, total=False):
    """Which rows and columns are read, and how: see `kip33.read_arrow`."""

    level: Annotated[
        LevelName, Option("What a row is: `records`, `batches` or `segments`.", default="records")
    ]
    columns: Annotated[Sequence[str] | None, "Names of the columns that are wanted; None: all."]
    start_offset: Annotated[int | None, "Only records from this offset on."]
    end_offset: Annotated[int | None, "Only records before this offset."]
    include_control: Annotated[bool, "Return control records, too."]
    on_error: Annotated[
        OnErrorName,
        Option(
            "What damage gives: `fail`, an error; `row`, a row with the reason in `_corrupt`; "
            "`skip`, no row.",
            default="fail",
        ),
    ]


class PartitionReader(Protocol):
    """What reads the partitions of a level."""

    def read(self, partition: PartitionSegments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""


_COLUMNS: Final = {
    Level.RECORDS: RECORDS,
    Level.BATCHES: BATCHES,
    Level.SEGMENTS: SEGMENT_TABLE,
}


class Reading(NamedTuple):
    """Rows and columns of an archive, and how they are read."""

    level: Level
    schema: pa.Schema
    request: RecordRequest
    selection: Selection
    on_error: OnError
    max_batch_bytes: int
    layout: str
    bounds: FilterBounds = FilterBounds()  # of an engine's filter, which it applies itself

    @classmethod
    def of(cls, **options: Unpack[ReadOptions]) -> Self:
        """Return the reading of a caller's options; ValueError for a wrong one."""
        unknown = options.keys() - ReadOptions.__annotations__.keys()
        if unknown:
            raise ValueError(
                f"option {min(unknown)!r} found, expected some of "
                f"{', '.join(ReadOptions.__annotations__)}"
            )
        asked = with_defaults(ReadOptions, options)
        level, choice = Level(asked["level"]), OnError(asked["on_error"])
        request = RecordRequest(
            limits_of(
                *(asked["start_time"], asked["end_time"]),
                *(asked["start_offset"], asked["end_offset"]),
            ),
            asked["include_control"],
            disorder_of(asked["disorder"]),
            Isolation(asked["isolation"]) == Isolation.READ_COMMITTED,
        )
        return cls(
            level,
            chosen(_schema(level, choice, request), asked["columns"]),
            request,
            Selection(_topics(asked["topic"]), _numbers(asked["partition"]), asked["log_dir"]),
            choice,
            asked["max_batch_bytes"],
            asked["layout"],
        )

    def with_columns(self, names: Sequence[str]) -> Self:
        """Return the reading with only these of its columns."""
        return self._replace(schema=chosen(self.schema, names))

    def inside(self, bounds: FilterBounds) -> Self:
        """Return the reading without what an engine's filter removes, as far as that is known."""
        request = self.request._replace(limits=bounds.narrowed(self.request.limits))
        return self._replace(request=request, bounds=bounds)

    def partitions(
        self,
        source: Source,
        storage_options: StorageOptions | None = None,
        filesystem: Filesystem | None = None,
        warn: Warn = warn_caller,
        choice: str = 'on_error="fail"',
    ) -> list[PartitionSegments]:
        """Return the partitions to read; errors as those of `partitions_of`.

        A filter that no partition passes is not an error. With `on_error="fail"`, CatalogError if a
        newer snapshot is damaged, which names this `choice` as the caller wrote it, and if records
        of two tiers may not be of the log. LocationError then if logs are left out because it is
        not known of which topic they are.
        """

        tell = Tell(warn, warn, warn)
        if self.on_error == OnError.FAIL:
            tell = Tell(warn, _refused_snapshot(choice), _refused_logs)

        def listed(selection: Selection) -> list[PartitionSegments]:
            return partitions_of(
                source,
                selection,
                layout=self.layout,
                storage_options=storage_options,
                filesystem=filesystem,
                tell=tell,
            )

        if self.bounds.is_empty:
            return []
        topics = self.bounds.topics or frozenset()
        if not topics or self.selection.topics or not all(map(is_topic, topics)):
            partitions = listed(self.selection)
        else:
            try:  # list no other topics
                partitions = listed(self.selection._replace(topics=tuple(sorted(topics))))
            except LocationError:
                partitions = listed(self.selection)  # raises if there is another reason
        partitions = [one for one in partitions if self._is_inside(one[0])]
        if line := unsure_line(partitions):
            if self.on_error == OnError.FAIL:
                raise CatalogError(line)
            warn(line)
        return partitions

    def _is_inside(self, segment: ReadSegment) -> bool:
        topics, partitions = self.bounds.topics, self.bounds.partitions
        return (topics is None or segment.topic in topics) and (
            partitions is None or segment.partition in partitions
        )

    def parts(self, partitions: Sequence[PartitionSegments]) -> list[PartitionSegments]:
        """Return what must be read of some partitions, in parts that tasks may read alone.

        A part is one segment. With `read_committed` it is a partition, because a transaction may
        end in a later segment than it begins.
        """
        needed = [(one, self._needed_of(one)) for one in partitions]
        if self.request.only_committed:
            return [partition for partition, segments in needed if segments]
        return [[segment] for _, segments in needed for segment in segments]

    def shared(
        self, parts: Sequence[PartitionSegments], share_bytes: int
    ) -> list[PartitionSegments]:
        """Return parts of which none has a segment much larger than `share_bytes`, if possible.

        Only records are shared, and not with `read_committed`.
        """
        if not parts or self.level != Level.RECORDS or self.request.only_committed:
            return list(parts)

        def divided(part: PartitionSegments) -> list[PartitionSegments]:
            return [[share] for segment in part for share in _shares_of(segment, share_bytes)]

        return list(chain.from_iterable(map_in_order(parts[0][0].log, parts, divided)))

    def _needed_of(self, partition: PartitionSegments) -> PartitionSegments:
        """Return the segments of a partition that may have rows, by what is known about them."""
        needed, latest = [], -1
        for segment in partition:
            if self.request.is_over(latest):
                break
            if self.request.needs(segment):
                needed.append(segment)
            latest = max(latest, segment.reached_timestamp)
        return needed

    def read(
        self,
        partitions: Iterable[PartitionSegments],
        skipped: list[str] | None = None,
        logs: LogsRead | None = None,
        warn: Warn = warn_caller,
    ) -> pa.RecordBatchReader:
        """Return the rows of partitions or parts in their order; `skipped` as in `read_arrow`.

        `logs` gets which logs could be read, `warn` a line for each log that is not read to its end
        although it could be.
        """
        lines: list[str] = [] if skipped is None else skipped
        faults = Faults(self.on_error, self.schema, lines, logs, warn)
        reader: PartitionReader
        if self.level == Level.SEGMENTS:
            reader = SegmentRows(self.request, self.schema, faults)
        else:
            reader = self.segment_reader(faults)
        batches = (batch for partition in partitions for batch in reader.read(partition))
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def segment_reader(self, faults: Faults) -> SegmentReader:
        """Return what reads batches or records."""
        if self.level == Level.BATCHES:
            return SegmentReader(self.request, BatchRows(self.schema), faults)
        rows = RecordRows(self.schema, self.max_batch_bytes)
        return SegmentReader(self.request, rows, faults)


def _refused_snapshot(choice: str) -> Warn:
    def refuse(message: str) -> NoReturn:
        raise CatalogError(f"{message}, and {choice} takes no older one; run `kip33 build`")

    return refuse


def _refused_logs(message: str) -> NoReturn:
    raise LocationError(message)


def _schema(kind: Level, choice: OnError, request: RecordRequest) -> pa.Schema:
    """Return all columns of a level, with those of problems that the caller wants to see."""
    hidden = set()
    if choice != OnError.ROW:
        hidden.add(CORRUPT)
    if not request.only_committed:
        hidden.add(UNDECIDED)
    return pa.schema([field for field in _COLUMNS[kind] if field.name not in hidden])


def _topics(topic: OneOrMore | None) -> tuple[str, ...]:
    if topic is None:
        return ()
    return (topic,) if isinstance(topic, str) else tuple(topic)


def _numbers(partition: int | Sequence[int] | None) -> frozenset[int] | None:
    if partition is None:
        return None
    return frozenset((partition,) if isinstance(partition, int) else partition)


def _shares_of(segment: ReadSegment, share_bytes: int) -> list[ReadSegment]:
    """Return a segment as shares of about `share_bytes`, together the same records.

    A segment is divided only if a catalog describes it as complete and all its batches are of
    magic 2: of others a task cannot tell where a batch ends that it does not read. The index only
    chooses the offsets, so a wrong one makes uneven shares.
    """
    size_bytes = segment.listed_bytes
    if not segment.only_v2 or segment.last_offset is None or 2 * size_bytes < 3 * share_bytes:
        return [segment]
    if segment.conflict or segment.hole:  # is reported once
        return [segment]
    base_offset, end_offset = segment.base_offset or 0, segment.last_offset + 1
    places = [(base_offset, 0)]
    with ExitStack() as files:
        try:
            index = offset_index_of(segment, files)
            if index is not None:
                for relative_offset, position in points_of(index, size_bytes, share_bytes):
                    offset = base_offset + relative_offset
                    if places[-1][0] < offset < end_offset and places[-1][1] < position:
                        places.append((offset, position))
        except (FileReadError, Kip33Error):
            return [segment]
    if len(places) == 1:
        return [segment]
    return [
        segment._replace(share=OffsetShare(first, end), listed_bytes=max(stop - start, 0))
        for (first, start), (end, stop) in zip(
            places, [*places[1:], (end_offset, size_bytes)], strict=True
        )
    ]


def points_of(index: IndexPages, size_bytes: int, share_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the entries before even parts of a log."""
    count = -(-size_bytes // share_bytes)
    for number in range(1, count):
        target = number * size_bytes // count
        slot = last_position(index, target)
        if slot >= 0:
            yield index[slot]
