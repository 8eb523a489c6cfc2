"""Search in segments that brokers wrote, by the indexes those brokers left, against a full reading.

Many times of a segment are asked in one search; a sample (of a fixed seed) also one by one, so that
every answer begins at an index entry.
"""

import random

import numpy as np
import pytest

from kip33 import scan_batches
from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.records import iterate_records
from kip33.rules.search import MAX_TIMESTAMP, Exactness
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.locations import Location
from tests.formats.real_segments import REAL_SEGMENTS, needs_real_segments
from tests.long_forms import short_and_long

ALONE = 15  # times of each segment that are asked one by one
TOGETHER = 2000


@needs_real_segments
@pytest.mark.parametrize("many", short_and_long(4, len(REAL_SEGMENTS), "KIP33_REAL_SEGMENTS"))
def test_every_time_of_a_segment(many: int, subtests: pytest.Subtests) -> None:
    for name in random.Random(3).sample(sorted(REAL_SEGMENTS), many):
        with subtests.test(name):
            log = REAL_SEGMENTS[name]
            data, pairs = log.read_bytes(), []
            try:
                for batches in scan_batches(str(log), check_crc=False):
                    for at, size in batches[["position", "size_bytes"]].tolist():
                        entry = data[at : at + size]
                        pairs += [one[:2] for one in iterate_records(entry, skip_key_value=True)]
            except (CorruptSegmentError, UnsupportedFormatError):
                continue  # some batches of some logs cannot be decompressed
            require_each_time(
                SearchedSegment(
                    log_uri=Location.of(log).uri,
                    base_offset=int(log.stem),
                    last_offset=pairs[-1][0],
                    size_bytes=len(data),
                    valid_bytes=len(data),
                    max_timestamp=max(time for _, time in pairs),
                    largest_timestamp=max(time for _, time in pairs),
                    status="ok",
                    index_uri=Location.of(log.with_suffix(".timeindex")).uri,
                ),
                np.array(pairs, np.int64),
                random.Random(name),
            )


def require_each_time(row: SearchedSegment, pairs: np.ndarray, rng: random.Random) -> None:
    """Ask a sample of times at once, a smaller one each alone, and the largest timestamp."""
    offsets, latest_so_far = pairs[:, 0], np.maximum.accumulate(pairs[:, 1])

    def first(target: int) -> tuple[int, int] | None:
        place = int(np.searchsorted(latest_so_far, target))
        found = place < len(offsets)
        return (int(offsets[place]), int(latest_so_far[place])) if found else None

    times = {time + step for time in np.unique(latest_so_far).tolist() for step in (-1, 0, 1)}
    targets = sorted(time for time in times if time >= 0)
    together = sorted(rng.sample(targets, min(TOGETHER, len(targets))))
    for answer in search_partition([row], together):
        found = None if answer.offset is None else (answer.offset, answer.timestamp)
        assert (found, answer.exactness) == (first(answer.target_ms), Exactness.RECORD)
    for target in [*rng.sample(targets, min(ALONE, len(targets))), MAX_TIMESTAMP]:
        [answer] = search_partition([row], [target])
        found = None if answer.offset is None else (answer.offset, answer.timestamp)
        expected = first(int(latest_so_far[-1]) if target == MAX_TIMESTAMP else target)
        assert (found, answer.note) == (expected, None), answer
