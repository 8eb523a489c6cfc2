"""Random logs for retention: timestamps and limits at every edge, written without Kafka.

Every log depends on the seed and its own number only, so one of them is easy to have again.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders.segment_builder import Record, segment, v0_message, v1_message, v2_batch

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
MAX_INT64 = 2**63 - 1
RETENTIONS_MS = (-1, 0, 1, 1000, 1000, DAY_MS, 7 * DAY_MS, 7 * DAY_MS, MAX_INT64)
POLICIES = ("delete", "delete", "delete", "compact", "compact,delete")
FIRST_OFFSETS = (0, 0, 100, 5_000_000_000)


@dataclass(frozen=True)
class WrittenSegment:
    """A segment's bytes, the largest timestamp in them, and the modification time of its file."""

    base_offset: int
    log: bytes
    max_timestamp: int
    last_modified_ms: int

    def __str__(self) -> str:
        return (
            f"base {self.base_offset}: {len(self.log)} bytes, max timestamp {self.max_timestamp}, "
            f"modified {self.last_modified_ms}"
        )


@dataclass(frozen=True)
class RandomLog:
    """The segments of one log, oldest first, and the limits it is judged by."""

    seed: str
    number: int
    segments: tuple[WrittenSegment, ...]
    retention_ms: int
    retention_bytes: int
    cleanup_policy: str
    log_start_offset: int

    def write_to(self, directory: Path) -> None:
        """Leave nothing in `directory` but the `.log` files, with their modification times."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for written in self.segments:
            path = directory / f"{written.base_offset:020d}.log"
            path.write_bytes(written.log)
            os.utime(path, ns=(written.last_modified_ms * 1_000_000,) * 2)

    def __str__(self) -> str:
        segments = "".join(f"\n  {written}" for written in self.segments)
        return (
            f"log {self.number} of seed {self.seed}: retention.ms {self.retention_ms}, "
            f"retention.bytes {self.retention_bytes}, cleanup.policy {self.cleanup_policy}, "
            f"log start offset {self.log_start_offset}, now {NOW}{segments}"
        )


def random_logs(*, seed: str, count: int) -> Iterator[RandomLog]:
    for number in range(count):
        yield random_log(seed=seed, number=number)


def random_log(*, seed: str, number: int) -> RandomLog:
    rng = random.Random(f"{seed}/{number}")
    retention_ms = rng.choice(RETENTIONS_MS)
    segments, end_offset = LogPlan(rng, retention_ms).segments()
    return RandomLog(
        seed=seed,
        number=number,
        segments=tuple(segments),
        retention_ms=retention_ms,
        retention_bytes=_retention_bytes(rng, segments),
        cleanup_policy=rng.choice(POLICIES),
        log_start_offset=_log_start_offset(rng, segments, end_offset),
    )


def _retention_bytes(rng: random.Random, segments: list[WrittenSegment]) -> int:
    """Draw a limit: none, or one at which the segments from some place on just fit or do not."""
    after_some = sum(len(s.log) for s in segments[rng.randrange(len(segments) + 1) :])
    limits = (0, 1, after_some - 1, after_some, after_some, after_some + 1, MAX_INT64)
    return rng.choice((-1,) * len(limits) + limits)


def _log_start_offset(rng: random.Random, segments: list[WrittenSegment], end_offset: int) -> int:
    """Draw an offset up to the log's end, which is as far as a broker lets it go."""
    base_offset = rng.choice(segments).base_offset
    start = rng.choice((0, 0, base_offset - 1, base_offset, base_offset + 1, end_offset))
    return min(max(start, 0), end_offset)


class LogPlan:
    """Draws the segments of one log: most of a kind, some of any."""

    def __init__(self, rng: random.Random, retention_ms: int) -> None:
        self._rng = rng
        self._edge = NOW - retention_ms if 0 <= retention_ms <= NOW else NOW
        self._next_offset = rng.choice(FIRST_OFFSETS)
        kinds: tuple[Callable[[], int], ...] = (self._expired, self._at_the_edge, self._any)
        self._timestamp = rng.choice((*kinds, *kinds, self._missing, lambda: self._edge))

    def segments(self) -> tuple[list[WrittenSegment], int]:
        """Return the segments and the offset after their last record."""
        count = self._rng.randint(1, 8)
        return [self._segment(is_last=i == count - 1) for i in range(count)], self._next_offset

    def _segment(self, *, is_last: bool) -> WrittenSegment:
        rng = self._rng
        self._next_offset += rng.choice((0, 0, 0, 7))
        base_offset = self._next_offset
        times = self._times()
        if rng.random() < (0.3 if is_last else 0.04):
            times = []
            self._next_offset += not is_last
        batches = [self._batch(time) for time in times]
        modified = rng.choice((self._timestamp, self._expired, self._at_the_edge))()
        return WrittenSegment(
            base_offset,
            segment(batches),
            max([-1, *times]),
            modified if -DAY_MS <= modified <= NOW + DAY_MS else NOW,  # no filesystem's limit
        )

    def _times(self) -> list[int]:
        """Draw the timestamps of a segment's batches, the largest of them anywhere."""
        rng = self._rng
        largest = self._timestamp() if rng.random() < 0.8 else self._any()
        others = [rng.choice((largest, largest // 2, -1)) for _ in range(rng.randrange(3))]
        times = [largest, *others]
        rng.shuffle(times)
        return times

    def _batch(self, time: int) -> bytes:
        rng = self._rng
        offset = self._next_offset
        self._next_offset += 1
        value = bytes(rng.choice((0, 1, 40, 300)))
        magic = rng.choice((0, 1, 2) if time == -1 else (1, 2, 2))
        if magic == 0:
            return v0_message(offset, value=value)
        if magic == 1:
            return v1_message(offset, time, value=value)
        return v2_batch(offset, [Record(time, value=value)])

    def _expired(self) -> int:
        return self._edge - self._rng.choice((2, 1000, DAY_MS))

    def _at_the_edge(self) -> int:
        return self._edge + self._rng.choice((-1, -1, 0, 1))

    def _missing(self) -> int:
        return self._rng.choice((-1, -1, -7))  # a producer's -7 passes some brokers

    def _any(self) -> int:
        far = (0, 1, NOW, NOW + DAY_MS, MAX_INT64)
        kinds = (self._expired, self._at_the_edge, self._missing, lambda: self._rng.choice(far))
        return self._rng.choice(kinds)()
