"""An index file that cannot be written or removed once: the next build repairs it."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.builds import index_files
from kip33.stores.locations import Location
from tests.builders.changing_archive import ChangingArchive, batches

A = "broker 1/a-0"


def failing_for(suffix: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, with a store that refuses files of this kind."""

    def refuse(place: Location, *arguments: Any, **options: Any) -> Any:
        if place.path.endswith(suffix):
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(place, *arguments, **options)

    return refuse


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """One segment that was built with both indexes, and has changed."""
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 9))
    archive.build(offset_index=True)
    archive.write(archive.log(A), batches(0, 30))
    return archive


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
def test_an_index_that_could_not_be_written_or_replaced_is_there_after_the_next_build(
    archive: ChangingArchive, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write(archive.log("broker 1/new-0"), batches(0, 9))
    with monkeypatch.context() as patched:
        patched.setattr(index_files, "publish", failing_for(suffix, index_files.publish))
        assert archive.build(offset_index=True).failed == 2
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)


def test_an_index_that_could_not_be_removed_is_removed_by_the_next_build(
    archive: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write(archive.log(A), batches(-9, 9, first_ms=archive.now_ms))
    with monkeypatch.context() as patched:
        patched.setattr(index_files, "remove", failing_for("index", index_files.remove))
        archive.build(offset_index=True)
    assert archive.row(A)["status"] == "invalid"
    archive.build(offset_index=True)
    assert not archive.index(A).exists()
    assert not archive.index(A).with_suffix(".index").exists()
