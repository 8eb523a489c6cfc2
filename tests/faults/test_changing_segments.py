"""Segments that change between the listing and the reading, and while they are read.

Each is a row of a committed snapshot that states the fault. The next undisturbed build gives the
same rows and the same index files as if there had been no disturbance.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kip33.indexing.segment
from kip33.builds.commit import BuildSummary, begin_build, commit_build
from kip33.builds.task import build_bin
from kip33.formats.scan import SCAN_CHUNK_BYTES
from kip33.stores.files import Scanned, opened
from kip33.stores.locations import Location
from tests.builders.changing_archive import DAY_MS, ChangingArchive, batches
from tests.long_forms import one_in

A, B = "broker 1/a-0", "broker 1/b-0"
LOG, LONG = batches(0, 40), batches(0, 8000)


@pytest.fixture(params=["new to the catalog", "known to the catalog"])
def archive(tmp_path: Path, request: pytest.FixtureRequest) -> ChangingArchive:
    """One segment that will be disturbed, and others that will not."""
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 7))
    archive.write(archive.log(A, 200), batches(200, 5))
    archive.write(archive.log(B), batches(0, 5))
    if request.param == "known to the catalog":
        archive.build(offset_index=True)
    archive.write(archive.log(A), LOG)
    return archive


def delete(log: Path) -> None:
    log.unlink()


def truncate_between_batches(log: Path) -> None:
    log.write_bytes(LOG[: len(LOG) // 2])


def truncate_inside_a_batch(log: Path) -> None:
    log.write_bytes(LOG[:-30])


def truncate_to_nothing(log: Path) -> None:
    log.write_bytes(b"")


def grow(log: Path) -> None:
    log.write_bytes(LOG + batches(80, 4))


def grow_by_a_torn_batch(log: Path) -> None:
    log.write_bytes(LOG + batches(80, 1)[:-10])


def replace_the_same_size(log: Path) -> None:
    log.write_bytes(batches(0, 40, first_ms=12_345))


def replace_by_rename(log: Path) -> None:
    other = log.with_name("incoming")
    other.write_bytes(batches(0, 25, first_ms=12_345))
    other.rename(log)


def replace_by_another_kind(log: Path) -> None:
    log.unlink()
    log.mkdir()


def replace_by_a_pipe(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def replace_by_a_dangling_link(log: Path) -> None:
    log.unlink()
    log.symlink_to("nowhere")


def make_the_directory_go(log: Path) -> None:
    log.parent.rename(log.parent.with_name("a-0.0123456789abcdef0123456789abcdef-delete"))


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (delete, "unreadable"),
    (truncate_between_batches, "ok"),
    (truncate_inside_a_batch, "truncated"),
    (truncate_to_nothing, "empty"),
    (grow, "ok"),
    (grow_by_a_torn_batch, "truncated"),
    (replace_the_same_size, "ok"),
    (replace_by_rename, "ok"),
    (replace_by_another_kind, "unreadable"),
    (replace_by_a_pipe, "unreadable"),
    (replace_by_a_dangling_link, "unreadable"),
    (make_the_directory_go, "unreadable"),
]


def build_with(archive: ChangingArchive, between: Callable[[], None], **how: Any) -> BuildSummary:
    """Build; call `between` when the listing is done and nothing is read yet."""
    plan = archive.plan(offset_index=True, **how)
    between()
    begun = begin_build(plan)
    result = build_bin(plan.build, begun.draft.staging, len(begun.copied_parts), plan.files)
    archive.now_ms += DAY_MS
    return commit_build(begun, [result])


def restore(archive: ChangingArchive, log: Path) -> None:
    """Undo whatever was done: the log is as it was to begin with, its time as well.

    But for one that was replaced by another of its size: if that is undone to the millisecond,
    nothing that a listing tells shows that the bytes between were others.
    """
    replaced = log.is_file() and log.stat().st_size == len(LOG)
    renamed = log.parent.with_name("a-0.0123456789abcdef0123456789abcdef-delete")
    if renamed.exists():
        renamed.rename(log.parent)
    if log.is_dir() and not log.is_symlink():
        log.rmdir()
    else:
        log.unlink(missing_ok=True)
    archive.write(log, LOG, age_ms=DAY_MS + DAY_MS // 2 - replaced)


@pytest.mark.parametrize(
    ("change", "status"), CHANGES, ids=[change.__name__ for change, _ in CHANGES]
)
@pytest.mark.parametrize("afterwards", one_in(2, ["it stays so", "it is as before"]))
@pytest.mark.parametrize("read", one_in(2, ["log", "tail"]))
def test_a_segment_that_changes_after_the_listing_is_a_row_and_the_next_build_is_undisturbed(
    archive: ChangingArchive,
    change: Callable[[Path], None],
    status: str,
    afterwards: str,
    read: str,
) -> None:
    log = archive.log(A)

    summary = build_with(archive, lambda: change(log), read=read)

    row = archive.row(A)
    assert row["status"] == status
    assert bool(row["error"]) is (status in ("unreadable", "truncated"))
    assert sum(summary.by_status.values()) == 3
    if status != "unreadable":
        assert row["size_bytes"] == log.stat().st_size, "of what was read"

    if afterwards == "it is as before":
        restore(archive, log)
    archive.build(offset_index=True, read=read)

    before = archive.outcome()
    unreadable = [row for row in before.rows if row["status"] == "unreadable"]
    if not unreadable:
        assert before == archive.fresh(offset_index=True)
    assert archive.build(offset_index=True, read=read).indexed == len(unreadable)
    assert archive.outcome() == before


@contextmanager
def changed_while_read(change: Callable[[Path], None]) -> Iterator[None]:
    """Call `change` on a log when its first bytes have been read."""

    @contextmanager
    def opened_and_changed(log: Location) -> Iterator[Scanned]:
        with opened(log) as (read_into, size):
            pending = [Path(log.path)] if log.path.endswith(f"{A}/{0:020d}.log") else []

            def read_and_change(position: int, view: memoryview) -> int:
                count = read_into(position, view)
                if pending:
                    change(pending.pop())
                return count

            yield Scanned(read_and_change, size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kip33.indexing.segment, "scanned", opened_and_changed)
        yield


def cut_to(count: int) -> Callable[[Path], None]:
    def cut(log: Path) -> None:
        os.truncate(log, count)

    return cut


def append(log: Path) -> None:
    with log.open("ab") as file:
        file.write(batches(8000, 10))


def overwrite_its_end(log: Path) -> None:
    with log.open("r+b") as file:
        file.seek(len(LONG) - 1000)
        file.write(bytes(1000))


def replace_whole(log: Path) -> None:
    log.with_name("incoming").write_bytes(batches(0, 10))
    log.with_name("incoming").rename(log)


WHILE_READ = [
    pytest.param(cut_to(0), "unreadable", id="cut to nothing"),
    pytest.param(cut_to(len(LONG) // 2), "unreadable", id="cut"),
    pytest.param(append, "ok", id="appended to: the row is of what was there"),
    pytest.param(overwrite_its_end, "truncated", id="overwritten where it was not read yet"),
    pytest.param(replace_whole, "ok", id="another renamed over it: the row is of the first"),
    pytest.param(delete, "ok", id="deleted: the row is of what was there"),
]


@pytest.mark.parametrize(("change", "status"), WHILE_READ)
def test_a_segment_that_changes_while_it_is_read_is_a_row_and_read_again(
    tmp_path: Path, change: Callable[[Path], None], status: str
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), LONG)
    archive.write(archive.log(B), batches(0, 5))
    assert len(LONG) > SCAN_CHUNK_BYTES, "more than one read"

    with changed_while_read(change):
        archive.build(offset_index=True)

    row = archive.row(A)
    assert row["status"] == status
    if status == "unreadable":
        assert "shrank" in row["error"] or "bytes" in row["error"]
        assert not archive.index(A).exists()
    if status == "ok":
        assert row["size_bytes"] == len(LONG)

    summary = archive.build(offset_index=True)

    assert summary.indexed == (1 if archive.log(A).exists() else 0)
    assert archive.outcome() == archive.fresh(offset_index=True)
    assert archive.build(offset_index=True).indexed == 0


def test_a_changed_log_keeps_no_outdated_index_of_ours(
    archive: ChangingArchive,
) -> None:
    """Ours, of a log that turned bad after the listing: withdrawn, not left behind."""
    log = archive.log(A)
    build_with(archive, lambda: None)
    bad = batches(-20, 3, first_ms=archive.now_ms)
    archive.write(log, bad)
    assert archive.index(A).exists()
    archive.build(offset_index=True)
    assert archive.row(A)["status"] == "invalid"
    assert not archive.index(A).exists()
    assert not archive.index(A).with_suffix(".index").exists()
