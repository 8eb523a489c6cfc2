"""What the audit of rolling knows of each segment, and what it says: columns and their codes."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.rules.retention import KEPT_STATUSES
from kip33.rules.retention_columns import NO_CODE, Bools, Codes, Int64Column, Int64s
from kip33.rules.rolling import RollReason, RollSettings

Ternary = npt.NDArray[np.int8]
"""1: true, 0: false, -1: not known."""


class RollDoubt(StrEnum):
    """Why a row does not tell what ended the segment; the first that applies."""

    TRUNCATED = "truncated"
    INVALID = "invalid"
    UNREADABLE = "unreadable"
    ARCHIVED = "archived"
    SAME_BASE_OFFSET = "same_base_offset"  # as the next segment
    OVERLAP = "overlap"  # the next segment begins below the last offset
    HOLE = "hole"  # offsets are missing before the next segment
    COMPACTED = "compacted"  # cleanup.policy: the log cleaner may have merged segments
    OFFSETS_MISSING = "offsets_missing"  # inside it: the log cleaner removed records


class NotSeen(StrEnum):
    """What would be needed to tell why a segment ended; the first that applies."""

    NEXT_BATCH = "next_batch"  # the next segment has none, or was not read
    START_TIMESTAMP = "start_timestamp"  # from which its time counts
    CREATION_TIME = "creation_time"  # it begins without a timestamp
    NEXT_BATCH_BYTES = "next_batch_bytes"
    INDEX_ENTRIES = "index_entries"
    NEXT_BATCH_LAST_OFFSET = "next_batch_last_offset"


class EarlyRoll(StrEnum):
    """Which timestamp made a segment end early; the first that applies."""

    FUTURE = "future_timestamp"  # the next batch's is later than the time of its own file
    OLD_START = "old_start"  # its own start is behind the segment before
    AHEAD = "ahead_of_later"  # the next batch's is ahead of records that follow


ROLL_REASONS: Final = tuple(RollReason)
ROLL_DOUBTS: Final = tuple(RollDoubt)
UNSEEN: Final = tuple(NotSeen)
EARLY_ROLLS: Final = tuple(EarlyRoll)


class RollColumns(NamedTuple):
    """What the rule needs of the segments; those of a partition are adjacent, by base offset."""

    starts: Int64s  # the index of each partition's first row
    base_offset: Int64Column  # unknown for a directory that cannot be listed
    last_offset: Int64Column
    valid_bytes: Int64Column
    batch_count: Int64Column
    record_count: Int64Column
    start_timestamp: Int64Column  # by the reading; below 0: its first batch has none
    first_timestamp: Int64Column  # the max timestamp of its first batch
    max_timestamp: Int64Column
    smallest_timestamp: Int64Column
    last_modified_ms: Int64Column
    doubt: Codes  # `status_doubts` of the status
    first_batch_bytes: Int64Column
    first_batch_last_offset: Int64Column
    offset_entries: Int64Column  # of its indexes before it was closed
    time_entries: Int64Column
    is_largest: bool = False  # the reading is `kip33-largest`


class RollLimits(NamedTuple):
    """The settings for each row."""

    segment_ms: Int64s
    most_jitter_ms: Int64s
    segment_bytes: Int64s
    interval_bytes: Int64s
    offset_slots: Int64s
    time_slots: Int64s
    is_compacted: Bools


class RollVerdicts(NamedTuple):
    """What the rule says of each segment."""

    ended_by: Codes  # indexes in ROLL_REASONS
    by_size: Ternary
    by_time: Ternary
    by_index: Ternary
    by_offset_range: Ternary
    doubt: Codes  # indexes in ROLL_DOUBTS, -1: none
    not_seen: Codes  # indexes in UNSEEN, -1: nothing
    waited_ms: Int64Column  # up to the next segment's first batch
    is_by_file_time: Bools  # `waited_ms` is between the times of two files
    rolls_at_ms: Int64Column  # the first timestamp that is beyond the limit, without jitter
    overdue_ms: Int64Column  # how far its largest timestamp is beyond the limit
    oversize_bytes: Int64Column  # how much larger it is than segment.bytes
    early: Codes  # indexes in EARLY_ROLLS, -1: not early
    early_ms: Int64Column  # by how much timestamps moved the roll


def status_doubts(statuses: Sequence[str]) -> Codes:
    """Return the doubt that each status is, as indexes in ROLL_DOUBTS; -1: no doubt."""
    return np.array(
        [
            ROLL_DOUBTS.index(RollDoubt(one)) if one in KEPT_STATUSES else NO_CODE
            for one in statuses
        ],
        np.int8,
    )


def limit_columns(settings: Sequence[RollSettings], of_rows: Int64s) -> RollLimits:
    """Return the limits of each row; `of_rows` has each row's index in `settings`."""

    def column(values: list[int]) -> Int64s:
        return np.array(values, np.int64)[of_rows]

    return RollLimits(
        column([one.segment_ms for one in settings]),
        column([one.most_jitter_ms for one in settings]),
        column([one.segment_bytes for one in settings]),
        column([one.index_interval_bytes for one in settings]),
        column([one.offset_slots for one in settings]),
        column([one.time_slots for one in settings]),
        np.array([one.is_compacted for one in settings], bool)[of_rows],
    )


def int8_of(codes: Sequence[StrEnum]) -> dict[str, np.int8]:
    """Return the index of each member."""
    return {member: np.int8(number) for number, member in enumerate(codes)}
