"""Search by time in one partition against a loop over its records; what it reads, what it notes."""

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.archive import log_slice
from kip33.drafts.designs import DRAFTS
from kip33.rules.search import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Exactness,
    SearchResult,
    Trap,
)
from kip33.search import index_lookup as segment_index_files
from kip33.search.answers import Answer, SearchOptions
from kip33.search.index_lookup import WALKED_BYTES
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment, holes_of
from kip33.stores.locations import Location
from tests.builders.generated_segments import Written, plain_batch, wire_of
from tests.builders.searched_segments import Partition, partitions, write_segment
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.long_forms import examples
from tests.search.test_draft_search import MINUTE, partitions_of_minutes

FOUND, BEFORE_START, AFTER_END, NO_TIMESTAMPS, NO_SUCH_PARTITION, _ = SearchResult
RECORD, INDEX, EXACT_TO_BATCH, UNSURE = Exactness

DIALECTS = ("recover", "live", "kip33")
INDEX_BYTES = 64 * 1024


def answers(rows: list[SearchedSegment], targets: list[int], **how: Any) -> list[tuple[Any, ...]]:
    return [answer[1:4] for answer in search_partition(rows, targets, **how)]


@settings(max_examples=examples(60))
@given(
    partitions() | partitions_of_minutes(),
    st.sampled_from((*DIALECTS, *DRAFTS)),
    st.sampled_from((0, 60, 200, 4096)),
    st.sampled_from(("both", "time", "offset", "neither")),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_the_first_record_whatever_the_index(
    partition: Partition, dialect: str, interval: int, indexes: str, ours: bool, rng: random.Random
) -> None:
    targets = [*partition.targets, *(time // MINUTE * MINUTE for time in partition.targets)]
    rng.shuffle(targets)
    start_offset = rng.choice([0, 0, *(offset for offset, _ in partition.records)])
    with tempfile.TemporaryDirectory() as folder:
        rows = partition.write_to(
            Path(folder),
            dialect=dialect,
            interval_bytes=interval,
            time_index=indexes in ("both", "time"),
            offset_index=indexes in ("both", "offset"),
            ours=ours,
        )
        together = search_partition(rows, targets, log_start_offset=start_offset)
        alone = [search_partition(rows, [t], log_start_offset=start_offset)[0] for t in targets[:5]]
        index_only = SearchOptions(index_only=True)
        promised = search_partition(rows, targets, index_only, log_start_offset=start_offset)
    assert [a[1:4] for a in together] == [partition.expected(t, start_offset) for t in targets]
    unsure = {UNSURE} if any(holes_of(rows)) else set()
    assert {a.exactness for a in together} <= {RECORD} | unsure
    assert [a[:5] for a in alone] == [a[:5] for a in together[:5]]
    for promise, answer in zip(promised, together, strict=True):
        assert promise.exactness in {INDEX} | unsure
        assert promise.timestamp is None
        if answer.offset is not None:
            assert promise.offset is not None and promise.offset <= answer.offset


def one_by_one(row: SearchedSegment, partition: Partition) -> list[Answer]:
    """Return answers held against the records: of a sample, each in a search of its own."""
    targets = partition.targets[::3]
    together = search_partition([row], targets)
    assert [a[1:4] for a in together] == [partition.expected(t) for t in targets]
    sample = random.Random(1).sample(partition.targets, 30)
    alone = [search_partition([row], [target])[0] for target in sample]
    assert [a[1:4] for a in alone] == [partition.expected(t) for t in sample]
    return alone


def log_of(times: list[int], *, value_bytes: int = 100, base_offset: int = 0) -> list[Written]:
    """A batch of two records for each time, the second one as late."""
    value = bytes(value_bytes)
    return [
        plain_batch(base_offset + 2 * i, [time - 1, time], value) for i, time in enumerate(times)
    ]


RISING = [1000 + 10 * i for i in range(200)]
UNORDERED = [1000 + 10 * (i * 7 % 40) + i for i in range(200)]
LATE_PEAK = [5000, *(2000 + i for i in range(150)), 6000, *(3000 + i for i in range(40)), 7000]


SHAPES = {"rising": RISING, "not": UNORDERED, "peak": LATE_PEAK}


@each_case("dialect", DIALECTS)
def test_a_stale_index_of_a_log_that_was_truncated_and_continued(
    dialect: str, tmp_path: Path
) -> None:
    """What a follower does; its old entries stay in the padded file."""
    before = log_of(RISING)
    after = (*before[:80], *log_of([RISING[i] - 5 for i in range(80, 200)], base_offset=160))
    partition = Partition(((0, after),))
    for ours in (True, False):
        [stale] = Partition(((0, tuple(before)),)).write_to(
            tmp_path, dialect=dialect, interval_bytes=1000, ours=ours
        )
        (tmp_path / f"{0:020d}.log").write_bytes(wire_of(after))
        row = stale._replace(
            last_offset=after[-1].last_offset, max_timestamp=after[-1].max_timestamp
        )
        if dialect != "kip33":
            assert any(a.note for a in one_by_one(row, partition))


class Reads:
    """The files that a search opens, and how much it reads of each."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.bytes: dict[str, int] = {}

    def clear(self) -> None:
        self.opened.clear()
        self.bytes.clear()

    @property
    def of_indexes(self) -> int:
        return sum(count for name, count in self.bytes.items() if not name.endswith(".log"))

    @property
    def of_logs(self) -> int:
        return sum(count for name, count in self.bytes.items() if name.endswith(".log"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    seen = Reads()

    def watched(opened: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def wrapper(location: Location) -> Iterator[Any]:
            with opened(location) as (read_into, size):

                def counted(position: int, view: memoryview) -> int:
                    count: int = read_into(position, view)
                    seen.bytes[location.name] = seen.bytes.get(location.name, 0) + count
                    return count

                seen.opened.append(location.name)
                yield counted, size

        return wrapper

    for module in (segment_index_files, log_slice):
        monkeypatch.setattr(module, "opened", watched(module.opened))
    return seen


@each_case("dialect", DIALECTS)
@each_case("times", SHAPES)
def test_what_is_read_for_a_time(dialect: str, times: Any, tmp_path: Path, reads: Reads) -> None:
    """Some KiB of the index, and the batches from one index point to the next but one."""
    interval = 2000
    log = log_of(times)
    partition = Partition(((0, tuple(log)),))
    [row] = partition.write_to(tmp_path, dialect=dialect, interval_bytes=interval)
    longest = len(log[0].wire)
    for target in partition.targets[::2]:
        reads.clear()
        [answer] = search_partition([row], [target])
        assert answer.bytes_read == reads.of_indexes + reads.of_logs
        assert reads.of_indexes <= INDEX_BYTES
        assert len(reads.opened) == len(set(reads.opened))
        # Two intervals, each up to a batch longer; another batch's records; a header.
        # An entry of kip33 is checked one interval earlier. Short stretches are walked.
        most = (2 + (dialect == "kip33")) * (interval + longest) + longest + 61
        assert reads.of_logs <= most + (times is not RISING) * WALKED_BYTES, target


@each_case("ours", (True, False))
def test_a_large_padded_index_is_searched_by_pages(
    ours: bool, tmp_path: Path, reads: Reads
) -> None:
    times = [1000 + 10 * i for i in range(4000)]
    log = log_of(times, value_bytes=10)
    partition = Partition(((0, tuple(log)),))
    [row] = partition.write_to(tmp_path, interval_bytes=0, ours=ours)
    for suffix, size in ((".timeindex", 10485756), (".index", 10485760)):
        path = (tmp_path / f"{0:020d}").with_suffix(suffix)
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    for target in partition.targets[::397]:
        reads.clear()
        [answer] = search_partition([row], [target])
        assert answer[1:4] == partition.expected(target)
        assert (answer.note, reads.of_indexes <= INDEX_BYTES) == (None, True)
        assert reads.of_logs <= 4096 + 61


def test_a_thousand_times_open_each_file_once_and_read_each_range_once(
    tmp_path: Path, reads: Reads
) -> None:
    partition = Partition(
        tuple(
            (1000 * i, tuple(log_of([t + 5000 * i for t in RISING], base_offset=1000 * i)))
            for i in range(3)
        )
    )
    rows = partition.write_to(tmp_path, interval_bytes=1000)
    targets = [t for t in range(900, 15_000, 28) for _ in (0, 1)]
    random.Random(1).shuffle(targets)
    reads.clear()
    found = search_partition(rows, targets)
    assert [a[1:4] for a in found] == [partition.expected(t) for t in targets]
    assert len(reads.opened) == len(set(reads.opened)) == 9
    assert sum(a.bytes_read for a in found) == reads.of_indexes + reads.of_logs
    assert reads.of_logs <= 1.3 * sum(row.size_bytes or 0 for row in rows)


def test_large_batches_are_not_read_where_their_headers_do(tmp_path: Path, reads: Reads) -> None:
    row = write_segment(tmp_path, 0, wire_of(log_of(RISING[:1])), time_index=False, ours=False)
    large = [
        v2_batch(i, max_timestamp=i, records_count=1, body=bytes(200_000), crc=0) for i in range(30)
    ]
    log = b"".join(large) + v2_batch(30, [Record(99)])
    (tmp_path / f"{0:020d}.log").write_bytes(log)
    grown = row._replace(
        valid_bytes=len(log), size_bytes=len(log), last_offset=30, max_timestamp=99
    )
    [answer] = search_partition([grown], [99])
    assert answer[1:4] == (30, 99, FOUND)
    assert reads.of_logs < len(log) * 0.7


def test_segments_that_are_all_earlier_are_not_opened(tmp_path: Path, reads: Reads) -> None:
    rows = [
        write_segment(tmp_path, 100 * i, wire_of(log_of([1000 * i + 500], base_offset=100 * i)))
        for i in range(5)
    ]
    reads.clear()
    assert answers(rows, [2600, 9000]) == [(300, 3499, FOUND), (None, None, AFTER_END)]
    assert [name for name in reads.opened if name.endswith(".log")] == [f"{300:020d}.log"]


@each_case("dialect", DIALECTS)
@each_case("ours", (True, False))
def test_index_only_opens_no_log_and_is_off_by_an_interval_at_most(
    dialect: str, ours: bool, tmp_path: Path, reads: Reads
) -> None:
    log = log_of(RISING)
    partition = Partition(((0, tuple(log)),))
    interval, longest = 1000, len(log[0].wire)
    [row] = partition.write_to(tmp_path, dialect=dialect, interval_bytes=interval, ours=ours)
    reads.clear()
    promises = search_partition([row], partition.targets, SearchOptions(index_only=True))
    assert reads.opened == [f"{0:020d}.timeindex"]
    batches = interval // longest + 2
    for target, promise in zip(partition.targets, promises, strict=True):
        offset, _, result = partition.expected(target)
        if offset is None:
            assert (promise.offset, promise.result) == (None, result)
            continue
        assert (promise.result, promise.exactness, promise.timestamp) == (FOUND, INDEX, None)
        assert promise.offset is not None
        assert offset - 2 * batches <= promise.offset <= offset
    reads.clear()
    search_partition([row], [EARLIEST, LATEST, MAX_TIMESTAMP, 1500], SearchOptions(index_only=True))
    assert not any(name.endswith(".log") for name in reads.opened)


@each_case("dialect", DIALECTS)
def test_index_only_is_right_after_an_entry(dialect: str, tmp_path: Path) -> None:
    """recover: a last offset; live: the record's, here the first of two; kip33: the next one."""
    log = [plain_batch(2 * i, [time, time], bytes(100)) for i, time in enumerate(RISING)]
    for ours in (True, False):
        row = write_segment(tmp_path, 0, wire_of(log), dialect=dialect, interval_bytes=0, ours=ours)
        [promise] = search_partition([row], [RISING[50] + 1], SearchOptions(index_only=True))
        past_entry = {"recover": 102, "live": 101, "kip33": 102}[dialect]
        unknown = {"recover": 101, "live": 100, "kip33": 102}[dialect]
        assert promise.offset == (past_entry if ours else unknown)


def compacted(first: int, last: int, time: int) -> bytes:
    return v2_batch(first, last_offset_delta=last - first, max_timestamp=time)


def test_kafkas_traps_are_named_and_the_default_continues(tmp_path: Path) -> None:
    rows = [
        write_segment(tmp_path, 0, wire_of([plain_batch(0, [-1, -1])]), modified_ms=9000),
        write_segment(tmp_path, 10, wire_of([plain_batch(10, [100])]) + compacted(11, 13, 700)),
        write_segment(tmp_path, 20, wire_of([plain_batch(20, [600, 800])])),
    ]
    targets = [50, 650, 850]
    assert answers(rows, targets) == [
        (10, 100, FOUND),
        (21, 800, FOUND),
        (None, None, AFTER_END),
    ]
    kafkas = search_partition(rows, targets, SearchOptions(as_kafka=True))
    assert [a[1:4] for a in kafkas] == [(None, None, AFTER_END)] * 3
    notes = [a.note or "" for a in kafkas]
    assert all(note.startswith(Trap.FILE_TIME) for note in notes)
    assert ["offset 10" in notes[0], "offset 21" in notes[1], "offset" in notes[2]] == [
        *(True, True, False)
    ]
    [emptied] = search_partition(rows[1:], [650], SearchOptions(as_kafka=True))
    assert emptied[1:4] == (None, None, AFTER_END)
    assert (emptied.note or "").startswith(Trap.EMPTIED) and "offset 21" in (emptied.note or "")
    [last] = search_partition(rows[1:2], [650], SearchOptions(as_kafka=True))
    assert (last.note or "").startswith(Trap.EMPTIED) and "offset" not in (last.note or "")
    assert search_partition(rows[1:], [50, 900], SearchOptions(as_kafka=True))[0][1:] == (
        *(10, 100, BEFORE_START, RECORD),
        *search_partition(rows[1:], [50])[0][5:],
    )


def test_the_largest_timestamp_is_found_where_its_header_claims_less(tmp_path: Path) -> None:
    row = write_segment(tmp_path, 0, v2_batch(0, [Record(2_000)], max_timestamp=1_000))

    assert answers([row], [MAX_TIMESTAMP]) == [(0, 2_000, FOUND)]


def test_max_timestamp_finds_a_record_where_kafka_finds_none(tmp_path: Path) -> None:
    rows = [
        write_segment(tmp_path, 10, wire_of([plain_batch(10, [100])]) + compacted(11, 13, 700)),
        write_segment(tmp_path, 20, compacted(20, 21, 650) + wire_of([plain_batch(22, [600])])),
        write_segment(tmp_path, 30, wire_of([plain_batch(30, [5, 600])])),
    ]
    assert answers(rows, [MAX_TIMESTAMP]) == [(22, 600, FOUND)]
    [kafkas] = search_partition(rows, [MAX_TIMESTAMP], SearchOptions(as_kafka=True))
    assert (kafkas.offset, kafkas.result) == (None, AFTER_END)
    assert (kafkas.note or "").startswith(Trap.EMPTIED)
    unknown = [row._replace(max_timestamp=None) for row in rows]
    assert answers(unknown, [MAX_TIMESTAMP]) == [(22, 600, FOUND)]
    assert answers(rows, [MAX_TIMESTAMP], log_start_offset=23) == [(31, 600, FOUND)]
    bare = [write_segment(tmp_path, 40, wire_of([plain_batch(40, [-1])]))]
    assert answers(bare, [MAX_TIMESTAMP]) == [(None, None, NO_TIMESTAMPS)]


def test_the_ends_of_a_log(tmp_path: Path) -> None:
    row = write_segment(tmp_path, 7, wire_of([plain_batch(9, [100, 50], b"")]))
    empty = write_segment(tmp_path, 30, b"", modified_ms=5)
    ends = [EARLIEST, LATEST]
    assert answers([row], ends) == [(7, None, FOUND), (11, None, FOUND)]
    assert answers([empty, row], ends) == [(7, None, FOUND), (30, None, FOUND)]
    assert answers([row], ends, log_start_offset=10) == [(10, None, FOUND), (11, None, FOUND)]
    assert answers([empty], [*ends, 3]) == [
        *((30, None, FOUND), (30, None, FOUND), (None, None, AFTER_END))
    ]
    [unknown] = search_partition([row._replace(status="invalid", last_offset=None)], [LATEST])
    assert unknown.offset is None and "last offset is not known" in (unknown.note or "")
    assert answers([], [LATEST, 5]) == [(None, None, NO_SUCH_PARTITION)] * 2
    with pytest.raises(ValueError, match="target -6"):
        search_partition([row], [5, -6])


def three_segments(folder: Path) -> list[SearchedSegment]:
    times = [0, 50, *[0] * 8]
    logs = [plain_batch(10 * i, [100 * i + time for time in times]) for i in range(3)]
    return [write_segment(folder, 10 * i, log.wire) for i, log in enumerate(logs)]


IN_THE_HOLE = "offsets 10 to 19 are missing after it: a record there could be the answer"
BESIDE_A_HOLE = [  # the time, the log start, the offset found, whether it depends on the hole
    (20, 0, 1, False),
    (120, 0, 20, True),  # the record at 20 is behind the hole
    (900, 0, None, True),
    (MAX_TIMESTAMP, 0, 21, True),
    (EARLIEST, 0, 0, False),
    (LATEST, 0, 30, False),
    (120, 20, 20, False),
]


def test_a_record_in_a_hole_could_be_the_answer(tmp_path: Path, subtests: pytest.Subtests) -> None:
    rows = [row for row in three_segments(tmp_path) if row.base_offset != 10]
    for target, start, found, depends in BESIDE_A_HOLE:
        with subtests.test(f"{target} from {start}"):
            for as_kafka in (False, True):  # a broker answers without what is missing
                how = SearchOptions(as_kafka=as_kafka)
                [answer] = search_partition(rows, [target], how, log_start_offset=start)
                assert answer.offset == found
                assert (IN_THE_HOLE in (answer.note or "")) == depends
                assert (answer.exactness, answer.passed_over) == (
                    (UNSURE, True) if depends and not as_kafka else (RECORD, False)
                )


NO_HOLES = [
    {"record_count": 9},  # compacted
    {"last_offset": None, "status": "unverified"},  # where it ends is not known
]


@each_case("is_no_hole", NO_HOLES)
def test_offsets_that_may_never_have_been_are_no_hole(is_no_hole: Any, tmp_path: Path) -> None:
    first, _, last = three_segments(tmp_path)
    [answer] = search_partition([first._replace(**is_no_hole), last], [120])
    assert (answer.offset, answer.exactness, answer.note) == (20, RECORD, None)


def test_a_missing_log_is_skipped(tmp_path: Path) -> None:
    rows = three_segments(tmp_path)
    (tmp_path / f"{10:020d}.log").unlink()
    early, late, end = search_partition(rows, [20, 120, 240])
    assert (early.note, late.offset, end.note) == (None, 20, None)
    assert "cannot be read" in (late.note or "") and "could be earlier" in (late.note or "")


def test_of_a_truncated_log_only_the_valid_bytes_count(tmp_path: Path) -> None:
    good, bad = plain_batch(0, [100]), plain_batch(1, [200])
    row = write_segment(tmp_path, 0, good.wire + bad.wire[:-1] + b"\1")
    assert (row.status, row.valid_bytes) == ("truncated", len(good.wire))
    claims_more = row._replace(max_timestamp=200)
    assert answers([claims_more], [100, 150]) == [(0, 100, FOUND), (None, None, AFTER_END)]


def test_a_log_that_became_shorter_or_was_overwritten(tmp_path: Path) -> None:
    row = write_segment(tmp_path, 0, wire_of(log_of(RISING)), interval_bytes=500)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-400])
    [near, far] = search_partition([row], [1500, RISING[-1]])
    assert (near.offset, far.offset) == (101, None)
    assert "the catalog says" in (near.note or "") and far.note
    path.write_bytes(bytes(row.size_bytes or 0))
    [answer] = search_partition([row], [1500])
    assert answer.offset is None and "no complete batch begins there" in (answer.note or "")


@each_case("codec", ("gzip", "lz4", "zstd", "snappy"))
def test_a_batch_that_cannot_be_decoded(codec: str, tmp_path: Path) -> None:
    good = plain_batch(0, [100, 110])
    bad = v2_batch(5, [Record(200), Record(210)], codec=codec, last_offset_delta=4, body=bytes(40))
    row = write_segment(tmp_path, 0, good.wire + bad + plain_batch(20, [300]).wire)
    for as_kafka in (False, True):
        how = SearchOptions(as_kafka=as_kafka)
        exact, inside, after = search_partition([row], [105, 150, 250], how)
        assert exact[1:5] == (1, 110, FOUND, RECORD)
        assert inside[1:5] == (5, None, FOUND, EXACT_TO_BATCH)
        assert "cannot be read" in (inside.note or "")
        assert ("a broker returns an error there" in (inside.note or "")) is as_kafka
        assert after[1:5] == (20, 300, FOUND, RECORD)


def test_a_broker_refuses_a_large_record_of_a_compressed_batch(tmp_path: Path) -> None:
    records = [Record(100), Record(150, value=bytes(99)), Record(200)]
    first, large = (v2_batch(at, records, codec=codec) for at, codec in ((0, "none"), (3, "zstd")))
    row = write_segment(tmp_path, 0, first + large + plain_batch(6, [300]).wire)
    how = SearchOptions(as_kafka=True, max_decompressed_message_bytes=99)
    found = search_partition([row], [150, 201, MAX_TIMESTAMP], how)
    assert [one[1:3] for one in found] == [(1, 150), (6, 300), (6, 300)]
    row = write_segment(tmp_path, 3, large)
    found = search_partition([row], [100, 150, 200], how)
    assert [one[1:3] for one in found] == [(3, 100), (4, None), (4, None)]
    assert "of 106 bytes, more than max.decompressed.message.bytes, 99" in (found[1].note or "")
    assert "a broker returns an error there" in (found[2].note or "")
    assert search_partition([row], [200])[0][1:3] == (5, 200)


def test_a_batch_whose_end_cannot_be_decoded(tmp_path: Path) -> None:
    """What comes before the damage is exact, what comes after lies behind it."""
    torn = v2_batch(0, [Record(100), Record(200)], records_count=3, max_timestamp=300)
    row = write_segment(tmp_path, 0, torn)
    found = search_partition([row], [150, 250, 300])
    inside = (2, None, FOUND, EXACT_TO_BATCH)
    assert [a[1:5] for a in found] == [(1, 200, FOUND, RECORD), inside, inside]


def test_an_index_beside_the_log_replaces_a_missing_one(tmp_path: Path, reads: Reads) -> None:
    row = write_segment(tmp_path, 0, wire_of(log_of(RISING)), interval_bytes=500)
    elsewhere = row._replace(index_uri=Location.of(tmp_path / "gone" / "0.timeindex").uri)
    reads.clear()
    [answer] = search_partition([elsewhere], [2500])
    assert (answer.offset, answer.note) == (301, None)
    assert len(reads.opened) == 3 and reads.of_logs < 2000


def test_an_index_that_is_a_directory_is_noted(tmp_path: Path) -> None:
    row = write_segment(tmp_path, 0, wire_of(log_of(RISING)), time_index=False)
    (tmp_path / f"{0:020d}.timeindex").mkdir()
    [answer] = search_partition([row], [2500])
    assert answer.offset == 301 and "not a regular file" in (answer.note or "")


def broken(folder: Path, base: int, how: str) -> SearchedSegment:
    """A segment of three batches: its first batch is damaged, or it is cut, or it is unreadable."""
    log = bytearray(wire_of([plain_batch(base + i, [100 * base + i]) for i in range(3)]))
    if how == "first batch":
        log[40] ^= 1
    elif how == "cut":
        del log[len(log) // 2 :]
    row = write_segment(folder, base, bytes(log))
    if how in ("invalid", "unreadable", "archived"):
        return row._replace(status=how, last_offset=None, max_timestamp=None)
    assert row.status == "truncated"
    return row


BROKEN = ["first batch", "cut", "invalid", "unreadable", "archived"]


@each_case("mode", ({}, {"as_kafka": True}, {"index_only": True}))
@each_case("how", BROKEN)
def test_no_answer_after_lost_records_is_exact(mode: Any, how: str, tmp_path: Path) -> None:
    sound = [write_segment(tmp_path, b, wire_of([plain_batch(b, [100 * b])])) for b in (10, 30)]
    rows = [sound[0], broken(tmp_path, 20, how), sound[1]]

    before, behind, none, largest, latest = search_partition(
        rows, [1000, 2500, 9000, MAX_TIMESTAMP, LATEST], SearchOptions(**mode)
    )

    assert (before.offset, before.passed_over, before.note) == (10, False, None)
    assert (behind.offset, none.offset) == (30, None)
    for answer in (behind, none, largest):
        assert (answer.exactness, answer.passed_over) == (UNSURE, True)
        assert answer.note and rows[1].log_uri in answer.note
    assert (latest.offset, latest.passed_over) == (31, False)


def test_the_largest_timestamp_of_what_is_behind_a_log_start_inside_a_batch(
    tmp_path: Path,
) -> None:
    rows = [
        write_segment(tmp_path, 0, wire_of([plain_batch(0, [100, 60, 90]), plain_batch(3, [50])]))
    ]
    for start, expected in [(0, (0, 100)), (1, (2, 90)), (2, (2, 90)), (3, (3, 50))]:
        [answer] = search_partition(rows, [MAX_TIMESTAMP], log_start_offset=start)
        assert answer[1:3] == expected


def test_the_first_record_behind_emptied_segments_is_the_partitions_first(tmp_path: Path) -> None:
    """Whether compaction emptied a batch of the same segment or all of an earlier one."""
    one = write_segment(tmp_path, 0, compacted(0, 3, 70) + wire_of([plain_batch(4, [80])]))
    assert answers([one], [75]) == [(4, 80, BEFORE_START)]

    two = [
        write_segment(tmp_path, 0, compacted(0, 3, 70)),
        write_segment(tmp_path, 4, wire_of([plain_batch(4, [80])])),
    ]
    assert answers(two, [75]) == [(4, 80, BEFORE_START)]
    lost = two[0]._replace(status="truncated", last_offset=2)
    assert answers([lost, two[1]], [75]) == [(4, 80, FOUND)]
