"""KIP-33's migration rule: closed segments without timestamps get an entry with their file's time.

Nights of builds notice when the file's time, the next segment or the last segment is another one.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.formats.time_index import TimeIndex
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.local.local_engine import LocalEngine
from kip33.rules.index_builder import IndexSettings
from kip33.rules.untimestamped import Untimestamped, entry_offset, rule_of
from kip33.search.answers import Answer, SearchOptions
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import segment_of
from tests.builders.changing_archive import DAY_MS, START_MS, ChangingArchive, batches
from tests.builders.segment_builder import segment, v0_message
from tests.long_forms import one_in

PART = "orders-0"
NEXT, FIRST = Untimestamped.NEXT_BASE_OFFSET, Untimestamped.FIRST_OFFSET


def old_messages(base: int, count: int = 4) -> bytes:
    return segment(v0_message(base + number, value=b"v") for number in range(count))


def four_segments(folder: Path) -> ChangingArchive:
    """Return two old segments without timestamps and two newer ones; the last is of v0, too."""
    archive = ChangingArchive(folder)
    archive.write(archive.log(PART, 10), old_messages(10, 10))
    archive.write(archive.log(PART, 20), old_messages(20, 10))
    archive.write(archive.log(PART, 30), batches(30, 10))
    archive.write(archive.log(PART, 40), old_messages(40))
    return archive


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    return four_segments(tmp_path)


def entries(archive: ChangingArchive) -> dict[int, list[tuple[int, int]]]:
    """Return the entries of all indexes that are not of the segment with timestamps."""
    return {
        base: [tuple(entry) for entry in TimeIndex.from_bytes(path.read_bytes(), base_offset=base)]
        for path in sorted((archive.index_dir or archive.source).rglob("*.timeindex"))
        if (base := int(path.stem)) != 30
    }


def modified_ms(archive: ChangingArchive, base: int) -> int:
    return archive.log(PART, base).stat().st_mtime_ns // 1_000_000


OFFSETS: dict[str, dict[int, list[int]]] = {
    NEXT: {10: [20], 20: [30], 40: []},
    FIRST: {10: [10], 20: [20], 40: []},
    Untimestamped.NONE: {10: [], 20: [], 40: []},
}


def test_each_text_of_the_kip_names_its_offset_and_the_last_segment_has_none(
    archive: ChangingArchive, subtests: pytest.Subtests
) -> None:
    """Builds of one catalog: another rule reads the logs again."""
    for rule, offsets in OFFSETS.items():
        with subtests.test(str(rule)):
            archive.build(untimestamped=rule)
            assert entries(archive) == {
                base: [(modified_ms(archive, base), offset) for offset in some]
                for base, some in offsets.items()
            }
            rows = archive.rows()
            assert [row["time_index_entries"] for row in rows][:2] == [len(offsets[10])] * 2
            sources = {row["largest_timestamp_source"] for row in rows if row["magics"] == [0]}
            assert sources == {"last_modified"}, "the time stays one of a file"
            fresh = archive.fresh(untimestamped=rule)
            assert archive.outcome().files == fresh.files
            archive.build(untimestamped=rule, only_damaged=True)
            assert archive.outcome().files == fresh.files, "an index with its entry is not damaged"
            assert rows[0]["file_time_offset"] == (offsets[10] or [None])[0]
            assert {row["file_time_offset"] for row in rows[2:]} == {None}


def test_the_offset_of_the_entry(subtests: pytest.Subtests) -> None:
    largest = 10 + 2**31 - 1  # whose relative offset is an int32
    for name, following, time_ms, offset in (
        ("of the next segment", 20, 1000, 20),
        ("the last segment", None, 1000, None),
        ("an entry of zeros would be padding", 20, 0, None),
        ("before 1970", 20, -5, None),
        ("the largest relative offset", largest, 1000, largest),
        ("beyond int32", largest + 1, 1000, None),
    ):
        with subtests.test(name):
            assert entry_offset(NEXT, 10, following, time_ms) == offset
            assert entry_offset(Untimestamped.NONE, 10, following, time_ms) is None


def test_the_names_of_the_rules() -> None:
    assert rule_of("entry") == NEXT
    with pytest.raises(ValueError, match="expected one of none, next-base-offset"):
        rule_of("last")


CHANGES: dict[str, Callable[[ChangingArchive], object]] = {
    "touched": lambda a: a.touch(a.log(PART, 10), age_ms=3 * DAY_MS),
    "the next deleted": lambda a: a.log(PART, 20).unlink(),
    "another next": lambda a: a.write(a.log(PART, 15), old_messages(15)),
    "the last closed": lambda a: a.write(a.log(PART, 50), batches(50, 2)),
    "the last again": lambda a: [a.log(PART, base).unlink() for base in (30, 40)],
}


@pytest.mark.parametrize("rule", one_in(2, [NEXT, FIRST]))
def test_the_next_build_ends_as_one_that_reads_everything(
    tmp_path: Path, rule: str, subtests: pytest.Subtests
) -> None:
    for name, change in CHANGES.items():
        with subtests.test(name):
            archive = four_segments(tmp_path / name)
            archive.build(untimestamped=rule)
            change(archive)
            archive.build(untimestamped=rule)
            kept = {path.stem for path in archive.source.rglob("*.log")}
            before = archive.outcome()
            files = {name: data for name, data in before.files.items() if Path(name).stem in kept}
            assert files == archive.fresh(untimestamped=rule).files
            assert archive.build(untimestamped=rule).indexed == 0, "the one after reads nothing"
            assert archive.outcome() == before


def test_in_place_is_refused(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path, in_place=True)
    archive.write(archive.log(PART, 10), old_messages(10, 10))
    with pytest.raises(ValueError, match="no broker writes entries for logs without timestamps"):
        archive.plan(untimestamped=NEXT)


def verdicts(archive: ChangingArchive, rule: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    settings = IndexSettings(index_interval_bytes=200, untimestamped=rule)
    plan = plan_verify(str(archive.source), str(archive.index_dir), settings=settings)
    found = [*execute_verify(plan, LocalEngine(1))]
    return {int(Path(one.log_uri).stem): (one.verdict, one.problems) for one in found}


def test_verify_knows_the_entry_with_the_rule_and_says_what_it_may_be_without(
    archive: ChangingArchive,
) -> None:
    archive.build(untimestamped=NEXT)
    assert {verdict for verdict, _ in verdicts(archive, NEXT).values()} == {"identical"}
    found = verdicts(archive, "none")
    assert [verdict for verdict, _ in found.values()] == ["wrong"] * 2 + ["identical"] * 2
    assert "is this a file of build --untimestamped" in found[10][1][-1]
    os.utime(archive.log(PART, 10))
    assert verdicts(archive, NEXT)[10][0] == "wrong", "the file has another time"


def answers(archive: ChangingArchive, *times: int, **how: Any) -> list[Answer]:
    return search_partition([*map(segment_of, archive.rows())], times, SearchOptions(**how))


def test_search_finds_the_same_and_names_the_time_that_is_not_trusted(
    archive: ChangingArchive,
) -> None:
    archive.build(untimestamped="none")
    without = [answers(archive, START_MS, index_only=only)[0] for only in (False, True)]
    archive.build(untimestamped=NEXT)
    for index_only in (False, True):
        [answer] = answers(archive, START_MS, index_only=index_only)
        assert answer[1:6] == without[index_only][1:6], "the entry changes no answer"
        assert without[index_only].note is None
        for base in (10, 20):
            said = f"records from offset {base} on have no timestamps; the log file's time, "
            assert said + f"{modified_ms(archive, base)}, is late enough" in (answer.note or "")
    [answer] = answers(archive, archive.now_ms)
    assert answer.note is None, "the files are older than that time"


def test_a_tail_of_another_catalogs_index_is_not_trusted(archive: ChangingArchive) -> None:
    """Else a file's time would be taken for the timestamp of a record."""
    archive.build(untimestamped=NEXT)
    archive.catalog = archive.folder / "another"
    archive.build(read="tail")
    assert archive.row(PART, 10)["max_timestamp"] == -1
