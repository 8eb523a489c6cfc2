"""A build in place holds the lock of every log directory below SOURCE until it ends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.builds import task as build_task
from kip33.errors import LockedError
from tests.archive.test_broker_locks import held_by_another, is_free
from tests.builders.changing_archive import ChangingArchive, batches
from tests.faults.builds import carry_out

HELD = r"b2/\.lock: a broker or another run of kip33 holds the lock; .*stop the broker"


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Return two log directories; both have a lock file that nobody holds."""
    archive = ChangingArchive(tmp_path, in_place=True)
    for broker in ("b1", "b2"):
        archive.write(archive.log(f"{broker}/orders-0"), batches(0, 5))
        (archive.source / broker / ".lock").touch()
    return archive


def files(archive: ChangingArchive) -> set[Path]:
    return {path for path in archive.folder.rglob("*") if path.is_file()}


def test_a_held_lock_refuses_the_plan_and_nothing_is_written(archive: ChangingArchive) -> None:
    before = files(archive)
    with (
        held_by_another(archive.source / "b2/.lock"),
        pytest.raises(LockedError, match=HELD),
    ):
        archive.plan()
    assert files(archive) == before


def test_a_broker_that_starts_after_the_plan_refuses_the_build(archive: ChangingArchive) -> None:
    before = files(archive)
    plan = archive.plan()
    with held_by_another(archive.source / "b2/.lock"), pytest.raises(LockedError, match=HELD):
        carry_out(plan)
    assert files(archive) == before


def test_the_locks_are_held_while_segments_are_built(
    archive: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = [archive.source / broker / ".lock" for broker in ("b1", "b2")]
    seen: list[bool] = []
    scan: Callable[..., object] = build_task._scan_segment

    def watched(*arguments: object, **how: object) -> object:
        seen.extend(is_free(lock) for lock in locks)
        return scan(*arguments, **how)

    monkeypatch.setattr(build_task, "_scan_segment", watched)
    archive.build()
    assert seen == [False] * 4
    assert all(is_free(lock) for lock in locks)


def test_a_build_into_an_index_directory_asks_no_lock(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("b2/orders-0"), batches(0, 5))
    lock = archive.source / "b2/.lock"
    lock.touch()
    with held_by_another(lock):
        assert archive.build().segments == 1
