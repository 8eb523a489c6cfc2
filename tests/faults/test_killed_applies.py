"""An apply killed with SIGKILL at any point: no lost file, no gap, a true journal; it continues.

KIP33_SEED chooses the random moments, KIP33_KILLS how many the long form has; the seed is printed.
A moment is a time; the kills around each operation are exact.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.expiring_archive import KINDS, ExpiringArchive
from tests.faults.cut_short import CutShort
from tests.long_forms import one_in, short_and_long

SEED = os.environ.get("KIP33_SEED", "33")
BEYOND = 1.1
WAYS = {
    "deleted": {},
    "moved": {"trash": True},
    "copied": {"trash": True, "other_disk": True},
}
PROBABLE = ("deleted", "deleted", "copied", "moved")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> CutShort:
    archive = ExpiringArchive(tmp_path_factory.mktemp("killed"))
    for number in range(4):
        archive.partition(f"b{number % 2}/orders-{number}", 14, expired=12, kinds=KINDS)
    archive.snapshot()
    return CutShort(archive)


@pytest.mark.parametrize("kills", short_and_long(5, 50, "KIP33_KILLS"))
def test_random_moments(large: CutShort, capsys: pytest.CaptureFixture[str], kills: int) -> None:
    moments = _moments(kills, random.Random(f"{SEED} killed applies"))
    phases: Counter[str] = Counter()
    with large.start() as forks:
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
            if number + 1 >= kills and phases["some of the files gone"]:
                break
            assert number < 100 * kills, f"no kill was in time: {phases}"
    with capsys.disabled():
        count = phases.total()
        print(f"\n{count} kills, KIP33_SEED={SEED}: {dict(phases.most_common())}", end=" ")


def _moments(kills: int, chance: random.Random) -> Iterator[float]:
    """Yield moments spread over an apply, in random order; then any moments, without an end.

    On a busy machine an apply may take a multiple of what it took undisturbed.
    """
    spread = [(number + chance.random()) / kills * BEYOND for number in range(kills)]
    chance.shuffle(spread)
    yield from spread
    while True:
        yield chance.random() * BEYOND


def _undisturbed(large: CutShort, forks: Any, way: str) -> float:
    large.restore()
    begin = time.perf_counter()
    assert large.run(forks, threads=4, **WAYS[way]) == 0
    return time.perf_counter() - begin


def _phase(gone: int, planned: int) -> str:
    if not gone:
        return "nothing gone"
    return "some of the files gone" if gone < planned else "all gone"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutShort]:
    archive = ExpiringArchive(tmp_path_factory.mktemp("swept"))
    archive.partition("b1/orders-0", 3, expired=2)
    archive.partition("b2/orders-0", 2, expired=2, kinds=KINDS)
    archive.snapshot()
    return CutShort(archive)


@pytest.mark.parametrize("way", one_in(3, WAYS))
@pytest.mark.parametrize("when", one_in(2, ["before", "after"]))
def test_around_every_operation(small: CutShort, way: str, when: str) -> None:
    with_trash = way != "deleted"
    remaining: list[int] = []
    with small.start() as forks:
        for number in range(1000):
            small.restore()
            code = small.run(forks, die=[when, number], **WAYS[way])
            where = f"{way}, {when} operation {number}"
            gone = small.require_sound(with_trash=with_trash, where=where)
            remaining.append(len(small.planned) - len(gone))
            small.finish(with_trash=with_trash)
            if code == 0:
                break
            assert code == -signal.SIGKILL, where
    if when == "before":  # an operation within another has the higher number, and ends first
        assert sorted(remaining, reverse=True) == remaining
    assert set(remaining) == set(range(len(small.planned) + 1)), "one file after the other"


@pytest.mark.parametrize("way", one_in(3, WAYS))
def test_killed_again_and_again(small: CutShort, way: str) -> None:
    """Every run is killed after some operations, until one comes to the end."""
    with_trash, chance = way != "deleted", random.Random(f"{SEED} again {way}")
    small.restore()
    with small.start() as forks:
        for number in range(200):
            code = small.run(forks, die=["after", chance.randrange(15)], **WAYS[way])
            small.require_sound(with_trash=with_trash, where=f"{way}, run {number}")
            if code == 0:
                break
    assert code == 0
    small.finish(with_trash=with_trash)


def test_a_trash_that_comes_and_goes(small: CutShort) -> None:
    """What one run moves and the next deletes is gone in the end, and nothing else."""
    small.restore()
    with small.start() as forks:
        assert small.run(forks, die=["before", 9], trash=True) == -signal.SIGKILL
        small.require_sound(with_trash=True)
        assert small.run(forks, die=["after", 9]) == -signal.SIGKILL
    small.finish()


def test_the_files_that_an_undisturbed_apply_leaves(small: CutShort, tmp_path: Path) -> None:
    small.restore()
    small.finish()
    names = {Path(path).name for path in small.archive.files() if "orders" in path}
    newest = {f"{200:020d}.{kind}" for kind in KINDS[:3]}
    assert names == {f"{100:020d}.{kind}" for kind in KINDS} | newest
