"""Random damage to a segment: what disks, crashes, copies and buggy writers do to it.

Half of it is caught by a CRC. The other half makes the CRC true again, so that recovery walks on
into lengths, offsets, timestamps and producers that lie.
"""

import random
import struct
from collections.abc import Callable

from tests.integration.kafka.batches import CONTROL, V2_HEADER_BYTES, with_field, with_true_crc

Batches = list[bytes]

V2_FIELDS = {
    "base offset": (0, "q"),
    "leader epoch": (12, "i"),
    "magic": (16, "b"),
    "attributes": (21, "h"),
    "last offset delta": (23, "i"),
    "base timestamp": (27, "q"),
    "max timestamp": (35, "q"),
    "producer id": (43, "q"),
    "producer epoch": (51, "h"),
    "base sequence": (53, "i"),
    "records count": (57, "i"),
}
LEGACY_FIELDS = {
    "offset": (0, "q"),
    "magic": (16, "b"),
    "attributes": (17, "b"),
    "timestamp": (18, "q"),
}
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def damaged(rng: random.Random, batches: Batches) -> tuple[bytes, str]:
    """Return the bytes of `batches` after none to three damages, and their names."""
    names = []
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
        if batches:
            harm = rng.choice(HARMS)
            batches, name = harm(rng, list(batches))
            names.append(name)
    log = b"".join(batches)
    if rng.random() < 0.3:
        log, name = rng.choice(ENDINGS)(rng, log)
        names.append(name)
    return log, ", ".join(names) or "none"


def _interesting(rng: random.Random, layout: str, now: int) -> int:
    bits = BITS[layout]
    top = 2 ** (bits - 1)
    value = rng.choice(
        (
            *(0, 1, -1, 2, 5, now + 1, now - 1, now + rng.randint(-9, 9), -now),
            *(top - 1, -top, now ^ (1 << rng.randrange(bits)), rng.randrange(-top, top)),
            rng.randrange(-(2 ** min(bits - 1, 31)), 2 ** min(bits - 1, 31)),
        )
    )
    return (value + top) % (2 * top) - top


def _is_legacy(wire: bytes) -> bool:
    return wire[16] < 2 or wire[16] > 127


def _v2_places(batches: Batches) -> list[int]:
    return [
        place
        for place, wire in enumerate(batches)
        if len(wire) >= V2_HEADER_BYTES and not _is_legacy(wire)
    ]


def _lie_in_header(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.randrange(len(batches))
    wire = batches[place]
    fields = LEGACY_FIELDS if _is_legacy(wire) else V2_FIELDS
    name = rng.choice(list(fields))
    position, layout = fields[name]
    if position + BITS[layout] // 8 > len(wire):
        return batches, "none"
    now = struct.unpack_from(f">{layout}", wire, position)[0]
    batches[place] = with_field(wire, position, layout, _interesting(rng, layout, now))
    return batches, f"{name} of batch {place}"


def _lie_in_offsets(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.choice((rng.randrange(len(batches)), len(batches) - 1))
    offset = struct.unpack_from(">q", batches[place])[0]
    near = offset + rng.choice((-20, -5, -3, -2, -1, 1, 2, 5, 1000, 2**31 - 1, 2**31, -(2**33)))
    near = max(-(2**63), min(near, 2**63 - 1))
    batches[place] = with_field(batches[place], 0, "q", near)
    return batches, f"offset of batch {place}"


def _stretch(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    """Let a v2 batch begin earlier, even below the base offset or zero, and end where it did."""
    v2 = _v2_places(batches)
    if not v2:
        return batches, "none"
    place = rng.choice(v2)
    longer = rng.choice((1, 2, 7, 1000))
    base, delta = (
        struct.unpack_from(f">{k}", batches[place], p)[0] for p, k in ((0, "q"), (23, "i"))
    )
    if base - longer < -(2**63) or delta + longer >= 2**31:
        return batches, "none"
    wire = with_field(batches[place], 0, "q", base - longer)
    batches[place] = with_field(wire, 23, "i", delta + longer)
    return batches, f"batch {place} begins {longer} earlier"


def _harm_control(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    """Change a byte of a control batch's record, or make a control batch of a data batch."""
    v2 = _v2_places(batches)
    if not v2:
        return batches, "none"
    controls = [i for i in v2 if len(batches[i]) > 61 and batches[i][22] & CONTROL]
    if controls and rng.random() < 0.8:
        place = rng.choice(controls)
        position = rng.randrange(V2_HEADER_BYTES, len(batches[place]))
        value = rng.choice((0, 1, 2, 4, 8, 127, 128, 255, rng.randrange(256)))
        body = bytearray(batches[place])
        body[position] = value
        batches[place] = with_true_crc(bytes(body))
        return batches, f"byte {position} of control batch {place}"
    place = rng.choice(v2)
    attributes = struct.unpack_from(">h", batches[place], 21)[0] | CONTROL
    wire = with_field(batches[place], 21, "h", attributes)
    batches[place] = with_field(wire, 43, "q", rng.choice((0, 1, 2, -1)))
    return batches, f"control bit of batch {place}"


def _resize(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    """Make a batch shorter or longer, with a size field and a CRC that agree."""
    place = rng.randrange(len(batches))
    wire = batches[place]
    least = 26 if _is_legacy(wire) else 60
    size = max(least, rng.choice((least, least + 1, len(wire) - 1, len(wire) + 1, len(wire) + 40)))
    wire = wire[:size].ljust(size, b"\0")
    batches[place] = with_field(wire, 8, "i", size - 12)
    return batches, f"length of batch {place}"


def _lie_in_size(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.randrange(len(batches))
    wire = bytearray(batches[place])
    now = struct.unpack_from(">i", wire, 8)[0]
    struct.pack_into(">i", wire, 8, _interesting(rng, "i", now))
    batches[place] = bytes(wire)
    return batches, f"size field of batch {place}"


def _flip_bit(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.randrange(len(batches))
    wire = bytearray(batches[place])
    position = rng.randrange(len(wire)) if rng.random() < 0.5 else rng.randrange(min(61, len(wire)))
    wire[position] ^= 1 << rng.randrange(8)
    batches[place] = bytes(wire)
    return batches, f"a bit of batch {place}"


def _insert_garbage(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.randrange(len(batches) + 1)
    batches.insert(place, rng.randbytes(rng.choice((61, 62, 90))))
    return batches, f"garbage before batch {place}"


def _lose(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.randrange(len(batches))
    del batches[place]
    return batches, f"batch {place} lost"


def _repeat(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    place = rng.randrange(len(batches))
    batches.insert(rng.randrange(len(batches) + 1), batches[place])
    return batches, f"batch {place} twice"


def _swap(rng: random.Random, batches: Batches) -> tuple[Batches, str]:
    one, other = rng.randrange(len(batches)), rng.randrange(len(batches))
    batches[one], batches[other] = batches[other], batches[one]
    return batches, f"batches {one} and {other} swapped"


def _cut(rng: random.Random, log: bytes) -> tuple[bytes, str]:
    end = rng.randrange(len(log) + 1)
    return log[:end], f"cut at byte {end}"


def _zero_tail(rng: random.Random, log: bytes) -> tuple[bytes, str]:
    zeros = rng.choice((1, 12, 17, 18, 19, 100, 5000))
    return log + bytes(zeros), f"{zeros} zero bytes at the end"


def _garbage_tail(rng: random.Random, log: bytes) -> tuple[bytes, str]:
    garbage = rng.randbytes(rng.choice((1, 17, 18, 40, 200)))
    return log + garbage, f"{len(garbage)} bytes of garbage at the end"


def _zero_block(rng: random.Random, log: bytes) -> tuple[bytes, str]:
    start = rng.randrange(len(log) + 1)
    zeros = bytes(min(rng.choice((8, 64, 512)), len(log) - start))
    return log[:start] + zeros + log[start + len(zeros) :], f"{len(zeros)} zeros at byte {start}"


HARMS: tuple[Callable[[random.Random, Batches], tuple[Batches, str]], ...] = (
    *(_lie_in_header, _lie_in_header, _lie_in_header, _lie_in_offsets, _lie_in_offsets),
    *(_harm_control, _harm_control, _resize, _stretch, _lie_in_size, _flip_bit, _insert_garbage),
    *(_lose, _repeat, _swap),
)
ENDINGS: tuple[Callable[[random.Random, bytes], tuple[bytes, str]], ...] = (
    *(_cut, _zero_tail, _garbage_tail, _zero_block),
)
