"""An archive on two days: what a nightly build finds changed since the one before."""

import os
from pathlib import Path

from kip33.demo import COPIED_MS, START_MS, orders, write

DAY_MS = 86_400_000
GONE, TURNED_BAD, CHANGED, UNCHANGED, GROWN, NEW = (
    range(0, 2), range(2, 3), range(3, 7), range(7, 9), range(9, 10), range(10, 13),
)  # fmt: skip
FIRST_DAY, SECOND_DAY = range(0, 10), range(2, 13)
BATCHES = 12
LONG = "clicks-0"  # one segment of many batches: its index files take more than one page


def partition(number: int) -> str:
    """Return the path of a partition's directory below the archive."""
    return f"broker-{number % 2 + 1}/orders-{number}"


def log_of(number: int, segment: int) -> str:
    """Return the path of a segment file below the archive."""
    return f"{partition(number)}/{segment * 1000:020d}.log"


def first_day(root: Path, partitions: int) -> None:
    """Write ten segments a partition."""
    for number in range(partitions):
        for segment in FIRST_DAY:
            write(root, partition(number), segment * 1000, _batches(number, segment))
    write(root, f"broker-1/{LONG}", 0, orders(0, START_MS, 100))


def second_day(root: Path, partitions: int) -> None:
    """Make of the first day's archive the second day's: segments went, changed, grew, came.

    One a partition turned bad: offsets below its base, no broker keeps an index, ours has to go.
    """
    for number in range(partitions):
        for segment in GONE:
            (root / log_of(number, segment)).unlink()
        for segment in TURNED_BAD:
            batches = _batches(number, segment)
            _rewrite(root, partition(number), segment, batches + _batches(number, 0))
        for segment in CHANGED:  # compacted: every third batch is left
            _rewrite(root, partition(number), segment, _batches(number, segment)[::3])
        for segment in GROWN:
            _rewrite(root, partition(number), segment, _batches(number, segment, BATCHES * 2))
        for segment in NEW:
            _rewrite(root, partition(number), segment, _batches(number, segment))
    _rewrite(root, f"broker-1/{LONG}", 0, orders(0, START_MS, 500))


def _batches(number: int, segment: int, batches: int = BATCHES) -> list[bytes]:
    start_ms = START_MS + number * DAY_MS + segment * 3_600_000
    return orders(segment * 1000, start_ms, batches)


def _rewrite(root: Path, directory: str, segment: int, batches: list[bytes]) -> None:
    write(root, directory, segment * 1000, batches)
    log = root / directory / f"{segment * 1000:020d}.log"
    os.utime(log, ns=(0, (COPIED_MS + DAY_MS) * 1_000_000))
