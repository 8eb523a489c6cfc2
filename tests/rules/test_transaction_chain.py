"""Transactions that are open between the segments of a partition, and the catalog's column."""

import numpy as np
import pytest

from kip33.rules.transaction_index import (
    UNCHANGED,
    TransactionChain,
    open_as_json,
    open_from_json,
)
from kip33.rules.transactions import TransactionSummary


@pytest.mark.parametrize("state", [{}, {5: 1000}, {2**63 - 1: 0, 0: 2**63 - 1}])
def test_the_column_is_read_as_it_is_written(state: dict[int, int]) -> None:
    assert open_from_json(open_as_json(state), None) == state


def test_a_segment_without_transactions_leaves_open_what_was_open() -> None:
    assert open_from_json(UNCHANGED, {5: 1}) == {5: 1}
    assert open_from_json(UNCHANGED, None) is None
    assert open_from_json(None, {5: 1}) is None
    assert open_as_json(None) is None


def test_a_partition_starts_without_open_transactions() -> None:
    assert TransactionChain().open_at(0) == {}
    assert TransactionChain().open_at(1) is None


def test_transactions_open_at_the_end_are_open_in_the_next_segment() -> None:
    chain = TransactionChain()
    chain.pass_segment(0, 9, {5: 3})
    assert chain.open_at(10) == {5: 3}


@pytest.mark.parametrize(
    ("last_offset", "base_offset"),
    [
        pytest.param(9, 11, id="a hole"),
        pytest.param(9, 9, id="segments that overlap"),
        pytest.param(None, 10, id="a segment without a batch"),
    ],
)
def test_open_transactions_are_unknown_after_a_gap(
    last_offset: int | None, base_offset: int
) -> None:
    chain = TransactionChain()
    chain.pass_segment(0, last_offset, {})
    assert chain.open_at(base_offset) is None


def test_open_transactions_are_unknown_after_two_segments_with_one_base_offset() -> None:
    chain = TransactionChain()
    chain.pass_segment(0, 9, {})
    chain.pass_segment(0, 9, {})
    assert chain.open_at(10) is None


def test_a_summary_is_read_as_it_is_written() -> None:
    rows = np.array([[5, 1, 2, 3, 1], [6, 1, 4, 5, 3]], np.int64)
    summary = TransactionSummary(rows, {5: 2, 6: 4}, {7: 2**63 - 1}, 1)
    read = TransactionSummary.from_json(summary.to_json())
    assert read.aborts.tolist() == rows.tolist()
    assert read[1:] == summary[1:]
