"""Makes a small, realistic archive of two brokers' log directories: `make demo` and tests use it.

    python -m tests.demo_archive DIR

Every byte is decided by the arguments, so two runs make the same archive.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.builders.segment_builder import (
    Record,
    end_txn_marker,
    segment,
    v0_message,
    v1_message,
    v2_batch,
    with_broken_crc,
    wrapper,
)

START_MS = 1_700_000_000_000
COPIED_MS = START_MS + 7 * 86_400_000  # an archive is not written to any more
PREALLOCATED = 10_485_756


def orders(base_offset: int, start_ms: int, batches: int, *, codec: str = "none") -> list[bytes]:
    """Return batches of ten records each, a second apart, with some that arrive late."""
    chance = random.Random(base_offset)
    entries, offset, now = [], base_offset, start_ms
    for _ in range(batches):
        records = []
        for _ in range(10):
            now += chance.randrange(200)
            late = chance.randrange(60_000) if chance.random() < 0.05 else 0
            records.append(Record(now - late, b"order-%d" % offset, bytes(chance.randrange(200))))
        entries.append(v2_batch(offset, records, codec=codec, producer_id=-1))
        offset += len(records)
    return entries


def payments(base_offset: int) -> Iterator[bytes]:
    """Yield transactions: batches of one producer, then its commit or abort marker."""
    offset, now = base_offset, START_MS
    for number in range(60):
        records = [Record(now + i, b"p", b"paid" * 20) for i in range(3)]
        yield v2_batch(
            offset, records, producer_id=7, producer_epoch=0, transactional=True, base_sequence=0
        )
        yield end_txn_marker(offset + 3, now + 5, producer_id=7, commit=number % 5 != 0)
        offset, now = offset + 4, now + 1000


def legacy(base_offset: int) -> Iterator[bytes]:
    """Yield what brokers before 0.11 wrote: single messages and compressed wrappers, v0 and v1."""
    codecs = ("gzip", "snappy", "lz4")
    offset = base_offset
    for number in range(120):
        now = START_MS - 86_400_000 + number * 500
        if number < 30:
            yield v0_message(offset, b"k", b"before timestamps")
        elif number % 3:
            yield v1_message(offset, now, b"k", b"v" * 100)
        else:
            inner = [v1_message(i, now + i, b"k", b"v" * 40) for i in range(4)]
            offset += 3
            yield wrapper(offset, inner, codec=codecs[number % 9 // 3])
        offset += 1


def make_archive(root: Path) -> None:
    """Write the archive below `root`; what each partition shows is in the comments."""
    day = 86_400_000
    for broker in ("broker-1", "broker-2"):  # two replicas of orders-0
        write(root, f"{broker}/orders-0", 0, orders(0, START_MS, 400))
        write(root, f"{broker}/orders-0", 4000, orders(4000, START_MS + day, 400, codec="lz4"))
        write(root, f"{broker}/orders-0", 8000, orders(8000, START_MS + 2 * day, 50, codec="zstd"))
    write(root, "broker-1/payments-0", 0, payments(0))  # transactions
    write(root, "broker-1/audit.v1-0", 0, legacy(0))  # v0, v1, wrappers
    torn = segment(orders(0, START_MS, 200))
    write(root, "broker-2/clicks-0", 0, [torn[:-100]])  # the broker died while it wrote
    rotten = orders(0, START_MS, 300, codec="gzip")
    rotten[150] = with_broken_crc(rotten[150])
    write(root, "broker-2/clicks-1", 0, rotten)  # bit rot in the middle
    backwards = orders(5000, START_MS, 100) + orders(0, START_MS, 100)
    write(root, "broker-2/clicks-2", 0, backwards)  # offsets go back: no broker keeps an index
    write(root, "broker-2/clicks-3", 0, [])  # created, never written
    write(root, "broker-2/metrics-0", 0, [v2_batch(0, [Record(-1, b"k", b"no timestamp")])])
    damaged = root / "broker-1/orders-0/00000000000000004000.timeindex"
    damaged.write_bytes(bytes(PREALLOCATED))  # KAFKA-10207: preallocated, never written
    stale = root / "broker-2/orders-0/00000000000000000000.timeindex"
    stale.write_bytes(bytes.fromhex("0000018bcfe5680000000003") * 2)  # somebody's own repair


def make_sensors(root: Path) -> None:
    """Add what retention stumbles over: a clock two years ahead, and seconds for milliseconds."""
    day, records = 86_400_000, 200
    for partition in (0, 1):
        for number in range(6):
            base_offset, start_ms = number * records, START_MS + number * day
            times = [start_ms + i * 60_000 for i in range(records)]
            if partition == 0 and number == 1:
                times[77] += 730 * day  # one device after a reset
            if partition == 1 and number > 3:
                times = [time_ms // 1_000 for time_ms in times]  # a new version of a producer
            batches = [
                v2_batch(
                    base_offset + i, [Record(t, b"sensor", bytes(60)) for t in times[i : i + 20]]
                )
                for i in range(0, records, 20)
            ]
            write(root, f"broker-1/sensors-{partition}", base_offset, batches)


def write(
    root: Path, partition: str, base_offset: int, entries: Iterator[bytes] | list[bytes]
) -> None:
    """Write one segment file."""
    directory = root / partition
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{base_offset:020d}.log"
    log.write_bytes(segment(entries))
    os.utime(log, ns=(0, COPIED_MS * 1_000_000))


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))
    make_sensors(Path(sys.argv[1]))
    print(f"made an archive of two brokers' log directories in {sys.argv[1]}")
