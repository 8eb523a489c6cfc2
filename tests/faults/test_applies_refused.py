"""An apply that a disk or a permission stops: nothing is lost, and a later apply continues it.

As root it runs without the privilege to bypass permissions.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.expiring_archive import A, ExpiringArchive
from tests.cli.console import PROJECT, Finished
from tests.faults.cut_short import CutShort
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
    return list(json.loads(done.stdout))


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
    assert f"b2/.lock: cannot be opened: {DENIED}" in done.stderr
    assert place.archive.files() == place.before


@pytest.mark.parametrize("files", one_in(4, [6, 0, 1, 13]))
def test_no_space_in_the_trash(place: CutShort, files: int) -> None:
    if problem := why_not():
        pytest.skip(f"no disk to fill: {problem}")
    with SmallDisks(place.trash) as disks, Forks(*disks.enter(PROJECT)) as commands:

        def apply() -> list[dict[str, Any]]:
            rows = partitions_of(commands.run("applies", place.plan_file, place.trash))
            shutil.copytree(disks.seen(place.trash), place.trash, dirs_exist_ok=True)
            place.require_sound(with_trash=True)
            return rows

        disks.fill(place.trash, leave=files * PAGE_BYTES)
        for row in apply():
            assert row["outcome"] == "stopped"
            assert NO_SPACE in row["why"]
            assert "cannot be moved" in row["why"]
        disks.make_room(place.trash)
        assert {row["outcome"] for row in apply()} == {"done"}
    place.finish(with_trash=True)
