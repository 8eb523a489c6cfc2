"""An apply that a disk or a permission stops: nothing is lost, and a later apply continues it.

As root it runs without the privilege to bypass permissions.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.retention.plan import with_plan_id, write_plan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import A, ExpiringArchive
from tests.cli.console import PROJECT, Finished
from tests.faults.cut_short import CutShort, require_sound
from tests.faults.forks import Forks
from tests.faults.privileges import shut
from tests.faults.small_disks import PAGE_BYTES, SmallDisks, why_not
from tests.long_forms import one_in

NO_SPACE = "No space left on device"
DENIED = "Permission denied"
Apply = Callable[..., Finished]


def partitions_of(done: Finished) -> list[dict[str, Any]]:
    """Return the rows that the program printed."""
    assert (done.exit_code, done.stderr) == (0, "")
    ready, printed = done.stdout.splitlines()
    assert ready == "ready"
    return list(json.loads(printed)["partitions"])


@pytest.fixture
def place(tmp_path: Path) -> CutShort:
    return CutShort(ExpiringArchive.with_two_partitions(tmp_path))


@pytest.fixture
def apply_as_any_owner(forks_as_any_owner: Forks, place: CutShort) -> Apply:
    """Return a function that applies the place's plan, to a trash if one is given."""
    return lambda *trash: forks_as_any_owner.run("applies", place.plan_file, *trash)


@pytest.mark.parametrize(
    ("where", "mode", "left", "said"),
    [
        pytest.param(f"archive/{A}", 0o500, 28, "00.log: cannot be deleted: ", id="partition"),
        pytest.param(f"archive/{A}", 0, 28, "cannot be listed: ", id="shut"),
        pytest.param(f"indexes/{A}", 0o500, 26, "00.index: cannot be deleted: ", id="indexes"),
        pytest.param(f"indexes/{A}", 0, 28, "cannot be checked: ", id="indexes are shut"),
    ],
)
def test_permission_denied(
    place: CutShort, apply_as_any_owner: Apply, where: str, mode: int, left: int, said: str
) -> None:
    with shut(place.folder / where, mode):
        rows = partitions_of(apply_as_any_owner())
    first, second = rows
    assert (first["outcome"], first["segments_deleted"], first["stopped_at"]) == ("stopped", 0, 0)
    assert said in first["why"]
    assert DENIED in first["why"]
    assert (second["outcome"], second["segments_deleted"]) == ("done", 4)
    gone = place.require_sound()
    assert len([path for path in place.planned - gone if A in path]) == left
    place.finish()


@pytest.mark.parametrize("is_trash", [False, True], ids=["the partition", "the trash"])
def test_what_may_not_be_moved(place: CutShort, apply_as_any_owner: Apply, is_trash: bool) -> None:
    folder = place.trash / place.plan.plan_id
    folder.mkdir(parents=True)
    with shut(folder if is_trash else place.archive.source / A, 0o500):
        first, second = partitions_of(apply_as_any_owner(place.trash))
    assert (first["outcome"], second["outcome"]) == ("stopped", "stopped" if is_trash else "done")
    assert DENIED in first["why"]
    place.require_sound(with_trash=True)
    place.finish(with_trash=True)


@pytest.mark.parametrize("mode", one_in(2, [0o500, 0]))
def test_a_journal_that_may_not_be_written(
    place: CutShort, apply_as_any_owner: Apply, mode: int
) -> None:
    journal = place.folder / "catalog/retention" / place.plan.plan_id
    (journal / A).mkdir(parents=True)
    with shut(journal / A, mode):
        first, second = partitions_of(apply_as_any_owner())
    assert (first["outcome"], first["segments_deleted"]) == ("stopped", 0)
    assert DENIED in first["why"]
    assert second["outcome"] == "done"
    gone = place.require_sound()
    assert not [path for path in gone if A in path]
    place.finish()


def test_a_lock_that_may_not_be_opened(place: CutShort, apply_as_any_owner: Apply) -> None:
    lock = place.archive.source / "b2/.lock"
    lock.touch()
    with shut(lock):
        done = apply_as_any_owner()
    lock.unlink()
    refused = json.loads(done.stdout.splitlines()[-1])["refused"]
    assert f"b2/.lock: cannot be opened: {DENIED}" in refused
    assert place.archive.files() == place.before


class Disks(NamedTuple):
    """Two small disks, and what runs there."""

    disks: SmallDisks
    commands: Forks
    catalog_disk: Path
    trash_disk: Path


class OnSmallDisks:
    """A plan whose catalog and trash are on small disks.

    What such a disk holds is elsewhere for those outside: links lead there.
    """

    def __init__(self, folder: Path, disks: Disks) -> None:
        self.disks, self._commands, self.catalog_disk, self.trash_disk = disks
        self.archive = ExpiringArchive.with_two_partitions(folder)
        planned = self.archive.plan()
        for name, disk in (("catalog", self.catalog_disk), ("trash", self.trash_disk)):
            seen = self.disks.seen(disk) / "here"
            shutil.rmtree(seen, ignore_errors=True)  # of the test before
            (seen.parent / "ballast").unlink(missing_ok=True)
            if (folder / name).exists():
                shutil.copytree(folder / name, seen)
                shutil.rmtree(folder / name)
            (folder / name).symlink_to(seen)
        basis = replace(planned.basis, catalog=Location.of(self.catalog_disk / "here"))
        self.plan = with_plan_id(basis, planned.partitions)
        self.plan_file = folder / "plan.jsonl"
        write_plan(self.plan, Location.of(self.plan_file))
        self.before = self.archive.files()

    def apply(self, *, with_trash: bool) -> list[dict[str, Any]]:
        """Apply the plan; nothing may be lost, whatever comes of it."""
        trash = [self.trash_disk / "here"] if with_trash else []
        rows = partitions_of(self._commands.run("applies", self.plan_file, *trash))
        require_sound(self.archive, [self.plan], self.before, with_trash=with_trash)
        return rows

    def require_done(self, *, with_trash: bool) -> None:
        """Apply once more, with room on the disks: all has to be as if there always had been."""
        assert {row["outcome"] for row in self.apply(with_trash=with_trash)} == {"done"}
        planned = self.archive.planned_files(self.plan)
        assert self.before.keys() - self.archive.files().keys() == planned
        if with_trash:
            assert self.archive.trashed(self.plan).keys() == planned


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    problem = why_not()
    if problem:
        pytest.skip(f"no disk to fill: {problem}")
    folder = tmp_path_factory.mktemp("disks")
    places = (folder / "catalogs", folder / "trashes")
    with SmallDisks(*places) as disks, Forks(*disks.enter(PROJECT)) as commands:
        yield Disks(disks, commands, *places)


@pytest.fixture
def small(tmp_path: Path, disks: Disks) -> OnSmallDisks:
    return OnSmallDisks(tmp_path, disks)


@pytest.mark.parametrize("objects", one_in(4, [3, 0, 1, 2, 4, 9]))
def test_no_space_for_the_journal(small: OnSmallDisks, objects: int) -> None:
    small.disks.fill(small.catalog_disk, leave=objects * PAGE_BYTES)
    rows = small.apply(with_trash=False)
    stopped = [row for row in rows if row["outcome"] == "stopped"]
    assert stopped
    for row in stopped:
        assert NO_SPACE in row["why"]
        assert "without it no more segments of its partition are deleted" in row["why"]
    assert sum(row["segments_deleted"] for row in rows) <= objects
    small.disks.make_room(small.catalog_disk)
    small.require_done(with_trash=False)


@pytest.mark.parametrize("files", one_in(4, [6, 0, 1, 13]))
def test_no_space_in_the_trash(small: OnSmallDisks, files: int) -> None:
    small.disks.fill(small.trash_disk, leave=files * PAGE_BYTES)
    rows = small.apply(with_trash=True)
    assert {row["outcome"] for row in rows} == {"stopped"}
    assert all(NO_SPACE in row["why"] for row in rows)
    assert all("cannot be moved" in row["why"] for row in rows)
    assert sum(row["segments_deleted"] for row in rows) == sum(
        path.name.endswith("moved.json") for path in small.archive.journal(small.plan)
    )
    small.disks.make_room(small.trash_disk)
    small.require_done(with_trash=True)
