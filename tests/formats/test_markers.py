"""Control batches of a producer: what recovery keeps, stops after, and fails to load (rows 32-35).

Every case is between two plain batches, so the second one shows whether the scan continued.
"""

import gzip
import struct

import pytest

from kip33.formats.markers import EMPTY_BATCH, FAILS, MAX_DECODED_BYTES, MAX_MARKER_BYTES, STOPS
from kip33.formats.scan import BatchScan
from kip33.formats.walk import ABORT, COMMIT, NOT_CONTROL
from tests.builders.segment_builder import Record, end_txn_marker, record_bytes, v2_batch, zigzag

KEY = {ABORT: struct.pack(">hh", 0, 0), COMMIT: struct.pack(">hh", 0, 1)}
VALUE = struct.pack(">hi", 0, 7)


def control_batch(*records: Record, **fields: object) -> bytes:
    return v2_batch(
        1,
        records,
        **{"control": True, "transactional": True, "producer_id": 5, **fields},  # type: ignore[arg-type]
    )


def marker(key: bytes | None = KEY[COMMIT], value: bytes | None = VALUE, **fields: object) -> bytes:
    return control_batch(Record(9, key, value), **fields)


def with_body(body: bytes, count: int = 1, **fields: object) -> bytes:
    return control_batch(body=body, records_count=count, **fields)


PLAIN = record_bytes(Record(9, KEY[COMMIT], VALUE), 0, 9)
LONG = record_bytes(Record(9, KEY[COMMIT], VALUE + bytes(5)), 0, 9)
HEADED = record_bytes(Record(9, KEY[COMMIT], VALUE, (("trace", b"id"), ("none", None))), 0, 9)
HEADER_WITHOUT_KEY = zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(-1) + zigzag(1) + zigzag(-1) * 2


def record_of(fields: bytes) -> bytes:
    """A record whose length fits whatever `fields` are, attributes included."""
    body = b"\0" + fields
    return zigzag(len(body)) + body


CONTROL_BATCHES = [
    # Row 32, and what brokers write.
    pytest.param(marker(KEY[COMMIT]), COMMIT, "", id="a commit marker"),
    pytest.param(marker(KEY[ABORT]), ABORT, "", id="an abort marker"),
    pytest.param(end_txn_marker(1, 9, producer_id=5), COMMIT, "", id="a marker of 78 bytes"),
    pytest.param(marker(producer_id=-1), NOT_CONTROL, "", id="no producer id: as data"),
    pytest.param(
        with_body(b"\xff" * 9, producer_id=-1), NOT_CONTROL, "", id="no producer id, garbage inside"
    ),
    pytest.param(marker(codec="gzip"), COMMIT, "", id="a marker in gzip"),
    pytest.param(marker(KEY[ABORT], codec="zstd"), ABORT, "", id="a marker in zstd"),
    pytest.param(marker(codec="lz4"), COMMIT, "", id="a marker in lz4"),
    pytest.param(marker(codec="snappy"), COMMIT, "", id="a marker in snappy"),
    pytest.param(with_body(LONG), COMMIT, "", id="a longer value of a later version"),
    pytest.param(with_body(HEADED), COMMIT, "", id="a marker with record headers"),
    pytest.param(marker(struct.pack(">hh", 3, 1)), COMMIT, "", id="key version 3"),
    pytest.param(marker(value=struct.pack(">hi", 3, 7)), COMMIT, "", id="marker version 3"),
    pytest.param(
        with_body(bytes([0x80 | 2 * (len(PLAIN) - 1), 0x80, 0x80, 0x80, 0x70]) + PLAIN[1:]),
        *(COMMIT, ""),
        id="a length of 35 bits: Java drops the upper three",
    ),
    pytest.param(
        with_body(
            record_of(zigzag(0) * 2 + b"\x88\x80\x80\x80\x70" + PLAIN[5:]),
        ),
        *(COMMIT, ""),
        id="a key length of 35 bits",
    ),
    pytest.param(
        with_body(record_of(b"\xff" * 9 + b"\x7f" + PLAIN[3:])),
        *(COMMIT, ""),
        id="a timestamp delta of 70 bits",
    ),
    pytest.param(
        with_body(record_of(b"\xff" * 10 + b"\x00" + PLAIN[3:])),
        *(STOPS, "torn"),
        id="a timestamp delta of eleven bytes",
    ),
    pytest.param(marker(KEY[COMMIT] + b"more"), COMMIT, "", id="a longer key"),
    pytest.param(with_body(PLAIN * 2, 2), COMMIT, "", id="two markers: the first counts"),
    pytest.param(
        with_body(PLAIN + b"\xff" * 9, 2), COMMIT, "", id="a second that is garbage is not read"
    ),
    # Row 35.
    pytest.param(control_batch(), EMPTY_BATCH, "", id="an empty control batch"),
    pytest.param(with_body(b"\xff" * 30, 0), EMPTY_BATCH, "", id="count 0, whatever the body is"),
    # Row 33: InvalidRecordException.
    pytest.param(marker(b""), STOPS, "a key of 0 bytes", id="an empty key"),
    pytest.param(marker(b"\0\0\0"), STOPS, "a key of 3 bytes", id="a key of 3 bytes"),
    pytest.param(marker(struct.pack(">hh", -1, 1)), STOPS, "key version -1", id="key version -1"),
    pytest.param(
        marker(value=struct.pack(">hi", -1, 7)), STOPS, "marker version -1", id="marker version -1"
    ),
    pytest.param(marker(records_count=-1), STOPS, "records count -1", id="count -1"),
    pytest.param(
        marker(records_count=-(2**31)), STOPS, "records count", id="count the smallest int32"
    ),
    pytest.param(with_body(b""), STOPS, "a record's length", id="count 1 and no bytes"),
    pytest.param(with_body(PLAIN[:-1]), STOPS, "a record needs", id="a torn record"),
    pytest.param(with_body(PLAIN + b"\0"), STOPS, "1 bytes behind", id="a byte behind the record"),
    pytest.param(
        with_body(zigzag(len(PLAIN)) + PLAIN[1:] + b"\0"),
        *(STOPS, "its length says"),
        id="a length one too large",
    ),
    pytest.param(
        with_body(record_of(zigzag(0) * 2 + zigzag(4) + KEY[COMMIT] + zigzag(99))),
        *(STOPS, "torn"),
        id="a value longer than the record",
    ),
    pytest.param(
        with_body(record_of(HEADER_WITHOUT_KEY)), STOPS, "header without a key", id="a null header"
    ),
    pytest.param(
        with_body(record_of(zigzag(0) * 2 + zigzag(-1) * 2 + zigzag(-1))),
        *(STOPS, "-1 record headers"),
        id="-1 headers",
    ),
    pytest.param(
        marker(b"", codec="gzip"), STOPS, "a key of 0 bytes", id="an empty key inside gzip"
    ),
    # Row 34: exceptions that leave recovery.
    pytest.param(marker(None), FAILS, "no key", id="a null key"),
    pytest.param(marker(struct.pack(">hh", 0, 2)), FAILS, "type 2", id="type LEADER_CHANGE"),
    pytest.param(marker(struct.pack(">hh", 0, -1)), FAILS, "type -1", id="an unknown type"),
    pytest.param(marker(value=None), FAILS, "no value", id="a null value"),
    pytest.param(marker(value=b""), FAILS, "no value", id="an empty value"),
    pytest.param(marker(value=b"\0"), FAILS, "no value", id="a value of 1 byte"),
    pytest.param(marker(value=VALUE[:5]), FAILS, "value of 5 bytes", id="a value of 5 bytes"),
    *(
        pytest.param(marker(attributes=0x30 | bits), FAILS, f"codec-{bits}", id=f"codec {bits}")
        for bits in (5, 6, 7)
    ),
    pytest.param(marker(attributes=0x31), FAILS, "gzip", id="the gzip bit on plain records"),
    pytest.param(
        with_body(b"", codec="gzip", attributes=0x31), FAILS, "no bytes of gzip", id="no gzip bytes"
    ),
    pytest.param(
        with_body(b"\x80" * 5), FAILS, "is no varint", id="a length of five bytes and no end"
    ),
    pytest.param(
        with_body(bytes(MAX_MARKER_BYTES + 1)), FAILS, "more than a marker", id="a MiB of body"
    ),
    pytest.param(
        with_body(gzip.compress(bytes(MAX_MARKER_BYTES + 1), mtime=0), attributes=0x31),
        *(FAILS, "decompresses to more than a marker"),
        id="a bomb in gzip",
    ),
    pytest.param(
        marker(value=VALUE + bytes(MAX_DECODED_BYTES), codec="zstd"),
        *(FAILS, "decompresses to more than a marker"),
        id="4 KiB in zstd",
    ),
]  # fmt: skip


@pytest.mark.parametrize("native", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("chunk_bytes", [122, 1 << 18])
@pytest.mark.parametrize(("entry", "control", "says"), CONTROL_BATCHES)
def test_control_batch(
    entry: bytes, control: int, says: str, chunk_bytes: int, native: bool
) -> None:
    before, after = v2_batch(0, [Record(8)]), v2_batch(9, [Record(10)])
    data = before + entry + after

    def read_into(position: int, view: memoryview) -> int:
        piece = data[position : position + min(len(view), 100_000)]
        view[: len(piece)] = piece
        return len(piece)

    scan = BatchScan(read_into, len(data), native=native, chunk_bytes=chunk_bytes)
    rows = [row for batches in scan for row in batches[["base_offset", "control"]].tolist()]

    ends_here = control in (STOPS, FAILS)
    assert rows == [(0, NOT_CONTROL), (1, control)] + [(9, NOT_CONTROL)] * (not ends_here)
    assert scan.valid_bytes == len(before + entry) + (0 if ends_here else len(after))
    message = {STOPS: scan.damage, FAILS: scan.load_failure}.get(control)
    if ends_here:
        assert message and message.startswith(f"at byte {len(before)}: control batch: ")
        assert says in message, message
    others = [scan.damage, scan.load_failure]
    assert others.count(None) == (1 if ends_here else 2)
