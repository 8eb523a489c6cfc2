"""Random entries of a `.log` in every format and codec, some of them damaged under a right CRC."""

import zlib
from random import Random

from tests.builders.segment_builder import (
    LEGACY_CODECS,
    V2_CODECS,
    Record,
    crc32c,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
)

TIME = 1_700_000_000_000
_KEY_BYTES = (0, 1, 5, 17, 40, 100)
_VALUE_BYTES = (0, 1, 3, 8, 33, 200, 1000)


def random_log(random: Random, *, entries: int, damaged: float = 0.3) -> bytes:
    """Return a log; each entry is damaged with this probability, its framing and CRC are right."""
    log, offset = [], random.choice((0, 0, 1000))
    for _ in range(entries):
        entry, offset = random_entry(random, offset)
        log.append(with_damage(random, entry) if random.random() < damaged else entry)
    return b"".join(log)


def random_entry(random: Random, offset: int) -> tuple[bytes, int]:
    """Return an entry that begins at an offset, and the offset after it."""
    kind = random.random()
    if kind < 0.7:
        count = random.choice((0, 1, 1, 2, 5, 50))
        counted = None if random.random() < 0.95 else random.randrange(-2, 60)
        stamped = TIME if random.random() < 0.2 else None
        entry = v2_batch(
            offset,
            random_records(random, count),
            codec=random.choice(V2_CODECS),
            log_append_time=stamped,
            records_count=counted,
        )
        return entry, offset + max(count, 1)
    if kind < 0.8:
        return _message(random, offset), offset + 1
    return _wrapper(random, offset)


def random_records(random: Random, count: int) -> list[Record]:
    """Return records with keys, values and headers of many sizes, and nulls."""
    return [
        Record(
            TIME + random.randrange(-1000, 1000),
            None if random.random() < 0.3 else random.randbytes(random.choice(_KEY_BYTES)),
            None if random.random() < 0.1 else random.randbytes(random.choice(_VALUE_BYTES)),
            tuple(_header(random) for _ in range(random.choice((0, 0, 0, 1, 3)))),
        )
        for _ in range(count)
    ]


def with_damage(random: Random, entry: bytes) -> bytes:
    """Return an entry with wrong bytes in it, perhaps shorter; its size and CRC fit."""
    data = bytearray(entry)
    is_v2 = 2 <= entry[16] < 128
    for _ in range(random.choice((1, 1, 2, 5))):
        first = 17 if random.random() < 0.2 else min(61, len(data) - 1)
        value = random.choice((0, 255, 1, 0x7F, 0x80, random.randrange(256)))
        data[random.randrange(first, len(data))] = value
    if len(data) > 62 and random.random() < 0.2:
        del data[random.randrange(62 if is_v2 else 27, len(data) + 1) :]
        data[8:12] = (len(data) - 12).to_bytes(4)
    if is_v2:
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    else:
        data[12:16] = zlib.crc32(data[16:]).to_bytes(4)
    return bytes(data)


def _header(random: Random) -> tuple[str, bytes | None]:
    value = random.choice((None, b"", random.randbytes(random.randrange(50))))
    return random.choice(("a", "é", "key" * 10, "")), value


def _message(random: Random, offset: int) -> bytes:
    if random.random() < 0.5:
        return v0_message(offset, random.choice((None, b"k" * 9)), random.randbytes(30))
    stamped = random.random() < 0.3
    return v1_message(offset, TIME, random.randbytes(4), None, log_append_time=stamped)


def _wrapper(random: Random, offset: int) -> tuple[bytes, int]:
    """Return a wrapper; some have messages of the other magic, or a compressed one."""
    count, magic = random.choice((1, 2, 9)), random.choice((0, 1))
    inner = [
        v0_message(offset + i, random.randbytes(3), random.randbytes(40))
        if (magic == 0) != (random.random() < 0.1)
        else v1_message(
            *(i, TIME + i, None, random.randbytes(5)),
            attributes=1 if random.random() < 0.02 else None,
        )
        for i in range(count)
    ]
    stamped = magic == 1 and random.random() < 0.3
    codec = random.choice(LEGACY_CODECS)
    entry = wrapper(offset + count - 1, inner, magic=magic, codec=codec, log_append_time=stamped)
    return entry, offset + count
