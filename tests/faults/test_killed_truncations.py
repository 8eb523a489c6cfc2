"""A truncation killed with SIGKILL around every operation.

A broker could start after each, and the same command continues.
"""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from kip33.errors import LockedError
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.restore.truncate_apply import JOURNAL, truncate
from kip33.stores.locations import Location
from tests.builders.partition_copies import files_of, write_partition
from tests.builders.segment_builder import Record, v2_batch
from tests.faults.line_programs import ask, start
from tests.long_forms import one_in
from tests.retention.test_broker_locks import held_by_another

T = 1_700_000_000_000
CHECKPOINTS = {"log-start-offset-checkpoint": 45, "recovery-point-offset-checkpoint": 90}
OFFSETS = {"in a segment": 45, "at a base": 30, "before the log": 5}


class Copied:
    """A partition, always as it was before any truncation."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "logs" / "orders-0"
        self._saved = folder / "saved"
        batches = {
            base: [
                v2_batch(at, [Record(T + at + i, value=b"v" * 20) for i in range(10)])
                for at in (base, base + 10)
            ]
            for base in (10, 30, 50, 70)
        }
        write_partition(
            self.directory,
            batches,
            epochs=[(0, 10), (4, 60)],
            snapshots={base: ProducerSnapshot(()) for base in (30, 50, 70, 90)},
            checkpoints=CHECKPOINTS,
        )
        (self.directory / f"{30:020d}.txnindex").write_bytes(b"")
        shutil.copytree(self.directory.parent, self._saved)
        self.before = self.files()

    def restore(self) -> None:
        shutil.rmtree(self.directory.parent)
        shutil.copytree(self._saved, self.directory.parent)

    def files(self) -> dict[str, bytes]:
        above = {f"../{name}": data for name, data in files_of(self.directory.parent).items()}
        return files_of(self.directory) | above

    def start(self, offset: int) -> "subprocess.Popen[str]":
        """Return the program whose children truncate."""
        return start("tests.faults.forked_truncations", self.directory, offset)

    def require_loadable(self, done: dict[str, bytes], where: str) -> None:
        """Require that a broker that starts now finds a log without a gap and true indexes."""
        now = self.files()
        logs = sorted(name for name in now if name.endswith(".log"))
        old_logs = [name for name in sorted(self.before) if name.endswith(".log")]
        kept = [name for name in logs if name in old_logs]
        assert kept == old_logs[: len(kept)], f"{where}: a gap"
        for name in logs:
            before, after = self.before.get(name), done.get(name)
            assert now[name] in (before, after), f"{where}: {name}"
            index = name.replace(".log", ".index")
            if index not in now:
                continue  # a broker recovers the segment
            for kind in (".index", ".timeindex", ".txnindex"):
                file = name.replace(".log", kind)
                state = done if now[name] == after else self.before
                is_any = before == after and now.get(file) in (self.before.get(file), None)
                assert is_any or now.get(file) == state.get(file), f"{where}: {file}"
        for name in set(now) - set(self.before) - set(done):
            is_own = name.endswith((JOURNAL, ".tmp")) or name.startswith("../.kip33-truncate-")
            assert is_own, f"{where}: {name}"
        if min(len(now[name]) for name in logs) == 0 or len(kept) < len(old_logs):
            start = "../log-start-offset-checkpoint"
            assert now[start] == done[start], f"{where}: a broker would delete the log"


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    return Copied(tmp_path_factory.mktemp("truncated"))


@pytest.mark.parametrize("when", one_in(2, ["before", "after"]))
@pytest.mark.parametrize("offset", one_in(3, [pytest.param(at, id=w) for w, at in OFFSETS.items()]))
def test_around_every_operation(copied: Copied, offset: int, when: str) -> None:
    copied.restore()
    truncate(Location.of(copied.directory), offset)
    done = copied.files()
    copied.restore()
    with copied.start(offset) as forks:
        for number in range(1000):
            copied.restore()
            where = f"{when} operation {number}"
            code = int(ask(forks, json.dumps([when, number])))
            copied.require_loadable(done, where)
            assert int(ask(forks, "[]")) == 0, where
            left = copied.files()
            unfinished = {name for name in left if name.endswith(".tmp")}
            assert {name: left[name] for name in left.keys() - unfinished} == done, where
            assert not unfinished or number < 2, f"{where}: {unfinished}"
            if code == 0:
                break
            assert code == -signal.SIGKILL, where
    assert number > 15


def test_a_broker_that_holds_the_lock_refuses_it(copied: Copied) -> None:
    copied.restore()
    lock = copied.directory.parent / ".lock"
    lock.touch()
    before = copied.files()
    with held_by_another(lock), pytest.raises(LockedError, match="stop the broker, or use a copy"):
        truncate(Location.of(copied.directory), 45)
    assert copied.files() == before
