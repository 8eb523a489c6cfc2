"""Search in segments that brokers wrote, by the indexes those brokers left, against a full reading.

All times of a segment are asked in one search; of each a sample (of a fixed seed) also one by one,
so that every answer begins at an index entry.
"""

import random
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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

pytestmark = needs_real_segments

ALONE = 15  # times of each segment that are asked one by one
TOGETHER = 2000


def some_segments(many: int, *, seed: int) -> list[str]:
    return random.Random(seed).sample(sorted(REAL_SEGMENTS), many)


def short_or_all(short: int) -> list[Any]:
    return short_and_long(short, len(REAL_SEGMENTS), "KIP33_REAL_SEGMENTS")


class Content(NamedTuple):
    """Every record of a segment; `damaged`: base offsets of the batches that cannot be decoded."""

    offsets: npt.NDArray[np.int64]
    latest_so_far: npt.NDArray[np.int64]
    damaged: dict[int, int]
    row: SearchedSegment

    def first(self, target: int) -> tuple[int, int] | None:
        """Return the first record at or after a time: there the largest so far passes it."""
        place = int(np.searchsorted(self.latest_so_far, target))
        if place == len(self.offsets):
            return None
        return int(self.offsets[place]), int(self.latest_so_far[place])

    @property
    def targets(self) -> list[int]:
        near = {t + step for t in np.unique(self.latest_so_far).tolist() for step in (-1, 0, 1)}
        return sorted(t for t in near if t >= 0)


@cache
def content_of(name: str) -> Content:
    log = REAL_SEGMENTS[name]
    data = log.read_bytes()
    pairs, damaged, last_offset, largest = [], {}, 0, -1
    for batches in scan_batches(str(log), check_crc=False):
        for batch in batches:
            at, last_offset = int(batch["position"]), int(batch["last_offset"])
            largest = max(largest, int(batch["max_timestamp"]))
            entry = data[at : at + int(batch["size_bytes"])]
            try:
                pairs += [r[:2] for r in iterate_records(entry, skip_key_value=True)]
            except (CorruptSegmentError, UnsupportedFormatError):
                damaged[int(batch["base_offset"])] = int(batch["max_timestamp"])
    records = np.array(pairs, np.int64).reshape(-1, 2)
    row = SearchedSegment(
        log_uri=Location.of(log).uri,
        base_offset=int(log.stem),
        last_offset=last_offset,
        size_bytes=len(data),
        valid_bytes=len(data),
        max_timestamp=largest,
        largest_timestamp=largest,
        status="ok",
        index_uri=Location.of(log.with_suffix(".timeindex")).uri,
    )
    return Content(records[:, 0], np.maximum.accumulate(records[:, 1]), damaged, row)


@pytest.mark.parametrize("many", short_or_all(4))
def test_every_time_of_a_segment(many: int, subtests: pytest.Subtests) -> None:
    for name in some_segments(many, seed=3):
        with subtests.test(name):
            content = content_of(name)
            if content.damaged:
                require_no_way_around_damage(content)
            else:
                require_each_time(content, random.Random(name))


def require_no_way_around_damage(content: Content) -> None:
    """The first time that only the damaged batch can have is answered by that batch."""
    offset, time = min(content.damaged.items())
    before = content.latest_so_far[content.offsets < offset]
    assert not len(before) or before[-1] < time, "no search would come to the damage"
    [answer] = search_partition([content.row], [time])
    assert (answer.offset, answer.timestamp, answer.exactness) == (offset, None, Exactness.BATCH)
    assert "cannot be read" in (answer.note or "")


def require_each_time(content: Content, rng: random.Random) -> None:
    """A sample of times at once, a smaller one each alone, and the largest timestamp."""
    targets = content.targets
    together = sorted(rng.sample(targets, min(TOGETHER, len(targets))))
    for answer in search_partition([content.row], together):
        found = None if answer.offset is None else (answer.offset, answer.timestamp)
        assert (found, answer.exactness) == (content.first(answer.target_ms), Exactness.RECORD)
    for target in rng.sample(targets, min(ALONE, len(targets))):
        [answer] = search_partition([content.row], [target])
        found = None if answer.offset is None else (answer.offset, answer.timestamp)
        assert (found, answer.note) == (content.first(target), None), answer
    [latest] = search_partition([content.row], [MAX_TIMESTAMP])
    assert (latest.offset, latest.timestamp) == content.first(int(content.latest_so_far.max()))
