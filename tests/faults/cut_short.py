"""Applies of one plan that are cut short, and what has to be true of what they leave."""

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

from kip33.retention.apply_segment import DONE_RESULTS
from kip33.retention.plan import RetentionPlan, write_plan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import ExpiringArchive
from tests.faults.applies import apply_here
from tests.faults.forks import Forks

WAYS: dict[str, dict[str, Any]] = {  # options of the command `apply` of `tests.faults.forks`
    "deleted": {},
    "moved": {"trash": True},
    "copied": {"trash": True, "other_disk": True},
}


class CutShort:
    """An archive and a plan, as before any apply, whatever was applied and killed since."""

    def __init__(self, archive: ExpiringArchive) -> None:
        self.archive, self.plan = archive, archive.plan()
        self.folder = archive.folder
        self.plan_file, self.trash = self.folder / "plan.jsonl", self.folder / "trash"
        self.command = ("apply", self.plan_file, self.trash)  # of `tests.faults.forks`
        write_plan(self.plan, Location.of(self.plan_file))
        self.before = archive.files()
        self.planned = archive.planned_files(self.plan)
        self._saved = self.folder / "saved"
        for place in (archive.source, archive.index_dir):
            shutil.copytree(place, self._saved / place.name)
        self._count = count()

    def restore(self) -> None:
        """Make everything what it was; times are of the files, so they count as unchanged."""
        gone = self.folder / f"gone-{next(self._count)}"
        gone.mkdir()
        for place in (self.archive.source, self.archive.index_dir):
            place.rename(gone / place.name)
            shutil.copytree(self._saved / place.name, place)
        for place in (self.trash, self.folder / "catalog/retention"):
            if place.exists():
                place.rename(gone / place.name)

    def run(self, forks: Forks, **how: Any) -> int:
        """Let a child apply the plan; return its exit code."""
        return forks.run(*self.command, **how).exit_code

    def finish(self, *, with_trash: bool = False) -> None:
        """Apply the plan once more, undisturbed: all has to be as if nothing had been killed."""
        applied = apply_here(self.plan_file, self.trash if with_trash else None)
        assert applied.stopped == 0, applied
        done = [one.segments_deleted + one.segments_gone_already for one in applied.partitions]
        assert done == [len(one.segments) for one in self.plan.with_segments()]
        self.require_sound(with_trash=with_trash)
        assert self.before.keys() - self.archive.files().keys() == self.planned
        if with_trash:
            assert self.archive.trashed(self.plan).keys() == self.planned

    def require_sound(self, *, with_trash: bool = False, where: str = "") -> set[str]:
        """Raise AssertionError unless what is true at every moment is; return the files gone."""
        return require_sound(
            self.archive, [self.plan], self.before, with_trash=with_trash, where=where
        )


def require_sound(
    archive: ExpiringArchive,
    plans: list[RetentionPlan],
    before: dict[str, bytes],
    *,
    with_trash: bool = False,
    where: str = "",
) -> set[str]:
    """Raise AssertionError unless nothing is lost, nothing has a hole, and the journals are true.

    Return the paths of the files that are gone.
    """
    now = archive.files()
    gone = before.keys() - now.keys()
    planned = set().union(*map(archive.planned_files, plans))
    assert gone <= planned, where
    assert now.items() <= before.items(), where
    if with_trash:
        moved = [archive.trashed(plan) for plan in plans]
        together = {path: data for one in moved for path, data in one.items()}
        assert together.items() <= before.items(), where
        assert gone <= together.keys(), where
    require_no_hole(before, now, where)
    begun: set[str] = set()
    for plan in plans:
        begun |= require_true_journal(archive, plan, now, where)
    assert gone <= begun, where
    return gone


def require_no_hole(before: dict[str, bytes], now: dict[str, bytes], where: str) -> None:
    """Raise AssertionError unless each partition's logs are the newest of those it had."""
    logs: dict[Path, list[str]] = {}
    for path in sorted(map(Path, before)):
        if path.suffix == ".log":
            logs.setdefault(path.parent, []).append(str(path))
    for directory, had in logs.items():
        has = [path for path in had if path in now]
        assert has == had[len(had) - len(has) :], f"{where}: a hole in {directory}"


def require_true_journal(
    archive: ExpiringArchive, plan: RetentionPlan, now: dict[str, bytes], where: str
) -> set[str]:
    """Raise AssertionError where a result says of files that are there that they are gone.

    Return the paths of the files that an intent names.
    """
    named: set[str] = set()
    for path in archive.journal(plan):
        record = json.loads(path.read_text())
        base_offset, run_id, what = path.stem.split("-", 2)
        assert record["plan_id"] == plan.plan_id, where
        assert (record["base_offset"], record["run_id"]) == (int(base_offset), run_id), where
        assert what == (record["outcome"] or "intent"), where
        key = (record["log_dir"], record["topic"], record["partition"])
        [partition] = [one for one in plan.partitions if one.key == key]
        [segment] = [one for one in partition.segments if one.base_offset == int(base_offset)]
        files = {str(Path(file.place.path).relative_to(archive.folder)) for file in segment.files}
        if what == "intent":
            named |= files
        elif what in DONE_RESULTS:
            assert not files & now.keys(), f"{where}: {path.name} says more than is true"
    return named
