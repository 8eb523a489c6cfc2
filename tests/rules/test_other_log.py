"""A log that was read is compared with what it is later: random histories of one partition."""

from random import Random
from typing import TypeAlias

import pytest

from kip33.formats.partition_metadata import EpochStart
from kip33.rules.leader_epochs import EpochBounds, other_log_from
from tests.long_forms import seeds, short_and_long

EVENTS = ("append", "append", "elect", "cut", "return", "read", "compact", "retention")
Replica: TypeAlias = tuple[list[int], set[int]]
"""The epoch of each offset, and the offsets that compaction or retention took."""


def bounds_of(replica: Replica) -> EpochBounds:
    epochs, gone = replica
    shown = [EpochStart(one, at) for at, one in enumerate(epochs) if at not in gone]
    return EpochBounds(shown, shown)


def fork_of(read: list[int], epochs: list[int]) -> int | None:
    """The first record that was read and is not in a log, None if all are.

    One leader writes in an epoch, so two logs have the same record where they have the same epoch.
    """
    same = (at for at, epoch in enumerate(read) if epochs[at : at + 1] != [epoch])
    return next(same, None)


@pytest.mark.parametrize("histories", short_and_long(3_000, 100_000, "KIP33_HISTORIES"))
def test_random_histories(histories: int) -> None:
    """A leader that was deposed writes on, and may be elected again by an unclean election."""
    for seed in seeds(histories):
        random = Random(seed)
        log: Replica = ([], set())
        deposed: Replica | None = None
        epoch, read = 0, list[int]()
        for _ in range(random.randrange(2, 10)):
            what = random.choice(EVENTS)
            epochs, gone = log
            end = len(epochs)
            if what == "elect":
                epoch += random.randrange(1, 3)
            if what == "cut":
                deposed = (epochs + [epoch] * random.randrange(3), gone)
                keeps = random.randrange(max(end - 4, 0), end + 1)
                log, epoch = (epochs[:keeps], {at for at in gone if at < keeps}), epoch + 1
            if what == "return" and deposed:
                log, deposed, epoch = deposed, log, epoch + 1
            if what in ("append", "cut"):  # a new leader that writes nothing is not seen
                log = (log[0] + [epoch] * random.randrange(1, 5), log[1])
            if what == "read" and len(gone) < end and fork_of(read, epochs) is None:
                read = epochs
            if what == "compact":
                log = (epochs, gone | {at for at in range(end - 1) if random.random() < 0.3})
            if what == "retention":
                log = (epochs, gone | {*range(random.randrange(end + 1))})
        if not read:
            continue
        epochs, gone = log
        fork = fork_of(read, epochs)
        found = other_log_from(bounds_of(log), read_until=len(read), epoch=read[-1])
        if fork is None:
            assert found is None, seed
        elif found is not None:
            assert fork <= found < len(read), seed
        if fork is None or gone & {*range(fork, len(epochs))}:
            continue
        if len(epochs) >= len(read):
            assert found is not None, seed
        if fork < len(epochs) and epochs[fork] > read[-1]:
            assert found == fork, seed
