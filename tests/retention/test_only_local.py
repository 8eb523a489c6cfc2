"""What only the local tier has of logs in the remote one: bytes, log starts, and whose they are."""

from pathlib import Path
from typing import Any

from kip33.retention.only_local import LocalLog, OnlyLocal, only_local
from kip33.rules.search import NEWEST_KAFKA
from tests.builders.snapshots import segment_row as segment
from tests.builders.snapshots import snapshot_of
from tests.cases import each_case

ID, OTHER_ID = "A" * 22, "B" * 22
Row = dict[str, Any]


def on(log_dir: str, *rows: Row) -> list[Row]:
    """Return the rows of a broker's log directory."""
    return [row | {"log_dir": log_dir, "log_uri": row["log_uri"] + log_dir} for row in rows]


def beyond(
    root: Path, remote: list[Row], local: list[Row], version: tuple[int, int] = NEWEST_KAFKA
) -> OnlyLocal:
    there = snapshot_of(root / "remote", remote, "aiven")
    (root / "local").mkdir()
    starts = "0\n2\norders 0 12\nclicks 0 7\n"
    (root / "local/log-start-offset-checkpoint").write_text(starts)
    here = snapshot_of(root / "local", local, "kafka")
    return only_local(there, here, kafka_version=version)


REMOTE = [segment(0, 9), segment(10, 19), segment(20, 29)]
ONLY_LOCAL = {
    "nothing but copies": ([segment(10, 19), segment(20, 29)], 0),
    "the active segment": ([segment(20, 29), segment(30, 35, 7)], 7),
    "what is not uploaded yet, and an empty active segment": (
        [segment(30, 39, 7), segment(40, 49, 8), segment(50, None, 0, status="empty")], 15,
    ),
    "a segment of the last offset there": ([segment(29, 29, 5)], 0),
    "one that reaches beyond does not count": ([segment(25, 39, 50), segment(40, 49, 6)], 6),
    "damaged ones have their bytes, too": (
        [segment(30, 39, 7, status="truncated"), segment(40, None, 9, status="unreadable")], 16,
    ),
    "an unlistable directory has none": (
        [segment(30, 39, 7), segment(0, None, base_offset=None, status="unreadable")], 7,
    ),
}  # fmt: skip


@each_case(("local", "expected"), ONLY_LOCAL)
def test_bytes_that_were_not_uploaded(local: Any, expected: int, tmp_path: Path) -> None:
    found = beyond(tmp_path, REMOTE, local)
    assert found.logs == {("orders", 0): LocalLog(expected, 12)}
    assert (found.unreferenced, found.warnings) == (frozenset(), ())


def test_up_to_4_3_a_segment_of_the_last_offset_there_counts_twice(tmp_path: Path) -> None:
    found = beyond(tmp_path, REMOTE, [segment(29, 29, 5)], (4, 3))
    assert found.logs["orders", 0].bytes_after == 5


def test_an_upload_of_unknown_end_may_have_what_begins_where_it_does(tmp_path: Path) -> None:
    remote = [segment(0, 9), segment(10, None, status="unreadable")]
    found = beyond(tmp_path, remote, [segment(10, 19, 7), segment(20, 29, 8)])
    assert found.logs["orders", 0].bytes_after == 8


EPOCH = {epoch: {"leader_epochs": [epoch], "leader_epoch_offsets": [30]} for epoch in (1, 2)}
REPLICAS = {
    "the one that goes farthest leads": (
        on("1", segment(30, 39, 7)) + on("2", segment(30, 40, 5)), 5,
    ),
    "the one that goes farthest in the latest epoch": (
        on("1", segment(30, 39, 7, **EPOCH[1])) + on("2", segment(30, 31, 5, **EPOCH[2])), 5,
    ),
    "of equal ones, the one with the most bytes": (
        on("1", segment(25, 39, 9)) + on("2", segment(30, 39, 5)), 5,
    ),
}  # fmt: skip


@each_case(("local", "expected"), REPLICAS)
def test_one_replica_leads(local: Any, expected: int, tmp_path: Path) -> None:
    found = beyond(tmp_path, REMOTE, local)
    assert found.logs == {("orders", 0): LocalLog(expected, None)}


def test_a_partition_that_no_broker_has_is_judged_alone_and_named(tmp_path: Path) -> None:
    remote = [*REMOTE, *(segment(0, 9, partition=number) for number in (1, 2))]
    found = beyond(tmp_path, remote, [segment(30, 39, 7)])
    assert found.logs.keys() == {("orders", 0)}
    [warning] = found.warnings
    assert warning.startswith("2 partitions without a log in file://")
    assert "such as orders-1: judged by the remote segments alone" in warning


def test_the_leftovers_of_an_older_topic_are_not_of_the_log(tmp_path: Path) -> None:
    older = [segment(0, 49, topic_id=OTHER_ID), segment(50, 99, topic_id=OTHER_ID)]
    found = beyond(tmp_path, [*REMOTE, *older], [segment(30, 39, 7)])
    assert found.logs == {("orders", 0): LocalLog(7, 12)}
    assert found.unreferenced == {row["log_uri"] for row in older}
    assert found.warnings == ()


def test_a_segment_of_a_leader_whose_records_were_lost_is_not_of_the_log(tmp_path: Path) -> None:
    """It has no size for retention.bytes, and its end is none of the remote tier."""
    epochs = {"leader_epochs": [1], "leader_epoch_offsets": [20]}
    lost = segment(20, 49, **epochs)
    both = [
        segment(number, number + 9, leader_epochs=[0], leader_epoch_offsets=[number])
        for number in (0, 10)
    ]
    newer = segment(20, 29, 7, leader_epochs=[2], leader_epoch_offsets=[20])
    found = beyond(tmp_path, [*both, lost], [both[1], newer])
    assert found.unreferenced == {lost["log_uri"]}
    assert found.logs == {("orders", 0): LocalLog(7, 12)}


def test_a_topic_of_another_id_is_none_of_the_brokers(tmp_path: Path) -> None:
    clicks = segment(0, 9, topic="clicks", topic_id="C" * 22)
    older = [segment(0, 49, topic_id=OTHER_ID)]
    local = [segment(30, 39, 7), clicks | segment(10, 19, 3, topic="clicks", topic_id="C" * 22)]
    found = beyond(tmp_path, [*older, clicks], local)
    assert found.logs == {("clicks", 0): LocalLog(3, 7)}
    assert found.unreferenced == {row["log_uri"] for row in older}
    [warning] = found.warnings
    assert warning.startswith(f"topic orders: topic id {ID} in ")
