"""Runs at the same time: of one plan one works, of two plans both end; no lost file, no gap.

KIP33_ROUNDS is the number of rounds with two processes in the long form.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.archive.segment_paths import PlannedFile
from kip33.errors import LockedError
from kip33.retention.apply import Applied
from kip33.retention.apply_segment import SegmentStep
from kip33.retention.plan import RetentionPlan
from kip33.retention.undo import undo_plan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import DAY_MS, KINDS, NOW_MS, ExpiringArchive, clock
from tests.cli.console import Finished
from tests.faults.cut_short import WAYS, CutShort, require_sound
from tests.faults.forks import Forks
from tests.long_forms import one_in, short_and_long

ROUNDS = short_and_long(2, 50, "KIP33_ROUNDS")
UNDER_WAY = "another apply or undo of plan"


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    archive = ExpiringArchive(tmp_path)
    for number in range(3):
        archive.partition(f"b1/orders-{number}", 10, expired=8, kinds=KINDS)
    archive.snapshot()
    return archive


@pytest.fixture(scope="module")
def three(forks: Forks) -> Iterator[list[Forks]]:
    with Forks() as second, Forks() as third:
        yield [forks, second, third]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("way", one_in(len(WAYS), WAYS))
def test_two_applies_of_one_plan(
    archive: ExpiringArchive, three: list[Forks], way: str, rounds: int
) -> None:
    place = CutShort(archive)
    with_trash = way != "deleted"
    for number in range(rounds):
        place.restore()
        for one in three[:2]:
            one.begin(*place.command, **WAYS[way])
        ends = [one.end() for one in three[:2]]
        assert any(one == Finished(0, "", "") for one in ends), f"round {number}: {ends}"
        assert all(is_done_or_refused(one) for one in ends), f"round {number}: {ends}"
        assert place.require_sound(with_trash=with_trash, where=f"{number}") == place.planned
    place.finish(with_trash=with_trash)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_an_apply_and_two_undos_of_one_plan_with_the_trash_on_another_disk(
    archive: ExpiringArchive, three: list[Forks], rounds: int
) -> None:
    place = CutShort(archive)
    apply, *undos = three
    for number in range(rounds):
        place.restore()
        apply.begin(*place.command, trash=True, other_disk=True)
        for _ in range(3):
            for one in undos:
                one.begin("undo", place.plan_file, place.trash, other_disk=True)
            ended = [one.end() for one in undos]
            assert all(map(is_done_or_refused, ended)), f"round {number}: {ended}"
        assert is_done_or_refused(applied := apply.end()), f"round {number}: {applied}"
        both = archive.files() | archive.trashed(place.plan)
        assert both == place.before, f"round {number}: a file is in neither place"


def is_done_or_refused(ended: Finished) -> bool:
    """Return whether a run did its work, or another run was under way, or not yet."""
    said = ended.stderr
    return ended == Finished(0, "", "") or UNDER_WAY in said or "nothing to put back" in said


class Interleaved:
    """An apply that another one overtakes at one point: before a record of it, or a deletion."""

    def __init__(self, archive: ExpiringArchive, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive, self.points = archive, 0
        self._at, self._other = -1, lambda: None
        self._is_inside = False
        remove = SegmentStep._remove

        def removed(step: SegmentStep, file: PlannedFile) -> None:
            self.point()
            remove(step, file)

        monkeypatch.setattr(SegmentStep, "_remove", removed)

    def point(self, *_: object) -> None:
        """Let the other apply run if this is its point; inside of it nothing counts."""
        if self._is_inside:
            return
        self.points += 1
        if self.points - 1 == self._at:
            self._is_inside = True
            self._other()
            self._is_inside = False

    def run(self, plan: RetentionPlan, at: int, other: Callable[[], object], **how: Any) -> Applied:
        """Apply a plan; `other` runs from begin to end at one of its points."""
        self.points, self._at, self._other = 0, at, other
        return self.archive.apply(plan, threads=1, on_record=self.point, **how)


@pytest.fixture
def tiny(tmp_path: Path) -> ExpiringArchive:
    archive = ExpiringArchive(tmp_path)
    archive.partition("b1/orders-0", 5, expired=4, kinds=("log", "timeindex"), index_kinds=())
    archive.snapshot()
    return archive


def test_no_other_run_of_a_plan_begins_while_one_is_under_way(
    tiny: ExpiringArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, interleaved = CutShort(tiny), Interleaved(tiny, monkeypatch)
    trash = Location.of(place.trash)
    refused = []

    def others() -> None:
        before = tiny.files()
        for other in (
            lambda: tiny.apply(place.plan, trash=trash),
            lambda: undo_plan(place.plan, trash, clock=clock()),
        ):
            with pytest.raises(LockedError, match=UNDER_WAY):
                other()
            refused.append(other)
        assert tiny.files() == before

    for at in range(16):
        place.restore()
        applied = interleaved.run(place.plan, at, others, trash=trash)
        assert (applied.stopped, applied.segments_deleted) == (0, 4), f"at {at}: {applied}"
    assert interleaved.points == 16, "4 segments, of each 2 records and 2 files"
    assert len(refused) == 2 * 16


@pytest.mark.parametrize("longer_first", one_in(2, [True, False]))
def test_an_apply_overtaken_at_any_point_by_one_of_another_plan(
    tiny: ExpiringArchive, longer_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, interleaved = CutShort(tiny), Interleaved(tiny, monkeypatch)
    shorter = tiny.plan(now_ms=NOW_MS - 2 * DAY_MS)
    plans = (place.plan, shorter) if longer_first else (shorter, place.plan)
    for at in itertools.count():
        place.restore()
        seconds = []
        applied = interleaved.run(plans[0], at, lambda: seconds.append(tiny.apply(plans[1])))  # noqa: B023
        gone = require_sound(tiny, list(plans), place.before, where=f"at {at}")
        if not seconds:
            break
        stopped = applied.stopped + seconds[0].stopped
        assert stopped == 1, f"at {at}: whoever meets the other's work, and nobody else"
        assert tiny.planned_files(shorter) <= gone
    assert at == 2 * (plans[0].segments * 2)
