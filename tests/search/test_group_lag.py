"""The lag of groups compared with a scan of all records; each result; expiry of unread records."""

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.formats.kafka_configs import GroupOffset
from kip33.rules.policies import Policies
from kip33.rules.retention_rows import Limits, SegmentFigures, judge
from kip33.search.group_lag import GroupLag, group_lags
from kip33.search.searched_segment import SearchedSegment
from tests.builders.catalog_rows import catalog_rows
from tests.builders.generated_segments import Written, plain_batch, segments, wire_of
from tests.builders.searched_segments import write_segment
from tests.cases import each_case
from tests.long_forms import examples

NOW_MS = 10_000
DAY_MS = 86_400_000
KEPT_FOR_5_S = Policies({"defaults": {"retention.ms": 5_000}})


def lag_of(rows: list[SearchedSegment], offset: int, *, partition: int = 0, **how: Any) -> GroupLag:
    """Return the lag of group g in t-0, of which these are the segments."""
    return lags_of({("t", 0): catalog_rows(rows)}, [offset], partition=partition, **how)[0]


def lags_of(
    partitions: dict[Any, list[dict[str, Any]]],
    offsets: list[int],
    *,
    partition: int = 0,
    **how: Any,
) -> list[GroupLag]:
    asked = [GroupOffset("g", "t", partition, offset) for offset in offsets]
    return group_lags(partitions, asked, **({"now_ms": NOW_MS} | how))


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, list[Written]]]:
    """Segments of one partition, some empty, perhaps with a hole before each."""
    base, drawn = draw(st.sampled_from((0, 77))), []
    for _ in range(draw(st.integers(1, 4))):
        entries = draw(segments(base_offset=base, max_size=6))
        drawn.append((base, entries))
        last = entries[-1].last_offset if entries else base
        base = last + 1 + draw(st.sampled_from((0, 0, 9)))
    return drawn


def expected(
    log: list[tuple[int, list[Written]]], rows: list[SearchedSegment], offset: int
) -> tuple[Any, ...]:
    """Return result, timestamp, newest, start, end, lag in records and in time: a loop over all."""
    entries = [entry for _, written in log for entry in written]
    data = [pair for entry in entries if not entry.control for pair in entry.records]
    start = log[0][0]
    end = max([log[-1][0], *(entry.last_offset + 1 for entry in entries)])
    newest = max([-1, *(entry.max_timestamp for entry in entries)])
    known = (newest if newest >= 0 else None, start, end, max(0, end - max(offset, start)))
    unread = [time for at, time in data if at >= offset]
    if offset > end:
        return "after_end", None, *known, 0
    if not unread:
        return "at_end", None, *known, 0
    result = "before_start" if offset < start else "found"
    late = newest - unread[0] if unread[0] >= 0 else None
    return result, unread[0] if unread[0] >= 0 else None, *known, late


@settings(max_examples=examples(60))
@given(logs(), st.sampled_from((0, 100, 4096)), st.booleans(), st.integers(0, 60))
def test_every_offset_as_in_a_scan_of_all_records(
    log: list[tuple[int, list[Written]]], interval: int, with_index: bool, retention_ms: int
) -> None:
    policies = Policies({"topics": {"t": {"retention.ms": retention_ms}}})
    with tempfile.TemporaryDirectory() as folder:
        how = {"interval_bytes": interval, "offset_index": with_index}
        rows = [write_segment(Path(folder), base, wire_of(e), **how) for base, e in log]
        ends = {offset for row in rows for offset in (row.base_offset, (row.last_offset or 0) + 1)}
        near = {at for _, e in log for entry in e for at, _ in entry.records} | ends
        offsets = sorted({at + step for at in near for step in (-1, 0, 1) if at + step >= 0})
        shuffled = catalog_rows(rows)
        random.Random(interval).shuffle(shuffled)
        found = lags_of({("t", 0): shuffled}, offsets, policies=policies, now_ms=40)

    figures = [
        SegmentFigures(r.base_offset, r.size_bytes, r.largest_timestamp, r.status) for r in rows
    ]
    limits = Limits(retention_ms, active_segment="kafka")
    deletable_at = [one.deletable_at_ms for one in judge(figures, limits, now_ms=40)]
    for offset, lag in zip(offsets, found, strict=True):
        assert (lag.offset, lag.note) == (offset, None)
        assert (
            *(lag.result, lag.timestamp, lag.newest_timestamp, lag.log_start_offset),
            *(lag.log_end_offset, lag.lag_records, lag.lag_ms),
        ) == expected(log, rows, offset), offset
        first_unread = [
            place
            for place, (_, entries) in enumerate(log)
            if any(at >= offset for e in entries if not e.control for at, _ in e.records)
        ]
        goes_at = deletable_at[first_unread[0]] if first_unread else None
        assert lag.unread_expires_at_ms == goes_at, offset


def ten_batches(folder: Path, base_offset: int = 0, *, from_ms: int = 1_000) -> SearchedSegment:
    """A segment of ten batches of five records each, 100 ms apart."""
    entries = [plain_batch(base_offset + 5 * i, [from_ms + 100 * i] * 5) for i in range(10)]
    return write_segment(folder, base_offset, wire_of(entries))


@each_case("partition", (1, 2**31 - 1))
def test_no_such_partition(partition: Any, tmp_path: Path) -> None:
    lag = lag_of([ten_batches(tmp_path)], 17, partition=partition)

    assert lag == GroupLag("g", None, "t", partition, 17, "no_such_partition")


def test_the_lag_is_unknown_where_the_last_segment_is_torn(tmp_path: Path) -> None:
    """Recovery would cut it there, but records may be missing."""
    log = wire_of([plain_batch(5 * i, [1_000 + i] * 5) for i in range(4)])
    row = write_segment(tmp_path, 0, log[:-3])
    assert row.status == "truncated"

    found = [lag_of([row], offset) for offset in (12, 15, 17)]

    assert [lag.result for lag in found] == ["found", "unknown", "unknown"]
    assert {(lag.log_end_offset, lag.lag_records, lag.lag_ms) for lag in found} == {(None,) * 3}
    assert [lag.timestamp for lag in found] == [1_002, None, None]
    assert all("truncated, so the end of the log is not known" in (lag.note or "") for lag in found)


@each_case("offset", (20, 55, 70))
def test_the_time_is_unknown_where_a_middle_segment_lost_records(
    offset: int, tmp_path: Path
) -> None:
    rows = [ten_batches(tmp_path, base, from_ms=1_000 + base) for base in (0, 50, 100)]
    log = tmp_path / f"{50:020d}.log"
    rows[1] = write_segment(tmp_path, 50, log.read_bytes()[:-300])
    assert rows[1].status == "truncated"

    lag = lag_of(rows, offset)

    assert (lag.result, lag.lag_records, lag.lag_ms) == ("found", 150 - offset, None)
    assert lag.note and "truncated at offset" in lag.note


def test_the_newest_timestamp_may_be_later_where_a_middle_segment_is_unverified(
    tmp_path: Path,
) -> None:
    """A row of `--read tail` has the last entry of its index, which may have lost entries."""
    rows = [ten_batches(tmp_path, base, from_ms=1_000 + base) for base in (0, 50)]
    assert lag_of(rows, 17).note is None
    rows[0] = rows[0]._replace(status="unverified", last_offset=None)

    lag = lag_of(rows, 17)

    assert lag.note and "entries that it lost could name a later record" in lag.note


def test_a_truncated_segment_lost_no_records_if_the_next_one_continues_it(tmp_path: Path) -> None:
    rows = [ten_batches(tmp_path, base, from_ms=1_000 + base) for base in (0, 50)]
    log = tmp_path / f"{0:020d}.log"
    rows[0] = write_segment(tmp_path, 0, log.read_bytes() + bytes(40))
    assert rows[0].status == "truncated"

    lag = lag_of(rows, 17)

    assert (lag.lag_records, lag.note) == (83, None)
    assert lag.lag_ms is not None


@each_case("status", ("unreadable", "invalid", "archived"))
def test_a_last_segment_that_is_ignored(status: str, tmp_path: Path) -> None:
    bad = ten_batches(tmp_path, 50)._replace(status=status, max_timestamp=None)
    rows = [ten_batches(tmp_path), bad._replace(last_offset=None)]

    lag = lag_of(rows, 50)

    assert (lag.result, lag.log_end_offset, lag.timestamp) == ("unknown", None, None)
    assert (lag.lag_records, lag.lag_ms) == (None, None)
    assert lag.note and f"{status}, so the end of the log is not known" in lag.note
    lag = lag_of([rows[0], bad], 55)
    assert (lag.result, lag.timestamp, lag.lag_ms) == ("found", None, None)
    assert lag.note and "so the end of the log is not known; " in lag.note
    assert lag.note.endswith(f"{status}, skipped")


def test_a_missing_log_does_not_end_the_partition(tmp_path: Path) -> None:
    row = ten_batches(tmp_path)
    (tmp_path / f"{0:020d}.log").unlink()

    lag = lag_of([row], 17, policies=KEPT_FOR_5_S)

    assert (lag.result, lag.timestamp, lag.lag_records, lag.lag_ms) == ("found", None, 33, None)
    assert lag.unread_expires_at_ms == 1_900 + 5_000 + 1
    assert lag.note and lag.note.startswith(f"{row.log_uri}: cannot be read: ")


@each_case("cut", (1, 40))
def test_a_log_shorter_than_in_the_catalog_does_not_end_the_partition(
    cut: int, tmp_path: Path
) -> None:
    row = ten_batches(tmp_path)
    log = tmp_path / f"{0:020d}.log"
    batch_bytes = len(log.read_bytes()) // 10
    log.write_bytes(log.read_bytes()[: -batch_bytes if cut == 1 else -cut])

    lag = lag_of([row], 47)

    assert (lag.result, lag.timestamp, lag.lag_records, lag.lag_ms) == ("found", None, 3, None)
    assert lag.note and "the rest was not read" in lag.note


EXPIRIES: dict[str, tuple[int, dict[str, Any], int | None]] = {
    "its own segment": (17, {"retention.ms": 5_000}, 1_900 + 5_001),
    "a later segment": (60, {"retention.ms": 5_000}, 101_900 + 5_001),
    "not before the one in front of it": (110, {"retention.ms": 5_000}, 101_900 + 5_001),
    "before the start: what is left": (0, {"retention.ms": 5_000}, 1_900 + 5_001),
    "by size at once": (17, {"retention.bytes": 1}, 0),
    "no limit": (17, {"retention.ms": -1}, None),
    "compacted": (17, {"retention.ms": 5_000, "cleanup.policy": "compact"}, None),
    "all is read": (160, {"retention.ms": 5_000}, None),
}


@each_case(("offset", "limits", "at"), EXPIRIES)
def test_when_what_is_unread_expires(offset: int, limits: Any, at: Any, tmp_path: Path) -> None:
    rows = [
        ten_batches(tmp_path, 10),
        ten_batches(tmp_path, 60, from_ms=101_000),  # ends at 109
        ten_batches(tmp_path, 110, from_ms=2_000),
    ]

    lag = lag_of(rows, offset, policies=Policies({"defaults": limits}))

    assert lag.unread_expires_at_ms == at


def test_retention_without_a_policy_and_what_if(tmp_path: Path) -> None:
    row = ten_batches(tmp_path)

    assert lag_of([row], 17).unread_expires_at_ms is None
    other = lag_of([row], 17, policies=KEPT_FOR_5_S, retention_ms=DAY_MS)
    assert other.unread_expires_at_ms == 1_900 + DAY_MS + 1
    assert lag_of([row], 17, retention_ms=DAY_MS).unread_expires_at_ms is None
