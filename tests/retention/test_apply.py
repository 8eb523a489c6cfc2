"""Carry out a plan: deleted files, reasons to stop a partition, the journal."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip33.archive.segment_paths import PlannedFile
from kip33.retention.apply import PartitionResult
from kip33.retention.apply_segment import SegmentStep
from kip33.retention.plan import RetentionPlan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import A, B, ExpiringArchive, event
from tests.cases import each_case


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    return ExpiringArchive.with_two_partitions(tmp_path)


def test_only_planned_files_are_deleted(archive: ExpiringArchive) -> None:
    plan, before = archive.plan(), archive.files()
    applied = archive.apply(plan)
    after = archive.files()
    assert before.keys() - after.keys() == archive.planned_files(plan)
    assert after.items() <= before.items()
    sizes = sum(len(before[path]) for path in archive.planned_files(plan))
    assert (applied.segments_deleted, applied.bytes_deleted, applied.stopped) == (8, sizes, 0)
    logs = sum(len(before[path]) for path in archive.planned_files(plan) if path.endswith(".log"))
    done = ("done", None, None, False, logs // 2)
    assert applied.partitions == (
        PartitionResult("b1", "orders", 0, 4, 4, 0, sizes // 2, *done),
        PartitionResult("b2", "orders", 0, 4, 4, 0, sizes // 2, *done),
    )
    assert applied.log_bytes_deleted == plan.log_bytes == logs
    assert (applied.plan_id, applied.trash, applied.dry_run) == (plan.plan_id, None, False)


def test_the_order_of_deletions(archive: ExpiringArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, events = archive.plan(), []
    remove = SegmentStep._remove

    def watched(step: SegmentStep, file: PlannedFile) -> None:
        events.append(file.place.uri)
        remove(step, file)

    monkeypatch.setattr(SegmentStep, "_remove", watched)
    archive.apply(plan, threads=1, on_record=lambda record: events.append(event(record)))
    expected = []
    for partition in plan.partitions:
        for segment in partition.segments:
            step = f"{partition.log_dir} {segment.base_offset}"
            files = [file.place.uri for file in segment.files]
            expected += [f"intent {step}", *files, f"deleted {step}"]
    assert events == expected
    assert [uri.rpartition(".")[2] for uri in expected[1:8]] == [
        "log", "index", "index", "timeindex", "timeindex", "txnindex", "snapshot",
    ]  # fmt: skip


def test_the_journal(archive: ExpiringArchive) -> None:
    plan, told = archive.plan(), []
    applied = archive.apply(plan, on_record=told.append)
    objects = archive.journal(plan)
    records = [json.loads(path.read_text()) for path in objects]
    assert sorted(map(json.dumps, records)) == sorted(map(json.dumps, told))
    assert Location.of(objects[0].parents[2]).uri == applied.journal
    assert [path.name for path in objects[:2]] == [
        f"{0:020d}-{applied.run_id}-deleted.json",
        f"{0:020d}-{applied.run_id}-intent.json",
    ]
    result, intent = records[:2]
    files = [file["uri"] for file in intent["files"]]
    assert [uri.rpartition(".")[2] for uri in files] == [
        "log", "index", "index", "timeindex", "timeindex", "txnindex", "snapshot",
    ]  # fmt: skip
    assert result.pop("files") == intent.pop("files")
    assert intent.pop("at_ms") < result.pop("at_ms")
    assert intent == {
        "kind": "intent", "plan_id": plan.plan_id, "run_id": applied.run_id, "log_dir": "b1",
        "topic": "orders", "partition": 0, "base_offset": 0, "outcome": None, "why": None,
        "trash": None, "dry_run": False,
    }  # fmt: skip
    assert result == intent | {"kind": "result", "outcome": "deleted"}
    assert {type(one[name]) for one in told for name in ("kind", "outcome")} == {str, type(None)}


def test_a_dry_run_reports_the_same_and_changes_nothing(archive: ExpiringArchive) -> None:
    shutil.rmtree(archive.source / B)
    plan = archive.plan()
    before, dry, real = archive.files(), [], []
    tried = archive.apply(plan, dry_run=True, threads=1, on_record=dry.append)
    assert archive.files() == before
    assert not (archive.folder / "catalog/retention").exists()
    done = archive.apply(plan, threads=1, on_record=real.append)
    assert (tried.dry_run, tried.partitions) == (True, done.partitions)
    own = {"run_id": None, "dry_run": None}
    assert [one | own for one in dry] == [one | own for one in real]
    assert {(one["dry_run"], one["run_id"]) for one in dry} == {(True, tried.run_id)}


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DIFFERENCES = [
    (
        lambda a: a.rewrite(a.log(200), size=1), 2, "200.log: 441 bytes found, the plan",
        "another size",
    ),
    (
        lambda a: os.utime(a.log(200), ns=(0, a.log(200).stat().st_mtime_ns + 1)), 2,
        "200.log: modified at", "a nanosecond later",
    ),
    (
        lambda a: a.rewrite(a.index_dir / A / f"{200:020d}.index", size=4), 2,
        "200.index: 464 bytes", "another index in the index directory",
    ),
    (
        lambda a: a.log(200).unlink(), 2, "200.log: is missing, but this plan did",
        "the log is gone",
    ),
    (
        lambda a: a.log(200).with_suffix(".timeindex").unlink(), 2,
        "200.timeindex: is missing, but this plan did not delete it", "an index is gone",
    ),
    (
        lambda a: replace_by_directory(a.log(200).with_suffix(".index")), 2,
        "200.index: is not a file", "a directory instead",
    ),
    (
        lambda a: a.write(a.log(200).with_name("200.log")), 2,
        "/200.log: is not in the plan", "another log of the same offset",
    ),
    (
        lambda a: a.write(a.log(150)), 0, "150.log: the segment is not in the plan",
        "a log between",
    ),
    (
        lambda a: a.write(a.log(100).with_suffix(".log.swap")), 0, "contains a .log.swap",
        "a swap",
    ),
    (
        lambda a: a.log(400).unlink(), 0,
        "400.log: the first segment that the plan keeps is missing", "nothing would stay",
    ),
    (
        lambda a: shutil.rmtree(a.source / A), 0, "that the plan keeps is missing",
        "the directory is gone",
    ),
]  # fmt: skip


@each_case(("change", "deleted", "said", "name"), DIFFERENCES)
def test_a_difference_stops_its_partition_and_no_other(
    change: Any, deleted: int, said: str, name: str, tmp_path: Path
) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan = archive.plan()
    change(archive)
    before, told = archive.files(), []
    applied = archive.apply(plan, on_record=told.append)
    first, second = applied.partitions
    assert (first.outcome, first.segments_deleted) == ("stopped", deleted)
    assert first.stopped_at == deleted * 100
    assert said in (first.why or "")
    assert (second.outcome, second.segments_deleted) == ("done", 4)
    assert applied.stopped == 1
    assert told.count(stopped := next(t for t in told if t["why"])) == 1
    assert (stopped["outcome"], stopped["why"], stopped["files"]) == ("stopped", first.why, [])
    assert stopped["base_offset"] == first.stopped_at
    gone = before.keys() - archive.files().keys()
    segments = plan.partitions[0].segments[:deleted]
    assert {path for path in gone if A in path} == {
        path
        for path in archive.planned_files(plan)
        if A in path and any(f"/{segment.log.name[:20]}." in path for segment in segments)
    }
    assert archive.apply(plan).partitions[0]._replace(segments_deleted=deleted) == first._replace(
        segments_gone_already=deleted, bytes_deleted=0, log_bytes_deleted=0
    ), "it stays stopped"


def test_a_file_that_is_not_of_the_segment_is_left(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    others = [archive.log(200).with_suffix(suffix) for suffix in (".log.deleted", ".inline.index")]
    others.append(archive.index_dir / A / f"{200:020d}.txnindex")
    for other in others:
        archive.write(other)
    assert archive.apply(plan).stopped == 0
    assert all(other.exists() for other in others)


class _Interrupt(BaseException):
    """What a test raises in the middle of an apply."""


def apply_until(archive: ExpiringArchive, plan: RetentionPlan, last: str, **how: Any) -> None:
    """Apply a plan up to one record of the journal."""

    def interrupt(record: dict[str, Any]) -> None:
        if event(record) == last:
            raise _Interrupt

    with pytest.raises(_Interrupt):
        archive.apply(plan, on_record=interrupt, threads=1, **how)


@each_case("last", ("intent b1 100", "deleted b1 100", "intent b2 300"))
@each_case("snapshot_between", (False, True))
def test_an_interrupted_apply_is_continued(
    last: str, snapshot_between: bool, tmp_path: Path
) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path / f"{last} {snapshot_between}")
    plan, before = archive.plan(), archive.files()
    apply_until(archive, plan, last)
    if snapshot_between:
        archive.snapshot()
    left = archive.files()
    applied = archive.apply(plan)
    after = archive.files()
    assert before.keys() - after.keys() == archive.planned_files(plan)
    assert after.items() <= before.items()
    assert applied.stopped == 0
    assert applied.bytes_deleted == sum(len(left[path]) for path in left.keys() - after.keys())
    done = [one.segments_deleted + one.segments_gone_already for one in applied.partitions]
    assert done == [4, 4]


def test_files_left_of_a_segment_whose_log_was_deleted(archive: ExpiringArchive) -> None:
    plan, told = archive.plan(), []
    apply_until(archive, plan, "intent b1 100")
    archive.log(100).unlink()
    archive.log(100).with_suffix(".index").unlink()
    first = archive.apply(plan, on_record=told.append).partitions[0]
    assert (first.outcome, first.segments_deleted, first.segments_gone_already) == ("done", 2, 2)
    [result] = [one for one in told if event(one) == "gone_already b1 100"]
    assert len(result["files"]) == 5
    assert not list((archive.source / A).glob(f"{100:020d}.*"))


def test_a_file_left_of_a_segment_has_changed(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    apply_until(archive, plan, "intent b1 100")
    archive.log(100).unlink()
    archive.rewrite(archive.log(100).with_suffix(".index"), size=1)
    first = archive.apply(plan).partitions[0]
    assert (first.outcome, first.stopped_at) == ("stopped", 100)
    assert "100.index: 461 bytes" in (first.why or "")
    assert archive.log(200).exists()


@each_case("base_offset", (0, 300))
def test_a_log_that_came_back(base_offset: int, tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan, log = archive.plan(), archive.log(base_offset)
    shutil.copytree(archive.source, archive.folder / "copy")
    archive.apply(plan)
    shutil.copy2(archive.folder / "copy" / log.relative_to(archive.source), log)
    first, second = archive.apply(plan).partitions
    assert (first.outcome, first.stopped_at, second.outcome) == ("stopped", base_offset, "done")
    assert log.exists()


def test_a_stop_before_any_deletion_proves_nothing_later(archive: ExpiringArchive) -> None:
    """A log that somebody deletes after this plan refused to is not taken for one of ours."""
    plan, log = archive.plan(), archive.log(100)
    archive.rewrite(log, size=1)
    assert archive.apply(plan).stopped == 1
    log.unlink()
    first = archive.apply(plan).partitions[0]
    assert (first.stopped_at, first.why) == (
        100,
        f"{log.as_uri()}: is missing, but this plan did not delete it",
    )


def at(
    last: str, do: Callable[[], object], told: list[dict[str, Any]] | None = None
) -> Callable[[dict[str, Any]], None]:
    """Return an `on_record` that keeps the journal's records, and does something at one of them."""

    def watch(record: dict[str, Any]) -> None:
        if told is not None:
            told.append(record)
        if event(record) == last:
            do()

    return watch


CHANGES = [
    (
        "rewrite", ".log", 7, "bytes found, the plan says", "bytes found, the plan says",
        "the log has changed",
    ),
    (
        "rewrite", ".snapshot", 1, "bytes found, the plan says", "bytes found, the plan says",
        "the last file has changed",
    ),
    (
        "unlink", ".log", 6, "was deleted meanwhile, but not by this plan",
        "is missing, but this plan did not delete it", "somebody deleted the log",
    ),
    (
        "unlink", ".timeindex", 3, "was deleted meanwhile, but not by this plan", None,
        "somebody deleted an index behind the log",
    ),
]  # fmt: skip


@each_case(("change", "suffix", "left", "why", "later", "name"), CHANGES)
def test_a_change_between_intent_and_deletion(
    change: str, suffix: str, left: int, why: str, later: str | None, name: str, tmp_path: Path
) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan, file, told = archive.plan(), archive.log(100).with_suffix(suffix), []
    do = partial(archive.rewrite, file, size=1) if change == "rewrite" else file.unlink
    first = archive.apply(plan, on_record=at("intent b1 100", do, told)).partitions[0]
    assert (first.outcome, first.segments_deleted, first.stopped_at) == ("stopped", 1, 100)
    assert first.why
    assert first.why.startswith(file.as_uri())
    assert why in first.why
    still = [path for path in archive.files() if A in path and f"/{100:020d}." in path]
    assert len(still) == left
    [result] = [one for one in told if one["why"]]
    assert result["outcome"] == ("stopped" if suffix == ".log" else "incomplete")
    assert len(result["files"]) == 7 - left - (change == "unlink")
    assert archive.log(200).exists()

    again = archive.apply(plan).partitions[0]
    assert (again.why is None) == (later is None)
    assert (later or "") in (again.why or "")


def test_an_interrupt_lets_every_partition_end_its_segment_and_no_more(
    archive: ExpiringArchive,
) -> None:
    for number in range(2):
        archive.partition(f"a/many-{number}", 31, expired=30)
    archive.snapshot()
    plan, told = archive.plan(), []

    def interrupt(record: dict[str, Any]) -> None:
        told.append(event(record))
        if len(told) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.apply(plan, on_record=interrupt)
    assert len(told) < 120, "of two partitions with 60 each"
    assert archive.apply(plan).stopped == 0
    assert not archive.planned_files(plan) & archive.files().keys()


FORGED_RECORDS = {
    "no keys": lambda record: record.clear(),
    "another plan": lambda record: record.update(plan_id="0" * 32),
    "another run": lambda record: record.update(run_id="0" * 12),
    "another partition": lambda record: record.update(log_dir="b2"),
    "another segment": lambda record: record.update(base_offset=100),
    "a dry run": lambda record: record.update(dry_run=True),
    "no files": lambda record: record.update(files=None),
    "a file elsewhere": lambda record: record["files"][0].update(uri="file:///etc/passwd"),
}


@each_case("forge", FORGED_RECORDS)
def test_an_object_that_no_apply_put_stops_its_partition(forge: Any, tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan = archive.plan()
    apply_until(archive, plan, "intent b1 0")
    intent = archive.journal(plan)[0]
    archive.log(0).unlink()  # with the intent, the rest of the segment may be deleted
    record = json.loads(intent.read_text())
    forge(record)
    intent.write_text(json.dumps(record))
    before = archive.files()

    first, second = archive.apply(plan).partitions

    assert (first.outcome, first.segments_deleted, first.refused) == ("stopped", 0, True)
    assert (first.why or "").startswith(f"{intent.as_uri()}: not an object that an apply of plan ")
    assert {path for path in before if A in path} <= archive.files().keys()
    assert second.outcome == "done"
