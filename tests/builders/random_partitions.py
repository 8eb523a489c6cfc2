"""Random partitions for truncation, and offsets at every edge of them, written without Kafka.

Timestamps out of order, transactions, idempotent producers, several leader epochs, v1 and v2, gaps
as compaction leaves them, offsets beyond int32. Each depends on the seed and its number only.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders.segment_builder import Record, end_txn_marker, v1_message, v2_batch

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
FIRST_OFFSETS = (0, 0, 0, 100, 5_000_000_000)
CODECS = ("none", "none", "gzip", "lz4")


@dataclass(frozen=True)
class WrittenBatch:
    """A batch, and the offsets it has."""

    base_offset: int
    last_offset: int
    data: bytes


@dataclass
class RandomPartition:
    """The batches of each segment by base offset."""

    seed: str
    number: int
    index_interval_bytes: int = 100
    segments: dict[int, list[WrittenBatch]] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        batches = [batch for segment in self.segments.values() for batch in segment]
        base = max(self.segments)
        return max([base, *(batch.last_offset + 1 for batch in batches)])

    def write_to(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for base, batches in self.segments.items():
            log = b"".join(batch.data for batch in batches)
            (directory / f"{base:020d}.log").write_bytes(log)

    def offsets(self) -> list[int]:
        """Return offsets at which something may go wrong, in random order."""
        rng = random.Random(f"{self.seed}/{self.number}/offsets")
        bases = list(self.segments)
        edges = {0, bases[0] - 1, bases[0] // 2, self.end_offset - 1}
        edges |= {self.end_offset, self.end_offset + 1, self.end_offset + 2**31 + 7}
        edges |= {base + step for base in bases for step in (-1, 0, 1)}
        for segment in self.segments.values():
            for batch in rng.sample(segment, min(3, len(segment))):
                middle = (batch.base_offset + batch.last_offset) // 2
                edges |= {batch.base_offset, middle, batch.last_offset, batch.last_offset + 1}
        found = sorted(offset for offset in edges if offset >= 0)
        rng.shuffle(found)
        return found

    def __str__(self) -> str:
        return f"partition {self.number} of seed {self.seed}, base offsets {list(self.segments)}"


def random_partitions(*, seed: str, count: int) -> Iterator[RandomPartition]:
    for number in range(count):
        yield random_partition(seed=seed, number=number)


def random_partition(*, seed: str, number: int) -> RandomPartition:
    rng = random.Random(f"{seed}/{number}")
    writer = _Writer(rng)
    partition = RandomPartition(seed, number, rng.choice((0, 100, 100, 400, 4096)))
    count = rng.randint(1, 5)
    for segment in range(count):
        base = writer.next_offset
        many = rng.choice((1, 2, 5, 20, 40))
        if segment == count - 1 and segment and rng.random() < 0.15:
            many = 0  # rolled, and nothing written yet
        partition.segments[base] = [writer.batch() for _ in range(many)]
        if rng.random() < 0.2:
            writer.next_offset += rng.choice((1, 5))
    return partition


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._kind = rng.choice(("plain", "producers", "transactions", "transactions"))
        self._v1 = rng.choice((0.0, 0.0, 0.3, 1.0)) if self._kind == "plain" else 0.0
        # Kafka takes a producer without a timestamp for expired, and then for no producer.
        self._no_time = rng.choice((0.0, 0.0, 0.2, 1.0)) if self._kind == "plain" else 0.0
        self._holes = rng.choice((0.0, 0.0, 0.2))
        self._epochs = rng.choice((0.0, 0.1, 0.4))
        self._producers = rng.choice(
            (
                *(range(1000, 1000 + count) for count in (1, 2, 3, 12)),
                range(0, 14 * 16, 16),  # all in one bucket of a broker's hash table
                rng.sample(range(2**40), 30),
            )
        )
        self._producer_epochs = dict.fromkeys(self._producers, 0)
        self._sequences: dict[int, int] = dict.fromkeys(self._producers, 0)
        self._time = NOW - 10 * HOUR_MS
        self._leader_epoch = rng.choice((0, 0, 3))
        self.next_offset = rng.choice(FIRST_OFFSETS)

    def batch(self) -> WrittenBatch:
        rng = self._rng
        if rng.random() < self._holes:
            self.next_offset += rng.choice((1, 7))
        if rng.random() < self._epochs:
            self._leader_epoch += rng.choice((1, 1, 2))
        self._time += rng.choice((0, 1, 1000, 60_000))
        base = self.next_offset
        times = [self._timestamp() for _ in range(rng.choice((1, 1, 2, 5, 10)))]
        if rng.random() < self._v1:
            self.next_offset = base + 1
            return WrittenBatch(base, base, v1_message(base, times[0], value=self._value()))
        if self._kind == "transactions" and rng.random() < 0.3:
            self.next_offset = base + 1
            return WrittenBatch(base, base, self._marker(base))
        records = [Record(time, value=self._value()) for time in times]
        self.next_offset = base + len(records)
        data = v2_batch(
            base,
            records,
            codec=rng.choice(CODECS),
            leader_epoch=self._leader_epoch,
            log_append_time=self._time if rng.random() < 0.1 else None,
            **self._producer(len(records)),
        )
        return WrittenBatch(base, base + len(records) - 1, data)

    def _timestamp(self) -> int:
        if self._rng.random() < self._no_time:
            return -1
        return self._time - self._rng.choice((0, 0, 0, 5, 50_000, HOUR_MS))

    def _value(self) -> bytes:
        return b"v" * self._rng.choice((0, 1, 40, 300))

    def _producer(self, records: int) -> dict[str, int | bool]:
        rng = self._rng
        if self._kind == "plain" or rng.random() < 0.2:
            return {}
        producer_id = rng.choice(self._producers)
        if rng.random() < 0.05 and self._kind == "producers":
            self._producer_epochs[producer_id] += 1
            self._sequences[producer_id] = 0
        sequence = self._sequences[producer_id]
        self._sequences[producer_id] = sequence + records
        return {
            "producer_id": producer_id,
            "producer_epoch": self._producer_epochs[producer_id],
            "base_sequence": sequence,
            "transactional": self._kind == "transactions",
        }

    def _marker(self, offset: int) -> bytes:
        rng = self._rng
        producer_id = rng.choice(self._producers)
        if rng.random() < 0.1:  # a fence: the coordinator aborts with the next epoch
            self._producer_epochs[producer_id] += 1
            self._sequences[producer_id] = 0
        return end_txn_marker(
            offset,
            self._time,
            producer_id=producer_id,
            producer_epoch=self._producer_epochs[producer_id],
            commit=rng.random() < 0.5,
            coordinator_epoch=rng.choice((0, 0, 4)),
            leader_epoch=self._leader_epoch,
        )
