"""A random walk: an archive changes, a build follows, and its result is that of a full build.

After every build, each row of a listed topic is the same as in a build into a new place, each index
file in a row has the same bytes, and rows of other topics are unchanged. A row that trusts a
`.timeindex` may have fewer values, never different ones. KIP33_WALKS is the number of walks in the
long form.

A second walk tests the ownership of index files: other programs change them, logs are deleted and
their index files stay, topics are created again, builds of two topics commit at the same time. No
foreign file is changed, our files are the same as in a build into a new place, and the list of
orphaned files is that of a naive model. KIP33_OWNER_SEEDS is the number of seeds in the long form.
"""

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kip33.archive.sources import matches
from kip33.builds.commit import begin_build, commit_build
from kip33.builds.index_files import BEFORE_LOG
from kip33.builds.plan import BuildPlan
from kip33.builds.task import build_bin
from kip33.catalog.catalog import Catalog
from kip33.catalog.orphan_list import read_orphans
from tests.builders.changing_archive import DAY_MS, ChangingArchive, Row, batches
from tests.faults.builds import Outcome
from tests.long_forms import short_and_long

PARTITIONS = ("x 1/a-0", "x 1/a-1", "x 1/b-0", "ü%41/b-0")
BASES = (0, 40, 80)
TOPICS: tuple[tuple[str, ...], ...] = ((), (), (), ("a",), ("b*",))
SETTINGS_COLUMNS = ("build_settings", "time_index_settings", "offset_index_settings")
LOST = "lost"
SEGMENTS = st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(BASES))
SETTINGS = st.fixed_dictionaries(
    {
        "dialect": st.sampled_from(["recover", "recover", "kip33"]),
        "offset_index": st.booleans(),
        "read": st.sampled_from(["log", "log", "tail"]),
        "topics": st.sampled_from(TOPICS),
        "full": st.sampled_from([False, False, False, True]),
    }
)
TOLD_BY_BOTH = ("topic", "base_offset", "size_bytes", "last_modified_ms", "active_segment",
                "largest_timestamp", "max_timestamp", "first_batch_timestamp")  # fmt: skip


class Nights(RuleBasedStateMachine):
    """An archive with a catalog, one change after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="nights-"))
        self.archive = ChangingArchive(self.folder)
        self.chance = random.Random(0)
        self.before: dict[str, Row] = {}
        self.settings: dict[str, Any] = {"offset_index": False}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize()
    def two_segments_that_stay(self) -> None:
        for partition in ("stays/a-9", "stays/b-9"):  # SOURCE is never without a segment
            self.archive.write(self.archive.log(partition), batches(0, 3))

    # What happens to logs

    @rule(segment=SEGMENTS, count=st.integers(0, 9), age_ms=st.sampled_from([500, 1999, 60_000]))
    def comes_or_changes(self, segment: tuple[str, int], count: int, age_ms: int) -> None:
        log = self.archive.log(*segment)
        if log.parent.is_symlink():
            return
        self._forget_beside(log)
        first_ms = self.archive.now_ms - 1_000_000 + self.chance.randrange(1000)
        self.archive.write(log, batches(segment[1], count, first_ms=first_ms), age_ms=age_ms)

    @rule(segment=SEGMENTS)
    def grows(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists():
            self._forget_beside(log)
            more = batches(segment[1] + 18, 2, first_ms=self.archive.now_ms)
            self.archive.write(log, log.read_bytes() + more)

    @rule(segment=SEGMENTS)
    def turns_bad(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists():
            self._forget_beside(log)
            later = self.archive.now_ms
            self.archive.write(log, batches(segment[1] - 9, 9, first_ms=later))

    @rule(segment=SEGMENTS)
    def is_cut(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists() and log.stat().st_size:
            self._forget_beside(log)
            self.archive.write(log, log.read_bytes()[:-5])

    @rule(segment=SEGMENTS)
    def goes(self, segment: tuple[str, int]) -> None:
        """Its index files are deleted with it: otherwise their ownership would be lost later."""
        log = self.archive.log(*segment)
        if log.exists():
            self._forget_beside(log)
            log.unlink()
            for suffix in (".timeindex", ".index"):
                self.archive.index_of(log).with_suffix(suffix).unlink(missing_ok=True)

    @rule(partition=st.sampled_from(PARTITIONS))
    def a_directory_is_lost_or_found(self, partition: str) -> None:
        directory = self.archive.log(partition).parent
        hidden = self.folder / LOST / partition.replace("/", " ")
        if directory.is_symlink():
            directory.unlink()
            hidden.rename(directory)
        elif directory.exists():
            hidden.parent.mkdir(exist_ok=True)
            directory.rename(hidden)
            directory.symlink_to(self.archive.source)

    # What happens to index files

    @rule(segment=SEGMENTS, suffix=st.sampled_from([".timeindex", ".index"]))
    def an_index_goes(self, segment: tuple[str, int], suffix: str) -> None:
        self.archive.index(*segment).with_suffix(suffix).unlink(missing_ok=True)

    @rule(segment=SEGMENTS, suffix=st.sampled_from([".timeindex", ".index"]))
    def an_index_is_cut(self, segment: tuple[str, int], suffix: str) -> None:
        place = self.archive.index(*segment).with_suffix(suffix)
        if place.exists() and place.stat().st_size:
            place.write_bytes(place.read_bytes()[:-4])

    @rule(segment=SEGMENTS)
    def a_true_index_appears_beside_the_log(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists():
            (name,) = {str(log.relative_to(self.archive.source).with_suffix(".timeindex"))}
            for path, data in self.archive.fresh().files.items():
                if path == name:
                    log.with_suffix(".timeindex").write_bytes(data)

    # Builds

    @rule(settings=SETTINGS)
    def is_built(self, settings: dict[str, Any]) -> None:
        settings = settings | self._no_new_offset_indexes(settings)
        before = self.before
        fresh_settings = {k: v for k, v in settings.items() if k != "full"}
        truth = {row["log_uri"]: row for row in self.archive.fresh(**fresh_settings).rows}
        files = self.archive.fresh(**fresh_settings | {"read": "log"}).files
        summary = self.archive.build(**settings)
        seen = self.archive.outcome()
        after = {row["log_uri"]: row for row in seen.rows}
        assert not summary.warnings
        assert summary.failed == 0
        segments = {uri for uri, row in after.items() if row["base_offset"] is not None}
        unlisted = segments - set(truth)
        assert set(truth) <= set(after)
        assert summary.carried == len(unlisted)
        assert summary.indexed + summary.reused == len(truth)
        for uri in unlisted:
            assert without_settings(after[uri]) == without_settings(before[uri])
        for uri, true in truth.items():
            row = after[uri]
            if row["status"] == true["status"] == "unverified" or "unverified" not in (
                row["status"], true["status"],
            ):  # fmt: skip
                assert row == true
            else:
                assert (row["status"], true["status"]) == ("ok", "unverified")
                assert [row[name] for name in TOLD_BY_BOTH] == [true[name] for name in TOLD_BY_BOTH]
        for path, data in seen.files.items():
            log = self.archive.source / Path(path).with_suffix(".log")
            if log.as_uri() in truth:
                assert data == files[path], path
        self.before = after

    @precondition(lambda self: self.before)
    @rule(settings=SETTINGS, bins=st.sampled_from([0, 1]))
    def a_build_is_killed(self, settings: dict[str, Any], bins: int) -> None:
        settings = settings | self._no_new_offset_indexes(settings)
        begun = begin_build(self.archive.plan(**settings))
        if bins:
            files = begun.plan.files.slice(0, max(1, begun.plan.files.num_rows // 2))
            build_bin(begun.plan.build, begun.draft.staging, len(begun.copied_parts), files)

    @invariant()
    def the_newest_snapshot_is_whole(self) -> None:
        if self.before:
            assert {row["log_uri"]: row for row in self.archive.outcome().rows} == self.before

    def _forget_beside(self, log: Path) -> None:
        log.with_suffix(".timeindex").unlink(missing_ok=True)

    def _no_new_offset_indexes(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what keeps offset indexes on once they were: off and on, they are nobody's."""
        self.settings["offset_index"] |= settings["offset_index"]
        return {"offset_index": self.settings["offset_index"]}


def without_settings(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in SETTINGS_COLUMNS}


@pytest.mark.parametrize("walks", short_and_long(3, 40, "KIP33_WALKS"))
def test_a_nights_result_does_not_depend_on_earlier_nights(walks: int) -> None:
    run_state_machine_as_test(
        Nights,
        settings=hypothesis_settings(
            max_examples=walks,
            stateful_step_count=25,
            derandomize=True,
            phases=[Phase.generate],
        ),
    )


# Whose index files are whose


KINDS = (".timeindex", ".index")
File = tuple[int, int, bytes]  # size, modification time in ms, bytes


class Owners:
    """An archive whose index files other programs change, and a naive model of their ownership.

    A file is ours by the row of its log, or because it is orphaned and unchanged. `ours` has the
    files in our rows, `orphaned` those whose logs were deleted, with size and time of each.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.archive = ChangingArchive(folder, in_place=seed % 3 == 2)
        self.archive.source.mkdir(parents=True)
        self.times = itertools.count(1_600_000_000)  # no two changes by others have the same
        self.rows: set[Path] = set()  # logs that the newest snapshot knows
        self.ours: dict[Path, dict[Path, tuple[int, int]]] = {}
        self.orphaned: dict[Path, tuple[int, int]] = {}
        self.orphans_seen = self.returned_seen = self.kept_seen = 0
        for partition in ("stays/a-9", "stays/b-9"):
            self.archive.write(self.archive.log(partition), batches(0, 3))

    # What happens by day

    def change(self, topic: str | None = None) -> None:
        partitions = [one for one in PARTITIONS if topic is None or f"/{topic}-" in one]
        log = self.archive.log(self.chance.choice(partitions), self.chance.choice(BASES))
        index = self.archive.index_of(log).with_suffix(self.chance.choice(KINDS))
        lost = [path for path in self.orphaned if path.parent.name.startswith(topic or "")]
        if lost and self.chance.random() < 0.3:
            path = self.chance.choice(sorted(lost)).relative_to(self.archive.index_root)
            self.log_changes((self.archive.source / path).with_suffix(".log"), index)
            return
        changes = [self.log_changes, self.log_changes, self.log_goes, self.log_goes,
                   self.topic_goes, self.index_changes, self.index_is_touched, self.index_goes,
                   self.index_appears]  # fmt: skip
        self.chance.choice(changes)(log, index)

    def log_changes(self, log: Path, index: Path) -> None:
        base_offset = int(log.stem)
        data = batches(base_offset, self.chance.randrange(10), first_ms=self.archive.now_ms - 9_000)
        if self.archive.index_dir and self.chance.random() < 0.2:
            data = batches(base_offset - 9, 9)  # invalid: it gives no index
        self.archive.write(log, data, age_ms=self.chance.randrange(10_000, 60_000))

    def log_goes(self, log: Path, index: Path) -> None:
        log.unlink(missing_ok=True)

    def topic_goes(self, log: Path, index: Path) -> None:
        for one in log.parent.glob("*.log"):
            one.unlink()

    def index_changes(self, log: Path, index: Path) -> None:
        """Other bytes of the same size."""
        if index.exists():
            index.write_bytes(bytes(byte ^ 1 for byte in index.read_bytes()))
            self.set_time(index)

    def index_is_touched(self, log: Path, index: Path) -> None:
        if index.exists():
            self.set_time(index)

    def index_goes(self, log: Path, index: Path) -> None:
        index.unlink(missing_ok=True)

    def index_appears(self, log: Path, index: Path) -> None:
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_bytes(self.chance.randbytes(24))
        self.set_time(index)

    def set_time(self, index: Path) -> None:
        time_s = next(self.times)
        os.utime(index, (time_s, time_s))

    # What the model makes of a night

    def files(self) -> dict[Path, File]:
        found = {}
        for path in self.archive.index_root.rglob("*"):
            if path.suffix in KINDS:
                status = path.stat()
                found[path] = status.st_size, status.st_mtime_ns // 1_000_000, path.read_bytes()
        return found

    def looks_at(self, log: Path, topics: tuple[str, ...]) -> bool:
        return matches(log.parent.name.rpartition("-")[0], topics)

    def expect(self, topics: tuple[str, ...]) -> None:
        """Say what a build is to find; `check` then holds it against what the build made of it."""
        self.before = self.files()
        self.is_first = not self.archive.catalog.exists()
        logs = {log for log in self.archive.source.rglob("*.log") if self.looks_at(log, topics)}
        self.looked_at = logs
        self.free: set[Path] = set()  # looked at, and all index files there are ours
        for log in logs:
            there = [path for path in self.places(log) if path in self.before]
            if log in self.ours or all(self.is_orphaned(path) for path in there):
                self.free.add(log)
                self.returned_seen += log not in self.ours and bool(there)
                for path in there:
                    self.orphaned.pop(path, None)
        for log in [log for log in self.ours if log not in logs and self.looks_at(log, topics)]:
            self.orphaned |= self.ours.pop(log)
        for path in list(self.orphaned):
            if self.looks_at(path, topics) and not self.is_orphaned(path):
                del self.orphaned[path]
        self.new = logs - self.rows
        self.rows = {log for log in self.rows if not self.looks_at(log, topics)} | logs

    def places(self, log: Path) -> list[Path]:
        return [self.archive.index_of(log).with_suffix(kind) for kind in KINDS]

    def is_orphaned(self, path: Path) -> bool:
        return path in self.before and self.orphaned.get(path) == self.before[path][:2]

    def check(self, fresh: Outcome) -> None:
        """Compare what a build left with what was expected; `fresh` is a build elsewhere."""
        after, rows = self.files(), {row["log_uri"]: row for row in self.archive.rows()}
        root = self.archive.index_root
        right = {root / name: data for name, data in fresh.files.items()}
        for path, file in self.before.items():
            if path.with_suffix(".log") not in {root / self.below(log) for log in self.free}:
                assert after.get(path) == file, f"{path}: a file that is not ours was changed"
        for log in self.looked_at:
            row, places = rows[log.as_uri()], self.places(log)
            has_index = any(path in right for path in places)
            if log in self.free:
                assert row["index_file"] == ("written" if has_index else None), log
                assert [path.exists() for path in places] == [path in right for path in places]
                for path in places:
                    assert not has_index or after[path][2] == right[path], path
                if has_index:
                    self.ours[log] = {path: after[path][:2] for path in places}
                else:
                    self.ours.pop(log, None)
            else:
                self.kept_seen += 1
                assert row["index_file"] == ("kept" if has_index else None), log
                differ = [
                    p for p in places if p in self.before and self.before[p][2] != right.get(p)
                ]
                if has_index and differ and log in self.new:
                    is_said = BEFORE_LOG in row["error"]
                    assert is_said == (not self.is_first and self.archive.index_dir is not None)
        assert set(rows) == {log.as_uri() for log in self.rows}

    def below(self, log: Path) -> Path:
        return log.relative_to(self.archive.source)

    def check_orphans(self) -> None:
        catalog = Catalog.at(str(self.archive.catalog))
        table, problem = read_orphans(catalog, catalog.require_newest())
        listed = {row["index_uri"]: (row["size_bytes"], row["last_modified_ms"])
                  for row in table.to_pylist()}  # fmt: skip
        assert problem is None
        assert table.num_rows == len(listed)
        assert listed == {path.as_uri(): file for path, file in self.orphaned.items()}
        self.orphans_seen += len(listed)

    # Nights

    def night(self) -> None:
        topics = self.chance.choice(TOPICS)
        self.expect(topics)
        fresh = self.archive.fresh(offset_index=True, topics=topics)
        summary = self.archive.build(offset_index=True, topics=topics)
        self.check(fresh)
        self.check_orphans()
        assert summary.orphaned == len(self.orphaned)
        assert summary.orphaned_bytes == sum(size for size, _ in self.orphaned.values())
        assert not summary.warnings

    def night_of_two_builds(self) -> None:
        """Each looks at its own topic; the other topic changes after the first one listed."""
        first, second = self.chance.sample(["a", "b"], 2)
        steps = [build_steps(self.archive.plan(offset_index=True, topics=[first]))]
        for _ in range(self.chance.randrange(3)):
            self.change(second)
        self.archive.now_ms += 1000
        steps.append(build_steps(self.archive.plan(offset_index=True, topics=[second])))
        expected = []
        for topics in ((first,), (second,)):
            self.expect(topics)
            expected.append((self.before, self.is_first, self.looked_at, self.free, self.new))
        fresh = self.archive.fresh(offset_index=True)
        order = [0] * STEPS + [1] * STEPS
        self.chance.shuffle(order)
        for which in order:
            next(steps[which])
        self.archive.now_ms += DAY_MS
        everything = self.looked_at_by(expected)
        self.before, self.is_first, self.looked_at, self.free, self.new = everything
        self.check(fresh)
        self.check_orphans()

    def looked_at_by(self, expected: list[Any]) -> Any:
        (before, is_first, *mine), (_, _, *others) = expected
        if is_first:  # the other may have committed before it was planned, or not
            mine[2] = others[2] = set()
        return (before, is_first, *(one | other for one, other in zip(mine, others, strict=True)))


STEPS = 4


def build_steps(plan: BuildPlan) -> Iterator[None]:
    """Carry out a plan in STEPS steps."""
    begun = begin_build(plan)
    yield None
    half, first = plan.files.num_rows // 2, len(begun.copied_parts)
    staging = begun.draft.staging
    results = [build_bin(plan.build, staging, first, plan.files.slice(0, half))]
    yield None
    results.append(build_bin(plan.build, staging, first + 1, plan.files.slice(half)))
    yield None
    commit_build(begun, results)
    yield None


@pytest.mark.parametrize("seeds", short_and_long(2, 12, "KIP33_OWNER_SEEDS"))
def test_nothing_foreign_is_changed_and_orphaned_files_are_known(
    tmp_path: Path, seeds: int
) -> None:
    """A dozen nights of each seed; every third one's index files lie beside the logs."""
    orphans = returned = kept = 0
    for seed in range(seeds):
        print(f"seed {seed}")
        owners = Owners(tmp_path / str(seed), seed)
        for _ in range(12):
            for _ in range(owners.chance.randrange(8)):
                owners.change()
            if owners.chance.random() < 0.3:
                owners.night_of_two_builds()
            else:
                owners.night()
        orphans += owners.orphans_seen
        returned += owners.returned_seen
        kept += owners.kept_seen
    assert min(orphans, returned, kept) > 0, "otherwise nothing was tried"
