"""A log that was read is compared with what it is later: random histories of one partition."""

from random import Random

import pytest

from kip33.formats.partition_metadata import EpochStart
from kip33.rules.leader_epochs import other_log_from
from tests.long_forms import seeds, short_and_long

EVENTS = ("append", "append", "elect", "cut", "read", "compact", "retention")


def starts_of(log: dict[int, int]) -> tuple[EpochStart, ...]:
    """The first offset at which each epoch of a log is seen; `log` has the epoch of each offset."""
    firsts: dict[int, int] = {}
    for offset in sorted(log):
        firsts.setdefault(log[offset], offset)
    return tuple(EpochStart(*one) for one in firsts.items())


@pytest.mark.parametrize("histories", short_and_long(3_000, 100_000, "KIP33_HISTORIES"))
def test_random_histories(histories: int) -> None:
    for seed in seeds(histories):
        random = Random(seed)
        log: dict[int, int] = {}
        epoch = end = 0
        read_until, read_epoch, fork = 0, -1, None
        for _ in range(random.randrange(2, 8)):
            what = random.choice(
                ("append", "append", "elect", "cut", "read", "compact", "retention")
            )
            if what in ("elect", "cut"):
                epoch += random.randrange(1, 3)
            if what == "cut":
                end = random.randrange(max(end - 4, min(log, default=0)), end + 1)
                log = {at: one for at, one in log.items() if at < end}
                if end < read_until:
                    fork = end if fork is None else min(fork, end)
            if what == "read" and log and fork is None:
                read_until, read_epoch = end, max(log.values())
            if what == "compact":
                log = {at: one for at, one in log.items() if at == end - 1 or random.random() < 0.7}
            if what == "retention":
                first = random.choice(sorted(log) or [end])
                log = {at: one for at, one in log.items() if at >= first}
            if what in ("append", "cut"):  # a new leader that writes nothing is not seen
                for _ in range(random.randrange(1, 5)):
                    log[end], end = epoch, end + 1
        if read_epoch < 0 or not log:
            continue
        found = other_log_from(starts_of(log), end, read_until=read_until, epoch=read_epoch)
        if fork is None:
            assert found is None, seed
        elif found is not None:
            assert fork <= found < read_until, seed
        is_whole = set(log) >= {*range(fork or 0, end)}  # neither compacted nor deleted
        if fork is not None and is_whole and fork < end:
            assert found == fork, seed
