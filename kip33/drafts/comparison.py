"""Build the indexes of one segment in several dialects, and search with each of them.

A search for a time begins where the index leads to, and ends with the first batch that has a record
at or after it. That batch is known from headers: its max timestamp is the first that is late
enough. (Batches that compaction emptied have no record and do not count.)

The search guarantee is checked for all times, not for a sample. All times between two entries begin
at the same place, and the earliest of them wants the earliest record (`turning_times`).
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from kip33.drafts.designs import (
    DESIGNS,
    MINUTE_MS,
    DraftBuilder,
    IndexDesign,
    Int64s,
    design_of,
    rises,
)
from kip33.drafts.lookup import NO_SLOT, slots_for, turning_times
from kip33.errors import CorruptSegmentError, FileReadError
from kip33.formats.batch import NO_TIMESTAMP, BatchColumns
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.scan import BatchScan
from kip33.formats.time_index import (
    OffsetIndex,
    TimeIndex,
)
from kip33.rules.index_builder import IndexBuilder, IndexSettings, TopicSettings
from kip33.rules.index_entries import DIALECTS, LIVE, RECOVER
from kip33.stores.files import one_line, scanned
from kip33.stores.locations import Location


class RisingBatches(NamedTuple):
    """The batches with records whose max timestamp is above that of all batches before."""

    timestamps: Int64s
    positions: Int64s
    ends: Int64s
    offsets: Int64s

    @classmethod
    def of(cls, batches: BatchColumns, floor: int) -> Self:
        """Return those of some batches that are above `floor`."""
        batches = batches[batches["records_count"] != 0]
        risen = batches[rises(batches["max_timestamp"], floor)]
        ends = risen["position"] + risen["size_bytes"]
        columns = (risen["max_timestamp"], risen["position"], ends, risen["base_offset"])
        return cls(*(column.astype(np.int64) for column in columns))

    @property
    def largest(self) -> int:
        """Return the largest timestamp, -1 without one."""
        return int(self.timestamps[-1]) if len(self.timestamps) else NO_TIMESTAMP


class DialectIndex(NamedTuple):
    """The entries of one dialect's file, and the offset index beside it."""

    design: IndexDesign
    rows: Int64s  # offsets absolute
    file_bytes: int
    points: OffsetIndex

    def starts(self, targets: Int64s) -> Int64s:
        """Return the position in the log at which the search for each time begins."""
        slots = slots_for(self.design, self.rows, targets)
        found = slots > NO_SLOT
        starts = np.zeros(len(targets), np.int64)
        if self.design.has_positions:
            starts[found] = self.rows[slots[found], 1]
            return starts
        at = np.searchsorted(self.points.offsets, self.rows[slots[found], 1], side="right") - 1
        positions = np.concatenate((self.points.positions, [0]))  # -1: no point, the first batch
        starts[found] = positions[at]
        return starts


class _Counterexample(NamedTuple):
    """A search that begins after the first record at or after its time."""

    log_uri: str
    target_ms: int
    start_position: int  # where the search begins
    missed_position: int  # of the batch with the record
    missed_offset: int  # of that batch: v0 and v1: the last offset
    missed_timestamp: int  # its max timestamp


class DialectFigures(NamedTuple):
    """The figures of one dialect in some segments."""

    entries: int = 0
    file_bytes: int = 0
    scanned_bytes: tuple[int, ...] = ()  # of log, for each time that is found
    missed: int = 0  # times whose first record is not found
    counterexample: _Counterexample | None = None

    @classmethod
    def summed(cls, parts: "Sequence[DialectFigures]") -> "DialectFigures":
        """Return the figures of all parts together, with the first counterexample."""
        return cls(
            sum(part.entries for part in parts),
            sum(part.file_bytes for part in parts),
            tuple(chain.from_iterable(part.scanned_bytes for part in parts)),
            sum(part.missed for part in parts),
            next((part.counterexample for part in parts if part.counterexample), None),
        )


class ComparedSegment(NamedTuple):
    """The figures of one segment; `problem` says why its log has no index."""

    problem: str | None
    log_bytes: int
    bytes_read: int
    largest: int = NO_TIMESTAMP  # of all batches
    offset_index_bytes: int = 0
    by_dialect: dict[str, DialectFigures] = {}  # noqa: RUF012
    unreadable: str | None = None  # the log's line, if the problem is that it could not be read


COMPARED = tuple(DESIGNS)


class DialectQuestion(NamedTuple):
    """The settings of one comparison; sent to every task."""

    settings: TopicSettings = TopicSettings()
    dialects: tuple[str, ...] = COMPARED
    interval_ms: int = MINUTE_MS  # `time.index.interval` of the dialect `bucket`
    targets: int = 16  # times that are searched in each segment
    seed: int = 0  # from which these times are drawn

    def require_valid(self) -> None:
        """Raise ValueError for an unknown dialect, or a setting that Kafka would refuse."""
        for name in self.dialects:
            if name not in COMPARED:
                raise ValueError(f"dialect {name!r}: expected one of {', '.join(COMPARED)}")
        self.settings.default.require_valid()


def compare_segment(
    question: DialectQuestion,
    log: Location,
    *,
    base_offset: int,
    topic: str,
    largest_before: int,
    random: np.random.Generator,
) -> ComparedSegment:
    """Return the figures of the segment at `log`; a fault of the file is a `problem`.

    `largest_before` is the largest timestamp of the partition's earlier segments: a search for an
    earlier time ends there. `random` draws the times that are searched.
    """
    settings = question.settings.of(topic)
    try:
        with scanned(log) as (read_into, size_bytes, view_at):
            scan = BatchScan(
                read_into,
                size_bytes,
                check_crc=settings.check_crc,
                seek_max_record=LIVE.name in question.dialects and topic != "__cluster_metadata",
                native=True,
                view_at=view_at,
            )
            built = _Built(question, settings, base_offset, topic, largest_before)
            speed = compiled if scan.native else plain
            for batches in scan:
                built.append(batches, speed)
                if built.recover.refusal:
                    break
    except (CorruptSegmentError, FileReadError) as error:
        why = one_line(error)
        line = f"{log.uri}: {why}"
        return ComparedSegment(f"{log.uri}: cannot be read: {why}", 0, 0, unreadable=line)
    refusal = built.recover.refusal
    problem = f"at byte {refusal[0]}: {refusal[1]}" if refusal else scan.load_failure
    if problem:
        return ComparedSegment(f"{log.uri}: {problem}", 0, scan.bytes_read)
    indexes = built.indexes(scan.valid_bytes)
    rising = built.rising(largest_before)
    targets = _targets(rising, max(largest_before + 1, built.smallest), question.targets, random)
    figures = {
        name: _figures(index, rising, targets, largest_before, log.uri)
        for name, index in indexes.items()
    }
    offset_index_bytes = len(built.recover.offset_index)
    return ComparedSegment(
        None, scan.valid_bytes, scan.bytes_read, built.largest, offset_index_bytes, figures
    )


class _Built:
    """The indexes of one segment in all dialects, while it is scanned."""

    def __init__(
        self,
        question: DialectQuestion,
        settings: IndexSettings,
        base_offset: int,
        topic: str,
        largest_before: int,
    ) -> None:
        self._base_offset = base_offset
        self._drafts = {
            name: DraftBuilder(
                design,
                base_offset=base_offset,
                largest_before=largest_before,
                interval_ms=question.interval_ms,
            )
            for name, design in DESIGNS.items()
            if name in question.dialects and design.is_draft
        }
        self.recover = IndexBuilder(
            RECOVER,
            settings,
            base_offset=base_offset,
            topic=topic,
            others=tuple(self._drafts.values()),
        )
        self._builders = {
            name: IndexBuilder(dialect, settings, base_offset=base_offset, topic=topic)
            for name, dialect in DIALECTS.items()
            if name in question.dialects and dialect is not RECOVER
        }
        if RECOVER.name in question.dialects:
            self._builders[RECOVER.name] = self.recover
        self._rising: list[RisingBatches] = []
        self.largest, self.smallest = NO_TIMESTAMP, 2**63 - 1

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        for builder in {self.recover, *self._builders.values()}:
            builder.append(batches, speed)
        floor = self._rising[-1].largest if self._rising else NO_TIMESTAMP
        rising = RisingBatches.of(batches, floor)
        if len(rising.timestamps):
            self._rising.append(rising)
        known = batches["max_timestamp"][batches["max_timestamp"] > NO_TIMESTAMP]
        if len(known):
            self.largest = max(self.largest, int(known.max()))
            self.smallest = min(self.smallest, int(known.min()))

    def rising(self, floor: int) -> RisingBatches:
        """Return the batches at which a search may end that earlier segments do not answer."""
        if not self._rising:
            return RisingBatches(*(np.empty(0, np.int64) for _ in RisingBatches._fields))
        columns = [np.concatenate(column) for column in zip(*self._rising, strict=True)]
        kept = columns[0] > floor
        return RisingBatches(*(column[kept] for column in columns))

    def indexes(self, valid_bytes: int) -> dict[str, DialectIndex]:
        for builder in {self.recover, *self._builders.values()}:
            builder.close(valid_bytes)
        base = self._base_offset
        points = OffsetIndex.from_bytes(self.recover.offset_index, base_offset=base)
        found: dict[str, DialectIndex] = {}
        for name, builder in self._builders.items():
            data = builder.time_index
            times = TimeIndex.from_bytes(data, base_offset=base)
            rows = np.column_stack((times.timestamps, times.offsets))
            found[name] = DialectIndex(DESIGNS[name], rows, len(data), points)
        for name, draft in self._drafts.items():
            found[name] = DialectIndex(DESIGNS[name], draft.rows, len(draft.data), points)
        return found


def _targets(rising: RisingBatches, low: int, count: int, random: np.random.Generator) -> Int64s:
    """Return times for which the segment has the first record, evenly distributed."""
    if not len(rising.timestamps):
        return np.empty(0, np.int64)
    low = min(max(low, 0), rising.largest)
    return random.integers(low, rising.largest, size=count, dtype=np.int64, endpoint=True)


def _figures(
    index: DialectIndex,
    rising: RisingBatches,
    targets: Int64s,
    largest_before: int,
    log_uri: str,
) -> DialectFigures:
    figures = DialectFigures(len(index.rows), index.file_bytes)
    if not len(rising.timestamps):
        return figures
    starts = index.starts(targets)
    wanted = np.searchsorted(rising.timestamps, targets)
    is_found = starts <= rising.positions[wanted]
    scanned_bytes = (rising.ends[wanted] - starts)[is_found]
    turning = turning_times(index.design, index.rows)
    turning = turning[(turning > largest_before) & (turning <= rising.largest) & (turning >= 0)]
    turning = np.concatenate((turning, targets))
    late = index.starts(turning) > rising.positions[np.searchsorted(rising.timestamps, turning)]
    counterexample = None
    if late.any():
        target = turning[late].min()
        missed = int(np.searchsorted(rising.timestamps, target))
        counterexample = _Counterexample(
            log_uri,
            int(target),
            int(index.starts(np.array([target]))[0]),
            int(rising.positions[missed]),
            int(rising.offsets[missed]),
            int(rising.timestamps[missed]),
        )
    return figures._replace(
        scanned_bytes=tuple(scanned_bytes.tolist()),
        missed=int((~is_found).sum()),
        counterexample=counterexample,
    )


class ComparedPartition(NamedTuple):
    """The figures of one partition, and what was read for them."""

    path: str  # of its first log
    segments: int
    log_bytes: int  # valid ones
    bytes_read: int
    offset_index_bytes: int
    skipped: tuple[str, ...]  # a line for each log without an index
    unreadable: tuple[str, ...]  # a line for each of them that could not be read
    by_dialect: dict[str, DialectFigures]


_GIB: Final = 2**30
_DIALECT_FIELDS: list["pa.Field[Any]"] = [
    pa.field("dialect", pa.string(), nullable=False),
    pa.field("file", pa.string(), nullable=False),
    pa.field("entries", pa.int64(), nullable=False),
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("bytes_with_offset_index", pa.int64(), nullable=False),
    pa.field("bytes_per_gib", pa.int64()),
    pa.field("memory_bytes", pa.int64()),
    pa.field("memory_with_offset_index_bytes", pa.int64()),
    pa.field("scanned_median_bytes", pa.int64()),
    pa.field("scanned_p99_bytes", pa.int64()),
    pa.field("searched_times", pa.int64(), nullable=False),
    pa.field("missed_times", pa.int64(), nullable=False),
    pa.field("guarantee", pa.bool_(), nullable=False),
    pa.field("counterexample_log", pa.string()),
    pa.field("counterexample_target_ms", pa.int64()),
    pa.field("counterexample_start", pa.int64()),
    pa.field("counterexample_position", pa.int64()),
    pa.field("counterexample_offset", pa.int64()),
    pa.field("counterexample_timestamp", pa.int64()),
]
DIALECT_ROWS: Final = pa.schema(_DIALECT_FIELDS)
"""One row per dialect."""


def dialect_rows(
    compared: Sequence[ComparedPartition], dialects: Iterable[str], *, partitions: int
) -> list[dict[str, Any]]:
    """Return a row of DIALECT_ROWS for each dialect; sizes are in bytes, times in ms.

    `bytes` are those of the dialect's own files; with the offset index that a search also needs it
    is `bytes_with_offset_index` (`inline` replaces it). Memory is for `partitions` partitions like
    those compared. Scanned are bytes of log per search, None if nothing was searched.
    """
    log_bytes = sum(one.log_bytes for one in compared)
    offset_index_bytes = sum(one.offset_index_bytes for one in compared)
    measured = sum(one.segments > 0 for one in compared)
    rows = []
    for name in dialects:
        figures = DialectFigures.summed([one.by_dialect[name] for one in compared])
        design = design_of(name)
        together = figures.file_bytes + (0 if design.has_positions else offset_index_bytes)
        searched = np.array(figures.scanned_bytes, np.int64)
        median, p99 = (
            np.percentile(searched, (50, 99), method="inverted_cdf").astype(int).tolist()
            if len(searched)
            else (None, None)
        )
        example = figures.counterexample
        values = (
            name,
            f".{design.file}",
            figures.entries,
            figures.file_bytes,
            together,
            round(figures.file_bytes * _GIB / log_bytes) if log_bytes else None,
            round(figures.file_bytes * partitions / measured) if measured else None,
            round(together * partitions / measured) if measured else None,
            median,
            p99,
            len(searched) + figures.missed,
            figures.missed,
            example is None,
            *(example or (None,) * 6),
        )
        rows.append(dict(zip(DIALECT_ROWS.names, values, strict=True)))
    return rows


KIP_PARTITIONS: Final = 3_500  # of the broker in the KIP
