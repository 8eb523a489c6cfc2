"""Where a log is cut when it is truncated to an offset: numbers in, decisions out.

`LocalLog.truncateTo(offset)` deletes the segments whose base offset is above the offset and cuts
the last of the others. `LogSegment.truncateTo` keeps the batches before the first one whose last
offset is the offset or a later one. So a batch that contains the offset is cut off as a whole, and
the log then ends before the offset. Index entries are kept if their offset is below it.

Kafka 4.3: `UnifiedLog.truncateTo`, `FileRecords.searchForOffsetFromPosition`,
`LogSegment.readLargestTimestamp`.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from kip33.formats.batch import CONTROL, BatchColumns
from kip33.formats.time_index import TimestampOffset


class TruncationCase(StrEnum):
    """What Kafka does with a log that is truncated to an offset; each member is its own text."""

    BEYOND_END = "beyond_end"  # the log ends at or before the offset: no record is cut
    CUT = "cut"  # later segments are deleted, one is cut
    EMPTIED = "emptied"  # it begins above the offset: one empty segment is left, at the offset


def truncation_case(base_offsets: Sequence[int], end_offset: int, offset: int) -> TruncationCase:
    """Return what happens to a log with these segments, in order, that ends at `end_offset`.

    >>> [str(truncation_case([10, 20], 25, offset)) for offset in (5, 20, 25)]
    ['emptied', 'cut', 'beyond_end']
    """
    if offset >= end_offset:
        return TruncationCase.BEYOND_END
    return TruncationCase.EMPTIED if base_offsets[0] > offset else TruncationCase.CUT


class BatchCut:
    """The batches of one segment, divided at an offset; `append` takes them in order.

    `position` is the first byte that is cut off, None if no batch has the offset or a later one.
    `end_offset` is the offset after the last kept batch, the base offset if no batch is kept.
    `largest` is the max timestamp of the kept batches from the position `largest_from` on, with the
    last offset of the first batch that has it.
    """

    def __init__(self, offset: int, *, base_offset: int, largest_from: int = 0) -> None:
        """Begin with no batches; an offset below all batches cuts all of them."""
        self.position: int | None = None
        self.end_offset = base_offset
        self.largest = TimestampOffset(-1, base_offset)
        self.batches_cut = 0
        self.records_cut = 0  # without those of control batches
        self.is_exact = True  # False: a compressed message of v0 or v1 is cut, counted as one
        self.log_end_offset = base_offset
        self._offset = offset
        self._largest_from = largest_from

    def append(self, batches: BatchColumns) -> None:
        """Take the next batches."""
        if not len(batches):
            return
        kept = 0
        if self.position is None:
            reached = np.flatnonzero(batches["last_offset"] >= self._offset)
            kept = int(reached[0]) if len(reached) else len(batches)
            if len(reached):
                self.position = int(batches["position"][kept])
            self._keep(batches[:kept])
        self._cut(batches[kept:])
        self.log_end_offset = int(batches["last_offset"][-1]) + 1

    def _keep(self, batches: BatchColumns) -> None:
        if not len(batches):
            return
        self.end_offset = int(batches["last_offset"][-1]) + 1
        later = batches[batches["position"] >= self._largest_from]
        if len(later):
            first = int(later["max_timestamp"].argmax())
            timestamp = int(later["max_timestamp"][first])
            if timestamp > self.largest.timestamp:
                self.largest = TimestampOffset(timestamp, int(later["last_offset"][first]))

    def _cut(self, batches: BatchColumns) -> None:
        self.batches_cut += len(batches)
        counts = batches["records_count"][batches["attributes"] & CONTROL == 0]
        self.is_exact = self.is_exact and bool((counts >= 0).all())
        self.records_cut += int(np.where(counts < 0, 1, counts).sum(dtype=np.int64))
