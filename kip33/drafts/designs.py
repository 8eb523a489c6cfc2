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
entry of an offset index:

    bytes   field             type    meaning
    0..3    relative offset   int32   last offset of a batch minus the base offset in the file name
    4..7    position          int32   of the batch's first byte in the .log
    8..15   timestamp         int64   the batch's max timestamp, ms since epoch, -1: none

The KIP names one file only, `.time.index`; the other names are of kip33.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptIndexError
from kip33.formats.batch import NO_TIMESTAMP, BatchColumns
from kip33.formats.names import TIME_INDEX_FILE
from kip33.formats.time_index import TIME_ENTRY
from kip33.rules.policies import MAX_INT64

MINUTE_MS: Final = 60_000
Int64s = npt.NDArray[np.int64]

INLINE_ENTRY: Final = np.dtype(
    [("relative_offset", ">i4"), ("position", ">i4"), ("timestamp", ">i8")]
)
INLINE_ENTRY_BYTES: Final = 16

MINUTE_FILE: Final = "time.index"
MINUTE_MAP_FILE: Final = "minute.index"
BUCKET_FILE: Final = "bucket.index"
INLINE_FILE: Final = "inline.index"
DRAFT_FILES: Final = (MINUTE_FILE, MINUTE_MAP_FILE, BUCKET_FILE, INLINE_FILE)
"""How the names of the files end, after the segment's name and a dot."""


class DraftDialect(NamedTuple):
    """One of the drafts.

    `file` is how its files' names end. `needs_order`: its entries tell where a search may begin
    only if no batch of the segment has a timestamp below an earlier batch's.
    """

    name: str
    file: str
    entry: np.dtype[np.void]
    needs_order: bool


MINUTE: Final = DraftDialect("minute", MINUTE_FILE, TIME_ENTRY, True)
MINUTE_MAP: Final = DraftDialect("minute-map", MINUTE_MAP_FILE, TIME_ENTRY, False)
BUCKET: Final = DraftDialect("bucket", BUCKET_FILE, TIME_ENTRY, False)
INLINE: Final = DraftDialect("inline", INLINE_FILE, INLINE_ENTRY, True)
DRAFTS: Final = {draft.name: draft for draft in (MINUTE, MINUTE_MAP, BUCKET, INLINE)}


def index_file_of(dialect: str) -> str:
    """Return how the names of a dialect's index files end.

    >>> index_file_of("recover"), index_file_of("minute")
    ('timeindex', 'time.index')
    """
    return DRAFTS[dialect].file if dialect in DRAFTS else TIME_INDEX_FILE


def entry_bytes_of(dialect: str) -> int:
    """Return the size of an entry of a dialect's index files.

    >>> entry_bytes_of("live"), entry_bytes_of("inline")
    (12, 16)
    """
    return DRAFTS[dialect].entry.itemsize if dialect in DRAFTS else TIME_ENTRY.itemsize


class OffsetPositionTime(NamedTuple):
    """One entry of an inline index: absolute offset, position in bytes, ms since epoch."""

    offset: int
    position: int
    timestamp: int


def inline_entries(data: bytes, *, base_offset: int) -> list[OffsetPositionTime]:
    """Return the entries of a `.inline.index`; CorruptIndexError if `data` ends inside an entry.

    >>> wire = bytes.fromhex("00000001 00000052 0000018bcfe568fa")
    >>> inline_entries(wire, base_offset=100)
    [OffsetPositionTime(offset=101, position=82, timestamp=1700000000250)]
    """
    if len(data) % INLINE_ENTRY_BYTES:
        raise CorruptIndexError(
            f"{len(data)} bytes found, expected a multiple of {INLINE_ENTRY_BYTES}"
        )
    rows = np.frombuffer(data, INLINE_ENTRY).tolist()
    return [OffsetPositionTime(base_offset + offset, at, time) for offset, at, time in rows]


def first_offsets(batches: BatchColumns, *, base_offset: int, next_offset: int) -> Int64s:
    """Return an offset for each batch that is not after its first record.

    The header of a compressed v0 or v1 message has only the last offset: the one after the batch
    before is returned then. `next_offset` is the one after the batches before these.
    """
    before = np.concatenate(([next_offset], batches["last_offset"][:-1] + 1))
    first = np.where(batches["records_count"] < 0, before, batches["base_offset"])
    return np.maximum(first, base_offset).astype(np.int64)


def rises(values: Int64s, floor: int) -> npt.NDArray[np.bool_]:
    """Return which values are above `floor` and all values before them.

    >>> rises(np.array([3, 2, 3, 5]), 2).tolist()
    [True, False, False, True]
    """
    before = np.maximum.accumulate(np.concatenate(([floor], values)))[:-1]
    risen: npt.NDArray[np.bool_] = values > before
    return risen


def minute_entries(points: BatchColumns, last_minute: int) -> Int64s:
    """Return the rows (timestamp, last offset) of `minute`.

    `points` are the batches that get an entry in the offset index, `last_minute` is the minute
    since 1970 of the previous entry, -1 without one.
    """
    risen = points[rises(points["max_timestamp"] // MINUTE_MS, last_minute)]
    return np.column_stack((risen["max_timestamp"], risen["last_offset"])).astype(np.int64)


def minute_map_entries(timestamps: Int64s, first: Int64s, seen: Int64s) -> Int64s:
    """Return the rows (minute in ms, first offset) of `minute-map`, in order of arrival.

    `timestamps` and `first` are of the next batches, `seen` are the minutes that have a row.
    """
    minutes = timestamps // MINUTE_MS * MINUTE_MS
    _, at = np.unique(minutes, return_index=True)
    at = np.sort(at[(timestamps[at] >= 0) & ~np.isin(minutes[at], seen)])
    return np.column_stack((minutes[at], first[at]))


def bucket_entries(timestamps: Int64s, first: Int64s, floor: int, interval_ms: int) -> Int64s:
    """Return the rows (start of the bucket in ms, first offset) of `bucket`.

    `floor` is the largest timestamp of the log before these batches, -1 without one.
    """
    buckets = timestamps // interval_ms
    risen = rises(buckets, floor // interval_ms)
    return np.column_stack((buckets[risen] * interval_ms, first[risen]))


def inline_rows(points: BatchColumns) -> Int64s:
    """Return the rows (last offset, position, timestamp) of `inline`."""
    fields = (points["last_offset"], points["position"], points["max_timestamp"])
    return np.column_stack(fields).astype(np.int64)


class DraftBuilder:
    """Collects the entries of one draft for one segment, piece by piece."""

    def __init__(
        self,
        draft: DraftDialect,
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
        self._draft, self._base_offset = draft, base_offset
        self._largest_before, self._interval_ms = largest_before, interval_ms
        self._largest, self._offset_of_largest = NO_TIMESTAMP, base_offset
        self._next_offset = base_offset
        self._last_minute = -1
        width = len(draft.entry.names or ())
        self._rows: list[Int64s] = [np.empty((0, width), np.int64)]

    def append(self, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> None:
        """Take the next batches; `is_point`: which of them get an entry in the offset index."""
        if not len(batches):
            return
        self._rows.append(self._entries(batches, is_point))
        timestamps = batches["max_timestamp"]
        last = len(timestamps) - 1 - int(np.argmax(timestamps[::-1]))
        if timestamps[last] >= self._largest:
            self._largest = int(timestamps[last])
            self._offset_of_largest = int(batches["last_offset"][last])
        self._next_offset = min(int(batches["last_offset"][-1]), MAX_INT64 - 1) + 1

    def close(self) -> None:
        """Add the closing entry of `bucket`; the other drafts have none."""
        if self._draft is not BUCKET or self._largest <= self._largest_before:
            return
        rows = self.rows
        if not len(rows) or rows[-1, 0] < self._largest:
            self._rows.append(np.array([[self._largest, self._offset_of_largest]], np.int64))

    @property
    def rows(self) -> Int64s:
        """Return the entries as rows of numbers, in the order of the file, offsets absolute."""
        return np.concatenate(self._rows)

    @property
    def data(self) -> bytes:
        """Return the file's bytes."""
        rows = self.rows
        file = np.empty(len(rows), self._draft.entry)
        for column, name in enumerate(self._draft.entry.names or ()):
            base = self._base_offset if name == "relative_offset" else 0
            file[name] = rows[:, column] - base
        return file.tobytes()

    def _entries(self, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> Int64s:
        if self._draft is INLINE:
            return inline_rows(batches[is_point])
        if self._draft is MINUTE:
            rows = minute_entries(batches[is_point], self._last_minute)
            if len(rows):
                self._last_minute = int(rows[-1, 0]) // MINUTE_MS
            return rows
        timestamps = batches["max_timestamp"].astype(np.int64)
        first = first_offsets(batches, base_offset=self._base_offset, next_offset=self._next_offset)
        if self._draft is MINUTE_MAP:
            return minute_map_entries(timestamps, first, self.rows[:, 0])
        floor = max(self._largest, self._largest_before)
        return bucket_entries(timestamps, first, floor, self._interval_ms)
