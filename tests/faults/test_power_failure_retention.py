"""A power failure while a retention plan is written or applied: the next apply ends right.

As in `test_power_failure`, a program runs under strace, and every state that the disk could be left
in is made. The plan is applied again in each of them.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip33.retention.plan import read_plan, write_plan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import KINDS, NOW_MS, ExpiringArchive
from tests.faults.applies import apply_here
from tests.faults.crash_disk import Disk, Tree
from tests.faults.cut_short import require_sound
from tests.faults.traces import Event, record
from tests.long_forms import one_in

PLAN = """
import sys
from kip33.rules.policies import Policies
from kip33.catalog.catalog import Catalog
from kip33.stores.locations import Location
from kip33.retention.plan import write_plan
from kip33.retention.evaluation import RetentionRequest
from kip33.retention.make_plan import plan_retention
from tests.builders.expiring_archive import WEEK
catalog, now_ms = Catalog.at(sys.argv[1]), int(sys.argv[3])
plan = plan_retention(catalog, catalog.require_newest(),
                      RetentionRequest(Policies(WEEK), now_ms), now_ms)
write_plan(plan, Location.of(sys.argv[2]))
"""
APPLY = """
import sys
from tests.faults.applies import apply_here
plan, trash, way = sys.argv[1:]
if way == "copied":
    import os
    from tests.builders.expiring_archive import only_within_a_directory
    os.rename = only_within_a_directory(os.rename)
apply_here(plan, None if way == "deleted" else trash, threads=1)
"""
WAYS = ("deleted", "moved", "copied")


class RecordedApply:
    """An archive with some expired segments, and what an apply of its plan did."""

    def __init__(self, folder: Path, way: str) -> None:
        """Apply in a process of its own."""
        self.folder, self.with_trash = folder / "here", way != "deleted"
        self.folder.mkdir()
        self.archive = ExpiringArchive(self.folder)
        self.archive.partition("b1/orders-0", 3, expired=2)
        self.archive.partition("b2/orders-0", 2, expired=1, kinds=KINDS)
        self.archive.snapshot()
        self.plan = self.archive.plan()
        self.plan_file = folder / "plan.jsonl"
        write_plan(self.plan, Location.of(self.plan_file))
        self.trash = self.folder / "trash"
        self.before = self.archive.files()
        self.times = {path: path.stat().st_mtime_ns for path in self.folder.rglob("*")}
        self.disk = Disk(self.folder)
        self.events = record(APPLY, self.plan_file, self.trash, way, root=self.folder)

    def trees(self, events: list[Event]) -> Iterator[Tree]:
        """Yield the states after each step, equal ones once; last those that the end can have."""
        seen: set[frozenset[tuple[str, bytes]]] = set()
        for event in events:
            self.disk.apply(event)
            for tree in self.disk.trees(lambda path: not path.endswith(".lock")):
                key = frozenset(tree.items())
                if key not in seen:
                    seen.add(key)
                    yield tree

    def restore(self, tree: Tree) -> None:
        """Make the files what they are in a state."""
        shutil.rmtree(self.folder)
        for place in (self.archive.source, self.archive.index_dir):
            place.mkdir(parents=True)
        for name in ("b1/orders-0", "b2/orders-0"):
            (self.archive.source / name).mkdir(parents=True)
        for path, data in tree.items():
            file = Path(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            if file in self.times:
                os.utime(file, ns=(0, self.times[file]))

    def fault_of(self, tree: Tree) -> str:
        """Return what is wrong with a state, or with the next apply; "" if nothing."""
        self.restore(tree)
        try:
            self.require_sound()
            applied = apply_here(self.plan_file, self.trash if self.with_trash else None)
            assert not applied.stopped, [one.why for one in applied.partitions if one.why]
            self.require_sound()
            gone = self.before.keys() - self.archive.files().keys()
            assert gone == self.archive.planned_files(self.plan)
        except (AssertionError, ValueError) as error:
            return str(error) or "not sound"
        return ""

    def require_sound(self) -> None:
        """Raise AssertionError where a file is lost, or the journal says what is not so."""
        require_sound(self.archive, [self.plan], self.before, with_trash=self.with_trash)


@pytest.mark.parametrize("way", one_in(len(WAYS), WAYS))
def test_after_a_power_failure_at_any_moment_the_next_apply_ends_right(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is lost, no result says more than is so, and nothing stops the next apply."""
    recorded = RecordedApply(tmp_path, way)
    faults: dict[str, Tree] = {}
    states = 0
    for tree in recorded.trees(recorded.events):
        states += 1
        fault = recorded.fault_of(tree)
        if fault:
            faults.setdefault(fault, tree)
    with capsys.disabled():
        print(f"\n{way}: {states} states", end=" ")
    assert list(faults) == []


@pytest.mark.long
def test_the_replay_finds_an_apply_that_does_not_flush_what_it_deleted(tmp_path: Path) -> None:
    recorded = RecordedApply(tmp_path, "deleted")
    events = [
        event
        for event in recorded.events
        if not (event.what == "flush" and event.path.startswith(str(recorded.archive.source)))
    ]
    assert len(events) < len(recorded.events)
    faults = map(recorded.fault_of, recorded.trees(events))
    assert any("says more than is true" in fault for fault in faults)


def test_a_power_failure_leaves_the_old_plan_or_the_new_one(tmp_path: Path) -> None:
    archive = ExpiringArchive(tmp_path)
    archive.partition("b1/orders-0", 3, expired=2)
    archive.snapshot()
    plans = tmp_path / "plans"
    plans.mkdir()
    plan_file = plans / "plan.jsonl"
    catalog = tmp_path / "catalog"
    allowed: set[bytes | None] = {None}
    for number in range(2):
        disk = Disk(plans)
        events = record(PLAN, catalog, plan_file, NOW_MS + number, root=plans)
        read_plan(Location.of(plan_file))
        allowed.add(plan_file.read_bytes())
        for event in events:
            disk.apply(event)
            assert disk.possible(str(plan_file)) <= allowed, event
        allowed = {plan_file.read_bytes()}
        assert disk.possible(str(plan_file)) == allowed
