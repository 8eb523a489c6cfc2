"""A restore killed with SIGKILL around every operation.

A broker never starts on a part of it, and the same command continues.
"""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from kip33.archive.sources import RESTORE_STAGING
from tests.faults.line_programs import ask, start
from tests.long_forms import one_in
from tests.restore.test_restore import log_of, new_topic, write_logs

CHECKPOINTS = {"recovery-point-offset-checkpoint": 90, "cleaner-offset-checkpoint": 7}


class Restored:
    """An archive of two partitions, and a log directory as it was before any restore."""

    def __init__(self, folder: Path) -> None:
        self.source, self.log_dir, self._saved = (
            folder / name for name in ("archive", "data", "saved")
        )
        logs = {base: log_of(base, leader_epoch=base // 30) for base in (0, 30, 60)}
        write_logs(self.source / "orders-0", logs)
        write_logs(self.source / "orders-1", {500: log_of(500, producer_id=7, base_sequence=0)})
        new_topic(write_logs(self.log_dir / "others-7", {0: log_of(0)}).parent, "orders-0")
        (self.log_dir / ".kafka_cleanshutdown").write_bytes(b"")
        for name, offset in CHECKPOINTS.items():
            (self.log_dir / name).write_text(f"0\n2\nothers 7 {offset}\norders 0 3\n")
        shutil.copytree(self.log_dir, self._saved)
        self.before = self.files()

    def reset(self) -> None:
        shutil.rmtree(self.log_dir)
        shutil.copytree(self._saved, self.log_dir)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.log_dir.rglob("*") if path.is_file())
        return {str(path.relative_to(self.log_dir)): path.read_bytes() for path in found}

    def starts(self) -> bool:
        """Return whether a broker would start: each directory is named as a partition's."""
        return not (self.log_dir / RESTORE_STAGING).exists()

    def start(self) -> "subprocess.Popen[str]":
        """Return the program whose children restore."""
        return start("tests.faults.forked_restores", self.source, self.log_dir)


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    return Restored(tmp_path_factory.mktemp("restored"))


@pytest.mark.parametrize("when", one_in(2, ["before", "after"]))
def test_around_every_operation(restored: Restored, when: str) -> None:
    with restored.start() as forks:
        restored.reset()
        assert ask(forks, "[]") == "0"
        done = restored.files()
        assert restored.starts()
        assert done != restored.before
        for number in range(1000):
            restored.reset()
            where = f"{when} operation {number}"
            code = int(ask(forks, json.dumps([when, number])))
            left = restored.files()
            without_journal = {name: left[name] for name in left if not name.startswith(".kip33")}
            if restored.starts():
                assert without_journal in (restored.before, done), where
            else:
                untouched = {n: d for n, d in restored.before.items() if n.startswith("others-7")}
                assert untouched.items() <= left.items(), where
            if code == 0:
                break
            assert code == -signal.SIGKILL, where
            assert int(ask(forks, "[]")) == 0, where
            assert restored.files() == done, where
    assert number >= 50
    assert restored.starts()


def test_what_is_staged_is_not_copied_again(restored: Restored) -> None:
    restored.reset()
    with restored.start() as forks:
        assert int(ask(forks, json.dumps(["before", 10_000]))) == 0
        restored.reset()
        last_copy = 0
        for number in range(1000):  # the first operation at which all facts are there
            restored.reset()
            ask(forks, json.dumps(["before", number]))
            if len(list((restored.log_dir / RESTORE_STAGING).glob("facts/*/0*.json"))) == 4:
                last_copy = number
                break
        staged = sorted((restored.log_dir / RESTORE_STAGING).glob("partitions/*/*.log"))
        inodes = {path.name: path.stat().st_ino for path in staged}
        assert last_copy
        assert len(inodes) == 4
        assert int(ask(forks, "[]")) == 0
    now = {path.name: path.stat().st_ino for path in restored.log_dir.glob("orders-*/*.log")}
    assert now == inodes
