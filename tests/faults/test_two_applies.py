"""Two applies at the same time, of one plan or of two: both end, no lost file, no gap.

KIP33_ROUNDS is the number of rounds with two processes in the long form.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kip33.archive.segment_paths import PlannedFile
from kip33.retention.apply import Applied
from kip33.retention.apply_segment import SegmentStep
from kip33.retention.plan import RetentionPlan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import DAY_MS, KINDS, NOW_MS, ExpiringArchive
from tests.cli.console import Finished
from tests.faults.cut_short import WAYS, CutShort, require_sound
from tests.faults.forks import Forks
from tests.long_forms import one_in, short_and_long

ROUNDS = short_and_long(2, 50, "KIP33_ROUNDS")
MORE_ROUNDS = 100


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    archive = ExpiringArchive(tmp_path)
    for number in range(3):
        archive.partition(f"b1/orders-{number}", 10, expired=8, kinds=KINDS)
    archive.snapshot()
    return archive


@pytest.fixture(scope="module")
def both(forks: Forks) -> Iterator[tuple[Forks, Forks]]:
    with Forks() as other:
        yield forks, other


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("way", one_in(len(WAYS), WAYS))
def test_two_applies_of_one_plan(
    archive: ExpiringArchive, both: tuple[Forks, Forks], way: str, rounds: int
) -> None:
    place = CutShort(archive)
    with_trash = way != "deleted"
    helped = number = 0
    while number < rounds or not helped:  # a busy machine may run one after the other
        assert number < rounds + MORE_ROUNDS, "they were never at work on one segment"
        number += 1
        place.restore()
        for one, threads in zip(both, (2, 1), strict=True):
            one.begin(*place.command, threads=threads, **WAYS[way])
        ends = [one.end() for one in both]
        assert ends == [Finished(0, "", "")] * 2, f"round {number}"
        gone = place.require_sound(with_trash=with_trash, where=f"round {number}")
        assert gone == place.planned
        outcomes = Counter(path.stem.split("-", 2)[2] for path in archive.journal(place.plan))
        helped += outcomes["intent"] > 24 or outcomes["gone_already"] > 0
    place.finish(with_trash=with_trash)


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


@pytest.mark.parametrize(
    ("first", "second"),
    one_in(3, [pytest.param(first, second) for first in (0, 1) for second in (0, 1)]),
)
def test_an_apply_overtaken_at_any_point_by_another_of_the_same_plan(
    tiny: ExpiringArchive, first: bool, second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, interleaved = CutShort(tiny), Interleaved(tiny, monkeypatch)
    trash = Location.of(place.trash)
    for at in itertools.count():
        place.restore()
        seconds = []
        applied = interleaved.run(
            place.plan,
            at,
            lambda: seconds.append(tiny.apply(place.plan, trash=trash if second else None)),  # noqa: B023
            trash=trash if first else None,
        )
        gone = place.require_sound(with_trash=bool(first and second), where=f"at {at}")
        assert gone == place.planned
        if not seconds:
            break
        assert (applied.stopped, seconds[0].stopped) == (0, 0), f"at {at}: {applied}"
        done = [one.segments_deleted for run in (applied, *seconds) for one in run.partitions]
        assert sum(done) == 4, f"at {at}: each by one of them"
    assert at == 16, "4 segments, of each 2 records and 2 files"


class MadeMeanwhile:
    """A store on which an absent folder of a journal appears while Arrow lists it.

    Arrow opens the folder; as there is none it asks whether there is one. Now there is, so it takes
    the failure to open it for a fault, `allow_not_found` or not.
    """

    def __init__(self, make: Callable[[], object]) -> None:
        self._local, self._make = fs.LocalFileSystem(), make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def get_file_info(self, asked: Any) -> Any:
        if isinstance(asked, fs.FileSelector) and "/retention/" in asked.base_dir:
            folder = Path(asked.base_dir)
            if not folder.exists():
                self._make()
                if folder.exists():
                    raise FileNotFoundError(2, f"Cannot list directory '{folder}'")
        return self._local.get_file_info(asked)


def test_an_apply_overtaken_while_it_looks_for_a_journal(
    tiny: ExpiringArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = CutShort(tiny)
    seconds: list[Applied] = []

    def overtake() -> None:
        monkeypatch.undo()
        seconds.append(tiny.apply(place.plan))

    store = MadeMeanwhile(overtake)
    monkeypatch.setattr(Location, "filesystem", lambda _: store)

    [partition] = tiny.apply(place.plan).partitions

    assert len(seconds) == 1
    assert (partition.why, partition.segments_gone_already, seconds[0].stopped) == (None, 4, 0)
    place.require_sound()


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
