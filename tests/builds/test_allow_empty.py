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


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    make_archive(folder / "here/archive")
    build(folder / "here")
    shutil.copytree(folder / "here", folder / "kept")
    return folder


@pytest.fixture
def built(once: Path) -> Path:
    """Return an archive that was built, at the place that its catalog names."""
    shutil.rmtree(once / "here")
    shutil.copytree(once / "kept", once / "here")
    return once / "here"


def delete_all(folder: Path) -> None:
    for below in (folder / "archive").iterdir():
        shutil.rmtree(below)


def test_it_is_refused_unless_it_is_allowed_and_the_index_files_are_orphans(built: Path) -> None:
    delete_all(built)
    with pytest.raises(LocationError, match=NAMES_IT):
        build(built)
    catalog = open_catalog(built / "indexes/_catalog")
    assert [one.rows for one in catalog.snapshots()] == [13]

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


def test_nothing_else_is_allowed_by_it_and_no_line_proposes_it(built: Path, tmp_path: Path) -> None:
    with pytest.raises(LocationError) as misspelt:
        build(built, topics=("oders",))
    (tmp_path / "other").mkdir()
    with pytest.raises(LocationError) as first:
        build_index(tmp_path / "other", tmp_path / "new")
    assert NAMES_IT not in str(misspelt.value) + str(first.value)
    with pytest.raises(CatalogError, match="describes file:"):
        build_index(tmp_path / "other", built / "indexes", allow_empty=True)
    shutil.rmtree(built / "archive")
    with pytest.raises(LocationError, match="SOURCE does not exist"):
        build(built, allow_empty=True)


def test_a_build_counts_the_index_files_that_it_writes(built: Path) -> None:
    again = build_index(built / "archive", built / "indexes", full=True)
    assert (again.files_written, again.index_files) == (0, 12)
    with_offsets = build_index(built / "archive", built / "indexes", offset_index=True)
    assert with_offsets.index_files == 12 + with_offsets.files_written
    next((built / "indexes").rglob("*.index")).unlink()
    repaired = build_index(built / "archive", built / "indexes", offset_index=True)
    assert (repaired.files_written, repaired.index_files) == (1, with_offsets.index_files)
