"""Bins: consecutive files, every file in one bin, loads that become smaller, always the same."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.packing import FILE_COST_BYTES, MOST_BIN_COST, consecutive_bins, even_bins
from tests.cases import each_case

MIB, GIB = 1 << 20, 1 << 30
some_sizes = st.lists(st.integers(0, 2**31), max_size=60).map(lambda s: np.array(s, np.int64))
some_costs = st.sampled_from([128 * MIB, 256 * MIB, GIB, 4 * GIB])


def loads_of(sizes: np.ndarray, bins: list[np.ndarray]) -> list[int]:
    return [int(sizes[rows].sum()) + len(rows) * FILE_COST_BYTES for rows in bins]


@each_case(
    ("files", "size", "cores", "least", "bins", "first", "last"),
    {
        "64 GiB for two cores, in Spark": (64, GIB, 2, 4 * GIB, 14, 8, 1),
        "in workers of this machine": (64, GIB, 2, GIB // 4, 24, 8, 1),
        "300 GiB in S3 for 64 cores": (1200, GIB // 4, 64, GIB // 8, 651, 5, 1),
        "little work: in whole rounds of the cores": (1200, GIB // 16, 16, 4 * GIB, 32, 37, 38),
        "one a core where they would be light": (4, MIB, 2, 4 * GIB, 2, 2, 2),
        "never more than files": (1, MIB, 2, 4 * GIB, 1, 1, 1),
        "one, even for nothing": (0, MIB, 2, 4 * GIB, 1, 0, 0),
        "64 for any number of cores that may come": (512, MIB, 4000, 4 * GIB, 64, 8, 8),
        "more where each has work for its start": (1200, GIB // 4, 1000, 4 * GIB, 1000, 1, 1),
        "20,000 files at most": (2_000_000, 0, 2, 4 * GIB, 112, 20_000, 3555),
        "10 PB: as many as a driver remembers": (10_000_000, GIB, 800, GIB, 20_000, 500, 500),
    },
)
def test_the_bins_of_equal_files_become_smaller(
    files: int, size: int, cores: int, least: int, bins: int, first: int, last: int
) -> None:
    found = consecutive_bins(np.full(files, size, np.int64), cores, least)
    counts = np.array([len(rows) for rows in found])
    assert (len(found), counts[0], counts[-1]) == (bins, first, last)
    assert (np.diff(counts) <= 1).all(), "whole files: one more than the bin before at most"


@given(some_sizes, st.integers(1, 300), some_costs)
def test_each_file_is_in_one_bin_in_order(sizes: np.ndarray, cores: int, least: int) -> None:
    bins = consecutive_bins(sizes, cores, least)
    assert np.concatenate(bins).tolist() == list(range(len(sizes)))
    loads, largest = loads_of(sizes, bins), int(sizes.max(initial=0)) + FILE_COST_BYTES
    for number, load in enumerate(loads):
        left = sum(loads[number:]) + largest  # half a file of the bin before may be of this one
        assert load <= min(max(left / (4 * cores), least), MOST_BIN_COST) + largest


@given(some_sizes, st.integers(1, 12))
def test_even_bins(sizes: np.ndarray, number: int) -> None:
    bins = even_bins(sizes, number)
    assert np.concatenate(bins).tolist() == list(range(len(sizes)))
    assert len(bins) == max(1, min(number, len(sizes)))
    if len(sizes):
        loads = loads_of(sizes, bins)
        assert min(map(len, bins)) >= 1
        assert max(loads) <= sum(loads) / number + int(sizes.max()) + FILE_COST_BYTES


@given(st.integers(1, 64), st.lists(st.floats(0.7, 1.4), min_size=64, max_size=64), some_costs)
def test_cores_of_any_speed_end_together(cores: int, seconds: list[float], least: int) -> None:
    """A core takes the next bin when it is free; the last one ends within the smallest bins."""
    sizes = np.full(10_000, 100 * MIB, np.int64)
    ends = [(0.0, core) for core in range(cores)]
    loads = loads_of(sizes, consecutive_bins(sizes, cores, least))
    for load in loads:
        end, core = ends[0]
        heapq.heapreplace(ends, (end + load * seconds[core], core))
    assert max(ends)[0] - min(ends)[0] <= 1.4 * (least + 200 * MIB)
