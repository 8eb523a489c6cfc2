"""A task's process takes the same memory whatever the size of a segment or of a batch."""

from pathlib import Path

import pytest

from tests.benchmarks.worker_memory import MOST_APART_BYTES, measured_peaks
from tests.builders.large_segments import LARGEST_SEGMENT_BYTES, filling

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is in /proc")
def test_peak_memory_follows_neither_segment_nor_batch() -> None:
    peaks = measured_peaks(
        {
            "small": filling(64 * KIB, 16 * KIB),
            "largest segment": filling(LARGEST_SEGMENT_BYTES, MIB),
            "one batch": [256 * MIB],
        }
    )
    assert max(peaks.values()) - min(peaks.values()) < MOST_APART_BYTES, peaks
