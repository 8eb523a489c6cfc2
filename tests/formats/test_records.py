"""Records and messages: tables per format, damage by name, and whatever hypothesis makes up."""

import io
import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.errors import CorruptSegmentError, Kip33Error, UnsupportedFormatError
from kip33.formats.records import CONTROL_TYPES, Record, control_type, iterate_records
from tests.builders import segment_builder as build
from tests.cases import each_case

T = 1700000000000
LONG_MAX = 2**63 - 1
HEADERS = (("h", b"x"), ("n", None), ("é", b""))
RECORDS = [
    build.Record(T, b"k1", b"v1", HEADERS),
    build.Record(T - 70, None, b""),
    build.Record(T + 250, b"", None),
]
READ = [
    (100, T, b"k1", b"v1", HEADERS),
    (101, T - 70, None, b"", ()),
    (102, T + 250, b"", None, ()),
]


def read(entry: bytes) -> list[Record]:
    """Read the records in full; make sure that the short way and a file say the same."""
    records = list(iterate_records(entry))
    stamps = [Record(record.offset, record.timestamp) for record in records]
    assert list(iterate_records(entry, skip_key_value=True)) == stamps
    file = io.BytesIO(b"before" + entry + b"after")
    file.seek(6)
    assert list(iterate_records(file)) == records
    return records


V2_CASES = {
    "LogAppendTime: every record has the max timestamp": (
        build.v2_batch(100, RECORDS, log_append_time=T + 999),
        [(r[0], T + 999, *r[2:]) for r in READ],
    ),
    "delete horizon as base timestamp": (
        build.v2_batch(100, RECORDS, delete_horizon=T + 10**9),
        READ,
    ),
    "compacted: holes between offsets": (
        build.v2_batch(100, [build.Record(T, offset_delta=3), build.Record(T, offset_delta=7)]),
        [(103, T, None, b"", ()), (107, T, None, b"", ())],
    ),
    "emptied": (build.v2_batch(100, last_offset_delta=9, max_timestamp=T), []),
    "count 0: what follows is not read": (build.v2_batch(100, RECORDS, records_count=0), []),
    "count 0: nor is the codec": (build.v2_batch(0, records_count=0, attributes=5), []),
    "no timestamp, negative timestamp": (
        build.v2_batch(0, [build.Record(-1), build.Record(-7)]),
        [(0, -1, None, b"", ()), (1, -7, None, b"", ())],
    ),
    "deltas wrap around as in Java": (
        build.v2_batch(0, [build.Record(LONG_MAX), build.Record(-LONG_MAX - 1)]),
        [(0, LONG_MAX, None, b"", ()), (1, -LONG_MAX - 1, None, b"", ())],
    ),
    "magic above 2 reads as 2": (build.v2_batch(100, RECORDS, magic=5), READ),
    "unknown attribute bits": (build.v2_batch(100, RECORDS, attributes=0x80), READ),
    "the crc is not looked at": (build.with_broken_crc(build.v2_batch(100, RECORDS)), READ),
    "a length in five bytes": (
        build.v2_batch(
            100, body=b"\x8c\x80\x80\x80\x00" + bytes([0, 0, 0, 1, 1, 0]), records_count=1
        ),
        [(100, -1, None, None, ())],
    ),
    "a delta in ten bytes, whose last has a bit too many: 2": (
        build.v2_batch(
            100,
            body=b"\x1e" + bytes(1) + b"\x84" + b"\x80" * 8 + b"\x02" + b"\0\1\1\0",
            records_count=1,
        ),
        [(100, 1, None, None, ())],
    ),
}


@each_case(("entry", "expected"), V2_CASES)
def test_batch(entry: bytes, expected: list[tuple[object, ...]]) -> None:
    assert read(entry) == expected


v0, v1 = build.v0_message, build.v1_message
PAIR_V0 = [v0(7, b"k", b"a"), v0(8, None, b"b")]
PAIR_V1 = [v1(0, T, b"k", b"a"), v1(1, T + 900, None, b"b")]


@each_case(
    ("entry", "expected"),
    {
        "v0": (v0(5, b"k", b"v"), [(5, -1, b"k", b"v", ())]),
        "v0, nulls": (v0(5, None, None), [(5, -1, None, None, ())]),
        "v1": (v1(5, T, b"k", b"v"), [(5, T, b"k", b"v", ())]),
        "v1, no timestamp": (v1(5, -1, b"", b""), [(5, -1, b"", b"", ())]),
        "v1, append": (v1(5, T, log_append_time=True), [(5, T, None, b"", ())]),
        "negative magic reads as v1": (v1(5, T, magic=-2), [(5, T, None, b"", ())]),
        "v0 wrapper: absolute offsets": (
            build.wrapper(8, PAIR_V0, magic=0),
            [(7, -1, b"k", b"a", ()), (8, -1, None, b"b", ())],
        ),
        "v1 wrapper: relative offsets": (
            build.wrapper(8, PAIR_V1),
            [(7, T, b"k", b"a", ()), (8, T + 900, None, b"b", ())],
        ),
        "v1 wrapper, compacted": (
            build.wrapper(20, [v1(0, T), v1(4, T)]),
            [(16, T, None, b"", ()), (20, T, None, b"", ())],
        ),
        "v1 wrapper at offset 0: counts from 0": (
            build.wrapper(0, [v1(0, T), v1(1, T)]),
            [(0, T, None, b"", ()), (1, T, None, b"", ())],
        ),
        "v1 wrapper with LogAppendTime: its timestamp holds": (
            build.wrapper(8, PAIR_V1, timestamp=T + 5000, log_append_time=True),
            [(7, T + 5000, b"k", b"a", ()), (8, T + 5000, None, b"b", ())],
        ),
        "the timestamp type is the wrapper's": (
            build.wrapper(8, [v1(0, T, log_append_time=True), v1(1, T + 9)]),
            [(7, T, None, b"", ()), (8, T + 9, None, b"", ())],
        ),
        "KAFKA-4298: v0 inside v1 has no timestamp": (
            build.wrapper(8, [v0(0), v1(1, T)], timestamp=T + 50, log_append_time=True),
            [(7, -1, None, b"", ()), (8, T + 50, None, b"", ())],
        ),
        "KAFKA-4298: v1 inside v0 keeps its own": (
            build.wrapper(8, [v1(7, T), v0(8)], magic=0),
            [(7, T, None, b"", ()), (8, -1, None, b"", ())],
        ),
        "the LogAppendTime bit means nothing in a v0 wrapper": (
            build.wrapper(8, [v1(8, T)], magic=0, attributes=0x09),
            [(8, T, None, b"", ())],
        ),
        "a last inner message cut short is passed over": (
            build.wrapper(8, [], value=build.compress(v1(0, T) + v1(1, T)[:-1], "gzip")),
            [(8, T, None, b"", ())],
        ),
        "inner crc is not looked at": (
            build.wrapper(8, [build.with_broken_crc(PAIR_V1[0])]),
            [(8, T, b"k", b"a", ())],
        ),
    },
)
def test_messages(entry: bytes, expected: list[tuple[object, ...]]) -> None:
    assert read(entry) == expected


def with_body(body: bytes, count: int = 1, **fields: int) -> bytes:
    return build.v2_batch(100, body=body, records_count=count, **fields)


GOOD = build.record_bytes(build.Record(T, b"k", b"v"), 0, T)


@each_case(
    ("entry", "message"),
    {
        "nothing": (b"", "0 bytes hold no entry"),
        "torn header": (build.v2_batch(0)[:25], "25 bytes hold no entry"),
        "torn v2 header": (build.v2_batch(0)[:60], "smaller than its header"),
        "size 48": (build.v2_batch(0, size=48), "smaller than its header"),
        "legacy size 13": (build.v1_message(0, T, size=13), "smaller than"),
        "negative count": (with_body(GOOD, -1), "records count -1"),
        "count too high": (with_body(GOOD, 2), "record 1 of 2: a field runs past"),
        "too low": (with_body(GOOD * 2), "bytes are left after record 0 of 1"),
        "a byte left": (with_body(GOOD + b"\0"), "bytes are left"),
        "record torn": (with_body(GOOD[:-1]), "a record of"),
        "negative length": (with_body(b"\x01" + GOOD[1:]), "a record of -1 bytes"),
        "empty record": (with_body(b"\x00"), "a field runs past its end"),
        "claims 2 GiB": (with_body(b"\xfe\xff\xff\xff\x0f"), "of 2147483647 bytes"),
        "endless length": (with_body(b"\x80" * 9), "varint too long for 32 bits"),
        "endless delta": (with_body(b"\x1e\0" + b"\x80" * 14), "too long for 64 bits"),
        "codec 5": (with_body(GOOD, attributes=5), "magic 2 has no codec codec-5"),
        "zeroed body": (with_body(bytes(90), attributes=3), "lz4: the data does"),
        "empty wrapper value": (build.wrapper(8, PAIR_V1, value=b""), "gzip: the stream ends"),
        "null value": (build.v1_message(8, T, None, None, attributes=1), "value has -1 bytes"),
        "empty wrapper": (build.wrapper(8, []), "a compressed message with nothing in it"),
        "wrapper offset below its inner ones": (
            build.wrapper(3, [v1(0, T), v1(4, T)]), "offset 3 is below its last inner offset 4"),
        "nested": (build.wrapper(8, [build.wrapper(0, PAIR_V1)]), "inside a compressed"),
        "inner size 13": (build.wrapper(8, [v1(0, T, size=13)]), "an inner message of 13"),
        "zstd in v1": (build.wrapper(8, PAIR_V1, attributes=4), "magic 1 has no codec zstd"),
        "wrapper of magic -1": (build.v1_message(8, T, magic=-1, attributes=1), "of magic -1"),
    })  # fmt: skip
def test_damage(entry: bytes, message: str) -> None:
    for skip in (False, True):
        with pytest.raises(Kip33Error, match=message) as caught:
            list(iterate_records(entry, position=4711, skip_key_value=skip))
        assert str(caught.value).startswith("batch at position 4711: ")
        if isinstance(caught.value, CorruptSegmentError):
            assert caught.value.valid_bytes == 4711
        else:
            assert isinstance(caught.value, UnsupportedFormatError)


@each_case(
    ("entry", "message"),
    {
        "key": (with_body(b"\x0a\0\0\0\x10\x01"), "a field of 8 bytes, 1 are left"),
        "negative headers": (with_body(b"\x0c\0\0\0\x01\x01\x01"), "-1 headers"),
        "63 headers": (with_body(b"\x0c\0\0\0\x01\x01\x7e"), "63 headers in 0"),
        "no key": (with_body(b"\x10\0\0\0\1\1\2\1\1"), "a header without a key"),
        "a byte unused": (with_body(b"\x0e\0\0\0\1\1\0\0"), "whose fields take 6"),
        "v1 of size 14": (build.v1_message(0, T, size=14), "a field of 4 bytes, 0"),
        "torn value": (build.v0_message(0, b"k", b"v")[:-1], "a field of 1 bytes, 0 are left"),
    },
)
def test_damage_that_only_key_and_value_show(entry: bytes, message: str) -> None:
    with pytest.raises(CorruptSegmentError, match=message):
        list(iterate_records(entry))
    assert len(list(iterate_records(entry, skip_key_value=True))) == 1


def test_records_before_the_damage_are_yielded() -> None:
    records = iterate_records(with_body(GOOD + b"\x01", 2))
    assert next(records).value == b"v"
    with pytest.raises(CorruptSegmentError, match="record 1 of 2"):
        next(records)


@each_case("kind", [bytes, bytearray, memoryview, io.BytesIO, pa.BufferReader])
def test_sources(kind: type) -> None:
    assert list(iterate_records(kind(build.wrapper(8, PAIR_V1))))[1].offset == 8


@pytest.mark.slow
def test_bomb_of_one_record_is_skipped_in_bounded_memory() -> None:
    entry = build.v2_batch(0, [build.Record(T, None, bytes(64 << 20))], codec="zstd")
    assert len(entry) < 10000
    assert list(iterate_records(entry, skip_key_value=True)) == [(0, T, None, None, ())]


@each_case(
    ("key", "name"),
    [*((struct.pack(">hh", 0, i), name) for i, name in enumerate(CONTROL_TYPES)),
     (b"\0\0\0\x07", "UNKNOWN"), (b"\0\0\xff\xff", "UNKNOWN"), (b"\0\x09\0\x01more", "COMMIT")],
)  # fmt: skip
def test_control_types(key: bytes, name: str) -> None:
    assert control_type(key) == name


@each_case("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_control_keys_that_kafka_refuses(key: bytes | None) -> None:
    with pytest.raises(CorruptSegmentError, match="control record key"):
        control_type(key)


def test_transaction_marker() -> None:
    (marker,) = read(build.end_txn_marker(7, T, producer_id=5, commit=False))
    assert control_type(marker.key) == "ABORT"


int64 = st.integers(-LONG_MAX - 1, LONG_MAX)
payload = st.none() | st.binary(max_size=40)
header = st.tuples(st.text(max_size=5), payload)
made_up = st.builds(build.Record, int64, payload, payload, st.lists(header, max_size=3).map(tuple))


@given(
    st.integers(0, 2**62),
    st.lists(made_up, min_size=1, max_size=6),
    st.sampled_from(build.V2_CODECS),
)
def test_any_batch_reads_back(offset: int, records: Sequence[build.Record], codec: str) -> None:
    expected = [(offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]
    assert read(build.v2_batch(offset, records, codec=codec)) == expected


@given(
    st.lists(st.tuples(int64, payload, payload), min_size=1, max_size=6),
    st.integers(0, 2**62),
    st.sampled_from(build.LEGACY_CODECS),
)
def test_any_wrapper_reads_back(
    messages: list[tuple[int, bytes | None, bytes | None]], base: int, codec: str
) -> None:
    inner = [v1(i, *message) for i, message in enumerate(messages)]
    entry = build.wrapper(base + len(inner) - 1, inner, codec=codec)
    assert read(entry) == [(base + i, *message, ()) for i, message in enumerate(messages)]


@given(st.binary(max_size=120), st.sampled_from([0, 1, 2]), st.integers(0, 7), st.integers(0, 3))
def test_garbage_is_named_or_read(body: bytes, magic: int, attributes: int, count: int) -> None:
    if magic == 2:
        entry = with_body(body, count, attributes=attributes)
    else:
        entry = build.wrapper(3, [], magic=magic, attributes=attributes, value=body)
    try:
        list(iterate_records(entry))
    except Kip33Error as error:
        assert "\n" not in str(error)
