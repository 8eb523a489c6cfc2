"""Which records are wanted, and what follows from that for segments and batches."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import CODEC_MASK, CONTROL, BatchColumns
from kip33.formats.times import Time, milliseconds_of
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.read_segment import ReadSegment
from kip33.rules.policies import duration_ms
from kip33.rules.search import may_hold

_LOWEST, _HIGHEST = RecordLimits().first_offset, RecordLimits().last_offset


class RecordRequest(NamedTuple):
    """The records of a partition that are wanted."""

    limits: RecordLimits = RecordLimits()
    include_control: bool = False
    disorder_ms: int | None = None  # no record is older than an earlier one by more than this
    only_committed: bool = False

    def below(self, offset: int | None) -> "RecordRequest":
        """Return the request without offsets from `offset` on."""
        if offset is None:
            return self
        last = min(self.limits.last_offset, offset - 1)
        return self._replace(limits=self.limits._replace(last_offset=last))

    def starting_at(self, offset: int) -> "RecordRequest":
        """Return the request without smaller offsets."""
        first = max(self.limits.first_offset, offset)
        return self._replace(limits=self.limits._replace(first_offset=first))

    def needs(self, segment: ReadSegment) -> bool:
        """Return whether a segment may have such records, by what is known about it."""
        limits = self.limits
        if segment.base_offset is not None and segment.base_offset > limits.last_offset:
            return False
        if _ends_before(segment, limits.first_offset):
            return False
        return not self.has_times or self._needs_times_of(segment)

    @property
    def has_times(self) -> bool:
        """Return whether records are selected by their timestamps."""
        return (self.limits.first_timestamp, self.limits.last_timestamp) != (_LOWEST, _HIGHEST)

    def _needs_times_of(self, segment: ReadSegment) -> bool:
        if not may_hold(segment.max_timestamp, self.limits.first_timestamp):
            return False
        smallest = segment.smallest_timestamp
        return smallest is None or smallest <= self.limits.last_timestamp

    def is_over(self, latest_timestamp: int) -> bool:
        """Return whether no later record is wanted, after one with this timestamp."""
        if self.disorder_ms is None:
            return False
        return latest_timestamp - self.disorder_ms > self.limits.last_timestamp

    def wanted(self, batches: BatchColumns) -> npt.NDArray[np.bool_]:
        """Return which batches may have such records, by their headers."""
        limits = self.limits
        is_v2 = batches["magic"] >= 2
        is_out = batches["last_offset"] < limits.first_offset
        is_out |= batches["base_offset"] > limits.last_offset
        is_out |= batches["max_timestamp"] < limits.first_timestamp
        if not self.include_control:
            is_out |= (batches["attributes"] & CONTROL) != 0
        wanted: npt.NDArray[np.bool_] = ~(is_out & is_v2)
        return wanted

    def ends_in(self, batches: BatchColumns) -> bool:
        """Return whether no batch after these has an offset that is wanted."""
        if self.limits.last_offset == _HIGHEST:  # a damaged batch may claim it
            return False
        is_wrapper = (batches["magic"] < 2) & (batches["attributes"] & CODEC_MASK != 0)
        if is_wrapper.any():  # their offsets may be inside
            return False
        return bool((batches["last_offset"] >= self.limits.last_offset).any())


def _ends_before(segment: ReadSegment, offset: int) -> bool:
    """Return whether all offsets of a segment are known to be smaller than `offset`."""
    if segment.last_offset is not None:
        return segment.last_offset < offset
    base, following = segment.base_offset, segment.next_base_offset
    return base is not None and following is not None and base < following <= offset


def limits_of(
    start_time: Time | None, end_time: Time | None, start_offset: int | None, end_offset: int | None
) -> RecordLimits:
    """Return the limits of a caller, whose ends are exclusive.

    With a time, records without a timestamp are outside. ValueError for a negative time or offset.
    """
    times = [None if time is None else milliseconds_of(time) for time in (start_time, end_time)]
    for name, number in zip(
        ("start_time", "end_time", "start_offset", "end_offset"),
        (*times, start_offset, end_offset),
        strict=True,
    ):
        if number is not None and number < 0:
            raise ValueError(f"{name}: {number} found, expected 0 or more")
    has_times = times != [None, None]
    return RecordLimits(
        _LOWEST if start_offset is None else start_offset,
        _HIGHEST if end_offset is None else end_offset - 1,
        (times[0] or 0) if has_times else _LOWEST,
        _HIGHEST if times[1] is None else times[1] - 1,
    )


def disorder_of(disorder: str | int | None) -> int | None:
    """Return a caller's promise in ms; ValueError if it is no duration."""
    return None if disorder is None else duration_ms(disorder)
