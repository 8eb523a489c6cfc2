"""Clocks that are wrong: of the machine that builds, of the store, between two builds.

Snapshots are ordered by number, so no clock decides which is the newest; and a wrong clock makes a
build read more than it has to, never less.
"""

from pathlib import Path

import pytest

from kip33.catalog.catalog import Catalog
from tests.builders.changing_archive import DAY_MS, ChangingArchive, batches

A, B = "broker 1/a-0", "broker 1/b-0"
HOUR_MS = 3_600_000
YEAR_MS = 365 * DAY_MS


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Two segments, built at the right time."""
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 9))
    archive.write(archive.log(B), batches(0, 9))
    archive.build(offset_index=True)
    return archive


STEPS = [
    pytest.param(-1, id="1 ms"),
    pytest.param(-1_999, id="2 s"),
    pytest.param(-HOUR_MS, id="an hour: summer time ends"),
    pytest.param(-DAY_MS // 2, id="to when the segments were written"),
    pytest.param(-DAY_MS, id="a day"),
    pytest.param(-2 * DAY_MS, id="two days"),
    pytest.param(-50 * YEAR_MS, id="to 1970: a battery was empty"),
]


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_clock_that_went_backwards_makes_the_later_build_the_newest_all_the_same(
    archive: ChangingArchive, step_ms: int
) -> None:
    catalog = Catalog.at(str(archive.catalog))
    first = catalog.require_newest()
    archive.now_ms = first.created_ms + step_ms
    archive.write(archive.log(B), batches(0, 12))
    archive.write(archive.log(A, 20), batches(20, 3))

    summary = archive.build(offset_index=True)

    newest = catalog.require_newest()
    assert newest.name == summary.snapshot
    assert newest.sequence == first.sequence + 1
    assert newest.created_ms == first.created_ms + step_ms
    assert catalog.named(first.name) == first
    assert (summary.kept, summary.failed, summary.dropped) == (0, 0, 0)
    assert archive.outcome() == archive.fresh(offset_index=True)

    archive.now_ms = first.created_ms + DAY_MS  # and it is set right again
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)
    archive.build(offset_index=True)
    assert archive.build(offset_index=True).reused == 3


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_change_within_a_tick_is_seen_whatever_the_clock_says(
    archive: ChangingArchive, step_ms: int
) -> None:
    """The clock goes back to just after a segment was written, which then changes unseen."""
    archive.now_ms += step_ms
    archive.write(archive.log(A), batches(0, 9, first_ms=5), age_ms=100)
    archive.build(offset_index=True)
    archive.rewrite_unseen(archive.log(A), batches(0, 9, first_ms=6))
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)


@pytest.mark.parametrize("ahead_ms", [1, 1_999, 60_000, HOUR_MS, DAY_MS - 1])
def test_a_store_whose_clock_is_ahead_makes_builds_read_again(
    tmp_path: Path, ahead_ms: int
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 9), age_ms=-ahead_ms)
    archive.build()
    archive.now_ms -= DAY_MS
    assert archive.build().indexed == 1, "by this clock it is not written yet"
    archive.rewrite_unseen(archive.log(A), batches(0, 9, first_ms=5))
    archive.now_ms += DAY_MS
    archive.build()
    assert archive.outcome() == archive.fresh()
    archive.now_ms += DAY_MS
    assert archive.build().reused == 1


def test_a_time_set_far_ahead_does_not_cost_a_read_every_night(
    tmp_path: Path,
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 9), age_ms=-10 * YEAR_MS)
    archive.build()
    assert archive.build().reused == 1


@pytest.mark.parametrize("modified_ms", [-1, 0, 1, -YEAR_MS])
def test_times_about_1970(tmp_path: Path, modified_ms: int) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 9), age_ms=archive.now_ms - modified_ms)
    archive.write(archive.log(B), b"", age_ms=archive.now_ms - modified_ms)
    archive.build()
    assert archive.row(A)["last_modified_ms"] == modified_ms
    assert archive.row(B)["largest_timestamp"] == modified_ms
    assert archive.build().reused == 2


def test_two_builds_of_one_millisecond_are_two_snapshots(archive: ChangingArchive) -> None:
    for _ in range(3):
        archive.build(offset_index=True)
        archive.now_ms -= DAY_MS
    snapshots = Catalog.at(str(archive.catalog)).snapshots()
    assert [snapshot.sequence for snapshot in snapshots] == [1, 2, 3, 4]
    assert len({snapshot.created_ms for snapshot in snapshots[1:]}) == 1
    assert archive.outcome() == archive.fresh(offset_index=True)
