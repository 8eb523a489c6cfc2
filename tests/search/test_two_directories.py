"""Two directories of one partition, `t-0` and `t-00`: it is unknown whether they are one log."""

from pathlib import Path

import pytest

from kip33.builds.commit import warnings_of
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.names import two_directories_in
from kip33.rules.search import Exactness
from kip33.search.answers import SearchOptions
from kip33.search.failover import resume_points
from kip33.search.group_lag import group_lags
from kip33.search.replica_search import TimeQuestion, answers_of
from kip33.search.searched_segment import SearchedSegment
from tests.builders.catalog_rows import catalog_rows
from tests.builders.changing_archive import ChangingArchive, batches
from tests.builders.generated_segments import plain_batch, wire_of
from tests.builders.searched_segments import write_segment
from tests.cases import each_case

SAID = "are directories of the same partition"


def rows_in(folder: Path, *names: str) -> list[SearchedSegment]:
    """Return a segment of ten records in each of these directories."""
    rows = []
    for number, name in enumerate(names):
        (folder / name).mkdir()
        log = wire_of([plain_batch(100 * number, [1_000 + number] * 10)])
        rows.append(write_segment(folder / name, 100 * number, log))
    return rows


@pytest.fixture
def rows(tmp_path: Path) -> list[SearchedSegment]:
    return rows_in(tmp_path, "t-0", "t-00")


def test_a_build_names_the_two_directories(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for name in ("b/orders-0", "b/orders-1", "c/orders-0"):
        archive.write(archive.log(name), batches(0, 5))
    assert archive.build().two_directories == ()
    archive.write(archive.log("b/orders-00", 500), batches(500, 5))

    summary = archive.build()

    (pair,) = summary.two_directories
    one, other = (archive.log(f"b/orders-{number}").parent.as_uri() for number in ("0", "00"))
    assert pair == f"{one} and {other}"
    (warning,) = warnings_of(summary)
    assert warning.startswith(f"1 partition with two directories each, for example {pair}: ")


@each_case("target_ms", (1_000, 1_001, 9_999))
def test_a_search_is_unsure(target_ms: int, rows: list[SearchedSegment]) -> None:
    [found] = answers_of(catalog_rows(rows), [TimeQuestion("t", 0, target_ms)], SearchOptions())

    assert found.answer.exactness == Exactness.UNSURE
    assert SAID in (found.answer.note or "")


def test_the_lag_says_so(rows: list[SearchedSegment]) -> None:
    [lag] = group_lags({("t", 0): catalog_rows(rows)}, [GroupOffset("g", "t", 0, 5)], now_ms=9_999)

    assert SAID in (lag.note or "")


def test_a_failover_from_or_to_it_has_no_guarantee(
    tmp_path: Path, rows: list[SearchedSegment]
) -> None:
    (tmp_path / "other").mkdir()
    doubled = {("t", 0): catalog_rows(rows)}
    plain = {("t", 0): catalog_rows(rows_in(tmp_path / "other", "t-0"))}
    for first, second in ((doubled, plain), (plain, doubled)):
        [point] = resume_points(first, second, [GroupOffset("g", "t", 0, 5)], buffer_ms=0)
        assert point.guarantee is None
        assert SAID in (point.note or "")
    [point] = resume_points(plain, plain, [GroupOffset("g", "t", 0, 5)], buffer_ms=0)
    assert (point.note, point.guarantee is None) == (None, False)


def test_only_directories_of_one_partition_count() -> None:
    assert two_directories_in(["a/t-0", "a/t-1", "a/t-10", "a/2024", "a/u-0"]) is None
    assert two_directories_in(["a/t-1", "a/t-01"]) == ("a/t-01", "a/t-1")
    assert two_directories_in(["a/t-1", "a/t-01.0f-delete"]) is None
