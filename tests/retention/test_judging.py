"""A snapshot judged partition by partition: the rows of each, their order, what may be planned."""

from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog import Catalog
from kip33.retention.evaluation import JudgedPartition, judged_partitions
from kip33.rules.retention_rows import Limits
from tests.builders.snapshots import row, write
from tests.cases import each_case

NOW_MS = 10_000
WEEK = Limits(retention_ms=7_000)


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


def judged(catalog: Catalog, limits: Limits | None = WEEK) -> list[JudgedPartition]:
    snapshot = catalog.require_newest()
    return list(judged_partitions(catalog, snapshot, lambda *_: limits, now_ms=NOW_MS))


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


def test_limits_are_per_partition_and_none_skips_a_partition(catalog: Catalog) -> None:
    write(catalog, [segment(f"b1/{name}", base) for name in ("a-0", "a-1") for base in (0, 1)])
    asked = []

    def limits_of(*key: Any) -> Limits | None:
        asked.append(key)
        return WEEK if key == ("b1", "a", 1) else None

    found = judged_partitions(catalog, catalog.require_newest(), limits_of, now_ms=NOW_MS)
    assert [one.key for one in found] == [("b1", "a", 1)]
    assert asked == [("b1", "a", 0), ("b1", "a", 1)]


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
