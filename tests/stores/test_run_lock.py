"""The lock of a folder: one run at a time, also after a kill, on a disk and on a store."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest

from kip33.errors import LockedError
from kip33.stores import filesystems
from kip33.stores.filesystem_option import place_on
from kip33.stores.locations import Location
from kip33.stores.run_lock import only_run

KILLED = """
import os, signal, sys
from kip33.stores.locations import Location
from kip33.stores.run_lock import only_run
with only_run(Location.of(sys.argv[1]), "killed", "count"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(filesystems._ByRoot, "given", {})
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, memory: Any) -> Location:
    is_disk = request.param == "disk"
    return Location.of(tmp_path) if is_disk else place_on("memory:///journal", None, memory)


def refused(folder: Location) -> str:
    with pytest.raises(LockedError) as error, only_run(folder, "second", "count"):
        pass
    return str(error.value)


def test_a_second_run_is_refused_until_the_first_has_ended(folder: Location) -> None:
    with only_run(folder, "first", "count"):
        assert "another count is under way; run the command again" in refused(folder)
        refused(folder)
    with only_run(folder, "second", "count"):
        pass


def test_a_killed_run_on_a_disk_holds_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert done.returncode == -9
    with only_run(Location.of(tmp_path), "next", "count"):
        pass


@pytest.mark.parametrize(("minutes", "is_dead"), [(9, False), (11, True)])
def test_the_file_of_a_killed_run_on_a_store_counts_for_ten_minutes(
    memory: Any, minutes: int, is_dead: bool
) -> None:
    folder = place_on("memory:///journal", None, memory)
    memory.pipe("/journal/run-killed.lock", b"\n")
    memory.store["/journal/run-killed.lock"].modified -= timedelta(minutes=minutes)
    if not is_dead:
        assert "run-killed.lock: another count is under way" in refused(folder)
    else:
        with only_run(folder, "next", "count"):
            assert memory.find("/journal") == ["/journal/run-next.lock"]
    assert memory.find("/journal") == ([] if is_dead else ["/journal/run-killed.lock"])


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert "run.lock: cannot be locked: Operation not supported; expected" in refused(
        Location.of(tmp_path)
    )
