"""Input made to cost more than its size allows: its work is counted, its memory measured."""

import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from kip33 import read_records
from kip33.archive import log_window
from kip33.archive.log_window import Meter
from kip33.cli.main import kip33
from kip33.errors import BatchTooLargeError, CorruptSegmentError
from kip33.formats import records
from kip33.formats.codecs import decompress
from kip33.formats.records import Record, iterate_records
from kip33.rules.search import MAX_TIMESTAMP, Exactness, SearchResult
from kip33.search.answers import SearchOptions
from kip33.search.offset_lookup import record_before
from kip33.search.partition_search import search_partition
from tests.builders.hostile_input import (
    bomb,
    legacy_bomb,
    log_path,
    lying_headers,
    many_records,
    markers_only,
    sparse_time_index,
    steps_of_one_batch,
)
from tests.builders.searched_segments import write_segment
from tests.builders.segment_builder import Record as Sent
from tests.builders.segment_builder import v2_batch
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long
from tests.measured_command import measured

MIB = 1 << 20
MOST_BYTES = 400 * MIB
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is in /proc"
)


@pytest.mark.long
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

    monkeypatch.setattr(log_window, "iterate_records", counting)
    return counted


@each_case("rising", [True, False])
def test_headers_that_claim_too_much_are_decoded_once_each(
    rising: bool, tmp_path: Path, count: Count
) -> None:
    batches, count.batches = 300, 0
    log = lying_headers(batches, rising=rising)
    row = write_segment(tmp_path, 0, log)
    [answer] = search_partition([row], [MAX_TIMESTAMP])
    assert answer[1:4] == (6, 6, SearchResult.FOUND)
    assert count.batches <= 3 * batches, count.batches
    assert answer.bytes_read <= 8 * len(log), answer.bytes_read


@pytest.mark.parametrize("logs", short_and_long(8, 2_000, "KIP33_LYING_HEADERS"))
def test_the_largest_timestamp_is_found_whatever_headers_claim(tmp_path: Path, logs: int) -> None:
    for seed in seeds(logs):
        chance, offset, rows, written = Random(seed), 0, [], []
        for number in range(chance.randint(1, 3)):
            base, log = offset, b""
            for _ in range(chance.randrange(5)):
                times = [chance.randrange(-1, 9) for _ in range(chance.randint(0, 3))]
                claim = max([*times, chance.choice((-1, chance.randrange(12)))])
                gap = max(len(times) - 1, 0)
                sent = [Sent(time) for time in times]
                log += v2_batch(offset, sent, max_timestamp=claim, last_offset_delta=gap)
                written += [(offset + i, time) for i, time in enumerate(times)]
                offset += gap + 1
            rows.append(write_segment(tmp_path, max(base, number), log))
            offset = max(offset, number + 1)
        start = chance.choice((0, 0, chance.randrange(offset + 1)))
        counted = [(o, t) for o, t in written if o >= start and t >= 0]
        first = max(counted, key=lambda pair: (pair[1], -pair[0]), default=(None, None))
        [answer] = search_partition(rows, [MAX_TIMESTAMP], log_start_offset=start)
        assert answer[1:3] == first, f"seed {seed}"


def test_many_times_in_one_batch_read_it_once_and_keep_one_record(
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


def test_the_record_before_an_offset_is_found_without_keeping_headers(tmp_path: Path) -> None:
    batches = 5000
    row = write_segment(tmp_path, 0, markers_only(batches), offset_index=False)
    found = record_before([row], batches, Meter()).record
    assert found and found.offset == 0
    assert peak_of(lambda: record_before([row], batches, Meter())) < 1 << 20


BOMBS = {
    "zstd": lambda size: bomb(size, "zstd"),
    "gzip": lambda size: bomb(size, "gzip"),
    "lz4": lambda size: bomb(size, "lz4"),
    "snappy": lambda size: bomb(size, "snappy"),
    "one block of snappy": lambda size: bomb(size, "snappy-raw"),
    "magic 1, gzip": lambda size: legacy_bomb(size, "gzip"),
}


@needs_proc
@pytest.mark.long
@pytest.mark.parametrize("kind", ["zstd", "magic 1, gzip"])
def test_a_batch_takes_its_decompressed_size_once(tmp_path: Path, kind: str) -> None:
    size = 320 * MIB
    log = log_path(tmp_path)
    log.write_bytes(BOMBS[kind](size))
    call = f"import kip33; assert len(kip33.find_offset({str(log)!r}, 0).value) == {size}"
    for command in (["dump", "--records", str(log)], ["-c", call]):
        found = measured(*command)
        assert found.exit_code == 0, found
        assert found.peak_bytes < size + MOST_BYTES, found.peak_bytes


@each_case("kind", [*BOMBS])
def test_a_batch_that_decompresses_to_too_much_is_named(kind: str, tmp_path: Path) -> None:
    first = v2_batch(0, [Sent(5)]) if "magic" not in kind else b""
    log = log_path(tmp_path)
    log.write_bytes(first + BOMBS[kind](1 << 20))
    limit = 1 << 19
    says = rf"batch at position {len(first)}: .*more than {limit} bytes; give --max-batch-"
    with pytest.raises(BatchTooLargeError, match=rf"{log.name}: {says}"):
        list(read_records(log, max_batch_bytes=limit))
    assert list(read_records(log, max_batch_bytes=1 << 21))[-1].timestamp == 1000
    done = CliRunner().invoke(
        kip33, ["dump", "--records", str(log), "--max-batch-bytes", f"{limit}"]
    )
    assert done.exit_code == 0 and re.search(says, done.output), done.output
    row = write_segment(tmp_path, 0, log.read_bytes())
    [answer] = search_partition([row], [1000], SearchOptions(max_batch_bytes=limit))
    assert answer.exactness == Exactness.BATCH and re.search(says, answer.note or ""), answer


def test_a_snappy_block_is_held_twice_and_counts_so() -> None:
    claim = bytes([0x80, 0x80, 0x80, 0x80, 0x04]) + bytes(60 * MIB)  # 1 GiB
    with pytest.raises(BatchTooLargeError, match="a snappy block of 1073741824 bytes"):
        next(decompress([claim], "snappy", magic=2, most_bytes=1 << 30))


WAYS: list[tuple[str, int, dict[str, bool]]] = [
    ("LARGE_RECORD_BYTES", 1 << 20, {}),  # field by field
    ("PLAIN_RECORDS", 1 << 60, {"skip_key_value": True}),  # offsets and timestamps, compiled
]


def test_each_way_to_read_records_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same records, and errors at the same places."""
    for seed in range(60):
        chance = Random(seed)
        sent = [
            Sent(chance.choice((i, 1 << 40)), None, chance.randbytes(chance.choice((0, 9, 300))))
            for i in range(chance.choice((1, 5, 40)))
        ]
        sent += [Sent(7, b"key", b"", (("h", None), ("i", b"1")))]
        append_time = chance.choice((None, 77))
        batch = bytearray(v2_batch(chance.choice((0, 2**62)), sent, log_append_time=append_time))
        if seed % 3:
            batch[chance.randrange(61, len(batch))] ^= 1 << chance.randrange(8)
        for setting, usual, how in WAYS:
            outcomes = []
            for limit in (usual, 0):
                monkeypatch.setattr(records, setting, limit)
                read: list[object] = []
                try:
                    read.extend(records.iterate_records(bytes(batch), **how))
                except CorruptSegmentError:
                    read.append("damage")
                outcomes.append(read)
            assert outcomes[0] == outcomes[1], f"seed {seed}, {setting}"


def test_a_search_in_many_records_uses_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PLAIN_RECORDS", 100)
    plainly: list[int] = []
    one = records._read_record
    monkeypatch.setattr(records, "_read_record", lambda *how: plainly.append(1) or one(*how))
    row = write_segment(tmp_path, 0, many_records(100_000, max_timestamp=2000))
    [answer] = search_partition([row], [1500])
    assert answer.offset is None and len(plainly) < 200, len(plainly)
