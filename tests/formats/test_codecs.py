"""Bodies of every codec: complete, in pieces, damaged, and with false sizes."""

import struct
import tracemalloc
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_NAMES
from kip33.formats.byte_sources import PieceReader
from kip33.formats.codecs import DECOMPRESSED_CHUNK_BYTES, Steps, decode_prefix, decompress
from kip33.formats.whole_bodies import WholeBodies
from tests.builders.segment_builder import CODEC_BITS, V2_CODECS, compress, lz4_frame, xxh32
from tests.cases import each_case
from tests.long_forms import examples, short_and_long

COMPRESSED = [codec for codec in V2_CODECS if codec != "none"]
PLAIN = bytes(range(256)) * 300 + b"kafka " * 20000


def inflate(stored: bytes, codec: str, *, magic: int = 2, piece: int | None = None) -> bytes:
    step = piece or max(1, len(stored))
    pieces = [stored[at : at + step] for at in range(0, len(stored), step)]
    chunks = list(decompress(pieces, CODEC_NAMES[CODEC_BITS.get(codec, 0)], magic=magic))
    assert all(0 < len(chunk) <= DECOMPRESSED_CHUNK_BYTES for chunk in chunks)
    return b"".join(chunks)


@each_case("magic", [0, 1, 2])
@each_case("piece", [None, 1, 1000])
@each_case("codec", V2_CODECS)
def test_every_codec(codec: str, piece: int | None, magic: int) -> None:
    stored = compress(PLAIN, codec, magic=magic)
    if codec == "zstd" and magic < 2:
        with pytest.raises(UnsupportedFormatError, match=f"magic {magic} has no codec zstd"):
            inflate(stored, codec, magic=magic)
    else:
        assert inflate(stored, codec, magic=magic, piece=piece) == PLAIN


@each_case("codec", ["codec-5", "codec-6", "codec-7", "brotli"])
def test_codec_unknown_to_kafka(codec: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"magic 2 has no codec {codec}"):
        decompress([b"x"], codec, magic=2)


@each_case("codec", ["gzip", "zstd"])
def test_concatenated_streams(codec: str) -> None:
    stored = compress(b"first ", codec) + compress(b"", codec) + compress(b"second", codec)
    assert inflate(stored, codec) == b"first second"
    assert inflate(stored, codec, piece=1) == b"first second"


def test_gzip_ignores_bytes_after_the_last_member() -> None:
    assert inflate(compress(b"text", "gzip") + b"junk" * 9, "gzip") == b"text"
    assert inflate(compress(b"text", "gzip") + bytes(3), "gzip", piece=1) == b"text"


def test_lz4_ignores_bytes_after_the_frame() -> None:
    assert inflate(lz4_frame(b"text") + lz4_frame(b"more"), "lz4") == b"text"


def test_zstd_with_junk_after_the_frame() -> None:
    with pytest.raises(CorruptSegmentError, match=r"^zstd: "):
        inflate(compress(b"text", "zstd") + b"junk" * 9, "zstd")


def test_lz4_header_checksum_is_ignored_in_magic_0_only() -> None:
    broken = lz4_frame(PLAIN, broken_header_checksum=True)
    assert broken != lz4_frame(PLAIN)
    assert inflate(broken, "lz4", magic=0) == PLAIN
    assert inflate(lz4_frame(PLAIN), "lz4", magic=0) == PLAIN
    for magic in (1, 2):
        with pytest.raises(CorruptSegmentError, match="lz4: the frame header does not match"):
            inflate(broken, "lz4", magic=magic)


def lz4_with(descriptor: bytes, after_block: bytes = b"", after_end: bytes = b"") -> bytes:
    checksum = bytes([xxh32(descriptor) >> 8 & 0xFF])
    block = struct.pack("<I", 4 | 0x80000000) + b"text" + after_block
    return b"\x04\x22\x4d\x18" + descriptor + checksum + block + bytes(4) + after_end


EMPTY_BLOCK = b"\1\0\0\0\0"  # Kafka's reader takes it as the end


@each_case(
    "frame",
    {
        "blocks up to 4 MiB": lz4_with(b"\x60\x70"),
        "content size, and a wrong one": lz4_with(b"\x68\x40" + bytes(8)),
        "wrong content checksum": lz4_with(b"\x64\x40", after_end=b"\0\0\0\0"),
        "empty blocks": lz4_with(b"\x60\x40", EMPTY_BLOCK + EMPTY_BLOCK),
        "junk after an empty block": lz4_with(b"\x60\x40", EMPTY_BLOCK + b"junk"),
    },
)
def test_lz4_as_lenient_as_kafka(frame: bytes) -> None:
    assert inflate(frame, "lz4") == b"text"
    bodies = WholeBodies(1 << 20)
    assert bodies.append(memoryview(frame), CODEC_NAMES.index("lz4"), magic=2).is_complete
    assert bodies.data.tobytes() == b"text"


@each_case("left", range(4))
def test_lz4_content_checksum_that_is_cut_off(left: int) -> None:
    """Kafka does not compare it, but its 4 bytes must be there (BufferUnderflowException)."""
    with pytest.raises(CorruptSegmentError, match="lz4: the stream ends inside the content check"):
        inflate(lz4_with(b"\x64\x40", after_end=bytes(left)), "lz4")


@each_case("byte", [0, 1])
def test_lz4_block_checksum(byte: int) -> None:
    checksum = xxh32(b"text") ^ byte
    frame = lz4_with(b"\x70\x40", after_block=struct.pack("<I", checksum))
    if byte == 0:
        assert inflate(frame, "lz4") == b"text"
    else:
        with pytest.raises(CorruptSegmentError, match=r"^lz4: "):
            inflate(frame, "lz4")


@each_case(
    "descriptor",
    {
        "linked blocks": b"\x40\x40",
        "dictionary": b"\x61\x40",
        "version 2": b"\xa0\x40",
        "block size 3": b"\x60\x30",
        "reserved bit": b"\x60\xc0",
    },
)
def test_lz4_descriptor_that_kafka_refuses(descriptor: bytes) -> None:
    with pytest.raises(CorruptSegmentError, match=f"lz4: frame descriptor {descriptor.hex()}"):
        inflate(lz4_with(descriptor), "lz4")


@each_case("codec", COMPRESSED)
def test_torn_anywhere(codec: str) -> None:
    plain = b"kafka" * 20
    stored = compress(plain, codec)
    name = CODEC_NAMES[CODEC_BITS[codec]]
    for cut in range(len(stored)):
        if name == "snappy" and 16 <= cut < 20 and codec != "snappy-raw":
            # The framing's header, and less than a block's length: to Java that is the end.
            assert inflate(stored[:cut], codec) == b""
            continue
        with pytest.raises(CorruptSegmentError, match=rf"^{name}: [^\n]+$"):
            inflate(stored[:cut], codec)


@settings(max_examples=examples(300))
@given(st.data(), st.sampled_from(COMPRESSED))
def test_one_byte_changed_is_named_or_read(data: st.DataObject, codec: str) -> None:
    stored = bytearray(compress(b"kafka" * 50 + bytes(range(99)), codec))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    try:
        inflate(bytes(stored), codec)
    except CorruptSegmentError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
@each_case("codec", ["gzip", "lz4", "zstd"])
def test_bomb_is_read_a_chunk_at_a_time(codec: str) -> None:
    size = 64 << 20
    stored = compress(bytes(size), codec)
    pa_before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        total = sum(len(chunk) for chunk in decompress([stored], codec, magic=2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == size
    assert peak < 8 * DECOMPRESSED_CHUNK_BYTES + 2 * len(stored)
    assert pa.total_allocated_bytes() - pa_before < 8 * DECOMPRESSED_CHUNK_BYTES


@each_case(
    "stored",
    {
        "bare block claims 2 GiB": b"\xff\xff\xff\xff\x07" + b"\x00" * 90,
        "size varint without an end": b"\xff\xff\xff\xff\xff" * 5,
        "frame claims 2 GiB": compress(b"", "snappy")[:16] + b"\x7f\xff\xff\xff" + b"abc",
        "negative block": compress(b"", "snappy")[:16] + b"\xff\xff\xff\xff",
    },
)
def test_snappy_claims_are_not_allocated(stored: bytes) -> None:
    allocated = pa.default_memory_pool().max_memory() or 0
    with pytest.raises(CorruptSegmentError, match=r"^snappy: "):
        inflate(stored, "snappy")
    assert (pa.default_memory_pool().max_memory() or 0) - allocated < 1 << 20


def test_lz4_block_above_the_frames_maximum() -> None:
    frame = lz4_frame(b"text")[:7] + struct.pack("<I", 65537) + bytes(65537)
    with pytest.raises(CorruptSegmentError, match="lz4: a block of 65537 bytes"):
        inflate(frame, "lz4")


@given(st.lists(st.binary(max_size=9), max_size=9), st.lists(st.integers(0, 12), max_size=12))
def test_piece_reader_equals_a_slice(pieces: list[bytes], steps: list[int]) -> None:
    data, at, reader = b"".join(pieces), 0, PieceReader(pieces)
    for number, step in enumerate(steps):
        if number % 3 == 2:
            assert reader.skip(step) == (at + step <= len(data))
        else:
            assert reader.take(step) == data[at : at + step]
        at = min(at + step, len(data))
    assert reader.at_end() == (at == len(data))
    assert b"".join(reader.rest()) == data[at:]


def decoded_byte_by_byte(stored: bytes, name: str, most_bytes: int) -> tuple[bytes, bool]:
    """What decodes before damage, and whether there is damage: the slow and certain way."""
    data = b""
    try:
        for piece in decompress([stored], name, magic=2, steps=Steps(taken=1, given=1)):
            data += piece
            if len(data) > most_bytes:
                break
    except CorruptSegmentError:
        return data, True
    return data, False


def decoded_to_damage(stored: bytes, name: str) -> tuple[bytes, bool]:
    data = b""
    try:
        for piece in decompress([stored], name, magic=2):
            data += piece
    except CorruptSegmentError:
        return data, True
    return data, False


def damaged(chance: Random, stored: bytes) -> bytes:
    """The bytes with a bit turned, a piece cut out, or an end cut off."""
    at = chance.randrange(len(stored))
    kind = chance.choice(("bit", "cut", "hole", "none"))
    if kind == "bit":
        return stored[:at] + bytes([stored[at] ^ 1 << chance.randrange(8)]) + stored[at + 1 :]
    if kind == "cut":
        return stored[: at + 1]
    return stored[:at] + stored[at + 3 :] if kind == "hole" else stored


@each_case("codec", COMPRESSED)
@pytest.mark.parametrize("seed", short_and_long(1, 10, "KIP33_PREFIX_SEEDS"))
def test_a_prefix_is_what_decodes_byte_by_byte(codec: str, seed: int) -> None:
    name = CODEC_NAMES[CODEC_BITS[codec]]
    for number in range(seed if seed > 1 else 15):
        chance = Random(f"{codec} {seed} {number}")
        plain = chance.choice((chance.randbytes(300), b"text" * 500, chance.randbytes(9000)))
        stored = damaged(chance, compress(plain, codec) + compress(b"more", codec))
        prefix = decode_prefix(stored, name, magic=2, most_bytes=20_000)
        expected = decoded_byte_by_byte(stored, name, 20_000)
        assert (prefix.data, prefix.error is not None) == expected, f"seed {codec} {seed} {number}"
        assert decoded_to_damage(stored, name) == expected, f"seed {codec} {seed} {number}"


@each_case("codec", COMPRESSED)
def test_the_number_of_steps_to_a_prefix_is_proportional_to_the_size(codec: str) -> None:
    name = CODEC_NAMES[CODEC_BITS[codec]]
    stored = compress(Random(33).randbytes(1 << 20), codec)
    for damage in (stored, stored[:-3], stored[: 1 << 19], stored[:-40] + bytes(40)):
        prefix = decode_prefix(damage, name, magic=2, most_bytes=1 << 20)
        assert prefix.steps < 5000, prefix.steps  # a byte at a time: two million
