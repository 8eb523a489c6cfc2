"""Input made to cost more than its size allows: its work is counted, its memory measured."""

from pathlib import Path

import pytest

from tests.hostile_input import sparse_time_index
from tests.measured_command import measured

MIB = 1 << 20
MOST_BYTES = 400 * MIB
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is in /proc"
)


@needs_proc
def test_an_index_file_of_zeros_takes_no_memory(tmp_path: Path) -> None:
    log = sparse_time_index(tmp_path, 300 * MIB)
    found = measured("verify", str(log.with_suffix(".timeindex")), "--format", "jsonl")
    assert '"verdict": "padded"' in found.output, found
    assert found.peak_bytes < MOST_BYTES, found.peak_bytes
    found = measured("dump", str(log.with_suffix(".timeindex")))
    assert f"{300 * MIB // 12 - 4} zeros or stale entries" in found.output, found
    assert found.peak_bytes < MOST_BYTES, found.peak_bytes
