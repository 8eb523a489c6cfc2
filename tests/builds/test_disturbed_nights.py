"""Random nights with faults: the next undisturbed build equals one into a new place.

On a disturbed night logs cannot be read, directories cannot be listed, the newest snapshot loses a
part afterwards, or the build is killed. Meanwhile segments come, change, get zeros at their ends
and turn bad, and the files beside them that decide about rows come, go and change. The next build
without a fault gives the same rows, bytes and owners as a build that never saw another night.
The seed is printed; KIP33_SEED repeats one, KIP33_DISTURBED is the number of walks in the long
form.
"""

import itertools
import os
import random
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from kip33.builds.commit import begin_build
from kip33.builds.task import build_bin
from kip33.catalog.catalog import Catalog
from kip33.drafts.designs import DRAFTS
from kip33.errors import NoReadableLogError
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from tests.builders.changing_archive import INTERVAL, START_MS, ChangingArchive
from tests.builders.random_partitions import RandomPartition, random_partition
from tests.faults.builds import INDEX_SUFFIXES, Outcome, build_here, outcome
from tests.faults.privileges import as_any_owner, shut
from tests.long_forms import short_and_long

SEED = os.environ.get("KIP33_SEED") or str(random.SystemRandom().randrange(2**32))
OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"offset_index": True},
    {"offset_index": True},
    {"offset_index": True},
    {"dialect": "bucket"},
    {"dialect": "bucket", "offset_index": True},
    {"dialect": "minute", "offset_index": True},
    {"untimestamped": "next-base-offset", "offset_index": True},
    {"untimestamped": "first-offset"},
    {"in_place": True, "offset_index": True},
    {"in_place": True, "offset_index": True},
    {"in_place": True},
)


class Disturbed:
    """An archive, what happens to it, and the builds of its nights."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.chance = random.Random(seed)
        self.settings = dict(self.chance.choice(OPTIONS), fsync=False)
        self.archive = ChangingArchive(folder, in_place=self.settings.pop("in_place", False))
        self.has_brokers_indexes = not (self.archive.index_dir or "offset_index" in self.settings)
        self.times = itertools.count(1_600_000_000)
        self.partitions: dict[Path, RandomPartition] = {}
        for number in range(self.chance.randint(1, 2)):
            directory = self.archive.source / f"b/t{number}-0"
            self.partitions[directory] = random_partition(seed=seed, number=number)
        self.nights: list[str] = []
        for directory in self.partitions:
            self.comes(directory)

    # By day

    def change(self) -> None:
        directory = self.chance.choice(list(self.partitions))
        changes = [self.comes, self.comes, self.is_touched, self.an_index_goes]
        changes += [self.a_snapshot_changes] * 2
        if self.has_brokers_indexes:
            changes += [self.a_brokers_index_changes] * 3
        if self.archive.index_dir or self.has_brokers_indexes:
            # in place our `.index` stays beside a log that is worse now
            changes += [self.is_compacted, self.is_cut, self.turns_bad, self.gets_zeros]
        change = self.chance.choice(changes)
        self.nights.append(f"{change.__name__} {directory.name}")
        change(directory)

    def logs(self, directory: Path) -> list[Path]:
        return sorted(directory.glob("*.log"))

    def comes(self, directory: Path) -> None:
        missing = [base for base in self.partitions[directory].segments
                   if not (directory / f"{base:020d}.log").exists()]  # fmt: skip
        for base in missing[: self.chance.randint(1, 3)]:
            self.write(directory / f"{base:020d}.log", 1.0)

    def write(self, log: Path, share: float) -> None:
        data = [one for one in self.batches_of(log) if self.chance.random() < share]
        self.archive.write(log, b"".join(data), age_ms=self.chance.randrange(10_000, 60_000))

    def batches_of(self, log: Path) -> list[bytes]:
        partition = self.partitions[log.parent]
        return [batch.data for batch in partition.segments[int(log.stem)]]

    def is_compacted(self, directory: Path) -> None:
        self.write(self.chance.choice(self.logs(directory)), 0.7)

    def is_touched(self, directory: Path) -> None:
        self.archive.touch(self.chance.choice(self.logs(directory)), age_ms=20_000)

    def is_cut(self, directory: Path) -> None:
        log = self.chance.choice(self.logs(directory))
        self.archive.write(log, log.read_bytes()[:-5], age_ms=15_000)

    def turns_bad(self, directory: Path) -> None:
        """The log is that of another segment."""
        log, other = (self.chance.choice(self.logs(directory)) for _ in range(2))
        self.archive.write(log, other.read_bytes(), age_ms=16_000)

    def gets_zeros(self, directory: Path) -> None:
        """As a preallocated log has them, or one after a power failure."""
        log = self.chance.choice(self.logs(directory))
        self.archive.write(log, log.read_bytes() + bytes(300), age_ms=17_000)

    def a_snapshot_changes(self, directory: Path) -> None:
        """A `.snapshot` beside a log comes, goes, or has other open transactions."""
        log = self.chance.choice(self.logs(directory))
        snapshot = log.with_suffix(".snapshot")
        if snapshot.exists() and self.chance.random() < 0.4:
            snapshot.unlink()
            return
        base_offset = int(log.stem)
        ids = {1000, 1001, 0, 16} if base_offset else set()
        producers = tuple(
            ProducerState(one, 0, -1, -1, 0, START_MS, 0, base_offset - 1 - number)
            for number, one in enumerate(sorted(ids))
            if self.chance.random() < 0.5
        )
        snapshot.write_bytes(ProducerSnapshot(producers).to_bytes())
        self.set_time(snapshot)

    def a_brokers_index_changes(self, directory: Path) -> None:
        """An `.index` or `.txnindex` beside a log comes, goes or is another."""
        log = self.chance.choice(self.logs(directory))
        index = log.with_suffix(self.chance.choice((".index", ".txnindex")))
        if index.exists() and self.chance.random() < 0.5:
            index.unlink()
            return
        index.write_bytes(self.chance.randbytes(34))
        self.set_time(index)

    def set_time(self, path: Path) -> None:
        """Give a file a time that no other one had."""
        time_s = next(self.times)
        os.utime(path, (time_s, time_s))

    def an_index_goes(self, directory: Path) -> None:
        below = self.archive.index_root / directory.relative_to(self.archive.source)
        suffixes = (".timeindex",) if self.has_brokers_indexes else INDEX_SUFFIXES
        files = [path for path in below.glob("*") if path.suffix in suffixes]
        if files:
            self.chance.choice(sorted(files)).unlink()

    # Nights

    def disturbed(self) -> None:
        chance = self.chance
        settings = dict(self.settings)
        logs = [log for directory in self.partitions for log in self.logs(directory)]
        unreadable = [log for log in logs if chance.random() < chance.choice((0, 0.3))]
        unlistable = [one for one in self.partitions if chance.random() < 0.2]
        settings["full"] = chance.random() < 0.1
        settings["topics"] = chance.choice(((), (), (), ("t0",)))
        if chance.random() < 0.2 and settings.get("dialect") not in DRAFTS:
            settings |= chance.choice(self.other_settings())
        loses = chance.random() < 0.25
        shut_logs = ", ".join(f"{log.parent.name}/{int(log.stem)}" for log in unreadable)
        shut_directories = ", ".join(one.name for one in unlistable)
        self.nights.append(f"unreadable {shut_logs}; unlistable {shut_directories}; {settings}")
        with ExitStack() as faults:
            for place in (*unreadable, *unlistable):
                faults.enter_context(shut(place))
            faults.enter_context(as_any_owner())
            try:
                self.archive.build(**settings)
            except NoReadableLogError:  # nothing is committed
                self.nights.append("no log could be read")
                return
        if loses:
            self.nights.append("a part is lost")
            self.lose_a_part()

    def killed(self) -> None:
        """A build that ends with its claims, or with some of its index files as well."""
        self.nights.append("killed")
        begun = begin_build(self.archive.plan(**self.settings))
        if self.chance.random() < 0.5:
            half = begun.plan.files.slice(0, max(1, begun.plan.files.num_rows // 2))
            build_bin(begun.plan.build, begun.draft.staging, len(begun.copied_parts), half)

    def other_settings(self) -> list[dict[str, Any]]:
        return [{"dialect": "live"}, {"index_interval_bytes": 77}, {"read": "tail"}]

    def lose_a_part(self) -> None:
        newest = Catalog.at(str(self.archive.catalog)).require_newest()
        folder = self.archive.catalog / "snapshots" / newest.name
        (folder / self.chance.choice(newest.parts).name).unlink()

    def undisturbed(self) -> None:
        self.nights.append("undisturbed")
        expected = self.fresh()
        self.archive.build(**self.settings)
        found = relative(self.archive.index_root, self.archive.catalog)
        if not (self.archive.index_dir or self.has_brokers_indexes):
            for row in (*found.rows, *expected.rows):
                row["decided_by"] = row["decided_by"][:2]  # the copy has no index files
        for one, other in zip(found.rows, expected.rows, strict=True):
            assert one == other
        assert found.files == expected.files

    def fresh(self) -> Outcome:
        place = self.archive.folder / "fresh"
        catalog, source, index_dir = place / "catalog", self.archive.source, place / "indexes"
        settings = {"index_interval_bytes": INTERVAL, "now_ms": self.archive.now_ms} | self.settings
        if not self.archive.index_dir:
            source = place / "source"
            ours = "*.timeindex" if self.has_brokers_indexes else "*index"
            ignore = shutil.ignore_patterns(ours)
            shutil.copytree(self.archive.source, source, ignore=ignore)
            settings["in_place"] = True
        in_place = settings.get("in_place")
        build_here(source, None if in_place else index_dir, catalog=str(catalog), **settings)
        result = relative(source if in_place else index_dir, catalog)
        shutil.rmtree(place)
        return result


def relative(root: Path, catalog: Path) -> Outcome:
    """Return what a build left, with paths relative to the root of its index files."""
    seen = outcome(root, catalog)
    for row in seen.rows:
        for name in ("log_uri", "index_uri", "error"):
            row[name] = row[name] and row[name].replace(root.as_uri(), "INDEX")
    return seen


def walk(folder: Path, seed: str, nights: int = 6) -> None:
    disturbed = Disturbed(folder, seed)
    try:
        for _ in range(nights):
            for _ in range(disturbed.chance.randrange(4)):
                disturbed.change()
            dice = disturbed.chance.random()
            if dice < 0.1:
                disturbed.killed()
            elif dice < 0.6:
                disturbed.disturbed()
            else:
                disturbed.undisturbed()
        disturbed.undisturbed()
    except Exception:
        print(seed, disturbed.settings, *disturbed.nights, sep="\n  ")
        raise


@pytest.mark.parametrize("walks", short_and_long(2, 150, "KIP33_DISTURBED"))
def test_after_faults_an_undisturbed_build_is_as_a_fresh_one(tmp_path: Path, walks: int) -> None:
    for number in range(walks):
        seed = f"{SEED}/{number}"
        walk(tmp_path / str(number), seed)
        shutil.rmtree(tmp_path / str(number))
