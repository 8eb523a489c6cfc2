"""Builds in place: the files beside a broker's logs afterwards, and their owners."""

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip33 import read_arrow, verify_index
from kip33.builds.commit import warnings_of
from kip33.errors import CorruptSegmentError
from kip33.indexing.by_path import build_time_index
from kip33.rules.segment_notes import SegmentNote
from tests.builders.changing_archive import INTERVAL, ChangingArchive, batches
from tests.builders.segment_builder import Record, v2_batch

P = "orders-0"
SOUND, MIDDLE, ACTIVE = 0, 40, 80
REMOVE_IT = "stop the broker, remove the .index, start the broker"
INVALID = v2_batch(MIDDLE - 1, [Record(1)])


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Return a partition of three segments without index files."""
    archive = ChangingArchive(tmp_path, in_place=True)
    for base_offset in (SOUND, MIDDLE, ACTIVE):
        archive.write(archive.log(P, base_offset), batches(base_offset, 20))
    return archive


def damage(archive: ChangingArchive) -> int:
    """Change one byte in the middle of the middle segment; return its valid bytes."""
    log = archive.log(P, MIDDLE)
    data = bytearray(log.read_bytes())
    data[len(data) // 2 - 3] ^= 1
    archive.write(log, bytes(data))
    return build_time_index(str(log), index_interval_bytes=INTERVAL).valid_bytes


def offset_index(archive: ChangingArchive, base_offset: int) -> Path:
    return archive.index(P, base_offset).with_suffix(".index")


def offset_indexes(archive: ChangingArchive) -> set[int]:
    return {int(path.stem) for path in archive.source.rglob("*.index")}


ZEROS = 5000


def test_zeros_after_the_last_batch_are_no_damage(
    archive: ChangingArchive, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """In the last segment, and in an earlier one if the next begins at its end. No `.index` is
    put beside such a log: it would keep a broker from cutting the zeros."""
    cases = {
        "the last segment": (ACTIVE, batches(ACTIVE, 20), "ok"),
        "the next one begins at its end": (MIDDLE, batches(MIDDLE, 20), "ok"),
        "batches are missing before the next one": (MIDDLE, batches(MIDDLE, 10), "truncated"),
        "the last segment has no batch yet": (ACTIVE, b"", "empty"),
        "a batch follows the zeros": (ACTIVE, batches(ACTIVE, 3) + bytes(ZEROS), "truncated"),
    }
    sound = {base: archive.log(P, base).read_bytes() for base in (SOUND, MIDDLE, ACTIVE)}
    for name, (base, data, status) in cases.items():
        with subtests.test(name):
            for each, log in sound.items():
                archive.write(archive.log(P, each), log)
            after = batches(ACTIVE, 1) if name == "a batch follows the zeros" else b""
            archive.write(archive.log(P, base), data + bytes(ZEROS) + after)
            archive.build(offset_index=True)
            row = archive.row(P, base)
            assert row["status"] == status, row["error"]
            assert "zeros" in row["error"]
            assert base not in offset_indexes(archive)
            read = partial(read_arrow, str(archive.source), columns=["offset"])
            if status == "truncated":
                with pytest.raises(CorruptSegmentError, match="zeros"):
                    list(read(on_error="fail"))
            else:
                assert row["valid_bytes"] == len(data)
                list(read(on_error="fail"))
            verdict = verified(archive, base)
            assert verdict["log_status"] == status
            assert "zeros" in verdict["log_error"]


def verified(archive: ChangingArchive, base_offset: int) -> dict[str, Any]:
    """Return the verdict on a segment, of `kip33 verify` of the whole tree."""
    rows = verify_index(str(archive.source), str(archive.source)).to_pylist()
    [found] = [row for row in rows if row["log_uri"] == archive.log(P, base_offset).as_uri()]
    return found


def test_a_damaged_log_gets_no_offset_index_and_its_row_says_why(archive: ChangingArchive) -> None:
    valid_bytes = damage(archive)
    summary = archive.build(offset_index=True)
    assert offset_indexes(archive) == {SOUND, ACTIVE}
    row = archive.row(P, MIDDLE)
    assert (row["status"], row["index_file"], row["offset_index_bytes"]) == (
        "truncated",
        "written",
        None,
    )
    assert f"a starting broker cuts this log to {valid_bytes} bytes" in archive.remarks(P, MIDDLE)
    assert (summary.hidden_from_recovery, list(warnings_of(summary))) == (0, [])
    assert archive.build(offset_index=True).reused == 3

    archive.catalog, archive.index_dir = archive.folder / "another", archive.folder / "indexes"
    assert archive.build(offset_index=True).hidden_from_recovery == 0
    with_index = {int(path.stem) for path in archive.index_dir.rglob("*.index")}
    assert with_index == {SOUND, MIDDLE, ACTIVE}, "where no broker reads it nothing is withheld"


def test_there_is_no_new_offset_index_without_a_time_index(archive: ChangingArchive) -> None:
    """A folder has the name of a `.timeindex`, which therefore cannot be written."""
    archive.index(P, MIDDLE).mkdir()
    archive.build(offset_index=True)
    assert offset_indexes(archive) == {SOUND, ACTIVE}
    row = archive.row(P, MIDDLE)
    assert (row["status"], row["index_file"], row["offset_index_bytes"]) == ("ok", None, None)
    assert SegmentNote.LEFT_TO_BROKER in row["notes"]

    archive.index(P, MIDDLE).rmdir()
    archive.build(offset_index=True)
    assert offset_indexes(archive) == {SOUND, MIDDLE, ACTIVE}
    assert archive.row(P, MIDDLE)["index_file"] == "written"


@pytest.mark.parametrize(
    ("foreign", "how"),
    [(b"", {"only_damaged": True}), (bytes(12), {})],
    ids=["empty, only damaged", "wrong"],
)
def test_there_is_no_new_offset_index_beside_a_wrong_time_index_that_is_kept(
    archive: ChangingArchive, foreign: bytes, how: dict[str, Any]
) -> None:
    """With an `.index` beside it a broker would use the wrong `.timeindex`."""
    archive.index(P, SOUND).write_bytes(foreign)
    archive.build(offset_index=True, **how)
    assert archive.index(P, SOUND).read_bytes() == foreign
    assert offset_indexes(archive) == {MIDDLE, ACTIVE}
    row = archive.row(P, SOUND)
    assert (row["status"], row["index_file"], row["offset_index_bytes"]) == ("ok", "kept", None)
    assert SegmentNote.LEFT_TO_BROKER in row["notes"]
    if not how:
        assert archive.build(offset_index=True).reused == 3

    archive.build(offset_index=True, overwrite=True, **how)
    assert offset_indexes(archive) == {SOUND, MIDDLE, ACTIVE}
    assert archive.row(P, SOUND)["index_file"] == "written"


def test_a_new_offset_index_goes_beside_a_right_time_index_that_is_kept(
    archive: ChangingArchive,
) -> None:
    """It has the bytes that this build would write, or verify calls it good."""
    log = archive.log(P, SOUND)
    built = build_time_index(str(log), index_interval_bytes=INTERVAL)
    archive.index(P, SOUND).write_bytes(built.time_index.to_bytes())
    other = build_time_index(str(archive.log(P, MIDDLE)), index_interval_bytes=INTERVAL // 2)
    archive.index(P, MIDDLE).write_bytes(other.time_index.to_bytes())
    archive.build(offset_index=True, only_damaged=True)
    assert offset_indexes(archive) == {SOUND, MIDDLE, ACTIVE}
    assert [archive.row(P, base)["index_file"] for base in (SOUND, MIDDLE)] == ["kept", "kept"]


WAYS: list[dict[str, bool]] = [
    {"offset_index": True},
    {},
    {"offset_index": True, "only_damaged": True},
    {"offset_index": True, "only_damaged": True, "overwrite": True},
]


def test_an_offset_index_that_hides_damage_stays_and_is_named(
    archive: ChangingArchive, subtests: pytest.Subtests
) -> None:
    hidden = offset_index(archive, MIDDLE)
    built = build_time_index(str(archive.log(P, MIDDLE)), index_interval_bytes=INTERVAL)
    assert built.offset_index_data
    hidden.write_bytes(built.offset_index_data)
    valid_bytes = damage(archive)
    for how in WAYS:
        with subtests.test(str(how)):
            summary = archive.build(**how)
            assert hidden.read_bytes() == built.offset_index_data
            error = archive.remarks(P, MIDDLE)
            assert "the .index keeps a broker from cutting" in error
            assert f"its {valid_bytes} valid bytes: {REMOVE_IT}" in error
            assert summary.hidden_from_recovery == 1
            (warning,) = warnings_of(summary)
            assert warning.startswith("1 damaged log with an .index that keeps a broker from")
    hidden.unlink()
    assert archive.build(**WAYS[0]).hidden_from_recovery == 0, "the removed file was noticed"


def test_our_offset_index_is_removed_if_its_log_is_damaged(
    archive: ChangingArchive,
) -> None:
    archive.build(offset_index=True)
    assert offset_indexes(archive) == {SOUND, MIDDLE, ACTIVE}
    damage(archive)
    summary = archive.build(offset_index=True)
    assert offset_indexes(archive) == {SOUND, ACTIVE}
    assert summary.hidden_from_recovery == 0
    assert archive.row(P, MIDDLE)["index_file"] == "written"


def test_a_log_that_recovery_refuses_keeps_the_offset_index_that_is_there(
    archive: ChangingArchive,
) -> None:
    archive.build(offset_index=True)
    before = offset_index(archive, MIDDLE).read_bytes()
    archive.write(archive.log(P, MIDDLE), INVALID)
    summary = archive.build(offset_index=True)
    assert offset_index(archive, MIDDLE).read_bytes() == before
    assert "stays: without it a broker may not start" in archive.remarks(P, MIDDLE)
    assert summary.may_not_start == 1

    offset_index(archive, MIDDLE).unlink()
    summary = archive.build()
    error = archive.remarks(P, MIDDLE)
    assert "the .index is missing, and a broker may not start because it cannot recover" in error
    assert "restore the log from a replica or a backup" in error
    assert summary.may_not_start == 1
    (warning,) = warnings_of(summary)
    assert "--fail-on invalid makes this exit 3" in warning


def test_an_index_size_that_is_too_small_for_recovery_is_named(archive: ChangingArchive) -> None:
    """With the topic's own segment.index.bytes no index is left, and a broker does not start."""
    archive.build(offset_index=True, segment_index_bytes=36)
    row = archive.row(P, MIDDLE)
    assert row["status"] == "invalid"
    assert (
        "give the topic a larger segment.index.bytes, or build again with a larger"
        in archive.remarks(P, MIDDLE)
    )
    assert archive.build(offset_index=True).by_status == {"ok": 3}, "with the default it can"


KAFKA, OTHER = (4711, 4712), (4721, 4722)
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


def owned(path: Path, owner: tuple[int, int], mode: int) -> None:
    os.chown(path, *owner)
    path.chmod(mode)


def owner_of(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid, status.st_mode & 0o777


@only_root
def test_index_files_belong_to_the_owner_of_their_log_or_keep_their_own(
    archive: ChangingArchive,
) -> None:
    """A new file is given to the log's owner, also if an earlier build left it to root."""
    archive.index(P, MIDDLE).write_bytes(b"123456789012")
    owned(archive.index(P, MIDDLE), OTHER, 0o604)
    archive.build(only_damaged=True)
    owned(archive.log(P, SOUND), KAFKA, 0o640)
    before = os.umask(0o077)
    try:
        archive.build(offset_index=True, overwrite=True, full=True)
    finally:
        os.umask(before)
    assert owner_of(offset_index(archive, SOUND)) == (*KAFKA, 0o640)
    assert owner_of(archive.index(P, SOUND))[:2] == KAFKA
    assert archive.index(P, MIDDLE).read_bytes() != b"123456789012"
    assert owner_of(archive.index(P, MIDDLE)) == (*OTHER, 0o604), "a replaced one keeps its owner"

    archive.index_dir, archive.catalog = archive.folder / "indexes", archive.folder / "another"
    archive.build()
    assert owner_of(archive.index(P, SOUND))[:2] == (0, 0), "a folder of our own"


@only_root
def test_an_owner_that_cannot_be_set_is_reported(
    archive: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a user who may write there, but not give files away."""
    owned(archive.log(P, SOUND), KAFKA, 0o644)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    summary = archive.build(offset_index=True)
    error = archive.remarks(P, SOUND)
    assert "cannot be given the owner 4711:4712, mode 0644 (Operation not permitted)" in error
    assert "the file has 0:0, mode 0644" in error
    rows: list[Any] = [row["notes"] for row in archive.rows() if row["base_offset"] != SOUND]
    assert rows == [None, None]
    assert summary.owner_not_given == 1
    [warning] = warnings_of(summary)
    assert warning.startswith("1 segment with index files that cannot be given")
