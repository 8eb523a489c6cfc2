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
from tests.builders.changing_archive import DAY_MS, ChangingArchive, KeptArchive, batches
from tests.long_forms import one_in, short_and_long

Change = Callable[[Path], object]
A, B = "broker 1/a-0", "broker 1/b-0"
LOG, LONG = batches(0, 40), batches(0, 8000)


def seven_batches(folder: Path, *, built: bool) -> ChangingArchive:
    """Return a segment that will be disturbed, and others that will not."""
    archive = ChangingArchive(folder)
    archive.write(archive.log(A), batches(0, 7))
    archive.write(archive.log(A, 200), batches(200, 5))
    archive.write(archive.log(B), batches(0, 5))
    if built:
        archive.build(offset_index=True)
    archive.write(archive.log(A), LOG)
    return archive


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    return KeptArchive(seven_batches(tmp_path_factory.mktemp("known"), built=True))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    return KeptArchive(seven_batches(tmp_path_factory.mktemp("new"), built=False))


def delete(log: Path) -> None:
    log.unlink()


def replace_by_rename(log: Path) -> None:
    log.with_name("incoming").write_bytes(batches(0, 25, first_ms=12_345))
    log.with_name("incoming").rename(log)


def replace_by(make: Callable[[Path], object]) -> Change:
    def replace(log: Path) -> None:
        log.unlink()
        make(log)

    return replace


RENAMED = "a-0.0123456789abcdef0123456789abcdef-delete"
CHANGES: dict[str, tuple[Change, str]] = {
    "deleted": (delete, "unreadable"),
    "cut between batches": (lambda log: log.write_bytes(LOG[: len(LOG) // 2]), "ok"),
    "cut inside a batch": (lambda log: log.write_bytes(LOG[:-30]), "truncated"),
    "another renamed over it": (replace_by_rename, "ok"),
    "cut to nothing": (lambda log: log.write_bytes(b""), "empty"),
    "grew": (lambda log: log.write_bytes(LOG + batches(80, 4)), "ok"),
    "grew by a torn batch": (
        lambda log: log.write_bytes(LOG + batches(80, 1)[:-10]),
        "truncated",
    ),
    "replaced, the same size": (
        lambda log: log.write_bytes(batches(0, 40, first_ms=12_345)),
        "ok",
    ),
    "a directory now": (replace_by(Path.mkdir), "unreadable"),
    "a pipe now": (replace_by(os.mkfifo), "unreadable"),
    "a dangling link now": (replace_by(lambda log: log.symlink_to("nowhere")), "unreadable"),
    "its directory went": (
        lambda log: log.parent.rename(log.parent.with_name(RENAMED)),
        "unreadable",
    ),
}


def build_with(archive: ChangingArchive, between: Callable[[], None], **how: Any) -> BuildSummary:
    """Build; call `between` when the listing is done and nothing is read yet."""
    plan = archive.plan(offset_index=True, **how)
    between()
    begun = begin_build(plan)
    result = build_bin(plan.build, begun.draft.staging, len(begun.copied_parts), plan.files)
    archive.now_ms += DAY_MS
    return commit_build(begun, [result])


@pytest.mark.parametrize("step", short_and_long(4, 1, "KIP33_STEP"))
@pytest.mark.parametrize("kept", one_in(2, ["known", "new"]))
@pytest.mark.parametrize("read", one_in(2, ["log", "tail"]))
def test_a_segment_that_changes_after_the_listing_is_a_row_and_the_next_build_is_undisturbed(
    kept: str,
    read: str,
    step: int,
    request: pytest.FixtureRequest,
    subtests: pytest.Subtests,
) -> None:
    segments: KeptArchive = request.getfixturevalue(kept)
    for name, (change, status) in [*CHANGES.items()][::step]:
        with subtests.test(name):
            archive = segments.again()
            log = archive.log(A)

            summary = build_with(archive, lambda: change(log), read=read)  # noqa: B023

            row = archive.row(A)
            assert row["status"] == status
            assert bool(row["error"]) is (status in ("unreadable", "truncated"))
            assert sum(summary.by_status.values()) == 3
            if status != "unreadable":
                assert row["size_bytes"] == log.stat().st_size, "of what was read"
            archive.build(offset_index=True, read=read)
            require_undisturbed(archive, read)


def require_undisturbed(archive: ChangingArchive, read: str) -> None:
    """Require what a first build gives, and that only unreadable logs are read again."""
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


WHILE_READ: dict[str, tuple[Change, str]] = {
    "cut to nothing": (cut_to(0), "unreadable"),
    "cut": (cut_to(len(LONG) // 2), "unreadable"),
    "appended to: the row is of what was there": (append, "ok"),
    "overwritten where it was not read yet": (overwrite_its_end, "truncated"),
    "another renamed over it: the row is of the first": (replace_by_rename, "ok"),
    "deleted: the row is of what was there": (delete, "ok"),
}


@pytest.mark.parametrize("step", short_and_long(3, 1, "KIP33_STEP"))
def test_a_segment_that_changes_while_it_is_read_is_a_row_and_read_again(
    tmp_path: Path, step: int, subtests: pytest.Subtests
) -> None:
    assert len(LONG) > SCAN_CHUNK_BYTES, "more than one read"
    for name, (change, status) in [*WHILE_READ.items()][::step]:
        with subtests.test(name):
            archive = ChangingArchive(tmp_path / name)
            archive.write(archive.log(A), LONG)
            archive.write(archive.log(B), batches(0, 5))

            with changed_while_read(change):
                archive.build(offset_index=True)

            row = archive.row(A)
            assert row["status"] == status
            if status == "unreadable":
                assert "shrank" in row["error"] or "bytes" in row["error"]
                assert not archive.index(A).exists()
            if status == "ok":
                assert row["size_bytes"] == len(LONG)
            assert archive.build(offset_index=True).indexed == archive.log(A).exists()
            assert archive.outcome() == archive.fresh(offset_index=True)
            assert archive.build(offset_index=True).indexed == 0
