"""The scan: every damage by name, fed in every way, plain and compiled.

A case is a log and how it ends; `fed` runs it at once, in the smallest chunks, and from a source
that returns one byte at a time.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.errors import CorruptSegmentError, counted
from kip33.formats.batch import BATCH, RECORD_BATCH_OVERHEAD
from kip33.formats.byte_sources import ReadInto
from kip33.formats.scan import SCAN_CHUNK_BYTES, BatchScan, read_header_at
from tests.builders.generated_segments import Written, rows_of, segments, wire_of
from tests.builders.segment_builder import (
    Record,
    v0_message,
    v1_message,
    v2_batch,
    with_broken_crc,
    wrapper,
)
from tests.cases import each_case
from tests.long_forms import examples

SMALLEST_CHUNK_BYTES = 2 * RECORD_BATCH_OVERHEAD


@dataclass
class Source:
    """A log in memory that answers at most `most_bytes` at a time."""

    data: bytes
    most_bytes: int | None = None
    calls: int = 0

    def read_into(self, position: int, view: memoryview) -> int:
        assert 0 < len(view) <= len(self.data) - position, "asked beyond the end"
        self.calls += 1
        piece = self.data[position : position + min(len(view), self.most_bytes or len(view))]
        view[: len(piece)] = piece
        return len(piece)

    def view_at(self, position: int) -> memoryview:
        assert 0 <= position < len(self.data), "asked beyond the end"
        return memoryview(self.data)[position:][: self.most_bytes]


@dataclass(frozen=True)
class Scanned:
    """All that a scan says."""

    rows: list[tuple[int, ...]]
    valid_bytes: int
    damage: str | None
    load_failure: str | None
    bytes_read: int = -1


def scan(
    data: bytes,
    *,
    most_bytes: int | None = None,
    read_into: ReadInto | None = None,
    in_place: bool = False,
    **how: int | bool | None,
) -> Scanned:
    source = Source(data, most_bytes)
    view_at = source.view_at if in_place else None
    run = BatchScan(read_into or source.read_into, len(data), view_at=view_at, **how)  # type: ignore[arg-type]
    rows = [row for batches in run for row in batches.tolist()]
    return Scanned(rows, run.valid_bytes, run.damage, run.load_failure, run.bytes_read)


FEEDINGS: dict[str, dict[str, int]] = {
    "whole": {},
    "in the smallest chunks": {"chunk_bytes": SMALLEST_CHUNK_BYTES},
    "byte by byte": {"chunk_bytes": SMALLEST_CHUNK_BYTES, "most_bytes": 1},
    "in place": {"in_place": True},
    "in place, in views of 100 bytes": {"in_place": True, "most_bytes": 100},
    "in place, byte by byte": {"in_place": True, "most_bytes": 1},
}
SPEEDS = {"plain": False, "compiled": True}


@pytest.fixture(params=[(feeding, speed) for feeding in FEEDINGS for speed in SPEEDS], ids=str)
def fed(request: pytest.FixtureRequest) -> Callable[..., Scanned]:
    feeding, speed = request.param
    return lambda data, **how: scan(data, native=SPEEDS[speed], **FEEDINGS[feeding], **how)


def batch(offset: int = 0, **fields: object) -> bytes:
    return v2_batch(offset, [Record(1000 + offset, b"k", bytes(200))], **fields)  # type: ignore[arg-type]


def sized(size: int, magic: int, length: int = 100) -> bytes:
    """Bytes that claim `size` and `magic` in their first 17, zeros after."""
    head = bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(4)
    return (head + bytes([magic & 0xFF])).ljust(length, b"\0")


GOOD = batch(0) + batch(1)
TOO_FEW = "left, too few for a batch header"
PAST_END = "the batch's size points past the end of the file"
TOO_SMALL = "the size field is smaller than any batch"
WRONG_CRC = "the batch's bytes do not match its CRC"
ZEROS = ": only zeros follow, as in a preallocated file or after a power failure"
TEXT = b"offset,timestamp,key\n" + b"1,1700000000000,a\n" * 9
ENDS_AFTER_TWO_BATCHES = {
    "torn header": (batch(2)[:40], PAST_END),
    "torn one byte before the records": (batch(2)[:60], PAST_END),
    "torn body": (batch(2)[:-1], PAST_END),
    "size 0": (sized(0, 2), TOO_SMALL),
    "size -1": (sized(-1, 2), TOO_SMALL),
    "size the smallest int32": (sized(-(2**31), 2), TOO_SMALL),
    "size 13 with magic 1": (sized(13, 1), TOO_SMALL),
    "size 13 with magic 2": (sized(13, 2), TOO_SMALL),
    "size 14 with magic 2": (sized(14, 2), TOO_SMALL),
    "size 20 with magic 2": (sized(20, 2), TOO_SMALL),
    "size 48 with magic 2": (sized(48, 2), TOO_SMALL),
    "size 48 with magic 127": (sized(48, 127), TOO_SMALL),
    "size 49 with magic 2, all zeros": (sized(49, 2), WRONG_CRC),
    "size the largest int32": (sized(2**31 - 1, 2), PAST_END),
    "size one byte too large": (sized(89, 2, 100), PAST_END),
    "18 bytes, a size too small": (sized(13, 2, 18), TOO_SMALL),
    "18 bytes, a size too large": (sized(2**31 - 1, 2, 18), PAST_END),
    "size 14 with magic 1, wrong crc": (sized(14, 1, 26), WRONG_CRC),
    "bad crc in the middle": (with_broken_crc(batch(2)) + batch(3), WRONG_CRC),
    "bad crc, magic 1": (with_broken_crc(v1_message(2, 5)) + batch(3), WRONG_CRC),
    "bad crc, magic 0": (with_broken_crc(v0_message(2)) + batch(3), WRONG_CRC),
    "crc 0": (batch(2, crc=0), WRONG_CRC),
    "18 zero bytes": (bytes(18), TOO_SMALL + ZEROS),
    "a preallocated tail of zeros": (bytes(4096), TOO_SMALL + ZEROS),
    "zeros, then a batch": (bytes(700_000) + batch(2),
        f"{TOO_SMALL}: zeros are there, and other bytes after them"),
    "compressed bytes": (gzip.compress(TEXT), f"{PAST_END}; these look like gzip (1f8b)"),
    "text": (TEXT, f"{PAST_END}; these look like text"),
    **{f"{n} zero bytes": (bytes(n), f"{counted(n, 'byte')} {TOO_FEW}{ZEROS}")
       for n in (1, 10, 16, 17)},
    "torn inside the first 17 bytes": (batch(2)[:17], f"17 bytes {TOO_FEW}"),
}  # fmt: skip


@each_case(("tail", "why"), ENDS_AFTER_TWO_BATCHES)
def test_ends_after_two_batches(fed: Callable[..., Scanned], tail: bytes, why: str) -> None:
    seen = fed(GOOD + tail)
    assert [row[2] for row in seen.rows] == [0, 1]
    assert seen.valid_bytes == len(GOOD)
    assert seen.damage == f"at byte {len(GOOD)} of {len(GOOD + tail)}: {why}"
    assert seen.load_failure is None


EMPTY_V2 = v2_batch(7, last_offset_delta=4, max_timestamp=50)
ODD_BUT_VALID = {
    "an empty batch, size 49": (EMPTY_V2, (7, 11, 50, 0, 2)),
    "magic 3 read as v2": (batch(7, magic=3), (7, 7, 1007, 1, 3)),
    "magic 127 read as v2": (batch(7, magic=127), (7, 7, 1007, 1, 127)),
    "magic -1 read as v1": (v1_message(7, 55, magic=-1), (7, 7, 55, 1, -1)),
    "magic -128 read as v1": (v1_message(7, 55, magic=-128), (7, 7, 55, 1, -128)),
    "magic 1": (v1_message(7, 55), (7, 7, 55, 1, 1)),
    "magic 0 has no timestamp": (v0_message(7), (7, 7, -1, 1, 0)),
    "magic 1, every attribute": (v1_message(7, 55, attributes=0xFF), (7, 7, 55, -1, 1)),
    "a v1 wrapper": (wrapper(9, [v1_message(0, 40), v1_message(1, 41)]), (9, 9, 41, -1, 1)),
    "a lying wrapper": (wrapper(9, [v1_message(0, 40)], timestamp=3), (9, 9, 3, -1, 1)),
    "a wrapper that cannot be opened": (wrapper(9, [], value=b"no gzip"), (9, 9, -1, -1, 1)),
    "a v0 wrapper": (wrapper(9, [v0_message(8), v0_message(9)], magic=0), (9, 9, -1, -1, 0)),
    **{
        f"codec bits {codec}, not looked at": (batch(7, attributes=codec), (7, 7, 1007, 1, 2))
        for codec in (5, 6, 7)
    },
    "LogAppendTime: the header's timestamp, base timestamp above it": (
        batch(7, base_timestamp=2**62, log_append_time=8, max_timestamp=8), (7, 7, 8, 1, 2)),
    "a delete horizon for base timestamp": (batch(7, delete_horizon=5), (7, 7, 1007, 1, 2)),
    "a negative last offset delta": (batch(7, last_offset_delta=-3), (7, 4, 1007, 1, 2)),
    "a last offset that wraps as Java's does": (
        v2_batch(2**63 - 1, [Record(5)], last_offset_delta=1),
        *((2**63 - 1, -(2**63), 5, 1, 2),)),
    "a negative records count": (batch(7, records_count=-5), (7, 7, 1007, -5, 2)),
    "records of garbage": (batch(7, body=b"\xff" * 30), (7, 7, 1007, 1, 2)),
    "a max timestamp below its records'": (batch(7, max_timestamp=3), (7, 7, 3, 1, 2)),
    "control without a producer": (v2_batch(7, [Record(5)], control=True), (7, 7, 5, 1, 2)),
}  # fmt: skip


@each_case(("entry", "expected"), ODD_BUT_VALID)
def test_odd_but_valid(
    fed: Callable[..., Scanned], entry: bytes, expected: tuple[int, ...]
) -> None:
    data = GOOD + entry + batch(20)
    seen = fed(data)
    assert (seen.valid_bytes, seen.damage, seen.load_failure) == (len(data), None, None)
    row = dict(zip(BATCH.names or (), seen.rows[2], strict=True))
    names = ("base_offset", "last_offset", "max_timestamp", "records_count", "magic")
    assert tuple(row[name] for name in names) == expected
    assert (row["position"], row["size_bytes"]) == (len(GOOD), len(entry))
    assert seen.rows[3][2] == 20


@each_case("size", range(14, 22))
def test_a_v1_message_smaller_than_any_writer_makes(fed: Callable[..., Scanned], size: int) -> None:
    """Kafka reads the timestamp at byte 18 whether or not the message reaches as far as its key."""
    counted = bytes([1, 0]) + (123456).to_bytes(8, "big") + b"\xff" * 8
    counted = counted[: size - 4]
    head = (2).to_bytes(8, "big") + size.to_bytes(4, "big")
    entry = head + zlib.crc32(counted).to_bytes(4, "big") + counted
    assert len(entry) == 12 + size
    seen = fed(GOOD + entry + batch(3))
    assert seen.damage is None
    assert [row[4] for row in seen.rows] == [1000, 1001, 123456, 1003]


def test_an_empty_file_has_no_damage() -> None:
    assert scan(b"") == Scanned([], 0, None, None, 0)


@each_case("native", SPEEDS)
@each_case("rows", [1, 2, 3])
@each_case("batches", range(8))
def test_columns_full(native: bool, rows: int, batches: int) -> None:
    data = b"".join(batch(i) for i in range(batches))
    run = BatchScan(Source(data).read_into, len(data), native=native, rows=rows)
    pieces = [piece["base_offset"].tolist() for piece in run]
    assert [offset for piece in pieces for offset in piece] == list(range(batches))
    assert all(len(piece) == rows for piece in pieces[:-1])
    assert all(1 <= len(piece) <= rows for piece in pieces)
    assert (run.valid_bytes, run.damage) == (len(data), None)


@each_case("native", SPEEDS)
def test_a_batch_larger_than_the_chunk(native: bool) -> None:
    large = [Record(1000 + i % 7, None, bytes(i % 251)) for i in range(500)]
    data = batch(0) + v2_batch(1, large) + v2_batch(501, large, codec="zstd") + batch(1001)
    for chunk_bytes in (SMALLEST_CHUNK_BYTES, 1000, 4096):
        source = Source(data)
        seen = scan(data, read_into=source.read_into, native=native, chunk_bytes=chunk_bytes)
        assert [row[3] for row in seen.rows] == [0, 500, 1000, 1001]
        assert (seen.valid_bytes, seen.damage) == (len(data), None)
        assert seen.bytes_read == len(data)


def test_a_chunk_that_cannot_hold_two_headers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 122"):
        BatchScan(Source(b"").read_into, 0, chunk_bytes=SMALLEST_CHUNK_BYTES - 1)


MIB = 1 << 20


@each_case("native", SPEEDS)
@each_case("chunk_bytes", [SMALLEST_CHUNK_BYTES, 4096, SCAN_CHUNK_BYTES])
def test_without_crcs_bodies_are_skipped(native: bool, chunk_bytes: int) -> None:
    data = b"".join(v2_batch(i, [Record(i, None, bytes(MIB))], crc=0) for i in range(4)) + batch(4)
    seen = scan(data, native=native, check_crc=False, chunk_bytes=chunk_bytes)
    assert [row[2] for row in seen.rows] == [0, 1, 2, 3, 4]
    assert (seen.valid_bytes, seen.damage) == (len(data), None)
    assert seen.bytes_read < 5 * (chunk_bytes + 4096)
    assert seen.bytes_read < len(data) / 2


@each_case("native", SPEEDS)
def test_without_crcs_the_record_with_the_max_is_still_searched(native: bool) -> None:
    records = [Record(5, None, bytes(900)), Record(9, None, bytes(900)), Record(9), Record(1)]
    data = v2_batch(0, records, crc=0) + v2_batch(4, records)
    for chunk_bytes in (SMALLEST_CHUNK_BYTES, 1000, SCAN_CHUNK_BYTES):
        seen = scan(
            data, native=native, check_crc=False, seek_max_record=True, chunk_bytes=chunk_bytes
        )
        assert [row[5] for row in seen.rows] == [1, 5]
        assert seen.valid_bytes == len(data)


def test_without_crcs_a_body_beyond_the_file_is_torn() -> None:
    data = batch(0) + v2_batch(1, [Record(1, None, bytes(MIB))])[:-1]
    seen = scan(data, check_crc=False)
    assert (len(seen.rows), seen.valid_bytes) == (1, len(batch(0)))
    assert seen.damage and seen.damage.endswith(PAST_END)


@each_case("native", SPEEDS)
@each_case("left", [0, 30, len(batch(0)), len(batch(0)) + 40])
def test_a_file_that_shrinks_while_it_is_read(native: bool, left: int) -> None:
    data = batch(0) + batch(1) + batch(2)

    def read_into(position: int, view: memoryview) -> int:
        piece = data[:left][position : position + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    whole_batches = left // len(batch(0)) * len(batch(0))
    says = rf"ended at byte {left} while it was read, {len(data)} bytes were there before"
    with pytest.raises(CorruptSegmentError, match=says) as shrunk:
        scan(data, read_into=read_into, native=native, chunk_bytes=SMALLEST_CHUNK_BYTES)
    assert shrunk.value.valid_bytes == whole_batches


def test_a_file_that_grows_while_it_is_read_is_read_as_it_was() -> None:
    grown = batch(0) + batch(1)
    run = BatchScan(Source(grown).read_into, len(batch(0)))
    assert [batches["base_offset"].tolist() for batches in run] == [[0]]
    assert (run.valid_bytes, run.damage) == (len(batch(0)), None)


def test_small_files_do_without_compiled_code() -> None:
    assert not BatchScan(Source(b"").read_into, MIB).native
    assert BatchScan(Source(b"").read_into, MIB + 1).native


def test_read_header_at_gives_every_field() -> None:
    data = batch(0) + batch(
        8, producer_id=7, producer_epoch=3, base_sequence=11, leader_epoch=5, base_timestamp=1001
    )
    header = read_header_at(Source(data, most_bytes=9).read_into, len(batch(0)))
    assert header._asdict() == {
        "position": len(batch(0)), "size_bytes": len(data) - len(batch(0)), "magic": 2,
        "attributes": 0, "crc": int.from_bytes(data[len(batch(0)) + 17 :][:4], "big"),
        "base_offset": 8, "last_offset": 8, "base_timestamp": 1001, "max_timestamp": 1008,
        "records_count": 1, "partition_leader_epoch": 5, "producer_id": 7, "producer_epoch": 3,
        "base_sequence": 11,
    }  # fmt: skip


MAX_RECORD = {
    "the first of two": ([5, 9, 9, 1], 1),
    "the only one": ([9], 0),
    "the last": ([1, 2, 3], 2),
    "none has a timestamp": ([-1, -1], 0),
    "Long.MAX, deltas that wrap": ([5, 2**63 - 1, 0], 1),
}


@each_case(("timestamps", "delta"), MAX_RECORD)
def test_the_first_record_with_the_max(
    fed: Callable[..., Scanned], timestamps: list[int], delta: int
) -> None:
    records = [Record(t, b"key", bytes(90), (("h", b"v"),)) for t in timestamps]
    data = v2_batch(10, records) + v2_batch(20, records, codec="gzip")
    seen = fed(data, seek_max_record=True)
    assert [row[5] for row in seen.rows] == [10 + delta, 20 + len(timestamps) - 1]
    assert [row[5] for row in fed(data).rows] == [row[3] for row in seen.rows]


NOT_FOUND = {
    "records of garbage": {"body": b"\xff" * 40},
    "records of length 0": {"body": b"\x00" * 40},
    "no record bears the max": {"max_timestamp": 99},
    "LogAppendTime": {"log_append_time": 99},
    "no records": {"records_count": 0, "body": b""},
    "a record that ends with the batch": {"body": b"\x7f\x00"},
}


@each_case("fields", NOT_FOUND)
def test_the_last_offset_is_used_if_no_record_is_found(
    fed: Callable[..., Scanned], fields: dict[str, object]
) -> None:
    entry = v2_batch(10, [Record(5), Record(6)], last_offset_delta=4, **fields)  # type: ignore[arg-type]
    seen = fed(batch(0) + entry + batch(20), seek_max_record=True)
    assert [row[5] for row in seen.rows] == [0, 14, 20]
    assert seen.damage is None


# Properties. The smallest chunks are tried more often: that is where pieces end inside everything.
chunkings = st.one_of(
    st.just(SMALLEST_CHUNK_BYTES), st.integers(SMALLEST_CHUNK_BYTES, 600), st.just(SCAN_CHUNK_BYTES)
)


class Irregular:
    """A source that answers any number of bytes but none."""

    def __init__(self, data: bytes, lengths: Sequence[int]) -> None:
        self._data, self._lengths = data, self._forever(lengths)

    @staticmethod
    def _forever(lengths: Sequence[int]) -> Iterator[int]:
        while True:
            yield from lengths

    def read_into(self, position: int, view: memoryview) -> int:
        piece = self._data[position : position + min(len(view), next(self._lengths))]
        view[: len(piece)] = piece
        return len(piece)


@settings(max_examples=examples(150))
@given(
    segments(),
    chunkings,
    st.lists(st.integers(1, 400), min_size=1, max_size=5),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(sorted(SPEEDS)),
)
def test_any_chunking_gives_the_same_headers(
    entries: list[Written],
    chunk_bytes: int,
    lengths: list[int],
    rows: int,
    seek: bool,
    native: bool,
) -> None:
    data = wire_of(entries)
    seen = scan(
        data,
        read_into=Irregular(data, lengths).read_into,
        native=native,
        chunk_bytes=chunk_bytes,
        rows=rows,
        seek_max_record=seek,
    )
    assert seen.rows == rows_of(entries, seek=seek)
    assert (seen.valid_bytes, seen.damage, seen.bytes_read) == (len(data), None, len(data))


@settings(max_examples=examples(150))
@given(segments(min_size=1), st.data(), chunkings, st.sampled_from(sorted(SPEEDS)), st.booleans())
def test_a_cut_at_any_byte_gives_the_batches_before_it(
    entries: list[Written], data: st.DataObject, chunk_bytes: int, native: bool, check_crc: bool
) -> None:
    whole = wire_of(entries)
    cut = data.draw(st.integers(0, len(whole)))
    seen = scan(whole[:cut], native=native, chunk_bytes=chunk_bytes, check_crc=check_crc)
    expected = [row for row in rows_of(entries) if row[0] + row[1] <= cut]
    assert seen.rows == expected
    assert seen.valid_bytes == sum(row[1] for row in expected)
    assert (seen.damage is None) == (seen.valid_bytes == cut)


@settings(max_examples=examples(80))
@given(segments(min_size=1), st.data())
def test_a_flipped_bit_leaves_the_batches_before_it(
    entries: list[Written], data: st.DataObject
) -> None:
    whole = bytearray(wire_of(entries))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    seen = scan(bytes(whole), native=False, chunk_bytes=SMALLEST_CHUNK_BYTES)
    assert seen == scan(bytes(whole), native=True, chunk_bytes=SMALLEST_CHUNK_BYTES)
    before = [row for row in rows_of(entries) if row[0] + row[1] <= bit // 8]
    assert seen.rows[: len(before)] == before
    assert seen.valid_bytes == sum(row[1] for row in seen.rows)
