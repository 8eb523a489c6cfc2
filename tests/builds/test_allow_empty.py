"""A build after all segments were deleted on purpose, and one whose SOURCE is only not there."""

import shutil
from pathlib import Path

import pytest

from kip33.errors import CatalogError, LocationError
from tests.builders.changing_archive import (
    CLICKS,
    ORDERS,
    ChangingArchive,
    batches,
    built_archive,
)

NAMES_IT = "make SOURCE complete, or give --allow-empty if all were deleted on purpose"


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Return four segments with eight index files."""
    return built_archive(tmp_path / "here")


def test_it_is_refused_unless_it_is_allowed_and_the_index_files_are_orphans(
    archive: ChangingArchive,
) -> None:
    shutil.rmtree(archive.source / "b1")
    with pytest.raises(LocationError, match=NAMES_IT):
        archive.build(offset_index=True)
    assert len(archive.rows()) == 4

    emptied = archive.build(offset_index=True, allow_empty=True)

    assert (emptied.segments, emptied.dropped, emptied.orphaned) == (0, 4, 8)
    assert archive.rows() == []

    for partition in (ORDERS, CLICKS):
        for base_offset in (0, 40):
            archive.write(archive.log(partition, base_offset), batches(base_offset, 20))
    back = archive.build(offset_index=True)
    assert (back.segments, back.orphaned) == (4, 0)
    assert (back.index_files, back.files_written) == (8, 0), "ours, and still right"


def test_nothing_else_is_allowed_by_it_and_no_line_proposes_it(
    archive: ChangingArchive, tmp_path: Path
) -> None:
    other = ChangingArchive(tmp_path / "other")
    other.source.mkdir(parents=True)
    with pytest.raises(LocationError) as misspelt:
        archive.build(topics=("oders",))
    with pytest.raises(LocationError) as first:
        other.build()
    assert NAMES_IT not in str(misspelt.value) + str(first.value)
    other.index_dir, other.catalog = archive.index_dir, archive.catalog
    with pytest.raises(CatalogError, match="describes file:"):
        other.build(allow_empty=True)
    shutil.rmtree(archive.source)
    with pytest.raises(LocationError, match="SOURCE does not exist"):
        archive.build(allow_empty=True)


def test_a_build_counts_the_index_files_that_it_writes(archive: ChangingArchive) -> None:
    again = archive.build(offset_index=True, full=True)
    assert (again.files_written, again.index_files) == (0, 8)
    archive.index(ORDERS).with_suffix(".index").unlink()
    repaired = archive.build(offset_index=True)
    assert (repaired.files_written, repaired.index_files) == (1, 8)
