"""Control batches of a producer: what recovery keeps, stops after, and fails to load (rows 32-35).

Every case is between two plain batches, so the second one shows whether the scan continued.
"""

import gzip
import struct

from kip33.formats.markers import EMPTY_BATCH, FAILS, MAX_DECODED_BYTES, MAX_MARKER_BYTES, STOPS
from kip33.formats.scan import BatchScan
from kip33.formats.walk import ABORT, COMMIT, NOT_CONTROL
from tests.builders.segment_builder import Record, end_txn_marker, record_bytes, v2_batch, zigzag
from tests.cases import each_case

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


CONTROL_BATCHES = {
    # Row 32, and what brokers write.
    "a commit marker": (marker(KEY[COMMIT]), COMMIT, ""),
    "an abort marker": (marker(KEY[ABORT]), ABORT, ""),
    "a marker of 78 bytes": (end_txn_marker(1, 9, producer_id=5), COMMIT, ""),
    "no producer id: as data": (marker(producer_id=-1), NOT_CONTROL, ""),
    "no producer id, garbage inside": (with_body(b"\xff" * 9, producer_id=-1), NOT_CONTROL, ""),
    "a marker in gzip": (marker(codec="gzip"), COMMIT, ""),
    "a marker in zstd": (marker(KEY[ABORT], codec="zstd"), ABORT, ""),
    "a marker in lz4": (marker(codec="lz4"), COMMIT, ""),
    "a marker in snappy": (marker(codec="snappy"), COMMIT, ""),
    "a longer value of a later version": (with_body(LONG), COMMIT, ""),
    "a marker with record headers": (with_body(HEADED), COMMIT, ""),
    "key version 3": (marker(struct.pack(">hh", 3, 1)), COMMIT, ""),
    "marker version 3": (marker(value=struct.pack(">hi", 3, 7)), COMMIT, ""),
    "a length of 35 bits: Java drops the upper three": (
        with_body(bytes([0x80 | 2 * (len(PLAIN) - 1), 0x80, 0x80, 0x80, 0x70]) + PLAIN[1:]),
        *(COMMIT, "")),
    "a key length of 35 bits": (with_body(
            record_of(zigzag(0) * 2 + b"\x88\x80\x80\x80\x70" + PLAIN[5:]),
        ),
        *(COMMIT, "")),
    "a timestamp delta of 70 bits": (with_body(record_of(b"\xff" * 9 + b"\x7f" + PLAIN[3:])),
        *(COMMIT, "")),
    "a timestamp delta of eleven bytes": (with_body(record_of(b"\xff" * 10 + b"\x00" + PLAIN[3:])),
        *(STOPS, "torn")),
    "a longer key": (marker(KEY[COMMIT] + b"more"), COMMIT, ""),
    "two markers: the first counts": (with_body(PLAIN * 2, 2), COMMIT, ""),
    "a second that is garbage is not read": (with_body(PLAIN + b"\xff" * 9, 2), COMMIT, ""),
    # Row 35.
    "an empty control batch": (control_batch(), EMPTY_BATCH, ""),
    "count 0, whatever the body is": (with_body(b"\xff" * 30, 0), EMPTY_BATCH, ""),
    # Row 33: InvalidRecordException.
    "an empty key": (marker(b""), STOPS, "a key of 0 bytes"),
    "a key of 3 bytes": (marker(b"\0\0\0"), STOPS, "a key of 3 bytes"),
    "key version -1": (marker(struct.pack(">hh", -1, 1)), STOPS, "key version -1"),
    "marker version -1": (marker(value=struct.pack(">hi", -1, 7)), STOPS, "marker version -1"),
    "count -1": (marker(records_count=-1), STOPS, "records count -1"),
    "count the smallest int32": (marker(records_count=-(2**31)), STOPS, "records count"),
    "count 1 and no bytes": (with_body(b""), STOPS, "a record's length"),
    "a torn record": (with_body(PLAIN[:-1]), STOPS, "a record needs"),
    "a byte behind the record": (with_body(PLAIN + b"\0"), STOPS, "1 bytes behind"),
    "a length one too large": (with_body(zigzag(len(PLAIN)) + PLAIN[1:] + b"\0"),
        *(STOPS, "its length says")),
    "a value longer than the record": (
        with_body(record_of(zigzag(0) * 2 + zigzag(4) + KEY[COMMIT] + zigzag(99))),
        *(STOPS, "torn")),
    "a null header": (with_body(record_of(HEADER_WITHOUT_KEY)), STOPS, "header without a key"),
    "-1 headers": (with_body(record_of(zigzag(0) * 2 + zigzag(-1) * 2 + zigzag(-1))),
        *(STOPS, "-1 record headers")),
    "an empty key inside gzip": (marker(b"", codec="gzip"), STOPS, "a key of 0 bytes"),
    # Row 34: exceptions that leave recovery.
    "a null key": (marker(None), FAILS, "no key"),
    "type LEADER_CHANGE": (marker(struct.pack(">hh", 0, 2)), FAILS, "type 2"),
    "an unknown type": (marker(struct.pack(">hh", 0, -1)), FAILS, "type -1"),
    "a null value": (marker(value=None), FAILS, "no value"),
    "an empty value": (marker(value=b""), FAILS, "no value"),
    "a value of 1 byte": (marker(value=b"\0"), FAILS, "no value"),
    "a value of 5 bytes": (marker(value=VALUE[:5]), FAILS, "value of 5 bytes"),
    "codec 5": (marker(attributes=0x35), FAILS, "codec-5"),
    "codec 6": (marker(attributes=0x36), FAILS, "codec-6"),
    "codec 7": (marker(attributes=0x37), FAILS, "codec-7"),
    "the gzip bit on plain records": (marker(attributes=0x31), FAILS, "gzip"),
    "no gzip bytes": (with_body(b"", codec="gzip", attributes=0x31), FAILS, "no bytes of gzip"),
    "a length of five bytes and no end": (with_body(b"\x80" * 5), FAILS, "is no varint"),
    "a MiB of body": (with_body(bytes(MAX_MARKER_BYTES + 1)), FAILS, "more than a marker"),
    "a bomb in gzip": (
        with_body(gzip.compress(bytes(MAX_MARKER_BYTES + 1), mtime=0), attributes=0x31),
        *(FAILS, "decompresses to more than a marker")),
    "4 KiB in zstd": (marker(value=VALUE + bytes(MAX_DECODED_BYTES), codec="zstd"),
        *(FAILS, "decompresses to more than a marker")),
}  # fmt: skip


@each_case("native", [False, True])
@each_case("chunk_bytes", [122, 1 << 18])
@each_case(("entry", "control", "says"), CONTROL_BATCHES)
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
