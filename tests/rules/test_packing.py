"""Bins: every file in one of them, even loads, the heaviest first, always the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.packing import (
    BIN_BYTES,
    BIN_FILES,
    FILE_COST_BYTES,
    LIGHT_BIN_COST,
    LIGHT_BINS,
    MOST_BINS,
    bin_count,
    pack,
)
from tests.cases import each_case

MIB, GIB = 1 << 20, 1 << 30
some_sizes = st.lists(st.integers(0, 2**31), max_size=60).map(lambda s: np.array(s, np.int64))


def load(sizes: np.ndarray, rows: np.ndarray) -> int:
    return int(sizes[rows].sum()) + len(rows) * FILE_COST_BYTES


@each_case(
    ("files", "size", "cores", "bins"),
    {
        "a GiB each: 300 GiB for two cores": (1200, GIB // 4, 2, 300),
        "or for 300": (1200, GIB // 4, 300, 300),
        "in whole rounds of the cores": (1200, GIB // 4, 64, 320),
        "20,000 segments of 1 MiB for two cores": (20_000, MIB, 2, 20),
        "for 32": (20_000, MIB, 32, 32),
        "20,000 files each, in whole rounds": (100_000, 0, 2, 6),
        "one a core where they would be light": (4, MIB, 2, 2),
        "never more than files": (1, MIB, 2, 1),
        "one, even for nothing": (0, MIB, 2, 1),
        "64 for any number of cores that may come": (500, MIB, 4000, 64),
        "more where each has work for its start": (1200, GIB // 4, 40_000, 1200),
        "10 PB: as many as a driver remembers": (10_000_000, GIB, 800, 20_000),
    },
)
def test_bin_count(files: int, size: int, cores: int, bins: int) -> None:
    assert (BIN_BYTES, BIN_FILES, MOST_BINS) == (GIB, 20_000, 20_000)
    assert (LIGHT_BINS, LIGHT_BIN_COST) == (64, GIB // 4)
    assert bin_count(np.full(files, size, np.int64), cores) == bins


@given(some_sizes, st.integers(1, 300))
def test_a_bin_has_a_gib_or_one_file_at_most_beyond_an_even_share(
    sizes: np.ndarray, cores: int
) -> None:
    packed = pack(sizes, bin_count(sizes, cores))
    heaviest = max(int(sizes[rows].sum()) for rows in packed)
    assert heaviest <= GIB + int(sizes.max(initial=0)) + len(sizes) * FILE_COST_BYTES
    assert len(packed) >= min(cores, len(sizes), LIGHT_BINS)


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
