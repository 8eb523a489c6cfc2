"""One pass over a partition: producers, leader epochs, the log's end. Kafka's own results are
compared in `tests/integration/kafka/test_producer_snapshots.py`."""

import struct
from pathlib import Path

from kip33.formats.batch import CONTROL, TRANSACTIONAL, decode_header
from kip33.formats.partition_metadata import EpochStart
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState, in_kafkas_order
from kip33.indexing.partition_replay import (
    KnownProducers,
    LogToReplay,
    PartitionReplay,
    replay_partition,
)
from kip33.rules.producer_state import Expiration
from kip33.stores.locations import Location
from tests.builders.random_partitions import RandomPartition, WrittenBatch, random_partitions
from tests.builders.segment_builder import Record, v2_batch, with_broken_crc
from tests.cases import each_case

T = 1_700_000_000_000
COORDINATOR_EPOCH = struct.Struct(">i")
MARKER_TAIL_BYTES = 5  # the coordinator epoch, and no headers


def batch(base: int, count: int = 10, *, time: int = T, **how: int | bool) -> bytes:
    return v2_batch(base, [Record(time + base + i, value=b"v") for i in range(count)], **how)


def of_producer(base: int, producer: int, **how: int | bool) -> bytes:
    fields = {"producer_epoch": 0, "base_sequence": base, "producer_id": producer}
    return batch(base, **(fields | how))


def written(directory: Path, segments: dict[int, list[bytes]]) -> list[LogToReplay]:
    logs = []
    for base, batches in segments.items():
        path = directory / f"{base:020d}.log"
        path.write_bytes(b"".join(batches))
        logs.append(LogToReplay(base, Location.of(path)))
    return logs


def producers(data: bytes) -> dict[int, ProducerState]:
    return {one.producer_id: one for one in ProducerSnapshot.from_bytes(data).producers}


class OneByOne:
    """The producers' states as a broker keeps them: batch for batch."""

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}

    def append(self, written: WrittenBatch) -> None:
        header = decode_header(written.data[:61].ljust(61, b"\0"), 0)
        if header.producer_id < 0:
            return
        no_state = ProducerState(header.producer_id, -1, -1, -1, 0, -1, -1, -1)
        state = self.states.get(header.producer_id, no_state)
        if state.epoch != header.producer_epoch:
            state = state._replace(
                epoch=header.producer_epoch, last_sequence=-1, last_offset=-1, offset_delta=0
            )
        if header.attributes & CONTROL:
            (epoch,) = COORDINATOR_EPOCH.unpack(written.data[-MARKER_TAIL_BYTES:-1])
            state = state._replace(coordinator_epoch=epoch, first_offset=-1)
        else:
            delta = header.last_offset - header.base_offset
            state = state._replace(
                last_sequence=header.base_sequence + delta,
                last_offset=header.last_offset,
                offset_delta=delta,
            )
            if header.attributes & TRANSACTIONAL and state.first_offset < 0:
                state = state._replace(first_offset=header.base_offset)
        self.states[header.producer_id] = state._replace(timestamp=header.max_timestamp)


def one_by_one(partition: RandomPartition) -> dict[int, dict[int, ProducerState]]:
    """Return the states at each base offset, and at the end."""
    model, found = OneByOne(), {}
    for base, batches in partition.segments.items():
        found[base] = dict(model.states)
        for one in batches:
            model.append(one)
    return found | {partition.end_offset: dict(model.states)}


def replayed(directory: Path, partition: RandomPartition) -> PartitionReplay:
    partition.write_to(directory)
    logs = [
        LogToReplay(base, Location.of(directory / f"{base:020d}.log"))
        for base in partition.segments
    ]
    return replay_partition(logs, wanted=list(partition.segments))


def test_the_states_are_those_of_a_walk_batch_for_batch(tmp_path: Path) -> None:
    open_at_end = 0
    for partition in random_partitions(seed="replay", count=25):
        replay = replayed(tmp_path / str(partition.number), partition)
        expected = one_by_one(partition)
        assert set(replay.snapshots) == set(list(expected)[1:]), str(partition)
        for offset, data in replay.snapshots.items():
            assert producers(data) == expected[offset], f"{partition} at {offset}"
        open_at_end += any(state.first_offset >= 0 for state in replay.producers)
    assert open_at_end > 2


def test_a_replay_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    for partition in random_partitions(seed="known", count=6):
        directory = tmp_path / str(partition.number)
        whole = replayed(directory, partition)
        for offset, data in whole.snapshots.items():
            known = KnownProducers(offset, ProducerSnapshot.from_bytes(data).producers)
            later = [
                LogToReplay(base, Location.of(directory / f"{base:020d}.log"))
                for base in partition.segments
                if base >= offset
            ]
            if later:
                rest = replay_partition(later, known=known)
                assert rest.snapshot_at_end == whole.snapshot_at_end, f"{partition} from {offset}"


def test_an_empty_log_has_no_snapshot(tmp_path: Path) -> None:
    replay = replay_partition(written(tmp_path, {70: []}))
    assert (replay.end_offset, replay.snapshots, replay.epochs) == (70, {}, ())
    assert producers(replay.snapshot_at_end) == {}


def test_a_damaged_segment_ends_the_log(tmp_path: Path) -> None:
    segments = {
        0: [of_producer(0, 7), with_broken_crc(of_producer(10, 7))],
        20: [of_producer(20, 7)],
    }
    replay = replay_partition(written(tmp_path, segments))
    assert (len(replay.segments), replay.end_offset) == (1, 10)
    assert "do not match its CRC" in (replay.damage or "")
    assert producers(replay.snapshots[10])[7].last_offset == 9


def test_each_new_leader_epoch_begins_at_its_first_batch(tmp_path: Path) -> None:
    segments = {
        0: [batch(0, leader_epoch=2), batch(10, leader_epoch=2)],
        20: [batch(20, leader_epoch=5), batch(30, leader_epoch=4), batch(40, leader_epoch=6)],
    }
    replay = replay_partition(written(tmp_path, segments))
    assert replay.epochs == (EpochStart(2, 0), EpochStart(5, 20), EpochStart(6, 40))
    assert replay.largest_epoch == 6


def test_epochs_continue_those_before(tmp_path: Path) -> None:
    logs = written(tmp_path, {20: [batch(20, leader_epoch=5), batch(30, leader_epoch=6)]})
    replay = replay_partition(logs, epochs=(EpochStart(2, 0), EpochStart(5, 12)))
    assert replay.epochs == (EpochStart(2, 0), EpochStart(5, 12), EpochStart(6, 30))


@each_case(
    ("now_ms", "known"),
    {
        "the first one has expired when the second begins": (T + 9 + 2000, [8]),
        "a millisecond before": (T + 9 + 1999, [7, 8]),
    },
)
def test_a_producer_expires(tmp_path: Path, now_ms: int, known: list[int]) -> None:
    logs = written(tmp_path, {0: [of_producer(0, 7)], 10: [of_producer(10, 8, time=T + 50_000)]})
    replay = replay_partition(logs, expiration=Expiration(now_ms, after_ms=2000))
    assert sorted(producers(replay.snapshot_at_end)) == known
    assert sorted(producers(replay.snapshots[10])) == [7]  # taken before recovery forgets


def test_an_open_transaction_does_not_expire(tmp_path: Path) -> None:
    logs = written(tmp_path, {0: [of_producer(0, 7, transactional=True)], 10: [batch(10)]})
    replay = replay_partition(logs, expiration=Expiration(T + 10**12))
    assert producers(replay.snapshot_at_end)[7].first_offset == 0


def test_the_order_is_that_of_a_hash_table() -> None:
    def order(ids: list[int]) -> list[int]:
        states = (ProducerState(one, 0, 0, 0, 0, T, -1, -1) for one in ids)
        return [state.producer_id for state in in_kafkas_order(states)]

    assert order([33, 17, 2, 1]) == [33, 17, 1, 2]  # 33, 17 and 1 share a bucket of 16
    thirteen = [*range(100, 112), 3]
    assert order(thirteen) == sorted(thirteen, key=lambda one: one % 32)
    assert order([4, 2**32 + 2, 0]) == [0, 2**32 + 2, 4]
    nine = [64 * number for number in range(9)]
    assert order([*nine, 16, 1]) == [*nine, 1, 16]  # the ninth of a bucket doubles a table of 16


def test_an_empty_last_segment_has_one_snapshot(tmp_path: Path) -> None:
    replay = replay_partition(written(tmp_path, {0: [of_producer(0, 7)], 10: []}))
    assert list(replay.snapshots) == [10]
    assert producers(replay.snapshots[10])[7].last_offset == 9
