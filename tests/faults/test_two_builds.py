"""Several builds at the same time on one catalog: all succeed in every order of their steps.

In one process a complete build runs between the steps of another, at every point, and commits run
between the file operations of others. Then two, eight and 64 processes run freely, many times.
"""

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip33.builds import earlier_builds
from kip33.builds import task as build_task
from kip33.builds.commit import BuildSummary, begin_build, commit_build
from kip33.builds.task import build_bin
from kip33.catalog.catalog import Catalog
from kip33.catalog.pruning import prune
from tests.builders.changing_archive import DAY_MS, ChangingArchive, KeptArchive, batches
from tests.cli.console import Finished
from tests.faults.builds import build_here
from tests.faults.forks import Forks, file_operations
from tests.long_forms import one_in, short_and_long

A, B, GROWN, GONE, INVALID = "x/a-0", "x/b-0", "x/grown-0", "x/gone-0", "x/invalid-0"
STEPS = ("plan", "begin", "first bin", "second bin", "commit")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    """Some segments, known to the catalog, and since then changed."""
    return changed(tmp_path_factory.mktemp("two"), built=True)


@pytest.fixture
def archive(kept: KeptArchive) -> ChangingArchive:
    return kept.again()


@pytest.fixture(params=[False, True], ids=["a first build", "a later build"])
def first_or_later(tmp_path: Path, request: pytest.FixtureRequest) -> ChangingArchive:
    """Return segments that are not known to a catalog, or known and changed."""
    return changed(tmp_path / "archive", built=request.param).again()


def changed(folder: Path, *, built: bool) -> KeptArchive:
    """Return some segments that changed, after they were built or before anybody built."""
    archive = ChangingArchive(folder)
    for partition in (A, B, GROWN, GONE, INVALID):
        archive.write(archive.log(partition), batches(0, 8))
    if built:
        archive.build(offset_index=True)
    archive.write(archive.log(GROWN), batches(0, 12))
    archive.write(archive.log(INVALID), batches(-9, 9, first_ms=archive.now_ms))
    archive.log(GONE).unlink()
    archive.write(archive.log("x/new-0"), batches(0, 8))
    return KeptArchive(archive)


def steps(archive: ChangingArchive, **settings: Any) -> Iterator[BuildSummary | None]:
    """Build, one of STEPS at a time; the last one gives the summary."""
    plan = archive.plan(**{"offset_index": True} | settings)
    yield None
    begun = begin_build(plan)
    yield None
    half = plan.files.num_rows // 2
    results = [
        build_bin(plan.build, begun.draft.staging, len(begun.copied_parts), plan.files[:half])
    ]
    yield None
    number = len(begun.copied_parts) + 1
    results.append(build_bin(plan.build, begun.draft.staging, number, plan.files[half:]))
    yield None
    yield commit_build(begun, results)


def finish(build: Iterator[BuildSummary | None]) -> BuildSummary:
    *_, summary = build
    assert summary
    return summary


def orders() -> Iterator[tuple[int, ...]]:
    """Yield every order in which the five steps of two builds can come, but for their names."""
    for places in itertools.combinations(range(10), 5):
        if 0 in places:
            yield tuple(0 if step in places else 1 for step in range(10))


def together(first: Iterator[Any], second: Iterator[Any], order: tuple[int, ...]) -> list[Any]:
    """Take the steps of two builds in this order; return their summaries, the newest last."""
    builds, summaries = (first, second), []
    for which in order:
        summary = next(builds[which])
        if summary:
            summaries.append(summary)
    return sorted(summaries, key=lambda summary: summary.snapshot)


def require_both_are_whole(archive: ChangingArchive, summaries: list[BuildSummary]) -> None:
    catalog = Catalog.at(str(archive.catalog))
    assert catalog.require_newest().name == summaries[-1].snapshot
    truth = {row["log_uri"]: row for row in archive.fresh(offset_index=True).rows}
    for summary in summaries:
        snapshot = catalog.named(summary.snapshot)
        rows = catalog.read(snapshot).to_pylist()
        assert {row["log_uri"] for row in rows} == set(truth)
        assert len(rows) == len(truth) == summary.segments
        assert {row["index_file"] for row in rows} == {"written", None}, "what is ours is ours"
        assert (summary.kept, summary.failed) == (0, 0)
        for row in rows:
            assert row["max_timestamp"] == truth[row["log_uri"]]["max_timestamp"]


@pytest.mark.parametrize("step", short_and_long(42, 1, "KIP33_STEP"))
@pytest.mark.parametrize(
    ("how", "others"),
    [
        pytest.param({}, {}, id="all topics"),
        pytest.param(
            *({"topics": ["a", "b"]}, {"topics": ["new", "grown", "invalid", "gone"]}),
            id="each its own",
        ),
        pytest.param({}, {"full": True}, id="one reads everything"),
        pytest.param({}, {"read": "tail"}, id="one reads tails", marks=pytest.mark.long),
    ],
)
def test_two_builds_interleaved_in_every_way(
    kept: KeptArchive,
    how: dict[str, Any],
    others: dict[str, Any],
    step: int,
    subtests: pytest.Subtests,
) -> None:
    """The newest snapshot has the rows of both.

    What the first to commit still claimed for the other is a dead build's a day later.
    """
    for order in [*orders()][::step]:
        with subtests.test("".join(map(str, order))):
            archive = kept.again()

            builds = steps(archive, **how), steps(archive, **others)
            summaries = together(*builds, order)

            if not how:
                require_both_are_whole(archive, summaries)
                assert not list((archive.catalog / "staging").iterdir())
            assert archive.outcome() == archive.fresh(offset_index=True)
            archive.now_ms += DAY_MS
            again = archive.build(offset_index=True)
            assert (again.kept, again.dropped) == (0, 0), "whose files is known"
            assert archive.outcome() == archive.fresh(offset_index=True)
            late_ms = time.time_ns() // 1_000_000 + 2 * DAY_MS
            prune(Catalog.at(str(archive.catalog)), keep=1, now_ms=late_ms)
            assert not list((archive.catalog / "staging").iterdir())


@pytest.mark.parametrize(
    "step", one_in(2, range(1, len(STEPS))), ids=[f"at {step}" for step in STEPS[1:]]
)
def test_a_segment_changes_between_two_builds_that_overlap(
    archive: ChangingArchive, step: int
) -> None:
    """The slower one listed it as it was; whichever commits last, the next build knows better."""
    outer = steps(archive)
    for _ in range(step):
        next(outer)
    archive.write(archive.log(A), batches(0, 20), age_ms=DAY_MS // 4)
    archive.write(archive.log(GROWN), batches(0, 3), age_ms=DAY_MS // 4)
    finish(steps(archive))
    finish(outer)
    archive.now_ms += DAY_MS
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)


def test_a_build_that_commits_while_another_looks_back_takes_nothing_from_it(
    first_or_later: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the newest snapshot and the claims of running builds: there a commit hides both."""
    archive = first_or_later
    others = [steps(archive) for _ in range(2)]
    for other in others:
        for _ in range(4):
            next(other)
    look_at_claims: Callable[..., Any] = earlier_builds.claimed_index_uris

    def commit_first(catalog: Catalog, *, since: int, above: str) -> Any:
        if others:
            finish(others.pop())
        return look_at_claims(catalog, since=since, above=above)

    monkeypatch.setattr(earlier_builds, "claimed_index_uris", commit_first)

    summary = finish(steps(archive))

    assert (summary.kept, summary.failed) == (0, 0)
    assert archive.outcome() == archive.fresh(offset_index=True)


@pytest.mark.parametrize("step", short_and_long(37, 1, "KIP33_STEP"))
def test_three_commits_interleaved_at_every_file_operation(
    kept: KeptArchive, step: int, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """At each operation of one commit another begins, and at each of that one a third."""
    operations = Operations(monkeypatch)
    topics = (["a", "gone"], ["b", "invalid"], ["grown", "new"])
    moments = itertools.product(range(1, MOST_OPERATIONS), repeat=2)
    for first, second in itertools.islice(moments, 0, None, step):
        with subtests.test(f"{first}, {second}"):
            archive = kept.again()
            builds = [steps(archive, topics=some) for some in topics]
            for build in builds:
                for _ in range(4):
                    next(build)
            one, other, third = (partial(finish, build) for build in builds)

            operations.before(first, partial(operations.before, second, third, other), one)

            assert archive.outcome() == archive.fresh(offset_index=True)
            numbers = [
                snapshot.sequence for snapshot in Catalog.at(str(archive.catalog)).snapshots()
            ]
            assert numbers == [1, 2, 3, 4]


MOST_OPERATIONS = 30  # more than a commit has


class Operations:
    """The operations on files in this process, before one of which something else can happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: list[list[Any]] = []
        for owner, name in list(file_operations()):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))

    def before(self, number: int, then: Callable[[], Any], run: Callable[[], Any]) -> None:
        """Run something, with something else before its operation `number`, or behind its last."""
        waiting = [number, then]
        self._waiting.append(waiting)
        run()
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            then()

    def _watched(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **how: Any) -> Any:
            if self._waiting:
                self._waiting[-1][0] -= 1
                if self._waiting[-1][0] == 0:
                    self._waiting.pop()[1]()
            return operation(*arguments, **how)

        return watched


@pytest.mark.parametrize(
    ("builds", "rounds"),
    [
        pytest.param(8, 4, id="8 builds, 4 times"),
        pytest.param(8, 100, id="8 builds, 100 times", marks=pytest.mark.long),
        pytest.param(64, 2, id="64 builds, twice", marks=pytest.mark.long),
    ],
)
def test_builds_at_once_each_of_its_own_topic_all_commit(
    forks: Forks, tmp_path: Path, builds: int, rounds: int
) -> None:
    archive = ChangingArchive(tmp_path)
    topics = [f"t{number}" for number in range(builds)]
    for topic in topics:
        for base_offset in (0, 16):
            archive.write(archive.log(f"x/{topic}-0", base_offset), batches(base_offset, 8))
    for number in range(rounds):
        index_dir = tmp_path / f"indexes-{number}"
        assert forks.run("builds at once", archive.source, index_dir, *topics) == Finished(
            0, "", ""
        )
        catalog = Catalog.at(str(index_dir / "_catalog"))
        rows = catalog.read(catalog.require_newest(), ["topic", "base_offset"]).to_pylist()
        expected = {(topic, base_offset) for topic in topics for base_offset in (0, 16)}
        assert {(row["topic"], row["base_offset"]) for row in rows} == expected
        assert len(rows) == len(expected)
        assert [one.sequence for one in catalog.snapshots()] == [*range(1, builds + 1)]
        assert build_here(archive.source, index_dir, offset_index=True).indexed == 0


@pytest.mark.parametrize("appears", [False, True], ids=["an index was there", "no index was there"])
def test_a_slow_build_does_not_replace_what_a_newer_one_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appears: bool
) -> None:
    """It read a log, the log changed, another build read it again and was faster."""
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 8))
    if not appears:
        archive.build()
        archive.write(archive.log(A), batches(0, 8, first_ms=archive.now_ms - 9_000_000))
    slow = steps(archive, offset_index=False)
    next(slow)
    next(slow)
    read: Callable[..., Any] = build_task.index_file
    newer_wrote: list[bytes] = []

    def read_then_wait(*arguments: Any, **settings: Any) -> Any:
        index = read(*arguments, **settings)
        monkeypatch.setattr(build_task, "index_file", read)
        newest = batches(0, 8, first_ms=archive.now_ms - 5_000_000)  # of the same size
        archive.write(archive.log(A), newest, age_ms=DAY_MS // 4)
        archive.now_ms += 60_000
        finish(steps(archive, offset_index=False))
        newer_wrote.append(archive.index(A).read_bytes())
        return index

    monkeypatch.setattr(build_task, "index_file", read_then_wait)

    finish(slow)

    assert newer_wrote == [archive.index(A).read_bytes()]
    assert archive.outcome() == archive.fresh()
    archive.now_ms += DAY_MS
    archive.build()
    assert archive.outcome() == archive.fresh()


@pytest.mark.integration
@pytest.mark.parametrize("nights", short_and_long(4, 24, "KIP33_NIGHTS"))
def test_two_processes_build_at_once_night_after_night(
    forks: Forks, tmp_path: Path, nights: int
) -> None:
    """One builds what changed, the other one everything."""
    chance = random.Random(os.environ.get("KIP33_SEED", "0"))
    archive = ChangingArchive(tmp_path)
    archive.catalog = archive.index_root / "_catalog"
    catalog = Catalog.at(str(archive.catalog))
    with Forks() as other:
        for night in range(nights):
            for number in chance.sample(range(12), 12 if night == 0 else 4):
                log = archive.log(f"x/t{number}-0")
                if night and chance.random() < 0.3:
                    log.unlink(missing_ok=True)
                    for suffix in (".timeindex", ".index"):
                        archive.index_of(log).with_suffix(suffix).unlink(missing_ok=True)
                else:
                    archive.write(log, batches(0, chance.randrange(1, 30)))
            both = [(forks, False), (other, True)]
            chance.shuffle(both)
            for one, full in both:
                one.begin("build", archive.source, archive.index_root, full=full)
            assert [one.end() for one, _ in both] == [Finished(0, "", "")] * 2
            for snapshot in catalog.snapshots():
                rows = catalog.read(snapshot).to_pylist()
                assert {row["index_file"] for row in rows} == {"written"}, "what is ours is ours"
            expected = archive.fresh(offset_index=True, index_interval_bytes=4096)
            assert archive.outcome() == expected
    assert not list((archive.catalog / "staging").iterdir())
    assert not list(archive.index_root.rglob(".*.tmp"))
