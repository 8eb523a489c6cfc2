"""A retention plan: its segments, where it ends and why, and its file."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip33.errors import PlanError, PublishError
from kip33.retention.plan import PlannedPartition, RetentionPlan, read_plan, write_plan
from kip33.rules.policies import Policies
from kip33.stores.locations import Location
from tests.builders.expiring_archive import DAY_MS, KINDS, NOW_MS, ExpiringArchive
from tests.builders.snapshots import row
from tests.cases import each_case

A, B = "b1/orders-0", "b2/orders-0"
DELETE = {"cleanup.policy": "delete"}


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    return ExpiringArchive(tmp_path)


def only(plan: RetentionPlan) -> PlannedPartition:
    [partition] = plan.partitions
    return partition


def offsets(partition: PlannedPartition) -> list[int]:
    return [segment.base_offset for segment in partition.segments]


def why(partition: PlannedPartition) -> str:
    assert partition.left_out
    return partition.left_out.why


def test_the_oldest_run_of_each_partition(archive: ExpiringArchive) -> None:
    archive.partition(A, 6, expired=4)
    archive.partition("b2/orders-0", 5, expired=5)  # all expired: the last is the active one
    archive.partition("b1/calm-0", 3, expired=0)
    snapshot = archive.snapshot()
    plan = archive.plan()
    assert [partition.key for partition in plan.partitions] == [
        ("b1", "orders", 0),
        ("b2", "orders", 0),
    ]
    assert [offsets(one) for one in plan.partitions] == [[0, 100, 200, 300]] * 2
    assert [one.first_kept_base_offset for one in plan.partitions] == [400, 400]
    assert [one.left_out for one in plan.partitions] == [None, None]
    assert plan.basis.snapshot == snapshot.name
    segment = plan.partitions[0].segments[0]
    assert (segment.reason, segment.largest_timestamp_source) == ("retention_ms", "log")
    assert segment.expires_at_ms == segment.largest_timestamp + 7 * DAY_MS + 1


def test_files_are_in_kafkas_order_with_their_current_state(archive: ExpiringArchive) -> None:
    log = archive.segment(A, 0, kinds=KINDS)
    archive.segment(A, 100)
    for name in ("leader-epoch-checkpoint", f"{0:020d}.log.deleted"):
        archive.write(log.with_name(name))
    archive.write(archive.index_dir / A / f"{0:020d}.txnindex")  # no build wrote it
    archive.snapshot()
    plan = archive.plan()
    partition = only(plan)
    [segment] = partition.segments
    places = [Path(file.place.path) for file in segment.files]
    stem = f"{A}/{0:020d}"
    assert [str(place.relative_to(archive.folder)) for place in places] == [
        f"archive/{stem}.log",
        f"archive/{stem}.index",
        f"indexes/{stem}.index",
        f"archive/{stem}.timeindex",
        f"indexes/{stem}.timeindex",
        f"archive/{stem}.txnindex",
        f"archive/{stem}.snapshot",
    ]
    for file, place in zip(segment.files, places, strict=True):
        stat = place.stat()
        assert (file.size_bytes, file.last_modified_ns) == (stat.st_size, stat.st_mtime_ns)
    assert plan.totals.record() == {
        "partitions": 1,
        "segments": 1,
        "bytes": sum(place.stat().st_size for place in places),
        "left_out_segments": 0,
        "left_out_bytes": 0,
    }


INDEX_FILES = {
    "both are ours": (("timeindex", "index"), {}, 5),
    "one is ours": (("timeindex",), {}, 4),
    "each kind that builds write": (("timeindex", "index", "txnindex"), {}, 6),
    "somebody else's": (("timeindex",), {"index_file": "kept"}, 3),
    "none was written": ((), {}, 3),
}


@each_case(("index_kinds", "fields", "planned"), INDEX_FILES)
def test_our_index_files_are_deleted_with_the_log(
    index_kinds: Any, fields: Any, planned: int, tmp_path: Path
) -> None:
    archive = ExpiringArchive(tmp_path)
    log = archive.segment(A, 0, index_kinds=index_kinds)
    archive.rows[log] |= fields
    archive.segment(A, 100)
    archive.snapshot()
    [segment] = only(archive.plan()).segments
    assert len(segment.files) == planned


def test_an_index_beside_the_log_is_planned_once(archive: ExpiringArchive) -> None:
    archive.index_dir = archive.source
    archive.segment(A, 0)
    archive.segment(A, 100)
    archive.snapshot()
    partition = only(archive.plan())
    assert [file.name[20:] for file in partition.segments[0].files] == [
        ".log",
        ".index",
        ".timeindex",
    ]
    assert partition.index_directory is None


NOT_PLANNED = {
    "unverified": ({"status": "unverified"}, [0], "is unverified"),
    "mtime": (
        {"largest_timestamp_source": "last_modified"},
        [0],
        "only its file's modification time",
    ),
    "size": ({"size_bytes": 1}, [0], "differs from the snapshot"),
    "time": ({"last_modified_ms": 1}, [0], "differs from the snapshot"),
    "the index is another's": ({"time_index_bytes": 1}, [0], "has changed since the build"),
}


@each_case(("damage", "planned", "said"), NOT_PLANNED)
def test_a_plan_ends_before_a_row_that_may_not_be_planned(
    damage: Any, planned: Any, said: str, tmp_path: Path
) -> None:
    archive = ExpiringArchive(tmp_path)
    logs = archive.partition(A, 5, expired=5)
    archive.rows[logs[1]] |= damage
    archive.snapshot()
    partition = only(archive.plan())
    assert offsets(partition) == planned
    assert said in why(partition)
    assert logs[1].as_uri().removesuffix(".log") in why(partition).replace(
        archive.index_dir.as_uri(), archive.source.as_uri()
    )
    assert partition.left_out
    assert partition.left_out.segments == 3
    assert partition.left_out.log_bytes == sum(archive.rows[log]["size_bytes"] for log in logs[1:4])
    assert partition.first_kept_base_offset == 100


def test_modification_times_are_taken_when_trusted(archive: ExpiringArchive) -> None:
    archive.partition(A, 3, expired=3, largest_timestamp_source="last_modified")
    archive.snapshot()
    assert offsets(only(archive.plan())) == []
    assert offsets(only(archive.plan(trust_last_modified=True))) == [0, 100]


OTHER_DIRECTORIES = [
    (
        lambda a, logs: a.write(logs[0].with_name(f"{50:020d}.log")),
        [0], 50, "50.log is not in the snapshot, but older", "an unknown log between",
    ),
    (
        lambda a, logs: a.write(logs[0].with_name("100.log")),
        [0], 100, "100.log differs from the snapshot", "a second log of one offset",
    ),
    (
        lambda a, logs: logs[1].unlink(),
        [0], 200, "100.log was deleted after", "a log is gone",
    ),
    (
        lambda a, logs: logs[0].unlink(),
        [], 100, "0.log was deleted after", "the oldest is gone",
    ),
    (
        lambda a, logs: a.write(logs[1].with_name(logs[1].name + ".swap")),
        [0], 100, "contains a .log.swap", "a swap",
    ),
    (
        lambda a, logs: logs[1].rename(logs[1].with_suffix(".old")) and logs[1].mkdir(),
        [0], 200, "100.log was deleted after", "a directory of a log's name",
    ),
    (
        lambda a, logs: logs[1].parent.rename(logs[1].parent.with_name("away-0")),
        [], None, "cannot be listed", "the directory is gone",
    ),
]  # fmt: skip


@each_case(("change", "planned", "kept", "said", "name"), OTHER_DIRECTORIES)
def test_a_plan_ends_where_the_directory_is_not_as_the_snapshot_has_it(
    change: Any, planned: Any, kept: int | None, said: str, name: str, tmp_path: Path
) -> None:
    archive = ExpiringArchive(tmp_path)
    logs = archive.partition(A, 5, expired=5)
    archive.snapshot()
    change(archive, logs)
    partition = only(archive.plan())
    assert offsets(partition) == planned
    assert partition.first_kept_base_offset == kept
    assert said in why(partition)


def test_an_index_directory_that_cannot_be_listed(archive: ExpiringArchive) -> None:
    archive.partition(A, 3, expired=3)
    archive.snapshot()
    directory = archive.index_dir / A
    directory.rename(directory.with_name("away"))
    assert len(only(archive.plan()).segments[0].files) == 3  # none of ours is there
    directory.write_text("a file")
    partition = only(archive.plan())
    assert partition.segments == ()
    assert "cannot be listed" in why(partition)


def test_index_files_in_two_directories(archive: ExpiringArchive) -> None:
    logs = archive.partition(A, 3, expired=3)
    uri = archive.rows[logs[1]]["index_uri"]
    archive.rows[logs[1]]["index_uri"] = uri.replace("/indexes/", "/older/")
    archive.snapshot()
    partition = only(archive.plan())
    assert offsets(partition) == [0]
    assert "/older/b1/orders-0" in why(partition)


def test_below_a_directory_that_could_not_be_listed(archive: ExpiringArchive) -> None:
    archive.partition(A, 3, expired=3)
    archive.partition("b2/orders-0", 3, expired=3)
    fields = dict.fromkeys(("topic", "partition", "base_offset", "size_bytes"), None)
    above = (archive.source / "b1").as_uri()
    archive.snapshot(row(0) | fields | {"log_uri": above, "status": "unreadable"})
    first, second = archive.plan().partitions
    assert (first.segments, offsets(second)) == ((), [0, 100])
    assert why(first) == f"{above} could not be listed, so segments may be missing"


def test_sources_that_are_partitions_and_names_that_are_quoted(tmp_path: Path) -> None:
    archive = ExpiringArchive(tmp_path)
    archive.source = tmp_path / "archive/a b%20#?-c/orders-0"
    archive.index_dir = tmp_path / "indexes/ü"
    archive.partition("b 1/orders-0", 3, expired=3)
    archive.snapshot()
    plan = archive.plan()
    write_plan(plan, Location.of(tmp_path / "plan.jsonl"))
    assert read_plan(Location.of(tmp_path / "plan.jsonl")) == plan
    assert len(archive.planned_files(plan)) == 10
    applied = archive.apply(plan)
    assert (applied.segments_deleted, applied.stopped) == (2, 0)


def test_a_source_that_is_a_partition(tmp_path: Path) -> None:
    archive = ExpiringArchive(tmp_path)
    logs = [archive.segment("orders-0", number * 100) for number in range(3)]
    archive.source, archive.index_dir = archive.source / "orders-0", archive.index_dir / "orders-0"
    archive.snapshot()
    plan = archive.plan()
    assert only(plan).below(plan.basis.source) == ""
    write_plan(plan, Location.of(tmp_path / "plan.jsonl"))
    assert read_plan(Location.of(tmp_path / "plan.jsonl")) == plan
    assert archive.apply(plan, trash=Location.of(tmp_path / "trash")).segments_deleted == 2
    assert [log.exists() for log in logs] == [False, False, True]
    assert (tmp_path / "trash" / plan.plan_id / "segments" / logs[0].name).exists()
    assert len(archive.journal(plan)) == 4


def test_only_topics_that_match(archive: ExpiringArchive) -> None:
    for topic in ("orders", "clicks", "clock"):
        archive.partition(f"b1/{topic}-0", 2, expired=2)
    archive.snapshot()
    plan = archive.plan(topics=["cl*"])
    assert [one.topic for one in plan.partitions] == ["clicks", "clock"]


def test_log_start_offsets_are_used_and_kept(archive: ExpiringArchive) -> None:
    archive.partition(A, 4, expired=0)
    archive.snapshot()
    assert archive.plan().partitions == ()
    plan = archive.plan(log_start_offsets={("b1", "orders", 0): 250})
    assert offsets(only(plan)) == [0, 100]
    assert only(plan).log_start_offset == 250
    assert archive.apply(plan).segments_deleted == 2


def test_nothing_to_delete_is_a_plan(archive: ExpiringArchive, tmp_path: Path) -> None:
    archive.partition(A, 3, expired=0)
    archive.snapshot()
    plan = archive.plan()
    assert (plan.segments, plan.size_bytes, plan.partitions) == (0, 0, ())
    write_plan(plan, Location.of(tmp_path / "plan.jsonl"))
    assert archive.apply(read_plan(Location.of(tmp_path / "plan.jsonl"))).partitions == ()


REFUSED_POLICIES = [
    (
        {"defaults": {"retention.ms": "7d"}},
        "clicks, orders: no cleanup.policy",
        "no topic has a cleanup.policy",
    ),
    (
        {"defaults": {"retention.ms": "7d"}, "topics": {"orders": DELETE}},
        "clicks: no cleanup.policy",
        "one has none",
    ),
    ({}, "the policies keep everything", "no policies"),
    (
        {"defaults": DELETE}, "the policies keep everything", "no limit"
    ),
    (
        {"defaults": {"cleanup.policy": "compact", "retention.ms": 1}},
        "the policies keep everything",
        "all compacted",
    ),
]  # fmt: skip


@each_case(("policies", "said", "name"), REFUSED_POLICIES)
def test_policies_that_are_refused(policies: Any, said: str, name: str, tmp_path: Path) -> None:
    archive = ExpiringArchive(tmp_path)
    for topic in ("orders", "clicks"):
        archive.partition(f"b1/{topic}-0", 3, expired=3)
    archive.snapshot()
    with pytest.raises(PlanError, match=said) as refused:
        archive.plan(policies=Policies(policies))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("how", [{"active_segment": "delete"}, {"boundary": "none"}])
def test_unknown_choices_of_judgement_are_refused(
    archive: ExpiringArchive, how: dict[str, str]
) -> None:
    archive.snapshot()
    with pytest.raises(ValueError, match="expected one of"):
        archive.plan(**how)


def test_a_time_in_the_future(archive: ExpiringArchive) -> None:
    archive.partition(A, 3, expired=3)
    archive.snapshot()
    with pytest.raises(PlanError, match="1 ms in the future"):
        archive.plan(now_ms=NOW_MS + 1)
    assert archive.plan(now_ms=NOW_MS - 1).basis.created_ms == NOW_MS


class Written:
    """A plan in a file."""

    def __init__(self, archive: ExpiringArchive) -> None:
        archive.partition(A, 5, expired=5)
        archive.partition("b2/orders-1", 5, expired=5)
        archive.snapshot()
        self.plan = archive.plan()
        self.path = archive.folder / "plan.jsonl"
        self.place = Location.of(self.path)
        write_plan(self.plan, self.place)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def written(archive: ExpiringArchive) -> Written:
    return Written(archive)


def test_as_a_file_it_is_json_lines(written: Written) -> None:
    header, first, *rest, end = written.lines
    assert (header["kind"], end["kind"]) == ("plan", "end")
    assert end["plan_id"] == written.plan.plan_id
    assert (end["partitions"], end["segments"]) == (2, 8)
    assert first["kind"] == "partition"
    assert [line["kind"] for line in rest[:5]] == ["segment"] * 4 + ["partition"]
    assert [line["base_offset"] for line in rest[:4]] == [0, 100, 200, 300]
    file = rest[0]["files"][0]
    stat = Path(file["uri"].removeprefix("file://")).stat()
    assert (file["size_bytes"], file["last_modified_ns"]) == (stat.st_size, stat.st_mtime_ns)
    assert end["bytes"] == sum(f["size_bytes"] for line in rest for f in line.get("files", []))


def test_it_is_read_as_it_was_written(written: Written) -> None:
    assert read_plan(written.place) == written.plan


def test_a_plan_of_version_1_is_read_whose_first_line_has_id_and_totals(written: Written) -> None:
    first, *lines, end = written.lines
    old = first | {"version": 1} | end | {"kind": "plan", "plan_id": ""}

    def content() -> str:
        return "".join(json.dumps(line) + "\n" for line in (old, *lines))

    old["plan_id"] = hashlib.sha256(content().encode()).hexdigest()[:32]
    written.path.write_text(content())
    assert read_plan(written.place) == replace(written.plan, plan_id=old["plan_id"])
    written.path.write_text(content().replace("orders", "ordeal"))
    with pytest.raises(PlanError, match="edited, truncated or damaged"):
        read_plan(written.place)


def test_the_same_plan_has_the_same_id_and_another_time_another(archive: ExpiringArchive) -> None:
    archive.partition(A, 3, expired=3)
    archive.snapshot()
    assert archive.plan() == archive.plan()
    assert archive.plan().plan_id != archive.plan(clock_ms=NOW_MS + 1).plan_id


def test_every_byte_counts(written: Written) -> None:
    data = written.path.read_bytes()
    for at in range(0, len(data), 11):
        written.path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(PlanError) as refused:
            read_plan(written.place)
        assert "\n" not in str(refused.value)


def test_cut_short_anywhere(written: Written) -> None:
    data = written.path.read_bytes()
    for length in (*range(0, len(data), 7), len(data) - 1):
        written.path.write_bytes(data[:length])
        with pytest.raises(PlanError):
            read_plan(written.place)
    lines = data.splitlines(keepends=True)
    for number in range(1, len(lines)):
        written.path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
        with pytest.raises(PlanError, match="edited, truncated or damaged"):
            read_plan(written.place)


NO_PLANS = [
    ("", "not a retention plan"),
    ("\n", "not a retention plan"),
    ("[]", "not a retention plan"),
    ('{"kind": "segment"}', "not a retention plan"),
    ("\x00\xff", "not a retention plan"),
    ('{"kind": "plan"}', "version None of the plan found, expected 2"),
    ('{"kind": "plan", "version": 3}', "version 3 of the plan found, expected 2"),
    ('{"kind": "plan", "version": 2}', "edited, truncated or damaged"),
    ('{"kind": "plan", "version": 1}', "edited, truncated or damaged"),
]


@each_case(("content", "said"), NO_PLANS)
def test_files_that_are_not_plans(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan.jsonl").write_text(content)
    with pytest.raises(PlanError, match=said):
        read_plan(Location.of(tmp_path / "plan.jsonl"))


def test_no_file_and_no_place_for_one(written: Written, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="the plan cannot be read: No such file"):
        read_plan(Location.of(tmp_path / "nothing"))
    with pytest.raises(PlanError, match="the plan cannot be read: not a regular file"):
        read_plan(Location.of(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PlanError, match="the plan cannot be read"):
        read_plan(Location.of(tmp_path / "pipe"))
    with pytest.raises(PublishError, match="the plan does not exist"):
        write_plan(written.plan, written.place.child("inside-a-file.jsonl"))


@each_case("kind", ("log", "timeindex"))
def test_a_link_ends_a_plan_before_its_segment_and_stops_an_apply(
    kind: str, tmp_path: Path
) -> None:
    archive = ExpiringArchive(tmp_path)
    logs = archive.partition(A, 5, expired=4)
    archive.snapshot()
    before = archive.plan()
    file, elsewhere = logs[1].with_suffix(f".{kind}"), tmp_path / f"elsewhere.{kind}"
    file.rename(elsewhere)
    file.symlink_to(os.path.relpath(elsewhere, file.parent))

    planned = only(archive.plan())
    [stopped] = archive.apply(before).partitions

    assert offsets(planned) == [0]
    assert planned.left_out and planned.left_out.segments == 3
    assert f"{file.as_uri()} is a symbolic link" in planned.left_out.why
    assert (stopped.segments_deleted, stopped.outcome) == (1, "stopped")
    assert f"{file.as_uri()}: is a symbolic link" in (stopped.why or "")
    assert elsewhere.exists() and file.is_symlink()


@each_case("place", ("archive/b1", "archive/b1/orders-0", "indexes/b1/orders-0"))
def test_nothing_is_planned_or_deleted_behind_a_link(place: str, tmp_path: Path) -> None:
    archive = ExpiringArchive(tmp_path)
    archive.partition(A, 5, expired=4)
    archive.partition(B, 5, expired=4)
    archive.snapshot()
    plan, link, outside = archive.plan(), tmp_path / place, tmp_path / "outside"
    link.rename(outside)
    link.symlink_to(outside)
    before = sorted(outside.rglob("*"))

    linked, other = archive.plan().partitions
    stopped, done = archive.apply(plan).partitions

    assert (linked.segments, len(other.segments)) == ((), 4)
    assert why(linked).startswith(f"{link.as_uri()} is a link: ")
    assert (stopped.outcome, stopped.segments_deleted, stopped.refused) == ("stopped", 0, True)
    assert (stopped.why or "").startswith(f"{link.as_uri()} is a link: ")
    assert (done.outcome, done.segments_deleted) == ("done", 4)
    assert sorted(outside.rglob("*")) == before
