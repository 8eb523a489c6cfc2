"""What `kip33.read_arrow` reads: an archive or a catalog as a stream of Arrow record batches.

A `Reading` has the validated arguments, independent of the source. It can be narrowed by the filter
of a query engine, cut into parts, and sent to tasks. A large segment is divided among several tasks
at entries of its `.index`.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from kip33.archive.moments import time_ms
from kip33.catalog.catalog import Warn, warn_caller
from kip33.catalog.schema import chosen
from kip33.errors import CatalogError, LocationError
from kip33.formats.batch import MAX_INT32
from kip33.formats.names import is_topic
from kip33.formats.times import Time
from kip33.options import Option, with_defaults
from kip33.records.columns import BATCHES, CORRUPT, RECORDS, SEGMENT_TABLE, UNDECIDED
from kip33.records.partitions import (
    PartitionSegments,
    ReadSegment,
    Selection,
    Source,
    Tell,
    partitions_of,
    unsure_line,
)
from kip33.records.record_numbers import NUMBERS, NumberRows
from kip33.records.record_request import (
    Faults,
    FilterBounds,
    OnError,
    OnErrorName,
    RecordRequest,
    disorder_of,
    limits_of,
)
from kip33.records.record_table import RecordRows
from kip33.records.segment_reader import Rows, SegmentReader
from kip33.records.segment_rows import BatchRows, SegmentRows
from kip33.records.segment_spans import spans_of
from kip33.rules.policies import duration
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
            "Only this log directory [default: one log of all replicas of a partition].",
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
            parse=time_ms,
            python="Only records at or after this time.",
        ),
    ]
    end_time: Annotated[
        Time | None,
        Option(
            "Only records before it.",
            flag="--until",
            metavar="T",
            parse=time_ms,
            python="Only records before this time.",
        ),
    ]
    disorder: Annotated[
        str | int | None,
        Option(
            "Promise: no record is older than an earlier one by more than this. Then reading "
            "stops soon after --until. Without it, later segments are also read.",
            metavar="1h",
            parse=duration,
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
            "`skip`, no row. With `skip` a log that cannot be opened is an error.",
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
    only_numbers: bool = False  # of records: NUMBERS, in place of records

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

    def of_numbers(self) -> Self:
        """Return the reading with only numbers of records, as NUMBERS."""
        hidden = () if self.request.only_committed else (UNDECIDED,)
        schema = pa.schema([field for field in NUMBERS if field.name not in hidden])
        return self._replace(schema=schema, only_numbers=True)

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
        needed = [(one, self.request.needed_of(one)) for one in partitions]
        if self.request.only_committed:
            return [partition for partition, segments in needed if segments]
        return [[segment] for _, segments in needed for segment in segments]

    def shared(
        self, parts: Sequence[PartitionSegments], share_bytes: int
    ) -> list[PartitionSegments]:
        """Return parts of which none has a segment much larger than `share_bytes`, if possible.

        Only segments that a catalog describes as complete are divided: what tasks read of others
        depends on how much of them an earlier task could read.
        """
        if not parts or self.level == Level.SEGMENTS or self.request.only_committed:
            return list(parts)

        def divided(part: PartitionSegments) -> list[PartitionSegments]:
            (segment,) = part
            if segment.figures is None or segment.damage:
                return [part]
            return [[span] for span in spans_of(segment, self.request, share_bytes)]

        return list(chain.from_iterable(map_in_order(parts[0][0].log, parts, divided)))

    def read(
        self,
        partitions: Iterable[PartitionSegments],
        skipped: list[str] | None = None,
        warn: Warn = warn_caller,
    ) -> pa.RecordBatchReader:
        """Return the rows of partitions or parts in their order; `skipped` as in `read_arrow`.

        `warn` gets a line for each log that is not read to its end although it could be.
        """
        lines: list[str] = [] if skipped is None else skipped
        faults = Faults(self.on_error, self.schema, lines, warn)
        reader: PartitionReader
        if self.level == Level.SEGMENTS:
            reader = SegmentRows(self.request, self.schema, faults)
        else:
            reader = self.segment_reader(faults)
        batches = (batch for partition in partitions for batch in reader.read(partition))
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def segment_reader(self, faults: Faults) -> SegmentReader:
        """Return what reads batches or records."""
        rows: Rows = BatchRows(self.schema)
        if self.level == Level.RECORDS:
            rows_of = NumberRows if self.only_numbers else RecordRows
            rows = rows_of(self.schema, self.max_batch_bytes)
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
