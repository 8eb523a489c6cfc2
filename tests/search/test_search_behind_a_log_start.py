"""Which record is a partition's first where the log starts behind records that compaction removed.

`before_start` says that no record at or after the log start offset lies before the answer. A log
start offset may lie in the tail of a batch, or of a segment, whose last records were removed.
"""

import os
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kip33.rules.search import SearchResult
from kip33.search.answers import SearchOptions
from kip33.search.partition_search import search_partition
from tests.builders.generated_segments import Written, plain_batch, random_segment, wire_of
from tests.builders.searched_segments import Partition, write_segment
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.long_forms import short_and_long

FOUND, BEFORE_START, AFTER_END, NO_TIMESTAMPS, *_ = SearchResult
SEED = os.environ.get("KIP33_SEED", "1")


def compacted_batch(
    first: int, last: int, kept: dict[int, int], codec: str = "none", claimed: int = 5
) -> Written:
    """A batch of which compaction kept these records, offset to timestamp.

    Its header has the timestamp `claimed`, or a later one that is there.
    """
    records = [Record(time, offset_delta=offset - first) for offset, time in kept.items()]
    largest = max([claimed, *kept.values()])
    wire = v2_batch(
        first, records, codec=codec, last_offset_delta=last - first, max_timestamp=largest
    )
    return Written(*(wire, first, last, largest, tuple(kept.items())), records_count=len(records))


def test_an_earlier_segment_that_cannot_be_read_is_noted(tmp_path: Path) -> None:
    rows = [
        write_segment(tmp_path, 0, compacted_batch(0, 9, {0: 50, 4: 60}).wire),
        write_segment(tmp_path, 10, plain_batch(10, [80, 90]).wire),
    ]
    (tmp_path / f"{0:020d}.log").unlink()

    for answer in search_partition(rows, [75, 76], log_start_offset=5):
        assert answer[1:4] == (10, 80, FOUND)
        assert answer.note
        assert answer.note.startswith(f"{rows[0].log_uri}: cannot be read: ")
        assert answer.note.endswith("; it may have the partition's first record")


def random_entries(random: Random, base_offset: int) -> list[Written]:
    """Entries of every kind, or batches of which compaction kept some records or none."""
    if random.random() < 0.4:
        return random_segment(random, base_offset=base_offset, entries=random.randint(0, 6))
    entries, offset = [], base_offset
    for _ in range(random.randint(0, 5)):
        last = offset + random.randint(0, 5)
        latest = random.choice((20, 20, -1))  # -1: no timestamps
        times = {at: random.randint(min(0, latest), latest) for at in range(offset, last + 1)}
        kept = {at: time for at, time in times.items() if random.random() < 0.4}
        codec, claimed = random.choice(("none", "zstd")), min(5, latest)
        entries.append(compacted_batch(offset, last, kept, codec, claimed))
        offset = last + 1 + random.choice((0, 0, 2))
    return entries


@pytest.mark.parametrize("questions", short_and_long(150, 30_000, "KIP33_LOG_START_QUESTIONS"))
def test_answers_behind_any_log_start_are_those_of_a_loop_over_all_records(
    questions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, asked = Random(SEED), 0
    seen = dict.fromkeys(SearchResult, 0)
    del seen[SearchResult.NO_SUCH_PARTITION], seen[SearchResult.NOT_IN_TIER]
    while asked < questions:
        base, drawn = random.choice((0, 0, 40)), []
        for _ in range(random.randint(1, 4)):
            entries = random_entries(random, base)
            drawn.append((base, tuple(entries)))
            base = entries[-1].last_offset + 1 if entries else base + 1
        partition = Partition(tuple(drawn))
        rows = partition.write_to(
            tmp_path, offset_index=random.random() < 0.5, interval_bytes=random.choice((0, 4096))
        )
        for start in random.sample(range(drawn[0][0], base + 1), min(4, base - drawn[0][0])):
            targets = random.sample(partition.targets, min(8, len(partition.targets)))
            answers = search_partition(rows, targets, log_start_offset=start)
            for target, answer in zip(targets, answers, strict=True):
                expected = partition.expected(target, start)
                case = f"KIP33_SEED={SEED}: {drawn}, time {target} from offset {start}"
                assert answer[1:4] == expected, case
                seen[answer.result] += 1
                asked += 1
    with capsys.disabled():
        print(f"\nKIP33_SEED={SEED}: {seen}", end=" ")
    assert min(seen.values()) > questions / 50


BEFORE, AFTER = plain_batch(0, [50, 60]), plain_batch(2, [-1, -1])
LATER, EMPTIED = plain_batch(5, [-1]), compacted_batch(4, 5, {})
NOTHING_FOUND = [
    ("the records from the start on have no times", 2, AFTER, NO_TIMESTAMPS),
    ("compaction removed what was before the start", 5, LATER, NO_TIMESTAMPS),
    ("one record before them has a time", 1, AFTER, AFTER_END),
    ("no record counts: none is skipped, so the end will do", 4, AFTER, AFTER_END),
]


@each_case(("why", "start", "after", "result"), NOTHING_FOUND)
@each_case("in_one_segment", (True, False))
def test_batches_without_times_are_not_taken_for_earlier_ones(
    why: str, start: int, after: Written, result: Any, in_one_segment: bool, tmp_path: Path
) -> None:
    """Kafka answers "unknown" in each case, and its tools then take the end of the log."""
    if in_one_segment:
        rows = [write_segment(tmp_path, 0, wire_of([BEFORE, after]))]
    else:
        rows = [write_segment(tmp_path, 0, BEFORE.wire), write_segment(tmp_path, 2, after.wire)]
    for as_kafka in (False, True):
        how = SearchOptions(as_kafka=as_kafka)
        [answer] = search_partition(rows, [70], how, log_start_offset=start)
        assert answer[1:4] == (None, None, result), why


@pytest.mark.parametrize("cut", [(), (1,)])
def test_an_emptied_batch_has_a_time_in_a_segment_of_its_own_too(
    cut: tuple[int, ...], tmp_path: Path
) -> None:
    batches = [plain_batch(2, [-1, -1]), EMPTIED]
    parts = [batches[low:high] for low, high in pairwise((0, *cut, 2))]
    rows = [write_segment(tmp_path, one[0].last_offset - 1, wire_of(one)) for one in parts]
    [answer] = search_partition(rows, [70])
    assert answer[1:4] == (None, None, AFTER_END)


def test_the_segment_is_read_once_for_many_times(tmp_path: Path) -> None:
    entries = [plain_batch(2 * at, [50, 60], bytes(500)) for at in range(100)]
    tail = compacted_batch(200, 299, {200: 60})
    rows = [
        write_segment(tmp_path, 0, wire_of([*entries, tail])),
        write_segment(tmp_path, 300, plain_batch(300, [1000]).wire),
    ]

    answers = search_partition(rows, list(range(100, 900)), log_start_offset=250)

    assert {answer[1:4] for answer in answers} == {(300, 1000, BEFORE_START)}
    assert sum(answer.bytes_read for answer in answers) < 40_000
