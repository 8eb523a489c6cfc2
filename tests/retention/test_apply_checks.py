"""The checks of a plan before anything is changed, and plans that are always refused."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.draft import Draft
from kip33.errors import CatalogError, Kip33Error, LocationError, PlanError
from kip33.retention.plan import PlannedSegment, RetentionPlan, read_plan, with_plan_id, write_plan
from kip33.rules.policies import Policies
from kip33.stores.locations import Location
from tests.archive.test_broker_locks import held_by_another, is_free
from tests.builders.expiring_archive import DAY_MS, NOW_MS, A, B, ExpiringArchive
from tests.builders.forged_plans import plan_bytes
from tests.builders.snapshots import row
from tests.cases import each_case

DELETE = {"cleanup.policy": "delete"}
HOUR_MS = 3_600_000


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    return ExpiringArchive.with_two_partitions(tmp_path)


def with_basis(plan: RetentionPlan, **fields: Any) -> RetentionPlan:
    """A plan made by hand: as kip33 would have written it, had it decided so."""
    return with_plan_id(replace(plan.basis, **fields), plan.partitions)


def with_segments(
    plan: RetentionPlan, change: Callable[[tuple[PlannedSegment, ...]], Any]
) -> RetentionPlan:
    """A plan made by hand whose first partition has other segments."""
    first, *rest = plan.partitions
    segments = tuple(change(first.segments))
    return with_plan_id(plan.basis, [first._replace(segments=segments), *rest])


@contextmanager
def untouched(archive: ExpiringArchive, said: str, error: type[Kip33Error]) -> Iterator[None]:
    """Expect a refusal in one line, before anything is touched."""
    before = archive.files()
    with pytest.raises(error, match=said) as refused:
        yield
    assert "\n" not in str(refused.value)
    assert archive.files() == before
    assert not (archive.folder / "catalog/retention").exists()
    assert not (archive.folder / "trash").exists()


REFUSED_PLANS = [
    ("old", {}, {"clock": lambda: NOW_MS + 24 * HOUR_MS + 1}, "the plan is 86400001 ms old"),
    ("older than asked", {}, {"max_age_ms": 0}, "expected at most 0 ms"),
    ("future", {}, {"clock": lambda: NOW_MS - 1}, "made 1 ms in the future"),
    ("too late", {"now_ms": NOW_MS + 1}, {}, "evaluates retention at .*, which is after"),
    ("limit", {}, {"limit_bytes": 10_000}, "expected at most 10000"),
    ("no policies", {"policies": Policies()}, {}, "keep everything"),
    (
        "no cleanup.policy",
        {"policies": Policies({"defaults": {"retention.ms": "7d"}})},
        {},
        "orders: no cleanup.policy",
    ),
    (
        "other policies",
        {"policies": Policies({"defaults": DELETE | {"retention.ms": "8d"}})},
        {},
        r"has another result for 2 planned segments: .*b1/.*300.log is kept "
        r"\(not_expired\), .*b2/",
    ),
    (
        "another time",
        {"now_ms": NOW_MS - 2 * DAY_MS},
        {},
        r"has another result for 4 planned segments: .*200.log is kept .* and 1 more; "
        r"make another",
    ),
]


@each_case(("name", "basis", "how", "said"), REFUSED_PLANS)
@each_case("dry_run", (False, True))
def test_a_plan_is_refused(
    name: str, basis: Any, how: Any, said: str, dry_run: bool, tmp_path: Path
) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path / f"{name} {dry_run}")
    plan = with_basis(archive.plan(), **basis)
    with untouched(archive, said, PlanError):
        archive.apply(plan, dry_run=dry_run, **how)


def test_a_plan_at_the_limits_is_accepted(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    at_ms = NOW_MS + HOUR_MS
    how = {"max_age_ms": HOUR_MS, "limit_bytes": plan.size_bytes, "clock": lambda: at_ms}
    assert archive.apply(plan, **how).stopped == 0


NEWER_ROWS = [
    ({"status": "truncated"}, "is kept (truncated)"),
    ({"status": "unverified"}, "is unverified"),
    ({"largest_timestamp": None}, "is kept (no_timestamp)"),
    ({"largest_timestamp": NOW_MS}, "is kept (not_expired)"),
    ({"largest_timestamp_source": "last_modified"}, "has no timestamps"),
    ({"size_bytes": 7}, "has changed"),
    ({"last_modified_ms": 7}, "has changed"),
    ({"base_offset": 201}, "has changed"),
    ({"index_file": "kept"}, "has other index files"),
    ({"index_uri": "file:///elsewhere/b1/orders-0/2.timeindex"}, "has other index files"),
]


@each_case(("fields", "said"), NEWER_ROWS)
def test_a_newer_snapshot_judges_differently(fields: Any, said: str, tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    plan = archive.plan()
    archive.rows[archive.log(200)] |= fields
    archive.snapshot()
    with untouched(archive, r"another result for \d planned segments?: ", PlanError):
        archive.apply(plan)
    with pytest.raises(PlanError) as refused:
        archive.apply(plan)
    assert f"{archive.log(200).as_uri()} {said}" in str(refused.value)


def test_a_newer_snapshot_could_not_list_everything(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    fields = dict.fromkeys(("topic", "partition", "base_offset", "size_bytes"), None)
    above = (archive.source / "b2").as_uri()
    archive.snapshot(row(0) | fields | {"log_uri": above, "status": "unreadable"})
    with untouched(archive, f"4 planned segments: {above} could not be", PlanError):
        archive.apply(plan)


def test_a_newer_snapshot_that_judges_the_same(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    archive.segment(A, 500, age_days=0)
    archive.partition("b3/orders-0", 3, expired=3)
    archive.snapshot()
    assert archive.apply(plan).stopped == 0


@each_case("path", (A, B))
def test_a_plan_made_by_hand_cannot_take_the_active_segment(path: Any, tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    kafka = archive.plan(active_segment="kafka", now_ms=NOW_MS)
    archive.rows[archive.log(400, path)]["largest_timestamp"] = 0
    archive.snapshot()
    plan = archive.plan(active_segment="kafka")
    assert plan.segments == kafka.segments + 1
    with untouched(archive, r"400.log is kept \(active_segment\)", PlanError):
        archive.apply(with_basis(plan, active_segment="keep"))


def test_a_catalog_of_another_source(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    shutil.rmtree(archive.folder / "catalog")
    Draft.begin(archive.catalog, Location.of("/else")).commit([], settings={}, now_ms=NOW_MS)
    with untouched(archive, "describes file:///else, but the plan is for file://", CatalogError):
        archive.apply(plan)


def test_the_catalog_was_deleted(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    shutil.rmtree(archive.folder / "catalog")
    with untouched(archive, "no committed snapshot found", CatalogError):
        archive.apply(plan)


WRONG_TRASHES = [
    ("archive/trash", "inside SOURCE"),
    ("archive", "inside SOURCE"),
    ("indexes/trash", "inside the index directory"),
    ("catalog/trash", "inside the catalog"),
    ("link/trash", "inside SOURCE"),
    ("s3a://bucket/trash", "expected a trash on the same store as file:///"),
]


@each_case(("trash", "said"), WRONG_TRASHES)
def test_a_trash_in_the_wrong_place(trash: str, said: str, tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    (archive.folder / "link").symlink_to(archive.source / "b1")
    place = Location.of(trash if "://" in trash else archive.folder / trash)
    with untouched(archive, said, PlanError):
        archive.apply(archive.plan(), trash=place)


def test_a_trash_in_another_brokers_log_directory(archive: ExpiringArchive) -> None:
    log_dir = archive.folder / "another broker"
    log_dir.mkdir()
    (log_dir / "meta.properties").touch()
    with untouched(archive, "the trash is inside the log directory", LocationError):
        archive.apply(archive.plan(), trash=Location.of(log_dir / "trash"))


def test_a_trash_or_journal_that_cannot_be_made(archive: ExpiringArchive) -> None:
    plan = archive.plan()
    before = archive.files()
    (archive.folder / "file").write_text("")
    with pytest.raises(LocationError, match="the trash cannot be created"):
        archive.apply(plan, trash=Location.of(archive.folder / "file/trash"))
    shutil.rmtree(archive.folder / "catalog/retention")
    (archive.folder / "catalog/retention").write_text("")
    with pytest.raises(LocationError, match="the journal cannot be created"):
        archive.apply(plan)
    assert archive.files() == before


def test_segments_that_no_snapshot_knows(archive: ExpiringArchive) -> None:
    log = archive.segment(A, 350)
    archive.rows[log]["largest_timestamp"] = 0
    archive.snapshot()
    plan = archive.plan()
    del archive.rows[log]
    archive.snapshot()
    applied = archive.apply(plan)
    first = applied.partitions[0]
    assert (first.outcome, first.segments_deleted, first.stopped_at) == ("stopped", 4, 350)
    assert first.why == f"{log.as_uri()}: exists, but is not in the newest snapshot"
    assert log.exists()


def test_a_plan_that_would_leave_a_gap(archive: ExpiringArchive) -> None:
    plan = with_segments(archive.plan(), lambda segments: segments[1:])
    before = archive.files()
    first = archive.apply(plan).partitions[0]
    assert (first.outcome, first.segments_deleted, first.stopped_at) == ("stopped", 0, 100)
    assert (
        first.why == f"{archive.log(0).as_uri()}: the segment is not in the plan, "
        "but older than a segment of the plan"
    )
    assert {path for path in before if path.startswith(f"archive/{A}")} <= archive.files().keys()


Forge = Callable[[list[dict[str, Any]]], object]


FORGED_PLANS = [
    (
        lambda lines: lines[2]["files"][0].update(uri="file:///etc/00000000000000000000.log"),
        "not a file of", "a file elsewhere",
    ),
    (
        lambda lines: lines[2]["files"][0].update(uri=lines[3]["files"][0]["uri"]),
        "not a file of", "a file of another segment",
    ),
    (
        lambda lines: lines[2]["files"].pop(0), "expected the log first", "without the log"
    ),
    (
        lambda lines: lines.__setitem__(slice(2, 4), lines[3:1:-1]),
        "not in order of their offsets", "not in order of their offsets",
    ),
    (
        lambda lines: lines.insert(-1, lines[1]), "appears twice", "a partition twice"
    ),
    (
        lambda lines: lines.pop(1), "has no line of its partition", "no partition"
    ),
    (
        lambda lines: lines[1].update(directory="file:///etc/orders-0"),
        "not a directory of orders-0 below SOURCE", "a directory elsewhere",
    ),
    (
        lambda lines: lines[1].update(
            directory=f"{lines[0]['source']}/b1/../../b1/orders-0", log_dir="b1/../../b1"
        ),
        "not a path of plain names", "a directory above",
    ),
    (
        lambda lines: lines[1].update(index_directory="file:///etc"),
        "not an index directory of", "an index directory elsewhere",
    ),
    (
        lambda lines: lines[1].update(
            index_directory=f"{lines[0]['index_dir']}/../../etc/b1/orders-0"
        ),
        "not an index directory of", "an index directory above",
    ),
    (
        lambda lines: lines[0].update(active_segment="delete"), "unknown", "judged oddly"
    ),
    (
        lambda lines: lines[0]["policies"].update(defaults={"x": 1}), "not a topic setting",
        "policies that Kafka has not",
    ),
    (
        lambda lines: lines[2].pop("base_offset"), "not written by kip33", "a key less"
    ),
    (
        lambda lines: lines.__setitem__(2, []), "not written by kip33", "no object"
    ),
]  # fmt: skip


@each_case(("forge", "said", "name"), FORGED_PLANS)
def test_what_kip33_does_not_write_is_not_read(
    forge: Any, said: str, name: str, archive: ExpiringArchive
) -> None:
    place = Location.of(archive.folder / "plan.jsonl")
    write_plan(archive.plan(), place)
    lines = [json.loads(line) for line in Path(place.path).read_text().splitlines()]
    forge(lines)
    Path(place.path).write_bytes(plan_bytes(lines))
    with pytest.raises(PlanError, match=said) as refused:
        read_plan(place)
    assert "\n" not in str(refused.value)


def lock_of(archive: ExpiringArchive, log_dir: str = "b2") -> Path:
    lock = archive.source / log_dir / ".lock"
    lock.touch()
    return lock


@each_case("dry_run", [False, True])
def test_a_log_directory_of_a_broker_that_runs(dry_run: bool, tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    says = "b2/.lock: a broker or another run of kip33 holds the lock"
    with held_by_another(lock_of(archive)), untouched(archive, says, PlanError):
        archive.apply(archive.plan(), dry_run=dry_run)
    assert archive.apply(archive.plan()).stopped == 0, "a lock that nobody holds is none"


def test_a_log_directory_that_loses_nothing_may_be_locked(archive: ExpiringArchive) -> None:
    archive.partition("b3/calm-0", 3, expired=0)
    archive.snapshot()
    with held_by_another(lock_of(archive, "b3")):
        assert archive.apply(archive.plan()).stopped == 0


@pytest.mark.parametrize("dry_run", [False, True])
def test_no_broker_starts_while_a_plan_is_applied(archive: ExpiringArchive, dry_run: bool) -> None:
    lock, free = lock_of(archive), list[bool]()
    archive.apply(archive.plan(), on_record=lambda _: free.append(is_free(lock)), dry_run=dry_run)
    assert free == [dry_run] * 16, "a dry run keeps nobody out"
    assert is_free(lock)
