"""Results on disk: where they may go, what they replace, and when they count as whole."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from pyarrow import parquet as pq

from kip33.errors import LocationError, PublishError
from kip33.retention import evaluated_tables as output_folder
from kip33.retention.evaluated_tables import (
    SUMMARY_FILE,
    UNFINISHED,
    TableWriter,
    remove_results,
    require_results_place,
    write_summary,
)
from kip33.stores.locations import Location
from tests.cases import each_case


def put(folder: Path, *names: str) -> None:
    """Make files; what ends in a slash is a folder."""
    for name in names:
        place = folder / name
        if name.endswith("/"):
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(OURS if name == SUMMARY_FILE else f"this is {name}")


def all_in(folder: Path) -> dict[str, str | None]:
    """Return what is below a folder, with the text of the files."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


PART = "part-00000-01234567-89ab-cdef-0123-456789abcdef-c000.snappy.parquet"  # as Spark names it
RESULTS = (f"segments/{PART}", "segments/_SUCCESS", f"partitions/{PART}")
OURS = '{"catalog": 1, "snapshot": 2, "source": 3, "now_ms": 4, "findings": []}\n'
TOKEN = f"{'0f' * 16}.tmp"
GOOD = {
    "nothing is there": (),
    "an empty folder": ("",),
    "results of before": (*RESULTS, SUMMARY_FILE),
    "results of a run that was interrupted": (*RESULTS[:2], UNFINISHED),
    "a summary alone": (SUMMARY_FILE,),
    "temporary files of a run that was killed": (
        UNFINISHED,
        f".{SUMMARY_FILE}.{TOKEN}",
        *(RESULTS[:2]),
        f"segments/.{PART}.{TOKEN}",
        f"segments/._SUCCESS.{TOKEN}",
    ),
    "the first file of a run that was killed": (f".{UNFINISHED}.{TOKEN}",),
}


def test_a_folder_for_results(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (name, names) in enumerate(GOOD.items()):
        with subtests.test(name):
            folder = tmp_path / str(number)
            folder.mkdir()
            folder = folder / "out"
            put(folder, *(name or "./" for name in names))

            before = all_in(folder)

            require_results_place(Location.of(folder))

            marked = all_in(folder)
            assert UNFINISHED in marked
            assert before.items() - {(UNFINISHED, f"this is {UNFINISHED}")} <= marked.items(), (
                "all stays"
            )
            remove_results(Location.of(folder))
            assert [path.name for path in folder.iterdir()] == [UNFINISHED], "results of before go"


def test_results_that_nothing_marks_as_ours_stay(tmp_path: Path) -> None:
    put(tmp_path, *RESULTS)
    before = all_in(tmp_path)
    with pytest.raises(LocationError, match=r"but no summary\.json"):
        require_results_place(Location.of(tmp_path))
    assert all_in(tmp_path) == before


FOREIGN = {
    "a file": "precious.txt",
    "a folder": "orders-0/",
    "a hidden file": ".keep",
    "a table of another command": f"records/{PART}",
    "a name that is longer": "segments-of-may/",
    "a temporary file of another": ".segments.tmp",
}


def test_a_folder_with_something_else_is_left_as_it_is(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (name, name) in enumerate(FOREIGN.items()):
        with subtests.test(name):
            folder = tmp_path / str(number)
            folder.mkdir()
            folder = folder / "out"
            put(folder, name, *RESULTS, SUMMARY_FILE)
            before = all_in(folder)

            with pytest.raises(LocationError) as raised:
                require_results_place(Location.of(folder))

            assert str(raised.value) == (
                f"{Location.of(folder).uri}: contains {name.split('/')[0]}, which is not a result "
                "of this command; give a separate folder"
            )
            assert all_in(folder) == before


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    put(tmp_path, "out")
    with pytest.raises(LocationError, match=r"/out: cannot be written: .*; fix it or choose"):
        require_results_place(Location.of(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "this is out"


OF_OTHERS = {
    "verify": {"segments": 3, "by_verdict": {}},
    "build": {"snapshot": "1", "catalog": "file:///c", "by_status": {}},
    "an apply": {"plan_id": "1", "run_id": "2", "dry_run": False, "journal": None},
    "no object": [],
}


@each_case("summary", OF_OTHERS)
def test_the_summary_of_another_command_says_nothing_of_a_table(
    summary: Any, tmp_path: Path
) -> None:
    put(tmp_path, *RESULTS)
    (tmp_path / SUMMARY_FILE).write_text(json.dumps(summary))
    before = all_in(tmp_path)
    with pytest.raises(LocationError, match=r"summary\.json: a file that --output did not write"):
        require_results_place(Location.of(tmp_path))
    assert all_in(tmp_path) == before


@each_case("name", ("segments/orders-0/00000000000000000000.log", "segments/x.csv"))
def test_an_archive_named_as_a_result_is_no_result(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    with pytest.raises(LocationError):
        require_results_place(Location.of(tmp_path))


class Disk:
    """The local disk, without room for another byte."""

    def __init__(self, fault: str) -> None:
        self._local, self._fault = fs.LocalFileSystem(), fault

    def __getattr__(self, name: str) -> Any:
        if name == self._fault:
            return self._fail
        return getattr(self._local, name)

    def _fail(self, *_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let one operation of the disk fail from now on."""

    def fail(operation: str) -> None:
        monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: Disk(operation))

    return fail


def test_a_summary_that_cannot_go_is_one_line(tmp_path: Path, disk: Any) -> None:
    put(tmp_path, SUMMARY_FILE)
    disk("delete_file")
    with pytest.raises(PublishError, match="cannot be written: No space left on device; fix it"):
        remove_results(Location.of(tmp_path))


def test_the_summary_is_one_json_object(tmp_path: Path) -> None:
    summary = {"segments": 3, "suspicions": {"future": 1}, "catalog": "file:///é", "none": None}
    write_summary(Location.of(tmp_path / "out"), summary)
    text = (tmp_path / "out" / SUMMARY_FILE).read_text()
    assert json.loads(text) == summary
    assert text.endswith("}\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [SUMMARY_FILE]


def test_a_summary_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, *RESULTS, SUMMARY_FILE)
    require_results_place(Location.of(tmp_path))
    remove_results(Location.of(tmp_path))
    before = all_in(tmp_path)
    monkeypatch.setattr("kip33.stores.own_files.write_new", Disk("")._fail)
    with pytest.raises(PublishError, match="the results have no summary: fix it and run"):
        write_summary(Location.of(tmp_path), {})
    assert all_in(tmp_path) == before


def write_tables(folder: Location, tables: list[pa.Table]) -> None:
    writer = TableWriter(folder, "segments")
    for table in tables:
        writer.add(table)
    writer.end()


def rows(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64()), "text": ["é"] * count})


@each_case("name", ("out", "two words", "100%", "a%20b", "x#y&z=1", "[1]", "wh?t"))
def test_a_table_is_written_where_it_was_asked_for(name: str, tmp_path: Path) -> None:
    write_tables(Location.of(tmp_path / name), [rows(3), rows(2)])
    assert pq.read_table(tmp_path / name / "segments")["id"].to_pylist() == [0, 1, 2, 0, 1]


def test_a_large_table_has_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_folder, "RESULT_ROWS_PER_PART", 5)
    write_tables(Location.of(tmp_path), [rows(3), rows(2), rows(4), rows(9)])
    parts = sorted((tmp_path / "segments").glob("part-*"))
    assert [pq.read_metadata(part).num_rows for part in parts] == [5, 4, 5, 4]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    write_tables(Location.of(tmp_path), [rows(0)])
    assert pq.read_table(tmp_path / "segments").column_names == ["id", "text"]


def test_a_table_that_cannot_be_written_leaves_no_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, *RESULTS, SUMMARY_FILE)
    require_results_place(Location.of(tmp_path))
    remove_results(Location.of(tmp_path))
    monkeypatch.setattr("kip33.stores.own_files.write_new", Disk("")._fail)
    with pytest.raises(PublishError, match="the results are incomplete"):
        write_tables(Location.of(tmp_path), [rows(3)])
    assert not (tmp_path / SUMMARY_FILE).exists()
