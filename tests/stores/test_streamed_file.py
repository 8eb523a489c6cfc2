"""`streamed_file`: a reader sees the complete file or none, on a disk and on a store."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from kip33.errors import PublishError
from kip33.stores import filesystems
from kip33.stores.filesystem_option import place_on
from kip33.stores.locations import Location
from kip33.stores.own_files import streamed_file

Listing = Callable[[], dict[str, bytes]]


@pytest.fixture(params=["disk", "store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Location, Listing]]:
    """Yield a place for a file, and what returns the files that are there with their bytes."""
    if request.param == "disk":
        folder = tmp_path / "new"
        found = Location.of(folder / "out.jsonl")
        yield found, lambda: {one.name: one.read_bytes() for one in folder.rglob("*")}
        return
    monkeypatch.setattr(filesystems._ByRoot, "given", {})
    store = fsspec.filesystem("memory")
    store.store.clear()
    files = lambda: {name.rpartition("/")[2]: store.cat(name) for name in store.find("/")}  # noqa: E731
    yield place_on("memory:///new/out.jsonl", None, store), files
    store.store.clear()


def test_a_file_appears_when_it_is_complete(place: tuple[Location, Listing]) -> None:
    with streamed_file(place[0]) as file:
        file.write(b"one\n")
        file.flush()
        assert "out.jsonl" not in place[1]()
        file.write(b"two\n")

    assert place[1]() == {"out.jsonl": b"one\ntwo\n"}


def test_nothing_is_left_of_a_file_that_failed(place: tuple[Location, Listing]) -> None:
    with pytest.raises(ZeroDivisionError), streamed_file(place[0]) as file:
        file.write(b"one\n")
        _ = 1 / 0

    assert place[1]() == {}


def test_an_error_of_the_store_is_one_line(place: tuple[Location, Listing]) -> None:
    with (
        pytest.raises(PublishError, match=r"out.jsonl: cannot be written: .*No space left"),
        streamed_file(place[0]),
    ):
        raise OSError(28, "No space left on device")

    assert place[1]() == {}


def test_what_the_machine_lacks_is_no_fault_of_the_file(place: tuple[Location, Listing]) -> None:
    with pytest.raises(OSError, match="Too many open files"), streamed_file(place[0]):
        raise OSError(errno.EMFILE, "Too many open files")  # by what is read in the block

    assert place[1]() == {}
