"""A build that writes rows only: `--no-index-files`."""

from pathlib import Path
from typing import Any

import pytest

from kip33.builds import small_logs
from kip33.builds.build_options import BuildOptions, BuildRequest, require_valid
from kip33.errors import CatalogError
from kip33.formats.index_kinds import IndexKind
from kip33.formats.native import is_ready
from kip33.options import picked, with_defaults
from kip33.rules.group_scan import scan_logs
from tests.builders.changing_archive import ORDERS, ChangingArchive, batches, built_archive
from tests.builds.test_small_logs import ALONE, write_archive
from tests.cases import each_case

OF_FILES = {"index_file", "index_uri", "index_error", "file_time_offset"} | {
    f"{kind}_{what}" for kind in IndexKind for what in ("bytes", "modified_ms", "matches", "crc32c")
}


def without_files(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the columns that tell of index files."""
    return [{name: row[name] for name in row.keys() - OF_FILES} for row in rows]


@pytest.mark.parametrize("least_rows", [1, ALONE], ids=["together", "one by one"])
def test_its_rows_are_those_of_a_build_with_files_but_for_the_files(
    least_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if least_rows == 1 and not is_ready(scan_logs):
        pytest.skip("there is no shared library for this CPU: logs are not grouped")
    monkeypatch.setattr(small_logs, "LEAST_ROWS", least_rows)
    archive = ChangingArchive(tmp_path)
    write_archive(archive, seed=5)
    with_files = archive.fresh().rows

    summary = archive.build(index_files=False)

    rows = archive.rows()
    assert without_files(rows) == without_files(with_files)
    states = {row["index_file"] for row in rows if row["time_index_entries"] is not None}
    assert states == {"none"}
    assert (summary.failed, summary.files_written, summary.index_bytes) == (0, 0, 0)
    assert summary.without_index_files == sum(row["index_file"] == "none" for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog", "source"]
    assert not [*archive.catalog.rglob("*index*")]


def test_the_next_build_reuses_its_rows_and_one_with_files_reads_all_logs(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for base_offset in (0, 40, 80):
        archive.write(archive.log(ORDERS, base_offset), batches(base_offset, 20))
    archive.build(index_files=False)
    archive.write(archive.log(ORDERS, 120), batches(120, 20))
    assert archive.build(index_files=False).indexed == 1

    with_files = archive.build(offset_index=True)

    assert (with_files.indexed, with_files.files_written) == (4, 8)
    assert with_files.without_index_files == 0
    assert archive.outcome() == archive.fresh(offset_index=True)
    with pytest.raises(CatalogError, match=f"into {archive.index_root.as_uri()}: give --index-dir"):
        archive.build(index_files=False)


def test_a_file_that_is_there_before_the_first_build_with_files_stays(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(ORDERS), batches(0, 20))
    archive.build(index_files=False)
    archive.index(ORDERS).parent.mkdir(parents=True)
    archive.index(ORDERS).write_bytes(b"of another")
    archive.build()
    assert archive.index(ORDERS).read_bytes() == b"of another"
    assert archive.row(ORDERS)["index_file"] == "kept"


def test_a_catalog_of_an_earlier_kip33_that_does_not_name_its_files_is_refused(
    tmp_path: Path,
) -> None:
    archive = built_archive(tmp_path)
    (commit,) = (archive.catalog / "commits").iterdir()
    commit.write_text(commit.read_text().replace('"index_dir"', '"unknown"'))
    with pytest.raises(CatalogError, match="wrote index files into an index directory"):
        archive.build(index_files=False)


@each_case(
    ("options", "left_out"),
    (
        ({"index_dir": "i"}, "leave out --index-dir"),
        ({"in_place": True}, "leave out --in-place"),
        ({"offset_index": True}, "leave out --offset-index"),
        ({"overwrite": True}, "leave out --overwrite"),
        ({"only_damaged": True}, "leave out --only damaged"),
        ({"read": "tail"}, "leave out --read tail"),
        ({"catalog": None}, "requires a catalog"),
    ),
)
def test_options_of_index_files_are_refused(options: dict[str, Any], left_out: str) -> None:
    asked: dict[str, Any] = {"source": "s", "index_dir": None, "catalog": "c"} | options
    given = with_defaults(BuildOptions, {"index_files": False} | asked)
    with pytest.raises(ValueError, match=f"^--no-index-files.*{left_out}"):
        require_valid(picked(BuildRequest, given | asked))
