"""Fair timing on a noisy machine: contestants take turns; results are medians and paired ratios."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

GIGA = 1e9


class Contestant(NamedTuple):
    """Something to be timed: `run` does it once and returns its seconds."""

    run: Callable[[], float]
    size_bytes: int
    batches: int


class Times(NamedTuple):
    """The seconds of one contestant, one value per round."""

    seconds: list[float]
    size_bytes: int
    batches: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def gigabytes_per_second(self) -> float:
        return self.size_bytes / self.median / GIGA

    @property
    def million_batches_per_second(self) -> float:
        return self.batches / self.median / 1e6


def clocked(work: Callable[[], object]) -> Callable[[], float]:
    """Return a function that does `work` and returns the seconds it took."""

    def run() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return run


def take_turns(contestants: Mapping[str, Contestant], *, rounds: int) -> dict[str, Times]:
    """Run every contestant once per round, A B C A B C, after a first round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            took = contestant.run()
            if number:
                seconds[name].append(took)
    return {
        name: Times(seconds[name], contestant.size_bytes, contestant.batches)
        for name, contestant in contestants.items()
    }


def times_faster(one: Times, other: Times) -> float:
    """Return how many times faster `one` is: the median over the rounds, byte for byte.

    Both ran in every round, one after the other, so a disturbance usually affects both.
    """
    per_byte = one.size_bytes / other.size_bytes
    pairs = zip(one.seconds, other.seconds, strict=True)
    return statistics.median(theirs / ours * per_byte for ours, theirs in pairs)
