"""Segments that real brokers wrote, where this machine has them: `../shared/segments`."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "segments"
REAL_SEGMENTS = {
    str(path.relative_to(FOLDER).with_suffix("")): path for path in sorted(FOLDER.rglob("*.log"))
}
needs_real_segments = pytest.mark.skipif(
    not REAL_SEGMENTS, reason=f"no segments of real brokers in {FOLDER}"
)
