"""Search over a local and a remote tier: the answers are those of the whole log."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip33.catalog.logs import IS_REMOTE, OF_LOGS
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.topics_by_name import OF_TOPICS, with_older_topics
from kip33.rules.search import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from kip33.search.answers import Answer, SearchOptions
from kip33.search.catalog_search import by_partition
from kip33.search.partition_search import search_partition
from kip33.search.replica_search import TimeQuestion, answers_of, overlapping, searched_log
from kip33.search.searched_segment import SEARCHED, SearchedSegment, losses_of
from tests.builders.generated_segments import Written, plain_batch, wire_of
from tests.builders.searched_segments import Partition, partitions, write_segment
from tests.cases import each_case
from tests.long_forms import examples

COLUMNS = [*dict.fromkeys((*SEARCHED, *OF_LOGS, *OF_TOPICS))]
SPECIAL = (EARLIEST, LATEST, MAX_TIMESTAMP)
IN_BOTH_TIERS = (EARLIEST_LOCAL, LATEST_TIERED)


def row_of(segment: SearchedSegment, log_dir: str) -> dict[str, Any]:
    """Return a row of a segment in one leader epoch, if it was read."""
    of_partition = {"topic": "t", "partition": 0, "log_dir": log_dir}
    if segment.last_offset is not None:
        span = segment.base_offset, segment.last_offset
        of_partition["batches_crc32"] = hash(span) & 0xFFFF
        epochs = {"leader_epochs": [0], "leader_epoch_offsets": [segment.base_offset]}
        segment = segment._replace(**epochs)
    return dict.fromkeys(SEGMENTS.names) | segment._asdict() | of_partition


def table(segments: list[SearchedSegment], log_dir: str) -> pa.Table:
    rows = [row_of(segment, log_dir) for segment in segments]
    return pa.Table.from_pylist(rows, SEGMENTS).select(COLUMNS)


def united(local: pa.Table, remote: pa.Table) -> pa.Table:
    """Return the rows of both tiers."""
    tiers = zip((local, remote), (False, True), strict=True)
    return pa.concat_tables(
        [
            rows.append_column(IS_REMOTE, pa.repeat(pa.scalar(is_remote), rows.num_rows))
            for rows, is_remote in tiers
        ]
    )


def ask(
    local: list[SearchedSegment],
    remote: list[SearchedSegment],
    targets: list[int],
    how: SearchOptions = SearchOptions(),  # noqa: B008 - it cannot be changed
) -> list[Answer]:
    """Return the answers of both tiers put together."""
    rows = united(table(local, "broker-1"), table(remote, "bucket"))
    questions = [TimeQuestion("t", 0, target) for target in targets]
    return [found.answer for found in answers_of(by_partition(rows)["t", 0], questions, how)]


def write(folder: Path, entries: list[Written], cuts: list[int]) -> list[SearchedSegment]:
    """Write the entries from the first cut up to the last as segments that begin at the cuts."""
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*"):
        file.unlink()
    parts = [entries[low:high] for low, high in pairwise(cuts)]
    return [write_segment(folder, begin_of(entries, part), wire_of(part)) for part in parts]


def begin_of(entries: list[Written], part: list[Written]) -> int:
    at = entries.index(part[0])
    if at:
        return entries[at - 1].last_offset + 1
    return min((offset for offset, _ in part[0].records), default=part[0].last_offset)


@st.composite
def cuts_between(draw: st.DrawFn, low: int, high: int) -> list[int]:
    inner = draw(st.sets(st.integers(low, high), max_size=4))
    return sorted({low, high} | inner)


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(whole=partitions(), data=st.data())
def test_the_answers_are_those_of_the_whole_log(
    whole: Partition, data: st.DataObject, tmp_path: Path
) -> None:
    # Segments need not begin at the same batches in both tiers.
    entries = [entry for _, of_one in whole.segments for entry in of_one]
    count = len(entries)
    if not count:
        return
    local_from = data.draw(st.integers(0, count - 1))
    remote_to = data.draw(st.integers(local_from, count))
    cuts = data.draw(cuts_between(0, remote_to))
    remote = write(tmp_path / "r", entries, cuts) if remote_to else []
    local = write(tmp_path / "l", entries, data.draw(cuts_between(local_from, count)))
    every = write(tmp_path / "w", entries, [0, count])
    targets = [*whole.targets, *SPECIAL]
    expected = search_partition(every, targets)
    found = ask(local, remote, targets)
    assert [one[:5] for one in found] == [one[:5] for one in expected]
    ends = (local[0].base_offset, remote[-1].last_offset if remote else None)
    tiers = ask(local, remote, [*IN_BOTH_TIERS])
    assert tuple(one.offset for one in tiers) == ends


ENDS = [
    ([], (None, "not_in_tier", "record")),
    (["empty"], (None, "not_in_tier", "record")),
    (["ok", "ok"], (19, "found", "record")),
    (["truncated", "ok"], (19, "found", "record")),
    (["ok", "truncated"], (9, "found", "unsure")),
    (["ok", "unreadable"], (9, "found", "unsure")),
    (["unverified"], (None, "found", "unsure")),  # a build with --read tail
]


@each_case(("statuses", "found"), ENDS)
def test_the_remote_tier_may_end_after_its_whole_segments(statuses: Any, found: Any) -> None:
    remote = [
        SearchedSegment(f"file:///r/{n}.log", 10 * n, 10 * n + 9, 99, 99, 9, 9, status)
        for n, status in enumerate(statuses)
    ]
    local = [SearchedSegment("file:///l/90.log", 90, 99, 99, 99, 9, 9, "ok")]
    [answer] = ask(local, remote, [LATEST_TIERED])
    assert (answer.offset, answer.result, answer.exactness) == found
    assert ("so the remote tier may end later" in (answer.note or "")) == (found[2] == "unsure")


@each_case("last_offset", (3, None))
@each_case("bucket", ("file:///a", "file:///z"))
def test_a_cut_local_segment_lost_nothing_that_the_remote_tier_has(
    last_offset: int | None, bucket: str
) -> None:
    local = [
        SearchedSegment("file:///l/0.log", 0, last_offset, 99, 40, 3, 3, "truncated"),
        SearchedSegment("file:///l/10.log", 10, 19, 99, 99, 9, 9, "ok"),
    ]
    remote = [SearchedSegment(f"{bucket}/0.log", 0, 9, 99, 99, 9, 9, "ok")]
    rows = united(table(local, "broker-1"), table(remote, "bucket"))
    segments = searched_log(by_partition(rows)["t", 0]).segments
    assert losses_of(segments) == [None] * len(segments)
    assert [one.log_uri for one in segments] == [
        *(["file:///l/0.log"] if last_offset else []),
        f"{bucket}/0.log",
        "file:///l/10.log",
    ]
    assert not overlapping(segments)
    [begin] = ask(local, remote, [EARLIEST_LOCAL])
    assert (begin.offset, begin.exactness) == (0, "record")


def test_a_local_log_without_topic_id_may_go_on_with_the_newest_topic_of_the_bucket() -> None:
    def with_id(rows: pa.Table, topic_id: str | None, at_ms: int) -> pa.Table:
        values = {"topic_id": topic_id, "last_modified_ms": at_ms, "batches_crc32": at_ms}
        for name, value in values.items():
            at = rows.column_names.index(name)
            column = pa.array([value] * rows.num_rows, rows.schema.field(at).type)
            rows = rows.set_column(at, rows.schema.field(at), column)
        return rows

    ten = SearchedSegment("file:///r/0.log", 0, 9, 99, 99, 9, 9, "ok")
    local = table([SearchedSegment("file:///l/10.log", 10, 19, 99, 99, 9, 9, "ok")], "broker-1")
    remote = table([ten], "")
    questions = [TimeQuestion("t", 0, LATEST)]
    for ids, expected in ((["A", "B"], (10, "unsure")), (["B"], (20, "record"))):
        united_rows = united(
            with_id(local, None, 9),
            pa.concat_tables([with_id(remote, one, number) for number, one in enumerate(ids)]),
        )
        rows = by_partition(with_older_topics(united_rows))["t", 0]
        [found] = answers_of(rows, questions, SearchOptions())
        assert (found.answer.offset, found.answer.exactness) == expected


def test_the_log_ends_where_the_tier_that_has_more_of_it_ends(tmp_path: Path) -> None:
    entries = [plain_batch(offset, [100 + offset]) for offset in range(8)]
    remote = write(tmp_path / "r", entries, [0, 8])
    local = write(tmp_path / "l", entries, [0, 3, 6])
    found, of_broker = (
        ask(local, remote, [LATEST], SearchOptions(as_kafka=is_broker))[0]
        for is_broker in (False, True)
    )
    assert (found.offset, found.exactness, of_broker.offset) == (8, "record", 6)


FIRST, LATER = [(0, 0)], [(0, 0), (2, 5)]  # leader epochs and where each begins


def with_epochs(rows: pa.Table, *of_segments: list[tuple[int, int]] | None) -> pa.Table:
    """Return rows with these leader epochs, None: they are not known."""
    for at, name in enumerate(("leader_epochs", "leader_epoch_offsets")):
        values = [starts and [start[at] for start in starts] for starts in of_segments]
        place, kind = rows.column_names.index(name), rows.schema.field(name)
        rows = rows.set_column(place, kind, pa.array(values, kind.type))
    return rows


def of_offsets(place: str, base: int, last: int, status: str = "ok") -> SearchedSegment:
    uri = f"file:///{place}/{base}.log"
    return SearchedSegment(
        uri, base, last, 99, 99, last, last, status, record_count=last + 1 - base
    )


def settled(rows: pa.Table, targets: list[int], how: SearchOptions) -> list[tuple[Any, ...]]:
    """Return result, offset and exactness of answers that need no log."""
    questions = [TimeQuestion("t", 0, target) for target in targets]
    found = answers_of(by_partition(rows)["t", 0], questions, how)
    return [(one.answer.result, one.answer.offset, one.answer.exactness) for one in found]


def test_the_remote_tier_ends_where_the_log_leaves_its_epoch(subtests: pytest.Subtests) -> None:
    # As `RemoteLogManager.findHighestRemoteOffset`, which also answers where no segment is.
    local = with_epochs(table([of_offsets("l", 0, 7)], "broker-1"), LATER)
    lost, other = of_offsets("r", 0, 9), of_offsets("r", 10, 14)
    cases: list[tuple[str, list[tuple[SearchedSegment, Any]], tuple[Any, ...], int | None]] = [
        ("all is of the log", [(of_offsets("r", 0, 3), FIRST)], ("found", 3, "record"), 3),
        ("the end was lost", [(lost, FIRST)], ("found", 4, "record"), 4),
        ("and all of another", [(lost, FIRST), (other, [(0, 10)])], ("found", 4, "record"), 4),
        ("only what was lost is there", [(other, [(0, 10)])], ("not_in_tier", None, "record"), 4),
        ("of a leader that lost", [(other, [(1, 10)])], ("not_in_tier", None, "record"), None),
        ("epochs are not known", [(lost, None)], ("found", 9, "unsure"), 7),
    ]
    for name, remote, expected, of_broker in cases:
        segments, epochs = zip(*remote, strict=True)
        rows = united(local, with_epochs(table(list(segments), "bucket"), *epochs))
        with subtests.test(name):
            assert settled(rows, [LATEST_TIERED], SearchOptions()) == [expected]
            [(_, offset, _)] = settled(rows, [LATEST_TIERED], SearchOptions(as_kafka=True))
            assert offset == of_broker


def test_the_local_tier_of_a_replica_that_was_left_behind_begins_where_its_log_does() -> None:
    local = with_epochs(table([of_offsets("l", 5, 7)], "broker-1"), [(0, 5)])
    remote = table([of_offsets("r", 0, 4), of_offsets("r", 5, 9)], "bucket")
    rows = united(local, with_epochs(remote, FIRST, [(1, 5)]))
    assert settled(rows, [EARLIEST_LOCAL], SearchOptions()) == [("found", 5, "unsure")]
    assert settled(rows, [EARLIEST_LOCAL], SearchOptions(as_kafka=True)) == [("found", 5, "record")]


def test_an_answer_is_unsure_without_leader_epochs(tmp_path: Path) -> None:
    entries = [plain_batch(offset, [100 + offset]) for offset in range(13)]
    remote = table(write(tmp_path / "r", entries, [0, 8, 13]), "bucket")
    local = table(write(tmp_path / "l", entries, [0, 8]), "broker-1")
    targets = [104, 107, 108, 200, LATEST, MAX_TIMESTAMP]
    questions = [TimeQuestion("t", 0, target) for target in targets]
    for epochs, is_sure in ((None, False), ([(0, 0)], True)):
        upload = epochs and [(0, 8)]
        rows = united(with_epochs(local, epochs), with_epochs(remote, epochs, upload))
        for how in (SearchOptions(), SearchOptions(index_only=True)):
            found = [one.answer for one in answers_of(by_partition(rows)["t", 0], questions, how)]
            unsure = [one.target_ms for one in found if one.exactness == "unsure"]
            assert unsure == ([] if is_sure else [t for t in targets if t != 200]), how
            assert ("leader epochs are not known" in (found[2].note or "")) != is_sure


def test_the_largest_timestamp_is_not_that_of_a_lost_record(tmp_path: Path) -> None:
    lost = [plain_batch(offset, [100 + offset]) for offset in range(10)]
    remote = table(write(tmp_path / "r", lost, [0, 10]), "bucket")
    entries = [plain_batch(offset, [50 + offset]) for offset in range(5, 8)]
    local = table([write_segment(tmp_path, 5, wire_of(entries))], "broker-1")
    rows = united(with_epochs(local, [(1, 5)]), with_epochs(remote, FIRST))
    questions = [TimeQuestion("t", 0, MAX_TIMESTAMP)]
    [found] = answers_of(by_partition(rows)["t", 0], questions, SearchOptions())
    assert (found.answer.offset, found.answer.timestamp) == (4, 104)


def test_the_log_ends_where_its_last_segment_is_read_to(subtests: pytest.Subtests) -> None:
    # A broker's log ends where the local one does.
    empty = SearchedSegment("file:///l/8.log", 8, None, 0, 0, -1, None, "empty", record_count=0)
    cases: list[tuple[str, list[Any], list[Any], tuple[int, int]]] = [
        ("a remote segment has lost records", [of_offsets("l", 3, 7)], [[(2, 3)]], (8, 8)),
        ("the active one is empty", [of_offsets("l", 3, 7), empty], [[(0, 3)], []], (10, 8)),
    ]
    for name, local, epochs, ends in cases:
        remote = with_epochs(table([of_offsets("r", 0, 9)], "bucket"), FIRST)
        rows = united(with_epochs(table(local, "broker-1"), *epochs), remote)
        with subtests.test(name):
            for as_kafka, end in zip((False, True), ends, strict=True):
                [answer] = settled(rows, [LATEST], SearchOptions(as_kafka=as_kafka))
                assert answer == ("found", end, "record")
