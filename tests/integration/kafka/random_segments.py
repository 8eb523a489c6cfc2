"""Random segments, written by Kafka's own builders and then damaged.

Every segment depends on the seed and its own number only, so one of them is easy to have again.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.builders.index_mutants import mutant
from tests.integration.kafka.oracle import Oracle, Request

NOW = 1_700_000_000_000
MAX_INT64 = 2**63 - 1
CODECS_OF_MAGIC = {
    0: ("none", "gzip", "snappy", "lz4"),
    1: ("none", "gzip", "snappy", "lz4"),
    2: ("none", "gzip", "snappy", "lz4", "zstd"),
}
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
BASE_OFFSETS = (0, 0, 0, 1, 77, 1_000_000, 5_000_000_000, 2**62)
INTERVALS = (0, 0, 1, 50, 100, 100, 333, 1000, 4096, 4096, 2**31 - 1)
INDEX_SIZES = (*(10485760,) * 12, 4096, 360, 120, 48, 31, 24, 12)
PRODUCERS = (0, 1, 2)


@dataclass(frozen=True)
class RandomSegment:
    """One segment, the settings to recover it under, and where it comes from."""

    seed: str
    number: int
    log: bytes
    base_offset: int
    index_interval_bytes: int
    segment_index_bytes: int

    def __str__(self) -> str:
        return (
            f"segment {self.number} of seed {self.seed} ({len(self.log)} bytes, base "
            f"{self.base_offset}, index.interval.bytes {self.index_interval_bytes}, "
            f"segment.index.bytes {self.segment_index_bytes})"
        )


def random_segments(
    kafka: Oracle, *, seed: str, count: int, damage: bool = True
) -> Iterator[RandomSegment]:
    for number in range(count):
        yield random_segment(kafka, seed=seed, number=number, damage=damage)


def random_segment(kafka: Oracle, *, seed: str, number: int, damage: bool = True) -> RandomSegment:
    rng = random.Random(f"{seed}/{number}")
    base_offset = rng.choice(BASE_OFFSETS)
    batches = kafka.write(SegmentPlan(rng, base_offset).batches())
    log = b"".join(batches)
    if damage and rng.random() < 0.85:
        log = mutant(rng, log)
    return RandomSegment(
        seed=seed,
        number=number,
        log=log,
        base_offset=base_offset,
        index_interval_bytes=rng.choice(INTERVALS),
        segment_index_bytes=rng.choice(INDEX_SIZES) if damage else 10485760,
    )


class SegmentPlan:
    """Draws the batches of one sane segment: offsets grow, transactions begin and end."""

    def __init__(self, rng: random.Random, base_offset: int) -> None:
        self._rng = rng
        self._next_offset = base_offset + rng.choice((0, 0, 0, 5))
        self._leader_epoch = rng.choice((-1, 0, 7))
        self._open: set[int] = set()
        self._magics = rng.choice(((2,), (2,), (2,), (1,), (0,), (0, 1), (0, 1, 2)))
        self._timestamps = rng.choice(
            (
                *(self._rising, self._rising, self._falling, self._equal, self._none),
                *(self._scattered, self._extreme),
            )
        )
        self._value_bytes = rng.choice((10, 10, 60, 300, 3000))
        self._drawn = 0

    def batches(self) -> list[Request]:
        return [self._batch() for _ in range(self._rng.choice((0, 1, 2, 5, 8, 12, 20, 30)))]

    def _batch(self) -> Request:
        rng = self._rng
        if rng.random() < 0.15:
            self._next_offset += rng.choice((1, 3, 1000))
        if rng.random() < 0.1:
            self._leader_epoch += 1
        magic = rng.choice(self._magics)
        if magic == 2:
            kind = rng.random()
            if kind < 0.06:
                return self._empty()
            if kind < 0.2:
                return self._end_of_transaction()
            if kind < 0.23:
                return self._leader_change()
        return self._records(magic)

    def _take_offsets(self, count: int) -> int:
        first = self._next_offset
        self._next_offset += count
        return first

    def _records(self, magic: int) -> Request:
        rng = self._rng
        count = rng.choice((1, 1, 1, 2, 3, 6))
        first = self._take_offsets(count)
        kind = rng.choice(TIMESTAMP_TYPES) if magic and rng.random() < 0.4 else "CreateTime"
        batch: Request = {
            "magic": magic,
            "codec": rng.choice(CODECS_OF_MAGIC[magic]),
            "timestamp_type": kind,
            "log_append_time": max(0, self._timestamp()) if kind == "LogAppendTime" else -1,
            "base_offset": first,
            "records": [
                [
                    first + i,
                    self._timestamp(),
                    rng.choice((-1, 0, 4)),
                    rng.choice((-1, 0, rng.randint(1, self._value_bytes))),
                ]
                for i in range(count)
            ],
        }
        if magic == 2:
            batch["leader_epoch"] = self._leader_epoch
            if rng.random() < 0.1:
                batch["last_offset"] = first + count - 1 + rng.choice((0, 1, 7))
                self._next_offset = batch["last_offset"] + 1
            elif rng.random() < 0.1 and kind == "CreateTime":
                batch["delete_horizon_ms"] = NOW
            if rng.random() < 0.3:
                producer = rng.choice(PRODUCERS)
                batch |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
                batch["transactional"] = producer in self._open or rng.random() < 0.5
                if batch["transactional"]:
                    self._open.add(producer)
        return batch

    def _empty(self) -> Request:
        first = self._take_offsets(4)
        return {
            "kind": "empty",
            "base_offset": first,
            "last_offset": first + self._rng.randrange(4),
            "timestamp": self._timestamp(),
            "leader_epoch": self._leader_epoch,
        }

    def _end_of_transaction(self) -> Request:
        producer = self._rng.choice(PRODUCERS)
        self._open.discard(producer)
        return {
            "kind": "end_transaction",
            "marker": self._rng.choice(("ABORT", "COMMIT")),
            "base_offset": self._take_offsets(1),
            "timestamp": max(0, self._timestamp()),
            "producer_id": producer,
            "producer_epoch": 0,
            "leader_epoch": self._leader_epoch,
        }

    def _leader_change(self) -> Request:
        return {
            "kind": "leader_change",
            "base_offset": self._take_offsets(1),
            "timestamp": max(0, self._timestamp()),
            "leader_epoch": max(0, self._leader_epoch),
        }

    def _timestamp(self) -> int:
        self._drawn += 1
        return self._timestamps()

    def _rising(self) -> int:
        return NOW + self._drawn * 7

    def _falling(self) -> int:
        return NOW - self._drawn * 7

    def _equal(self) -> int:
        return NOW

    def _none(self) -> int:
        return -1

    def _scattered(self) -> int:
        return NOW + self._rng.randint(-1000, 1000) + self._drawn

    def _extreme(self) -> int:
        far = (-1, 0, 1, NOW, NOW * 1000, MAX_INT64 - 1, MAX_INT64)
        return self._rng.choice((*far, self._drawn, self._drawn))
