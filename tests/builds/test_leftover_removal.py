"""A plan removes leftovers that are as planned, keeps every other file, and says why."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.archive.leftover_files import LeftoverKind
from kip33.builds import leftovers
from kip33.builds.leftovers import (
    ALWAYS_PLANNED,
    PLANNED_ON_REQUEST,
    LeftoverOutcome,
    LeftoverPlan,
    Leftovers,
    RemovedLeftovers,
    UnplannedLeftover,
    find_leftovers,
    plan_leftovers,
    read_leftover_plan,
    remove_leftovers,
    write_leftover_plan,
)
from kip33.catalog.catalog import Catalog
from kip33.errors import LocationError, LockedError, PlanError
from kip33.stores.locations import Location
from tests.archive.test_broker_locks import held_by_another
from tests.builders.changing_archive import CLICKS, DAY_MS, ORDERS, ChangingArchive, batches
from tests.builders.forged_plans import plan_bytes
from tests.builders.leftover_archive import (
    archive_with_leftovers,
    marked,
    ours,
    put,
    temporary,
)

NOW_MS = 1_800_000_000_000
ALL = tuple(PLANNED_ON_REQUEST.values())
State = dict[Path, tuple[int, int]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive, and a copy of it beside."""
    folder = tmp_path_factory.mktemp("leftovers")
    archive_with_leftovers(folder / "archive")
    shutil.copytree(folder / "archive", folder / "saved")
    return folder


def again(made: Path) -> ChangingArchive:
    """Return leftovers of every kind, as they were before the other tests."""
    for name in ("archive", "outside"):
        shutil.rmtree(made / name, ignore_errors=True)
    shutil.copytree(made / "saved", made / "archive")
    changing = ChangingArchive(made / "archive")
    changing.now_ms += 2 * DAY_MS
    return changing


@pytest.fixture
def changing(made: Path) -> ChangingArchive:
    return again(made)


def plan_of(
    changing: ChangingArchive, kinds: tuple[LeftoverKind, ...] = (), now_ms: int = NOW_MS
) -> tuple[LeftoverPlan, list[UnplannedLeftover]]:
    """Return the plan as it was read from its file, and what it leaves out."""
    catalog = Catalog.at(str(changing.catalog))
    newest = catalog.require_newest()
    found = find_leftovers(catalog, newest)
    plan, unplanned = plan_leftovers(catalog, newest, found, kinds=kinds, now_ms=now_ms)
    place = Location.of(changing.folder / "plan.jsonl")
    written = write_leftover_plan(plan, place)
    assert read_leftover_plan(place) == written
    return written, unplanned


def apply(
    changing: ChangingArchive, plan: LeftoverPlan, *, dry_run: bool = False
) -> RemovedLeftovers:
    return remove_leftovers(Catalog.at(str(changing.catalog)), plan, dry_run=dry_run)


def state(changing: ChangingArchive) -> State:
    """Return size and time of every file of archive and index directory, and each directory."""
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns) if not path.is_dir() else (0, 0)
        for root in (changing.source, changing.index_root)
        for path in root.rglob("*")
    }


def outcomes(done: RemovedLeftovers) -> dict[str, str]:
    """Return the outcome of each leftover by its name."""
    return {one.uri.rpartition("/")[2]: one.outcome.value for one in done.results}


def whys(done: RemovedLeftovers) -> str:
    return "; ".join(one.why for one in done.results if one.why)


def test_a_plan_removes_what_is_ours_and_nothing_else(changing: ChangingArchive) -> None:
    before = state(changing)
    plan, unplanned = plan_of(changing)
    assert unplanned == []
    assert state(changing) == before, "a plan changes nothing"

    done = apply(changing, plan)

    after = state(changing)
    assert before.keys() - after.keys() == ours(changing)
    assert after.items() <= before.items()
    assert set(outcomes(done).values()) == {"removed"}
    assert (done.files, done.size_bytes) == (3, plan.size_bytes)
    assert changing.build(offset_index=True).orphaned == 0
    assert changing.outcome() == changing.fresh(offset_index=True)


def test_kinds_on_request_are_removed_and_others_never(changing: ChangingArchive) -> None:
    plan, _ = plan_of(changing, ALL)
    before = state(changing)
    tried = apply(changing, plan, dry_run=True)
    assert state(changing) == before
    done = apply(changing, plan)
    assert tried.results == done.results
    removed = before.keys() - state(changing).keys()
    partition = changing.source / ORDERS
    expected = {
        *ours(changing),
        partition / f"{90:020d}.timeindex",
        changing.index_root / ORDERS / f"{91:020d}.index",
        partition / f"{7:020d}.log.deleted",
    }
    for kind in ("delete", "stray"):
        directory = marked(changing, kind)
        expected |= {directory, directory / f"{0:020d}.log", directory / f"{0:020d}.index"}
    assert removed == expected
    assert done.files == len(expected) - 2
    left = {LeftoverKind.CLEANED, LeftoverKind.SWAP, LeftoverKind.FUTURE, LeftoverKind.OTHER}
    catalog = Catalog.at(str(changing.catalog))
    found = find_leftovers(catalog, catalog.require_newest()).found
    assert {one.kind for one in found} == left

    again = apply(changing, plan)
    assert set(outcomes(again).values()) == {"already removed"}
    assert (again.files, again.size_bytes) == (0, 0)


def test_a_kind_that_may_be_needed_is_refused(
    changing: ChangingArchive, subtests: pytest.Subtests
) -> None:
    for kind in sorted(set(LeftoverKind) - {*ALWAYS_PLANNED, *ALL}):
        with subtests.test(kind.value), pytest.raises(ValueError, match="never removes"):
            plan_of(changing, (kind,))


def rewrite(path: Path) -> None:
    path.write_bytes(b"x" * (path.stat().st_size + 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes found, the plan says": rewrite,
    "ms, the plan says": os.utime,
    "is a symbolic link now": lambda path: path.symlink_to(path.rename(path.parents[3] / "moved")),
    "is not a file now": lambda path: (path.unlink(), path.mkdir()),
}


def test_a_file_that_changed_is_kept_and_named(made: Path, subtests: pytest.Subtests) -> None:
    for says, change in CHANGES.items():
        with subtests.test(says):
            changing = again(made)
            plan, _ = plan_of(changing, ALL)
            changed = [changing.index(CLICKS), temporary(changing)]
            for path in changed:
                change(path)
            before = state(changing)
            done = apply(changing, plan)
            after = state(changing)
            for path in changed:
                assert (after.get(path), outcomes(done)[path.name]) == (before[path], "kept")
                assert f"{path.as_uri()}: " in whys(done)
            assert says in whys(done)
            other = changing.index(CLICKS).with_suffix(".index")
            assert not other.exists(), "the others are removed"


def test_a_log_that_came_back_keeps_its_index_files(changing: ChangingArchive) -> None:
    plan, _ = plan_of(changing, ALL)
    changing.write(changing.log(CLICKS), batches(0, 20))
    put(changing.source / ORDERS / f"{90:020d}.log", b"")
    put(changing.source / ORDERS / f"{91:020d}.log.swap", b"")
    done = apply(changing, plan)
    names = [f"{0:020d}.index", f"{0:020d}.timeindex", f"{90:020d}.timeindex", f"{91:020d}.index"]
    assert [outcomes(done)[name] for name in names] == ["kept"] * 4
    assert changing.index(CLICKS).exists()
    assert f"its log exists again: {changing.log(CLICKS).as_uri()}" in whys(done)


def test_a_log_that_comes_back_after_the_listing(
    changing: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = plan_of(changing)

    def list_then_restore(*arguments: Any) -> Leftovers:
        found = find_leftovers(*arguments)
        changing.write(changing.log(CLICKS), batches(0, 20))
        return found

    monkeypatch.setattr(leftovers, "find_leftovers", list_then_restore)
    done = apply(changing, plan)
    assert changing.index(CLICKS).exists()
    assert "its log exists again" in whys(done)


def test_a_directory_with_a_new_or_changed_file_is_kept_with_all_files(
    changing: ChangingArchive,
) -> None:
    plan, _ = plan_of(changing, ALL)
    put(marked(changing, "delete") / f"{8:020d}.log", b"new")
    rewrite(marked(changing, "stray") / f"{0:020d}.log")
    before = state(changing)
    done = apply(changing, plan)
    kept = {path for path in before if path.parent.name.endswith(("-delete", "-stray"))}
    assert len(kept) == 5
    assert kept <= state(changing).keys()
    assert f"{8:020d}.log: is not in the plan" in whys(done)


def test_young_files_of_others_are_not_planned(changing: ChangingArchive) -> None:
    os.utime(temporary(changing))
    os.utime(marked(changing, "delete") / f"{0:020d}.log")
    clock_ms = temporary(changing).stat().st_mtime_ns // 1_000_000 + 1000
    plan, unplanned = plan_of(changing, ALL, clock_ms)
    assert {one.uri for one in unplanned} == {
        temporary(changing).as_uri(),
        marked(changing, "delete").as_uri(),
    }
    assert {one.why for one in unplanned} == {
        "was modified less than a day ago: a program may still use it"
    }
    assert changing.index(CLICKS).as_uri() in {one.uri for one in plan.leftovers}, "ours, known"


def test_nothing_behind_a_link_is_planned_or_removed(changing: ChangingArchive) -> None:
    """The link comes after a plan, and is there for the next one."""
    (marked(changing, "delete") / "inner").mkdir()
    (marked(changing, "stray") / "link").symlink_to(changing.log(ORDERS))
    plan, unplanned = plan_of(changing, ALL)
    by_uri = {one.uri: one.why for one in unplanned}
    assert "inner is not a file" in by_uri[marked(changing, "delete").as_uri()]
    assert "symbolic link" in by_uri[marked(changing, "stray").as_uri()]
    assert len(by_uri) == 2

    ours_there = changing.index(CLICKS)
    outside = changing.folder.parent / "outside"
    shutil.move(ours_there.parent, outside)
    ours_there.parent.symlink_to(outside)
    done = apply(changing, plan)
    [result] = [one for one in done.results if one.uri == ours_there.as_uri()]
    assert (result.outcome, result.why) == (
        LeftoverOutcome.KEPT,
        f"{ours_there.as_uri()}: is a symbolic link now, or reached by one",
    )
    assert (outside / ours_there.name).exists()

    plan, unplanned = plan_of(changing, ALL)
    assert not [one for one in plan.leftovers if one.uri.startswith(ours_there.parent.as_uri())]
    reasons = {one.uri: one.why for one in unplanned}
    assert "is reached by, a symbolic link" in reasons[ours_there.as_uri()]


def test_orphans_of_an_earlier_index_directory_are_removed(changing: ChangingArchive) -> None:
    first = ours(changing) - {temporary(changing)}
    changing.index_dir = changing.folder / "other"
    changing.build(offset_index=True)
    assert changing.build(offset_index=True).orphaned
    plan, _ = plan_of(changing)
    assert {Path(one.uri.removeprefix("file://")) for one in plan.leftovers} >= first
    apply(changing, plan)
    assert not any(path.exists() for path in first)


def test_a_broker_that_holds_its_lock_refuses_it(changing: ChangingArchive) -> None:
    plan, _ = plan_of(changing, ALL)
    lock = changing.source / "b1/.lock"
    lock.touch()
    before = state(changing)
    with held_by_another(lock), pytest.raises(LockedError, match="stop the broker"):
        apply(changing, plan)
    assert state(changing) == before


def test_a_plan_for_another_catalog_is_refused(changing: ChangingArchive, tmp_path: Path) -> None:
    plan, _ = plan_of(changing)
    shutil.copytree(changing.catalog, tmp_path / "copy")
    with pytest.raises(PlanError, match=r"the plan is for .*/catalog, but the catalog has .*/copy"):
        remove_leftovers(Catalog.at(str(tmp_path / "copy")), plan)


def test_a_store_that_refuses_is_named_and_the_others_are_removed(
    changing: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = plan_of(changing)
    remove, refused = leftovers.remove, Location.of(changing.index(CLICKS))

    def refuse_one(place: Location) -> None:
        if place == refused:
            raise PermissionError(13, "Permission denied")
        remove(place)

    monkeypatch.setattr(leftovers, "remove", refuse_one)
    done = apply(changing, plan)
    assert sorted(outcomes(done).values()) == ["not removed", "removed", "removed"]
    assert whys(done) == f"{refused.uri}: cannot be removed: Permission denied"


def records_of(changing: ChangingArchive) -> tuple[Path, list[dict[str, Any]]]:
    plan_of(changing, ALL)
    path = changing.folder / "plan.jsonl"
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def forge(path: Path, records: list[dict[str, Any]]) -> Location:
    """Write the records as a plan with the right id."""
    path.write_bytes(plan_bytes(records))
    return Location.of(path)


def test_a_plan_made_by_hand_removes_no_file_of_a_segment(changing: ChangingArchive) -> None:
    path, records = records_of(changing)
    target = changing.index(ORDERS)
    status = target.stat()
    file = {
        "uri": target.as_uri(),
        "size_bytes": status.st_size,
        "last_modified_ms": status.st_mtime_ns // 1_000_000,
    }
    for record in records[1:-1]:
        if record["leftover"] == LeftoverKind.ORPHAN.value:
            record |= {"uri": target.as_uri(), "files": [file]}
    plan = read_leftover_plan(forge(path, records))
    before = state(changing)
    done = apply(changing, plan)
    assert target in state(changing)
    assert before[target] == state(changing)[target]
    assert "is no longer listed as" in whys(done)


def at(uri: str) -> dict[str, Any]:
    """Return the keys of a leftover that is one file at another place."""
    return {"uri": uri, "files": [{"uri": uri, "size_bytes": 1, "last_modified_ms": 1}]}


OF_TEMPORARY = {"leftover": LeftoverKind.TEMPORARY.value}
FORGED: list[tuple[dict[str, Any], str]] = [
    ({"leftover": "unknown file"}, "unknown file, which kip33 never removes"),
    ({"leftover": ".swap file"}, "never removes"),
    ({"leftover": "something"}, "is not a valid LeftoverKind"),
    ({"uri": "file:///elsewhere/x.timeindex"}, "not a file of"),
    (at("{index_dir}/../etc/x.timeindex"), "not a path of plain names"),
    (at("{index_dir}//x.timeindex"), "not a file of"),
    (at("{index_dir}/b1//c/x.timeindex"), "not a path of plain names"),
    (at("{index_dir}/b1/x.log"), "not the name of: index file of kip33"),
    (at("{index_dir}/b1/passwd"), "not the name of: index file of kip33"),
    (OF_TEMPORARY | at("file:///etc/.0.timeindex.0a.tmp"), "not a path of plain names"),
    (OF_TEMPORARY | at("{index_dir}/b1/0.timeindex"), "not the name of: temporary file"),
    ({"files": []}, "expected this one file"),
    ({"files": [{"uri": "x"}]}, "not written by kip33"),
    ({"uri": "ftp://x/y"}, "unknown scheme"),
]


def test_what_kip33_does_not_write_is_not_read(
    changing: ChangingArchive, subtests: pytest.Subtests
) -> None:
    path, records = records_of(changing)
    path.write_text(path.read_text().replace("clicks", "orders", 1))
    with pytest.raises(PlanError, match="the checksum is wrong"):
        read_leftover_plan(Location.of(path))
    header, first, *others = records
    for change, says in FORGED:
        text = json.dumps(change).replace("{index_dir}", header["index_dir"])
        forged = forge(path, [dict(header), first | json.loads(text), *others])
        with subtests.test(f"{says}: {text}"):
            with pytest.raises(PlanError, match=says) as refused:
                read_leftover_plan(forged)
            assert "\n" not in str(refused.value)


def test_only_such_a_plan_is_replaced(changing: ChangingArchive) -> None:
    plan, _ = plan_of(changing)
    plan_of(changing)
    other = changing.folder / "other.jsonl"
    other.write_text('{"kind": "plan", "version": 1, "plan_id": "00", "x": 1}\n')
    with pytest.raises(LocationError, match="a file that --plan did not write is there"):
        write_leftover_plan(plan, Location.of(other))
    with pytest.raises(PlanError, match=r"not a plan of leftovers; make another with"):
        read_leftover_plan(Location.of(other))
    with pytest.raises(LocationError, match=r"ends in \.jsonl"):
        write_leftover_plan(plan, Location.of(changing.folder / "plan.txt"))
