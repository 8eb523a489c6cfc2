"""Random logs of producers in transactions, cut into segments, written without Kafka.

Every log depends on the seed and its own number only, so one of them is easy to have again.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders.segment_builder import Record, end_txn_marker, segment, v1_message, v2_batch

T = 1_700_000_000_000
CODECS = ("none", "none", "none", "gzip", "lz4")


@dataclass(frozen=True)
class TransactionalLog:
    """The segments of one partition, oldest first, without holes: base offset to bytes."""

    seed: str
    number: int
    segments: dict[int, bytes]

    def write_to(self, directory: Path, *, without: int = 0) -> None:
        """Write all `.log` files but the first `without` into an existing directory."""
        for base_offset, log in list(self.segments.items())[without:]:
            (directory / f"{base_offset:020d}.log").write_bytes(log)

    def __str__(self) -> str:
        return f"log {self.number} of seed {self.seed}, base offsets {list(self.segments)}"


def transactional_logs(*, seed: str, count: int) -> Iterator[TransactionalLog]:
    for number in range(count):
        yield transactional_log(seed=seed, number=number)


def transactional_log(*, seed: str, number: int) -> TransactionalLog:
    rng = random.Random(f"{seed}/{number}")
    writer = _Writer(rng)
    segments = {}
    for _ in range(rng.randint(1, 6)):
        base_offset = writer.next_offset
        batches = [writer.batch() for _ in range(rng.choice((1, 2, 5, 20, 60)))]
        segments[base_offset] = segment(batches)
    return TransactionalLog(seed, number, segments)


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._producers = range(1000, 1000 + rng.choice((1, 2, 3, 8, 30)))
        self._markers = rng.choice((0.1, 0.3, 0.6))
        self._plain = rng.choice((0.0, 0.1, 0.9))
        self.next_offset = rng.choice((0, 0, 0, 100, 5_000_000_000))

    def batch(self) -> bytes:
        """Return the next batch: data of a transaction, a marker, or data outside of any."""
        rng, offset = self._rng, self.next_offset
        timestamp = T + offset % 1000
        producer_id = rng.choice(self._producers)
        self.next_offset += 1
        if rng.random() < self._plain:
            return self._plain_batch(offset, timestamp)
        if rng.random() < self._markers:
            commit = rng.random() < 0.4
            return end_txn_marker(offset, timestamp, producer_id=producer_id, commit=commit)
        records = [Record(timestamp, value=b"v")] * rng.choice((1, 1, 3))
        self.next_offset = offset + len(records)
        return v2_batch(
            offset,
            records,
            codec=rng.choice(CODECS),
            transactional=True,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )

    def _plain_batch(self, offset: int, timestamp: int) -> bytes:
        kind = self._rng.randrange(4)
        if kind == 0:
            return v1_message(offset, timestamp, value=b"v")
        if kind == 1:  # an idempotent producer
            return v2_batch(
                offset, [Record(timestamp)], producer_id=7, producer_epoch=0, base_sequence=0
            )
        return v2_batch(offset, [Record(timestamp)])
