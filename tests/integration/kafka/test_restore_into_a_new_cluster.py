"""`kip33 restore` into a new cluster of three nodes, out of tiered storage and out of a bucket.

An old cluster with tiered storage (Kafka's LocalTieredStorage) is filled, asked and lost. Topic
payments comes back from its tiered storage, the others from objects in Aiven's layout, in zstd
chunks, on S3. In the new cluster leader epochs begin at 0 again. Replicas join, one takes over.
Producer ids begin at 0 again, too: new producers are not taken for old ones.
"""

import struct
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.builders.layouts import Stored, aiven_zstd
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import KIP33, Finished, subprocess_of
from tests.integration.kafka.cluster_answers import Answers, TopicPartition, within
from tests.integration.kafka.lost_cluster import asked, nodes_or_skip
from tests.integration.kafka.lost_topics import creations, first_part, second_part
from tests.integration.kafka.nodes import Nodes, base_offsets
from tests.integration.kafka.restored_start import Start, start_of, strays_in
from tests.integration.kafka.tiered_broker import TIERED as WITH_TIER
from tests.integration.kafka.tiered_broker import (
    tier_of,
    tiered_nodes,
    wait_for_uploads,
)
from tests.integration.servers.fixtures import s3_server
from tests.integration.servers.s3 import S3Server
from tests.integration.stores.places import Ran, in_bucket

__all__ = ["s3_server"]
pytestmark = [pytest.mark.kafka, pytest.mark.integration]

NEW_IDS = 3_000  # at each start a broker goes on with another thousand
TIERED = {"payments": 2}
OBJECTS = {"orders": 5, "appended": 1}
TOPICS = TIERED | OBJECTS


class Old(NamedTuple):
    """A lost cluster: its tiered storage, its logs, what it answered."""

    root: Path
    tier: Path
    logs: Path
    before: Answers
    ends: dict[TopicPartition, int]  # of what is archived: in tiered storage no active segment


def of(topics: dict[str, int], steps: list[str]) -> list[str]:
    """Return the steps for some topics, and those of transactions."""
    return [
        step
        for step in steps
        if not step.startswith(("create", "delete"))
        and (not step.startswith("send") or step.split()[3] in topics)
    ]


def uploaded(nodes: Nodes, before: Answers) -> dict[TopicPartition, int]:
    """Return where the logs end in tiered storage: after segments without open transactions."""
    return {
        (topic, number): max(
            base
            for base in base_offsets(nodes.log_dir(), f"{topic}-{number}")
            if base <= before.latest_committed[topic, number]
        )
        for topic, count in TIERED.items()
        for number in range(count)
    }


def raise_epochs(log: Path, epochs: int) -> None:
    """Give the batches of a log larger leader epochs, as if leaders had changed more often."""
    data, at = bytearray(log.read_bytes()), 0
    while at < len(data):
        _, size, epoch = struct.unpack_from(">qii", data, at)
        struct.pack_into(">i", data, at + 12, epoch + epochs)  # not under the CRC
        at += 12 + size
    log.write_bytes(data)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Old:
    root = tmp_path_factory.mktemp("old")
    nodes = tiered_nodes(root)
    now_ms = time.time_ns() // 1_000_000
    created = [
        f"{step} {WITH_TIER}" if step.split()[1] in TIERED else step for step in creations(TOPICS)
    ]
    with nodes.running():
        nodes.run_steps([*created, *of(TOPICS, first_part(now_ms))])
    with nodes.running():
        nodes.run_steps(of(TOPICS, second_part(now_ms)))
        before = asked(nodes, "before", root / "times", " ".join(TOPICS))
        ends = uploaded(nodes, before)
        wait_for_uploads(nodes, TIERED, ends=ends)
    tier = tier_of(nodes)
    logs = nodes.lose_logs()
    for log in [*tier.rglob("*.log"), *logs.glob("*-[0-9]*/*.log")]:
        raise_epochs(log, 20)  # more than the new cluster's leaders have
    return Old(root, tier, logs, before, before.latest | ends)


class Restored(NamedTuple):
    """What kip33 restored at node 1 of a new cluster, and what clients see of it."""

    old: Old
    from_tier: Finished
    from_bucket: Ran
    start: Start
    strays: list[str]
    answers: Answers
    abandoned: Answers  # once the transactions are aborted that no coordinator knows
    moved: Answers  # once node 2 leads, and node 3 follows, too


def put_objects(old: Old, folder: Path) -> Path:
    """Write the lost segments of some topics as Aiven's plugin uploads them, the active too."""
    segments = []
    for topic, count in OBJECTS.items():
        for number in range(count):
            for log in sorted((old.logs / f"{topic}-{number}").glob("*.log")):
                segments.append(Stored(topic, number, int(log.stem), log.read_bytes()))
    aiven_zstd(folder, segments)
    return folder


@pytest.fixture(scope="module")
def restored(old: Old, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Restored:
    nodes = Nodes(tmp_path_factory.mktemp("new"), 3)
    log_dir = nodes.log_dir()
    bucket = in_bucket(tmp_path_factory.mktemp("bucket"), s3_server, "restored-logs")
    bucket.put(put_objects(old, tmp_path_factory.mktemp("objects")), "tier")
    nodes.start(1)
    nodes.run_steps(creations(TOPICS))
    nodes.stop()
    to = ("--to", log_dir, "--leader-epoch", "0")
    tiered = ("restore", old.tier, "--layout", "local-tiered", *to)
    from_tier = subprocess_of(KIP33, *tiered, "--topic", "payments", cwd=nodes.root)
    assert from_tier.exit_code == 0, from_tier
    from_bucket = bucket.run("restore", f"{bucket.uri}/tier", "--layout", "aiven", *to)
    assert from_bucket.code == 0, from_bucket
    topics, times = " ".join(TOPICS), old.root / "times"
    with nodes.running():
        start, strays = start_of(nodes.logged()), strays_in(log_dir)
        answers = asked(nodes, "after", times, topics)
        nodes.run_steps(
            f"abandon {topic} {number}"
            for topic, count in TIERED.items()
            for number in range(count)
        )
        abandoned = asked(nodes, "abandoned", times, topics)
        nodes.run_steps(f"move {topic} 2,3,1" for topic in TOPICS)
        moved = asked(nodes, "moved", times, topics)
    return Restored(old, from_tier, from_bucket, start, strays, answers, abandoned, moved)


def test_the_broker_reads_no_log_when_it_starts(restored: Restored) -> None:
    assert restored.start.recoveries == []
    assert restored.start.is_clean
    assert restored.strays == []
    for (topic, number), end in restored.old.ends.items():
        assert restored.start.snapshots[f"{topic}-{number}"] == end


def test_logs_start_and_end_where_they_did(restored: Restored) -> None:
    assert restored.answers.earliest == restored.old.before.earliest
    assert restored.answers.latest == restored.old.ends


def without_epochs(answers: Answers, isolation: str, ends: dict[TopicPartition, int]) -> dict:
    """Return offset, timestamp, type and digest of the records below these offsets."""
    return {
        where: [
            (one.offset, one.timestamp, one.timestamp_type, one.digest)
            for one in within(records, 0, ends[where])
        ]
        for where, records in answers.records[isolation].items()
    }


def test_consumers_read_every_record(restored: Restored) -> None:
    level, ends = "read_uncommitted", restored.old.ends
    expected = without_epochs(restored.old.before, level, ends)
    assert without_epochs(restored.answers, level, ends) == expected
    epochs = {
        one.leader_epoch for found in restored.answers.records[level].values() for one in found
    }
    assert epochs == {0}


def test_offsets_for_times_are_the_first_records_that_are_there(restored: Restored) -> None:
    ends = restored.old.ends
    for where, answers in restored.old.before.times.items():
        expected = {
            asked: found if found[0] < ends[where] else (-1, -1) for asked, found in answers.items()
        }
        assert restored.answers.times[where] == expected, where


def test_open_transactions_end_where_the_log_ends(restored: Restored) -> None:
    """No coordinator knows them: the new cluster has no __transaction_state of the old one."""
    level, stable = "read_committed", restored.answers.latest_committed
    expected = without_epochs(restored.old.before, level, stable)
    assert without_epochs(restored.answers, level, stable) == expected
    assert restored.abandoned.latest_committed == restored.abandoned.latest
    ends = restored.old.ends
    committed = without_epochs(restored.abandoned, level, ends)
    expected = without_epochs(restored.old.before, level, ends)
    for where, found in committed.items():
        assert set(found) <= set(expected[where])


def test_replicas_join_and_one_takes_over(restored: Restored) -> None:
    abandoned, moved = restored.abandoned, restored.moved
    assert moved.earliest == abandoned.earliest
    assert moved.latest == abandoned.latest
    assert moved.latest_committed == abandoned.latest_committed
    assert moved.records == abandoned.records
    assert moved.times == abandoned.times


def test_the_first_batch_of_a_new_producer_is_written_although_an_old_one_had_its_id(
    tmp_path: Path,
) -> None:
    """A broker that knew the old one would take it for a repeat, and write it nowhere."""
    nodes, now_ms = nodes_or_skip(tmp_path), time.time_ns() // 1_000_000
    first = {"producer_epoch": 0, "base_sequence": 0}
    old = [
        v2_batch(2 * number, [Record(now_ms)] * 2, producer_id=number, **first)
        for number in range(NEW_IDS)
    ]
    archive = tmp_path / "archive" / "orders-0"
    archive.mkdir(parents=True)
    (archive / f"{0:020d}.log").write_bytes(b"".join(old))
    nodes.start()
    nodes.run_steps(["create orders 1 1"])
    nodes.stop()
    to = ("--to", nodes.log_dir(), "--leader-epoch", "0")
    restored = subprocess_of(KIP33, "restore", archive.parent, *to, cwd=tmp_path)
    assert restored.exit_code == 0, restored
    assert f"{NEW_IDS:,} producers left out" in restored.stderr
    with nodes.running():
        nodes.run_steps([f"send p none orders 0 {now_ms} 0 2 10 5"])
        answers = asked(nodes, "after", tmp_path / "times", "orders")
    [new] = answers.producers["orders", 0]
    assert new[0] < NEW_IDS
    assert answers.latest["orders", 0] == 2 * NEW_IDS + 2
    assert answers.offsets("orders", 0)[-3:] == [2 * NEW_IDS + back for back in (-1, 0, 1)]
