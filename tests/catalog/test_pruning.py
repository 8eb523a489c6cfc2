"""What `prune` removes and, above all, what it leaves."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import CLAIMS, Draft, PartWriter
from kip33.catalog.pruning import Plan, RemovalKind, prune
from kip33.catalog.schema import SCHEMA_VERSION
from kip33.errors import CatalogError
from tests.builders.snapshots import NOW_MS, SOURCE, commit_path, part_path, path_of, row, write
from tests.cases import each_case

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "_catalog"))


def set_age(path: Path, age_ms: int) -> None:
    """Give a file, or a folder with all that is in it, this age at NOW_MS."""
    for one in [*path.rglob("*"), path]:
        os.utime(one, ns=(0, (NOW_MS - age_ms) * 1_000_000))


def snapshot_of(
    catalog: Catalog, *, age_ms: int = 7 * DAY, by_clock: int | None = None
) -> Snapshot:
    """Commit a snapshot so long before NOW_MS, by its clock `by_clock` if that is another time."""
    created = NOW_MS - (age_ms if by_clock is None else by_clock)
    snapshot = write(catalog, [row(0)], now_ms=created)
    set_age(commit_path(catalog, snapshot), age_ms)
    set_age(path_of(catalog.snapshot_folder(snapshot.name)), age_ms)
    return snapshot


def dead_draft(catalog: Catalog, *, age_ms: int = DAY, claims: bool = False) -> Draft:
    """Begin a build that wrote a part, perhaps claims, and then nothing for `age_ms`."""
    draft = Draft.begin(catalog, SOURCE)
    if claims:
        draft.claim(pa.array(["file:///i/0.timeindex"]))
    PartWriter(draft.staging, 0).publish()
    set_age(path_of(draft.staging), age_ms)
    return draft


def files_of(catalog: Catalog) -> set[str]:
    root = path_of(catalog.location)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def names(catalog: Catalog) -> list[str]:
    return [snapshot.name for snapshot in catalog.snapshots()]


@each_case(("keep", "left"), ((1, [4]), (2, [3, 4]), (4, [1, 2, 3, 4]), (9, [1, 2, 3, 4])))
def test_the_newest_stay(keep: int, left: Any, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path))
    snapshots = [snapshot_of(catalog) for _ in range(4)]
    sizes = [
        commit_path(catalog, one).stat().st_size + one.parts[0].size_bytes for one in snapshots
    ]
    pruned = prune(catalog, keep=keep, now_ms=NOW_MS)
    assert [one.sequence for one in catalog.snapshots()] == left
    assert pruned.count(RemovalKind.OLD_SNAPSHOT) == len(pruned.removed) == 4 - len(left)
    assert (pruned.plan.kept, pruned.plan.kept_young, pruned.failures) == (len(left), 0, ())
    assert pruned.bytes_freed == sum(sizes[: 4 - len(left)])
    folders = sorted(path.name for path in path_of(catalog.location.child("snapshots")).iterdir())
    assert folders == names(catalog)
    assert [catalog.read(one).num_rows for one in catalog.snapshots()] == [1] * len(left)


def test_the_claims_of_a_snapshot_go_with_it(catalog: Catalog) -> None:
    snapshots = [snapshot_of(catalog) for _ in range(2)]
    claims = [path_of(catalog.claims_place(one.name)) for one in snapshots]
    for place in claims:
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(bytes(10))
    size = commit_path(catalog, snapshots[0]).stat().st_size + snapshots[0].parts[0].size_bytes
    assert prune(catalog, keep=1, now_ms=NOW_MS).bytes_freed == size + 10
    assert [place.exists() for place in claims] == [False, True]


def test_a_newest_snapshot_with_a_rotten_byte_does_not_cost_the_last_good_one(
    catalog: Catalog,
) -> None:
    gone, good, rotten = (snapshot_of(catalog) for _ in range(3))
    part = part_path(catalog, rotten)
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert names(catalog) == [good.name, rotten.name]
    assert [removal.name for removal in pruned.removed] == [gone.name]
    [problem] = pruned.plan.problems
    assert "part-00000.parquet: the CRC does not match the commit file; name an earlier" in problem


@each_case(("newer_ms", "goes"), ((HOUR, True), (HOUR - 1, False)))
def test_the_snapshot_that_was_the_newest_within_the_last_hour_stays(
    newer_ms: Any, goes: bool, tmp_path: Path
) -> None:
    """It is a week old, but a reader may have chosen it just before the newer one came."""
    catalog = Catalog.at(str(tmp_path))
    before, was_newest = snapshot_of(catalog), snapshot_of(catalog)
    newest = snapshot_of(catalog, age_ms=newer_ms)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    stays = [newest.name] if goes else [was_newest.name, newest.name]
    assert names(catalog) == stays, f"{before.name} goes"
    assert pruned.plan.kept_young == (0 if goes else 1)


def test_keeping_no_snapshot_is_refused(catalog: Catalog) -> None:
    snapshot_of(catalog)
    for keep in (0, -1):
        with pytest.raises(ValueError, match="expected 1 to"):
            prune(catalog, keep=keep, now_ms=NOW_MS)
    assert len(names(catalog)) == 1


AGES = [
    ("an hour old", HOUR, HOUR, True),
    ("a millisecond less", HOUR - 1, HOUR - 1, False),
    ("younger by its commit file only", HOUR - 1, DAY, False),
    ("younger by its own clock only", DAY, HOUR - 1, False),
    ("a commit file from the future", -DAY, DAY, False),
    ("a clock in the future", DAY, -DAY, False),
]


@each_case(("name", "by_file", "by_clock", "goes"), AGES)
def test_a_snapshot_younger_than_an_hour_stays(
    name: str, by_file: Any, by_clock: Any, goes: bool, tmp_path: Path
) -> None:
    catalog = Catalog.at(str(tmp_path))
    old = snapshot_of(catalog, age_ms=by_file, by_clock=by_clock)
    newest = snapshot_of(catalog)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert names(catalog) == ([newest.name] if goes else [old.name, newest.name])
    assert pruned.plan.kept_young == (0 if goes else 1)


def lose_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part_path(catalog, snapshot).unlink()


def lose_the_folder(catalog: Catalog, snapshot: Snapshot) -> None:
    lose_a_part(catalog, snapshot)
    path_of(catalog.snapshot_folder(snapshot.name)).rmdir()


def cut_the_commit(catalog: Catalog, snapshot: Snapshot) -> None:
    commit_path(catalog, snapshot).write_text('{"schema_version": 1, "seq')


def empty_the_commit(catalog: Catalog, snapshot: Snapshot) -> None:
    commit_path(catalog, snapshot).write_bytes(b"")


DAMAGES = [lose_a_part, lose_the_folder, cut_the_commit, empty_the_commit]


def damaged(
    catalog: Catalog, damage: Callable[[Catalog, Snapshot], None], age_ms: int = DAY
) -> Snapshot:
    snapshot = snapshot_of(catalog, age_ms=age_ms)
    damage(catalog, snapshot)
    set_age(commit_path(catalog, snapshot), age_ms)
    return snapshot


@each_case("damage", DAMAGES)
def test_a_damaged_snapshot_goes_if_it_is_neither_young_nor_the_newest(
    damage: Any, tmp_path: Path
) -> None:
    """It is not counted among those to keep."""
    catalog = Catalog.at(str(tmp_path))
    gone, bad = snapshot_of(catalog), damaged(catalog, damage)
    young, good = damaged(catalog, damage, age_ms=HOUR - 1), snapshot_of(catalog)
    newest = damaged(catalog, damage)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert [(one.what, one.name) for one in pruned.removed] == [
        (RemovalKind.OLD_SNAPSHOT, gone.name),
        (RemovalKind.DAMAGED_SNAPSHOT, bad.name),
    ]
    left = [commit_path(catalog, one).exists() for one in (gone, bad, young, good, newest)]
    assert left == [False, False, True, True, True]
    assert catalog.require_newest() == good
    assert (pruned.plan.kept_young, len(pruned.plan.problems)) == (1, 2)
    assert any(newest.name in problem for problem in pruned.plan.problems)


def test_nothing_is_removed_while_no_snapshot_is_undamaged(catalog: Catalog) -> None:
    for damage in DAMAGES:
        damaged(catalog, damage)
    before = files_of(catalog)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert (files_of(catalog), pruned.removed, pruned.plan.kept) == (before, (), len(DAMAGES))


def test_unavailable_commit_files_do_not_cost_the_data(catalog: Catalog) -> None:
    snapshot_of(catalog)
    commits = path_of(catalog.location.child("commits"))
    commits.rename(commits.with_name("elsewhere"))
    before = files_of(catalog)
    assert prune(catalog, keep=1, now_ms=NOW_MS).removed == ()
    assert files_of(catalog) == before


def test_a_snapshot_of_a_later_version_ends_it_before_anything_is_removed(catalog: Catalog) -> None:
    later = snapshot_of(catalog)
    for _ in range(3):
        snapshot_of(catalog)
    commit = commit_path(catalog, later)
    now, then = (f'"schema_version": {SCHEMA_VERSION + more}' for more in (0, 1))
    commit.write_text(commit.read_text().replace(now, then))
    before = files_of(catalog)
    with pytest.raises(CatalogError, match="use a newer kip33"):
        prune(catalog, keep=1, now_ms=NOW_MS)
    assert files_of(catalog) == before


# What dead builds left


@each_case(
    ("name", "age_ms", "goes"),
    (
        ("a day ago", DAY, True),
        ("less", DAY - 1, False),
        ("in the future", -HOUR, False),
    ),
)
def test_what_dead_builds_left_is_removed_after_a_day(
    name: str, age_ms: Any, goes: bool, tmp_path: Path
) -> None:
    """A folder in staging, a snapshot's folder without its commit, and half a commit file."""
    catalog = Catalog.at(str(tmp_path / name))
    folder = uncommitted(catalog, age_ms)
    newest = snapshot_of(catalog)
    draft = dead_draft(catalog, age_ms=age_ms)
    half = commit_path(catalog, newest).with_name(f".{newest.name}.json.0f.tmp")
    half.write_text("{")
    set_age(half, age_ms)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    left = [one.exists() for one in (folder, path_of(draft.staging), half)]
    assert left == [not goes] * 3
    assert pruned.count(RemovalKind.DEAD_BUILD) == 3 * goes
    assert names(catalog) == [newest.name]


def put_a_part(draft: Draft) -> None:
    PartWriter(draft.staging, 1).publish()


def put_deep_below(draft: Draft) -> None:
    deep = path_of(draft.staging) / "deep/below"
    deep.mkdir(parents=True)
    (deep / "part").write_bytes(b"")
    for folder in (deep, deep.parent, path_of(draft.staging)):
        os.utime(folder, ns=(0, 0))


def touch_the_folder(draft: Draft) -> None:
    os.utime(path_of(draft.staging))


def move_a_part(draft: Draft) -> None:
    path = path_of(draft.catalog.snapshot_folder(draft.name))
    path.mkdir(parents=True)
    next(path_of(draft.staging).iterdir()).rename(path / "part-00000.parquet")
    set_age(path_of(draft.staging), 2 * DAY)


@each_case("sign", (put_a_part, put_deep_below, touch_the_folder, move_a_part))
def test_an_active_build_keeps_all_its_files(sign: Any, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path))
    snapshot_of(catalog)
    draft = dead_draft(catalog, age_ms=2 * DAY)
    sign(draft)
    before = files_of(catalog)
    assert prune(catalog, keep=1, now_ms=NOW_MS).removed == ()
    assert files_of(catalog) == before


def uncommitted(catalog: Catalog, age_ms: int) -> Path:
    """A build that was killed between its parts' move and its commit."""
    snapshot = snapshot_of(catalog, age_ms=age_ms)
    commit_path(catalog, snapshot).unlink()
    return path_of(catalog.snapshot_folder(snapshot.name))


def test_files_of_a_zombie_after_its_commit_are_removed_and_its_snapshot_stays(
    catalog: Catalog,
) -> None:
    newest = snapshot_of(catalog)
    staging = path_of(catalog.staging_folder(newest.name))
    staging.mkdir(parents=True)
    (staging / "part-00000.0f.parquet").write_bytes(b"late")
    (staging / CLAIMS).write_bytes(b"of files that the build did not list")
    set_age(staging, DAY)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert [(one.what, one.size_bytes) for one in pruned.removed] == [(RemovalKind.DEAD_BUILD, 4)]
    assert [path.name for path in staging.iterdir()] == [CLAIMS]
    assert catalog.require_newest() == newest


def test_claims_stay_until_a_newer_snapshot_is_committed(catalog: Catalog) -> None:
    snapshot_of(catalog)
    draft = dead_draft(catalog, claims=True)
    [removed] = prune(catalog, keep=1, now_ms=NOW_MS).removed
    assert (removed.what, removed.folder) == (RemovalKind.DEAD_BUILD, None)
    assert [path.name for path in path_of(draft.staging).iterdir()] == [CLAIMS]
    set_age(path_of(draft.staging), 30 * DAY)
    assert prune(catalog, keep=1, now_ms=NOW_MS).removed == ()

    for expected in (1, 0):  # of the same sequence number, and then of a higher one
        snapshot_of(catalog)
        prune(catalog, keep=1, now_ms=NOW_MS)
        assert path_of(draft.staging).exists() == expected


def test_the_snapshot_that_a_running_build_began_from_stays(catalog: Catalog) -> None:
    older, base = snapshot_of(catalog), snapshot_of(catalog)
    running = dead_draft(catalog, age_ms=DAY - 1)
    between, newest = snapshot_of(catalog), snapshot_of(catalog)
    removed = [one.name for one in prune(catalog, keep=1, now_ms=NOW_MS).removed]
    assert removed == [older.name, between.name]
    assert names(catalog) == [base.name, newest.name]

    set_age(path_of(running.staging), DAY)
    removed = [one.name for one in prune(catalog, keep=1, now_ms=NOW_MS).removed]
    assert removed == [running.name, base.name]


def test_a_build_that_is_committed_needs_its_base_no_more(catalog: Catalog) -> None:
    base, newest = snapshot_of(catalog), snapshot_of(catalog)
    (path_of(catalog.staging_folder(newest.name)) / "late").mkdir(parents=True)
    removed = [one.name for one in prune(catalog, keep=1, now_ms=NOW_MS).removed]
    assert removed == [base.name]


def test_files_without_a_snapshots_name_are_kept(catalog: Catalog) -> None:
    snapshot_of(catalog)
    root = path_of(catalog.location)
    for name in ("snapshots/backup/part", "staging/mine/part", "staging/00000000000000000001-file"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    for name in ("commits/README", "notes.txt"):
        (root / name).write_bytes(b"")
    set_age(root, 30 * DAY)
    before = files_of(catalog)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert (pruned.removed, pruned.failures) == ((), ())
    assert files_of(catalog) == before


def test_an_empty_place_has_nothing_to_prune(catalog: Catalog) -> None:
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert (pruned.plan, pruned.removed, pruned.failures) == (Plan((), 0, 0, ()), (), ())


# How it is removed


class Disk:
    """The local disk, with every removal written down; some are refused."""

    def __init__(self, *refused: str) -> None:
        self.removed: list[str] = []
        self.refused = refused
        self._disk = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def delete_file(self, path: str) -> None:
        self._refuse(path)
        self._disk.delete_file(path)

    def delete_dir(self, path: str) -> None:
        self._refuse(path)
        self._disk.delete_dir(path)

    def _refuse(self, path: str) -> None:
        if any(part in path for part in self.refused):
            raise PermissionError(13, "Permission denied")
        self.removed.append(path)


def test_commits_are_removed_before_parts_and_the_oldest_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = (snapshot_of(catalog) for _ in range(3))
    disk = Disk()
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: disk)
    plans = []

    def on_plan(plan: Plan) -> None:
        assert disk.removed == []
        plans.append(plan)

    pruned = prune(catalog, keep=1, now_ms=NOW_MS, on_plan=on_plan)
    assert disk.removed == [
        place.path
        for snapshot in (first, second)
        for place in (
            catalog.commit_place(snapshot.name),
            catalog.snapshot_folder(snapshot.name),
        )
    ]
    assert [plan.removals for plan in plans] == [pruned.removed]


def test_a_commit_file_that_cannot_be_removed_keeps_its_parts(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, newest = (snapshot_of(catalog) for _ in range(3))
    disk = Disk(f"commits/{first.name}")
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: disk)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    uri = catalog.commit_place(first.name).uri
    assert pruned.failures == (
        f"{uri}: cannot be removed: Permission denied; fix it and run the command again",
    )
    assert [one.name for one in pruned.removed] == [second.name]
    assert names(catalog) == [first.name, newest.name]
    assert catalog.damage(first) is None


def test_a_folder_that_cannot_be_removed_is_reported_and_is_no_longer_a_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, newest = snapshot_of(catalog), snapshot_of(catalog)
    disk = Disk(f"snapshots/{first.name}")
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: disk)
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    [failure] = pruned.failures
    assert failure.startswith(f"{catalog.snapshot_folder(first.name).uri}: cannot be removed: ")
    assert (pruned.removed, pruned.bytes_freed) == ((), 0)
    assert names(catalog) == [newest.name]
    disk.refused = ()
    assert prune(catalog, keep=1, now_ms=NOW_MS + DAY).count(RemovalKind.DEAD_BUILD) == 1


def test_a_file_removed_by_a_concurrent_pruning_is_not_a_failure(catalog: Catalog) -> None:
    snapshots = [snapshot_of(catalog) for _ in range(3)]
    dead_draft(catalog)
    others = []
    pruned = prune(
        catalog,
        keep=1,
        now_ms=NOW_MS,
        on_plan=lambda _: others.append(prune(catalog, keep=1, now_ms=NOW_MS)),
    )
    assert (pruned.failures, others[0].failures) == ((), ())
    assert names(catalog) == [snapshots[-1].name]


def test_a_build_that_commits_after_all_keeps_its_snapshot(catalog: Catalog) -> None:
    """It slept for a day between its parts' move and its commit, and wakes up while we prune."""
    folder = uncommitted(catalog, DAY)
    newest = snapshot_of(catalog)
    commit = commit_path(catalog, newest)
    waking = commit.with_name(f"{folder.name}.json")
    prune(
        catalog,
        keep=1,
        now_ms=NOW_MS,
        on_plan=lambda _: waking.write_bytes(commit.read_bytes()) and None,
    )
    assert (folder / "part-00000.parquet").exists()


def test_a_commit_file_that_cannot_be_read_now_is_not_called_damaged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, newest = snapshot_of(catalog), snapshot_of(catalog)

    open_file = os.open

    def open_others(path: Any, *how: Any) -> int:
        if closed.name in os.fsdecode(path):
            raise PermissionError(13, "Permission denied")
        return open_file(path, *how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_others)
        pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert (pruned.removed, len(pruned.plan.problems)) == ((), 1)
    assert names(catalog) == [closed.name, newest.name]
    assert catalog.damage(closed) is None


class Keys(Disk):
    """A disk that knows no folders' times, as an object store."""

    def get_file_info(self, what: Any) -> Any:
        infos = fs.LocalFileSystem().get_file_info(what)
        if not isinstance(what, fs.FileSelector):
            return infos
        return [
            info if info.type == fs.FileType.File else fs.FileInfo(info.path, info.type)
            for info in infos
        ]


def test_on_an_object_store_only_files_have_an_age(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_of(catalog)
    empty, dead = Draft.begin(catalog, SOURCE), dead_draft(catalog)
    set_age(path_of(empty.staging), 30 * DAY)
    os.utime(path_of(dead.staging))  # nobody sees it there
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: Keys())
    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    assert [one.name for one in pruned.removed] == [dead.name]
    assert path_of(empty.staging).exists()  # no time is known of it: that is not old


@each_case("name", ("notes.txt", "inner/copy-of-part.parquet", "00000000.log"))
def test_a_foreign_file_stays_and_is_named(name: str, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path))
    old, dead = snapshot_of(catalog), dead_draft(catalog)
    snapshot_of(catalog)
    folders = [path_of(catalog.snapshot_folder(old.name)), path_of(dead.staging)]
    for folder in folders:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"mine")
        set_age(folder, 7 * DAY)

    pruned = prune(catalog, keep=1, now_ms=NOW_MS)
    for folder in folders:  # removing its files touched it
        set_age(folder, 7 * DAY)
    again = prune(catalog, keep=1, now_ms=NOW_MS)

    for folder in folders:
        assert [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()] == [name]
    assert (
        pruned.failures,
        pruned.count(RemovalKind.OLD_SNAPSHOT),
        pruned.count(RemovalKind.DEAD_BUILD),
    ) == ((), 1, 1)
    for one in (pruned, again):
        assert sorted(line.partition(": ")[0] for line in one.plan.foreign) == sorted(
            folder.as_uri() for folder in folders
        )


def test_a_foreign_file_in_staging_stays_after_a_commit(catalog: Catalog) -> None:
    draft = Draft.begin(catalog, SOURCE)
    note = path_of(draft.staging) / "notes.txt"
    note.write_bytes(b"mine")
    writer = PartWriter(draft.staging, 0)

    draft.commit([writer.publish()], settings={}, now_ms=NOW_MS)

    assert [path.name for path in note.parent.iterdir()] == ["notes.txt"]
