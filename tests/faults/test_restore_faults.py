"""Restores on a full disk, of logs that change meanwhile, and two at once."""

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kip33.archive.broker_locks import alone_in
from kip33.errors import LockedError, RestoreError
from kip33.local.local_engine import LocalEngine
from kip33.restore import restored_segment as log_copy
from kip33.restore.restore_apply import restore
from kip33.stores.locations import Location
from tests.builders.partition_copies import files_of
from tests.cli.console import PROJECT
from tests.faults.forks import Forks, restore_request
from tests.faults.small_disks import KIB, SmallDisks, why_not
from tests.restore.test_restore import log_of, write_logs

WHY_NOT = why_not()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    logs = {base: log_of(base) for base in (0, 30, 60)}
    write_logs(tmp_path / "archive" / "orders-0", logs)
    return tmp_path / "archive"


def restored(source: Path, log_dir: Path) -> dict[str, Any]:
    return restore(restore_request(str(source), str(log_dir)), LocalEngine())


@pytest.mark.skipif(bool(WHY_NOT), reason=f"no disk to fill: {WHY_NOT}")
def test_a_full_disk_ends_in_one_line_and_the_same_command_continues(
    source: Path, tmp_path: Path
) -> None:
    for base in range(90, 90 + 40 * 30, 30):
        log = source / "orders-0" / f"{base:020d}.log"
        log.write_bytes(log_of(base))
    restored(source, tmp_path / "expected")
    disk = tmp_path / "disk"
    restore = ("console", "restore", source, "--to", disk / "data", "--index-interval-bytes", 100)
    with SmallDisks(disk) as disks, Forks(*disks.enter(PROJECT)) as commands:
        disks.fill(disk, leave=256 * KIB)
        done = commands.run(*restore)
        assert done.exit_code == 2
        assert "are free, but the restore needs" in done.stderr
        assert not (disks.seen(disk) / "data" / ".kip33-restore").exists()
        done = commands.run("restore", source, disk / "data", blind=True)
        assert done.exit_code == 1
        assert "No space left on device" in done.stderr
        assert (disks.seen(disk) / "data" / ".kip33-restore").is_dir()
        assert not (disks.seen(disk) / "data" / "orders-0").exists()
        disks.make_room(disk)
        done = commands.run(*restore)
        assert done.exit_code == 0, done.stderr
        found = files_of(disks.seen(disk) / "data" / "orders-0")
    assert found == files_of(tmp_path / "expected" / "orders-0")


@contextmanager
def changing(log: Path, change: Callable[[Path], object]) -> Iterator[None]:
    """Change a log whenever bytes of a log have been read."""
    original = log_copy.CopyingReader.read_into

    def read_into(reader: log_copy.CopyingReader, position: int, view: memoryview) -> int:
        count = original(reader, position, view)
        if log.exists():
            change(log)
        return count

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_copy.CopyingReader, "read_into", read_into)
        yield


CHANGES: dict[str, Callable[[Path], object]] = {
    "grows": lambda log: log.write_bytes(log.read_bytes() + b"more"),
    "is cut": lambda log: os.truncate(log, log.stat().st_size - 1),
    "is written again": lambda log: os.utime(log, ns=(0, log.stat().st_mtime_ns - 10**9)),
    "is deleted": Path.unlink,
}


def test_a_log_that_changes_refuses_its_partition_and_leaves_nothing(
    source: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    log = source / "orders-0" / f"{60:020d}.log"
    for name, change in CHANGES.items():
        log.write_bytes(log_of(60))
        with subtests.test(name), changing(log, change):
            [row] = restored(source, tmp_path / "data")["partitions"]
            assert str(log) in row["problem"]
            assert [path.name for path in (tmp_path / "data").iterdir()] == []


def test_a_log_that_changed_once_is_read_again(source: Path, tmp_path: Path) -> None:
    log = source / "orders-0" / f"{60:020d}.log"

    def change(path: Path) -> None:
        if path.stat().st_size != len(log_of(60, 2)):
            path.write_bytes(log_of(60, 2))

    with changing(log, change):
        summary = restored(source, tmp_path / "data")
    [row] = summary["partitions"]
    assert (row["problem"], row["end_offset"]) == (None, 80)
    assert "the log changed while it was read, and was read again" in summary["notes"][0]


def _hold(log_dir: str, is_held: Any, may_end: Any) -> None:
    with alone_in(Location.of(log_dir), "restore", RestoreError):
        is_held.set()
        may_end.wait()


def test_the_second_of_two_restores_ends_in_one_line(source: Path, tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    context = multiprocessing.get_context("fork")
    is_held, may_end = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(log_dir), is_held, may_end))
    other.start()
    is_held.wait()
    with pytest.raises(LockedError, match="another restore works in this log directory"):
        restored(source, log_dir)
    assert list(log_dir.iterdir()) == []
    may_end.set()
    other.join()
    assert restored(source, log_dir)["partitions_restored"] == 1


def test_a_partition_that_appears_meanwhile_is_not_replaced(source: Path, tmp_path: Path) -> None:
    log_dir = tmp_path / "data"

    def appear(_: Path) -> None:
        if not (log_dir / "orders-0").exists():
            write_logs(log_dir / "orders-0", {0: log_of(0)})

    with (
        changing(source / "orders-0" / f"{60:020d}.log", appear),
        pytest.raises(Exception, match="the partition has data"),
    ):
        restored(source, log_dir)
    assert files_of(log_dir / "orders-0") == {f"{0:020d}.log": log_of(0)}
    shutil.rmtree(log_dir / "orders-0")
    assert restored(source, log_dir)["partitions_restored"] == 1
