"""The driver killed with SIGKILL: readers see the old or the new state, the next build repairs it.

The builds are complete, without a JVM. KIP33_SEED chooses the moments, KIP33_KILLS their number;
the seed is printed. A moment is a time, so the same seed kills at the same times and not in the
very same instruction; the kills at a rename do.
"""

import os
import random
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from kip33.catalog.draft import DEAD_AFTER_MS
from tests.faults.nights import first_day, second_day
from tests.faults.wrecks import Night, Place, Wreck
from tests.long_forms import one_in

SEED = os.environ.get("KIP33_SEED", "33")
KILLS = int(os.environ.get("KIP33_KILLS", "50"))
SIDE_BY_SIDE = 2
BEYOND = 1.2
PARTITIONS = 16


class Lane(NamedTuple):
    """A place of its own: a build that finds a snapshot, and one that finds nothing."""

    place: Place
    nightly: Night
    first: Night


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> list[Lane]:
    source = tmp_path_factory.mktemp("killed") / "archive"
    first_day(source, PARTITIONS)
    places = [Place(source, tmp_path_factory.mktemp("lane")) for _ in range(SIDE_BY_SIDE)]
    for place in places:
        place.build()
    second_day(source, PARTITIONS)
    nightly = [place.night("nightly") for place in places]
    for place in places:
        place.clear()
    return [
        Lane(place, night, place.night("first"))
        for place, night in zip(places, nightly, strict=True)
    ]


def test_the_nightly_build_has_some_of_everything_to_do(lanes: list[Lane]) -> None:
    before, after = lanes[0].nightly.before, lanes[0].nightly.after
    old = {row["log_uri"]: row["last_modified_ms"] for row in before.rows}
    new = {row["log_uri"]: row["last_modified_ms"] for row in after.rows}
    index_files = before.files.keys() & after.files.keys()
    counts = {
        "gone": len(old.keys() - new.keys()),
        "new": len(new.keys() - old.keys()),
        "read again": sum(old[log] != new[log] for log in old.keys() & new.keys()),
        "reused": sum(old[log] == new[log] for log in old.keys() & new.keys()),
        "index files replaced": sum(before.files[p] != after.files[p] for p in index_files),
        "index files withdrawn": len(before.files.keys() - after.files.keys()),
    }
    assert min(counts.values()) >= PARTITIONS, counts


def require_old_or_new(wreck: Wreck, night: Night, where: str = "") -> None:
    """Raise AssertionError unless a reader finds the state before a night or the one after it."""
    assert wreck.broken == set(), where
    assert wreck.rows in (night.before.rows, night.after.rows), where


@pytest.mark.integration
def test_random_moments(lanes: list[Lane], capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(f"{SEED} killed")
    # Uniform over a build's time and a little beyond it, one in each slice: no phase is left out.
    moments = [(number + chance.random()) / KILLS * BEYOND for number in range(KILLS)]
    chance.shuffle(moments)
    phases: Counter[str] = Counter()

    def run(lane: Lane, number: int) -> None:
        place = lane.place
        kinds = [lane.nightly] * 4 + [lane.first]
        with place.start("tests.faults.forked_builds") as forks:
            for count, moment in enumerate(moments[number::SIDE_BY_SIDE]):
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
        print(f"\n{KILLS} kills, KIP33_SEED={SEED}: {dict(phases.most_common())}", end=" ")
    hit = {
        "planning",
        "begun, no index file written",
        "some index files written",
        "parts in staging",
        "committed",
        "first build",
        "nightly build",
    }
    assert hit <= phases.keys(), "the kills missed a phase: nothing was tested there"


@pytest.mark.parametrize(
    ("when", "rename_to", "left"),
    one_in(4, [
        pytest.param("before", r"/claims\.arrow$", {}, id="before the claims"),
        pytest.param("after", r"/claims\.arrow$", {"claims": 1}, id="after the claims"),
        pytest.param(
            "before", r"/staging/.*\.parquet$", {"claims": 1}, id="before the rows taken over"
        ),
        pytest.param(
            "before",
            r"\.timeindex$",
            {"claims": 1, "parts": 1, "temporary": 1},
            id="before the first index file",
        ),
        pytest.param("after", r"\.timeindex$", {"parts": 1}, id="after the first index file"),
        pytest.param("before", r"\.index$", {"parts": 1}, id="between .timeindex and .index"),
        pytest.param("before", r"/staging/.*part-00002", {"parts": 2}, id="before a task's part"),
        pytest.param(
            "before", r"/snapshots/.*\.parquet$", {"parts": 4}, id="before the first part moves"
        ),
        pytest.param(
            "after", r"/snapshots/.*part-00001", {"parts": 2}, id="after half of the parts moved"
        ),
        pytest.param(
            "before", r"\.json$", {"parts": 0, "snapshots": 1}, id="before the commit file"
        ),
        pytest.param(
            "after", r"\.json$", {"claims": 1, "snapshots": 2}, id="after the commit file"
        ),
    ]),
)  # fmt: skip
def test_at_a_rename(lanes: list[Lane], when: str, rename_to: str, left: dict[str, int]) -> None:
    place, night, _ = lanes[0]
    place.restore(night)
    with place.start("tests.faults.fatal_rename", when, rename_to) as child:
        child.communicate("\n")
    assert child.returncode == -signal.SIGKILL

    wreck = Wreck.at(place.index_dir, night)
    require_old_or_new(wreck, night)
    assert {name: getattr(wreck, name) for name in left} == left
    assert (wreck.rows == night.after.rows) == (wreck.snapshots == 2)
    assert place.build() == night.after


def test_a_temporary_index_file_is_removed_when_its_build_is_dead_for_sure(
    lanes: list[Lane],
) -> None:
    place, night, _ = lanes[0]
    place.restore(night)
    with place.start("tests.faults.fatal_rename", "before", r"\.timeindex$") as child:
        child.communicate("\n")
    [left] = place.index_dir.rglob(".*.tmp")

    assert place.build() == night.after
    assert left.exists(), "the build that it belongs to may still run"
    now_ms = int(left.stat().st_mtime * 1000) + DEAD_AFTER_MS + 60_000
    assert place.build(now_ms=now_ms) == night.after
    assert not left.exists()
