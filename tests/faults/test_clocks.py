"""Clocks that are wrong: of the machine that builds, between two builds; of a log's file.

Snapshots are ordered by number, so no clock decides which is the newest. Which times may hide a
change: `tests/builds/test_reuse.py`.
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


def test_a_clock_that_went_backwards_makes_the_later_build_the_newest_all_the_same(
    archive: ChangingArchive,
) -> None:
    """To 1970: a battery was empty."""
    catalog = Catalog.at(str(archive.catalog))
    first = catalog.require_newest()
    archive.now_ms = first.created_ms - 50 * YEAR_MS
    archive.write(archive.log(B), batches(0, 12))
    archive.write(archive.log(A, 20), batches(20, 3))

    summary = archive.build(offset_index=True)

    newest = catalog.require_newest()
    assert newest.name == summary.snapshot
    assert newest.sequence == first.sequence + 1
    assert newest.created_ms == first.created_ms - 50 * YEAR_MS
    assert catalog.named(first.name) == first
    assert (summary.kept, summary.failed, summary.dropped) == (0, 0, 0)
    assert archive.outcome() == archive.fresh(offset_index=True)

    archive.now_ms = first.created_ms + DAY_MS  # and it is set right again
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)
    assert archive.build(offset_index=True).reused == 3


def test_a_time_far_ahead_or_about_1970_does_not_cost_a_read_every_night(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    times_ms = (archive.now_ms + 10 * YEAR_MS, -1, 0, 1, -YEAR_MS)
    for number, modified_ms in enumerate(times_ms):
        age_ms = archive.now_ms - modified_ms
        archive.write(archive.log(f"t-{number}"), batches(0, 9), age_ms=age_ms)
        archive.write(archive.log(f"t-{number}", 40), b"", age_ms=age_ms)
    archive.build()
    for number, modified_ms in enumerate(times_ms):
        assert archive.row(f"t-{number}")["last_modified_ms"] == modified_ms
        assert archive.row(f"t-{number}", 40)["largest_timestamp"] == modified_ms
    assert archive.build().reused == 2 * len(times_ms)
