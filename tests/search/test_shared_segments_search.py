"""Search in segments that brokers wrote, by the indexes those brokers left, against a full reading.

All times of a segment are asked in one search; of each a sample (of a fixed seed) also one by one,
so that every answer begins at an index entry.
"""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from kip33 import build_time_index, find_offset, read_records, scan_batches
from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.records import iterate_records
from kip33.rules.index_builder import IndexSettings
from kip33.rules.search import MAX_TIMESTAMP, Exactness
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.locations import Location
from tests.builders.searched_segments import of_file
from tests.formats.real_segments import REAL_SEGMENTS, needs_real_segments

pytestmark = needs_real_segments

ALONE = 15  # times of each segment that are asked one by one
TOGETHER = 2000


def some_segments(*, seed: int) -> list[str]:
    return random.Random(seed).sample(sorted(REAL_SEGMENTS), min(12, len(REAL_SEGMENTS)))


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


@pytest.mark.integration
@pytest.mark.parametrize("name", REAL_SEGMENTS)
def test_every_time_of_a_segment(name: str) -> None:
    content = content_of(name)
    if content.damaged:
        offset, time = min(content.damaged.items())
        before = content.latest_so_far[content.offsets < offset]
        assert not len(before) or before[-1] < time, "no search would come to the damage"
        [answer] = search_partition([content.row], [time])
        assert (answer.offset, answer.timestamp, answer.exactness) == (
            offset,
            None,
            Exactness.BATCH,
        )
        assert "cannot be read" in (answer.note or "")
        return
    rng = random.Random(name)
    targets = content.targets
    together = sorted(rng.sample(targets, min(TOGETHER, len(targets))))
    for answer in search_partition([content.row], together):
        found = None if answer.offset is None else (answer.offset, answer.timestamp)
        assert (found, answer.exactness) == (content.first(answer.target_ms), Exactness.RECORD), (
            answer
        )
    for target in rng.sample(targets, min(ALONE, len(targets))):
        [answer] = search_partition([content.row], [target])
        found = None if answer.offset is None else (answer.offset, answer.timestamp)
        assert found == content.first(target), answer
        assert answer.note is None  # what a broker left is borne out
    [latest] = search_partition([content.row], [MAX_TIMESTAMP])
    assert (latest.offset, latest.timestamp) == content.first(int(content.latest_so_far.max()))


def test_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    contents = [content_of(name) for name in REAL_SEGMENTS]
    counts = Counter("damaged" if content.damaged else "decoded" for content in contents)
    targets = [len(content.targets) for content in contents if not content.damaged]
    asked = sum(min(TOGETHER, count) for count in targets)
    with capsys.disabled():
        print(f"\n{counts}: {asked} of {sum(targets)} times asked", end=" ")
    assert counts == {"decoded": 72, "damaged": 11}


@pytest.mark.parametrize("name", some_segments(seed=1))
def test_records_by_path(name: str) -> None:
    content, log = content_of(name), REAL_SEGMENTS[name]
    if content.damaged:
        with pytest.raises((CorruptSegmentError, UnsupportedFormatError)):
            list(read_records(log))
        return
    start = int(content.offsets[len(content.offsets) // 2])
    found = [r.offset for r in read_records(log, start, start + 50, include_control=True)]
    assert found == [o for o in content.offsets.tolist() if start <= o < start + 50]
    target = int(content.latest_so_far[len(content.offsets) // 2])
    record = find_offset(log, target)
    assert record is not None and record[:2] == content.first(target)


@pytest.mark.parametrize("name", some_segments(seed=2))
def test_our_index_leads_to_the_same_answers(name: str, tmp_path: Path) -> None:
    content, log = content_of(name), REAL_SEGMENTS[name]
    if content.damaged:
        return
    for dialect in ("recover", "live", "kip33"):
        index = build_time_index(str(log), dialect=dialect, check_crc=False)
        assert index.time_index_data is not None and index.offset_index_data is not None
        place = tmp_path / f"{log.stem}.timeindex"
        place.write_bytes(index.time_index_data)
        place.with_suffix(".index").write_bytes(index.offset_index_data)
        row = content.row._replace(
            index_uri=Location.of(place).uri,
            **of_file("time_index", place, IndexSettings(dialect)),
            **of_file("offset_index", place.with_suffix(".index"), IndexSettings(dialect)),
        )
        for target in random.Random(name).sample(content.targets, min(ALONE, len(content.targets))):
            [answer] = search_partition([row], [target])
            found = None if answer.offset is None else (answer.offset, answer.timestamp)
            assert (found, answer.note) == (content.first(target), None), answer
