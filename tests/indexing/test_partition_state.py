"""What goes from segment to segment: producers, open transactions, leader epochs.

Kafka's own results are compared in `tests/integration/kafka/test_producer_snapshots.py`.
"""

import struct
from pathlib import Path

import numpy as np

from kip33 import build_time_index
from kip33.formats.batch import CONTROL, TRANSACTIONAL, decode_header
from kip33.formats.partition_metadata import EpochStart
from kip33.formats.producer_snapshot import ProducerState, in_kafkas_order
from kip33.indexing.partition_state import PartitionState, SegmentLink, fold_partition
from kip33.rules.transaction_index import complete_transactions
from kip33.rules.transactions import FIRST_END, TransactionSummary
from kip33.stores.locations import Location
from tests.builders.partition_states import states_at
from tests.builders.random_partitions import RandomPartition, WrittenBatch, random_partitions
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case

T = 1_700_000_000_000
COORDINATOR_EPOCH = struct.Struct(">i")
MARKER_TAIL_BYTES = 5  # the coordinator epoch, and no headers


def batch(base: int, count: int = 10, *, time: int = T, **how: int | bool) -> bytes:
    return v2_batch(base, [Record(time + base + i, value=b"v") for i in range(count)], **how)


def of_producer(base: int, producer: int, **how: int | bool) -> bytes:
    fields = {"producer_epoch": 0, "base_sequence": base, "producer_id": producer}
    return batch(base, **(fields | how))


def after(directory: Path, state: PartitionState, *batches: bytes) -> tuple[PartitionState, str]:
    """Return the state after a log, and its damage."""
    path = directory / "some.log"
    path.write_bytes(b"".join(batches))
    state, damage = state.after_log(Location.of(path))
    return state, damage or ""


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


def test_the_states_are_those_of_a_walk_batch_for_batch(tmp_path: Path) -> None:
    open_at_end = 0
    for partition in random_partitions(seed="replay", count=25):
        directory = tmp_path / str(partition.number)
        partition.write_to(directory)
        expected = one_by_one(partition)
        states = states_at(partition, directory)
        assert states.keys() == expected.keys(), str(partition)
        for offset, state in states.items():
            found = {one.producer_id: one for one in state.producers.producers}
            assert found == expected[offset], f"{partition} at {offset}"
        open_at_end += bool(states[partition.end_offset].producers.open_transactions)
    assert open_at_end > 2


def test_transactions_are_open_as_the_summaries_of_segments_have_them(tmp_path: Path) -> None:
    seen = 0
    for partition in random_partitions(seed="open", count=10):
        directory = tmp_path / str(partition.number)
        partition.write_to(directory)
        states, found = states_at(partition, directory), dict[int, int]()
        for base in partition.segments:
            assert states[base].producers.open_transactions == found, f"{partition} at {base}"
            summary = build_time_index(str(directory / f"{base:020d}.log")).transactions
            found = dict(complete_transactions(summary, found, base_offset=base).open_at_end)
            seen += len(found)
    assert seen > 5


def test_a_state_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    for partition in random_partitions(seed="known", count=6):
        directory = tmp_path / str(partition.number)
        partition.write_to(directory)
        states = states_at(partition, directory)
        for offset in list(partition.segments)[1:]:
            log = directory / f"{offset:020d}.log"
            log.with_suffix(".snapshot").write_bytes(states[offset].producers.to_bytes())
            state = PartitionState.beside(Location.of(log), offset)
            for base in (base for base in partition.segments if base >= offset):
                assert state
                state, _ = state.after_log(Location.of(directory / f"{base:020d}.log"))
            at_end = states[partition.end_offset].producers
            assert state and state.producers == at_end, f"{partition} from {offset}"


def test_a_damaged_log_ends_before_the_damage(tmp_path: Path) -> None:
    batches = of_producer(0, 7), of_producer(10, 7)[:-1]
    state, damage = after(tmp_path, PartitionState(), *batches)
    assert "past the end of the file" in damage
    assert [one.last_offset for one in state.producers.producers] == [9]


def test_each_new_leader_epoch_begins_at_its_first_batch(tmp_path: Path) -> None:
    state = PartitionState(epochs=(EpochStart(2, 0), EpochStart(5, 12)))
    epochs = (batch(20 + 10 * number, leader_epoch=one) for number, one in enumerate((5, 4, 6)))
    state, _ = after(tmp_path, state, *epochs)
    assert state.epochs == (EpochStart(2, 0), EpochStart(5, 12), EpochStart(6, 40))


END = TransactionSummary(np.array([[5, 15, 15, 16, FIRST_END]]), {5: 15}, {}, None).to_json()


@each_case(
    ("before", "base_offset", "is_known"),
    {
        "the segment before ends there": ([(0, 9)], 10, True),
        "a hole": ([(0, 9, 10)], 11, False),
        "a hole that compaction left": ([(0, 9, 9)], 11, True),
        "such a hole of a transaction that the segments do not show": ([(4, 9, 5)], 11, False),
        "a compacted segment, and a hole": ([(0, 4, 1), (5, 9, 5)], 11, True),
        "a compacted segment, and nothing left of the next": ([(0, 4, 1), (5, 4, 0)], 11, True),
        "segments that overlap": ([(0, 9)], 9, False),
        "a segment without a batch": ([(0, None)], 10, False),
        "two segments with one base offset": ([(0, 9), (0, 9)], 10, False),
        "no segment before": ([], 10, False),
        "the first segment": ([], 0, True),
    },
)
def test_open_transactions_are_known_at_offset_0_and_where_the_segment_before_ends(
    before: list[tuple[int, ...]], base_offset: int, is_known: bool
) -> None:
    links = [
        SegmentLink(base, f"/none/{number}", last, '{"5": 3}', None, *records)
        for number, (base, last, *records) in enumerate(before)
    ]
    ends = SegmentLink(base_offset, "/none/ends", 20, None, END)
    [(_, found)] = fold_partition([ends, *links])
    assert (found.open_at_end is not None) == is_known
    if is_known:
        assert [one.first_offset for one in found.aborted or ()] == [3] * bool(before)


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


def test_batches_before_the_snapshot_do_not_change_its_state(tmp_path: Path) -> None:
    """Producer 7 has expired: the snapshot of a broker no longer has it, its log does."""
    begun = PartitionState(snapshot_offset=10)
    state, _ = after(tmp_path, begun, of_producer(0, 7), of_producer(10, 8))
    assert [one.producer_id for one in state.producers.producers] == [8]
