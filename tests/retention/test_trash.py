"""A trash instead of deletion: every complete file is in one place or the other."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kip33.archive.removal import move_file
from kip33.archive.segment_paths import PlannedFile
from kip33.retention.apply_segment import SegmentStep
from kip33.stores import locations
from kip33.stores.locations import Location
from tests.builders.expiring_archive import A, ExpiringArchive, only_within_a_directory
from tests.cases import each_case


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    return ExpiringArchive.with_two_partitions(tmp_path)


@pytest.fixture
def trash(tmp_path: Path) -> Location:
    return Location.of(tmp_path / "trash")


def other_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no rename go from one directory to another."""
    monkeypatch.setattr(os, "rename", only_within_a_directory(os.rename))


@each_case("renames", (True, False))
def test_to_a_trash(renames: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        archive = ExpiringArchive.with_two_partitions(tmp_path)
        trash = Location.of(tmp_path / "trash")
        if not renames:
            other_device(patch)
        plan, before, told = archive.plan(), archive.files(), []
        times = {path: (archive.folder / path).stat().st_mtime_ns for path in before}
        applied = archive.apply(plan, trash=trash, on_record=told.append)
        after, moved = archive.files(), archive.trashed(plan)
        assert before == after | moved
        assert moved.keys() == archive.planned_files(plan)
        assert (applied.segments_deleted, applied.stopped) == (8, 0)
        assert applied.trash == trash.child(plan.plan_id).uri
        assert {one["trash"] for one in told} == {applied.trash}
        assert {one["outcome"] for one in told} == {None, "moved"}
        log = archive.folder / "trash" / plan.plan_id / "segments" / A / archive.log(0).name
        assert log.stat().st_mtime_ns == times[f"archive/{A}/{log.name}"]
        shutil.copytree(log.parents[2], archive.source, dirs_exist_ok=True)
        shutil.copytree(log.parents[3] / "indexes", archive.index_dir, dirs_exist_ok=True)
        assert archive.files() == before, "one copy brings everything back"


def test_an_incomplete_copy(
    archive: ExpiringArchive, trash: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_device(monkeypatch)
    monkeypatch.setattr(shutil, "copy2", lambda source, target: Path(target).write_bytes(b"!"))
    before = archive.files()
    applied = archive.apply(archive.plan(), trash=trash)
    assert [one.stopped_at for one in applied.partitions] == [0, 0]
    assert "1 bytes were copied, expected 440" in (applied.partitions[0].why or "")
    assert archive.files() == before
    assert [path.name for path in Path(trash.path).rglob("*") if path.is_file()] == ["plan.jsonl"]


@each_case("same", (True, False))
@each_case("renames", (True, False))
def test_what_is_in_the_trash_already(
    same: bool, renames: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        archive = ExpiringArchive.with_two_partitions(tmp_path)
        trash = Location.of(tmp_path / "trash")
        if not renames:
            other_device(patch)
        plan, before, log = archive.plan(), archive.files(), archive.log(0)
        there = archive.folder / "trash" / plan.plan_id / "segments" / A / log.name
        data = log.read_bytes() if same else b"!" * log.stat().st_size
        archive.write(there, data)
        first = archive.apply(plan, trash=trash).partitions[0]
        assert there.read_bytes() == data
        assert first.outcome == ("done" if same else "stopped")
        if not same:
            assert first.stopped_at == 0
            assert "another file is there: file://" in (first.why or "")
            assert before[f"archive/{A}/{log.name}"] == log.read_bytes()


def by_a_link(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.symlink_to(file)


def below_a_link(file: Path, target: Path) -> None:
    target.parent.parent.mkdir(parents=True)
    target.parent.symlink_to(file.parent)


def by_a_hard_link(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.hardlink_to(file)


def by_a_link_to_a_copy(file: Path, target: Path) -> None:
    copy = shutil.copy2(file, file.with_suffix(".copy"))
    by_a_link(copy, target)


@each_case("lead", (by_a_link, below_a_link, by_a_hard_link, by_a_link_to_a_copy))
def test_a_trash_that_leads_back_to_the_archive_takes_nothing(
    lead: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan, log = archive.plan(), archive.log(0)
    lead(log, tmp_path / "trash" / plan.plan_id / "segments" / A / log.name)
    of_a = {path: data for path, data in archive.files().items() if A in path}
    first = archive.apply(plan, trash=Location.of(tmp_path / "trash")).partitions[0]
    assert (first.outcome, first.stopped_at) == ("stopped", 0)
    assert of_a.items() <= archive.files().items()


def test_a_file_on_another_store_goes_to_the_trash_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index files may lie elsewhere than their logs."""
    local = fs.LocalFileSystem()
    monkeypatch.setattr(locations, "_filesystem", lambda root: local)
    data = os.urandom(3 << 20)
    (tmp_path / "file").write_bytes(data)
    file, target = Location("hdfs://other", str(tmp_path / "file")), tmp_path / "trash/file"
    move_file(file, Location.of(target), size_bytes=len(data))
    assert target.read_bytes() == data
    assert [path.name for path in tmp_path.rglob("*")] == ["trash", "file"]


def test_a_vanished_trash_is_not_a_missing_file(
    archive: ExpiringArchive, trash: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are "no such file"; an earlier run that was cut short makes them look alike."""
    plan, before = archive.plan(), archive.files()

    def cut_short(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.apply(plan, on_record=cut_short)
    monkeypatch.setattr(os, "rename", lambda *_: Path("/no/such/file").stat())
    applied = archive.apply(plan, trash=trash)
    assert [one.stopped_at for one in applied.partitions] == [0, 0]
    assert "cannot be moved: No such file" in (applied.partitions[0].why or "")
    assert archive.files() == before


def timed_out(step: SegmentStep, file: PlannedFile, *, remove: Any = SegmentStep._remove) -> None:
    remove(step, file)
    if file.name == f"{100:020d}.index" and file.folder == step.partition.directory:
        raise TimeoutError(errno.ETIMEDOUT, "timed out")


@each_case("with_trash", (False, True))
def test_a_store_that_deletes_but_reports_a_failure(
    with_trash: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A time-out: without a trash that is enough; with one the next run has to look."""
    with monkeypatch.context() as patch:
        archive = ExpiringArchive.with_two_partitions(tmp_path)
        trash = Location.of(tmp_path / "trash")
        plan = archive.plan()
        patch.setattr(SegmentStep, "_remove", timed_out)
        applied = archive.apply(plan, trash=trash if with_trash else None)
        assert applied.stopped == (2 if with_trash else 0)
        again = archive.apply(plan, trash=trash if with_trash else None)
        assert again.stopped == 0
        assert not archive.planned_files(plan) & archive.files().keys()
        if with_trash:
            assert archive.trashed(plan).keys() == archive.planned_files(plan)
