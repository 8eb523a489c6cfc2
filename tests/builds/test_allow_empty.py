"""A build after all segments were deleted on purpose, and one whose SOURCE is only not there."""

import shutil
from pathlib import Path

import pytest

from kip33 import BuildSummary, CatalogError, LocationError, build_index, open_catalog
from kip33.demo import make_archive

NAMES_IT = "make SOURCE complete, or give --allow-empty if all were deleted on purpose"


def build(folder: Path, *, allow_empty: bool = False, topics: tuple[str, ...] = ()) -> BuildSummary:
    return build_index(
        folder / "archive", folder / "indexes", allow_empty=allow_empty, topics=topics
    )


@pytest.fixture
def built(tmp_path: Path) -> Path:
    make_archive(tmp_path / "archive")
    build(tmp_path)
    return tmp_path


def delete_all(folder: Path) -> None:
    for below in (folder / "archive").iterdir():
        shutil.rmtree(below)


def test_it_is_refused_and_the_line_says_how_it_is_done(built: Path) -> None:
    delete_all(built)
    with pytest.raises(LocationError, match=NAMES_IT):
        build(built)
    assert [one.rows for one in open_catalog(built / "indexes/_catalog").snapshots()] == [13]


def test_with_allow_empty_the_snapshot_has_no_rows_and_the_index_files_are_orphans(
    built: Path,
) -> None:
    delete_all(built)
    emptied = build(built, allow_empty=True)
    assert (emptied.segments, emptied.dropped, emptied.orphaned) == (0, 13, 12)
    catalog = open_catalog(built / "indexes/_catalog")
    assert (catalog.segments().num_rows, catalog.topics()) == (0, [])


def test_logs_that_come_back_are_built_again(built: Path) -> None:
    delete_all(built)
    build(built, allow_empty=True)
    make_archive(built / "archive")
    back = build(built)
    assert (back.segments, back.orphaned) == (13, 0)
    assert (back.index_files, back.files_written) == (12, 0)  # ours, and still right


def test_a_source_that_does_not_exist_is_refused_all_the_same(built: Path) -> None:
    shutil.rmtree(built / "archive")
    with pytest.raises(LocationError, match="SOURCE does not exist"):
        build(built, allow_empty=True)


def test_no_line_proposes_it_where_something_else_is_wrong(built: Path, tmp_path: Path) -> None:
    with pytest.raises(LocationError) as misspelt:
        build(built, topics=("oders",))
    (tmp_path / "other").mkdir()
    with pytest.raises(LocationError) as first:
        build_index(tmp_path / "other", tmp_path / "new")
    assert NAMES_IT not in str(misspelt.value) + str(first.value)


def test_another_source_is_refused(built: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(CatalogError, match="describes file:"):
        build_index(tmp_path / "other", built / "indexes", allow_empty=True)


def test_a_build_counts_the_index_files_that_it_writes(built: Path) -> None:
    again = build_index(built / "archive", built / "indexes", full=True)
    assert (again.files_written, again.index_files) == (0, 12)
    with_offsets = build_index(built / "archive", built / "indexes", offset_index=True)
    assert with_offsets.index_files == 12 + with_offsets.files_written
    next((built / "indexes").rglob("*.index")).unlink()
    repaired = build_index(built / "archive", built / "indexes", offset_index=True)
    assert (repaired.files_written, repaired.index_files) == (1, with_offsets.index_files)
