"""`kip33 truncate`: what is cut, what stays, and what is refused. Kafka's own results are compared
in `tests/integration/kafka/test_truncation.py`."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.archive.plans import with_content_id
from kip33.errors import LocationError, LockedError, TruncationError
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.formats.time_index import TimeIndex
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.verification import verify_file
from kip33.restore.truncate_apply import JOURNAL, journal_id_of, planned_or_begun, truncate
from kip33.restore.truncate_planner import plan_truncation
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.truncation import TruncationCase
from kip33.stores.locations import Location
from kip33.stores.own_files import temporary_of
from tests.archive.test_broker_locks import held_by_another
from tests.builders.partition_copies import everything_in, files_of, write_partition
from tests.builders.random_partitions import random_partitions
from tests.builders.segment_builder import (
    Record,
    end_txn_marker,
    v2_batch,
    with_broken_crc,
)
from tests.cases import each_case
from tests.long_forms import short_and_long

T = 1_700_000_000_000


def batch(base: int, count: int = 10, *, time: int = T, **how: int | bool) -> bytes:
    records = [Record(time + base + i, value=b"v" * 20) for i in range(count)]
    return v2_batch(base, records, **how)


def segments() -> dict[int, list[bytes]]:
    """Return three segments of offsets 0 to 89, in batches of ten."""
    return {base: [batch(base + step) for step in (0, 10, 20)] for base in (0, 30, 60)}


def copy_in(folder: Path) -> Path:
    return write_partition(
        folder / "logs" / "orders-0",
        segments(),
        epochs=[(0, 0), (2, 40), (5, 70)],
        snapshots={base: ProducerSnapshot(()) for base in (30, 60, 90)},
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return copy_in(tmp_path)


def cut(directory: Path, offset: int) -> dict[str, bytes]:
    truncate(Location.of(directory), offset)
    return files_of(directory)


def bases(files: dict[str, bytes], kind: str = "log") -> list[int]:
    return [int(name.split(".")[0]) for name in files if name.endswith(f".{kind}")]


ENDS = {
    "at the end nothing is cut": (90, [0, 30, 60], 3, 90),
    "nor far beyond it": (2**40, [0, 30, 60], 3, 90),
    "at a batch": (80, [0, 30, 60], 2, 80),
    "inside a batch that is cut as a whole": (85, [0, 30, 60], 2, 80),
    "at the last record of a batch": (89, [0, 30, 60], 2, 80),
    "at a segment's base, which stays, empty": (60, [0, 30, 60], 0, 60),
    "before a segment's base": (59, [0, 30], 2, 50),
    "everything": (0, [0], 0, 0),
}


@each_case(("offset", "logs", "last_bytes", "end_offset"), ENDS)
def test_where_the_log_ends(
    offset: Any, logs: Any, last_bytes: int, end_offset: int, tmp_path: Path
) -> None:
    copied = copy_in(tmp_path)
    plan = plan_truncation(Location.of(copied), offset)
    files = cut(copied, offset)
    assert bases(files) == logs
    assert len(files[f"{logs[-1]:020d}.log"]) == last_bytes * len(batch(0))
    assert plan.end_offset == end_offset
    assert plan.records_cut == 90 - end_offset


def test_an_offset_before_the_log_leaves_one_empty_segment_there(tmp_path: Path) -> None:
    directory = write_partition(
        tmp_path / "orders-0",
        {500: [batch(500)], 510: [batch(510)]},
        epochs=[(1, 500)],
        snapshots={510: ProducerSnapshot(())},
    )
    assert cut(directory, 300) == {
        f"{300:020d}.index": b"",
        f"{300:020d}.log": b"",
        f"{300:020d}.timeindex": b"",
        "leader-epoch-checkpoint": b"0\n0\n",
    }


def test_epochs_and_snapshots_after_the_end_are_removed(copied: Path) -> None:
    files = cut(copied, 65)
    assert files["leader-epoch-checkpoint"] == b"0\n2\n0 0\n2 40\n"
    assert bases(files, "snapshot") == [30, 60]


def test_beyond_the_end_only_epochs_without_records_are_removed(copied: Path) -> None:
    (copied / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 90\n")
    before = files_of(copied)
    after = cut(copied, 95)
    assert after.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    del before["leader-epoch-checkpoint"]
    assert after == before


def test_aborted_transactions_whose_marker_is_cut_are_removed(tmp_path: Path) -> None:
    one = {"transactional": True, "producer_epoch": 0, "base_sequence": 0}
    log = [
        batch(0, producer_id=5, **one),
        end_txn_marker(10, T, producer_id=5, commit=False),
        batch(11, producer_id=6, **one),
        end_txn_marker(21, T, producer_id=6, commit=False),
    ]
    directory = write_partition(tmp_path / "orders-0", {0: log})
    aborts = TransactionIndex.from_entries([(5, 0, 10, 11), (6, 11, 21, 22)], base_offset=0)
    (directory / f"{0:020d}.txnindex").write_bytes(aborts.to_bytes())
    files = cut(directory, 21)
    assert files[f"{0:020d}.txnindex"] == aborts.to_bytes()[:34]
    assert cut(directory, 10)[f"{0:020d}.txnindex"] == b"", "Kafka keeps the file, too"


def test_the_snapshot_at_the_new_end_has_the_open_transaction(tmp_path: Path) -> None:
    """Without it a broker that was stopped cleanly would forget the transaction."""
    one = {"producer_epoch": 1, "transactional": True}
    log = {
        0: [
            batch(0, producer_id=5, base_sequence=7, **one),
            end_txn_marker(10, T + 50, producer_id=5, producer_epoch=1, coordinator_epoch=3),
            batch(11, 2, producer_id=5, base_sequence=17, **one),
            batch(13),
        ]
    }
    snapshots = {14: ProducerSnapshot(())}
    directory = write_partition(tmp_path / "orders-0", log, snapshots=snapshots)
    files = cut(directory, 13)
    assert bases(files, "snapshot") == [13]
    state = ProducerState(5, 1, 18, 12, 1, T + 12, 3, 11)
    assert ProducerSnapshot.from_bytes(files[f"{13:020d}.snapshot"]).producers == (state,)


def test_a_copy_without_snapshots_gets_none(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "orders-0", segments())
    assert bases(cut(directory, 50), "snapshot") == []


CHECKPOINTS = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def test_checkpoints_of_the_log_directory_never_point_behind_the_end(tmp_path: Path) -> None:
    """A broker deletes all segments of a log that ends before its log start offset."""
    offsets = dict(zip(CHECKPOINTS, (45, 90, 50, 30), strict=True))
    directory = write_partition(tmp_path / "orders-0", segments(), checkpoints=offsets)
    cut(directory, 45)
    for name, offset in zip(CHECKPOINTS, (40, 40, 40, 30), strict=True):
        assert (tmp_path / name).read_text() == f"0\n2\nothers 7 99\norders 0 {offset}\n"


def test_a_dry_run_changes_nothing(copied: Path) -> None:
    before = files_of(copied)
    plan, is_begun = planned_or_begun(Location.of(copied), 45)
    assert (files_of(copied), is_begun) == (before, False)
    assert [change.name for change in plan.changes if change.action == "cut"] == [f"{30:020d}.log"]


def kinds(files: dict[str, bytes], base: int) -> list[str]:
    return [name.partition(".")[2] for name in files if name.startswith(f"{base:020d}")]


def test_a_broker_builds_indexes_that_cannot_be_cut(copied: Path) -> None:
    """It builds all three when it finds no .index."""
    (copied / f"{30:020d}.txnindex").write_bytes(b"\xff" * 34)
    plan = plan_truncation(Location.of(copied), 45)
    assert "the .txnindex is damaged" in plan.notes[0]
    assert kinds(cut(copied, 45), 30) == ["log", "snapshot"]


def test_a_time_index_that_names_no_batch_of_the_log_is_left_to_the_broker(copied: Path) -> None:
    index = TimeIndex.from_entries([(T - 5, 44)], base_offset=30)
    (copied / f"{30:020d}.timeindex").write_bytes(index.to_bytes())
    assert "does not match the log" in plan_truncation(Location.of(copied), 45).notes[0]
    assert kinds(cut(copied, 45), 30) == ["log", "snapshot"]


MISSING_FILES = [
    (("index",), ["log", "snapshot", "timeindex"]),
    (("timeindex",), ["index", "log", "snapshot", "timeindex"]),
    (("index", "timeindex"), ["log", "snapshot"]),
]


@each_case(("without", "left"), MISSING_FILES)
def test_index_files_that_are_missing(without: Any, left: Any, tmp_path: Path) -> None:
    """A .timeindex is written beside an .index, because a broker would not build it."""
    copied = copy_in(tmp_path)
    for kind in without:
        (copied / f"{30:020d}.{kind}").unlink()
    assert kinds(cut(copied, 45), 30) == left


def test_a_preallocated_index_is_trimmed_as_a_clean_close_does(copied: Path) -> None:
    expected = copied.parent / "expected" / "orders-0"
    shutil.copytree(copied, expected)
    for kind in ("index", "timeindex"):
        path = copied / f"{60:020d}.{kind}"
        path.write_bytes(path.read_bytes().ljust(1200, b"\0"))
    assert cut(copied, 80) == cut(expected, 80)


@pytest.mark.parametrize("seeds", short_and_long(3, 300, "KIP33_LOGS"))
def test_random_partitions_keep_what_is_below_the_offset(tmp_path: Path, seeds: int) -> None:
    """The rest of the log is a prefix, and its index is what verification expects."""
    for log in random_partitions(seed="33", count=seeds):
        source = {base: [one.data for one in some] for base, some in log.segments.items()}
        for number, offset in enumerate(log.offsets()[:3]):
            directory = tmp_path / f"{log.number}.{number}" / "orders-0"
            write_partition(directory, source, interval_bytes=log.index_interval_bytes)
            plan = plan_truncation(Location.of(directory), offset)
            files = cut(directory, offset)
            where = f"{log}, to {offset}"
            if plan.case == TruncationCase.EMPTIED:
                assert bases(files) == [offset], where
                continue
            kept = {base: _kept(some, offset) for base, some in log.segments.items()}
            expected = {base: some for base, some in kept.items() if base <= offset}
            if plan.case == TruncationCase.BEYOND_END:
                expected = kept
            assert {base: files[f"{base:020d}.log"] for base in bases(files)} == expected, where
            _require_good_index(directory, bases(files)[-1], log.index_interval_bytes, where)


def _kept(batches: list, offset: int) -> bytes:  # type: ignore[type-arg]
    kept = []
    for one in batches:
        if one.last_offset >= offset:
            break
        kept.append(one.data)
    return b"".join(kept)


def _require_good_index(directory: Path, base: int, interval: int, where: str) -> None:
    log = Location.of(directory / f"{base:020d}.log")
    verdict, _ = verify_file(
        log,
        Location.of(directory / f"{base:020d}.timeindex"),
        Location.of(directory / f"{base:020d}.index"),
        base_offset=base,
        topic="orders",
        settings=IndexSettings("recover", interval, 65536),
        native=False,
    )
    good = (IndexVerdict.IDENTICAL, IndexVerdict.CONSISTENT)
    assert verdict.verdict in good and verdict.offset_index_verdict in good, (where, verdict)
    assert verdict.log_status in (SegmentStatus.OK, SegmentStatus.EMPTY), where


def test_damage_after_the_offset_is_cut_off(copied: Path) -> None:
    log = copied / f"{60:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    assert len(cut(copied, 70)[log.name]) == len(batch(0))


def test_damage_before_the_offset_is_refused(copied: Path) -> None:
    log = copied / f"{60:020d}.log"
    log.write_bytes(batch(60) + b"\0" * 100)
    with pytest.raises(TruncationError, match=r"before offset 75.*truncate to 70 or less"):
        truncate(Location.of(copied), 75)


def test_a_wrong_crc_is_not_looked_for(copied: Path) -> None:
    """As in Kafka: only headers are read."""
    log = copied / f"{60:020d}.log"
    log.write_bytes(with_broken_crc(batch(60)) + batch(70))
    assert len(cut(copied, 70)[log.name]) == len(batch(0))


def _swap(directory: Path) -> None:
    (directory / f"{0:020d}.log.swap").write_bytes(b"")


def _short_name(directory: Path) -> None:
    (directory / "7.log").write_bytes(b"")


def _link(directory: Path) -> None:
    log = directory / f"{30:020d}.log"
    log.rename(directory / "elsewhere")
    log.symlink_to(directory / "elsewhere")


def _hard_link(directory: Path) -> None:
    os.link(directory / f"{30:020d}.log", directory / "copy")


def _bad_epochs(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")


def _bad_checkpoint(directory: Path) -> None:
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n7\n")


def _no_logs(directory: Path) -> None:
    for log in directory.glob("*.log"):
        log.unlink()


def _metadata(directory: Path) -> None:
    (directory / f"{50:020d}-{3:010d}.checkpoint").write_bytes(b"")


REFUSED = [
    (_swap, "a broker renames this file when it starts"),
    (_short_name, "expected a name with 20 digits"),
    (_link, "is a link"),
    (_hard_link, r"has 2 names \(hard links\)"),
    (_bad_epochs, "line 3: 'x y' found, expected EPOCH OFFSET"),
    (_bad_checkpoint, "0 entries found, expected 7"),
    (_no_logs, "no .log files found"),
    (_metadata, "a snapshot of the metadata ends at offset 50"),
]


@each_case(("change", "message"), REFUSED)
def test_what_is_refused_in_one_line(change: Any, message: str, tmp_path: Path) -> None:
    copied = copy_in(tmp_path)
    assert callable(change)
    change(copied)
    before = files_of(copied)
    with pytest.raises(TruncationError, match=message) as refusal:
        truncate(Location.of(copied), 45)
    assert "\n" not in str(refusal.value)
    assert files_of(copied) == before


ELSEWHERE = [
    ("s3a://bucket/orders-0", "expected a partition directory on this machine"),
    ("hdfs:///orders-0", "expected a partition directory on this machine"),
    ("/nowhere/orders-0", "expected a directory such as orders-0"),
]


@each_case(("uri", "message"), ELSEWHERE)
def test_only_local_directories_are_truncated(uri: str, message: str) -> None:
    with pytest.raises(LocationError, match=message):
        truncate(Location.of(uri), 0)


@each_case("name", ("orders", "orders-0.0123456789abcdef0123456789abcdef-delete"))
def test_only_directories_of_a_partition_are_truncated(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(TruncationError, match="the name is not a partition's"):
        truncate(Location.of(tmp_path / name), 0)


def test_a_plan_id_stands_for_the_files_as_they_were(copied: Path) -> None:
    shown = plan_truncation(Location.of(copied), 45).plan_id
    assert plan_truncation(Location.of(copied), 45).plan_id == shown
    log = copied / f"{60:020d}.log"
    log.write_bytes(log.read_bytes() + batch(90))
    before = files_of(copied)
    with pytest.raises(TruncationError, match="the files have changed since"):
        truncate(Location.of(copied), 45, shown)
    assert files_of(copied) == before


def test_another_truncation_is_refused_until_the_first_has_ended(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt_at_the_cut(copied, monkeypatch, 45)
    with pytest.raises(TruncationError, match="a truncation to 45 was begun and not ended"):
        truncate(Location.of(copied), 20)


def test_an_interrupted_truncation_is_refused_after_another_program_wrote(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt_at_the_cut(copied, monkeypatch, 45)
    (copied / f"{70:020d}.log").write_bytes(batch(70))
    with pytest.raises(TruncationError, match="another program has changed the directory"):
        truncate(Location.of(copied), 45)


def _interrupt_at_the_cut(directory: Path, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "truncate", fail)
        with pytest.raises(KeyboardInterrupt):
            truncate(Location.of(directory), offset)
    assert (directory / JOURNAL).exists()


def test_a_truncation_that_an_older_version_began_is_refused_in_one_line(
    copied: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    _interrupt_at_the_cut(copied, monkeypatch, 45)
    _edited(copied, lambda record: record.update(format=2))
    beside = Path(journal_id_of(Location.of(copied)).path)
    as_text = json.loads((copied / JOURNAL).read_text())["content_id"]
    found = r"^[^\n]*format 2 found, expected 3; copy the partition again[^\n]*$"
    for name, content in (("with a checksum", beside.read_text()), ("a text", as_text)):
        beside.write_text(content)
        with subtests.test(name), pytest.raises(TruncationError, match=found):
            truncate(Location.of(copied), 45)
    (copied / JOURNAL).unlink()
    with pytest.raises(TruncationError, match=r"^[^\n]*is not the id of a truncation's journal"):
        truncate(Location.of(copied), 45)


def _edited(directory: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Write a journal with the right checksum, and its id beside the directory."""
    record = json.loads((directory / JOURNAL).read_text())
    edit(record)
    record = with_content_id(record)
    (directory / JOURNAL).write_text(json.dumps(record))
    beside = Path(journal_id_of(Location.of(directory)).path)
    journal_id = json.loads(beside.read_text()) | {"journal": record["content_id"]}
    beside.write_text(json.dumps(with_content_id(journal_id)))


def _is_none(directory: Path) -> None:
    (directory / JOURNAL).write_text("{}")


def _is_edited(directory: Path) -> None:
    journal = directory / JOURNAL
    journal.write_text(journal.read_text().replace('"records_cut": 50', '"records_cut": 51'))


def _is_a_link(directory: Path) -> None:
    (directory / JOURNAL).rename(directory / "elsewhere")
    (directory / JOURNAL).symlink_to("elsewhere")


def _is_without_its_id(directory: Path) -> None:
    Path(journal_id_of(Location.of(directory)).path).unlink()


def _came_with_a_copy(directory: Path) -> None:
    saved = directory.with_name("saved")
    directory.rename(saved)
    shutil.copytree(saved, directory)


def _is_of_another_partition(directory: Path) -> None:
    _edited(directory, lambda record: record.update(partition=1))


def _file(**fields: Any) -> Callable[[Path], None]:
    return lambda directory: _edited(directory, lambda record: record["files"][-1].update(fields))


WRONG_JOURNALS = [
    (_is_none, "is not the journal of a truncation"),
    (_is_edited, "the checksum is wrong"),
    (_is_a_link, "a link found, expected a file"),
    (_is_without_its_id, "has None, expected its id"),
    (_came_with_a_copy, "it was written in another directory, of orders-0"),
    (_is_of_another_partition, "it was written in another directory, of orders-1"),
    (_file(file="../../victim"), "expected the name of a file without a directory"),
    (_file(file="/tmp/victim"), "expected the name of a file without a directory"),
    (_file(file=".."), "expected the name of a file without a directory"),
    (_file(file=7), "expected the name of a file without a directory"),
    (_file(file="victim"), "write 'victim' found, which no truncation does"),
    (_file(file="victim", in_log_dir=True), "write 'victim' found, which no truncation does"),
    (_file(file="partition.metadata"), "'partition.metadata' found, which no truncation does"),
    (_file(file="7.log"), "'7.log' found, which no truncation does"),
    (_file(action="delete"), "delete 'leader-epoch-checkpoint' found, which no truncation"),
    (_file(file=f"{60:020d}.index", action="cut"), r"cut '0+60\.index' found, which no trunc"),
]


@each_case(("change", "message"), WRONG_JOURNALS)
def test_a_journal_is_believed_only_where_it_was_written(
    change: Any, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the names of a journal from elsewhere files outside of the partition were replaced."""
    copied = copy_in(tmp_path)
    _interrupt_at_the_cut(copied, monkeypatch, 45)
    for place in (copied.parent.parent / "victim", copied.parent / "victim", copied / "victim"):
        place.write_bytes(b"mine")
    change(copied)
    before = _all_files(copied.parent.parent)
    for act in (truncate, planned_or_begun):
        with pytest.raises(TruncationError, match=message) as refusal:
            act(Location.of(copied), 45)
        assert "copy the partition again, or remove the file to plan anew" in str(refusal.value)
    assert _all_files(copied.parent.parent) == before


def _empty(place: Path) -> None:
    place.touch()


def _digits(place: Path) -> None:
    place.write_text(f"{0:032x}\n")


def _link_to_an_id(place: Path) -> None:
    place.with_name("elsewhere").write_text(f"{0:032x}\n")
    place.symlink_to("elsewhere")


def _folder(place: Path) -> None:
    place.mkdir()


@each_case("make", (_empty, _digits, _link_to_an_id, _folder))
def test_a_foreign_file_with_the_name_of_a_journals_id_stays(make: Any, tmp_path: Path) -> None:
    copied = copy_in(tmp_path)
    place = Path(journal_id_of(Location.of(copied)).path)
    make(place)
    before = everything_in(copied.parent)
    for act in (truncate, planned_or_begun):
        with pytest.raises(TruncationError, match="move it away and run the command again") as no:
            act(Location.of(copied), 45)
        assert place.name in str(no.value)
    assert everything_in(copied.parent) == before


def test_a_foreign_file_with_the_name_of_a_temporary_file_stays(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, index = copied.parent, f"{30:020d}.index"
    foreign = [
        Path(temporary_of(Location.of(target)).path)
        for target in (copied / JOURNAL, copied / index, log_dir / "log-start-offset-checkpoint")
    ]
    for path in foreign:
        path.write_bytes(b"mine")
    _interrupt_at_the_cut(copied, monkeypatch, 45)
    truncate(Location.of(copied), 45)
    assert sorted(log_dir.rglob("*.tmp")) == sorted(foreign)
    assert {path.read_bytes() for path in foreign} == {b"mine"}


def _all_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_that_became_a_link_is_not_cut(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt_at_the_cut(copied, monkeypatch, 45)
    log = copied / f"{30:020d}.log"
    shutil.move(log, copied.parent / "victim")
    log.symlink_to("../victim")
    with pytest.raises(TruncationError, match="is a link or not a file"):
        truncate(Location.of(copied), 45)


def test_two_truncations_in_a_log_directory_do_not_run_at_once(copied: Path) -> None:
    import fcntl

    descriptor = os.open(copied.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(LockedError, match="another truncation works in this log directory"):
            truncate(Location.of(copied), 45)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("act", [truncate, planned_or_begun])
def test_a_truncation_inside_an_unfinished_restore_is_refused(copied: Path, act: Any) -> None:
    """The restore would then write the log's old end into the checkpoints."""
    (copied.parent / ".kip33-restore").mkdir()
    before = files_of(copied)
    with pytest.raises(LockedError, match="a restore into this log directory has not ended"):
        act(Location.of(copied), 45)
    assert files_of(copied) == before


def test_a_broker_that_holds_the_lock_refuses_it(copied: Path) -> None:
    lock = copied.parent / ".lock"
    lock.touch()
    before = files_of(copied)
    with held_by_another(lock), pytest.raises(LockedError, match="stop the broker, or use a copy"):
        truncate(Location.of(copied), 45)
    assert files_of(copied) == before
