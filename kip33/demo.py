"""The demo archive: log directories of two brokers, small, with damage for kip33 to find.

Every byte is decided here, so each archive is the same. Batches are written as brokers write them,
by code of its own: nothing else in kip33 writes records. `ODDITIES` explains what is damaged.
"""

import gzip
import json
import os
import random
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kip33.formats.batch import CODEC_NAMES
from kip33.formats.crc import crc32c

_DAY_MS: Final = 86_400_000
START_MS: Final = 1_700_000_000_000  # 2023-11-14T22:13:20Z
COPIED_MS: Final = START_MS + 7 * _DAY_MS  # an archive is not written to any more
PREALLOCATED: Final = 10_485_756  # what a broker reserves for a .timeindex

_ITEMS: Final = ("green tea", "espresso beans", "oat biscuits", "a blue mug", "honey, 250 g")
_READING: Final = b'{"sensor": "bay-%d", "celsius": %4.1f, "humidity_percent": %2d}'
_TRANSACTIONAL: Final = 0x10
_MARKER: Final = 0x30  # transactional and control
_LZ4_HEAD: Final = bytes.fromhex("04224d18604082")  # independent blocks of at most 64 KiB
_SNAPPY_HEAD: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


class Oddity(NamedTuple):
    """A file or partition that is damaged or unusual: what it has, and what kip33 says of it.

    `shown_by` is the command that says so, and `answer` a word of what it prints.
    """

    path: str
    what: str
    shown_by: str
    answer: str


ODDITIES: Final = (
    Oddity(
        "broker-1/orders-0/00000000000000004000.timeindex",
        "10 MiB of zeros: the broker crashed before it wrote an entry (KAFKA-10207)",
        "verify",
        "padded",
    ),
    Oddity(
        "broker-2/orders-0/00000000000000000000.timeindex",
        "two entries that someone wrote by hand: no batch has their time",
        "verify",
        "wrong",
    ),
    Oddity(
        "broker-2/clicks-0/00000000000000000000.log",
        "100 bytes are missing at the end: the broker died while it wrote",
        "verify",
        "truncated",
    ),
    Oddity(
        "broker-2/clicks-1/00000000000000000000.log",
        "one flipped bit in the middle: the rest is not valid",
        "verify",
        "truncated",
    ),
    Oddity(
        "broker-2/clicks-2/00000000000000000000.log",
        "offsets go back: a broker keeps no index of it",
        "verify",
        "invalid",
    ),
    Oddity(
        "broker-2/clicks-3/00000000000000000000.log",
        "no bytes: the partition was created and never written",
        "verify",
        "empty",
    ),
    Oddity(
        "broker-1/sensors-0/00000000000000000200.log",
        "one timestamp is two years ahead: a device with a wrong clock",
        "retention",
        "future",
    ),
    Oddity(
        "broker-1/sensors-1/00000000000000000800.log",
        "timestamps in seconds instead of milliseconds, also in the next log",
        "retention",
        "seconds",
    ),
    Oddity(
        "broker-2/metrics-0/00000000000000000000.log",
        "a record without a timestamp: retention uses the file's modification time",
        "retention",
        "timestamps",
    ),
)


def make_demo(root: Path) -> int:
    """Write the archive below `root`; return its number of segments."""
    make_archive(root)
    make_sensors(root)
    return sum(1 for _ in root.rglob("*.log"))


def make_archive(root: Path) -> None:
    """Write all topics but `sensors`."""
    for broker in ("broker-1", "broker-2"):  # two replicas of orders-0
        write(root, f"{broker}/orders-0", 0, orders(0, START_MS, 400))
        write(root, f"{broker}/orders-0", 4000, orders(4000, START_MS + _DAY_MS, 400, codec="lz4"))
        last_day = START_MS + 2 * _DAY_MS
        write(root, f"{broker}/orders-0", 8000, orders(8000, last_day, 50, codec="zstd"))
    write(root, "broker-1/payments-0", 0, payments(0))
    write(root, "broker-1/audit.v1-0", 0, legacy(0))
    torn = b"".join(orders(0, START_MS, 200))
    write(root, "broker-2/clicks-0", 0, [torn[:-100]])
    rotten = orders(0, START_MS, 300, codec="gzip")
    rotten[150] = _with_flipped_bit(rotten[150])
    write(root, "broker-2/clicks-1", 0, rotten)
    backwards = orders(5000, START_MS, 100) + orders(0, START_MS, 100)
    write(root, "broker-2/clicks-2", 0, backwards)
    write(root, "broker-2/clicks-3", 0, [])
    write(root, "broker-2/metrics-0", 0, [_batch(0, [_Record(-1, b"k", b"no timestamp")])])
    zeros = root / "broker-1/orders-0/00000000000000004000.timeindex"
    zeros.write_bytes(bytes(PREALLOCATED))
    by_hand = root / "broker-2/orders-0/00000000000000000000.timeindex"
    by_hand.write_bytes(bytes.fromhex("0000018bcfe5680000000003") * 2)


def make_sensors(root: Path) -> None:
    """Add the topic `sensors`: a clock two years ahead, and seconds instead of milliseconds."""
    for partition in (0, 1):
        for number in range(6):
            start_ms = START_MS + number * _DAY_MS
            times = [start_ms + i * 60_000 for i in range(200)]
            if partition == 0 and number == 1:
                times[77] += 730 * _DAY_MS
            if partition == 1 and number > 3:
                times = [time_ms // 1_000 for time_ms in times]
            records = [
                _Record(time_ms, b"sensor", _READING % (partition, 12 + at % 80 / 10, at % 60 + 30))
                for at, time_ms in enumerate(times)
            ]
            offsets = range(number * 200, (number + 1) * 200, 20)
            batches = [
                _batch(offset, records[at : at + 20])
                for offset, at in zip(offsets, range(0, 200, 20), strict=True)
            ]
            write(root, f"broker-1/sensors-{partition}", offsets[0], batches)


def orders(base_offset: int, start_ms: int, batches: int, *, codec: str = "none") -> list[bytes]:
    """Return batches: an order of ten lines, up to 200 ms apart; one line in twenty is late."""
    chance = random.Random(base_offset)
    entries, offset, now = [], base_offset, start_ms
    for _ in range(batches):
        records: list[_Record] = []
        for _ in range(10):
            now += chance.randrange(200)
            late = chance.randrange(60_000) if chance.random() < 0.05 else 0
            value = _order_line(len(records) + 1, chance.randrange(200))
            records.append(_Record(now - late, b"order-%d" % offset, value))
        entries.append(_batch(offset, records, codec=codec))
        offset += len(records)
    return entries


def payments(base_offset: int) -> Iterator[bytes]:
    """Yield transactions of one producer: a batch, then its commit marker, each fifth an abort."""
    offset, now = base_offset, START_MS
    for number in range(60):
        records = [_Record(now + i, b"p", b"paid" * 20) for i in range(3)]
        yield _batch(offset, records, flags=_TRANSACTIONAL, producer=(7, 0, 0))
        is_commit = number % 5 != 0
        marker = _Record(now + 5, struct.pack(">hh", 0, is_commit), struct.pack(">hi", 0, 0))
        yield _batch(offset + 3, [marker], flags=_MARKER, producer=(7, 0, -1))
        offset, now = offset + 4, now + 1000


def legacy(base_offset: int) -> Iterator[bytes]:
    """Yield what brokers before 0.11 wrote: v0 and v1, single messages and compressed ones."""
    codecs = ("gzip", "snappy", "lz4")
    offset = base_offset
    for number in range(120):
        now = START_MS - _DAY_MS + number * 500
        if number < 30:
            yield _message(offset, None, b"k", b"before timestamps")
        elif number % 3:
            yield _message(offset, now, b"k", b"v" * 100)
        else:
            inner = [_message(i, now + i, b"k", b"v" * 40) for i in range(4)]
            codec = codecs[number % 9 // 3]
            body = _compressed(b"".join(inner), codec)
            offset += 3  # the offset of the last inner message
            yield _message(offset, now + 3, None, body, codec=codec)
        offset += 1


def write(root: Path, partition: str, base_offset: int, entries: Iterable[bytes]) -> None:
    """Write one segment, with the modification time of a copy."""
    directory = root / partition
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{base_offset:020d}.log"
    log.write_bytes(b"".join(entries))
    os.utime(log, ns=(0, COPIED_MS * 1_000_000))


class _Record(NamedTuple):
    timestamp: int
    key: bytes
    value: bytes


def _order_line(line: int, number: int) -> bytes:
    """Return a line of an order as JSON; `number`, less than 200, decides what is bought."""
    item, count = _ITEMS[number % len(_ITEMS)], number % 4 + 1
    fields = {"line": line, "item": item, "count": count, "cents": 95 + 25 * number}
    return json.dumps(fields, separators=(",", ":")).encode()


def _batch(
    base_offset: int,
    records: Sequence[_Record],
    *,
    codec: str = "none",
    flags: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch of v2; `producer` is its id, epoch and base sequence."""
    first_ms, largest_ms = records[0].timestamp, max(record.timestamp for record in records)
    plain = b"".join(_record(one, delta, first_ms) for delta, one in enumerate(records))
    counted = struct.pack(">hi", CODEC_NAMES.index(codec) | flags, len(records) - 1)
    counted += struct.pack(">qqqhi", first_ms, largest_ms, *producer)
    counted += struct.pack(">i", len(records)) + _compressed(plain, codec)
    crc = crc32c(0, counted, 0, len(counted), None)
    return struct.pack(">qiibI", base_offset, 9 + len(counted), 0, 2, crc) + counted


def _record(record: _Record, offset_delta: int, first_ms: int) -> bytes:
    body = b"\0" + _varint(record.timestamp - first_ms) + _varint(offset_delta)
    for field in (record.key, record.value):
        body += _varint(len(field)) + field
    body += _varint(0)  # headers
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    rest = 2 * number if number >= 0 else -2 * number - 1
    groups = []
    while rest >= 128:
        groups.append(rest % 128 + 128)
        rest //= 128
    return bytes([*groups, rest])


def _message(
    offset: int, timestamp: int | None, key: bytes | None, value: bytes, *, codec: str = "none"
) -> bytes:
    """Return a message of v1, or of v0 if it has no timestamp."""
    counted = struct.pack(">bb", 0 if timestamp is None else 1, CODEC_NAMES.index(codec))
    if timestamp is not None:
        counted += struct.pack(">q", timestamp)
    counted += struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    counted += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(counted), zlib.crc32(counted)) + counted


def _compressed(data: bytes, codec: str) -> bytes:
    """Return data of less than 32 KiB as a producer compresses it."""
    if codec == "none":
        return data
    if codec == "gzip":
        return gzip.compress(data, mtime=0)
    name: Any = "lz4_raw" if codec == "lz4" else codec
    packed: bytes = pa.Codec(name).compress(data, asbytes=True)
    if codec == "snappy":
        return _SNAPPY_HEAD + struct.pack(">i", len(packed)) + packed
    if codec == "lz4":
        return _LZ4_HEAD + struct.pack("<I", len(packed)) + packed + bytes(4)
    return packed


def _with_flipped_bit(batch: bytes) -> bytes:
    """Return a batch of v2 whose checksum has one other bit."""
    return batch[:17] + bytes([batch[17] ^ 1]) + batch[18:]
