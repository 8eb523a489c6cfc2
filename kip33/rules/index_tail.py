"""Decide whether the end of a `.timeindex` can be trusted without its log, for `--read tail`.

A closed segment's index ends in its largest timestamp. A preallocated index ends in zeros or stale
entries. The index of another log contradicts this log's first batch or the next segment. A missing
last entry cannot be detected here, so the row has status `unverified`.
"""

from typing import Final

from kip33.formats.batch import (
    LOG_OVERHEAD,
    MAX_SEGMENT_BYTES,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
)
from kip33.formats.time_index import TimeIndex

ENTRIES_READ: Final = 2
LAST_HEADER_BYTES: Final = RECORD_BATCH_OVERHEAD


def distrust(
    tail: TimeIndex, first_batch: BatchHeader, *, log_bytes: int, next_base_offset: int | None
) -> str | None:
    """Return why the last entries of an index cannot be trusted, None if they can.

    `tail` has the last ENTRIES_READ entries or fewer, with absolute offsets; `first_batch` is the
    log's, `log_bytes` its size.
    """
    last = tail.last_entry
    if not len(tail):
        return "it is empty"
    if last.timestamp <= 0:
        return "it ends in zeros"
    if len(tail.without_tail()) < len(tail):
        return "its last entries are out of order"
    if last.timestamp < first_batch.max_timestamp:
        return "it ends before the first batch's timestamp"
    if first_batch.magic == 2 and last.offset < first_batch.base_offset:  # else a wrapper's last
        return f"offset {last.offset} is before the first batch"
    is_alone = len(tail) == 1 and first_batch.max_timestamp == NO_TIMESTAMP
    if is_alone and last.offset in (tail.base_offset, next_base_offset):
        return "its entry may have the time of a file (build --untimestamped)"
    if next_base_offset is not None and last.offset > next_base_offset:
        return f"offset {last.offset} is in the next segment"
    return _strange(first_batch, tail.base_offset, log_bytes)


def _strange(first_batch: BatchHeader, base_offset: int, log_bytes: int) -> str | None:
    """Return what in the first header shows that recovery would change the log, or None."""
    if not 0 <= first_batch.magic <= 2:
        return f"magic {first_batch.magic}"
    if first_batch.last_offset < base_offset:
        return f"offset {first_batch.last_offset} is below the base offset"
    if not LOG_OVERHEAD < first_batch.size_bytes <= log_bytes <= MAX_SEGMENT_BYTES:
        return f"a batch of {first_batch.size_bytes} bytes in a file of {log_bytes}"
    if first_batch.max_timestamp < NO_TIMESTAMP:
        return f"timestamp {first_batch.max_timestamp}"
    return None
