"""Which other settings explain where the segments of a partition ended.

A value of `segment.bytes` explains an end by size if the segment fits and the next batch does not;
a value of `segment.ms` explains an end by time if the segment's largest timestamp is in time and
the next batch's is not. One value that explains all ends of a partition was probably its setting.
"""

from typing import NamedTuple

import numpy as np

from kip33.rules.retention import NEVER_MS
from kip33.rules.retention_columns import NO_CODE, Bools, Int64Column, Int64s
from kip33.rules.roll_conditions import last_rows, next_batch_bytes, waited
from kip33.rules.roll_verdicts import RollColumns, RollVerdicts


class ExplainingSettings(NamedTuple):
    """For each partition the least and the largest value that explains all of its ends."""

    segment_bytes_from: Int64Column
    segment_bytes_to: Int64Column
    segment_ms_from: Int64Column
    segment_ms_to: Int64Column


def explaining_settings(rows: RollColumns, verdicts: RollVerdicts) -> ExplainingSettings:
    """Return the settings; unknown where no value explains all ends, or a figure is unknown.

    Ends that are doubtful are left out. A partition without any other end has no answer.
    """
    is_last = last_rows(rows)
    is_end = ~is_last & (verdicts.doubt == NO_CODE)
    least, most = next_batch_bytes(rows, is_last)
    size, start = rows.valid_bytes, rows.start_timestamp
    fits = Int64Column(size.values, size.known)
    too_large = Int64Column(
        size.values + most.values - 1, size.known & most.known & (least == most.values)
    )
    is_timed = start.known & (start.values >= 0)
    in_time = Int64Column(
        rows.max_timestamp.values - start.values, is_timed & rows.max_timestamp.known
    )
    passed = waited(rows, is_last)
    too_late = Int64Column(passed.values - 1, passed.known & is_timed)
    both_ends = is_end | (is_last & (verdicts.doubt == NO_CODE))
    return ExplainingSettings(
        *_range(rows.starts, fits, too_large, both_ends, is_end),
        *_range(rows.starts, in_time, too_late, both_ends, is_end),
    )


def _range(
    starts: Int64s, least: Int64Column, most: Int64Column, of_least: Bools, of_most: Bools
) -> tuple[Int64Column, Int64Column]:
    """Return for each partition the largest `least` and the smallest `most`, if all are known."""
    if not of_least.size:
        nothing = Int64Column(np.zeros(0, np.int64), np.zeros(0, bool))
        return nothing, nothing
    low = np.maximum.reduceat(np.where(of_least & least.known, least.values, 0), starts)
    high = np.minimum.reduceat(np.where(of_most & most.known, most.values, NEVER_MS), starts)
    unknown = (of_least & ~least.known) | (of_most & ~most.known)
    known = ~np.logical_or.reduceat(unknown, starts) & np.logical_or.reduceat(of_most, starts)
    known &= (low <= high) & (high > 0)
    return Int64Column(low, known), Int64Column(high, known)
