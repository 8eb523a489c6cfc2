"""Bins: every file in one of them, even loads, the heaviest first, always the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.packing import (
    BIN_BYTES,
    BINS_PER_CORE,
    FILE_COST_BYTES,
    LEAST_BIN_COST,
    bin_count,
    pack,
)

MIB, GIB = 1 << 20, 1 << 30
some_sizes = st.lists(st.integers(0, 2**31), max_size=60).map(lambda s: np.array(s, np.int64))


def load(sizes: np.ndarray, rows: np.ndarray) -> int:
    return int(sizes[rows].sum()) + len(rows) * FILE_COST_BYTES


@pytest.mark.parametrize(
    ("files", "size", "cores", "bins"),
    [
        pytest.param(100, GIB // 8, 2, 6, id="three a core"),
        pytest.param(4, MIB, 2, 2, id="one a core where they would be light"),
        pytest.param(50, 100 * MIB, 2, 4, id="a GiB of work in each"),
        pytest.param(1, MIB, 2, 1, id="never more than files"),
        pytest.param(0, MIB, 2, 1, id="one, even for nothing"),
        pytest.param(2048, 0, 1, 2, id="empty files cost, too"),
        pytest.param(1000, GIB, 2, 63, id="as many as keep a bin below 16 GiB"),
        pytest.param(96, GIB, 2, 6, id="exactly six times 16 GiB"),
        pytest.param(97, GIB, 2, 7, id="one more"),
    ],
)
def test_bin_count(files: int, size: int, cores: int, bins: int) -> None:
    assert (BINS_PER_CORE, BIN_BYTES, LEAST_BIN_COST) == (3, 16 * GIB, GIB)
    assert bin_count(np.full(files, size, np.int64), cores) == bins


@given(some_sizes, st.integers(1, 12))
def test_each_file_is_in_one_bin(sizes: np.ndarray, bins: int) -> None:
    packed = pack(sizes, bins)
    assert len(packed) == bins
    assert sorted(np.concatenate(packed).tolist()) == list(range(len(sizes)))
    assert all((np.diff(rows) > 0).all() for rows in packed), "in the order given"


@given(some_sizes, st.integers(1, 12))
def test_bins_are_even_and_the_heaviest_is_first(sizes: np.ndarray, bins: int) -> None:
    """Dealt largest first to the lightest bin: no bin is above the mean by more than a file."""
    loads = [load(sizes, rows) for rows in pack(sizes, bins)]
    assert loads == sorted(loads, reverse=True)
    if len(sizes):
        costs = sizes + FILE_COST_BYTES
        assert loads[0] <= int(costs.sum()) / bins + int(costs.max())
        if bins <= len(sizes):
            assert min(len(rows) for rows in pack(sizes, bins)) >= 1


def test_one_large_file_has_a_bin_of_its_own() -> None:
    sizes = np.array([MIB] * 30 + [GIB] + [MIB] * 30, np.int64)
    first, second, third = pack(sizes, 3)
    assert first.tolist() == [30]
    assert abs(len(second) - len(third)) == 0


def test_empty_files_are_dealt_out_too() -> None:
    assert [len(rows) for rows in pack(np.zeros(9, np.int64), 3)] == [3, 3, 3]


@given(some_sizes, st.integers(1, 12))
def test_the_same_files_go_to_the_same_bins(sizes: np.ndarray, bins: int) -> None:
    once, again = pack(sizes, bins), pack(sizes.copy(), bins)
    assert [rows.tolist() for rows in once] == [rows.tolist() for rows in again]
