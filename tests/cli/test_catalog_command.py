"""`kip33 catalog` as a user meets it: one snapshot, two of them, and fewer of them."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import Draft, PartWriter
from kip33.stores.locations import Location
from tests.builders.snapshots import commit_path, part_path, path_of, row, write
from tests.cli.console import Command, facts_in

HOUR_S = 3600


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "c"))


@pytest.fixture
def three(catalog: Catalog) -> list[Snapshot]:
    """Return three snapshots: what is there, one that grew among other changes, the same again."""
    later = [row(1, size_bytes=2048, status="truncated"), row(2), row(3, last_modified_ms=1)]
    return [
        write(catalog, [row(0), row(1), row(3)], now_ms=1),
        write(catalog, later, now_ms=2),
        write(catalog, later, now_ms=3),
    ]


def make_old(catalog: Catalog, *, hours: float = 2) -> None:
    """Give every file and folder of the catalog this age."""
    then = time.time() - hours * HOUR_S
    for path in path_of(catalog.location).rglob("*"):
        os.utime(path, (then, then))


def names(snapshots: list[Snapshot]) -> list[str]:
    return [snapshot.name for snapshot in snapshots]


CHANGES = [
    {
        "log_uri": f"file:///archive/{number}.log",
        "changes": changes,
        "size_bytes_before": sizes[0],
        "size_bytes_after": sizes[1],
        "status_before": statuses[0],
        "status_after": statuses[1],
    }
    for number, changes, sizes, statuses in [
        (0, ["gone"], (10, None), ("ok", None)),
        (1, ["grown", "status changed"], (10, 2048), ("ok", "truncated")),
        (2, ["added"], (None, 10), (None, "ok")),
        (3, ["modified"], (10, 10), ("ok", "ok")),
    ]
]
COUNTS = {"added": 1, "gone": 1, "grown": 1, "status changed": 1, "modified": 1}


def test_diff_in_json(
    command: Command, three: list[Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"before": three[0].name, "after": three[1].name}
    for at_once in (1, 3, 10_000):
        monkeypatch.setattr("kip33.catalog.catalog_columns._ROWS_AT_ONCE", at_once)
        [found] = command("catalog", "diff", "c", 1, 2, "--format", "json").lines
        assert found == names | {"counts": COUNTS, "changes": CHANGES}
        assert command("catalog", "diff", "c", 1, 2, "--format", "jsonl").lines == CHANGES


def test_diff_in_a_table_ends_with_a_count(command: Command, three: list[Snapshot]) -> None:
    done = command("catalog", "diff", "c", 1, 2)
    assert f"{three[0].name} to {three[1].name}" in done.stdout
    [grown] = [line for line in done.stdout.splitlines() if "│ 1.log" in line]
    assert [cell.strip() for cell in grown.split("│")[1:-1]] == [
        "1.log", "grown, status changed", "10", "2,048", "ok", "truncated",
    ]  # fmt: skip
    assert facts_in(done.stdout) == dict.fromkeys(COUNTS, "1")


def test_where_nothing_changed_one_line_says_so(command: Command, three: list[Snapshot]) -> None:
    for pair in ((2, 3), (1, 1)):
        before, after = (three[number - 1].name for number in pair)
        done = command("catalog", "diff", "c", *pair)
        assert done.stdout == f"Nothing changed from {before} to {after}: 3 segments.\n"
        [found] = command("catalog", "diff", "c", *pair, "--format", "json").lines
        assert (found["counts"], found["changes"]) == ({}, [])
        assert command("catalog", "diff", "c", *pair, "--format", "jsonl").stdout == ""


def test_another_snapshot_than_the_newest(command: Command, three: list[Snapshot]) -> None:
    folder = Path("c/snapshots", three[0].name).absolute()
    table = command("catalog", "c", "--snapshot", 1).stdout
    assert three[0].name in [line.strip() for line in table.splitlines()], "whose totals they are"
    [found] = command("catalog", "c", "--snapshot", 1, "--format", "json").lines
    assert found["path"] == folder.as_uri()
    assert [one["snapshot"] for one in found["snapshots"]] == names(three)[::-1]
    assert (found["topics"][0]["log_bytes"], found["topics"][0]["not_ok"]) == (30, {})
    [newest] = command("catalog", "c", "--format", "json").lines
    assert newest["path"] == Path("c/snapshots", three[2].name).absolute().as_uri()
    assert newest["topics"][0]["not_ok"] == {"truncated": 1}
    path = command("catalog", "snapshots", "c", "--path", "--snapshot", three[0].snapshot_id)
    assert (path.exit_code, path.stdout) == (0, f"{folder}\n")


def test_the_list_of_snapshots_is_that_of_the_overview(
    command: Command, three: list[Snapshot]
) -> None:
    [listed] = command("catalog", "snapshots", "c", "--format", "json").lines
    [overview] = command("catalog", "c", "--format", "json").lines
    assert listed == {"snapshots": overview["snapshots"]}
    [second] = command("catalog", "snapshots", "c", "--snapshot", 2, "--format", "jsonl").lines
    assert second["snapshot"] == three[1].name
    assert command("catalog", "snapshots", "c").stdout.count("│ 0000") == 3


def test_an_unknown_snapshot_is_one_line(
    command: Command, catalog: Catalog, three: list[Snapshot], subtests: pytest.Subtests
) -> None:
    for expected in ("no snapshot 4", "the snapshot is damaged: choose another"):
        for options in ("c --snapshot 4", "snapshots c --snapshot 4", "diff c 1 4", "diff c 4 1"):
            with subtests.test(f"{options}: {expected}"):
                done = command("catalog", *options.split())
                assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
                assert expected in done.stderr
        part_path(catalog, write(catalog, [row(0)])).unlink()


def test_keep_removes_the_others_and_prints_what_it_did(
    command: Command, catalog: Catalog, three: list[Snapshot]
) -> None:
    dead = Draft.begin(catalog, Location.of("/archive"))
    PartWriter(dead.staging, 0).publish()
    make_old(catalog, hours=25)
    young = commit_path(catalog, three[1])
    os.utime(young)
    sizes = {path: path.stat().st_size for path in path_of(catalog.location).rglob("*.*")}
    commit = commit_path(catalog, three[0])
    freed = sum(
        size for path, size in sizes.items() if three[0].name in str(path) or path == commit
    )
    left = sum(size for path, size in sizes.items() if dead.name in str(path))

    done = command("catalog", "prune", "c", "--keep", 1, "--format", "json")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.lines == [
        {
            "catalog": Path("c").absolute().as_uri(),
            "snapshots_removed": 1,
            "snapshots_kept": 2,
            "kept_younger_than_an_hour": 1,
            "leftovers_removed": 1,
            "bytes_freed": freed + left,
            "removed": [
                {"what": "dead build", "name": dead.name, "size_bytes": left},
                {"what": "old snapshot", "name": three[0].name, "size_bytes": freed},
            ],
            "foreign": [],
            "failures": [],
        }
    ]
    assert catalog.snapshots() == three[1:]


def test_keep_in_a_table_lists_the_plan_and_then_the_removals(
    command: Command, catalog: Catalog, three: list[Snapshot]
) -> None:
    make_old(catalog)
    done = command("catalog", "prune", "c", "--keep", 2)
    assert (done.exit_code, done.stderr) == (0, "")
    listed, _, summary = done.stdout.partition("┃ prune")
    assert f"│ old snapshot │ {three[0].name} │" in listed
    found = facts_in(summary)
    assert found.pop("freed").endswith("KiB")
    assert found == {
        "snapshots removed": "1",
        "kept": "2",
        "the newest within the last hour": "0",
        "leftovers removed": "0",
    }
    again = command("catalog", "prune", "c", "--keep", 2)
    assert "to remove" not in again.stdout
    assert facts_in(again.stdout)["snapshots removed"] == "0"


class Closed:
    """The local disk, where this folder does not go."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._disk = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def delete_dir(self, path: str) -> None:
        if path == self._folder:
            raise PermissionError(13, "Permission denied")
        self._disk.delete_dir(path)


def test_what_cannot_be_removed_is_a_line_and_exit_1(
    command: Command, catalog: Catalog, three: list[Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = part_path(catalog, three[0]).parent
    make_old(catalog)
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: Closed(folder))
    done = command("catalog", "prune", "c", "--keep", 1)
    line = (
        f"{folder.as_uri()}: cannot be removed: Permission denied; fix it and run the command again"
    )
    assert (done.exit_code, done.stderr) == (1, f"Error: {line}\nexit 1: failed: 1 file\n")
    assert catalog.snapshots() == three[2:]
    assert facts_in(done.stdout)["not removed"] == "1; see standard error"
