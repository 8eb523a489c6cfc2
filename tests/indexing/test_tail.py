"""`--read tail`: which logs are not read, what their rows say, and when they are read after all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kip33
from kip33.archive.listing import CHECKPOINTS
from kip33.builds.commit import begin_build, commit_build
from kip33.builds.task import build_bin
from kip33.rules.index_verdict import GOOD
from tests.builders.changing_archive import DAY_MS, INTERVAL, START_MS, ChangingArchive, batches
from tests.cases import each_case
from tests.faults.builds import build_here, outcome
from tests.formats.real_segments import FOLDER, REAL_SEGMENTS, needs_real_segments
from tests.indexing.test_real_segments import verdict_on

A, B = "broker 1/a-0", "broker 1/b-0"
LOG = batches(0, 10)
TIMES = [(START_MS + 7 * number, 2 * number + 1) for number in range(10)]


def index(*entries: tuple[int, int]) -> bytes:
    """Return the bytes of a `.timeindex`."""
    pairs = (t.to_bytes(8, "big", signed=True) + o.to_bytes(4, "big") for t, o in entries)
    return b"".join(pairs)


TRUE = index(*TIMES[2::3], TIMES[9])


def two_segments(folder: Path) -> ChangingArchive:
    """Return one segment of ten batches, without an index, and the next one of the partition."""
    archive = ChangingArchive(folder)
    archive.write(archive.log(A), LOG)
    archive.write(archive.log(A, 20), batches(20, 2))
    return archive


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    return two_segments(tmp_path)


def beside(log: Path) -> Path:
    return log.with_suffix(".timeindex")


def below_index_dir(archive: ChangingArchive, data: bytes) -> Path:
    place = archive.index(A)
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    return place


def test_the_whole_row_of_a_log_that_was_not_read(archive: ChangingArchive) -> None:
    log = archive.log(A)
    beside(log).write_bytes(TRUE)

    summary = archive.build(read="tail")

    assert archive.row(A) == {
        "log_dir": "broker 1", "topic": "a", "partition": 0, "base_offset": 0,
        "last_offset": None, "log_uri": log.as_uri(), "index_uri": beside(log).as_uri(),
        "size_bytes": len(LOG), "valid_bytes": None, "batch_count": None, "record_count": None,
        "first_batch_timestamp": START_MS, "max_timestamp": TIMES[9][0],
        "offset_of_max_timestamp": 19, "largest_timestamp": TIMES[9][0],
        "largest_timestamp_source": "time_index",
        "last_modified_ms": log.stat().st_mtime_ns // 1_000_000,
        "timestamp_types": None, "magics": None, "codecs": None, "out_of_order_batches": None,
        "time_index_entries": 4, "active_segment": False,
        "dialect": "recover", "index_interval_bytes": INTERVAL, "segment_index_bytes": 10485760,
        "check_crc": True, "untimestamped": "none", "offset_index": False,
        "bytes_version": 1, "status": "unverified",
        "error": None, "index_error": None, "notes": None, "index_file": "kept",
        "time_index_bytes": len(TRUE),
        "offset_index_bytes": None, "time_index_matches": None, "offset_index_matches": None,
        "file_time_offset": None,
        "time_index_modified_ms": beside(log).stat().st_mtime_ns // 1_000_000,
        "offset_index_modified_ms": None,
        "transaction_index_bytes": None, "transaction_index_modified_ms": None,
        "open_transactions": None, "smallest_timestamp": None,
        "kip33_version": kip33.__version__,
        "topic_id": None, "partition_metadata_modified_ms": None,
        "leader_epochs": None, "leader_epoch_offsets": None, "batches_crc32": None,
        "epochs_fall": None, **dict.fromkeys(CHECKPOINTS), "decided_by": [20, None, None, None],
        **dict.fromkeys(f"{kind}_index_crc32c" for kind in ("time", "offset", "transaction")),
    }  # fmt: skip
    second = archive.log(A, 20)
    assert archive.row(A, 20)["status"] == "ok"
    assert summary.bytes_read == 61 + second.stat().st_size
    assert summary.by_status == {"ok": 1, "unverified": 1}
    assert (summary.written, summary.kept, summary.failed) == (1, 1, 0)
    assert not archive.index(A).exists()


UNTRUSTWORTHY = {
    "missing": None,
    "malformed": TRUE[:-1],
    "padded": TRUE + bytes(12),
    "preallocated, with stale entries": TRUE[:12] * 873_813,
    "an offset of the next segment": index((TIMES[9][0], 21)),
}


@each_case("where", ["beside the log", "in the index directory"])
@each_case("data", UNTRUSTWORTHY)
def test_without_a_trustworthy_index_the_log_is_read(
    tmp_path: Path, data: bytes | None, where: str
) -> None:
    archive = two_segments(tmp_path)
    if data is not None and where == "beside the log":
        beside(archive.log(A)).write_bytes(data)
    elif data is not None:
        below_index_dir(archive, data)

    summary = archive.build(read="tail")

    row = archive.row(A)
    assert summary.by_status == {"ok": 2}
    assert (row["status"], row["batch_count"], row["largest_timestamp_source"]) == ("ok", 10, "log")
    assert row["index_file"] == ("kept" if archive.index(A).exists() and data is not None and
                                 where != "beside the log" else "written")  # fmt: skip


LOGS = {
    "empty": b"",
    "zeros": bytes(4096),
}


@each_case("log", LOGS)
def test_a_log_that_contradicts_its_index_is_read(tmp_path: Path, log: bytes) -> None:
    archive = two_segments(tmp_path)
    archive.write(archive.log(A), log)
    beside(archive.log(A)).write_bytes(TRUE)
    archive.build(read="tail")
    assert archive.row(A)["status"] != "unverified"
    assert archive.outcome().rows[0] == archive.fresh().rows[0]


def test_a_log_that_cannot_be_opened_is_unreadable_whatever_its_index_says(
    archive: ChangingArchive,
) -> None:
    archive.log(A).unlink()
    os.mkfifo(archive.log(A))
    beside(archive.log(A)).write_bytes(TRUE)
    archive.build(read="tail")
    assert archive.row(A)["status"] == "unreadable"


def build_after(archive: ChangingArchive, change: Callable[[], object]) -> None:
    """Build with `--read tail`; change something between the listing and the reading."""
    plan = archive.plan(read="tail")
    change()
    begun = begin_build(plan)
    result = build_bin(plan.build, begun.draft.staging, len(begun.copied_parts), plan.files)
    commit_build(begun, [result])
    archive.now_ms += DAY_MS


def test_an_index_that_changes_after_the_listing_is_not_trusted(archive: ChangingArchive) -> None:
    beside(archive.log(A)).write_bytes(TRUE[:-12])
    build_after(archive, lambda: beside(archive.log(A)).write_bytes(TRUE))
    assert archive.row(A)["status"] == "ok"


def test_a_log_that_grows_after_the_listing_has_the_size_it_has_now(
    archive: ChangingArchive,
) -> None:
    log = archive.log(A)
    beside(log).write_bytes(TRUE)
    build_after(archive, lambda: archive.write(log, batches(0, 12)))
    assert archive.row(A)["status"] == "unverified"
    assert archive.row(A)["size_bytes"] == log.stat().st_size
    beside(log).unlink()
    archive.build(read="tail")
    assert archive.outcome() == archive.fresh(), "and it is asked again"


def test_the_index_directory_is_tried_before_the_place_beside_the_log(
    archive: ChangingArchive,
) -> None:
    place = below_index_dir(archive, TRUE)
    beside(archive.log(A)).write_bytes(index(TIMES[9]))
    archive.build(read="tail")
    assert archive.row(A)["index_uri"] == place.as_uri()
    assert archive.row(A)["time_index_entries"] == 4


def test_with_offset_indexes_both_files_must_be_there(archive: ChangingArchive) -> None:
    log = archive.log(A)
    beside(log).write_bytes(TRUE)
    archive.build(read="tail", offset_index=True)
    assert archive.row(A)["status"] == "ok"
    archive.write(log, LOG, age_ms=DAY_MS // 3)
    archive.index(A).unlink()
    archive.index(A).with_suffix(".index").unlink()
    log.with_suffix(".index").write_bytes(b"1234567")
    archive.build(read="tail", offset_index=True, full=True)
    assert archive.row(A)["status"] == "ok"
    archive.index(A).unlink()
    archive.index(A).with_suffix(".index").unlink()
    log.with_suffix(".index").write_bytes(b"12345678")
    archive.build(read="tail", offset_index=True, full=True)
    assert archive.row(A)["status"] == "unverified"
    assert archive.row(A)["offset_index_bytes"] == 8


# Once and again


def test_tail_after_tail_reads_nothing(archive: ChangingArchive) -> None:
    beside(archive.log(A)).write_bytes(TRUE)
    archive.build(read="tail")
    before = archive.rows()
    summary = archive.build(read="tail")
    assert (summary.indexed, summary.reused, summary.bytes_read) == (0, 2, 0)
    assert archive.rows() == before


def test_a_build_that_reads_logs_reads_what_tail_did_not(archive: ChangingArchive) -> None:
    beside(archive.log(A)).write_bytes(TRUE)
    archive.build(read="tail")
    summary = archive.build()
    assert (summary.indexed, summary.reused, summary.bytes_read) == (1, 1, len(LOG))
    assert archive.outcome() == archive.fresh()
    assert archive.build().reused == 2


CHANGES: dict[str, Any] = {
    "the log grew": (lambda a: a.write(a.log(A), batches(0, 12)), {}),
    "the log was cut": (lambda a: a.write(a.log(A), LOG[:-80]), {}),
    "the log was touched": (lambda a: a.touch(a.log(A)), {}),
    "another dialect": (lambda a: None, {"dialect": "kip33"}),
    "our index was replaced": (lambda a: a.index(A).write_bytes(index(TIMES[0])), {}),
    "our index went": (lambda a: a.index(A).unlink(), {}),
}  # fmt: skip


@each_case("read", ["log", "tail"])
@each_case(("change", "settings"), CHANGES)
def test_our_index_is_not_trusted_after_its_log_changed(
    tmp_path: Path, change: Callable[[ChangingArchive], object], settings: dict[str, Any], read: str
) -> None:
    archive = two_segments(tmp_path)
    archive.build(read=read)
    change(archive)
    archive.build(read="tail", **settings)
    assert archive.outcome() == archive.fresh(**settings)


def test_our_index_is_repaired_even_with_a_good_one_beside_the_log(
    archive: ChangingArchive,
) -> None:
    archive.build()
    beside(archive.log(A)).write_bytes(TRUE)
    archive.index(A).write_bytes(TRUE[:-1])
    archive.build(read="tail")
    assert archive.outcome() == archive.fresh()
    archive.build(dialect="kip33")
    assert archive.outcome() == archive.fresh(dialect="kip33"), "it is ours as before"


def test_a_row_of_a_changed_log_is_not_reused(archive: ChangingArchive) -> None:
    log = archive.log(A)
    beside(log).write_bytes(TRUE)
    archive.build(read="tail")
    grown = batches(0, 12)
    archive.write(log, grown)
    beside(log).write_bytes(TRUE + index((START_MS + 7 * 11, 23)))
    archive.write(archive.log(A, 20).rename(archive.log(A, 24)), batches(24, 2))
    archive.build(read="tail")
    row = archive.row(A)
    assert (row["size_bytes"], row["max_timestamp"]) == (len(grown), START_MS + 7 * 11)
    assert row["status"] == "unverified"


@each_case("dialect", ["recover", "kip33"])
def test_a_later_neighbour_can_contradict_an_index(tmp_path: Path, dialect: str) -> None:
    archive = ChangingArchive(tmp_path)
    log = archive.log(A)
    archive.write(log, LOG)
    beside(log).write_bytes(index(TIMES[0], (START_MS + 999, 40)))  # of the log before
    archive.build(read="tail", dialect=dialect)
    assert archive.row(A)["max_timestamp"] == START_MS + 999, "nothing refutes it"
    archive.write(archive.log(A, 100), batches(100, 2))
    archive.build(read="tail", dialect=dialect)
    assert archive.row(A)["max_timestamp"] == START_MS + 999, "still nothing"

    archive.write(archive.log(A, 20), batches(20, 2))
    archive.build(read="tail", dialect=dialect)

    assert archive.row(A)["status"] == "ok"
    assert archive.row(A)["max_timestamp"] == TIMES[9][0]


@each_case("full", [False, True])
def test_a_lost_catalog_is_made_again_from_the_index_directory(tmp_path: Path, full: bool) -> None:
    archive = two_segments(tmp_path)
    archive.build()
    truth = {row["log_uri"]: row["max_timestamp"] for row in archive.rows()}
    archive.catalog = archive.folder / "another catalog"
    summary = archive.build(read="tail", full=full)
    assert summary.by_status == {"unverified": 2}
    assert summary.bytes_read == 2 * 61
    assert {row["log_uri"]: row["max_timestamp"] for row in archive.rows()} == truth
    assert {row["index_file"] for row in archive.rows()} == {"kept"}


def test_tail_and_only_damaged_contradict_each_other(archive: ChangingArchive) -> None:
    with pytest.raises(ValueError, match="cannot be combined with --read tail"):
        archive.build(read="tail", only_damaged=True)
    with pytest.raises(ValueError, match="expected one of log, tail"):
        archive.build(read="head")


# Segments of real brokers


@pytest.mark.integration
@needs_real_segments
@each_case("offset_index", [False, True])
def test_real_indexes_tell_what_their_logs_tell(tmp_path: Path, offset_index: bool) -> None:
    tails = build_here(FOLDER, tmp_path / "tail", read="tail", offset_index=offset_index)
    build_here(FOLDER, tmp_path / "log")
    told = {row["log_uri"]: row for row in outcome(tmp_path / "tail").rows}
    truth = {row["log_uri"]: row for row in outcome(tmp_path / "log").rows}
    assert set(told) == set(truth)
    agree = ("max_timestamp", "largest_timestamp", "first_batch_timestamp", "size_bytes")
    unverified = 0
    for log in REAL_SEGMENTS.values():
        row, true = told[log.as_uri()], truth[log.as_uri()]
        unverified += row["status"] == "unverified"
        if row["status"] != "unverified":
            assert row["status"] == true["status"]
        if verdict_on(log).verdict in GOOD:
            assert [row[name] for name in agree] == [true[name] for name in agree], log
            assert row["time_index_entries"] == beside(log).stat().st_size // 12
    assert unverified == 83
    assert tails.bytes_read == 83 * 61 < 0.001 * tails.log_bytes


@each_case(("later_ms", "status"), [(0, "unverified"), (-1, "ok")])
@each_case("where", ["beside the log", "in the index directory"])
def test_an_index_older_than_its_log_is_not_trusted(
    tmp_path: Path, where: str, later_ms: int, status: str
) -> None:
    """A log that grew since has a last entry that is true, and stale."""
    archive = two_segments(tmp_path)
    log = archive.log(A)
    place = beside(log) if where == "beside the log" else archive.index(A)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(index(TIMES[0]) + index(TIMES[5]))
    os.utime(place, ns=(0, log.stat().st_mtime_ns + later_ms * 1_000_000))

    archive.build(read="tail")

    row = archive.row(A)
    assert row["status"] == status
    if status == "ok":
        assert row["largest_timestamp"] == TIMES[9][0]
