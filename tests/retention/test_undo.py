"""An undo puts back what is in the trash as planned, and nothing over what is there.

However often it is killed: `tests/faults/test_killed.py`.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.errors import LockedError, PlanError
from kip33.formats.partition_metadata import PartitionMetadata
from kip33.retention.apply_segment import Run
from kip33.retention.plan import RetentionPlan, with_plan_id
from kip33.retention.undo import Undone, undo_plan
from kip33.stores.locations import Location
from tests.archive.test_broker_locks import held_by_another
from tests.builders.expiring_archive import (
    A,
    B,
    ExpiringArchive,
    clock,
    event,
    only_within_a_directory,
)
from tests.cases import each_case

OLD_ID, NEW_ID = "bn9RMmT4REWVDFQzf3IUaQ", "tqimKeZwStOEOwRzT3L5oQ"
OLD_TOPIC, NEW_TOPIC = (PartitionMetadata(one).to_bytes() for one in (OLD_ID, NEW_ID))


class Applied:
    """An archive whose plan was applied with a trash."""

    def __init__(self, folder: Path) -> None:
        self.archive = ExpiringArchive.with_two_partitions(folder)
        self.archive.write(self.archive.source / A / "partition.metadata", OLD_TOPIC)
        self.before, self.trash = self.archive.files(), folder / "trash"
        self.plan = self.archive.plan()
        self.archive.apply(self.plan, trash=Location.of(self.trash))

    def undo(self, plan: RetentionPlan | None = None, **how: Any) -> Undone:
        return undo_plan(
            plan or self.plan, Location.of(self.trash), clock=clock(), threads=2, **how
        )

    def trashed(self, base_offset: int, kind: str = "log") -> Path:
        """Return where a file of A lies in the trash."""
        name = self.archive.log(base_offset).with_suffix(f".{kind}").name
        return self.trash / self.plan.plan_id / "segments" / A / name

    def index(self, base_offset: int) -> Path:
        """Return where the `.index` beside a log of A was."""
        return self.archive.log(base_offset).with_suffix(".index")

    def missing(self) -> set[str]:
        """Return the paths of the files that did not come back."""
        return self.before.keys() - self.archive.files().keys()

    def of_segments(self, *base_offsets: int) -> set[str]:
        """Return the paths of all files of some segments of A."""
        stems = tuple(f"{base_offset:020d}." for base_offset in base_offsets)
        return {path for path in self.before if f"{A}/" in path and Path(path).name[:21] in stems}


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied(tmp_path)


def test_an_undo_makes_the_archive_what_it_was(applied: Applied) -> None:
    archive = applied.archive
    after, dry, real = archive.files(), [], []
    tried = applied.undo(dry_run=True, on_record=dry.append)
    assert archive.files() == after
    undone = applied.undo(on_record=real.append)
    assert archive.files() == applied.before
    assert archive.trashed(applied.plan) == {}
    assert archive.log(0).stat().st_mtime_ns == applied.plan.partitions[0].segments[0].log[2]
    assert (tried.partitions, tried.dry_run) == (undone.partitions, True)
    sizes = sum(len(applied.before[path]) for path in archive.planned_files(applied.plan))
    assert sum(one.bytes_put_back for one in undone.partitions) == sizes
    assert (undone.segments_put_back, undone.segments_left, undone.findings) == (8, 0, [])
    steps = [event(one) for one in real if one["log_dir"] == "b1"]
    assert steps == [
        f"{what} b1 {base}" for base in (300, 200, 100, 0) for what in ("undo_intent", "put_back")
    ]
    assert sorted(map(event, dry)) == sorted(map(event, real))
    again = applied.undo()
    assert [one.segments_there_already for one in again.partitions] == [4, 4]
    assert (again.segments_put_back, again.findings) == (0, [])


def test_an_undo_that_an_apply_may_run_beside_leaves_its_copies_in_the_trash(
    applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "is_surely_alone", False)
    monkeypatch.setattr(os, "rename", only_within_a_directory(os.rename))
    moved = applied.archive.trashed(applied.plan)
    assert applied.undo().segments_put_back == 8
    assert applied.archive.files() == applied.before
    assert applied.archive.trashed(applied.plan) == moved
    again = applied.undo()
    assert [one.segments_there_already for one in again.partitions] == [4, 4]


def test_a_plan_that_was_undone_is_not_applied_again(applied: Applied) -> None:
    applied.undo()
    again = applied.archive.apply(applied.plan).partitions[0]
    assert (again.outcome, again.stopped_at) == ("stopped", 0)
    assert "was put back after this plan deleted it; make another plan" in (again.why or "")


Left = tuple[Callable[[Applied], object], set[str] | None, str, str]
LEFT: list[Left] = [
    (
        lambda a: a.trashed(200).unlink(), None, "200.log: it is not in the trash: file://",
        "a log is not in the trash: its index files stay, too, and what is older",
    ),
    (
        lambda a: a.archive.rewrite(a.trashed(200), size=1), None, "200.log: 441 bytes found",
        "another log is in the trash",
    ),
    (
        lambda a: os.utime(a.trashed(200), ns=(0, 5)), None, "200.log: modified at 5 ns",
        "a log of another time",
    ),
    (
        lambda a: a.trashed(200, "index").unlink(), {f"archive/{A}/{200:020d}.index"},
        "200.index: it is not in the trash", "an index is not in the trash",
    ),
    (
        lambda a: (a.trashed(200).rename(a.trash / "x"), a.trashed(200).symlink_to(a.trash / "x")),
        None, "200.log: a link found", "a link in the trash",
    ),
    (
        lambda a: (a.trashed(200, "index").rename(a.index(200)), os.utime(a.index(200), (5, 5))),
        set(), "200.index: modified at", "an index file at its place is not as planned",
    ),
]  # fmt: skip


@each_case(("change", "left", "said", "name"), LEFT)
def test_a_file_that_is_not_in_the_trash_as_planned_is_left(
    change: Any, left: set[str] | None, said: str, name: str, tmp_path: Path
) -> None:
    applied = Applied(tmp_path)
    change(applied)
    undone = applied.undo()
    has_gap = left is None
    assert applied.missing() == (applied.of_segments(200, 100, 0) if left is None else left)
    first, second = undone.partitions
    put_back = 1 if has_gap else 3
    assert (first.outcome, first.segments_put_back, first.is_refused) == (
        "not_put_back", put_back, True,
    )  # fmt: skip
    assert said in (first.why or "")
    gap = "200.log: without it there would be a gap, so the trash keeps 2 older segments"
    assert first.left[-1].endswith(gap) == has_gap
    assert (second.outcome, second.why) == ("put_back", None)
    assert (undone.segments_left, undone.findings) == (4 - put_back, ["not_put_back"])
    assert applied.archive.files().items() <= applied.before.items()


def linked(applied: Applied) -> None:
    """Make the directory of A a link to where it went."""
    directory = applied.archive.source / A
    directory.rename(applied.archive.folder / "elsewhere")
    directory.symlink_to(applied.archive.folder / "elsewhere")


REFUSED: list[tuple[Callable[[Applied], object], str, str]] = [
    (
        lambda a: a.archive.write(a.archive.log(200), b"new"), "200.log: 3 bytes found",
        "another log is there",
    ),
    (
        lambda a: a.archive.write(a.archive.log(50)), "50.log: is not in the plan, but older",
        "the topic was created again",
    ),
    (
        lambda a: a.archive.write(a.archive.log(100).with_suffix(".log.swap")), "a .log.swap",
        "a broker was compacting",
    ),
    (
        lambda a: shutil.rmtree(a.archive.source / A), "the directory is missing",
        "the topic was deleted",
    ),
    (
        lambda a: a.archive.write(a.archive.source / A / "partition.metadata", NEW_TOPIC),
        f"topic id {NEW_ID} found, the plan says {OLD_ID}: the topic was created again",
        "another topic of that name",
    ),
    (
        lambda a: a.archive.log(400).unlink(),
        "400.log: is missing, and without it a gap would follow", "what the plan kept is missing",
    ),
    (
        lambda a: os.utime(a.trashed(200).rename(a.archive.log(200)), (5, 5)),
        "200.log: modified at", "a log that is not in the trash is there, of another time",
    ),
    (linked, "is a link", "the directory is a link now"),
]  # fmt: skip


@each_case(("change", "said", "name"), REFUSED)
def test_a_partition_that_has_changed_is_left_as_it_is(
    change: Any, said: str, name: str, tmp_path: Path
) -> None:
    applied = Applied(tmp_path)
    change(applied)
    before = {path: data for path, data in applied.archive.files().items() if A in path}
    first, second = applied.undo().partitions
    assert said in (first.why or "")
    assert (first.outcome, first.segments_put_back, first.is_refused) == ("not_put_back", 0, True)
    assert {path: data for path, data in applied.archive.files().items() if A in path} == before
    assert (second.outcome, second.segments_put_back) == ("put_back", 4)


def test_a_file_with_other_bytes_is_not_replaced_though_its_size_and_time_are_the_same(
    applied: Applied,
) -> None:
    log = applied.archive.log(200)
    log.write_bytes(b"!" * len(applied.before[f"archive/{A}/{log.name}"]))
    shutil.copystat(applied.trashed(200), log)
    first = applied.undo().partitions[0]
    assert "200.log: cannot be put back: another file is there" in (first.why or "")
    assert log.read_bytes()[:1] == b"!"
    assert applied.trashed(200).exists()


def test_an_undo_waits_for_that_of_a_later_plan(tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    before, trash = archive.files(), Location.of(tmp_path / "trash")
    first = archive.plan()
    first = with_plan_id(
        first.basis,
        [one._replace(segments=one.segments[:1], first_kept_base_offset=100)
         for one in first.partitions],
    )  # fmt: skip
    archive.apply(first, trash=trash)
    archive.snapshot()
    second = archive.plan()
    archive.apply(second, trash=trash)
    too_early = undo_plan(first, trash, clock=clock())
    assert "100.log: is missing, and" in (too_early.partitions[0].why or "")
    assert (too_early.segments_put_back, too_early.is_incomplete) == (0, False)
    for plan in (second, first):
        assert undo_plan(plan, trash, clock=clock()).findings == []
    assert archive.files() == before


def test_only_what_an_apply_of_the_plan_moved_comes_back(applied: Applied) -> None:
    stray = applied.trashed(200).with_name(f"{400:020d}.log")
    stray.write_bytes(b"stray")
    applied.undo()
    assert stray.exists()
    assert applied.archive.files() == applied.before
    with pytest.raises(PlanError, match=r"no apply of plan .* moved a file"):
        applied.undo(applied.archive.plan(now_ms=applied.plan.basis.now_ms - 1))


@each_case("is_in_trash", (True, False))
def test_a_journal_that_went_with_an_old_catalog_is_replaced_by_the_plan_in_the_trash(
    is_in_trash: bool, tmp_path: Path
) -> None:
    applied = Applied(tmp_path)
    shutil.rmtree(applied.archive.folder / "catalog/retention")
    if not is_in_trash:
        (applied.trash / applied.plan.plan_id / "plan.jsonl").unlink()
        with pytest.raises(PlanError, match="nothing to put back"):
            applied.undo()
        return
    applied.trashed(200).unlink()
    undone = applied.undo()
    assert [one.segments_moved for one in undone.partitions] == [4, 4]
    assert [one.segments_put_back for one in undone.partitions] == [1, 4]
    assert applied.missing() == applied.of_segments(200, 100, 0)


def test_a_plan_that_was_undone_without_its_journal_is_not_applied_again(applied: Applied) -> None:
    shutil.rmtree(applied.archive.folder / "catalog/retention")
    assert applied.undo().segments_put_back == 8
    assert applied.archive.files() == applied.before
    again = applied.archive.apply(applied.plan).partitions[0]
    assert "was put back after this plan deleted it" in (again.why or "")
    with pytest.raises(
        PlanError, match=r"no apply of plan .* moved a file, and file://.* has none"
    ):
        applied.undo()


def test_what_was_deleted_is_said_to_be(tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan = archive.plan()
    archive.apply(plan)
    undone = undo_plan(plan, Location.of(tmp_path / "trash"), clock=clock())
    assert undone.segments_left == 8
    assert "0.log: an apply without a trash deleted it" in (undone.partitions[0].why or "")


def test_no_file_comes_back_under_a_running_broker(applied: Applied) -> None:
    lock = applied.archive.source / Path(B).parent / ".lock"
    lock.touch()
    before = applied.archive.files()
    with held_by_another(lock), pytest.raises(LockedError, match="holds the lock"):
        applied.undo()
    assert applied.archive.files() == before
