"""Index files of a group of segments: looked at, written, and flushed in lists."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.errors import PublishError
from kip33.formats.index_kinds import IndexKind
from kip33.indexing import published_files
from kip33.indexing.published_files import (
    FILES_AT_ONCE,
    LEAST_LISTED,
    IndexPublisher,
    PublishedFile,
    PublishedFiles,
    SegmentFiles,
    TargetFile,
)
from kip33.rules.publication import Wanted
from kip33.rules.segment_notes import SegmentNote
from kip33.stores.locations import Location
from kip33.stores.own_files import is_flushing, set_flushing
from tests.builders.changing_archive import ChangingArchive, batches

FILES = 2 * FILES_AT_ONCE + 3
DATA = {IndexKind.TIME: bytes(12), IndexKind.OFFSET: bytes(8)}


@pytest.fixture(autouse=True)
def _flushing() -> Iterator[None]:
    was_on = is_flushing()
    set_flushing(True)
    yield
    set_flushing(was_on)


def place(folder: Path, number: int, kind: IndexKind) -> Path:
    return folder / f"{number:020d}{kind.suffix}"


def files_of(folder: Path, number: int, *kinds: IndexKind, new_index: bool = False) -> SegmentFiles:
    """Return the files of a segment as a build wants them, none of which it has seen."""
    log = Location.of(folder / f"{number:020d}.log")
    files = {
        kind: TargetFile(kind, Location.of(place(folder, number, kind)), Wanted.BYTES, data)
        for kind, data in DATA.items()
        if kind in (kinds or DATA)
    }
    index = files.pop(IndexKind.OFFSET) if new_index else None
    return SegmentFiles(log, tuple(files.values()), new_index=index)


def publisher(folder: Path, *, in_place: bool = False) -> IndexPublisher:
    return IndexPublisher(Location.of(folder), in_place=in_place)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of files whose flush fails."""
    names: set[str] = set()
    flush = published_files.flush

    def flush_or_fail(path: str) -> None:
        if Path(path).name in names:
            raise OSError(errno.EIO, "Input/output error")
        flush(path)

    monkeypatch.setattr(published_files, "flush", flush_or_fail)
    return names


def test_a_file_that_has_another_name_when_it_is_flushed_is_flushed_with_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_files, "FILES_AT_ONCE", 2 * FILES)
    publish = publisher(tmp_path)
    publish.publish([files_of(tmp_path, number) for number in range(FILES)])
    for number in range(0, FILES, 7):
        place(tmp_path, number, IndexKind.TIME).unlink()
    publish.finish()


def test_a_folder_that_cannot_be_flushed_ends_the_build(tmp_path: Path, broken: set[str]) -> None:
    broken.add(tmp_path.name)
    publish = publisher(tmp_path)
    publish.publish([files_of(tmp_path, number) for number in range(FILES)])
    with pytest.raises(PublishError, match="cannot be flushed to the disk"):
        publish.finish()


def test_a_file_of_ours_whose_flush_failed_is_deleted(tmp_path: Path, broken: set[str]) -> None:
    """Its bytes may be in memory only, where the next build would find them."""
    another = place(tmp_path, 1, IndexKind.TIME)
    another.write_bytes(b"of another")
    group = [files_of(tmp_path, number) for number in range(3)]
    first, *rest = group[1].files
    group[1] = group[1]._replace(files=(first._replace(seen=(10, 1)), *rest))
    broken |= {place(tmp_path, number, IndexKind.TIME).name for number in (0, 1)}
    publish = publisher(tmp_path)
    publish.publish(group)
    with pytest.raises(PublishError, match="Input/output error"):
        publish.finish()
    left = {place(tmp_path, number, kind).name for number in (1, 2) for kind in DATA}
    assert {path.name for path in tmp_path.iterdir()} == left


def test_a_failure_while_files_are_added_is_the_same_error(
    tmp_path: Path, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_files, "MOST_WAITING", 0)
    broken.add(place(tmp_path, 0, IndexKind.TIME).name)
    with pytest.raises(PublishError, match="cannot be flushed to the disk"):
        publisher(tmp_path).publish([files_of(tmp_path, number) for number in range(FILES)])


def test_files_that_cannot_be_opened_are_deleted_if_their_file_system_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        if path.endswith(".timeindex"):
            raise PermissionError(errno.EACCES, "Permission denied")

    def fail(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(published_files, "flush", refuse)
    monkeypatch.setattr(published_files, "flush_filesystems", fail)
    publish = publisher(tmp_path)
    publish.publish([files_of(tmp_path, 0, IndexKind.TIME)])
    with pytest.raises(PublishError):
        publish.finish()
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_build_after_a_failed_flush_writes_the_file_again(
    tmp_path: Path, broken: set[str]
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("a-0"), batches(0, 10))
    broken.add(archive.index("a-0").name)
    with pytest.raises(PublishError, match="--no-fsync"):
        archive.build()
    assert not archive.index("a-0").exists()
    broken.clear()
    archive.build()
    assert archive.row("a-0")["index_file"] == "written"
    assert archive.index("a-0").stat().st_size == archive.row("a-0")["time_index_bytes"]


def test_a_new_index_is_written_after_what_is_beside_it_is_on_the_disk(
    tmp_path: Path, broken: set[str]
) -> None:
    broken.add(place(tmp_path, 1, IndexKind.TIME).name)
    group = [files_of(tmp_path, number, new_index=True) for number in range(2)]
    for one in group:
        Path(one.log.path).touch()
    with pytest.raises(PublishError):
        publisher(tmp_path, in_place=True).publish(group)
    assert not list(tmp_path.glob("*.index"))


def published(folder: Path, file: TargetFile, *, in_place: bool = False) -> PublishedFiles:
    log = Location.of(folder / "0.log")
    [done] = publisher(folder, in_place=in_place).publish([SegmentFiles(log, (file,))])
    return done


def target(folder: Path, kind: IndexKind, wanted: Wanted, **how: Any) -> TargetFile:
    return TargetFile(kind, Location.of(place(folder, 0, kind)), wanted, **how)


@pytest.mark.parametrize("wanted", [Wanted.CUT, Wanted.REFUSED, Wanted.SPLIT])
def test_an_index_that_a_broker_writes_meanwhile_beside_a_damaged_log_stays_its_own(
    wanted: Wanted, tmp_path: Path
) -> None:
    file = target(tmp_path, IndexKind.OFFSET, wanted)
    Path(file.place.path).write_bytes(b"brokers!")
    assert published(tmp_path, file, in_place=True).state == "kept"
    assert Path(file.place.path).read_bytes() == b"brokers!"


def test_an_index_that_is_left_to_the_broker_is_not_recorded(tmp_path: Path) -> None:
    file = target(tmp_path, IndexKind.OFFSET, Wanted.LEFT)
    Path(file.place.path).write_bytes(b"brokers!")
    done = published(tmp_path, file, in_place=True)
    assert (done.files, done.states) == ({}, [])
    assert done.notes == [SegmentNote.LEFT_TO_BROKER]


@pytest.mark.parametrize("wanted", [Wanted.EMPTY, Wanted.NONE])
def test_our_file_that_cannot_be_removed_stays_ours_and_is_tried_again(
    wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Location) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(published_files, "remove", refuse)
    data = b"" if wanted is Wanted.EMPTY else None
    file = target(tmp_path, IndexKind.TRANSACTION, wanted, data=data, is_ours=True)
    Path(file.place.path).write_bytes(bytes(34))
    done = published(tmp_path, file)
    assert done.state == "stale"
    assert "cannot be removed, though the log gives none" in done.problems[0]


def test_a_link_that_leads_nowhere_is_a_problem_only_where_a_file_would_be_written(
    tmp_path: Path,
) -> None:
    listed = target(tmp_path, IndexKind.TIME, Wanted.BYTES, data=b"", is_ours=True, seen=(12, 1))
    withheld = target(tmp_path, IndexKind.OFFSET, Wanted.CUT)
    for file in (listed, withheld):
        Path(file.place.path).symlink_to("nowhere")
    done = published(tmp_path, listed)
    assert (done.state, done.written) == ("stale", 0)
    assert "a link that leads to no file is there" in done.problems[0]
    assert Path(listed.place.path).is_symlink()
    done = published(tmp_path, withheld, in_place=True)
    assert (done.problems, done.notes) == ([], [SegmentNote.BROKER_CUTS])


def test_anothers_file_that_cannot_be_read_once_never_becomes_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(published_files, "read_whole", refuse)
    ours = target(tmp_path, IndexKind.TIME, Wanted.BYTES, data=bytes(12))
    theirs = target(tmp_path, IndexKind.OFFSET, Wanted.BYTES, data=bytes(8), seen=(8, 1))
    Path(theirs.place.path).write_bytes(b"brokers!")
    log = Location.of(tmp_path / "0.log")
    [done] = publisher(tmp_path).publish([SegmentFiles(log, (ours, theirs))])
    assert (done.state, len(done.problems)) == (None, 1), "not stale, which would be ours"


def put(folder: Path, number: int, data: bytes | None) -> tuple[SegmentFiles, PublishedFiles]:
    """Return a segment whose file of 12 bytes was put, and not read back, as into a bucket."""
    if data is not None:
        place(folder, number, IndexKind.TIME).write_bytes(data)
    done = PublishedFiles({IndexKind.TIME: PublishedFile(12, None, True, 0)})
    return files_of(folder, number, IndexKind.TIME), done


@pytest.mark.parametrize("segments", [1, LEAST_LISTED])
def test_files_that_were_put_get_their_times_from_a_listing(segments: int, tmp_path: Path) -> None:
    """A local folder has the same listing as a bucket, whose requests integration tests count."""
    files, done = zip(
        *(put(tmp_path, number, bytes(12)) for number in range(segments)), strict=True
    )
    published_files._look_up_times(files, done)
    for number, one in enumerate(done):
        path = place(tmp_path, number, IndexKind.TIME)
        assert one.files[IndexKind.TIME].modified_ms == path.stat().st_mtime_ns // 1_000_000


@pytest.mark.parametrize(("data", "found"), [(b"inde", 4), (None, None)])
def test_a_file_that_a_store_did_not_keep_whole_is_an_error_and_tried_again(
    data: bytes | None, found: int | None, tmp_path: Path
) -> None:
    each = [put(tmp_path, 0, bytes(12)), put(tmp_path, 1, data), put(tmp_path, 2, bytes(12))]
    files, done = zip(*each, strict=True)
    published_files._look_up_times(files, done)
    assert [one.state for one in done] == [None, "stale", None]
    uri = files[1].files[0].place.uri
    assert done[1].problems == [
        f"{uri}: cannot be written: {uri}: 12 bytes were written, but the file has {found} bytes"
    ]
    assert done[1].files == {}
