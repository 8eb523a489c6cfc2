"""The `.txnindex` and the producer `.snapshot`: read both ways, and damage by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.errors import CorruptIndexError, CorruptSnapshotError
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.formats.transaction_index import (
    TRANSACTION_ENTRY_BYTES,
    AbortedTransaction,
    TransactionIndex,
)
from tests.cases import each_case

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
aborted = st.builds(AbortedTransaction, int64s, int64s, int64s, int64s)
producers = st.builds(
    ProducerState, int64s, int16s, int32s, int64s, int32s, int64s, int32s, int64s
)  # fmt: skip
OPEN = ProducerState(5, 0, 7, 99, 1, 1_700_000_000_000, 3, 90)
NOT_OPEN = OPEN._replace(producer_id=6, first_offset=-1)


@given(st.lists(aborted, max_size=8))
def test_a_transaction_index_is_read_as_it_is_written(entries: list[AbortedTransaction]) -> None:
    index = TransactionIndex.from_entries(entries, base_offset=7)
    data = index.to_bytes()
    assert len(data) == TRANSACTION_ENTRY_BYTES * len(entries)
    assert list(index) == entries
    assert TransactionIndex.from_bytes(data, base_offset=7) == index


@each_case("cut", [1, 33, 35])
def test_a_transaction_index_that_ends_inside_an_entry_is_corrupt(cut: int) -> None:
    data = TransactionIndex.from_entries([(5, 0, 4, 2)] * 2, base_offset=0).to_bytes()
    with pytest.raises(CorruptIndexError, match="a multiple of 34"):
        TransactionIndex.from_bytes(data[:cut], base_offset=0)


def test_an_entry_of_another_version_is_corrupt() -> None:
    data = TransactionIndex.from_entries([(5, 0, 4, 2)] * 2, base_offset=0).to_bytes()
    with pytest.raises(CorruptIndexError, match="entry 1: version 1 found, expected 0"):
        TransactionIndex.from_bytes(data[:35] + b"\1" + data[36:], base_offset=0)


@given(st.lists(producers, max_size=5), st.binary(max_size=3))
def test_a_snapshot_is_read_as_it_is_written(states: list[ProducerState], behind: bytes) -> None:
    snapshot = ProducerSnapshot(tuple(states))
    data = snapshot.to_bytes()
    assert ProducerSnapshot.from_bytes(data) == snapshot
    if behind:
        with pytest.raises(CorruptSnapshotError, match="CRC"):
            ProducerSnapshot.from_bytes(data + behind)


@each_case(
    ("data", "says"),
    {
        "an empty file": (b"", "0 bytes, at least 10"),
        "another version": (b"\0\2" + bytes(8), "version 2, 1 expected"),
        "another CRC": (b"\0\1" + bytes(8), "CRC"),
        "a file that was cut short": (ProducerSnapshot((OPEN,)).to_bytes()[:-1], "CRC"),
    },
)
def test_a_snapshot_that_kafka_would_not_load_is_corrupt(data: bytes, says: str) -> None:
    with pytest.raises(CorruptSnapshotError, match=says):
        ProducerSnapshot.from_bytes(data)


def test_every_flipped_bit_of_a_snapshot_is_detected() -> None:
    data = ProducerSnapshot((OPEN, NOT_OPEN)).to_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError):
            ProducerSnapshot.from_bytes(bytes(damaged))


def test_a_snapshot_knows_the_open_transactions() -> None:
    assert ProducerSnapshot((OPEN, NOT_OPEN)).open_transactions == {5: 90}
