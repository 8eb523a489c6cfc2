"""Input made to cost more than its size allows: its work is counted, its memory measured."""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kip33.formats.records import Record, iterate_records
from kip33.rules.search import FOUND, MAX_TIMESTAMP
from kip33.storage import segment_search
from kip33.storage.log_window import Meter
from kip33.storage.partition_search import search_partition
from kip33.storage.record_at import record_before
from tests.hostile_input import (
    lying_headers,
    markers_only,
    sparse_time_index,
    steps_of_one_batch,
)
from tests.long_forms import short_and_long
from tests.measured_command import measured
from tests.searched_segments import write_segment
from tests.segment_builder import Record as Sent
from tests.segment_builder import v2_batch

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
    assert f"{300 * MIB // 12 - 4} entries of zeros" in found.output, found
    assert found.peak_bytes < MOST_BYTES, found.peak_bytes


class Count:
    """How many batches were decoded, and how many records were read of them."""

    batches = records = 0


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    counted = Count()

    def counting(*batch: Any, **how: Any) -> Iterator[Record]:
        counted.batches += 1
        for record in iterate_records(*batch, **how):
            counted.records += 1
            yield record

    monkeypatch.setattr(segment_search, "iterate_records", counting)
    return counted


@pytest.mark.parametrize("rising", [True, False], ids=["rising", "falling"])
def test_headers_that_claim_too_much_are_decoded_once_each(
    tmp_path: Path, rising: bool, count: Count
) -> None:
    batches = 300
    log = lying_headers(batches, rising=rising)
    row = write_segment(tmp_path, 0, log)
    [answer] = search_partition([row], [MAX_TIMESTAMP])
    assert answer[1:4] == (6, 6, FOUND)
    assert count.batches <= 3 * batches, count.batches
    assert answer.bytes_read <= 8 * len(log), answer.bytes_read


@pytest.mark.parametrize("seeds", short_and_long(150, 10_000, "KIP33_LYING_HEADERS"))
def test_the_largest_timestamp_is_found_whatever_headers_claim(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        chance, offset, rows, records = Random(seed), 0, [], []
        for number in range(chance.randint(1, 3)):
            base, log = offset, b""
            for _ in range(chance.randrange(5)):
                times = [chance.randrange(-1, 9) for _ in range(chance.randint(0, 3))]
                claim = max([*times, chance.choice((-1, chance.randrange(12)))])
                gap = max(len(times) - 1, 0)
                sent = [Sent(time) for time in times]
                log += v2_batch(offset, sent, max_timestamp=claim, last_offset_delta=gap)
                records += [(offset + i, time) for i, time in enumerate(times)]
                offset += gap + 1
            rows.append(write_segment(tmp_path, max(base, number), log))
            offset = max(offset, number + 1)
        start = chance.choice((0, 0, chance.randrange(offset + 1)))
        counted = [(o, t) for o, t in records if o >= start and t >= 0]
        first = max(counted, key=lambda pair: (pair[1], -pair[0]), default=(None, None))
        [answer] = search_partition(rows, [MAX_TIMESTAMP], log_start_offset=start)
        assert answer[1:3] == first, f"seed {seed}"


def test_many_times_in_one_batch_read_it_once_and_hold_one_record(
    tmp_path: Path, count: Count
) -> None:
    row = write_segment(tmp_path, 0, steps_of_one_batch(2000))
    targets = list(range(1000, 3000, 2))
    answers = search_partition([row], targets)
    assert [answer.offset for answer in answers] == [target - 1000 for target in targets]
    assert (count.batches, count.records) == (1, 1999)


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that Python's objects took while `work` ran."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_record_before_an_offset_is_found_without_holding_headers(tmp_path: Path) -> None:
    batches = 5000
    row = write_segment(tmp_path, 0, markers_only(batches), offset_index=False)
    found = record_before([row], batches, Meter()).record
    assert found and found.offset == 0
    assert peak_of(lambda: record_before([row], batches, Meter())) < 1 << 20
