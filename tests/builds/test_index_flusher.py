"""Index files are flushed in lists; what cannot be opened does not end a build."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.builds import index_flusher
from kip33.builds.index_flusher import FILES_AT_ONCE, IndexFlusher
from kip33.errors import PublishError
from kip33.stores.own_files import is_flushing, set_flushing
from tests.builders.changing_archive import ChangingArchive, batches

FILES = 2 * FILES_AT_ONCE + 3


@pytest.fixture(autouse=True)
def _flushing() -> Iterator[None]:
    was_on = is_flushing()
    set_flushing(True)
    yield
    set_flushing(was_on)


def row(folder: Path, number: int, state: str = "written") -> dict[str, Any]:
    place = folder / f"{number:020d}.timeindex"
    return {"index_file": state, "index_uri": place.as_uri(), "time_index_bytes": 12}


def test_a_file_that_has_another_name_now_is_flushed_with_its_file_system(tmp_path: Path) -> None:
    flusher = IndexFlusher()
    for number in range(FILES):
        if number % 7:
            (tmp_path / f"{number:020d}.timeindex").write_bytes(bytes(12))
        flusher.add(row(tmp_path, number))
    flusher.flush()


def test_a_folder_that_cannot_be_flushed_ends_the_build(tmp_path: Path) -> None:
    flusher = IndexFlusher()
    for number in range(FILES):
        flusher.add(row(tmp_path / "none", number))
    with pytest.raises(PublishError, match="--no-fsync"):
        flusher.flush()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of files whose flush fails."""
    names: set[str] = set()
    flush = index_flusher.flush

    def flush_or_fail(path: str) -> None:
        if Path(path).name in names:
            raise OSError(errno.EIO, "Input/output error")
        flush(path)

    monkeypatch.setattr(index_flusher, "flush", flush_or_fail)
    return names


def test_a_file_of_ours_whose_flush_failed_is_deleted(tmp_path: Path, broken: set[str]) -> None:
    """Its bytes may be in memory only, where the next build would find them."""
    flusher = IndexFlusher()
    states = ["written", "kept", "written"]
    for number, state in enumerate(states):
        (tmp_path / f"{number:020d}.timeindex").write_bytes(bytes(12))
        (tmp_path / f"{number:020d}.index").write_bytes(bytes(8))
        flusher.add(row(tmp_path, number, state) | {"offset_index_bytes": 8})
    broken |= {f"{number:020d}.timeindex" for number in (0, 1)}
    with pytest.raises(PublishError, match="Input/output error"):
        flusher.flush()
    left = {f"{number:020d}.{kind}" for number in (1, 2) for kind in ("timeindex", "index")}
    assert {path.name for path in tmp_path.iterdir()} == left


def test_a_failure_while_files_are_added_is_the_same_error(
    tmp_path: Path, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_flusher, "MOST_WAITING", 0)
    flusher = IndexFlusher()
    broken.add(f"{0:020d}.timeindex")
    with pytest.raises(PublishError, match="--no-fsync"):
        for number in range(FILES):
            (tmp_path / f"{number:020d}.timeindex").write_bytes(bytes(12))
            flusher.add(row(tmp_path, number))


def test_files_that_cannot_be_opened_are_deleted_if_their_file_system_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        if path.endswith(".timeindex"):
            raise PermissionError(errno.EACCES, "Permission denied")

    def fail(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(index_flusher, "flush", refuse)
    monkeypatch.setattr(index_flusher, "flush_filesystems", fail)
    flusher = IndexFlusher()
    for number, state in enumerate(["written", "kept"]):
        (tmp_path / f"{number:020d}.timeindex").write_bytes(bytes(12))
        flusher.add(row(tmp_path, number, state))
    with pytest.raises(PublishError):
        flusher.flush()
    assert [path.name for path in tmp_path.iterdir()] == [f"{1:020d}.timeindex"]


def test_a_build_after_a_failed_flush_writes_the_file_again(
    tmp_path: Path, broken: set[str]
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("a-0"), batches(0, 10))
    broken.add(archive.index("a-0").name)
    with pytest.raises(PublishError):
        archive.build()
    assert not archive.index("a-0").exists()
    broken.clear()
    archive.build()
    assert archive.row("a-0")["index_file"] == "written"
    assert archive.index("a-0").stat().st_size == archive.row("a-0")["time_index_bytes"]
