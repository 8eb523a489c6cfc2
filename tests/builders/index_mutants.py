"""Thousands of damaged segments, and a recovery of forty lines to compare the results with.

`python -m tests.builders.index_mutants SEED COUNT` damages prefixes of real segments, or of built
ones if there are no real ones, and prints the outcomes as JSON. It runs in its own process, so that
its memory can be measured.
"""

import json
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from kip33.indexing.segment import BuiltIndexes, index_segment
from kip33.indexing.verification import Verification
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_verdict import IndexVerdict
from tests.builders.damaged_indexes import damaged
from tests.builders.logs_in_memory import read_into_of
from tests.builders.segment_builder import (
    CONTROL,
    TRANSACTIONAL,
    Record,
    crc32c,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
)
from tests.formats.real_segments import REAL_SEGMENTS

MOST_BYTES = 6 * 1024
INTERVALS = (0, 100, 4096)
STATUSES = ("ok", "empty", "truncated", "invalid")
# What the short recovery below does not model: producer state and the leader epoch cache.
BEYOND_THE_MODEL = ("control batch", "producer ", "leader epoch")


class Base(NamedTuple):
    """An intact segment from which mutants are made."""

    name: str
    log: bytes
    time_index: bytes
    offset_index: bytes


def bases() -> list[Base]:
    return [*real_bases(), *built_bases()]


def real_bases() -> Iterator[Base]:
    """Yield the first complete batches of each; an index of 50 entries may name later ones."""
    for name, path in REAL_SEGMENTS.items():
        log = path.read_bytes()
        *_, end = [at for at in starts_of(log) if at <= MOST_BYTES]
        indexes = (path.with_suffix(suffix).read_bytes() for suffix in (".timeindex", ".index"))
        yield Base(name, log[:end], *(index[:600] for index in indexes))


def built_bases() -> Iterator[Base]:
    """Yield segments with every kind of entry; these are always available."""
    for codec in ("none", "gzip", "zstd", "lz4", "snappy"):
        entries = [
            v0_message(0, b"k", bytes(20)),
            v1_message(1, 1000, None, bytes(30)),
            wrapper(3, [v1_message(0, 1001), v1_message(1, 1002)]),
        ]
        for i in range(4, 40, 3):
            records = [Record(1000 + 7 * i % 90 + j, b"key", bytes(i)) for j in range(3)]
            entries.append(v2_batch(i, records, codec=codec))
        entries += [
            v2_batch(50, [Record(2000)], transactional=True, producer_id=3),
            end_txn_marker(51, 2001, producer_id=3, commit=codec != "gzip"),
            v2_batch(52, last_offset_delta=6, max_timestamp=2002),
            v2_batch(60, [Record(1500)], log_append_time=2003),
        ]
        yield Base(f"built, {codec}", b"".join(entries), b"", b"")


# Where a v2 header's fields are, and whether the crc covers them.
FIELDS = {
    "base offset": (0, ">q"), "size": (8, ">i"), "leader epoch": (12, ">i"), "magic": (16, ">b"),
    "crc": (17, ">I"), "attributes": (21, ">h"), "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"), "max timestamp": (35, ">q"), "producer id": (43, ">q"),
    "producer epoch": (51, ">h"), "base sequence": (53, ">i"), "records count": (57, ">i"),
}  # fmt: skip
LEGACY_FIELDS = {
    "offset": (0, ">q"), "size": (8, ">i"), "magic": (16, ">b"), "attributes": (17, ">b"),
    "timestamp": (18, ">q"),
}  # fmt: skip
BITS = {"q": 64, "i": 32, "h": 16, "b": 8, "I": 32}
NEAR = (-(2**33), -1000, -20, -5, -2, -1, 1, 2, 5, 1000, 2**31 - 1, 2**31)


def starts_of(log: bytes) -> list[int]:
    """Return the positions of the batches according to the size fields."""
    starts, at = [], 0
    while at + 17 < len(log):
        (size,) = struct.unpack_from(">i", log, at + 8)
        if size < 14 or at + 12 + size > len(log):
            break
        starts.append(at)
        at += 12 + size
    return starts


def end_of(log: bytearray, at: int) -> int:
    return at + 12 + int(struct.unpack_from(">i", log, at + 8)[0])


def is_v2(log: bytearray, at: int) -> bool:
    return log[at + 16] in range(2, 128) and end_of(log, at) >= at + 61


def with_right_crc(log: bytearray, at: int) -> None:
    """Correct the checksum of the batch at `at`, if the batch is complete."""
    (size,) = struct.unpack_from(">i", log, at + 8)
    stop = at + 12 + size
    if size < 5 or stop > len(log):  # correct the checksum even if the size is too small
        return
    if log[at + 16] in range(2, 128):
        if size >= 49:
            struct.pack_into(">I", log, at + 17, crc32c(bytes(log[at + 21 : stop])))
    else:
        struct.pack_into(">I", log, at + 12, zlib.crc32(log[at + 16 : stop]))


def flip_bit(random: Random, log: bytearray) -> None:
    log[random.randrange(len(log))] ^= 1 << random.randrange(8)


def overwrite_run(random: Random, log: bytearray) -> None:
    at, length = random.randrange(len(log)), random.randint(1, 40)
    filler = random.choice([bytes(length), b"\xff" * length, random.randbytes(length)])
    log[at : at + length] = filler


def cut(random: Random, log: bytearray) -> None:
    del log[random.randrange(len(log)) :]


def drop_run(random: Random, log: bytearray) -> None:
    at = random.randrange(len(log))
    del log[at : at + random.randint(1, 200)]


def insert_run(random: Random, log: bytearray) -> None:
    at = random.choice([random.randrange(len(log)), *starts_of(bytes(log))])
    log[at:at] = random.choice([bytes(61), random.randbytes(30), bytes(log[at : at + 120])])


def swap_chunks(random: Random, log: bytearray) -> None:
    """Swap complete batches, or any chunks: offsets go back, but nothing else is wrong."""
    places = starts_of(bytes(log)) if random.random() < 0.7 else range(len(log))
    if len(places) < 4:
        return
    a, b, c, d = sorted(random.sample(places, 4))
    log[a:d] = log[c:d] + log[b:c] + log[a:b]


def edit_field(random: Random, log: bytearray) -> None:
    """Set a header field to any value with a correct checksum: well-formed, but perhaps absurd."""
    starts = starts_of(bytes(log))
    if not starts:
        return
    at = random.choice((*starts, *starts[-1:] * len(starts)))  # often that of the last batch
    fields = FIELDS if log[at + 16] in range(2, 128) else LEGACY_FIELDS
    name = random.choice((*fields, *[next(iter(fields))] * 5))  # the offset has most to say
    place, kind = fields[name]
    if at + place + struct.calcsize(kind) > len(log):
        return
    bits = BITS[kind[1]]
    low, high = (0, 2**bits - 1) if kind == ">I" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    (before,) = struct.unpack_from(kind, log, at + place)
    near = [before + by for by in NEAR]
    value = random.choice(
        [low, high, 0, 1, 5, 13, 14, 48, 49, 127, random.randint(low, high), *near, *near]
    )
    struct.pack_into(kind, log, at + place, min(max(value, low), high))
    if name != "crc":
        with_right_crc(log, at)


def edit_body(random: Random, log: bytearray) -> None:
    """Replace records by garbage with a correct checksum."""
    starts = starts_of(bytes(log))
    if starts:
        at = random.choice(starts)
        (size,) = struct.unpack_from(">i", log, at + 8)
        if size > 60:
            log[at + 61 + random.randrange(size - 49 or 1)] = random.randrange(256)
            with_right_crc(log, at)


def harm_control(random: Random, log: bytearray) -> None:
    """Change a byte of a control batch's record, or what a batch is: control, of a transaction."""
    places = [at for at in starts_of(bytes(log)) if is_v2(log, at)]
    controls = [at for at in places if log[at + 22] & CONTROL and end_of(log, at) > at + 61]
    if controls and random.random() < 0.6:
        at = random.choice(controls)
        value = random.choice((0, 1, 2, 4, 8, 127, 128, 255, random.randrange(256)))
        log[random.randrange(at + 61, end_of(log, at))] = value
    elif places and random.random() < 0.5:
        at = random.choice(places)
        log[at + 22] ^= TRANSACTIONAL
    elif places:
        at = random.choice(places)
        log[at + 22] |= CONTROL
        struct.pack_into(">q", log, at + 43, random.choice((0, 1, 2, -1)))
    else:
        return
    with_right_crc(log, at)


def stretch(random: Random, log: bytearray) -> None:
    """Let a batch begin earlier, even below the base offset or zero, and end where it did."""
    places = [at for at in starts_of(bytes(log)) if is_v2(log, at)]
    if places:
        at, longer = random.choice(places), random.choice((1, 2, 7, 1000))
        (base,), (delta,) = (struct.unpack_from(k, log, at + p) for p, k in ((0, ">q"), (23, ">i")))
        if base - longer >= -(2**63) and delta + longer < 2**31:
            struct.pack_into(">q", log, at, base - longer)
            struct.pack_into(">i", log, at + 23, delta + longer)
            with_right_crc(log, at)


def resize(random: Random, log: bytearray) -> None:
    """Make a batch shorter or longer, with a size field and a checksum that agree."""
    if starts := starts_of(bytes(log)):
        at = random.choice(starts)
        batch, least = bytes(log[at : end_of(log, at)]), 60 if is_v2(log, at) else 26
        sizes = (least, least + 1, len(batch) - 1, len(batch) + 1, len(batch) + 40)
        size = max(least, random.choice(sizes))
        log[at : at + len(batch)] = batch[:size].ljust(size, b"\0")
        struct.pack_into(">i", log, at + 8, size - 12)
        with_right_crc(log, at)


def lose_or_repeat(random: Random, log: bytearray) -> None:
    if starts := starts_of(bytes(log)):
        at = random.choice(starts)
        log[at : end_of(log, at)] = log[at : end_of(log, at)] * random.choice((0, 2))


def append_run(random: Random, log: bytearray) -> None:
    length = random.choice((1, 12, 17, 18, 19, 40, 100, 5000))
    log += random.choice((bytes(length), random.randbytes(min(length, 200))))


MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (
    *(flip_bit, overwrite_run, cut, drop_run, insert_run, swap_chunks, lose_or_repeat, append_run),
    *(edit_field, edit_field, edit_field, edit_field, edit_body),
    *(harm_control, harm_control, harm_control, stretch, resize),
)


def mutant(random: Random, intact: bytes) -> bytes:
    log = bytearray(intact)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if log:
            random.choice(MUTATIONS)(random, log)
    return bytes(log)


def mutated_index(random: Random, data: bytes, own: bytes | None, entry_bytes: int) -> bytes | None:
    """Return an index file to verify: missing, the broker's or ours, damaged, padded, random."""
    own = own or b""
    data, _ = damaged(random, random.choice([data, own, own[-entry_bytes:]]), entry_bytes)
    return random.choice([None, data, data, data + bytes(24)])


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


class Recovered(NamedTuple):
    """`time_index` is None if Kafka leaves no index; then `valid_bytes` is where it stopped."""

    valid_bytes: int
    time_index: bytes | None
    offset_index: bytes | None


def recovered(log: bytes, interval: int, base_offset: int = 0) -> Recovered:
    """Return the result of Kafka's recovery, step by step, without producer state."""
    times: list[tuple[int, int]] = []
    offsets: list[tuple[int, int]] = []
    largest, at_offset = -1, base_offset
    valid = last_indexed = 0

    def maybe_append() -> bool:
        if times and at_offset < times[-1][1]:
            return False
        if largest > (times[-1][0] if times else -1):
            times.append((largest, at_offset))
        return True

    while valid < len(log) - 17:
        offset, size = struct.unpack_from(">qi", log, valid)
        stop = valid + 12 + size
        if size < 14 or stop > len(log):
            break
        (magic,) = struct.unpack_from(">b", log, valid + 16)
        if magic < 2:
            (crc,) = struct.unpack_from(">I", log, valid + 12)
            right = crc == zlib.crc32(log[valid + 16 : stop])
            last = offset
            timestamp = struct.unpack_from(">q", log, valid + 18)[0] if magic else -1
        else:
            if size < 49:
                break
            (crc,) = struct.unpack_from(">I", log, valid + 17)
            right = crc == crc32c(log[valid + 21 : stop])
            last = wrapped(offset + struct.unpack_from(">i", log, valid + 23)[0])
            (timestamp,) = struct.unpack_from(">q", log, valid + 35)
        if not right:
            break
        if not 0 <= wrapped(last - base_offset) <= 2**31 - 1:
            return Recovered(valid, None, None)
        if timestamp > largest:
            largest, at_offset = timestamp, last
        if valid - last_indexed > interval:
            if offsets and last <= offsets[-1][0]:
                return Recovered(valid, None, None)
            offsets.append((last, valid))
            if not maybe_append():
                return Recovered(valid, None, None)
            last_indexed = valid
        valid = stop
    if not maybe_append():
        return Recovered(valid, None, None)
    return Recovered(
        valid,
        b"".join(struct.pack(">qi", t, wrapped(o - base_offset)) for t, o in times),
        b"".join(struct.pack(">ii", wrapped(o - base_offset), p) for o, p in offsets),
    )


def faults_of(log: bytes, interval: int, index: BuiltIndexes) -> Iterator[str]:
    """Yield what is wrong with the result for a damaged log."""
    if index.status not in STATUSES:
        yield f"status {index.status}"
    if not 0 <= index.valid_bytes <= len(log) == index.size_bytes:
        yield f"{index.valid_bytes} valid bytes of {len(log)}"
    if (index.time_index_data is None) != (index.status == "invalid"):
        yield f"{index.status} and an index of {index.time_index_data!r}"
    if (index.error is None) != (index.status in ("ok", "empty")):
        yield f"{index.status} and {index.error}"
    model = recovered(log, interval)
    if any(reason in (index.error or "") for reason in BEYOND_THE_MODEL):
        if index.valid_bytes > model.valid_bytes:
            yield f"{index.valid_bytes} valid bytes, at most {model.valid_bytes} expected"
        if index.time_index_data is None:
            return
        model = recovered(log[: index.valid_bytes], interval)
    expected = (model.valid_bytes, model.time_index, model.offset_index)
    if (index.valid_bytes, index.time_index_data, index.offset_index_data) != expected:
        yield f"{index.valid_bytes, index.time_index_data, index.offset_index_data}, not {expected}"


def peak_bytes() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def run_one(random: Random, base: Base, outcomes: Counter[str]) -> list[str]:
    """Damage `base`, index and verify the result, return what is wrong with the answer."""
    log, interval = mutant(random, base.log), random.choice(INTERVALS)
    settings = IndexSettings(index_interval_bytes=interval)

    def index_of(check: Verification | None) -> BuiltIndexes:
        return index_segment(
            read_into_of(log),
            len(log),
            base_offset=0,
            topic="orders",
            settings=settings,
            native=True,
            watcher=check.append if check else None,
        )

    index = index_of(None)
    outcomes[index.status] += 1
    faults = list(faults_of(log, interval, index))
    check = Verification(
        mutated_index(random, base.time_index, index.time_index_data, 12),
        mutated_index(random, base.offset_index, index.offset_index_data, 8),
        base_offset=0,
        topic="orders",
        settings=settings,
    )
    watched = index_of(check)
    times, offsets = check.time_verdict(watched), check.offset_verdict(watched)
    outcomes[times.verdict] += 1
    if not {times.verdict, offsets.verdict if offsets else times.verdict} <= set(IndexVerdict):
        faults.append(f"verdicts {times} and {offsets}")
    if (watched.status, watched.time_index_data) != (index.status, index.time_index_data):
        faults.append(f"{watched.status} while verified, {index.status} else")
    return faults


def main(seed: str, count: int) -> None:
    kinds = [kind for kind in (list(real_bases()), list(built_bases())) if kind]
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    before = 0
    for number in range(count):
        random = Random(f"{seed} {number}")
        base = random.choice(random.choice(kinds))
        try:
            wrong = run_one(random, base, outcomes)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        faults += [f"mutant {number} of {base.name}: {fault}"[:600] for fault in wrong]
        if number == count // 20:
            before = peak_bytes()  # everything is compiled and loaded
    growth = peak_bytes() - before
    print(json.dumps({"outcomes": outcomes, "faults": faults[:20], "growth_bytes": growth}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
