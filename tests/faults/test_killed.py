"""Each command that changes files, killed with SIGKILL around each of its operations.

Whenever it is killed, what must always be true is true, and the same command completes the work.
Complete builds, killed at random times: `tests/faults/test_killed_builds.py`.
"""

import os
import random
import re
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyarrow.dataset import dataset

import kip33
from kip33.archive.sources import RESTORE_JOURNAL, RESTORE_STAGING
from kip33.builds.leftovers import (
    PLANNED_ON_REQUEST,
    find_leftovers,
    plan_leftovers,
    write_leftover_plan,
)
from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import DEAD_AFTER_MS
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.restore.truncate_apply import JOURNAL
from kip33.stores.locations import Location
from tests.builders.changing_archive import DAY_MS, ChangingArchive, batches
from tests.builders.expiring_archive import KINDS, ExpiringArchive
from tests.builders.leftover_archive import archive_with_leftovers
from tests.builders.partition_copies import files_of, write_partition
from tests.builders.segment_builder import Record, v2_batch
from tests.faults.applies import apply_here
from tests.faults.cut_short import WAYS, CutShort, require_no_hole
from tests.faults.forks import Forks
from tests.faults.whole_builds import first_night, second_night
from tests.faults.wrecks import Night, Place, Wreck, require_old_or_new
from tests.long_forms import one_in, seeds
from tests.restore.test_restore import log_of, new_topic, write_logs

SEED = os.environ.get("KIP33_SEED", "33")
T = 1_700_000_000_000


class Apply:
    """A retention plan of two partitions."""

    least_operations = 30

    def __init__(self, folder: Path, **options: Any) -> None:
        archive = ExpiringArchive(folder)
        archive.partition("b1/orders-0", 3, expired=2)
        archive.partition("b2/orders-0", 2, expired=2, kinds=KINDS)
        archive.snapshot()
        self.place, self.options = CutShort(archive), options
        self.command = self.place.command
        self._with_trash = bool(options)

    def reset(self) -> None:
        self.place.restore()

    def learn(self) -> None:
        names = {Path(path).name for path in self.place.archive.files() if "orders" in path}
        newest = {f"{200:020d}.{kind}" for kind in KINDS[:3]}
        assert names == {f"{100:020d}.{kind}" for kind in KINDS} | newest

    def require_sound(self, where: str) -> int | None:
        return len(self.place.require_sound(with_trash=self._with_trash, where=where))

    def require_done(self, where: str, number: int) -> None:
        self.place.finish(with_trash=self._with_trash)


class Undo(Apply):
    """The same plan, applied with a trash; its files come back."""

    least_operations = 25

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, trash=True)
        place = self.place
        self.options = {name: one for name, one in options.items() if name != "trash"}
        self.command = ("undo", place.plan_file, place.trash)
        self._times = _times(place.archive)

    def reset(self) -> None:
        self.place.restore()
        apply_here(self.place.plan_file, self.place.trash)

    def learn(self) -> None:
        assert self.place.archive.files() == self.place.before

    def require_sound(self, where: str) -> int | None:
        archive, plan = self.place.archive, self.place.plan
        there = {path: data for path, data in archive.files().items() if "/." not in path}
        together = there | archive.trashed(plan)
        assert (there.items() <= self.place.before.items(), together) == (True, self.place.before)
        require_no_hole(self.place.before, there, where)
        return None

    def require_done(self, where: str, number: int) -> None:
        archive = self.place.archive
        assert archive.files() == self.place.before, where
        assert _times(archive) == self._times, where
        assert archive.trashed(self.place.plan) == {}


def _times(archive: ExpiringArchive) -> dict[str, int]:
    return {path: (archive.folder / path).stat().st_mtime_ns for path in archive.files()}


class World:
    """A folder that a command changes, and a copy of it as it was."""

    def __init__(self, folder: Path, *command: object) -> None:
        """Keep the folder as it is."""
        self.folder, self.command, self.options = folder, command, {}
        self._saved = folder.with_name("saved")
        shutil.copytree(folder, self._saved)
        self._before = self._done = self._files()

    def _files(self) -> dict[str, bytes]:
        """Return the files below the folder, by path."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def reset(self) -> None:
        """Make the folder what it was."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._saved, self.folder)

    def learn(self) -> None:
        """See what the command leaves that nobody kills."""
        self._done = self._files()

    def require_done(self, where: str, number: int) -> None:
        """Raise AssertionError unless all is as the command leaves it."""
        assert self._files() == self._done, where


class Removal(World):
    """A plan that removes leftovers of every kind."""

    least_operations = 8

    def __init__(self, folder: Path) -> None:
        plan = folder / "plan.jsonl"
        changing = archive_with_leftovers(folder / "archive")
        catalog = Catalog.at(str(changing.catalog))
        newest = catalog.require_newest()
        made, _ = plan_leftovers(
            catalog,
            newest,
            find_leftovers(catalog, newest),
            kinds=tuple(PLANNED_ON_REQUEST.values()),
            now_ms=changing.now_ms,
        )
        write_leftover_plan(made, Location.of(plan))
        self._planned = made.files
        super().__init__(folder / "archive", "remove", changing.catalog, plan)

    def _files(self) -> dict[str, bytes]:
        paths = self.folder.rglob("*")  # directories as well; what is in them does not change
        return {str(path.relative_to(self.folder)): b"" for path in paths}

    def learn(self) -> None:
        super().learn()
        assert len(self._before) - len(self._done) == self._planned + 2, "two directories as well"

    def require_sound(self, where: str) -> int:
        there = self._files()
        assert self._done.items() <= there.items() <= self._before.items(), where
        return len(self._before) - len(there)


class Restore(World):
    """An archive of two partitions, restored into a log directory that has a new, empty one.

    A broker never starts on a part of it: each directory must be named as a partition's.
    """

    least_operations = 50

    def __init__(self, folder: Path) -> None:
        source, self.log_dir = folder / "archive", folder / "data"
        logs = {base: log_of(base, leader_epoch=base // 30) for base in (0, 30, 60)}
        write_logs(source / "orders-0", logs)
        write_logs(source / "orders-1", {500: log_of(500, producer_id=7, base_sequence=0)})
        new_topic(write_logs(self.log_dir / "others-7", {0: log_of(0)}).parent, "orders-0")
        (self.log_dir / ".kafka_cleanshutdown").write_bytes(b"")
        for name, offset in (("recovery-point", 90), ("cleaner", 7)):
            file = self.log_dir / f"{name}-offset-checkpoint"
            file.write_text(f"0\n2\nothers 7 {offset}\norders 0 3\n")
        super().__init__(self.log_dir, "restore", source, self.log_dir)

    @property
    def starts(self) -> bool:
        return not (self.log_dir / RESTORE_STAGING).exists()

    def learn(self) -> None:
        super().learn()
        assert self.starts
        assert self._done != self._before

    def require_sound(self, where: str) -> None:
        left = self._files()
        if self.starts:
            without_journal = {name: left[name] for name in left if not name.startswith(".kip33")}
            assert without_journal in (self._before, self._done), where
        else:
            untouched = {n: d for n, d in self._before.items() if n.startswith("others-7")}
            assert untouched.items() <= left.items(), where

    def require_done(self, where: str, number: int) -> None:
        assert self.starts, where
        super().require_done(where, number)


class Truncation(World):
    """A partition of four segments with indexes and checkpoints, cut at an offset.

    A broker could start after each kill: it finds a log without a gap, and true indexes.
    """

    least_operations = 12

    def __init__(self, folder: Path, offset: int) -> None:
        self.directory = folder / "logs" / "orders-0"
        batches = {
            base: [
                v2_batch(at, [Record(T + at + i, value=b"v" * 20) for i in range(10)])
                for at in (base, base + 10)
            ]
            for base in (10, 30, 50, 70)
        }
        write_partition(
            self.directory,
            batches,
            epochs=[(0, 10), (4, 60)],
            snapshots={base: ProducerSnapshot(()) for base in (30, 50, 70, 90)},
            checkpoints={"log-start-offset-checkpoint": 45, "recovery-point-offset-checkpoint": 90},
        )
        (self.directory / f"{30:020d}.txnindex").write_bytes(b"")
        super().__init__(self.directory.parent, "truncate", self.directory, offset)

    def _files(self) -> dict[str, bytes]:
        above = {f"../{name}": data for name, data in files_of(self.directory.parent).items()}
        return files_of(self.directory) | above

    def require_sound(self, where: str) -> None:
        now, done = self._files(), self._done
        logs = sorted(name for name in now if name.endswith(".log"))
        old_logs = [name for name in sorted(self._before) if name.endswith(".log")]
        kept = [name for name in logs if name in old_logs]
        assert kept == old_logs[: len(kept)], f"{where}: a gap"
        for name in logs:
            before, after = self._before.get(name), done.get(name)
            assert now[name] in (before, after), f"{where}: {name}"
            index = name.replace(".log", ".index")
            if index not in now:
                continue  # a broker recovers the segment
            for kind in (".index", ".timeindex", ".txnindex"):
                file = name.replace(".log", kind)
                state = done if now[name] == after else self._before
                is_any = before == after and now.get(file) in (self._before.get(file), None)
                assert is_any or now.get(file) == state.get(file), f"{where}: {file}"
        for name in set(now) - set(self._before) - set(done):
            is_own = name.endswith((JOURNAL, ".tmp")) or name.startswith("../.kip33-truncate-")
            assert is_own, f"{where}: {name}"
        if min(len(now[name]) for name in logs) == 0 or len(kept) < len(old_logs):
            start = "../log-start-offset-checkpoint"
            assert now[start] == done[start], f"{where}: a broker would delete the log"


class RecordFiles(World):
    """The second night of a folder of Parquet files: a reader never sees a record twice."""

    least_operations = 5

    def __init__(self, folder: Path) -> None:
        archive = ChangingArchive(folder)
        for topic in ("clicks", "orders"):
            archive.write(archive.log(f"{topic}-0"), batches(0, 5))
        archive.build()
        self._to = folder / "tables"
        kip33.write_records(archive.catalog, self._to, workers=1)
        self._first = self._records()
        for topic in ("clicks", "orders"):
            archive.write(archive.log(f"{topic}-0", 10), batches(10, 5, first_ms=T + DAY_MS))
        archive.build()
        super().__init__(self._to, "write records", archive.catalog, self._to)

    def _records(self) -> list[tuple[str, int]]:
        table = dataset(self._to, partitioning="hive", format="parquet").to_table()
        rows = table.select(["topic", "offset"]).to_pylist()
        return sorted((row["topic"], row["offset"]) for row in rows)

    def learn(self) -> None:
        self._all = self._records()
        for records, end in ((self._first, 10), (self._all, 20)):
            assert records == [(one, at) for one in ("clicks", "orders") for at in range(end)]

    def require_sound(self, where: str) -> None:
        now = self._records()
        assert len(set(now)) == len(now), f"{where}: twice"
        assert set(self._first) <= set(now), f"{where}: lost"

    def require_done(self, where: str, number: int) -> None:
        assert self._records() == self._all, where


OFFSETS = {"in a segment": 45, "at a base": 30, "before the log": 5}
WORLDS = {
    **{f"apply: {way}": partial(Apply, **options) for way, options in WAYS.items()},
    **{f"undo: {way}": partial(Undo, **WAYS[way]) for way in ("moved", "copied")},
    **{f"truncate: {where}": partial(Truncation, offset=at) for where, at in OFFSETS.items()},
    "restore": Restore,
    "remove leftovers": Removal,
    "write records": RecordFiles,
}
SHORT = {  # at every so many operations
    ("before", "apply: deleted"): 8,
    ("before", "undo: copied"): 9,
    ("before", "restore"): 14,
    ("before", "truncate: in a segment"): 4,
    ("after", "remove leftovers"): 4,
    ("before", "write records"): 1,
}
AROUND = [
    *(pytest.param(when, name, every) for (when, name), every in SHORT.items()),
    *(
        pytest.param(when, name, 1, marks=pytest.mark.long)
        for name in WORLDS
        for when in ("before", "after")
    ),
]


@pytest.mark.parametrize(("when", "name", "every"), AROUND)
def test_around_every_operation(
    forks: Forks, tmp_path: Path, when: str, name: str, every: int
) -> None:
    world = WORLDS[name](tmp_path)
    world.reset()
    assert forks.run(*world.command, **world.options).exit_code == 0
    world.learn()
    gone: list[int] = []
    for number in range(0, 1000, every):
        world.reset()
        where = f"{name}, {when} operation {number}"
        code = forks.run(*world.command, **world.options, die=[when, number]).exit_code
        if (counted := world.require_sound(where)) is not None:
            gone.append(counted)
        if code == 0:
            break
        assert code == -signal.SIGKILL, where
        assert forks.run(*world.command, **world.options) == (0, "", ""), where
        world.require_done(where, number)
    world.require_done("undisturbed", number)
    assert number >= world.least_operations
    if gone and every == 1:
        assert min(gone) == 0 or (when, min(gone)) == ("after", 1)
        assert set(gone) == set(range(min(gone), max(gone) + 1)), "one file after the other"
    if when == "before":  # an operation within another has the higher number, and ends first
        assert sorted(gone) == gone


@pytest.mark.parametrize("way", one_in(3, WAYS))
def test_an_apply_killed_again_and_again(forks: Forks, tmp_path: Path, way: str) -> None:
    """Every run, of four threads, is killed after some operations, until one comes to the end."""
    world, chance = Apply(tmp_path, **WAYS[way]), random.Random(f"{SEED} again {way}")
    for number in range(200):
        end = ["after", chance.randrange(15)]
        code = forks.run(*world.command, threads=4, **world.options, die=end).exit_code
        world.require_sound(f"KIP33_SEED={SEED}, {way}, run {number}")
        if code == 0:
            break
    assert code == 0
    world.require_done("in the end", number)


@pytest.mark.parametrize("way", one_in(2, ("copied", "moved")))
def test_a_random_plan_is_undone_to_the_byte(forks: Forks, tmp_path: Path, way: str) -> None:
    """The apply is killed somewhere, or not; the undo again and again, until one ends."""
    options = {name: one for name, one in WAYS[way].items() if name != "trash"}
    for seed in seeds(3 if way == "copied" else 40):
        chance = random.Random(f"{SEED} undo {way} {seed}")
        place = CutShort(_random_archive(tmp_path / f"{seed}", chance))
        times = _times(place.archive)
        end = {"die": ["before", chance.randrange(8, 60)]} if chance.random() < 0.5 else {}
        place.run(forks, threads=4, **WAYS[way], **end)
        undo = ("undo", place.plan_file, place.trash)
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            die = ["after", chance.randrange(20)]
            code = forks.run(*undo, threads=4, **options, die=die).exit_code
        where = f"KIP33_SEED={SEED}, {way}, {seed}"
        assert code == 0, where
        assert (place.archive.files(), _times(place.archive)) == (place.before, times), where


def _random_archive(folder: Path, chance: random.Random) -> ExpiringArchive:
    """Return an archive of which segments of some partitions may go."""
    archive = ExpiringArchive(folder)
    for number in range(chance.randint(1, 4)):
        segments = chance.randint(2, 5)
        archive.partition(
            f"b{number}/orders-{number}",
            segments,
            expired=chance.randint(1, segments - 1),
            kinds=("log", *chance.sample(KINDS[1:], chance.randint(0, 4))),
            index_kinds=chance.choice(((), ("timeindex",), ("timeindex", "index"))),
        )
    archive.snapshot()
    return archive


def test_a_trash_that_comes_and_goes(forks: Forks, tmp_path: Path) -> None:
    """What one run moves and the next deletes is gone in the end, and nothing else."""
    world = Apply(tmp_path)
    killed = forks.run(*world.command, trash=True, die=["before", 9])
    assert killed.exit_code == -signal.SIGKILL
    world.place.require_sound(with_trash=True)
    assert forks.run(*world.command, die=["after", 9]).exit_code == -signal.SIGKILL
    world.place.finish()


def test_what_a_restore_staged_is_not_copied_again(forks: Forks, tmp_path: Path) -> None:
    world = Restore(tmp_path)
    staging = world.log_dir / RESTORE_STAGING
    killed = forks.run(*world.command, die=["before", rf"/{re.escape(RESTORE_JOURNAL)}$"])
    assert killed.exit_code == -signal.SIGKILL
    assert len(list(staging.glob("facts/*/0*.json"))) == 4
    inodes = {log.name: log.stat().st_ino for log in staging.glob("partitions/*/*.log")}
    assert len(inodes) == 4
    assert forks.run(*world.command).exit_code == 0
    now = {log.name: log.stat().st_ino for log in world.log_dir.glob("orders-*/*.log")}
    assert now == inodes


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Night]:
    place = first_night(tmp_path_factory.mktemp("killed"), partitions=4)
    return place, second_night(place, partitions=4)


def test_the_nightly_build_has_some_of_everything_to_do(nights: tuple[Place, Night]) -> None:
    _, before, after, _ = nights[1]
    old = {row["log_uri"]: row["last_modified_ms"] for row in before.rows}
    new = {row["log_uri"]: row["last_modified_ms"] for row in after.rows}
    index_files = before.files.keys() & after.files.keys()
    counts = {
        "gone": len(old.keys() - new.keys()),
        "new": len(new.keys() - old.keys()),
        "read again": sum(old[log] != new[log] for log in old.keys() & new.keys()),
        "reused": sum(old[log] == new[log] for log in old.keys() & new.keys()),
        "index files replaced": sum(before.files[p] != after.files[p] for p in index_files),
        "index files withdrawn": len(before.files.keys() - after.files.keys()),
    }
    assert min(counts.values()) >= 4, counts


@pytest.mark.parametrize(
    ("when", "rename_to", "left"),
    one_in(4, [
        pytest.param("before", r"/claims\.arrow$", {}, id="before the claims"),
        pytest.param("after", r"/claims\.arrow$", {"claims": 1}, id="after the claims"),
        pytest.param(
            "before", r"/staging/.*\.parquet$", {"claims": 1}, id="before the rows taken over"
        ),
        pytest.param(
            "before",
            r"\.timeindex$",
            {"claims": 1, "parts": 1, "temporary": 1},
            id="before the first index file",
        ),
        pytest.param("after", r"\.timeindex$", {"parts": 1}, id="after the first index file"),
        pytest.param("before", r"\.index$", {"parts": 1}, id="between .timeindex and .index"),
        pytest.param("before", r"/staging/.*part-00002", {"parts": 2}, id="before a task's part"),
        pytest.param(
            "before", r"/snapshots/.*\.parquet$", {"parts": 5}, id="before the merged part moves"
        ),
        pytest.param(
            "after", r"/snapshots/.*\.parquet$", {"parts": 4}, id="after the merged part moved"
        ),
        pytest.param(
            "before", r"\.json$", {"parts": 4, "snapshots": 1}, id="before the commit file"
        ),
        pytest.param(
            "after", r"\.json$", {"claims": 1, "snapshots": 2}, id="after the commit file"
        ),
    ]),
)  # fmt: skip
def test_a_build_at_a_rename(
    forks: Forks, nights: tuple[Place, Night], when: str, rename_to: str, left: dict[str, int]
) -> None:
    place, night = nights
    place.restore(night)
    assert forks.run(*place.command, die=[when, rename_to]).exit_code == -signal.SIGKILL

    wreck = Wreck.at(place.index_dir, night)
    require_old_or_new(wreck, night)
    assert {name: getattr(wreck, name) for name in left} == left
    assert (wreck.rows == night.after.rows) == (wreck.snapshots == 2)
    assert place.build() == night.after


def test_a_first_build_at_a_rename(forks: Forks, nights: tuple[Place, Night]) -> None:
    place = nights[0]
    place.clear()
    night = place.night("first")
    for rename_to in (r"/claims\.arrow$", r"\.index$", r"/snapshots/.*\.parquet$", r"\.json$"):
        place.restore(night)
        killed = forks.run(*place.command, die=["after", rename_to])
        assert killed.exit_code == -signal.SIGKILL, rename_to
        require_old_or_new(Wreck.at(place.index_dir, night), night, rename_to)
        assert place.build() == night.after, rename_to


def test_a_temporary_index_file_is_removed_when_its_build_is_dead_for_sure(
    forks: Forks, nights: tuple[Place, Night]
) -> None:
    place, night = nights
    place.restore(night)
    forks.run(*place.command, die=["before", r"\.timeindex$"])
    [left] = place.index_dir.rglob(".*.tmp")

    assert place.build() == night.after
    assert left.exists(), "the build that it belongs to may still run"
    now_ms = int(left.stat().st_mtime * 1000) + DEAD_AFTER_MS + 60_000
    assert place.build(now_ms=now_ms) == night.after
    assert not left.exists()
