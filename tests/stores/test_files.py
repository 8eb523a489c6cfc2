"""Publish files atomically, and read them."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kip33.errors import LocationError
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import entries_of, one_line, opened, read_whole, scanned, size_of
from kip33.stores.locations import Location
from kip33.stores.own_files import publish, remove_quietly
from tests.cases import each_case


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_publish_makes_directories_and_leaves_only_the_file(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "a" / "b" / "0.timeindex")
    publish(place, b"twelve bytes")
    assert names_in(tmp_path / "a" / "b") == ["0.timeindex"]
    assert Path(place.path).read_bytes() == b"twelve bytes"


def test_a_reader_of_the_old_file_keeps_it(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "x")
    publish(place, b"old")
    with Path(place.path).open("rb") as reader:
        publish(place, b"new")
        assert reader.read() == b"old"


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def full_after_one_byte(file: int, data: bytes) -> None:
    write(file, data[:1])
    full()


def lossy(file: int, data: bytes) -> int:
    """Keep one byte, and say that all were written."""
    write(file, data[:1])
    return len(data)


write = os.write
FAULTS = {
    "nothing can be opened": ("open", full, "No space"),
    "the disk is full": ("write", full_after_one_byte, "No space"),
    "the rename fails": ("replace", full, "No space"),
    "bytes got lost": ("write", lossy, "3 bytes were written, but the file has 1"),
}


@each_case(("call", "failing", "says"), FAULTS)
def test_a_failed_publish_leaves_the_old_file_alone(
    call: str, failing: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        place = Location.of(tmp_path / "x")
        publish(place, b"old")
        patch.setattr(os, call, failing)
        with pytest.raises(OSError, match=says):
            publish(place, b"new")
        patch.undo()
        assert names_in(tmp_path) == ["x"]
        assert Path(place.path).read_bytes() == b"old"


def test_a_disk_that_takes_one_byte_at_a_time_gets_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:1]))
    place = Location.of(tmp_path / "x")
    assert publish(place, b"twelve bytes").size_bytes == 12
    assert Path(place.path).read_bytes() == b"twelve bytes"


def test_read_whole(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "x")
    publish(place, bytes(100))
    assert read_whole(place, most_bytes=100) == bytes(100)
    with pytest.raises(OSError, match="100 bytes found, expected at most 99"):
        read_whole(place, most_bytes=99)
    with pytest.raises(FileNotFoundError):
        read_whole(Location.of(tmp_path / "nothing"), most_bytes=9)


def test_opened_reads_ranges(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    with opened(Location.of(tmp_path / "x")) as (read_into, size):
        buffer = bytearray(10)
        assert size == 100
        assert read_into(95, memoryview(buffer)) == 5
        assert buffer[:5] == bytes(range(95, 100))
        assert read_into(3, memoryview(buffer)[4:6]) == 2
        assert buffer[4:6] == bytes([3, 4])
        assert read_into(100, memoryview(buffer)) == 0


def test_size_of(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123")
    assert size_of(Location.of(tmp_path / "x")) == 3
    assert size_of(Location.of(tmp_path / "y")) is None
    assert size_of(Location.of(tmp_path)) is None


def test_remove_quietly(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    remove_quietly(Location.of(tmp_path / "x"))
    remove_quietly(Location.of(tmp_path / "x"))
    remove_quietly(Location.of(tmp_path))
    assert names_in(tmp_path) == []


def test_require_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    require_directory(Location.of(tmp_path), "SOURCE")
    with pytest.raises(LocationError, match="SOURCE does not exist"):
        require_directory(Location.of(tmp_path / "nothing"), "SOURCE")
    with pytest.raises(LocationError, match="SOURCE is a file, expected a directory"):
        require_directory(Location.of(tmp_path / "file"), "SOURCE")


REASONS = [
    (OSError(2, "No such file"), "No such file"),
    (OSError("two\n  lines"), "two lines"),
    (ValueError(), "ValueError"),
    (  # what pyarrow 26 raised; test_archived_objects.py gets it from a server
        OSError(
            "AWS Error [code 136] during GetObject operation: The operation is not valid for "
            "the object's storage class (Request ID: 6SO9RM)"
        ),
        "archived: restore it first (its storage class does not allow reads)",
    ),
]


@each_case(("error", "line"), REASONS)
def test_reason_is_one_line(error: Any, line: str) -> None:
    assert one_line(error) == line


def test_ranges_of_a_remote_file_go_into_any_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's buffers are of signed bytes, which Python copies into no others."""
    data = bytes(range(256))
    (tmp_path / "x").write_bytes(data)
    monkeypatch.setattr(Location, "filesystem", lambda self: fs.LocalFileSystem())
    with scanned(Location("hdfs://nowhere", f"{tmp_path}/x")) as (read_into, size_bytes, view_at):
        view = memoryview(bytearray(100))
        assert (size_bytes, read_into(100, view)) == (256, 100)
        assert bytes(view) == data[100:200]
        assert view_at is not None
        assert bytes(view_at(250)) == data[250:]


class _MadeMeanwhile:
    """A store on which a folder appears after Arrow could not open it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._local = folder, fs.LocalFileSystem()

    def get_file_info(self, asked: fs.FileSelector) -> Any:
        if not self._folder.exists():
            self._folder.mkdir()
            raise FileNotFoundError(2, f"Cannot list directory '{self._folder}'")
        return self._local.get_file_info(asked)


def test_a_folder_that_is_made_while_it_is_listed_has_no_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _MadeMeanwhile(tmp_path / "new")
    monkeypatch.setattr(Location, "filesystem", lambda _: store)
    assert entries_of(Location.of(tmp_path / "new")) == []
