"""What kip33's own files replace, and what is removed as the rest of a killed run."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip33.stores.locations import Location
from kip33.stores.own_files import (
    publish,
    publish_if_free,
    read_published,
    remove,
    remove_temporary,
    streamed_file,
    temporary_files_of,
    temporary_of,
)
from tests.cases import each_case


def dead_link(place: Path) -> None:
    place.symlink_to("nowhere")


def link_to_a_directory(place: Path) -> None:
    place.symlink_to(place.parent)


@each_case("make", (dead_link, link_to_a_directory, os.mkfifo, Path.mkdir))
def test_what_is_no_file_is_not_replaced(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "index")
    before = os.lstat(tmp_path / "index")
    with pytest.raises(OSError, match=r"expected a file or nothing|[Ii]s a directory"):
        publish(Location.of(tmp_path / "index"), b"ours")
    with (
        pytest.raises(Exception, match="there is no file"),
        streamed_file(Location.of(tmp_path / "index")) as file,
    ):
        file.write(b"ours")
    after = os.lstat(tmp_path / "index")
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_file_and_a_link_to_a_file_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("link", "link", "new"):
        publish(Location.of(tmp_path / name), b"ours")
        assert (tmp_path / name).read_bytes() == b"ours"
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"


def refuse_links(*_: object) -> None:
    raise PermissionError(errno.EPERM, "no hard links, as on exFAT")


@pytest.fixture(params=[True, False], ids=["with hard links", "without hard links"])
def may_link(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(os, "link", refuse_links)


@pytest.mark.usefixtures("may_link")
def test_of_writers_of_one_name_one_has_it_and_its_bytes_stay(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "commits/7.json")
    datas = [bytes([number]) * 10_000 for number in range(8)]
    for _ in range(20):
        with ThreadPoolExecutor(8) as threads:
            has_it = list(threads.map(partial(publish_if_free, place), datas))
        assert sum(has_it) == 1
        assert read_published(place, most_bytes=10_000) == datas[has_it.index(True)]
        assert [path.name for path in (tmp_path / "commits").iterdir()] == ["7.json"]
        remove(place)
        assert not list((tmp_path / "commits").iterdir())


@pytest.mark.usefixtures("may_link")
def test_a_writer_whose_success_was_not_answered_has_the_name(tmp_path: Path) -> None:
    """NFS asks again if an answer is lost, and is told that the name is taken: by this writer."""
    place = Location.of(tmp_path / "7.json")
    assert [publish_if_free(place, data) for data in (b"mine", b"mine", b"other")] == [
        *(True, True, False),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["7.json"]


@pytest.mark.parametrize("name", ["link", "mkdir", "rename"])
def test_a_new_file_that_cannot_get_its_name_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", refuse_links)
    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="Input/output error"):
        publish_if_free(Location.of(tmp_path / "7.json"), b"mine")
    assert list(tmp_path.iterdir()) == []


def test_only_names_that_a_killed_run_leaves_are_removed(tmp_path: Path) -> None:
    place, run = Location.of(tmp_path / "index"), "0123456789ab"
    with temporary_files_of(run):
        own = temporary_of(place)
    others = [f".other{own.name[6:]}", temporary_of(place).name]  # of another file, of another run
    foreign = [".index.backup.tmp", ".index.tmp", "index.tmp", *others]
    for name in (own.name, *foreign):
        (tmp_path / name).touch()
    with temporary_files_of(run):
        folder = temporary_of(place)
    Path(folder.path).mkdir()
    remove_temporary(Location.of(tmp_path), ["index"], "")  # of a run whose id is not known
    assert (tmp_path / own.name).exists()
    remove_temporary(Location.of(tmp_path), ["index"], run)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*foreign, folder.name])
