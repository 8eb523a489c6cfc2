"""Rows that a second build reads again, reuses, carries over and drops.

After each change an incremental build is compared with a build into a new place.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

import kip33
from kip33.builds.commit import BuildSummary, begin_build, commit_build
from kip33.builds.task import build_bin
from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import Draft, PartWriter
from kip33.catalog.schema import PARTS, SCHEMA_VERSION
from kip33.errors import CatalogError
from kip33.stores import own_files
from kip33.stores.locations import Location
from tests.builders.changing_archive import (
    CLICKS,
    ORDERS,
    START_MS,
    ChangingArchive,
    KeptArchive,
    batches,
    built_archive,
)
from tests.builders.snapshots import append_rows, as_earlier_version, place_of_row
from tests.cases import each_case
from tests.long_forms import short_and_long

A, B, INVALID, EMPTY = "broker 1/a-0", "broker 1/b-0", "broker 1/invalid-0", "broker 1/empty-0"
Row = dict[str, Any]
BACKWARDS = batches(100, 9) + batches(0, 9, first_ms=START_MS + 500)


def six_segments(folder: Path, *, in_place: bool) -> KeptArchive:
    """Six segments, built with both indexes: 0, 20 and 40 of a, one of b, invalid and empty."""
    archive = ChangingArchive(folder, in_place=in_place)
    for base_offset in (0, 20, 40):
        archive.write(archive.log(A, base_offset), batches(base_offset, 10))
    archive.write(archive.log(B), batches(0, 30))
    archive.write(archive.log(INVALID), BACKWARDS)
    archive.write(archive.log(EMPTY), b"")
    summary = archive.build(offset_index=True)
    assert summary.by_status == {"empty": 1, "invalid": 1, "ok": 4}
    return KeptArchive(archive)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    return six_segments(tmp_path_factory.mktemp("built"), in_place=False)


@pytest.fixture(scope="module")
def built_in_place(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    return six_segments(tmp_path_factory.mktemp("in place"), in_place=True)


@pytest.fixture
def archive(built: KeptArchive) -> ChangingArchive:
    return built.again()


class Counts(NamedTuple):
    """What a summary counts."""

    indexed: int
    reused: int
    dropped: int = 0
    carried: int = 0


def counts(summary: BuildSummary) -> Counts:
    return Counts(summary.indexed, summary.reused, summary.dropped, summary.carried)


Change = Callable[[ChangingArchive], object]


class Case(NamedTuple):
    """A change of an archive, and what the next build counts."""

    name: str
    change: Change
    expected: Counts
    settings: dict[str, Any]


def case(name: str, change: Change, *expected: int, **settings: Any) -> Case:
    return Case(name, change, Counts(*expected), settings)


def nothing(archive: ChangingArchive) -> None:
    pass


def replace_by_same_size(archive: ChangingArchive) -> None:
    archive.write(archive.log(A), batches(0, 10, first_ms=5))


def zeros(archive: ChangingArchive) -> None:
    place = archive.index(A)
    modified_ns = place.stat().st_mtime_ns
    place.write_bytes(bytes(place.stat().st_size))
    os.utime(place, ns=(0, modified_ns + 1_000_000))  # a clock of milliseconds, at its next tick


def touch(archive: ChangingArchive, partition: str) -> None:
    place = archive.index(partition)
    os.utime(place, ns=(0, place.stat().st_mtime_ns + 1_000_000))


def commit_again(
    archive: ChangingArchive, changed: Callable[[Row], Row], version: int = SCHEMA_VERSION
) -> None:
    """Commit the newest snapshot's rows again, each of them changed."""
    catalog = Catalog.at(str(archive.catalog))
    newest = catalog.require_newest()
    draft = Draft.begin(catalog, Location.of(archive.source))
    writer = PartWriter(draft.staging, 0)
    append_rows(writer, [changed(row) for row in sorted(archive.rows(), key=place_of_row)])
    again = draft.commit([writer.publish()], settings=newest.settings, now_ms=newest.created_ms)
    if version < SCHEMA_VERSION:
        as_earlier_version(catalog, again, version)


def as_of_version(archive: ChangingArchive, version: int) -> None:
    """Make the newest snapshot one of an earlier version; 1 is of kip33 0.1."""
    commit_again(archive, lambda row: row, version)


CHANGES = [
    case("nothing", nothing, 0, 6),
    case("a new segment", lambda a: a.write(a.log(A, 60), batches(60, 5)), 1, 6),
    case("a new partition", lambda a: a.write(a.log("c-0"), batches(0, 5)), 1, 6),
    case("the active segment grew", lambda a: a.write(a.log(A, 40), batches(40, 12)), 1, 5),
    case("a segment was cut", lambda a: a.write(a.log(A, 20), batches(20, 10)[:-9]), 1, 5),
    case("replaced, the same size", replace_by_same_size, 1, 5),
    case(
        "only its time changed: it may be another file", lambda a: a.touch(a.log(A)), 1, 5
    ),
    case(
        "grew, and its time is as before: copied with it",
        lambda a: a.rewrite_unseen(a.log(A), batches(0, 12)), 1, 5,
    ),
    case("turned bad", lambda a: a.write(a.log(A, 20), BACKWARDS), 1, 5),
    case("turned good", lambda a: a.write(a.log(INVALID), batches(0, 3)), 1, 5),
    case("was empty", lambda a: a.write(a.log(EMPTY), batches(0, 3)), 1, 5),
    case("emptied", lambda a: a.write(a.log(A, 40), b""), 1, 5),
    case("a segment went", lambda a: a.log(A).unlink(), 0, 5, 1),
    case("a partition went", lambda a: shutil.rmtree(a.log(B).parent), 0, 5, 1),
    case(
        "a segment moved to another partition",
        lambda a: a.log(A, 40).rename(a.log(B, 40)), 1, 5, 1,
    ),
    case("an index went", lambda a: a.index(A).unlink(), 1, 5),
    case("an offset index went", lambda a: a.index(A).with_suffix(".index").unlink(), 1, 5),
    case("an index was cut", lambda a: a.index(A).write_bytes(b""), 1, 5),
    case(
        "an offset index was cut",
        lambda a: a.index(B).with_suffix(".index").write_bytes(b"12345678"), 1, 5,
    ),
    case("an index is all zeros, its size as before", zeros, 1, 5),
    case("only an index's time changed: it may be another file", lambda a: touch(a, A), 1, 5),
    case(
        "the rows are of kip33 0.1, which knew no times of index files",
        lambda a: as_of_version(a, 1), 6, 0,
    ),
    case("another dialect", nothing, 6, 0, dialect="live"),
    case("another interval", nothing, 6, 0, index_interval_bytes=4096),
    case("no offset indexes", nothing, 6, 0, offset_index=False),
    case("full", nothing, 6, 0, full=True),
    case("only damaged reads everything", nothing, 6, 0, only_damaged=True),
    case("overwrite, and all is ours", nothing, 0, 6, overwrite=True),
    case(
        "a file that is no segment",
        lambda a: a.log(A).with_name("notes.log").write_bytes(b"x"), 0, 6,
    ),
]  # fmt: skip
IN_PLACE = (
    *("turned bad", "a segment was cut", "was empty", "emptied", "an index went"),
    *("an offset index was cut", "a segment went", "no offset indexes", "full"),
)


def require_incremental(archive: ChangingArchive, case: Case) -> None:
    """Require that the next build reads what changed, and the one after that nothing."""
    settings = {"offset_index": True} | case.settings
    how = {
        name: value
        for name, value in settings.items()
        if name not in ("full", "only_damaged", "overwrite")
    }
    case.change(archive)

    summary = archive.build(**settings)

    assert counts(summary) == case.expected
    assert summary.segments == case.expected.indexed + case.expected.reused
    outcome = archive.outcome()
    assert outcome == archive.fresh(**how)
    assert not summary.warnings
    stale = sum(row["index_file"] == "stale" for row in archive.rows())  # in place: turned bad
    again = archive.build(**how)
    assert counts(again) == Counts(stale, summary.segments - stale)
    assert stale or again.bytes_read == 0
    assert archive.outcome() == outcome


@pytest.mark.parametrize("step", short_and_long(6, 1, "KIP33_STEP"))
def test_changed_segments_are_read_others_reused_and_the_result_is_that_of_a_full_build(
    built: KeptArchive, step: int, subtests: pytest.Subtests
) -> None:
    for case in CHANGES[::step]:
        with subtests.test(case.name):
            require_incremental(built.again(), case)


@pytest.mark.parametrize("step", short_and_long(4, 1, "KIP33_STEP"))
def test_in_place_it_is_so_for_files_that_a_broker_trusts(
    built_in_place: KeptArchive, step: int, subtests: pytest.Subtests
) -> None:
    for case in [case for case in CHANGES if case.name in IN_PLACE][::step]:
        with subtests.test(case.name):
            require_incremental(built_in_place.again(), case)


@each_case(("topics", "indexed"), [((), 5), (("b",), 1)])
def test_rows_of_an_earlier_version_are_put_in_order(
    topics: tuple[str, ...], indexed: int, built: KeptArchive
) -> None:
    archive = built.again()
    as_of_version(archive, 4)
    with pytest.raises(CatalogError, match="an earlier version of kip33 wrote this snapshot"):
        archive.rows()
    assert archive.build(offset_index=True, topics=topics).indexed == indexed
    catalog = Catalog.at(str(archive.catalog))
    places = [place_of_row(row) for row in catalog.read(catalog.require_newest()).to_pylist()]
    assert len(places) == 6
    assert places == sorted(places)
    assert archive.build(offset_index=True).indexed == 5 - indexed
    assert archive.outcome() == archive.fresh(offset_index=True)


@each_case(("topics", "indexed"), [((), 5), (("b",), 1)])
def test_snapshot_files_of_earlier_builds_stay(
    topics: tuple[str, ...], indexed: int, built: KeptArchive
) -> None:
    archive = built.again()
    catalog = Catalog.at(str(archive.catalog))
    as_earlier_version(catalog, catalog.require_newest(), 5)
    written = archive.index(A).with_suffix(".snapshot")
    written.write_bytes(b"producers")
    summary = archive.build(offset_index=True, topics=topics)
    assert (summary.indexed, summary.orphaned) == (indexed, 0)
    for part in (archive.catalog / "snapshots" / catalog.require_newest().name).glob("*.parquet"):
        assert pq.read_schema(part).names == PARTS.names
    assert written.read_bytes() == b"producers"
    assert archive.build(offset_index=True).indexed == 5 - indexed
    assert archive.outcome() == archive.fresh(offset_index=True)


def test_a_row_without_leader_epochs_is_read_again_once(archive: ChangingArchive) -> None:
    as_of_version(archive, 3)
    indexed = [archive.build(offset_index=True).indexed for _ in range(2)]
    assert indexed == [5, 0]
    of_valid_logs = [row["leader_epochs"] for row in archive.rows() if row["status"] == "ok"]
    assert len(of_valid_logs) == 4
    assert None not in of_valid_logs


def test_a_row_without_leader_epochs_stays_if_read_tail_would_know_less(
    archive: ChangingArchive,
) -> None:
    commit_again(archive, lambda row: row | {"epochs_fall": None, "index_file": "kept"})
    assert archive.build(offset_index=True, read="tail").indexed == 0


def test_the_active_segment_is_the_last_of_all_not_of_those_read(archive: ChangingArchive) -> None:
    def active() -> list[int]:
        rows = archive.rows()
        return [row["base_offset"] for row in rows if row["topic"] == "a" and row["active_segment"]]

    assert active() == [40]
    archive.write(archive.log(A, 60), batches(60, 2))
    summary = archive.build(offset_index=True)
    assert summary.bytes_read == archive.log(A, 60).stat().st_size, "only what changed is read"
    assert summary.log_bytes == sum(row["size_bytes"] for row in archive.rows())
    assert active() == [60]
    archive.log(A, 60).unlink()
    archive.log(A, 40).unlink()
    assert archive.build(offset_index=True).indexed == 0
    assert active() == [20]


def test_carrying_a_row_does_not_make_it_older_than_it_is(tmp_path: Path) -> None:
    """Its listing came too soon; that other topics were built since changes nothing."""
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 3), age_ms=500)
    archive.write(archive.log(B), batches(0, 3))
    archive.build()
    for _ in range(2):
        assert counts(archive.build(topics=["b"])) == Counts(0, 1, 0, 1)
    archive.rewrite_unseen(archive.log(A), batches(0, 3, first_ms=99_000))

    summary = archive.build()

    assert counts(summary) == Counts(1, 1)
    assert archive.outcome() == archive.fresh()
    assert counts(archive.build()) == Counts(0, 2)


def test_an_unreadable_segment_is_tried_again_every_time(archive: ChangingArchive) -> None:
    log, moved = archive.log(A), archive.folder / "moved"
    log.rename(moved)
    os.mkfifo(log)
    assert counts(archive.build(offset_index=True)) == Counts(1, 5)
    assert archive.row(A)["status"] == "unreadable"
    assert archive.row(A)["index_file"] == "written", "what is ours stays ours"
    assert counts(archive.build(offset_index=True)) == Counts(1, 5)
    log.unlink()
    moved.rename(log)
    assert counts(archive.build(offset_index=True)) == Counts(1, 5)
    assert archive.outcome() == archive.fresh(offset_index=True)
    assert counts(archive.build(offset_index=True)) == Counts(0, 6)


def lose_directory(archive: ChangingArchive, partition: str) -> None:
    """Make a directory one that cannot be entered: a link back to SOURCE."""
    directory = archive.log(partition).parent
    directory.rename(archive.folder / "lost")
    directory.symlink_to(archive.source)


def find_directory(archive: ChangingArchive, partition: str) -> None:
    directory = archive.log(partition).parent
    directory.unlink()
    (archive.folder / "lost").rename(directory)


def test_rows_of_other_topics_are_carried_never_dropped(archive: ChangingArchive) -> None:
    before = {row["log_uri"]: row for row in archive.rows()}
    archive.log(B).unlink()
    archive.log(A).unlink()
    archive.write(archive.log(A, 40), batches(40, 12))

    summary = archive.build(topics=["a"], offset_index=True)

    assert counts(summary) == Counts(1, 1, 1, 3)
    after = {row["log_uri"]: row for row in archive.rows()}
    others = {uri: row for uri, row in before.items() if row["topic"] != "a"}
    assert {uri: row for uri, row in after.items() if row["topic"] != "a"} == others
    rows_of_a = [row for row in archive.outcome().rows if row["topic"] == "a"]
    assert rows_of_a == archive.fresh(topics=["a"], offset_index=True).rows

    assert counts(archive.build(offset_index=True)) == Counts(0, 4, 1)
    assert archive.outcome() == archive.fresh(offset_index=True)


@pytest.mark.parametrize(
    ("partition", "topics", "carried"), [(A, (), 3), (B, ("a",), 3)], ids=["all topics", "topic a"]
)
def test_rows_below_a_directory_that_cannot_be_listed_are_carried_never_dropped(
    archive: ChangingArchive, partition: str, topics: tuple[str, ...], carried: int
) -> None:
    before = archive.outcome()
    lose_directory(archive, partition)

    summary = archive.build(offset_index=True, topics=topics)

    assert (summary.carried, summary.dropped) == (carried, 0)
    known = {row["log_uri"]: row for row in archive.outcome().rows}
    assert all(known[row["log_uri"]] == row for row in before.rows)
    (unlistable,) = [row for row in archive.rows() if row["base_offset"] is None]
    assert (unlistable["status"], summary.indexed) == ("unreadable", 1)

    find_directory(archive, partition)
    assert counts(archive.build(offset_index=True)) == Counts(0, 6), "its own row is not dropped"
    assert archive.outcome() == before


def test_a_directory_with_a_name_that_begins_like_the_lost_one_is_not_below_it(
    tmp_path: Path,
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("x/a-1"), batches(0, 2))
    archive.write(archive.log("x/a-10"), batches(0, 2))
    archive.build()
    lose_directory(archive, "x/a-1")
    shutil.rmtree(archive.log("x/a-10").parent)
    summary = archive.build()
    assert (summary.carried, summary.dropped) == (1, 1)


SWITCHED: list[list[dict[str, Any]]] = [
    # settings of one build after the other: of the last one all index files are `written`
    [{}, {"dialect": "live"}, {"topics": ["a"]}, {}],
    [{}, {"read": "tail"}, {"dialect": "live"}],
    [{}, {"only_damaged": True}, {"offset_index": True}],
]


def test_files_that_we_wrote_stay_ours_with_any_options(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, settings in enumerate(SWITCHED):
        with subtests.test(str(settings)):
            archive = ChangingArchive(tmp_path / str(number))
            archive.write(archive.log(A), batches(0, 10))
            archive.write(archive.log(B), batches(0, 30))
            for one in settings:
                summary = archive.build(**one)
                assert (summary.kept, summary.failed) == (0, 0), one
            assert archive.outcome() == archive.fresh(**settings[-1])


def test_a_second_index_directory_gets_all_files_and_its_rows(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log(A), batches(0, 10))
    archive.write(archive.log(INVALID), BACKWARDS)
    archive.build()
    first, archive.index_dir = archive.index_dir, tmp_path / "second place"

    assert counts(archive.build()) == Counts(1, 1), "a row that expects no index holds anywhere"

    assert archive.outcome() == archive.fresh()
    assert counts(archive.build()) == Counts(0, 2)
    archive.index_dir = first
    assert archive.build().kept == 1, "nothing says any more whose the files in the first one are"
    archive.catalog = tmp_path / "another catalog"
    assert archive.build().kept == 1, "two catalogs of one SOURCE know nothing of each other"


NOT_OURS = b"somebody's!!"


def test_a_foreign_index_is_kept_and_its_row_reused_until_overwrite(
    archive: ChangingArchive,
) -> None:
    log = archive.log(A, 60)
    archive.write(log, batches(60, 9))
    index = archive.index_of(log)
    index.write_bytes(NOT_OURS)
    assert counts(archive.build(offset_index=True)) == Counts(1, 6)
    assert counts(archive.build(offset_index=True)) == Counts(0, 7)
    assert archive.row(A, 60)["index_file"] == "kept"
    assert "--overwrite" in archive.remarks(A, 60)
    index.write_bytes(NOT_OURS + NOT_OURS)
    assert counts(archive.build(offset_index=True)) == Counts(1, 6), "it has another size"
    assert index.read_bytes() == NOT_OURS + NOT_OURS

    assert counts(archive.build(offset_index=True, overwrite=True)) == Counts(1, 6)

    assert archive.outcome() == archive.fresh(offset_index=True)
    assert counts(archive.build(offset_index=True, overwrite=True)) == Counts(0, 7)


def test_a_temporary_file_of_an_attempt_that_was_killed_goes_with_the_build_after_its_own(
    archive: ChangingArchive,
) -> None:
    """As Spark kills a task whose speculative copy was faster."""
    archive.write(archive.log(A, 60), batches(60, 12))
    plan = archive.plan()
    begun = begin_build(plan)
    attempt = partial(build_bin, plan.build, begun.draft.staging, len(begun.copied_parts))
    killed = os.fork()
    if not killed:
        own_files._rename_over = lambda *_, **__: os._exit(9)
        attempt(plan.files)
    os.waitpid(killed, 0)
    [left] = archive.index_root.rglob(".*.timeindex.*.tmp")
    of_another = left.with_name(left.name.replace(begun.draft.snapshot_id, "0" * 12))
    of_another.write_bytes(b"")

    archive.build(topics=["b"])
    assert left.exists(), "its build may still run"
    commit_build(begun, [attempt(plan.files)])
    assert left.exists(), "another attempt may still run"
    archive.build()

    assert not left.exists()
    assert of_another.exists(), "of a build that may run, or of another catalog"


def test_what_a_killed_build_may_have_written_is_not_forgotten_while_a_row_is_carried(
    archive: ChangingArchive,
) -> None:
    killed = archive.plan(offset_index=True, dialect="live")
    begun = begin_build(killed)
    build_bin(killed.build, begun.draft.staging, len(begun.copied_parts), killed.files)
    for _ in range(2):
        archive.build(topics=["b"], offset_index=True)

    archive.build(offset_index=True)

    assert archive.outcome() == archive.fresh(offset_index=True)
    assert counts(archive.build(offset_index=True)) == Counts(0, 6)


def test_a_killed_build_claims_only_the_kinds_of_files_that_it_writes(
    archive: ChangingArchive,
) -> None:
    """A broker's `.index` lies beside the log; only the `.timeindex` is missing."""
    archive.write(archive.log(A, 60), batches(60, 9))
    offset_index = archive.index(A, 60).with_suffix(".index")
    offset_index.write_bytes(NOT_OURS)
    begin_build(archive.plan())  # and it is killed
    archive.build(offset_index=True)
    assert offset_index.read_bytes() == NOT_OURS
    assert archive.row(A, 60)["index_file"] == "kept"


def test_a_build_says_how_many_segments_had_index_files_that_others_changed(
    tmp_path: Path,
) -> None:
    """Those of a log that grew, or of one that is gone, are not among them."""
    archive = built_archive(tmp_path)
    archive.index(ORDERS).unlink()
    archive.index(ORDERS, 40).with_suffix(".index").write_bytes(b"")
    archive.write(archive.log(CLICKS), batches(0, 19))
    archive.index(CLICKS).unlink()
    archive.log(CLICKS, 40).unlink()
    archive.index(CLICKS, 40).unlink()

    assert archive.build(offset_index=True).healed == 2
    notes = [one.text for one in kip33.archive_status(str(archive.catalog)).findings]
    assert any(text.startswith("2 segments whose index files had been changed") for text in notes)
    assert archive.build(offset_index=True).healed == 0
    notes = [one.text for one in kip33.archive_status(str(archive.catalog)).findings]
    assert not any("index files had been changed" in text for text in notes)
