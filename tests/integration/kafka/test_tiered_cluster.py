"""kip33 on what three brokers with tiered storage left after changes of leaders.

Kafka 4.3, read in its sources:

- A leader uploads from `RemoteLogManager.findHighestRemoteOffset` on: the end of what the bucket
  has of the newest leader epoch that both have, or where that epoch ends in its own log. It begins
  with the segment that has this offset (`RLMCopyTask.candidateLogSegments`), so with records that
  are there already, if the leader before rolled elsewhere.
- `RemoteLogLeaderEpochState` has one segment for each first offset in a leader epoch. A later
  upload takes the place of those that begin at or after it, if these end no later than it does;
  they become unreferenced: no consumer gets them, and they stay in the bucket until retention takes
  them. A consumer at an offset gets the segment that begins last before it (`floorEntry`).
- A search by time looks in all segments of each epoch, unreferenced ones, too, by their first
  offset, and leaves out what `isRemoteSegmentWithinLeaderEpochs` says is not of the log: a segment
  with a leader epoch that the log does not have, or that ends after the epoch does in the log,
  although its first records may be right.
- Consumers are not protected so: `RemoteLogManager.read` returns a segment's bytes to the end, and
  with them records that were lost.
- Segments outside of the log stay. Only those whose leader epochs are all below the log's earliest
  one are deleted (`deleteLogSegmentsDueToLeaderEpochCacheTruncation`).
"""

import shutil
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kip33
from kip33.catalog.catalog import choose
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.partition_metadata import parse_epoch_checkpoint
from kip33.formats.times import milliseconds_of
from kip33.rules.search import LATEST, MAX_TIMESTAMP
from tests.faults.builds import build_here
from tests.integration.kafka.cluster_answers import Answers, TopicPartition, digest_of, first_at
from tests.integration.kafka.cluster_answers import Found as Record
from tests.integration.kafka.tiered_cluster import (
    BROKERS,
    LAST_LEADERS,
    LOCAL_RETENTION,
    LOG_START,
    PARTITIONS,
    TOPICS,
    TRIMMED,
    ChangedCluster,
    asked,
    changed_cluster,
    log_dir_of,
)

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


Row = dict[str, Any]


class Opened(NamedTuple):
    """A stopped cluster, the catalogs of its tiers, and their rows by replica."""

    cluster: ChangedCluster
    tiers: Any  # kip33.OpenedTiers
    rows: dict[tuple[str, str, int], list[Row]]  # by log directory, topic, partition

    def records(
        self, topic: str, partition: int, isolation: str = "read_uncommitted"
    ) -> list[Record]:
        """Return the records of a log that are still in the archive."""
        log = self.cluster.truth(topic, partition, isolation)
        leader = log_dir_of(LAST_LEADERS[topic])
        start = min(row["base_offset"] for row in self.rows[leader, topic, partition])
        return [one for one in log if one.offset >= start]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    cluster = changed_cluster(tmp_path_factory.mktemp("tiered-cluster"))
    folders = [cluster.nodes.root / name for name in ("local-index", "remote-index")]
    build_here(cluster.local, folders[0])
    build_here(cluster.tier, folders[1], layout="local-tiered")
    tiers = kip33.open_catalog([folder / "_catalog" for folder in folders])
    newest = (CatalogSnapshot(one, choose(one, None).snapshot) for one in tiers.catalogs)
    rows: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    columns = ("log_dir", "topic", "partition", "base_offset", "last_offset")
    for row in Tiers.of(*newest).rows(columns).to_pylist():
        rows[row["log_dir"], row["topic"], row["partition"]].append(row)
    return Opened(cluster, tiers, rows)


def test_the_bucket_has_overlaps_and_segments_outside_of_the_log(opened: Opened) -> None:
    for (_, topic, number), rows in opened.rows.items():
        remote = sorted(
            (row["base_offset"], row["last_offset"] + 1) for row in rows if row["is_remote"]
        )
        assert any(one[1] > other[0] for one, other in pairwise(remote)), (topic, number)
        local = min(row["base_offset"] for row in rows if not row["is_remote"])
        assert (local > 0) == (topic in LOCAL_RETENTION), (topic, number)
        assert not any(row["is_different"] for row in rows), (topic, number)
        outside = [row for row in rows if row["outside_from"] is not None]
        until = opened.cluster.unlost_until.get((topic, number))
        assert min((row["outside_from"] for row in outside), default=None) == until
        in_part = {row["base_offset"] < row["outside_from"] for row in outside}
        assert in_part == ({False, True} if until else set())


@pytest.mark.parametrize("broker", BROKERS)
def test_each_brokers_log_with_the_bucket_has_the_first_record_of_a_time(
    opened: Opened, broker: int
) -> None:
    kafkas, log_dir = opened.cluster.kafkas, log_dir_of(broker)
    found = opened.tiers.offsets_for_times([(*one, log_dir) for one in kafkas]).to_pylist()
    kafka_says_later = set()
    for ((topic, number, target), kafka), row in zip(kafkas.items(), found, strict=True):
        assert row["exactness"] == "record", row
        if target >= 0:
            # A marker of a transaction is found, too, and no consumer gets one.
            has_markers = topic == "payments"
            first = kafka if has_markers else first_at(opened.records(topic, number), target)
            assert offset_and_time(row) == first, row
            if kafka != first:
                kafka_says_later.add((topic, number))
        elif target == MAX_TIMESTAMP and topic != "payments":
            assert row["timestamp"] == max(one.timestamp for one in opened.records(topic, number))
        elif target == LATEST:
            assert row["offset"] == kafka[0]
    # It looks for no record before the log start offset, nor for what it has only in a segment
    # with lost records.
    assert kafka_says_later == {TRIMMED, ("lost", 1)}


def test_answers_as_kafka_are_those_of_the_leaders(opened: Opened) -> None:
    kafkas = opened.cluster.kafkas
    asked = [(*one, log_dir_of(LAST_LEADERS[one[0]])) for one in kafkas]
    found = opened.tiers.offsets_for_times(asked, as_kafka="4.3").to_pylist()
    assert dict(zip(kafkas, map(offset_and_time, found), strict=True)) == kafkas


def test_a_broker_gives_consumers_records_that_were_lost(opened: Opened) -> None:
    """So the records of `before` are the log; nothing but these differs after local retention."""
    cluster = opened.cluster
    lost: dict[TopicPartition, set[int]] = {}
    for where in PARTITIONS:
        log = {one.offset: one for one in cluster.truth(*where)}
        after = cluster.after.records["read_uncommitted"][where]
        wrong = {one.offset: one.leader_epoch for one in after if one != log[one.offset]}
        assert all(epoch < log[offset].leader_epoch for offset, epoch in wrong.items())
        if wrong:
            lost[where] = set(wrong)
    until = cluster.unlost_until["lost", 1]
    assert lost == {("lost", 1): set(range(until, until + 80))}  # 4's segment ends there


@pytest.mark.parametrize("broker", BROKERS)
def test_the_records_of_each_broker_and_the_bucket_are_the_log(opened: Opened, broker: int) -> None:
    readings = [(*where, "read_uncommitted") for where in PARTITIONS]
    for topic, number, isolation in [*readings, ("payments", 0, "read_committed")]:
        where = {"topic": topic, "partition": number, "log_dir": log_dir_of(broker)}
        found = records_of(opened.tiers, isolation, **where)
        assert found == opened.records(topic, number, isolation), where


def records_of(source: Any, isolation: Any, **where: Any) -> list[Record]:
    """Return records as `cluster_answers` has those of a consumer."""
    batches = kip33.read_arrow(source, level="batches", on_error="fail", **where).read_all()
    spans: Any = (batches[name].to_pylist() for name in ("first_offset", "last_offset"))
    epochs: dict[int, int] = {}
    for first, last, epoch in zip(*spans, batches["leader_epoch"].to_pylist(), strict=True):
        epochs |= dict.fromkeys(range(first, last + 1), epoch)
    found = []
    for rows in kip33.read_arrow(source, isolation=isolation, on_error="fail", **where):
        for row in rows.to_pylist():
            time_ms = milliseconds_of(row["timestamp"])
            kind, offset = row["timestampType"], row["offset"]
            found.append(Record(offset, time_ms, kind, epochs[offset], digest_of(row)))
    return found


@pytest.mark.parametrize("broker", BROKERS)
def test_each_brokers_log_with_the_bucket_is_restored(
    opened: Opened, broker: int, tmp_path: Path
) -> None:
    """Lost records are not in it, and each record is there once, with its leader epoch."""
    catalogs = [catalog.location.uri for catalog in opened.tiers.catalogs]
    done = kip33.restore_archive(catalogs, tmp_path, replica=log_dir_of(broker))
    assert done.partitions_refused == 0, done
    for one in done.partitions:
        log = opened.records(one.topic, one.partition)
        where = {"topic": one.topic, "partition": one.partition}
        assert records_of(tmp_path, "read_uncommitted", **where) == log, one
        start = LOG_START if (one.topic, one.partition) == TRIMMED else 0
        assert one.start_offset == start
        checkpoint = tmp_path / f"{one.topic}-{one.partition}/leader-epoch-checkpoint"
        epochs = dict(parse_epoch_checkpoint(checkpoint.read_text()))
        starts = {
            record.leader_epoch: record.offset for record in log[::-1] if record.offset >= start
        }
        if one.topic == "payments":  # an epoch may begin with a marker
            assert epochs.keys() == starts.keys()
        else:
            assert epochs == starts
    assert {(one.topic, one.partition) for one in done.partitions} == set(PARTITIONS)


def test_a_broker_on_the_restored_log_has_the_records_and_leader_epochs(opened: Opened) -> None:
    """2 led last: it was stopped last. All is local there, so that it reads no lost record."""
    cluster, nodes = opened.cluster, opened.cluster.nodes
    to, old = nodes.log_dir(2), cluster.local / log_dir_of(2)
    to.mkdir()
    shutil.copy(old / "meta.properties", to)
    places = [catalog.location.uri for catalog in opened.tiers.catalogs]
    done = kip33.restore_archive(places, to, topics=list(TOPICS), replica=log_dir_of(2))
    assert done.partitions_refused == 0, done
    try:
        nodes.start(1, 2)
        nodes.run_steps([asked(nodes, "restored")])
    finally:
        nodes.stop()
    after = Answers.read(nodes.root / "restored")
    assert (after.earliest, after.latest) == (cluster.after.earliest, cluster.after.latest)
    for where in PARTITIONS:
        assert after.records["read_uncommitted"][where] == [
            one for one in cluster.truth(*where) if one.offset >= after.earliest[where]
        ]


def offset_and_time(row: dict[str, Any]) -> tuple[int, int]:
    offset, timestamp = (-1 if row[name] is None else row[name] for name in ("offset", "timestamp"))
    return offset, timestamp
