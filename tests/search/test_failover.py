"""Failover between two clusters made from one stream of records: no unread record is missed."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.errors import counted
from kip33.formats.kafka_configs import GroupOffset
from kip33.rules.search import EARLIEST
from kip33.search.failover import NO_TIMESTAMP_READ, NONE_IN_ARCHIVE, ResumePoint, resume_points
from kip33.search.searched_segment import SearchedSegment
from tests.builders.catalog_rows import catalog_rows
from tests.builders.generated_segments import plain_batch, wire_of
from tests.builders.searched_segments import write_segment
from tests.builders.segment_builder import (
    Record,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
)
from tests.cases import each_case
from tests.long_forms import examples

Stream = list[tuple[int, int]]  # who a record is, and its CreateTime


@dataclass
class Mirrored:
    """A partition that holds a stream, its offsets, and which of its segments are archived."""

    offsets: dict[int, int]  # of whom, at which offset
    rows: list[SearchedSegment]
    end: int
    timestamps: dict[int, int] = field(default_factory=dict)


def mirrored(folder: Path, stream: Stream, rng: random.Random, *, keep: slice) -> Mirrored:
    """Write a stream with batches, holes, markers and segments of this cluster's own making."""
    folder.mkdir()
    offset = rng.choice((0, 0, 40, 1_000))
    starts, logs, offsets, end = [offset], [b""], {}, offset
    left = list(stream)
    while left:
        batch, left = left[: (count := rng.randint(1, 4))], left[count:]
        if rng.random() < 0.25 and logs[-1]:
            starts, logs = [*starts, end], [*logs, b""]
        times = [time for _, time in batch]
        codec = rng.choice(("none", "none", "gzip"))
        if rng.random() < 0.2:
            inner = [v1_message(i, time) for i, time in enumerate(times)]
            logs[-1] += wrapper(offset + len(batch) - 1, inner, codec="gzip")
        else:
            logs[-1] += v2_batch(offset, [Record(time, None, b"") for time in times], codec=codec)
        offsets |= {who: offset + place for place, (who, _) in enumerate(batch)}
        offset += len(batch)
        if rng.random() < 0.2:
            logs[-1] += end_txn_marker(
                offset, max(0, rng.choice(times) + rng.choice((0, 9, 90))), producer_id=1
            )
            offset += 1
        end = offset
        offset += rng.choice((0, 0, 0, 5))
    rows = [
        write_segment(
            folder, base, log, interval_bytes=rng.choice((0, 100, 4096)), dialect="recover"
        )
        for base, log in zip(starts, logs, strict=True)
    ]
    return Mirrored(offsets, rows[keep] or rows[-1:], offset)


@dataclass
class Pair:
    """Two clusters with the same records, what a group committed on the first, and the answer."""

    streams: list[Stream]  # of the first cluster's partitions
    first: list[Mirrored]
    second: list[Mirrored]
    committed: list[int]
    buffer_ms: int
    points: list[ResumePoint]

    def where_on_second(self, who: int) -> tuple[int, int]:
        """Return the partition and offset of a record on the second cluster."""
        for number, partition in enumerate(self.second):
            if who in partition.offsets:
                return number, partition.offsets[who]
        raise LookupError(who)

    def last_read(self, number: int) -> int | None:
        """Return the timestamp of the last archived record before the committed offset."""
        partition, archived = self.first[number], self.first[number].rows
        start = archived[0].base_offset
        end = max(
            [start, *(row.last_offset + 1 for row in archived if row.last_offset is not None)]
        )
        times = [
            time
            for who, time in self.streams[number]
            if start <= partition.offsets[who] < min(end, self.committed[number])
        ]
        return times[-1] if times and times[-1] >= 0 else None

    def read(self, number: int) -> list[tuple[int, int]]:
        offsets, committed = self.first[number].offsets, self.committed[number]
        return [(who, time) for who, time in self.streams[number] if offsets[who] < committed]

    def missed(self) -> list[tuple[int, int]]:
        """Return what was not read on the first, is late enough, and lies before the answers."""
        resume = {point.partition: point.resume_offset for point in self.points}
        missed = []
        for number, stream in enumerate(self.streams):
            last, done = self.last_read(number), set(self.read(number))
            for who, time in stream:
                late = last is None or time >= max(0, last - self.buffer_ms)
                partition, offset = self.where_on_second(who)
                begins = resume[partition]
                assert begins is not None
                if (who, time) not in done and late and offset < begins:
                    missed.append((who, time))
        return missed

    def read_twice(self) -> dict[int, int]:
        """Return how many records that were read lie behind the answers, by their partitions."""
        resume = {point.partition: point.resume_offset or 0 for point in self.points}
        twice = {}
        for number in range(len(self.streams)):
            places = [self.where_on_second(who) for who, _ in self.read(number)]
            twice[number] = sum(offset >= resume[partition] for partition, offset in places)
        return twice


@st.composite
def streams(draw: st.DrawFn) -> list[Stream]:
    """The streams of one to three partitions; nobody in two of them."""
    times = st.lists(st.integers(-1, 200), max_size=25)
    drawn = [draw(times) for _ in range(draw(st.integers(1, 3)))]
    return [
        [(100 * number + place, time) for place, time in enumerate(some)]
        for number, some in enumerate(drawn)
    ]


def paired(
    folder: Path,
    some: list[Stream],
    there: list[Stream],
    rng: random.Random,
    buffer_ms: int,
    *,
    archived: slice,
) -> Pair:
    first = [
        mirrored(folder / f"a-{number}", stream, rng, keep=archived)
        for number, stream in enumerate(some)
    ]
    second = [
        mirrored(folder / f"b-{number}", stream, rng, keep=slice(None))
        for number, stream in enumerate(there)
    ]
    committed = [rng.randint(0, one.end + 2) for one in first]
    points = resume_points(
        {("t", number): catalog_rows(one.rows) for number, one in enumerate(first)},
        {("t", number): catalog_rows(one.rows) for number, one in enumerate(second)},
        [GroupOffset("g", "t", number, offset) for number, offset in enumerate(committed)],
        buffer_ms=buffer_ms,
    )
    return Pair(some, first, second, committed, buffer_ms, points)


QUICK = settings(max_examples=examples(60))
RANDOM = st.integers(0, 2**32).map(random.Random)
BUFFERS = st.sampled_from((0, 1, 20, 150, 10**6))
ARCHIVED = st.sampled_from((slice(None), slice(None), slice(1, None), slice(0, -1)))


@QUICK
@given(streams(), RANDOM, BUFFERS, ARCHIVED)
def test_every_unread_record_is_read(
    some: list[Stream], rng: random.Random, buffer_ms: int, archived: slice
) -> None:
    """In whatever order the second cluster has them: late by up to the buffer, or mixed up."""
    disorder = rng.choice((0, buffer_ms, 10**6))
    there = [sorted(stream, key=lambda one: one[0] + rng.uniform(0, disorder)) for stream in some]
    with tempfile.TemporaryDirectory() as folder:
        pair = paired(Path(folder), some, there, rng, buffer_ms, archived=archived)

    assert not pair.missed()
    assert [point.partition for point in pair.points] == list(range(len(some)))
    for number, point in enumerate(pair.points):
        last = pair.last_read(number)
        target_ms = EARLIEST if last is None else max(0, last - buffer_ms)
        assert (point.last_read_timestamp, point.target_ms) == (last, target_ms)
        assert (point.committed_offset, point.topic_wide) == (pair.committed[number], False)
        assert point.guarantee


@QUICK
@given(streams(), RANDOM, BUFFERS)
def test_no_more_is_read_twice_than_said(
    some: list[Stream], rng: random.Random, buffer_ms: int
) -> None:
    """The second cluster keeps the order; what the group read may be behind the archive."""
    archived = rng.choice((slice(None), slice(0, -1)))
    with tempfile.TemporaryDirectory() as folder:
        pair = paired(Path(folder), some, some, rng, buffer_ms, archived=archived)

    assert not pair.missed()
    twice = pair.read_twice()
    for point in pair.points:
        assert point.partition is not None
        if point.read_twice_at_most is None:  # it resumes at a record of which nothing is known
            assert "has no timestamp: " in (point.note or "")
            continue
        assert twice[point.partition] <= point.read_twice_at_most <= (point.committed_offset or 0)


@QUICK
@given(streams(), RANDOM, BUFFERS, ARCHIVED)
def test_partitions_that_differ(
    some: list[Stream], rng: random.Random, buffer_ms: int, archived: slice
) -> None:
    count = rng.choice([n for n in (1, 2, 3, 4) if n != len(some)])
    everybody = sorted((one for stream in some for one in stream), key=lambda one: one[0] % 100)
    there: list[Stream] = [[] for _ in range(count)]
    for one in everybody:
        there[rng.randrange(count)].append(one)
    with tempfile.TemporaryDirectory() as folder:
        pair = paired(Path(folder), some, there, rng, buffer_ms, archived=archived)

    assert not pair.missed()
    assert [point.partition for point in pair.points] == list(range(count))
    assert len({point.target_ms for point in pair.points}) == 1
    timed = [point for point in pair.points if "has no timestamp: " not in (point.note or "")]
    assert len({point.read_twice_at_most for point in timed}) <= 1
    for point in pair.points:
        assert (point.committed_offset, point.topic_wide) == (None, True)
        says = f"{counted(len(some), 'partition')} on one cluster, {count} on the other: "
        assert point.note and point.note.startswith(says)


# One by one.


def ten_batches(
    folder: Path, name: str, base_offset: int = 0, *, from_ms: int = 1_000, step_ms: int = 100
) -> list[SearchedSegment]:
    """One segment of ten batches of five records each."""
    (folder / name).mkdir()
    entries = [plain_batch(base_offset + 5 * i, [from_ms + step_ms * i] * 5) for i in range(10)]
    return [write_segment(folder / name, base_offset, wire_of(entries))]


def topic(*partitions: Sequence[SearchedSegment], name: str = "t") -> dict[Any, Any]:
    return {(name, number): catalog_rows(rows) for number, rows in enumerate(partitions)}


def resumed(first: Any, second: Any, *offsets: int, buffer_ms: int = 200) -> list[ResumePoint]:
    """Return where group g goes on in t, of which it committed these offsets."""
    asked = [GroupOffset("g", "t", number, offset) for number, offset in enumerate(offsets)]
    return resume_points(first, second, asked, buffer_ms=buffer_ms)


def test_the_last_record_read_minus_the_buffer(tmp_path: Path) -> None:
    first, second = ten_batches(tmp_path, "a"), ten_batches(tmp_path, "b", 700)

    assert resumed(topic(first), topic(second), 27) == [
        ResumePoint(
            *("g", "t", 0, 27),
            last_read_timestamp=1_500,
            target_ms=1_300,
            resume_offset=715,
            resume_timestamp=1_300,
            result="found",
            read_twice_at_most=12,
            topic_wide=False,
            guarantee="no record with timestamp 1300 or later is before offset 715",
            note=None,
        )
    ]


FROM_THE_START = "every record of the archive will be read"


NOT_ARCHIVED = {
    "nothing was read": (0, 0, 0),
    "only what is gone": (300, 300, 300),
    "not even all that is gone": (300, 17, 17),
}


@each_case(("base_offset", "offset", "twice"), NOT_ARCHIVED)
def test_nothing_that_was_read_is_archived(
    base_offset: int, offset: int, twice: int, tmp_path: Path
) -> None:
    first = ten_batches(tmp_path, "a", base_offset)

    [point] = resumed(topic(first), topic(ten_batches(tmp_path, "b", 700)), offset)

    assert (point.target_ms, point.resume_offset, point.result) == (EARLIEST, 700, "found")
    assert (point.last_read_timestamp, point.resume_timestamp) == (None, None)
    assert (point.read_twice_at_most, point.guarantee) == (twice, FROM_THE_START)
    assert point.note == NONE_IN_ARCHIVE


def test_an_offset_behind_the_archive(tmp_path: Path) -> None:
    first, second = ten_batches(tmp_path, "a"), ten_batches(tmp_path, "b")

    [point] = resumed(topic(first), topic(second), 70, buffer_ms=0)

    assert (point.last_read_timestamp, point.resume_offset) == (1_900, 45)
    assert point.read_twice_at_most == 25  # 45 to 69
    assert (
        point.note
        == "the archive ends at 50, before the committed offset: the archive's last record is used"
    )


def test_the_second_cluster_has_no_record_as_late(tmp_path: Path) -> None:
    first = ten_batches(tmp_path, "a", from_ms=9_000)

    [point] = resumed(topic(first), topic(ten_batches(tmp_path, "b", 700)), 27)

    assert (point.resume_offset, point.resume_timestamp, point.result) == (750, None, "after_end")
    assert point.guarantee == "no record with timestamp 9300 or later is before offset 750"
    assert point.note == "no record there is late enough: resume at the end"


def overlapping_batches(folder: Path, name: str, base_offset: int) -> list[SearchedSegment]:
    """Ten batches, and a second segment with the offsets of the last four of them, and later."""
    [first] = ten_batches(folder, name, base_offset)
    entries = [plain_batch(base_offset + 5 * i, [1_000 + 100 * i] * 5) for i in range(6, 12)]
    return [first, write_segment(folder / name, base_offset + 30, wire_of(entries))]


MAY_DIFFER = ": overlaps an earlier segment; their records may differ"


AMONG_TWO = {
    "before the overlap": (27, 715, False),
    "in the overlap": (45, 730, True),
    "at its end": (1_000, 745, True),
}


@each_case(("offset", "resumed_at", "is_said"), AMONG_TWO)
def test_an_answer_among_offsets_of_two_segments_has_no_guarantee(
    offset: int, resumed_at: int, is_said: bool, tmp_path: Path
) -> None:
    first = ten_batches(tmp_path, "a", from_ms=1_000)
    second = overlapping_batches(tmp_path, "b", 700)

    [point] = resumed(topic(first), topic(second), offset, buffer_ms=200 if offset < 100 else 0)

    assert point.resume_offset == resumed_at
    assert (point.guarantee is None) == is_said
    note = point.note or ""
    assert (f"{second[1].log_uri}{MAY_DIFFER}" in note) == is_said


def test_a_last_record_among_offsets_of_two_segments_gives_no_guarantee(tmp_path: Path) -> None:
    first = overlapping_batches(tmp_path, "a", 0)
    second = ten_batches(tmp_path, "b", 700)

    before, among = (resumed(topic(first), topic(second), offset)[0] for offset in (27, 40))

    assert (before.note, before.guarantee is None) == (None, False)
    assert (among.note, among.guarantee) == (f"{first[1].log_uri}{MAY_DIFFER}", None)
    assert among.read_twice_at_most is None


def test_no_answer_is_behind_a_record_without_a_timestamp(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The group has read up to 1700 on the first cluster, so 1500 is searched on the second."""
    first = ten_batches(tmp_path, "a")
    early, late = ([Record(time)] for time in (1_000, 2_000))
    untimed = v2_batch(5, [Record()])
    seconds = {
        "no record has one": ([v2_batch(5, [Record(), Record()])], 5),
        "messages of version 0": ([v0_message(5), v0_message(6)], 5),
        "a wrapper": ([v2_batch(5, early), wrapper(8, [v1_message(0), v1_message(1)])], 6),
        "the last ones have none": ([v2_batch(3, early), untimed, v2_batch(6, [Record()])], 5),
        "one between two that have": ([v2_batch(3, early), untimed, v2_batch(6, late)], 5),
        "one behind the answer": ([v2_batch(3, early), v2_batch(4, late), untimed], 4),
        "in one of two partitions": ([v2_batch(3, early), untimed], 5),
    }
    for number, (name, (log, expected)) in enumerate(seconds.items()):
        (tmp_path / str(number)).mkdir()
        second = [write_segment(tmp_path / str(number), 3, b"".join(log))]
        partitions = [second, second] if name == "in one of two partitions" else [second]
        for rows in (second, [SearchedSegment(second[0].log_uri, 3)]):
            partitions = [rows] * len(partitions)
            with subtests.test(name, is_in_catalog=rows is second):
                for point in resumed(topic(first), topic(*partitions), 40):
                    assert (point.target_ms, point.resume_offset) == (1_500, expected)
                    assert point.guarantee, "records that have a time are all read"
                    assert (f"offset {expected} has no timestamp" in (point.note or "")) == (
                        name != "one behind the answer"
                    )


def test_the_end_of_a_large_log_may_have_no_timestamps(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    first = ten_batches(tmp_path, "a")
    early = b"".join(v2_batch(n, [Record(1_000 + n, None, bytes(70_000))]) for n in range(3, 20))
    timed = v2_batch(20, [Record(1_030)])
    untimed = v2_batch(20, [Record()])
    for name, end, expected in (("untimed", untimed, 20), ("timed", timed, 21)):
        (tmp_path / name).mkdir()
        large = write_segment(tmp_path / name, 3, early + end)
        late = write_segment(tmp_path / name, 21, v2_batch(21, [Record(2_000)]))
        for where, row in {
            "the row has it": large,
            "the index has it": large._replace(offset_of_max_timestamp=None),
            "nothing has it": SearchedSegment(large.log_uri, 3, size_bytes=large.size_bytes),
        }.items():
            with subtests.test(name, where=where):
                [point] = resumed(topic(first), topic([row, late]), 40)
                assert (point.target_ms, point.resume_offset) == (1_500, expected)
                assert point.guarantee


def test_a_topic_missing_on_the_second_cluster(tmp_path: Path) -> None:
    [point] = resumed(topic(ten_batches(tmp_path, "a")), {}, 27)

    assert (point.partition, point.last_read_timestamp, point.target_ms) == (0, 1_500, 1_300)
    assert (point.resume_offset, point.result) == (None, "no_such_partition")
    assert (point.guarantee, point.read_twice_at_most) == (None, None)


def test_a_topic_missing_on_the_first_cluster(tmp_path: Path) -> None:
    [point] = resumed({}, topic(ten_batches(tmp_path, "b", 700)), 27)

    assert (point.target_ms, point.resume_offset) == (EARLIEST, 700)
    assert (point.guarantee, point.read_twice_at_most) == (FROM_THE_START, None)
    assert point.note and point.note.startswith("0 partitions on one cluster, 1 on the other: ")
    assert point.note.endswith(NONE_IN_ARCHIVE)


def test_a_partition_without_an_offset_is_named(tmp_path: Path) -> None:
    first = [ten_batches(tmp_path, name) for name in ("a", "b")]
    second = [ten_batches(tmp_path, name) for name in ("c", "d")]

    [point] = resumed(topic(*first), topic(*second), 27)

    assert (point.partition, point.resume_offset) == (0, 15)
    assert point.note == "partition 1 has no committed offset, so it has no row"


def test_the_smallest_time_of_a_topic(tmp_path: Path) -> None:
    first = [ten_batches(tmp_path, "a"), ten_batches(tmp_path, "b", 60, from_ms=1_050)]
    second = [ten_batches(tmp_path, name, base) for name, base in (("c", 0), ("d", 70), ("e", 90))]

    points = resumed(topic(*first), topic(*second), 27, 72)

    assert [(p.partition, p.target_ms, p.resume_offset) for p in points] == [
        (0, 1_050, 5),
        (1, 1_050, 75),
        (2, 1_050, 95),
    ]
    # 5 to 26 of one partition; of the other the first record is later, so all that was read.
    assert {p.read_twice_at_most for p in points} == {22 + 72}
    assert {p.note for p in points} == {
        "2 partitions on one cluster, 3 on the other: the smallest time of the topic is used"
    }


def test_the_start_where_a_partition_has_no_offset(tmp_path: Path) -> None:
    first = [ten_batches(tmp_path, name) for name in ("a", "b")]

    [point] = resumed(topic(*first), topic(ten_batches(tmp_path, "c", 700)), 27)

    assert (point.target_ms, point.resume_offset, point.topic_wide) == (EARLIEST, 700, True)
    assert point.note == (
        "2 partitions on one cluster, 1 on the other: the smallest time of the topic is "
        "used, which is the start, "
        "because partition 1 was not read"
    )
    assert (point.guarantee, point.read_twice_at_most) == (FROM_THE_START, 27)


def test_records_compacted_before_the_first_one_may_be_read_twice(tmp_path: Path) -> None:
    """The second cluster has not compacted yet."""
    first = write_segment(tmp_path, 0, wire_of([plain_batch(10, [1_000] * 5)]))

    points = [
        resumed(topic([first]), topic(ten_batches(tmp_path, f"b-{ms}")), 15, buffer_ms=ms)[0]
        for ms in (1, 0)
    ]

    assert [point.read_twice_at_most for point in points] == [15, 5]


def test_a_negative_buffer() -> None:
    with pytest.raises(ValueError, match="buffer_ms -1: expected 0 or more"):
        resumed({}, {}, 27, buffer_ms=-1)


def after_markers(folder: Path, markers: int) -> ResumePoint:
    """104 was read last; on the second cluster markers of a later time stand before 101."""
    (folder / "a").mkdir()
    first = write_segment(folder / "a", 0, plain_batch(0, [100, *[101] * markers, 104]).wire)
    log = plain_batch(0, [100]).wire
    for number in range(markers):
        log += end_txn_marker(1 + 2 * number, 109, producer_id=1)
        log += plain_batch(2 + 2 * number, [101]).wire
    log += plain_batch(1 + 2 * markers, [104]).wire
    second = write_segment(folder, 0, log)
    [point] = resumed(topic([first]), topic([second]), markers + 2, buffer_ms=0)
    return point


def test_markers_of_the_second_cluster_are_skipped(tmp_path: Path) -> None:
    point = after_markers(tmp_path, 3)

    assert (point.resume_offset, point.resume_timestamp, point.result) == (7, 104, "found")
    assert (point.read_twice_at_most, point.note) == (1, None)
    assert point.guarantee == "no record with timestamp 104 or later is before offset 7"


def test_too_many_markers(tmp_path: Path) -> None:
    point = after_markers(tmp_path, 120)

    assert (point.resume_offset, point.resume_timestamp) == (1, 109)
    assert point.read_twice_at_most is None
    assert point.guarantee == "no record with timestamp 104 or later is before offset 1"


# What cannot be read promises nothing.


def gone(folder: Path, base_offset: int) -> None:
    (folder / f"{base_offset:020d}.log").unlink()


@each_case("status", ("gone", "unreadable", "invalid"))
def test_a_part_of_the_second_cannot_be_read(status: str, tmp_path: Path) -> None:
    first = ten_batches(tmp_path, "a")
    second = ten_batches(tmp_path, "b", 700) + ten_batches(tmp_path, "c", 750, from_ms=2_000)
    if status == "gone":
        gone(tmp_path / "b", 700)
    else:
        second[0] = second[0]._replace(status=status, max_timestamp=None, last_offset=None)

    [point] = resumed(topic(first), topic(second), 27)

    assert (point.resume_offset, point.resume_timestamp) == (750, 2_000)
    assert point.guarantee is None
    assert point.note and second[0].log_uri in point.note


def torn_batches(folder: Path, name: str) -> list[SearchedSegment]:
    """Two segments from 1,000 and 2,000 ms on; the first lost its last three batches."""
    [row] = ten_batches(folder, name)
    log = (folder / name / f"{0:020d}.log").read_bytes()
    torn = write_segment(folder / name, 0, log[: -len(log) // 10 * 2 - 9])
    assert (torn.status, torn.last_offset) == ("truncated", 34)
    return [torn, *ten_batches(folder, f"{name}-2", row.base_offset + 50, from_ms=2_000)]


LOST = {
    "a record before the damage": (1_000, 15, True),
    "none before it: one may be lost": (1_500, 50, False),
}


@each_case(("from_ms", "resume_offset", "sure"), LOST)
def test_records_lost_on_the_second_cluster_may_be_late_enough(
    from_ms: int, resume_offset: int, sure: bool, tmp_path: Path
) -> None:
    first, second = ten_batches(tmp_path, "a", from_ms=from_ms), torn_batches(tmp_path, "b")

    [point] = resumed(topic(first), topic(second), 27)

    assert (point.resume_offset, point.guarantee is not None) == (resume_offset, sure)
    why = "truncated at offset 35, skipped: a record there could be earlier"
    lost = f"{second[0].log_uri}: {why}"
    assert point.note == (None if sure else lost)


def test_the_end_of_a_torn_log_is_not_known(tmp_path: Path) -> None:
    first, second = ten_batches(tmp_path, "a", from_ms=9_000), torn_batches(tmp_path, "b")

    [point] = resumed(topic(first), topic(second[:1]), 27)

    assert (point.resume_offset, point.guarantee) == (None, None)


@each_case(("buffer_ms", "twice"), ((800, 42), (300, None)))
def test_records_lost_on_the_first_cluster_are_not_counted(
    buffer_ms: int, twice: int | None, tmp_path: Path
) -> None:
    first, second = torn_batches(tmp_path, "a"), ten_batches(tmp_path, "b")

    [point] = resumed(topic(first), topic(second), 52, buffer_ms=buffer_ms)

    assert (point.last_read_timestamp, point.read_twice_at_most) == (2_000, twice)
    assert point.guarantee


def test_a_part_of_the_first_cannot_be_read(tmp_path: Path) -> None:
    first = ten_batches(tmp_path, "a") + ten_batches(tmp_path, "c", 50, from_ms=2_000)
    gone(tmp_path / "a", 0)

    [point] = resumed(topic(first), topic(ten_batches(tmp_path, "b")), 57, buffer_ms=500)

    assert (point.last_read_timestamp, point.target_ms, point.resume_offset) == (2_100, 1_600, 30)
    assert point.read_twice_at_most is None
    assert point.guarantee


def test_what_was_read_last_has_no_timestamp(tmp_path: Path) -> None:
    first = write_segment(tmp_path, 0, wire_of([plain_batch(0, [5_000, -1, 6_000])]))

    [point] = resumed(topic([first]), topic(ten_batches(tmp_path, "b", 700)), 2)

    assert (point.target_ms, point.resume_offset, point.read_twice_at_most) == (EARLIEST, 700, 2)
    assert (point.guarantee, point.note) == (FROM_THE_START, NO_TIMESTAMP_READ)


def test_the_second_ends_with_markers(tmp_path: Path) -> None:
    log = plain_batch(0, [100]).wire + end_txn_marker(1, 9_999, producer_id=1)
    second = write_segment(tmp_path, 0, log)

    [point] = resumed(topic(ten_batches(tmp_path, "a")), topic([second]), 27)

    assert (point.resume_offset, point.resume_timestamp, point.result) == (2, None, "after_end")
    assert point.note == "no record there is late enough: resume at the end"
