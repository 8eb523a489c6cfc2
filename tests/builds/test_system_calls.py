"""What a build asks of the operating system for each segment: of small ones that is much of it."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.builders.segment_builder import Record, v2_batch
from tests.faults.traces import traced

SEGMENTS: Final = 4
SHOWN: Final = 2_000  # base offset of the segment whose calls are counted
BUILD: Final = """
import sys
from tests.faults.builds import build_here
build_here(sys.argv[1], sys.argv[2], now_ms=1_800_000_000_000, fsync=sys.argv[3] == "fsync")
"""
STATS: Final = ("stat", "fstat", "newfstatat", "lstat", "statx")
READS: Final = ("read", "pread64", "preadv", "preadv2")

LOG: Final = Counter(stat=2, open=1, read=1, close=1)  # listed, a regular file? and its size
NEW_INDEX: Final = Counter(stat=2, open=1, write=1, close=1, rename=1)  # there?, its size and time
FLUSH: Final = Counter(open=1, fsync=1, close=1)


@pytest.mark.parametrize(
    ("fsync", "expected"),
    [
        ("fsync", LOG + NEW_INDEX + FLUSH),
        pytest.param("no-fsync", LOG + NEW_INDEX, marks=pytest.mark.long),
    ],
)
def test_a_segment_and_its_new_index_file_take_few_calls(
    tmp_path: Path, fsync: str, expected: Counter[str]
) -> None:
    assert calls_of_a_segment(tmp_path, fsync) == expected


def calls_of_a_segment(folder: Path, fsync: str) -> Counter[str]:
    """Build some segments under strace; return how often each call named a file of one of them."""
    partition = folder / "source" / "broker-1" / "orders-0"
    partition.mkdir(parents=True)
    for base_offset in range(0, SEGMENTS * 1_000, 1_000):
        log = partition / f"{base_offset:020d}.log"
        log.write_bytes(v2_batch(base_offset, [Record(1_000 + base_offset)]))
    trace = traced(
        *(BUILD, folder / "source", folder / "indexes", fsync),
        options=("-e", "trace=%file,%desc"),
        file=folder / "trace",
    )
    lines = [line for line in trace.splitlines() if f"{SHOWN:020d}." in line]
    named = [line for line in lines if "resumed>" not in line]
    return Counter(kind_of(match[1]) for line in named if (match := re.match(r"\d+ +(\w+)", line)))


def kind_of(call: str) -> str:
    """Return one name for the variants of a call."""
    kinds = dict.fromkeys(STATS, "stat") | dict.fromkeys(READS, "read") | {"openat": "open"}
    return kinds.get(call, call)
