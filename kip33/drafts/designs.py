"""KIP-33's drafts: index designs that the KIP weighed and did not keep, and no release writes.

    minute      (timestamp, last offset) of a batch that gets an entry in the offset index and is in
                a later minute than the previous entry. Source: KIP-33, first draft; the same text
                is "Option 1" of the rejected alternatives. Made for LogAppendTime.
    minute-map  (minute, first offset) of the first batch in each minute, in order of arrival.
                Source: KIP-33, rejected "Option 2", for CreateTime: the file is a map that a broker
                has in memory.
    bucket      (bucket, first offset) of the first batch in a bucket of `time.index.interval` that
                is later than all buckets before, in this segment and in earlier ones. At the end
                (largest timestamp, last offset) of the last batch that has it, if it is the
                largest of the log so far. Source: KIP-33, the revision with `time.index.interval`.
    inline      (last offset, position, timestamp) of each batch that gets an entry in the offset
                index. Source: KIP-33, rejected "a timestamp in the offset index".

The texts speak of messages. Here a message is an entry of the log, as in every index rule of Kafka:
a batch or wrapper counts as a whole, with the max timestamp in its header. So headers are enough.
A batch without a timestamp gets no entry (inline: the timestamp -1).

The files have no header and no checksum; all integers are big-endian. Three of them have entries of
a `.timeindex`: a timestamp (int64) and a relative offset (int32). `inline` has a timestamp in each
entry of an offset index (INLINE_ENTRY).

The KIP names one file only, `.time.index`; the other names are of kip33.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import NO_TIMESTAMP, BatchColumns
from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.time_index import TIME_ENTRY, entries_of
from kip33.rules.index_entries import DIALECTS
from kip33.rules.policies import MAX_INT64

DesignName: TypeAlias = Literal[
    "recover", "live", "kip33", "minute", "minute-map", "bucket", "inline"
]
"""The names of DESIGNS: Kafka's dialects, the text of KIP-33, and its drafts."""

MINUTE_MS: Final = 60_000
Int64s = npt.NDArray[np.int64]

INLINE_ENTRY: Final = np.dtype(
    [
        ("relative_offset", ">i4"),  # last offset of a batch minus the base offset in the file name
        ("position", ">i4"),  # of the batch's first byte in the .log
        ("timestamp", ">i8"),  # the batch's max timestamp, ms since epoch, -1: none
    ]
)


class DraftBuilder:
    """Collects the entries of one draft for one segment, piece by piece."""

    def __init__(
        self,
        design: "IndexDesign",
        *,
        base_offset: int,
        largest_before: int = NO_TIMESTAMP,
        interval_ms: int = MINUTE_MS,
    ) -> None:
        """Start with an empty segment.

        `largest_before` is the largest timestamp of earlier segments, and `interval_ms` is
        `time.index.interval`; only `bucket` uses them. ValueError for an interval below 1.
        """
        if interval_ms < 1:
            raise ValueError(f"time.index.interval={interval_ms}: expected 1 ms or more")
        self._design, self._base_offset = design, base_offset
        self.largest_before, self.interval_ms = largest_before, interval_ms
        self.largest, self._offset_of_largest = NO_TIMESTAMP, base_offset
        self._next_offset = base_offset
        self._rows: list[Int64s] = [np.empty((0, len(design.entry.names or ())), np.int64)]

    def append(self, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> None:
        """Take the next batches; `is_point`: which of them get an entry in the offset index."""
        if not len(batches) or self._design.entries is None:
            return
        rows = self._design.entries(self, batches, is_point)
        if len(rows):
            self._rows.append(rows)
        timestamps = batches["max_timestamp"]
        last = len(timestamps) - 1 - int(np.argmax(timestamps[::-1]))
        if timestamps[last] >= self.largest:
            self.largest = int(timestamps[last])
            self._offset_of_largest = int(batches["last_offset"][last])
        self._next_offset = min(int(batches["last_offset"][-1]), MAX_INT64 - 1) + 1

    def close(self) -> None:
        """Add the closing entry of `bucket`; the other drafts have none."""
        if not self._design.needs_largest_before or self.largest <= self.largest_before:
            return
        if self.last_time < self.largest:
            self._rows.append(np.array([[self.largest, self._offset_of_largest]], np.int64))

    @property
    def rows(self) -> Int64s:
        """Return the entries as rows of numbers, in the order of the file, offsets absolute."""
        return np.concatenate(self._rows)

    @property
    def last_time(self) -> int:
        """Return the first number of the last entry, -1 without one."""
        last = self._rows[-1]
        return int(last[-1, 0]) if len(last) else NO_TIMESTAMP

    @property
    def data(self) -> bytes:
        """Return the file's bytes."""
        form = self._design.entry
        bases = [self._base_offset * (name == "relative_offset") for name in form.names or ()]
        return entries_of(form, *(self.rows - bases).T).tobytes()

    def first_offsets(self, batches: BatchColumns) -> Int64s:
        """Return an offset for each of the next batches that is not after its first record.

        The header of a compressed v0 or v1 message has only the last offset: the one after the
        batch before is returned then.
        """
        before = np.concatenate(([self._next_offset], batches["last_offset"][:-1] + 1))
        first = np.where(batches["records_count"] < 0, before, batches["base_offset"])
        return np.maximum(first, self._base_offset).astype(np.int64)


Entries: TypeAlias = Callable[[DraftBuilder, BatchColumns, npt.NDArray[np.bool_]], Int64s]
"""Returns the rows of the next batches, given the segment so far and which batches are points."""


def rises(values: Int64s, floor: int) -> npt.NDArray[np.bool_]:
    """Return which values are above `floor` and all values before them.

    >>> rises(np.array([3, 2, 3, 5]), 2).tolist()
    [True, False, False, True]
    """
    before = np.maximum.accumulate(np.concatenate(([floor], values)))[:-1]
    risen: npt.NDArray[np.bool_] = values > before
    return risen


def _minute(so_far: DraftBuilder, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> Int64s:
    """Return rows (timestamp, last offset)."""
    points = batches[is_point]
    risen = points[rises(points["max_timestamp"] // MINUTE_MS, so_far.last_time // MINUTE_MS)]
    return np.column_stack((risen["max_timestamp"], risen["last_offset"])).astype(np.int64)


def _minute_map(
    so_far: DraftBuilder, batches: BatchColumns, is_point: npt.NDArray[np.bool_]
) -> Int64s:
    """Return rows (minute in ms, first offset), in order of arrival."""
    timestamps = batches["max_timestamp"].astype(np.int64)
    minutes = timestamps // MINUTE_MS * MINUTE_MS
    _, at = np.unique(minutes, return_index=True)
    at = np.sort(at[(timestamps[at] >= 0) & ~np.isin(minutes[at], so_far.rows[:, 0])])
    return np.column_stack((minutes[at], so_far.first_offsets(batches)[at]))


def _bucket(so_far: DraftBuilder, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> Int64s:
    """Return rows (start of the bucket in ms, first offset)."""
    buckets = batches["max_timestamp"].astype(np.int64) // so_far.interval_ms
    floor = max(so_far.largest, so_far.largest_before)
    risen = rises(buckets, floor // so_far.interval_ms)
    first = so_far.first_offsets(batches)
    return np.column_stack((buckets[risen] * so_far.interval_ms, first[risen]))


def _inline(so_far: DraftBuilder, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> Int64s:
    """Return rows (last offset, position, timestamp)."""
    points = batches[is_point]
    fields = (points["last_offset"], points["position"], points["max_timestamp"])
    return np.column_stack(fields).astype(np.int64)


class IndexDesign(NamedTuple):
    """The index files of one dialect: what builds, comparisons and searches need to know of them.

    `file` is how the names of the files end, after the segment's name and a dot. `entries` builds
    them; it is None for a `.timeindex`, which `rules.index_builder` builds. `needs_order`: the
    entries tell where a search may begin only if no batch of the segment has a timestamp below an
    earlier batch's. `needs_largest_before`: they rise over the whole log up to its largest
    timestamp, so they depend on that of the partition's earlier segments. `is_map`: they are in no
    order, so a lookup reads all. `has_positions`: a search needs no `.index`. `within_ms`: their
    time is the beginning of a period of this length; None: it is their batch's max timestamp.
    """

    name: str
    file: str = TIME_INDEX_FILE
    entry: np.dtype[np.void] = TIME_ENTRY
    entries: Entries | None = None
    needs_order: bool = False
    needs_largest_before: bool = False
    is_map: bool = False
    has_positions: bool = False
    within_ms: int | None = None

    @property
    def is_draft(self) -> bool:
        """Return whether no release of Kafka reads the files."""
        return self.entries is not None


MINUTE: Final = IndexDesign("minute", "time.index", entries=_minute, needs_order=True)
MINUTE_MAP: Final = IndexDesign(
    "minute-map", "minute.index", entries=_minute_map, is_map=True, within_ms=MINUTE_MS
)
BUCKET: Final = IndexDesign(
    "bucket", "bucket.index", entries=_bucket, needs_largest_before=True, within_ms=MINUTE_MS
)
INLINE: Final = IndexDesign(
    "inline", "inline.index", INLINE_ENTRY, _inline, needs_order=True, has_positions=True
)
DRAFTS: Final = {draft.name: draft for draft in (MINUTE, MINUTE_MAP, BUCKET, INLINE)}
DRAFT_FILES: Final = tuple(draft.file for draft in DRAFTS.values())
DESIGNS: Final = {name: IndexDesign(name) for name in DIALECTS} | DRAFTS
"""Every dialect that kip33 writes, by name."""


def design_of(dialect: str) -> IndexDesign:
    """Return the design of a dialect; one that is unknown here has Kafka's files.

    >>> design_of("recover").file, design_of("minute").file
    ('timeindex', 'time.index')
    """
    return DESIGNS.get(dialect) or IndexDesign(dialect)


def other_entries(
    dialect: str, *, base_offset: int, largest_before: int
) -> tuple[DraftBuilder, ...]:
    """Return what collects the entries of a dialect, nothing for Kafka's: for `IndexBuilder`."""
    design = design_of(dialect)
    if not design.is_draft:
        return ()
    return (DraftBuilder(design, base_offset=base_offset, largest_before=largest_before),)
