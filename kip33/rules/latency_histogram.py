"""A histogram of durations in ms whose percentiles have a bounded error; two of them add up.

Durations from -255 to 255 ms have a bucket each. From 256 ms on each power of two has 128 buckets,
so a bucket is at most 1/128 as wide as its durations. A percentile is the upper end of its bucket:
never below the exact value, and at most 0.8 % of it above. The smallest and the largest duration
are exact.
"""

import math
from collections import Counter
from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
PERCENTILE_ERROR: Final = 1 / 128
_EXACT: Final = 256  # durations below it have a bucket each
_PER_POWER: Final = 128
_SHIFT: Final = 7  # of 128
_POWERS: Final = np.left_shift(np.int64(1), np.arange(63))


class LatencyHistogram:
    """Counts durations; `count`, `smallest` and `largest` are exact, None without durations."""

    def __init__(self) -> None:
        """Start without durations."""
        self.count = self.negative = 0
        self.smallest: int | None = None
        self.largest: int | None = None
        self._counts: Counter[int] = Counter()  # by bucket, -1 - bucket for a negative duration

    def add(self, durations: Int64s) -> None:
        """Count durations, each above -2^63."""
        if not durations.size:
            return
        is_negative = durations < 0
        buckets = _bucket_of(np.abs(durations))
        found, counts = np.unique(np.where(is_negative, -1 - buckets, buckets), return_counts=True)
        self._counts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        self.count += durations.size
        self.negative += int(is_negative.sum())
        self._stretch(int(durations.min()), int(durations.max()))

    def merge(self, other: "LatencyHistogram") -> None:
        """Count what another histogram has counted."""
        if other.smallest is None or other.largest is None:
            return
        self._counts.update(other._counts)
        self.count += other.count
        self.negative += other.negative
        self._stretch(other.smallest, other.largest)

    def percentile(self, percent: float) -> int | None:
        """Return the smallest duration that `percent` of all do not exceed; None without any.

        It is never too small, and too large by at most PERCENTILE_ERROR of it.
        """
        if self.smallest is None or self.largest is None:
            return None
        left = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return min(max(_upper_end(bucket), self.smallest), self.largest)
        return self.largest

    def _stretch(self, smallest: int, largest: int) -> None:
        self.smallest = smallest if self.smallest is None else min(self.smallest, smallest)
        self.largest = largest if self.largest is None else max(self.largest, largest)


def _bucket_of(durations: Int64s) -> Int64s:
    """Return the bucket of each duration of 0 or more."""
    power = np.maximum(np.searchsorted(_POWERS, durations, side="right") - 1, _SHIFT)
    leading = durations >> (power - _SHIFT)  # 128 to 255 from 256 ms on
    wide = _EXACT + (power - _SHIFT - 1) * _PER_POWER + leading - _PER_POWER
    return np.where(durations < _EXACT, durations, wide).astype(np.int64)


def _ends(bucket: int) -> tuple[int, int]:
    """Return the smallest and the largest duration of a bucket of 0 or more."""
    if bucket < _EXACT:
        return bucket, bucket
    power, leading = divmod(bucket - _EXACT, _PER_POWER)
    shift = power + 1
    smallest = (leading + _PER_POWER) << shift
    return smallest, smallest + (1 << shift) - 1


def _upper_end(bucket: int) -> int:
    return -_ends(-1 - bucket)[0] if bucket < 0 else _ends(bucket)[1]
