"""Logs of every kind with index files that are true or not, to be verified in several forms."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from tests.builders.generated_segments import random_segment, wire_of
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.verified_log import VerifiedLog, everything_about

BASE = 5
INTERVAL_BYTES = 200


def random_logs(folder: Path, *, seeds: Iterable[int]) -> Iterator[VerifiedLog]:
    """Write logs of every kind, whole and damaged, with index files that are true or are not."""
    for seed in seeds:
        random = Random(seed)
        first_offset = BASE if seed % 8 else 0  # below the base offset Kafka loads none
        entries = random.randint(1, 90)
        wire = wire_of(random_segment(random, base_offset=first_offset, entries=entries))
        log = _written(folder / f"{seed}.log", wire)
        built = everything_about(log, compiled=False)
        for suffix, index in zip((".timeindex", ".index"), built, strict=False):
            data = index or bytes(36)
            data = _damaged(data, random) if seed % 4 else data
            log.path.with_suffix(suffix).write_bytes(data)
        if seed % 3 == 0:
            log.path.write_bytes(_damaged(wire, random))
        yield log


def _damaged(wire: bytes, random: Random) -> bytes:
    data = bytearray(wire)
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data[: random.randrange(len(data) // 2, len(data))])


def with_many_transactions(folder: Path) -> VerifiedLog:
    """Write a log of more open transactions than the rule's tables have room for at first."""
    producers = [*range(300), *range(0, 300, 7)]
    batches = [
        v2_batch(BASE + i, [Record(i, None, b"v")], transactional=True, producer_id=producer)
        for i, producer in enumerate(producers)
    ]
    return _written(folder / "transactions.log", b"".join(batches))


def with_batches_of_many_sizes(folder: Path) -> VerifiedLog:
    """Write a log whose batches' checksums are of short and of long data, and of all remainders."""
    noise = Random(1).randbytes(70_000)
    sizes = [*range(300), 1023, 1024, 1025, 6143, 6144, 6145, 16_384, 70_000]
    batches = [v2_batch(BASE + i, [Record(i, None, noise[:n])]) for i, n in enumerate(sizes)]
    return _written(folder / "sizes.log", b"".join(batches))


def _written(path: Path, wire: bytes) -> VerifiedLog:
    path.write_bytes(wire)
    return VerifiedLog(path, BASE, INTERVAL_BYTES)
