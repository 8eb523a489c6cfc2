"""Times in segments whose `.timeindex` lost its last entries, though `--read tail` trusted it.

Middle segments lost them to damage; the last one also where its log went on after the index was
closed: a copy of a log that was being written, or an upload that was done again for the log only.
What is expected comes from a build that reads every log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kip33
from tests.builders.changing_archive import START_MS, ChangingArchive, batches

A = "a-0"
STEP_MS = 7
BASES = (0, 20, 40)


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Return three segments of ten batches, times rising through all of them."""
    archive = ChangingArchive(tmp_path)
    for base in BASES:
        log = batches(base, 10, first_ms=START_MS + base * STEP_MS, step_ms=STEP_MS)
        archive.write(archive.log(A, base), log)
    return archive


def put_indexes(archive: ChangingArchive, lost: int, bases: Sequence[int]) -> None:
    """Put a broker's `.timeindex` beside these logs; each lost its last entries."""
    for base in bases:
        log = archive.log(A, base)
        built = kip33.build_time_index(log, index_interval_bytes=100)
        data = built.time_index.to_bytes()
        log.with_suffix(".timeindex").write_bytes(data[: len(data) - 12 * lost])


def build_by_tails(archive: ChangingArchive, lost: int, bases: Sequence[int] = BASES[:-1]) -> None:
    """Build another catalog that trusts these brokers' indexes."""
    archive.catalog = archive.folder / "another catalog"
    archive.index_dir = archive.folder / "other indexes"
    put_indexes(archive, lost, bases)
    archive.build(read="tail")


def answers(archive: ChangingArchive, **how: Any) -> list[dict[str, Any]]:
    times = range(START_MS - 1, START_MS + (BASES[-1] + 11) * STEP_MS, 3)
    opened = kip33.open_catalog(archive.catalog)
    asked = [("a", 0, time) for time in times] + [("a", 0, "max-timestamp")]
    return opened.offsets_for_times(asked, **how).to_pylist()


def found(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["target_ms"], row["offset"], row["timestamp"], row["result"]) for row in rows]


@pytest.mark.parametrize("bases", [BASES[:-1], BASES], ids=["middle", "last too"])
@pytest.mark.parametrize("lost", [0, 2])
def test_answers_are_those_of_a_build_that_read_the_logs(
    archive: ChangingArchive, lost: int, bases: Sequence[int]
) -> None:
    archive.build()
    expected = found(answers(archive))
    build_by_tails(archive, lost, bases)
    statuses = ["unverified" if base in bases else "ok" for base in BASES]
    assert [archive.row(A, base)["status"] for base in BASES] == statuses
    assert found(answers(archive)) == expected


@pytest.mark.parametrize("how", [{"index_only": True}, {"as_kafka": True}], ids=["index", "kafka"])
def test_where_the_indexes_are_believed_a_late_answer_is_marked(
    archive: ChangingArchive, how: dict[str, Any]
) -> None:
    archive.build()
    expected = answers(archive)
    build_by_tails(archive, 2)
    late = [
        row
        for row, right in zip(answers(archive, **how), expected, strict=True)
        if right["offset"] is not None
        and (row["offset"] is None or row["offset"] > right["offset"])
        and row["target_ms"] >= 0
    ]
    assert late and all(row["passed_over"] for row in late)
    assert "unverified" in late[0]["note"]


def test_with_a_stale_last_index_no_promise_is_late(archive: ChangingArchive) -> None:
    archive.build()
    expected = answers(archive)
    build_by_tails(archive, 2, BASES[-1:])
    assert archive.row(A, BASES[-1])["status"] == "unverified"
    for row, right in zip(answers(archive, index_only=True), expected, strict=True):
        if right["offset"] is not None and row["target_ms"] >= 0:
            assert row["offset"] is not None and row["offset"] <= right["offset"]


@pytest.mark.parametrize(
    ("bases", "version"), [(BASES[-1:], "3.7"), (BASES[:1], "4.0")], ids=["last", "first"]
)
def test_as_kafka_every_wrong_answer_is_marked(
    archive: ChangingArchive, bases: Sequence[int], version: str
) -> None:
    archive.build()
    expected = answers(archive, as_kafka=version)
    build_by_tails(archive, 2, bases)
    assert {archive.row(A, base)["status"] for base in bases} == {"unverified"}
    rows = answers(archive, as_kafka=version)
    wrong = [
        row
        for row, right in zip(rows, expected, strict=True)
        if (row["offset"], row["timestamp"]) != (right["offset"], right["timestamp"])
    ]
    assert wrong and all(row["exactness"] == "unsure" for row in wrong)
    assert all("unverified" in row["note"] for row in wrong)
