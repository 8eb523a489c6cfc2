"""Random logs for search by time: every trap of it, batches written by Kafka's own builders.

Every log depends on the seed and its own number only, so one of them is easy to have again.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kip33.formats.batch import BatchHeader, decode_header
from kip33.formats.records import iterate_records
from kip33.search.searched_segment import SearchedSegment
from tests.builders.searched_segments import write_segment
from tests.integration.kafka.oracle import Oracle, Request
from tests.integration.kafka.random_segments import SegmentPlan

MAX_INT64 = 2**63 - 1
TARGETS = 20
SPAN_MS = 200  # of most timestamps, so that many are equal
AROUND = 1_700_000_000_000
INTERVALS = (0, 100, 300, 1000, 4096)


@dataclass(frozen=True)
class LogSegmentBytes:
    """One segment's bytes, and the modification time of its file."""

    base_offset: int
    log: bytes
    modified_ms: int

    @cached_property
    def entries(self) -> list[tuple[BatchHeader, list[tuple[int, int]]]]:
        """The header and the records, (offset, timestamp), of each entry."""
        entries, at = [], 0
        while at < len(self.log):
            end = at + 12 + int.from_bytes(self.log[at + 8 : at + 12])
            records = iterate_records(self.log[at:end], skip_key_value=True)
            pairs = [(record.offset, record.timestamp) for record in records]
            entries.append((decode_header(self.log[at : at + 61], at), pairs))
            at = end
        return entries

    @property
    def end_offset(self) -> int:
        return self.entries[-1][0].last_offset + 1 if self.entries else self.base_offset

    @property
    def records(self) -> list[tuple[int, int]]:
        return [pair for _, pairs in self.entries for pair in pairs]


@dataclass(frozen=True)
class SearchedLog:
    """A log, where it starts, and the times to look for."""

    seed: str
    number: int
    segments: tuple[LogSegmentBytes, ...]
    interval_bytes: int
    log_start_offset: int
    targets: tuple[int, ...]

    @property
    def records(self) -> list[tuple[int, int]]:
        return [pair for segment in self.segments for pair in segment.records]

    def write_to(self, directory: Path, *, dialect: str, indexes: bool) -> list[SearchedSegment]:
        return [
            write_segment(
                directory,
                segment.base_offset,
                segment.log,
                dialect=dialect,
                interval_bytes=self.interval_bytes,
                time_index=indexes,
                offset_index=indexes,
                modified_ms=segment.modified_ms,
            )
            for segment in self.segments
        ]

    def __str__(self) -> str:
        lines = [
            f"\n  base {s.base_offset}: {len(s.entries)} entries, modified {s.modified_ms}, "
            f"records {s.records}"
            for s in self.segments
        ]
        return (
            f"log {self.number} of seed {self.seed}, interval {self.interval_bytes}, "
            f"log start offset {self.log_start_offset}" + "".join(lines)
        )


def searched_logs(kafka: Oracle, *, seed: str, count: int) -> Iterator[SearchedLog]:
    for number in range(count):
        yield searched_log(kafka, seed=seed, number=number)


def searched_log(kafka: Oracle, *, seed: str, number: int) -> SearchedLog:
    rng = random.Random(f"{seed}/search/{number}")
    plan = SearchedPlan(rng, rng.choice((0, 0, 100, 5_000_000_000)))
    segments = plan.segments(kafka)
    ends = segments[0].base_offset, segments[-1].end_offset
    starts = [rng.choice(segments).base_offset, rng.randint(*ends)]
    return SearchedLog(
        seed=seed,
        number=number,
        segments=tuple(segments),
        interval_bytes=rng.choice(INTERVALS),
        log_start_offset=rng.choice((0, 0, 0, *starts)),
        targets=tuple(_targets(rng, segments)),
    )


def _targets(rng: random.Random, segments: list[LogSegmentBytes]) -> Iterator[int]:
    times = [time for segment in segments for _, time in segment.records if time >= 0]
    times += [segment.modified_ms for segment in segments]
    for _ in range(TARGETS):
        near = rng.choice(times) + rng.choice((-1, 0, 0, 1))
        far = rng.choice((0, AROUND - SPAN_MS, AROUND + SPAN_MS, MAX_INT64))
        yield min(max(rng.choice((near, near, near, near, far)), 0), MAX_INT64)


class SearchedPlan(SegmentPlan):
    """Draws the segments of one log; timestamps are of another kind in each."""

    def __init__(self, rng: random.Random, base_offset: int) -> None:
        super().__init__(rng, base_offset)
        self._base_offset = base_offset

    def segments(self, kafka: Oracle) -> list[LogSegmentBytes]:
        rng = self._rng
        counts = [rng.choice((0, 1, 3, 8, 25)) for _ in range(rng.randint(1, 5))]
        drawn = []
        for count in counts:
            base_offset = self._base_offset
            self._timestamps = rng.choice(
                (
                    *(self._rising_slowly, self._spread, self._spread, self._equal, self._none),
                    *(self._half_missing, self._mostly_low),
                )
            )
            self._magics = rng.choice(((2,), (2,), (2,), (1,), (0,), (0, 1), (0, 1, 2)))
            drawn.append((base_offset, [self._batch() for _ in range(count)]))
            self._next_offset += not count  # two segments of one base offset cannot be
            self._base_offset = self._next_offset
        written = iter(kafka.write([batch for _, batches in drawn for batch in batches]))
        return [
            LogSegmentBytes(
                base_offset,
                b"".join(next(written) for _ in batches),
                AROUND + rng.randint(-SPAN_MS, SPAN_MS),
            )
            for base_offset, batches in drawn
        ]

    def _empty(self) -> Request:
        return super()._empty() | {"timestamp": AROUND + self._rng.randint(0, 2 * SPAN_MS)}

    def _rising_slowly(self) -> int:
        return AROUND - SPAN_MS + self._drawn // 2

    def _spread(self) -> int:
        return AROUND + self._rng.randint(-SPAN_MS, SPAN_MS)

    def _half_missing(self) -> int:
        return self._rng.choice((-1, self._spread()))

    def _mostly_low(self) -> int:
        return self._spread() if self._rng.random() < 0.1 else AROUND - SPAN_MS

    def _equal(self) -> int:
        return AROUND
