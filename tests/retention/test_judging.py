"""A snapshot judged partition by partition: the rows of each, their order, what may be planned."""

from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog import Catalog
from kip33.retention.evaluation import RetentionRequest
from kip33.retention.judged_partition import JudgedPartition
from kip33.retention.make_plan import unlistable_directories
from kip33.rules.policies import Policies
from tests.builders.judged_catalogs import judged_at_once
from tests.builders.snapshots import row, write
from tests.cases import each_case

NOW_MS = 10_000
SEVEN_SECONDS = Policies({"defaults": {"retention.ms": 7_000}})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "catalog"))


def segment(
    path: str, base_offset: int | None, time: int | None = 0, **fields: Any
) -> dict[str, Any]:
    """A row of the segment `<base offset>.log` in a directory, or of the directory itself."""
    log_dir, _, name = path.rpartition("/")
    topic, _, number = name.rpartition("-")
    uri = f"file:///archive/{path}"
    place = {"log_dir": log_dir, "topic": topic, "base_offset": base_offset, "log_uri": uri}
    if base_offset is None:
        place |= {"status": "unreadable", "size_bytes": None, "index_file": None}
    else:
        place["log_uri"] = f"{uri}/{base_offset:020d}.log"
    return row(int(number or 0), **place | {"largest_timestamp": time} | fields)


def unlistable(path: str) -> dict[str, Any]:
    """A row of a directory above partitions."""
    nothing = {"topic": None, "partition": None, "base_offset": None, "largest_timestamp": None}
    return segment("x-0", None) | nothing | {"log_uri": f"file:///archive/{path}"}


def judged(catalog: Catalog) -> list[JudgedPartition]:
    unlistable = [*unlistable_directories(catalog, catalog.require_newest())]
    rows = judged_at_once(catalog, RetentionRequest(SEVEN_SECONDS, NOW_MS))
    return list(rows.partitions(unlistable))


INDEX_DIRECTORIES = [
    ("written", "file:///i/b1/a-0/0.timeindex", "file:///i/b1/a-0"),
    ("written", "file:///archive/b1/a-0/0.timeindex", None),
    ("kept", "file:///i/b1/a-0/0.timeindex", None),
    ("stale", "file:///i/b1/a-0/0.timeindex", None),
    (None, "file:///i/b1/a-0/0.timeindex", None),
    (None, None, None),
    ("written", None, None),
]


@each_case(("index_file", "index_uri", "expected"), INDEX_DIRECTORIES)
def test_the_index_directory_is_that_of_files_that_builds_wrote(
    index_file: str | None, index_uri: str | None, expected: str | None, catalog: Catalog
) -> None:
    write(catalog, [segment("b1/a-0", 0, index_file=index_file, index_uri=index_uri)])
    [[found]] = [one.rows for one in judged(catalog)]
    assert found.index_directory_uri == expected


def test_a_snapshot_without_rows_has_no_partitions(catalog: Catalog) -> None:
    write(catalog)
    assert judged(catalog) == []
    write(catalog, [])
    assert judged(catalog) == []
    write(catalog, [unlistable("b1")])
    assert judged(catalog) == []


def plannable(one: JudgedPartition, *, trust: bool = False) -> list[bool]:
    return [one.why_unplannable(row, trust_last_modified=trust) is None for row in one.rows]


def test_a_partition_that_could_not_be_listed_itself_keeps_everything(catalog: Catalog) -> None:
    write(catalog, [segment("b1/a-0", 0), segment("b1/a-0", 1), segment("b1/a-0", None)])
    [one] = judged(catalog)
    assert [row.base_offset for row in one.rows] == [None, 0, 1]
    assert one.deletable() == []
    assert not any(plannable(one))


def test_two_directories_of_one_partition_are_not_plannable_together(catalog: Catalog) -> None:
    write(catalog, [segment("b1/a-0", 0), segment("b1/a-00", 1)])
    [one] = judged(catalog)
    assert one.key == ("b1", "a", 0)
    assert plannable(one) == [True, False]
