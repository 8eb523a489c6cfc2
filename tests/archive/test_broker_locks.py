"""A broker's lock: no broker starts while kip33 holds it; while a broker has it, no deletion."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kip33.archive import broker_locks
from kip33.archive.broker_locks import locked
from kip33.errors import LockedError, PlanError
from kip33.stores.locations import Location

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
TRY = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


@contextmanager
def held_by_another(lock: Path) -> Iterator[None]:
    """Let another process hold the lock of a file."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout and child.stdin
        assert child.stdout.readline() == b"held\n"
        yield
        child.stdin.close()


def is_free(lock: Path) -> bool:
    """Return whether another process gets the lock."""
    done = subprocess.run([sys.executable, "-c", TRY, lock], capture_output=True, check=False)
    return done.returncode == 0


def refuse(partitions: list[Location]) -> None:
    says = r"\.lock: a broker or another run of kip33 holds the lock"
    with pytest.raises(PlanError, match=says), locked(partitions):
        pass


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    (directory / "orders-0").mkdir(parents=True)
    return directory


@pytest.fixture
def orders(log_dir: Path) -> list[Location]:
    return [Location.of(log_dir / "orders-0")]


def test_a_free_lock_is_taken(log_dir: Path, orders: list[Location]) -> None:
    (log_dir / ".lock").touch()

    with locked(orders):
        assert not is_free(log_dir / ".lock")

    assert is_free(log_dir / ".lock")


def test_a_held_lock_is_refused(log_dir: Path, orders: list[Location]) -> None:
    (log_dir / ".lock").touch()

    with held_by_another(log_dir / ".lock"):
        refuse(orders)


def test_a_linked_partition_is_locked_where_it_is(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / ".lock").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/orders-0").symlink_to(log_dir / "orders-0")

    with held_by_another(log_dir / ".lock"):
        refuse([Location.of(tmp_path / "linked/orders-0")])


def test_an_archive_gets_no_lock_file(log_dir: Path, orders: list[Location]) -> None:
    with locked(orders):
        assert not (log_dir / ".lock").exists()


def test_a_stopped_brokers_directory_gets_one_until_the_end(
    log_dir: Path, orders: list[Location]
) -> None:
    (log_dir / "meta.properties").touch()

    with locked(orders):
        assert not is_free(log_dir / ".lock")

    assert not (log_dir / ".lock").exists()


def test_a_dry_run_makes_none(log_dir: Path, orders: list[Location]) -> None:
    (log_dir / "meta.properties").touch()

    with locked(orders, make=False):
        assert not (log_dir / ".lock").exists()


def test_a_file_that_a_broker_replaced_meanwhile_is_no_lock(
    log_dir: Path, orders: list[Location], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = log_dir / ".lock"
    lock.touch()
    take = broker_locks._lock

    def replaced_once(descriptor: int, place: Location) -> None:
        if not (log_dir / "was").exists():
            os.link(lock, log_dir / "was")
            lock.unlink()
            lock.touch()
        take(descriptor, place)

    monkeypatch.setattr(broker_locks, "_lock", replaced_once)

    with locked(orders):
        assert not is_free(lock)


@pytest.mark.parametrize("name", [".kip33-restore", ".kip33-restore.json"])
@pytest.mark.parametrize("partition", ["orders-0", ".kip33-restore/partitions/orders-0"])
def test_an_unfinished_restore_refuses_all_but_a_restore(
    log_dir: Path, name: str, partition: str
) -> None:
    (log_dir / name).mkdir()
    places = [Location.of(log_dir / partition)]

    with pytest.raises(LockedError, match="a restore into this log directory has not ended"):
        locked(places).__enter__()

    with locked(places, restores=True):
        pass
