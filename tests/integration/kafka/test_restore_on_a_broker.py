"""`kip33 restore` and a real broker: it lost its log directory, and answers as before.

The cluster is filled and asked (`lost_topics.py`, LostAndFound.java). Its logs are lost and come
back from a copy without any index, then from a range of time. Each fixture goes a step further.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.console import Finished
from tests.integration.kafka.cluster_answers import (
    Answers,
    Found,
    TopicPartition,
    first_at,
    within,
)
from tests.integration.kafka.kafka_jars import (
    KAFKA_3_9,
    KAFKA_4_1,
    KAFKA_VERSION,
    OracleError,
)
from tests.integration.kafka.lost_cluster import (
    LOG_STARTS,
    RAW_BATCHES,
    RAW_PRODUCER,
    Lost,
    lost_cluster,
    nodes_or_skip,
    send_raw,
)
from tests.integration.kafka.lost_topics import FAR, PARTITIONS, TRIMMED
from tests.integration.kafka.nodes import base_offsets, only_logs, wait_until
from tests.integration.kafka.restored_start import Start, start_of, strays_in

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

OUT_OF_ORDER_SEQUENCE = 45  # Kafka's error code
DAY_MS = 86_400_000
KEPT_FILES = (".snapshot", ".txnindex", "partition.metadata")
ALWAYS_KEPT = (".txnindex", "partition.metadata", "leader-epoch-checkpoint")
COMPACTED = ("profiles-", "__transaction_state-")


OLDER = [pytest.param(one, marks=pytest.mark.long) for one in (KAFKA_4_1, KAFKA_3_9)]


@pytest.fixture(scope="module", params=[KAFKA_VERSION, *OLDER])
def lost(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lost:
    return lost_cluster(tmp_path_factory.mktemp("cluster"), version=request.param)


class Restored(NamedTuple):
    """What kip33 restored from a copy, and what a broker and its clients then did with it."""

    lost: Lost
    finished: Finished
    again: Finished  # the same command, before a broker started
    later: Finished  # and after it stopped
    files: dict[str, bytes]  # of the partitions, as restored
    files_later: dict[str, bytes]
    deletable: list[int]  # base offsets of topic aged, by `kip33 retention`
    start: Start
    strays: list[str]
    answers: Answers
    resumed: dict[TopicPartition, tuple[int, int, int]]  # see `resume`
    aborted: Answers  # after a transaction left open was ended
    kept: list[int]  # base offsets of topic aged


def files_of(log_dir: Path) -> dict[str, bytes]:
    """Return the files of all partitions by their paths."""
    return {
        str(file.relative_to(log_dir)): file.read_bytes()
        for file in sorted(log_dir.glob("*-[0-9]*/*"))
        if file.is_file()
    }


def deletable_in(lost: Lost) -> list[int]:
    """Return the segments of topic aged that `kip33 retention` calls deletable after a day."""
    indexes = lost.nodes.root / "indexes"
    built = lost.kip33("build", lost.nodes.log_dir(), "--index-dir", indexes, "--topic", "aged")
    assert built.exit_code == 0, built
    what = ("retention", indexes / "_catalog", "--retention-ms", "1d", "--format", "jsonl")
    judged = lost.kip33(*what)
    assert judged.exit_code == 0, judged
    return [
        row["base_offset"]
        for row in judged.lines
        if row["kind"] == "segment" and row["reason"] == "retention_ms"
    ]


def resume(lost: Lost, where: TopicPartition) -> tuple[int, int, int]:
    """Repeat a producer's last batch, go on, and leave a gap.

    Returns the offset of the repeated batch, that of the next one, and the error of the last.
    """
    following = RAW_BATCHES[where]
    repeated = send_raw(lost.nodes, where, following - 1)
    sent = send_raw(lost.nodes, where, following)
    assert (repeated.error, sent.error) == (0, 0)
    return repeated.offset, sent.offset, send_raw(lost.nodes, where, following + 7).error


@pytest.fixture(scope="module")
def restored(lost: Lost) -> Restored:
    nodes, log_dir = lost.nodes, lost.nodes.log_dir()
    archive = only_logs(lost.logs, nodes.root / "archive", LOG_STARTS)
    finished = lost.restore(archive)
    assert finished.exit_code == 0, finished
    again = lost.restore(archive, "--format", "json")
    files, deletable = files_of(log_dir), deletable_in(lost)
    with nodes.running():
        start, strays = start_of(nodes.logged()), strays_in(log_dir)
        answers = lost.ask("after")
        resumed = {where: resume(lost, where) for where in RAW_BATCHES}
        nodes.run_steps(["abort t4"])
        aborted = lost.ask("aborted", "payments")
        nodes.run_steps([f"configure aged retention.ms={DAY_MS}"])
        expired = set(deletable)
        wait_until(lambda: expired.isdisjoint(base_offsets(log_dir, "aged-0")), "retention")
        kept = base_offsets(log_dir, "aged-0")
    files_later, later = files_of(log_dir), lost.restore(archive, "--format", "json")
    return Restored(
        *(lost, finished, again, later, files, files_later),
        *(deletable, start, strays, answers, resumed, aborted, kept),
    )


def test_the_same_restore_again_knows_what_a_broker_wrote(restored: Restored) -> None:
    """Before it started all is there already; later only what is still byte for byte the same."""
    [again], [later] = restored.again.lines, restored.later.lines
    assert (restored.again.exit_code, again["partitions_restored"]) == (0, 0)
    assert again["partitions_there"] == len(again["partitions"]) > 0
    assert (restored.later.exit_code, later["partitions_restored"]) == (4, 0)
    there = set()
    for row in later["partitions"]:
        name = f"{row['topic']}-{row['partition']}/"
        before, after = (
            {path: data for path, data in files.items() if path.startswith(name)}
            for files in (restored.files, restored.files_later)
        )
        assert row["is_there"] == (row["problem"] is None)
        assert not row["is_there"] or before == after
        there |= {(row["topic"], row["partition"])} if row["is_there"] else set()
    assert there.isdisjoint(RAW_BATCHES)


def test_the_broker_reads_no_log_when_it_starts(restored: Restored) -> None:
    assert restored.start.recoveries == []
    assert restored.start.is_clean
    ends = restored.lost.before.latest
    loaded = {
        (name.rpartition("-")[0], int(name.rpartition("-")[2])): offset
        for name, offset in restored.start.snapshots.items()
    }
    assert {where: loaded.get(where) for where in ends} == ends


def test_no_log_is_set_aside(restored: Restored) -> None:
    assert restored.strays == []
    assert set(restored.start.ends) >= {
        f"{topic}-{number}" for topic, count in PARTITIONS.items() for number in range(count)
    }


def with_records(checkpoint: bytes, end: int) -> list[bytes]:
    """Return the lines of a leader epoch checkpoint; not of a leader that wrote no record."""
    lines = checkpoint.splitlines()[2:]
    return [line for line in lines if int(line.split()[1]) < end]


def test_what_lies_beside_a_log_is_the_brokers_own(restored: Restored) -> None:
    """Except where a log was compacted: the producers' last batches may be missing there."""
    theirs = files_of(restored.lost.logs)
    for name, data in restored.files.items():
        partition = name.partition("/")[0]
        if not partition.startswith(COMPACTED) and name.endswith(KEPT_FILES) and name in theirs:
            assert data == theirs[name], name
    assert {name for name in theirs if name.endswith(ALWAYS_KEPT)} <= set(restored.files)


def test_leader_epochs_are_the_brokers_own(restored: Restored) -> None:
    theirs = files_of(restored.lost.logs)
    for (topic, number), end in restored.lost.before.latest.items():
        name = f"{topic}-{number}/leader-epoch-checkpoint"
        epochs = with_records(restored.files[name], end)
        if topic == "profiles":  # only those of records that compaction kept
            assert {line.split()[0] for line in epochs} == {b"0", b"2"}
        else:
            assert epochs == with_records(theirs[name], end), name


def test_logs_start_and_end_where_they_did(restored: Restored) -> None:
    before, after = restored.lost.before, restored.answers
    assert after.earliest == before.earliest
    assert after.latest == before.latest
    assert after.latest_committed == before.latest_committed
    assert after.max_timestamp == before.max_timestamp
    assert before.earliest["trimmed", 0] == TRIMMED
    assert before.earliest["far", 0] == FAR


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_consumers_read_every_record(restored: Restored, isolation: str) -> None:
    before, after = restored.lost.before.records[isolation], restored.answers.records[isolation]
    assert after.keys() == before.keys()
    for where, records in before.items():
        assert after[where] == records, where


def test_offsets_for_times_are_the_same(restored: Restored) -> None:
    before, after = restored.lost.before.times, restored.answers.times
    assert after.keys() == before.keys()
    for where, answers in before.items():
        assert after[where] == answers, where


def test_producers_are_known(restored: Restored) -> None:
    before, after = restored.lost.before.producers, restored.answers.producers
    assert after.keys() == before.keys()
    for (topic, number), states in before.items():
        found = after[topic, number]
        if topic == "profiles":  # the timestamp is that of a batch that compaction made smaller
            assert [state[:3] for state in found] == [state[:3] for state in states]
        else:
            assert found == states


def test_an_idempotent_producer_goes_on(restored: Restored) -> None:
    """A repeated batch is not written twice, the next one is, a gap is refused."""
    before = restored.lost.before.latest
    assert restored.resumed == {
        where: (before[where] - 1, before[where], OUT_OF_ORDER_SEQUENCE) for where in RAW_BATCHES
    }


def test_an_open_transaction_can_be_aborted(restored: Restored) -> None:
    before, after = restored.lost.before, restored.aborted
    where = ("payments", 0)
    assert before.latest_committed[where] < before.latest[where]
    assert after.latest_committed[where] == after.latest[where] == before.latest[where] + 1
    committed = "read_committed"
    assert after.records[committed][where] == before.records[committed][where]


def test_retention_deletes_what_kip33_said(restored: Restored) -> None:
    every = base_offsets(restored.lost.logs, "aged-0")
    assert restored.deletable == every[:-1]
    assert restored.kept == every[-1:]


def test_the_lost_topics_have_every_case(lost: Lost) -> None:
    before = lost.before
    epochs = {one.leader_epoch for one in before.records["read_uncommitted"]["orders", 0]}
    assert len(epochs) > 1
    for topic, count in PARTITIONS.items():
        for number in range(count):
            assert len(base_offsets(lost.logs, f"{topic}-{number}")) > 1, topic
    assert {one.timestamp_type for one in before.records["read_committed"]["appended", 0]} == {1}
    compacted = [one.offset for one in before.records["read_committed"]["profiles", 0]]
    assert len(compacted) < before.latest["profiles", 0]
    for where in (("payments", 0), ("payments", 1)):
        plain, committed = (before.records[level][where] for level in before.records)
        assert 0 < len(committed) < len(plain)
        assert len(before.producers[where]) > 3
    assert (RAW_PRODUCER, 3, 2) in [state[:3] for state in before.producers["orders", 0]]


class Ranged(NamedTuple):
    """What a broker has of topic orders after a restore of a range of time."""

    lost: Lost
    finished: Finished
    from_ms: int
    until_ms: int
    start: Start
    strays: list[str]
    answers: Answers


def iso(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


@pytest.fixture(scope="module")
def ranged(restored: Restored) -> Ranged:
    lost = restored.lost
    nodes = lost.nodes
    nodes.lose_logs()
    records = lost.before.records["read_uncommitted"]["orders", 0]
    from_ms, until_ms = (records[len(records) * part // 10].timestamp for part in (3, 7))
    span = ("--topic", "orders", "--from", iso(from_ms), "--until", iso(until_ms))
    finished = lost.restore(nodes.root / "archive", *span)
    assert finished.exit_code == 0, finished
    with nodes.running():
        start, strays = start_of(nodes.logged()), strays_in(nodes.log_dir())
        answers = lost.ask("ranged", "orders")
    return Ranged(lost, finished, from_ms, until_ms, start, strays, answers)


def orders_in(answers: Answers) -> dict[TopicPartition, list[Found]]:
    records = answers.records["read_uncommitted"]
    return {where: found for where, found in records.items() if where[0] == "orders"}


def test_a_range_begins_with_its_first_record(ranged: Ranged) -> None:
    first = {
        where: first_at(records, ranged.from_ms)[0]
        for where, records in orders_in(ranged.lost.before).items()
    }
    assert ranged.answers.earliest == first
    assert all(first.values())


def test_a_range_ends_with_the_segment_of_its_end(ranged: Ranged) -> None:
    for (topic, number), end in ranged.answers.latest.items():
        records = orders_in(ranged.lost.before)[topic, number]
        first_after = first_at(records, ranged.until_ms)[0]
        later = [
            base
            for base in base_offsets(ranged.lost.logs, f"{topic}-{number}")
            if base >= first_after
        ]
        assert end == min([*later, ranged.lost.before.latest[topic, number]])
    assert ranged.answers.latest["orders", 0] < ranged.lost.before.latest["orders", 0]


def test_consumers_read_the_records_of_a_range(ranged: Ranged) -> None:
    starts, ends = ranged.answers.earliest, ranged.answers.latest
    for where, records in orders_in(ranged.lost.before).items():
        expected = within(records, starts[where], ends[where])
        assert orders_in(ranged.answers)[where] == expected
        for asked, answer in ranged.answers.times[where].items():
            assert answer == first_at(expected, asked), (where, asked)


def test_the_broker_takes_a_range_as_it_is(ranged: Ranged) -> None:
    assert ranged.start.recoveries == []
    assert ranged.start.is_clean
    assert ranged.strays == []
    for (topic, number), end in ranged.answers.latest.items():
        assert ranged.start.snapshots[f"{topic}-{number}"] == end


def test_no_broker_starts_on_a_half_made_restore(tmp_path: Path) -> None:
    nodes = nodes_or_skip(tmp_path)
    (nodes.log_dir() / ".kip33-restore" / "orders-0").mkdir(parents=True)
    with pytest.raises(OracleError, match=r"\.kip33-restore.* is not in the form of topic-part"):
        nodes.start()
    nodes.stop()
