"""Orphans, our index files whose logs no longer exist: listed, and reused when a log returns."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.builds import orphans as module
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import Draft
from kip33.catalog.orphan_list import read_orphans
from kip33.catalog.pruning import prune
from kip33.errors import FileReadError, UnreadableCatalogError
from kip33.retention.apply import apply_plan
from kip33.retention.evaluation import RetentionRequest
from kip33.retention.make_plan import plan_retention
from kip33.retention.plan import RetentionPlan
from kip33.retention.undo import undo_plan
from kip33.rules.policies import Policies
from kip33.rules.segment_notes import SegmentNote
from kip33.stores.locations import Location
from tests.builders.changing_archive import DAY_MS, ChangingArchive, KeptArchive, batches
from tests.faults.builds import carry_out
from tests.faults.privileges import as_any_owner, shut, why_not

A, B = "broker 1/a-0", "broker 1/b-0"
FOREIGN = b"\0" * 24


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    archive = ChangingArchive(tmp_path_factory.mktemp("odd % ü #"))
    for partition in (A, B):
        for base_offset in (0, 20):
            archive.write(archive.log(partition, base_offset), batches(base_offset, 10))
    archive.build(offset_index=True)
    return KeptArchive(archive)


@pytest.fixture
def archive(built: KeptArchive) -> ChangingArchive:
    return built.again()


def orphans(archive: ChangingArchive) -> list[dict[str, Any]]:
    catalog = Catalog.at(str(archive.catalog))
    table, problem = read_orphans(catalog, catalog.require_newest())
    assert problem is None
    return sorted(table.to_pylist(), key=lambda row: row["index_uri"])


def orphaned_files(archive: ChangingArchive) -> list[str]:
    root = archive.index_root.as_uri() + "/"
    return [row["index_uri"].removeprefix(root) for row in orphans(archive)]


def names_of(*logs: str) -> list[str]:
    return sorted(f"{log}.{kind}" for log in logs for kind in ("index", "timeindex"))


def moved_to(trash: Location, archive: ChangingArchive) -> RetentionPlan:
    """Return a plan that was applied."""
    catalog = Catalog.at(str(archive.catalog))
    policies = Policies({"defaults": {"cleanup.policy": "delete", "retention.ms": "1d"}})
    request = RetentionRequest(policies, archive.now_ms)
    plan = plan_retention(catalog, catalog.require_newest(), request, archive.now_ms)
    apply_plan(plan, clock=lambda: archive.now_ms, trash=trash)
    return plan


def test_the_index_files_that_an_undo_puts_back_are_ours(
    archive: ChangingArchive, tmp_path: Path
) -> None:
    """A build in between has no file to list as orphaned, so the undo claims those that return."""
    before, trash = archive.outcome(), Location.of(tmp_path / "trash")
    plan = moved_to(trash, archive)
    archive.build(offset_index=True)
    assert (len(archive.rows()), orphans(archive)) == (2, [])

    undo_plan(plan, trash, clock=lambda: archive.now_ms)
    back = archive.build(offset_index=True)

    assert (back.segments, back.index_files, back.files_written) == (4, 8, 0)
    assert archive.outcome() == before


def test_a_build_that_listed_before_an_undo_does_not_end_its_claims(
    archive: ChangingArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash = Location.of(tmp_path / "trash")
    plan = moved_to(trash, archive)
    archive.build(offset_index=True)
    commit = Draft.commit

    def undo_and_commit(draft: Draft, *parts: Any, **how: Any) -> Snapshot:
        monkeypatch.undo()
        undo_plan(plan, trash, clock=lambda: archive.now_ms)
        return commit(draft, *parts, **how)

    monkeypatch.setattr(Draft, "commit", undo_and_commit)
    assert archive.build(offset_index=True).segments == 2
    back = archive.build(offset_index=True)
    assert (back.segments, back.kept) == (4, 0)


A_0, A_20, B_0 = (
    f"broker%201/{partition}/{base_offset:020d}"
    for partition, base_offset in (("a-0", 0), ("a-0", 20), ("b-0", 0))
)


def test_index_files_of_a_deleted_log_are_listed_and_counted(
    archive: ChangingArchive,
) -> None:
    archive.log(A).unlink()

    summary = archive.build(offset_index=True)

    assert orphaned_files(archive) == names_of(A_0)
    index = archive.index(A)
    sizes = [index.with_suffix(suffix).stat().st_size for suffix in (".index", ".timeindex")]
    assert [row["size_bytes"] for row in orphans(archive)] == sizes
    assert {row["topic"] for row in orphans(archive)} == {"a"}
    assert {row["log_uri"] for row in orphans(archive)} == {archive.log(A).as_uri()}
    assert (summary.orphaned, summary.orphaned_bytes) == (2, sum(sizes))
    assert archive.build(offset_index=True).orphaned == 2, "the next build knows them, too"


def test_a_list_that_cannot_be_read_ends_the_build(archive: ChangingArchive) -> None:
    archive.log(A).unlink()
    archive.build(offset_index=True)
    require_unread_ends_the_build(archive, "orphaned/*.arrow")
    assert archive.build(offset_index=True).orphaned == 2


def test_claims_that_cannot_be_read_end_the_build(archive: ChangingArchive) -> None:
    """They are the only file that names the new index files, because the snapshot is damaged."""
    archive.write(archive.log(A, 40), batches(40, 10))
    archive.build(offset_index=True)
    newest = Catalog.at(str(archive.catalog)).require_newest().name
    shutil.rmtree(archive.catalog / "snapshots" / newest)
    require_unread_ends_the_build(archive, f"claims/{newest}.arrow")
    assert archive.build(offset_index=True).kept == 0
    assert archive.outcome() == archive.fresh(offset_index=True)


def require_unread_ends_the_build(archive: ChangingArchive, pattern: str) -> None:
    if problem := why_not(archive.catalog.parent):
        pytest.skip(f"nothing to be denied: {problem}")
    (file,) = archive.catalog.glob(pattern)
    before = archive.outcome()
    message = f"{file.name}: cannot be read: .*cannot tell which index files it owns"
    with shut(file), as_any_owner(), pytest.raises(UnreadableCatalogError, match=message):
        archive.build(offset_index=True)
    assert archive.outcome() == before


def test_directories_without_remaining_logs_are_checked(archive: ChangingArchive) -> None:
    shutil.rmtree(archive.log(A).parent)
    assert archive.build(offset_index=True).orphaned == 4
    shutil.rmtree(archive.index(A).parent)
    assert archive.build(offset_index=True).orphaned == 0
    assert not list((archive.catalog / "orphaned").glob("*03-*")), "no list where it is empty"


@pytest.mark.parametrize("seen", [True, False], ids=["a night before", "the same night"])
def test_a_file_that_is_not_as_it_was_is_not_ours(archive: ChangingArchive, seen: bool) -> None:
    """It changes a night before its log returns, to another time; or that night, to less bytes."""
    archive.log(A).unlink()
    archive.build(offset_index=True)
    index = archive.index(A)
    modified_ns = index.stat().st_mtime_ns
    if seen:
        os.utime(index)
    else:
        index.write_bytes(index.read_bytes()[:-12])
        os.utime(index, ns=(0, modified_ns))
    changed = index.read_bytes()
    if seen:
        archive.build(offset_index=True)
        assert orphaned_files(archive) == [f"{A_0}.index"]

    archive.write(archive.log(A), batches(0, 4, first_ms=777))
    archive.build(offset_index=True)
    assert index.read_bytes() == changed
    assert archive.row(A)["index_file"] == "kept"
    assert orphaned_files(archive) == [f"{A_0}.index"], "the row that is kept does not take it"


def test_an_index_file_from_before_its_log_is_kept_and_the_note_says_so(
    archive: ChangingArchive,
) -> None:
    there = archive.index("broker 1/new-0")
    there.parent.mkdir(parents=True)
    there.write_bytes(FOREIGN)
    archive.write(archive.log("broker 1/new-0"), batches(0, 9))

    summary = archive.build(offset_index=True)

    row = archive.row("broker 1/new-0")
    assert row["index_file"] == "kept"
    assert row["notes"] == ["time_index_kept", SegmentNote.BEFORE_LOG]
    assert (summary.kept, summary.kept_though_other) == (1, 1)
    assert there.read_bytes() == FOREIGN
    assert archive.build(offset_index=True).kept_though_other == 1, "and it is said on"


def test_orphaned_files_stay_where_a_build_does_not_look(
    archive: ChangingArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.log(A).unlink()
    archive.build(offset_index=True)
    archive.index(A).unlink()
    archive.log(B).unlink()
    assert archive.build(offset_index=True, topics=["b"]).orphaned == 4
    assert orphaned_files(archive) == names_of(A_0, B_0), "of a topic that it does not list"

    directory = archive.log(A).parent
    directory.rename(tmp_path / "hidden")
    directory.symlink_to(archive.source)  # a link back cannot be listed
    assert archive.build(offset_index=True).orphaned == 4
    directory.unlink()
    (tmp_path / "hidden").rename(directory)

    def closed(folder: Any) -> Any:
        raise FileReadError(errno.EACCES, "Permission denied", folder.uri)

    with monkeypatch.context() as patched:
        patched.setattr(module, "entries_of", closed)
        assert archive.build(offset_index=True).orphaned == 4
    assert archive.build(offset_index=True).orphaned == 3, "now it looked"


def test_an_offset_index_stays_orphaned_while_builds_write_none(archive: ChangingArchive) -> None:
    archive.log(A).unlink()
    archive.build(offset_index=True)
    archive.write(archive.log(A), batches(0, 4, first_ms=777))
    archive.build()
    assert orphaned_files(archive) == [f"{A_0}.index"]
    assert archive.build(offset_index=True).orphaned == 0
    assert archive.row(A)["index_file"] == "written"


LIST_FAULTS: dict[str, Callable[[Path, bytes], object]] = {
    "cut": lambda place, data: place.write_bytes(data[:-5]),
    "other bytes": lambda place, data: place.write_bytes(data[:-5] + b"\1" + data[-4:]),
    "lost": lambda place, data: None,
    "a directory": lambda place, data: place.mkdir(),
}


def test_a_list_that_is_lost_or_damaged_is_a_warning(
    built: KeptArchive, subtests: pytest.Subtests
) -> None:
    for name, fault in LIST_FAULTS.items():
        with subtests.test(name):
            archive = built.again()
            archive.log(A).unlink()
            archive.build(offset_index=True)
            (place,) = (archive.catalog / "orphaned").iterdir()
            data = place.read_bytes()
            place.unlink()
            fault(place, data)
            archive.write(archive.log(A), batches(0, 4, first_ms=777))
            old = archive.index(A).read_bytes()

            summary = archive.build(offset_index=True)

            (warning,) = summary.warnings
            assert f"{place.as_uri()}" in warning and "2 index files" in warning
            assert archive.index(A).read_bytes() == old, "not known, so not ours"
            assert SegmentNote.BEFORE_LOG in archive.row(A)["notes"]
            assert archive.build(offset_index=True).warnings == ()


def test_concurrent_builds_of_two_topics_lose_no_orphaned_files(
    archive: ChangingArchive,
) -> None:
    """Each finds those of its own topics; the last commit lists both."""
    for partition in (A, B):
        archive.log(partition).unlink()
    first, last = (archive.plan(offset_index=True, topics=[topic]) for topic in ("b", "a"))
    carry_out(first)
    assert carry_out(last).orphaned == 4
    assert orphaned_files(archive) == names_of(A_0, B_0)


def test_concurrent_builds_of_one_topic_keep_their_findings(
    archive: ChangingArchive,
) -> None:
    early = archive.plan(offset_index=True)
    archive.log(A).unlink()
    archive.now_ms += 60_000
    late = archive.plan(offset_index=True)
    carry_out(late)
    carry_out(early)
    archive.now_ms += DAY_MS
    archive.build(offset_index=True)
    assert orphaned_files(archive) == names_of(A_0)


@pytest.mark.parametrize("claimed_first", [False, True])
def test_a_log_that_returns_for_one_of_two_builds_is_not_orphaned(
    archive: ChangingArchive, claimed_first: bool
) -> None:
    archive.log(A).unlink()
    archive.build(offset_index=True)
    without_log = archive.plan(offset_index=True)
    archive.write(archive.log(A), batches(0, 4, first_ms=777))
    archive.now_ms += 60_000
    with_log = archive.plan(offset_index=True)
    for plan in (with_log, without_log) if claimed_first else (without_log, with_log):
        carry_out(plan)
    assert orphaned_files(archive) == []
    assert archive.row(A)["index_file"] == "written"


def test_pruning_removes_a_list_with_its_snapshot(archive: ChangingArchive) -> None:
    archive.log(A).unlink()
    for _ in range(3):
        archive.build(offset_index=True)
    folder = archive.catalog / "orphaned"
    (folder / "notes.txt").write_text("of another")
    (folder / "00000000000000000001-ffff.txt").write_text("of another")
    dead = folder / "00000000000000000001-0123456789ab.arrow"
    dead.write_bytes(b"of a build that died before its commit")
    newest = Catalog.at(str(archive.catalog)).require_newest().name
    for path in (*(archive.catalog / "commits").iterdir(), *folder.iterdir()):
        os.utime(path, ns=(0, (archive.now_ms - 2 * DAY_MS) * 1_000_000))

    pruned = prune(Catalog.at(str(archive.catalog)), keep=1, now_ms=archive.now_ms + DAY_MS)

    assert not pruned.failures
    assert {path.name for path in folder.iterdir()} == {
        "notes.txt", "00000000000000000001-ffff.txt", f"{newest}.arrow",
    }  # fmt: skip
    assert archive.build(offset_index=True).warnings == ()
    assert archive.build(offset_index=True).orphaned == 2
