"""The status of a segment's log, and the catalog's figures about its batches."""

from enum import StrEnum
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)


class SegmentStatus(StrEnum):
    """The status of a segment's log; each member is its own text.

    >>> SegmentStatus.TRUNCATED == "truncated"
    True
    """

    OK = "ok"
    EMPTY = "empty"  # no bytes
    TRUNCATED = "truncated"  # recovery cuts the log to its valid bytes
    INVALID = "invalid"  # recovery fails, or empties or splits the segment
    UNREADABLE = "unreadable"  # the file could not be read
    UNVERIFIED = "unverified"  # judged by the end of its index, the log was not read
    ARCHIVED = "archived"  # in S3 Glacier: it cannot be read until it is restored


UNDAMAGED_STATUSES: Final = (SegmentStatus.OK, SegmentStatus.EMPTY)
DAMAGED_STATUSES: Final = (
    SegmentStatus.TRUNCATED,
    SegmentStatus.INVALID,
    SegmentStatus.UNREADABLE,
)
"""A broker would not keep the whole log, or it could not be read."""
READ_STATUSES: Final = (*UNDAMAGED_STATUSES, SegmentStatus.TRUNCATED)
"""The figures of a row are those of all valid batches."""
NOT_READ: Final = (SegmentStatus.UNREADABLE, SegmentStatus.ARCHIVED)
"""Of these a build knows only what the listing says: size and modification time."""


def is_whole_before_zeros(end_offset: int, *, is_last: bool, next_base_offset: int | None) -> bool:
    """Return whether a log has all its batches, if only zeros follow its last one.

    A broker with `preallocate` makes its logs as large as they may become, and cuts them when they
    are closed or when it stops: a copy of a running one has the zeros. A power failure may leave
    zeros, too, instead of batches. So the zeros of an earlier segment are no damage where the next
    one begins at its end, and those of the last one if the partition has a batch.

    >>> is_whole_before_zeros(3, is_last=True, next_base_offset=None)
    True
    >>> is_whole_before_zeros(3, is_last=False, next_base_offset=5)
    False
    """
    if is_last:
        return end_offset > 0
    return next_base_offset == end_offset


class TimestampSource(StrEnum):
    """Where a segment's largest timestamp is from; each member is its own text."""

    LOG = "log"
    TIME_INDEX = "time_index"  # the last entry; the log was not read
    LAST_MODIFIED = "last_modified"  # the file's time: the log has no timestamp


SUMMARY_RECORD: Final = np.dtype(
    [
        ("batch_count", np.int64),
        ("record_count", np.int64),
        ("wrappers", np.int64),  # v0, v1: their records are not counted
        ("first_batch_timestamp", np.int64),
        ("last_offset", np.int64),
        ("max_timestamp", np.int64),
        ("offset_of_max_timestamp", np.int64),  # last offset of the first batch that has it
        ("smallest_timestamp", np.int64),  # of the batches whose records all have one timestamp
        ("unknown_smallest", np.int64),  # batches of which only the max timestamp is known
        ("out_of_order_batches", np.int64),  # with a timestamp below an earlier batch's
        ("codecs", np.int64),  # bit k: codec k
        ("timestamp_types", np.int64),  # bit k: TIMESTAMP_TYPES[k]
        ("marked", np.int64),  # batches of transactions, and control batches
        ("understated", np.int64),  # with a max timestamp below the base timestamp, a record's
        ("latest_epoch", np.int64),  # the largest leader epoch
        ("epoch_falls", np.int64),  # batches with a leader epoch below an earlier batch's
    ]
)
NO_RECORDS: Final = 2**63 - 1  # the smallest timestamp of no batches
TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")


def new_summary() -> npt.NDArray[np.void]:
    """Return an array of one SUMMARY of no batches."""
    return np.frombuffer(bytearray(_NO_BATCHES), SUMMARY_RECORD)


def _no_batches() -> bytes:
    summary = np.zeros(1, SUMMARY_RECORD)
    for name in ("first_batch_timestamp", "max_timestamp", "last_offset"):
        summary[name] = NO_TIMESTAMP
    summary["offset_of_max_timestamp"] = summary["latest_epoch"] = -1
    summary["smallest_timestamp"] = NO_RECORDS
    return summary.tobytes()


_NO_BATCHES: Final = _no_batches()


def summarize(batches: Any, summaries: Any, seen_magics: Any) -> None:
    """Add `batches`, columns of BATCH, to the one SUMMARY and its `seen_magics`."""
    if batches.size == 0:
        return
    summary = summaries[0]
    if summary["batch_count"] == 0:
        summary["first_batch_timestamp"] = batches[0]["max_timestamp"]
    max_timestamp = int(summary["max_timestamp"])
    smallest = int(summary["smallest_timestamp"])
    records = wrappers = out_of_order = codecs = timestamp_types = unknown = marked = 0
    understated = epoch_falls = 0
    latest_epoch = int(summary["latest_epoch"])
    for i in range(batches.size):
        batch = batches[i]
        timestamp = int(batch["max_timestamp"])
        if batch["records_count"] < 0:
            wrappers += 1
        else:
            records += int(batch["records_count"])
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            summary["offset_of_max_timestamp"] = batch["last_offset"]
        elif timestamp > NO_TIMESTAMP and timestamp < max_timestamp:
            out_of_order += 1
        if batch["records_count"] == 1 or batch["attributes"] & LOG_APPEND_TIME:
            smallest = min(smallest, timestamp)
        else:
            unknown += 1
        if batch["attributes"] & (TRANSACTIONAL | CONTROL):
            marked += 1
        is_of_records = batch["attributes"] & (LOG_APPEND_TIME | DELETE_HORIZON) == 0
        if is_of_records and timestamp < batch["base_timestamp"]:
            understated += 1
        if 0 <= batch["leader_epoch"] < latest_epoch:
            epoch_falls += 1
        latest_epoch = max(latest_epoch, int(batch["leader_epoch"]))
        codecs |= 1 << (int(batch["attributes"]) & CODEC_MASK)
        if batch["magic"] == 0:
            timestamp_types |= 1
        elif batch["attributes"] & LOG_APPEND_TIME:
            timestamp_types |= 4
        else:
            timestamp_types |= 2
        seen_magics[batch["magic"] + 128] = 1
    summary["batch_count"] += batches.size
    summary["record_count"] += records
    summary["wrappers"] += wrappers
    summary["last_offset"] = batches[batches.size - 1]["last_offset"]
    summary["max_timestamp"] = max_timestamp
    summary["smallest_timestamp"] = smallest
    summary["unknown_smallest"] += unknown
    summary["out_of_order_batches"] += out_of_order
    summary["codecs"] |= codecs
    summary["timestamp_types"] |= timestamp_types
    summary["marked"] += marked
    summary["understated"] += understated
    summary["latest_epoch"] = latest_epoch
    summary["epoch_falls"] += epoch_falls


def largest_timestamp(max_timestamp: Any, last_modified_ms: Any) -> tuple[Any, Any]:
    """Return the largest timestamps of segments, given columns, and where they are from.

    `LogSegment.largestTimestamp`: the max timestamp if it is 0 or more, else the file's
    modification time, which every copy resets (D3: marked, so that readers can tell).
    """
    is_of_log = np.asarray(max_timestamp) >= 0
    sources = np.where(is_of_log, TimestampSource.LOG, TimestampSource.LAST_MODIFIED)
    return np.where(is_of_log, max_timestamp, last_modified_ms), sources


def smallest_timestamp(summary: Any) -> int | None:
    """Return the smallest timestamp of a segment's records, None if it is not known.

    It is known without a look at the records if each batch has one record or LogAppendTime, where
    every record has the batch's max timestamp (`DefaultRecordBatch`). -1: a record has none.
    """
    if summary["unknown_smallest"] or not summary["batch_count"]:
        return None
    return int(summary["smallest_timestamp"])


@cache
def names_of(bits: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names whose bit is set, in order."""
    return tuple(name for k, name in enumerate(names) if bits >> k & 1)
