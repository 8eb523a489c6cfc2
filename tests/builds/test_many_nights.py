"""Whose index files are whose, in random nights, beside a naive model.

Other programs change index files, logs are deleted and their index files stay, topics are created
again. No foreign file is changed, our files are the same as in a build into a new place, and the
list of orphaned files is that of the model. KIP33_OWNER_SEEDS is the number of seeds in the long
form. That a night's result does not depend on earlier nights, disturbed or not:
`test_disturbed_nights.py`. Two builds at once: `tests/faults/test_two_builds.py`.
"""

import itertools
import os
import random
from pathlib import Path

import pytest

from kip33.archive.sources import matches
from kip33.catalog.catalog import Catalog
from kip33.catalog.orphan_list import read_orphans
from kip33.rules.segment_notes import SegmentNote
from tests.builders.changing_archive import ChangingArchive, batches
from tests.faults.builds import Outcome
from tests.long_forms import seeds, short_and_long

PARTITIONS = ("x 1/a-0", "x 1/a-1", "x 1/b-0", "ü%41/b-0")
BASES = (0, 40, 80)
TOPICS: tuple[tuple[str, ...], ...] = ((), (), (), ("a",), ("b*",))

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

    def change(self) -> None:
        log = self.archive.log(self.chance.choice(PARTITIONS), self.chance.choice(BASES))
        index = self.archive.index_of(log).with_suffix(self.chance.choice(KINDS))
        if self.orphaned and self.chance.random() < 0.3:
            path = self.chance.choice(sorted(self.orphaned)).relative_to(self.archive.index_root)
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
                    is_said = SegmentNote.BEFORE_LOG in row["notes"]
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


@pytest.mark.parametrize("many", short_and_long(1, 12, "KIP33_OWNER_SEEDS"))
def test_nothing_foreign_is_changed_and_orphaned_files_are_known(tmp_path: Path, many: int) -> None:
    """A dozen nights of each seed; every third one's index files lie beside the logs."""
    orphans = returned = kept = 0
    for seed in seeds(many):
        print(f"seed {seed}")
        owners = Owners(tmp_path / str(seed), seed)
        for _ in range(12):
            for _ in range(owners.chance.randrange(8)):
                owners.change()
            owners.night()
        orphans += owners.orphans_seen
        returned += owners.returned_seen
        kept += owners.kept_seen
    assert many == 1 or min(orphans, returned, kept) > 0, "otherwise nothing was tried"
