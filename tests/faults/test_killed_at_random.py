"""Builds and applies killed with SIGKILL at random moments; the next run completes their work.

KIP33_SEED chooses the moments, KIP33_KILLS their number; the seed is printed. A moment is a time,
so the same seed kills at the same times and not in the very same instruction. Kills around each
operation are exact: `tests/faults/test_killed.py`.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.builders.expiring_archive import KINDS, ExpiringArchive
from tests.faults.cut_short import WAYS, CutShort
from tests.faults.forks import Forks
from tests.faults.wrecks import Lane, lanes_below, require_old_or_new

pytestmark = pytest.mark.long

SEED = os.environ.get("KIP33_SEED", "33")
KILLS = int(os.environ.get("KIP33_KILLS", "50"))
SIDE_BY_SIDE = 2
PARTITIONS = 16
PROBABLE = ("deleted", "deleted", "copied", "moved")


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> list[Lane]:
    folder = tmp_path_factory.mktemp("killed")
    return lanes_below(folder, partitions=PARTITIONS, count=SIDE_BY_SIDE)


def test_builds(lanes: list[Lane], capsys: pytest.CaptureFixture[str]) -> None:
    wide = {"planning", "some index files written", "committed", "first build", "nightly build"}
    phases: Counter[str] = Counter()

    def run(lane: Lane, number: int) -> None:
        place = lane.place
        kinds = [lane.nightly] * 4 + [lane.first]
        # Uniform over a build's time and a little beyond it, one in each slice.
        moments = _moments(KILLS // SIDE_BY_SIDE, random.Random(f"{SEED} killed {number}"), 1.2)
        with Forks() as forks:
            for count, moment in enumerate(moments):
                if count >= KILLS // SIDE_BY_SIDE and wide <= phases.keys():
                    break
                assert count < 100 * KILLS, f"no kill was in time: {phases}"
                if not count % len(kinds):  # measured again and again: the machine is not ours
                    seconds = {
                        night.name: place.seconds_undisturbed(night, forks) for night in kinds[3:]
                    }
                night = kinds[count % len(kinds)]
                where = f"KIP33_SEED={SEED}, {night.name} build, at {moment:.3f} of its time"
                wreck = place.kill(night, forks, moment * seconds[night.name])
                require_old_or_new(wreck, night, where)
                phases.update([f"{night.name} build", *wreck.phases(night)])
                assert place.build() == night.after, where

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for running in [pool.submit(run, lane, number) for number, lane in enumerate(lanes)]:
            running.result()
    with capsys.disabled():
        count = phases["first build"] + phases["nightly build"]
        print(f"\n{count} kills, KIP33_SEED={SEED}: {dict(phases.most_common())}", end=" ")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> CutShort:
    archive = ExpiringArchive(tmp_path_factory.mktemp("killed"))
    for number in range(4):
        archive.partition(f"b{number % 2}/orders-{number}", 14, expired=12, kinds=KINDS)
    archive.snapshot()
    return CutShort(archive)


def test_applies(large: CutShort, capsys: pytest.CaptureFixture[str]) -> None:
    moments = _moments(KILLS, random.Random(f"{SEED} killed applies"), 1.1)
    phases: Counter[str] = Counter()
    with Forks() as forks:
        seconds = {way: _undisturbed(large, forks, way) for way in WAYS}
        for number, moment in enumerate(moments):
            way = PROBABLE[number % len(PROBABLE)]
            with_trash = way != "deleted"
            where = f"KIP33_SEED={SEED}, {way}, at {moment:.3f} of its time"
            large.restore()
            code = large.kill(forks, moment * seconds[way], threads=4, **WAYS[way])
            assert code in (0, -signal.SIGKILL), where
            gone = large.require_sound(with_trash=with_trash, where=where)
            phases[_phase(len(gone), len(large.planned))] += 1
            large.finish(with_trash=with_trash)
            if number + 1 >= KILLS and phases["some of the files gone"]:
                break
            assert number < 100 * KILLS, f"no kill was in time: {phases}"
    with capsys.disabled():
        count = phases.total()
        print(f"\n{count} kills, KIP33_SEED={SEED}: {dict(phases.most_common())}", end=" ")


def _moments(kills: int, chance: random.Random, beyond: float) -> Iterator[float]:
    """Yield moments spread over a run and a little beyond, in random order; then any, endlessly.

    On a busy machine a run may take a multiple of what it took undisturbed, and a narrow phase
    may be missed.
    """
    spread = [(number + chance.random()) / kills * beyond for number in range(kills)]
    chance.shuffle(spread)
    yield from spread
    while True:
        yield chance.random() * beyond


def _undisturbed(large: CutShort, forks: Forks, way: str) -> float:
    large.restore()
    begin = time.perf_counter()
    assert large.run(forks, threads=4, **WAYS[way]) == 0
    return time.perf_counter() - begin


def _phase(gone: int, planned: int) -> str:
    if not gone:
        return "nothing gone"
    return "some of the files gone" if gone < planned else "all gone"
