"""Bodies decompressed in one step: the same bytes as chunk by chunk, or the same damage."""

import tracemalloc
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from kip33.errors import BatchTooLargeError, CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_NAMES
from kip33.formats.codecs import decompress
from kip33.formats.held_batches import ENTRY, WRAPPED
from kip33.formats.whole_bodies import PlacedBody, WholeBodies
from tests.builders.segment_builder import CODEC_BITS, V2_CODECS, compress
from tests.cases import each_case
from tests.long_forms import short_and_long

MOST = 1 << 24
SHORT_CODECS = ("gzip", "zstd")
SIZES = (0, 1, 30, 1000, 40_000, 70_000, 300_000)


def chunk_by_chunk(stored: bytes, codec: int, magic: int) -> tuple[bytes, bool]:
    """Return the bytes before any damage, and whether there is none."""
    found = b""
    try:
        for piece in decompress([stored], CODEC_NAMES[codec], magic=magic, most_bytes=MOST):
            found += piece
    except CorruptSegmentError:
        return found, False
    return found, True


def put(bodies: WholeBodies, stored: bytes, codec: int, magic: int) -> PlacedBody:
    """Decompress a body as readers do: by compiled code, or by a library if that leaves it."""
    entries = np.zeros(1, ENTRY)
    entries["kind"], entries["magic"], entries["attributes"] = WRAPPED, magic, codec
    entries["stop"] = len(stored)
    if bodies.place(np.frombuffer(stored, np.uint8), entries, 0):
        return PlacedBody(int(entries["start"][0]), int(entries["stop"][0]), is_complete=True)
    if CODEC_NAMES[codec] in SHORT_CODECS and magic >= 2:
        bounds = bodies.extend(codec, [memoryview(stored)])
        if len(bounds) > 1:
            return PlacedBody(*bounds, is_complete=True)
    return bodies.append(memoryview(stored), codec, magic=magic)


def at_once(bodies: WholeBodies, stored: bytes, codec: int, magic: int) -> tuple[bytes, bool]:
    placed = put(bodies, stored, codec, magic)
    return bytes(bodies.data[placed.start : placed.stop]), placed.is_complete


@each_case("codec", ["snappy", "lz4"])
def test_clients_bodies_are_decompressed_by_compiled_code(codec: str) -> None:
    random, bodies = Random(codec), WholeBodies(MOST)
    plain = [text(random, random.choice(SIZES[1:-1])) for _ in range(20)]
    entries = np.zeros(len(plain), ENTRY)
    stored = b""
    for entry, body in zip(entries, plain, strict=True):
        entry["kind"], entry["magic"], entry["attributes"] = WRAPPED, 2, CODEC_BITS[codec]
        entry["start"] = len(stored)
        stored += compress(body, codec)
        entry["stop"] = len(stored)
    assert bodies.place(np.frombuffer(stored, np.uint8), entries, 0) == len(plain)
    assert [bytes(bodies.data[e["start"] : e["stop"]]) for e in entries] == plain


@each_case("codec", SHORT_CODECS)
def test_short_bodies_are_decompressed_up_to_one_that_is_not_or_is_damaged(codec: str) -> None:
    random, bodies = Random(codec), WholeBodies(MOST)
    short = [text(random, size) for size in (1, 100, 60_000)]
    stored = [memoryview(compress(body, codec)) for body in (*short, bytes(70_000), b"last")]
    bounds = bodies.extend(CODEC_BITS[codec], stored)
    assert [bytes(bodies.data[slice(*two)]) for two in pairwise(bounds)] == short
    assert bodies.extend(CODEC_BITS[codec], stored[3:]) == bounds[-1:]
    assert bodies.extend(CODEC_BITS[codec], [stored[4][:-1], stored[4]]) == bounds[-1:]
    assert bytes(bodies.data) == b"".join(short)


def text(random: Random, size: int) -> bytes:
    words = [random.randbytes(random.randrange(1, 12)) for _ in range(20)]
    return b" ".join(random.choice(words) for _ in range(size // 6 + 1))[:size]


@each_case("magic", [0, 1, 2])
@each_case("codec", V2_CODECS)
def test_every_codec_and_size(codec: str, magic: int) -> None:
    if codec == "zstd" and magic < 2:
        with pytest.raises(UnsupportedFormatError, match=f"magic {magic} has no codec zstd"):
            WholeBodies(MOST).append(memoryview(b"x"), CODEC_BITS[codec], magic=magic)
        return
    bodies, random = WholeBodies(MOST), Random(codec)
    plain = [text(random, size) for size in SIZES]
    placed = []
    for body in plain:
        stored = compress(body, codec, magic=magic)
        placed.append(put(bodies, stored, CODEC_BITS[codec], magic))
    assert [bytes(bodies.data[one.start : one.stop]) for one in placed] == plain
    assert all(one.is_complete for one in placed)


@pytest.mark.parametrize("count", short_and_long(20, 1000, "KIP33_BODIES"))
@each_case("codec", V2_CODECS)
def test_damaged_bodies(codec: str, count: int) -> None:
    bodies, random, damaged = WholeBodies(MOST), Random(f"damage {codec}"), 0
    for number in range(count):
        stored = bytearray(compress(text(random, SIZES[number % len(SIZES)]), codec))
        for _ in range(random.choice((1, 1, 3))):
            if stored:
                stored[random.randrange(len(stored))] = random.randrange(256)
        kind = random.randrange(4)
        if kind == 0:
            del stored[random.randrange(len(stored) + 1) :]
        elif kind == 1:
            stored += random.randbytes(random.randrange(30))
        elif kind == 2:
            stored += compress(b"another", codec)
        expected = chunk_by_chunk(bytes(stored), CODEC_BITS[codec], 2)
        assert at_once(bodies, bytes(stored), CODEC_BITS[codec], 2) == expected, number
        damaged += not expected[1]
        if number % 10 == 0:
            bodies.clear()
    assert codec == "none" or damaged > count / 6


@each_case("codec", V2_CODECS)
def test_a_body_that_is_too_large(codec: str) -> None:
    bodies = WholeBodies(5000)
    first = put(bodies, compress(b"abc", codec), CODEC_BITS[codec], 2)
    if codec != "none":
        large = compress(bytes(600_000), codec)
        with pytest.raises(BatchTooLargeError):
            put(bodies, large, CODEC_BITS[codec], 2)
    assert bytes(bodies.data) == b"abc"
    assert first == PlacedBody(0, 3, is_complete=True)


def test_claims_take_no_memory() -> None:
    bodies = WholeBodies(1 << 30)
    tracemalloc.start()
    snappy = bytes.fromhex("ffffff7f") + b"\x00" * 20
    zstd = bytes.fromhex("28b52ffde0") + b"\xff" * 8 + b"\x00" * 20
    for stored, codec in ((snappy, "snappy"), (zstd, "zstd")):
        assert at_once(bodies, stored, CODEC_BITS[codec], 2) == (b"", False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
