"""Results on disk: where they may go, what they replace, and when they count as whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyarrow import parquet as pq
from pyspark.sql import functions as sf

from kip33.errors import LocationError, PublishError
from kip33.spark.result_folder import (
    SUMMARY_FILE,
    UNFINISHED,
    require_results_place,
    write_summary,
    written,
)
from kip33.stores.locations import Location

pytestmark = pytest.mark.spark

TABLES = ("segments", "partitions")


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
GOOD = {
    "nothing is there": (),
    "an empty folder": ("",),
    "results of before": (*RESULTS, SUMMARY_FILE),
    "results of a run that was interrupted": (*RESULTS[:2], UNFINISHED),
    "a summary alone": (SUMMARY_FILE,),
}


@pytest.mark.parametrize("names", GOOD.values(), ids=GOOD)
def test_a_folder_for_results(names: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    put(folder, *(name or "./" for name in names))

    require_results_place(Location.of(folder), TABLES)

    assert [path.name for path in folder.iterdir()] == [UNFINISHED], "results of before go"


def test_results_that_nothing_marks_as_ours_stay(tmp_path: Path) -> None:
    put(tmp_path, *RESULTS)
    before = all_in(tmp_path)
    with pytest.raises(LocationError, match=r"but no summary\.json"):
        require_results_place(Location.of(tmp_path), TABLES)
    assert all_in(tmp_path) == before


FOREIGN = {
    "a file": "precious.txt",
    "a folder": "orders-0/",
    "a hidden file": ".keep",
    "a table of another command": f"freed/{PART}",
    "a name that is longer": "segments-of-may/",
}


@pytest.mark.parametrize("name", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_with_something_else_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    put(folder, name, *RESULTS, SUMMARY_FILE)
    before = all_in(tmp_path)

    with pytest.raises(LocationError) as raised:
        require_results_place(Location.of(folder), TABLES)

    assert str(raised.value) == (
        f"{Location.of(folder).uri}: contains {name.split('/')[0]}, which is not a result of this "
        "command; give a separate folder"
    )
    assert all_in(tmp_path) == before


def test_of_several_things_the_first_is_named(tmp_path: Path) -> None:
    put(tmp_path, "zebra", "apple", "partitions/x")
    with pytest.raises(LocationError, match="contains apple, which"):
        require_results_place(Location.of(tmp_path), TABLES)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    put(tmp_path, "out")
    with pytest.raises(LocationError, match=r"/out: cannot be written: .*; fix it or choose"):
        require_results_place(Location.of(tmp_path / "out"), TABLES)
    assert (tmp_path / "out").read_text() == "this is out"


@pytest.mark.parametrize("name", ["segments/orders-0/00000000000000000000.log", "segments/x.csv"])
def test_an_archive_named_as_a_result_is_no_result(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    with pytest.raises(LocationError):
        require_results_place(Location.of(tmp_path), TABLES)


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
    with pytest.raises(LocationError, match="cannot be written: No space left on device; fix it"):
        require_results_place(Location.of(tmp_path), TABLES)


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
    require_results_place(Location.of(tmp_path), TABLES)
    before = all_in(tmp_path)
    monkeypatch.setattr("kip33.stores.files.write_new", Disk("")._fail)
    with pytest.raises(PublishError, match="the results have no summary: fix it and run"):
        write_summary(Location.of(tmp_path), {})
    assert all_in(tmp_path) == before


def rows(spark: Any, count: int) -> Any:
    """Return a table with every kind of column that results have."""
    return spark.range(count).select(
        "id",
        sf.concat(sf.lit("é-"), "id").alias("text"),
        sf.array(sf.col("id"), sf.lit(7)).alias("list"),
        sf.create_map(sf.lit("future"), "id").alias("map"),
        sf.lit(None).cast("bigint").alias("null"),
        (sf.col("id") > 1).alias("flag"),
    )


def plain(table: Any) -> list[Any]:
    return sorted(table.collect(), key=lambda row: row.id)


PLAIN_NAMES = ["out", "two words", "100%", "a%20b", "x#y&z=1", "é", "a+b,c;d@e", "~", "-"]
GLOBS = ["[1]", "{a,b}", "st*r", "wh?t", "back\\slash"]


@pytest.mark.parametrize("name", [*PLAIN_NAMES, *GLOBS])
def test_a_table_is_written_where_it_was_asked_for(name: str, spark: Any, tmp_path: Path) -> None:
    table = rows(spark, 3)

    found = written(spark, Location.of(tmp_path / name), "segments", table)

    assert plain(found) == plain(table)
    assert found.dtypes == table.dtypes
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert pq.read_table(tmp_path / name / "segments").num_rows == 3


def test_a_table_replaces_the_one_of_before(spark: Any, tmp_path: Path) -> None:
    out = Location.of(tmp_path)
    written(spark, out, "segments", rows(spark, 50).repartition(5))
    written(spark, out, "partitions", rows(spark, 2))
    found = written(spark, out, "segments", rows(spark, 3))
    assert [row.id for row in plain(found)] == [0, 1, 2]
    assert pq.read_table(tmp_path / "segments").num_rows == 3
    assert pq.read_table(tmp_path / "partitions").num_rows == 2


def test_a_table_without_rows_has_its_columns(spark: Any, tmp_path: Path) -> None:
    table = rows(spark, 0)
    found = written(spark, Location.of(tmp_path), "segments", table)
    assert (found.dtypes, found.collect()) == (table.dtypes, [])
    assert pq.read_table(tmp_path / "segments").column_names == table.columns


def test_what_was_written_is_not_computed_again(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    rows(spark, 3).write.parquet(str(source))
    found = written(
        spark, Location.of(tmp_path / "out"), "segments", spark.read.parquet(str(source))
    )
    for path in source.iterdir():
        path.unlink()
    assert len(found.collect()) == 3


def test_a_table_that_fails_leaves_no_summary(spark: Any, tmp_path: Path) -> None:
    """The order of a command: the summary goes, the tables come, the summary comes."""
    out = Location.of(tmp_path / "out")
    for table in (
        rows(spark, 3),
        rows(spark, 3).select(sf.raise_error(sf.lit("torn")).cast("long").alias("id")),
    ):
        require_results_place(out, TABLES)
        assert not (tmp_path / "out" / SUMMARY_FILE).exists()
        try:
            written(spark, out, "segments", table)
        except Exception as error:
            assert "torn" in str(error)
            assert not (tmp_path / "out" / SUMMARY_FILE).exists()
            break
        write_summary(out, json.loads(OURS))
        assert (tmp_path / "out" / SUMMARY_FILE).exists()
    else:
        pytest.fail("a table that fails was written")
