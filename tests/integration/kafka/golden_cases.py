"""The segments whose recovery is recorded as golden vectors, one adversarial row after another.

A row's number is its number in the README of `tests/golden`. What Kafka's builders can write comes
from them, the rest is written by hand in `batches.py`. Nothing here says what Kafka answers.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.integration.kafka.batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    control,
    entry,
    marker,
    message,
    record,
    with_field,
)
from tests.integration.kafka.oracle import Oracle

T = 1_700_000_000_000
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
CODECS_OF_MAGIC = {
    0: ("none", "gzip", "snappy", "lz4"),
    1: ("none", "gzip", "snappy", "lz4"),
    2: ("none", "gzip", "snappy", "lz4", "zstd"),
}
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True)
class Case:
    """One segment to recover. `sparse_bytes` stands for a file of that many zeros."""

    row: int
    meaning: str
    log: bytes
    base_offset: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10485760
    existing_time_index: bytes | None = None
    existing_offset_index: bytes | None = None
    sparse_bytes: int | None = None


def run(timestamps: list[int], *, size_bytes: int = 98, first_offset: int = 0) -> bytes:
    """Return v2 batches of one record, one for every timestamp, at consecutive offsets."""
    return b"".join(
        batch(first_offset + i, t, size_bytes=size_bytes) for i, t in enumerate(timestamps)
    )


def golden_cases(kafka: Oracle) -> Iterator[Case]:
    yield from index_points()
    yield from timestamps_of_every_sort()
    yield from tails()
    yield from sizes_and_magics(kafka)
    yield from headers_that_lie(kafka)
    yield from control_batches(kafka)
    yield from compressed_control_batches(kafka)
    yield from producer_state(kafka)
    yield from offsets()
    yield from full_indexes()
    yield from files_as_found()
    yield from every_format(kafka)


def index_points() -> Iterator[Case]:
    five = run([1000, 1001, 1002, 1003, 1004])
    yield Case(1, "an empty file leaves two empty indexes", b"")
    yield Case(1, "an empty file with a base offset", b"", base_offset=77)
    yield Case(
        2,
        "a first batch of 5 KB is no index point, the second is",
        batch(0, T, size_bytes=5000) + batch(1, T + 1) + batch(2, T + 2),
    )
    for interval, sentence in ((195, "below"), (196, "exactly"), (197, "above")):
        yield Case(
            3,
            f"the interval is {sentence} the gap of two 98-byte batches",
            five,
            index_interval_bytes=interval,
        )
    yield Case(4, "interval 0 indexes every batch but the first", five, index_interval_bytes=0)
    yield Case(4, "five batches at interval 100", five, index_interval_bytes=100)
    yield Case(
        4,
        "ten batches at interval 100",
        run([1000 + i for i in range(10)]),
        index_interval_bytes=100,
    )


def timestamps_of_every_sort() -> Iterator[Case]:
    def at_interval_100(row: int, meaning: str, timestamps: list[int]) -> Case:
        return Case(row, meaning, run(timestamps), index_interval_bytes=100)

    yield at_interval_100(5, "v2 without timestamps", [-1] * 8)
    yield Case(
        5,
        "v0 has no timestamps",
        b"".join(message(i, 0, magic=0) for i in range(12)),
        index_interval_bytes=50,
    )
    yield at_interval_100(6, "no timestamp never lowers the max", [-1, -1, 500, -1, 500, 400])
    yield at_interval_100(6, "timestamps after a start without", [-1, -1, -1, 7, -1, -1, 9, -1])
    yield at_interval_100(7, "equal timestamps", [1000] * 8)
    yield at_interval_100(7, "the first to reach a max keeps the offset", [5, 9, 9, 7, 9, 9])
    yield at_interval_100(8, "decreasing timestamps", [900 - i for i in range(8)])
    yield at_interval_100(9, "timestamp 0 is a value", [0, 0, 0, 0])
    yield at_interval_100(9, "timestamp -5 is none", [-5, -5, -1, -7])
    yield at_interval_100(9, "zero after negatives", [-5, 0, -1, 0, 3])
    yield at_interval_100(10, "Long.MAX ends all entries", [5, MAX_INT64, 6, MAX_INT64, 7])
    yield at_interval_100(10, "Long.MIN is no timestamp", [-MAX_INT64 - 1, 4, -MAX_INT64 - 1, 5])
    yield at_interval_100(10, "a far future", [T, T * 1000, T + 1, T * 1000 + 1])
    yield at_interval_100(11, "a max after the last index point", [1, 2, 3, 4, 5, 6])
    yield at_interval_100(12, "a max already indexed", [1, 2, 9, 4, 5, 6])
    yield Case(13, "a single batch", batch(0, 77))
    yield Case(13, "a single batch without timestamp", batch(0, -1))


def tails() -> Iterator[Case]:
    three = run([1000, 1001, 1002])
    for cut in (1, 50, 60, 81, 85, 97):
        yield Case(
            14,
            f"a last batch torn after {98 - cut} of its 98 bytes",
            three[:-cut],
            index_interval_bytes=0,
        )
    for zeros in (1, 10, 16, 17, 18, 19, 61, 1000):
        yield Case(15, f"{zeros} zero bytes after the last batch", three + bytes(zeros))
    yield Case(15, "17 bytes of 0xff after the last batch", three + b"\xff" * 17)
    yield Case(15, "18 bytes of 0xff after the last batch", three + b"\xff" * 18)
    yield Case(15, "nothing but 17 bytes", b"x" * 17)
    yield Case(15, "nothing but garbage", b"not a log segment at all, only words")
    yield Case(16, "a preallocated file with a zero tail", three + bytes(1 << 16))
    yield Case(16, "a preallocated file without a batch", bytes(1 << 16))


def sizes_and_magics(kafka: Oracle) -> Iterator[Case]:
    first, last = run([1000, 1001]), run([1003, 1004], first_offset=3)
    good = batch(2, 1002, size_bytes=98)
    flipped = good[:-1] + b"\1"
    yield Case(
        17, "a bad CRC in the middle cuts the rest", first + flipped + last, index_interval_bytes=0
    )
    yield Case(17, "a bad CRC in the first batch", flipped + last)
    message_bad = bytearray(message(2, 1002))
    message_bad[-1] ^= 1
    yield Case(17, "a bad CRC in a v1 message", first + bytes(message_bad) + last)
    for size in (-MAX_INT32 - 1, -1, 0, 13, 20, 48, 49, 85, 87, MAX_INT32, MAX_INT32 - 12):
        wire = good[:8] + struct.pack(">i", size) + good[12:]
        yield Case(18, f"a v2 size field of {size} in place of 86", first + wire + last)
    for size in range(12, 24):
        after_crc = struct.pack(">bbq", 1, 0, 1002).ljust(18, b"\0")[: size - 4]
        yield Case(19, f"a v1 entry of size {size}", first + entry(2, after_crc) + last)
        yield Case(19, f"a v1 entry of size {size} ends the file", first + entry(2, after_crc))
    for size in (14, 17):
        yield Case(19, f"a v0 entry of size {size}", first + entry(2, bytes(size - 4)) + last)
    for magic in (3, 4, 127):
        yield Case(20, f"magic {magic} reads as v2", first + batch(2, 1002, magic=magic) + last)
    yield Case(20, "magic 3 below the size of a v2 header", first + entry(2, b"\3" + bytes(40)))
    for magic in (-1, -2, -128):
        yield Case(
            21, f"magic {magic} reads as v1", first + message(2, 1002, magic=magic, key=b"k") + last
        )
    mixed = [
        {"magic": 0, "records": [[0, -1, 2, 30]]},
        {"magic": 1, "records": [[1, T, 2, 30]]},
        {"magic": 2, "records": [[2, T + 5, 2, 30]]},
        {"magic": 1, "codec": "gzip", "records": [[3, T + 7, 2, 30], [4, T + 6, 2, 30]]},
        {"magic": 0, "codec": "snappy", "records": [[5, -1, 2, 30], [6, -1, 2, 30]]},
        {"magic": 2, "codec": "zstd", "records": [[7, T + 9, 2, 30], [8, T + 8, 2, 30]]},
        {"magic": 1, "records": [[9, T + 10, 2, 30]]},
    ]
    for fields in mixed:
        fields["base_offset"] = fields["records"][0][0]
    yield Case(
        22, "all three formats in one file", b"".join(kafka.write(mixed)), index_interval_bytes=0
    )
    yield Case(30, "the smallest v2 batch, size 49", first + batch(2, 1002, body=b"") + last)
    yield Case(
        30,
        "a v2 batch of size 48",
        first + with_field(batch(2, 1002, body=b""), 8, "i", 48)[:-1] + last,
    )


def headers_that_lie(kafka: Oracle) -> Iterator[Case]:
    first, last = run([1000, 1001]), run([1003, 1004], first_offset=3)

    def between(row: int, meaning: str, middle: bytes) -> Case:
        return Case(row, meaning, first + middle + last, index_interval_bytes=0)

    for codec in (5, 6, 7):
        yield between(23, f"codec bits {codec} of a v2 batch", batch(2, 1002, attributes=codec))
        yield between(23, f"codec bits {codec} of a v1 message", message(2, 1002, attributes=codec))
    yield between(24, "a v1 wrapper that is no gzip", message(2, 1002, attributes=1, value=b"junk"))
    yield between(24, "a v0 wrapper that is no lz4", message(2, 0, magic=0, attributes=3))
    yield between(24, "a v1 wrapper without a value", message(2, 1002, attributes=1, value=None))
    yield between(24, "zstd in a v1 wrapper", message(2, 1002, attributes=4))
    wrapper = kafka.write(
        [
            {
                "magic": 1,
                "codec": "gzip",
                "base_offset": 1,
                "records": [[1, 1002, 2, 9], [2, 1001, 2, 9]],
            }
        ]
    )[0]
    yield between(25, "a wrapper below its inner timestamps", with_field(wrapper, 18, "q", 7))
    yield between(25, "a wrapper above its inner timestamps", with_field(wrapper, 18, "q", 5000))
    yield between(
        26,
        "a LogAppendTime v1 message",
        message(2, 1002, attributes=LOG_APPEND_TIME),
    )
    yield between(
        26,
        "a LogAppendTime batch whose base timestamp is later",
        batch(2, 1002, attributes=LOG_APPEND_TIME, base_timestamp=9999),
    )
    late = record(None, b"v", timestamp_delta=500)
    yield between(27, "records later than the header", batch(2, 1002, body=late))
    yield between(
        27, "records earlier than the header", batch(2, 1002, base_timestamp=3, body=late)
    )
    for count in (-1, 0, 2, MAX_INT32):
        yield between(28, f"a record count of {count}", batch(2, 1002, records_count=count))
    yield between(28, "records that are garbage", batch(2, 1002, body=b"\xff" * 40))
    yield between(
        28, "garbage of an idempotent producer", batch(2, 1002, body=b"\xff" * 40, producer_id=5)
    )
    emptied = {"kind": "empty", "base_offset": 2, "last_offset": 2}
    with_timestamp, without = kafka.write(
        [emptied | {"timestamp": 9000}, emptied | {"timestamp": -1}]
    )
    yield between(29, "an empty batch that holds the max", with_timestamp)
    yield between(29, "an empty batch without timestamp", without)
    horizon = {
        "magic": 2,
        "base_offset": 2,
        "delete_horizon_ms": 8888,
        "records": [[2, 1002, -1, 9]],
    }
    yield between(31, "a delete horizon for a base timestamp", kafka.write([horizon])[0])
    yield between(
        31,
        "a delete horizon that is garbage",
        batch(2, 1002, attributes=DELETE_HORIZON, base_timestamp=-(2**63)),
    )
    yield between(31, "unused attribute bits of the high byte", batch(2, 1002, attributes=0x7F00))


def control_batches(kafka: Oracle) -> Iterator[Case]:
    first, last = run([1000, 1001]), run([1003, 1004], first_offset=3)

    def between(row: int, meaning: str, middle: bytes) -> Case:
        return Case(row, meaning, first + middle + last, index_interval_bytes=0)

    leader, aborted, committed = kafka.write(
        [
            {"kind": "leader_change", "base_offset": 2, "timestamp": 1002, "leader_epoch": 1},
            *(
                {
                    "kind": "end_transaction",
                    "marker": kind,
                    "base_offset": 2,
                    "timestamp": 1002,
                    "producer_id": 5,
                    "producer_epoch": 0,
                }
                for kind in ("ABORT", "COMMIT")
            ),
        ]
    )
    yield between(32, "a leader change, a control batch of no producer", leader)
    yield between(32, "an abort marker without a transaction", aborted)
    yield between(32, "a commit marker without a transaction", committed)
    yield between(
        32,
        "a control batch of no producer with garbage",
        batch(2, 1002, attributes=CONTROL, body=b"\xff" * 20),
    )

    key = struct.pack(">hh", 0, 0)
    value = struct.pack(">hi", 0, 0)
    abort = marker(0)
    for meaning, row, body, fields in (
        ("an empty key", 33, record(b"", value), {}),
        ("a key of 3 bytes", 33, record(key[:3], value), {}),
        ("a key of version -1", 33, record(b"\xff\xff" + key[2:], value), {}),
        ("a key of version 1", 33, record(b"\0\1" + key[2:], value), {}),
        ("a key of 5 bytes", 33, record(key + b"\0", value), {}),
        ("a record count of -1", 33, abort, {"records_count": -1}),
        ("a record count of 2 and one record", 33, abort, {"records_count": 2}),
        ("a record count of 1 and two records", 33, abort + abort, {"records_count": 1}),
        ("two records", 33, abort + abort, {"records_count": 2}),
        ("bytes after its one record", 33, abort + b"\0", {}),
        ("a record cut short", 33, abort[:-2], {}),
        ("garbage for a record", 33, b"\xff" * 12, {}),
        ("zeros for a record", 33, bytes(12), {}),
        ("no record but a count of 1", 33, b"", {}),
        ("a record whose length lies by one more", 33, bytes([abort[0] + 2]) + abort[1:], {}),
        ("a record whose length lies by one less", 33, bytes([abort[0] - 2]) + abort[1:], {}),
        ("a marker version of -1", 33, record(key, b"\xff\xff" + value[2:]), {}),
        ("a marker version of 9", 33, record(key, b"\0\11" + value[2:]), {}),
        ("a null key", 34, record(None, value), {}),
        ("a null value", 34, record(key, None), {}),
        ("an empty value", 34, record(key, b""), {}),
        ("a value of 1 byte", 34, record(key, value[:1]), {}),
        ("a value of 5 bytes", 34, record(key, value[:5]), {}),
        ("a value of 7 bytes", 34, record(key, value + b"\0"), {}),
        ("a leader change of a producer", 34, record(b"\0\0\0\2", value), {}),
        ("an unknown kind of marker", 34, record(b"\0\0\0\143", value), {}),
        ("a negative kind of marker", 34, record(b"\0\0\xff\xff", value), {}),
        ("codec 5", 34, abort, {"attributes": CONTROL | 5}),
        ("codec 7 and an empty body", 34, b"", {"attributes": CONTROL | 7, "records_count": 0}),
        ("gzip bits on a plain record", 34, abort, {"attributes": CONTROL | 1}),
        ("snappy bits on a plain record", 34, abort, {"attributes": CONTROL | 2}),
        ("lz4 bits on a plain record", 34, abort, {"attributes": CONTROL | 3}),
        ("zstd bits on a plain record", 34, abort, {"attributes": CONTROL | 4}),
        ("gzip bits and no body", 34, b"", {"attributes": CONTROL | 1, "records_count": 0}),
        ("no record at all", 35, b"", {"records_count": 0}),
        ("a record count of 0 and one record", 35, abort, {"records_count": 0}),
        ("a transactional bit", 35, abort, {"attributes": CONTROL | TRANSACTIONAL}),
    ):
        yield between(row, f"a control batch with {meaning}", control(2, 1002, body=body, **fields))
    emptied = {
        "kind": "empty",
        "base_offset": 2,
        "last_offset": 2,
        "timestamp": 9000,
        "producer_id": 5,
        "producer_epoch": 0,
        "transactional": True,
        "control": True,
    }
    yield between(35, "a marker that compaction emptied", kafka.write([emptied])[0])


def compressed_control_batches(kafka: Oracle) -> Iterator[Case]:
    """Control batches whose record is compressed: no broker writes them, recovery reads them."""
    first, last = run([1000, 1001]), run([1003, 1004], first_offset=5)
    key, value = "00000000", "000000000000"
    for codec in CODECS_OF_MAGIC[2][1:]:
        good, short_key, null_key, short_value, of_unknown_kind, two = kafka.write(
            {
                "magic": 2,
                "codec": codec,
                "base_offset": 2,
                "producer_id": 5,
                "producer_epoch": 0,
                "base_sequence": 0,
                "records": [[2 + i, 1002, *content] for i, content in enumerate(contents)],
            }
            for contents in (
                [(key, value)],
                [(key[:6], value)],
                [(-1, value)],
                [(key, value[:8])],
                [("00000063", value)],
                [(key, value), (key, value)],
            )
        )
        for meaning, row, data in (
            ("a good record", 33, good),
            ("a key of 3 bytes", 33, short_key),
            ("two records", 33, two),
            ("a record count of 1 and two records", 33, with_field(two, 57, "i", 1)),
            ("a record count of 2 and one record", 33, with_field(good, 57, "i", 2)),
            ("a record count of -1", 33, with_field(good, 57, "i", -1)),
            ("a record count of 0 and one record", 35, with_field(good, 57, "i", 0)),
            ("a null key", 34, null_key),
            ("a value of 4 bytes", 34, short_value),
            ("an unknown kind of marker", 34, of_unknown_kind),
            ("a body cut by 3 bytes", 34, with_field(good[:-3], 8, "i", len(good) - 15)),
            ("a body cut by 9 bytes", 34, with_field(good[:-9], 8, "i", len(good) - 21)),
            ("a body of one byte", 34, with_field(good[:62], 8, "i", 50)),
            ("no body", 34, with_field(good[:61], 8, "i", 49)),
            ("9 bytes after the body", 33, with_field(good + b"junk junk", 8, "i", len(good) - 3)),
            ("a damaged body", 34, with_field(good, len(good) - 12, "q", 0x5555555555555555)),
        ):
            attributes = data[22] | CONTROL
            yield Case(
                row,
                f"a {codec} control batch with {meaning}",
                first + with_field(data, 21, "h", attributes) + last,
                index_interval_bytes=0,
            )


def producer_state(kafka: Oracle) -> Iterator[Case]:
    def data(offset: int, producer_id: int, *, transactional: bool = True, **fields: int) -> bytes:
        fields = {
            "attributes": TRANSACTIONAL if transactional else 0,
            "producer_epoch": 0,
            "base_sequence": 0,
            "size_bytes": 98,
        } | fields
        return batch(offset, 1000 + offset, producer_id=producer_id, **fields)

    def end(offset: int, kind: int, producer_id: int, **fields: int) -> bytes:
        epoch = fields.pop("coordinator_epoch", 0)
        return control(
            offset,
            1000 + offset,
            body=marker(kind, coordinator_epoch=epoch),
            **{"producer_id": producer_id} | fields,
        )

    def case(row: int, meaning: str, *batches: bytes) -> Case:
        return Case(row, meaning, b"".join(batches), index_interval_bytes=0)

    yield case(
        36, "plain data inside an open transaction", data(0, 5), data(1, 5, transactional=False)
    )
    yield case(
        36,
        "plain data of another producer inside an open transaction",
        data(0, 5),
        data(1, 6, transactional=False),
    )
    yield case(
        36,
        "plain data after the transaction's end",
        *(data(0, 5), end(1, 1, 5), data(2, 5, transactional=False)),
    )
    yield case(
        36,
        "an aborted transaction beside an open one",
        *(data(0, 5), data(1, 5), data(2, 6), data(3, 5), end(4, 0, 5)),
    )
    yield case(
        36,
        "plain data of producer 6 while it and producer 5 are open",
        *(data(0, 5), data(1, 6), end(2, 0, 5), data(3, 6, transactional=False)),
    )
    yield case(
        36,
        "two abort markers, the second at a lower offset",
        *(data(0, 5), data(1, 6), data(3, 9), end(5, 0, 5), data(6, 9)),
        *(end(4, 0, 6), data(7, 9)),
    )
    yield Case(
        36,
        "abort markers whose base offsets fall while their last offsets rise",
        data(0, 5) + data(1, 6) + end(5, 0, 5) + end(4, 0, 6, last_offset_delta=2),
    )
    yield Case(
        36,
        "two transactions that begin at one offset",
        data(0, 5) + data(0, 6) + end(1, 1, 5) + end(2, 1, 6),
    )
    yield case(36, "an abort marker without a transaction", end(0, 0, 5), data(1, 5), end(2, 0, 5))
    yield case(
        36,
        "two aborted transactions of one producer beside an open one",
        *(data(0, 6), data(1, 5), end(2, 0, 5), data(3, 5), end(4, 0, 5)),
    )
    yield case(
        36,
        "three transactions that overlap, aborted youngest first",
        *(data(0, 5), data(1, 6), data(2, 7), end(3, 0, 7), end(4, 0, 6), end(5, 0, 5)),
    )
    yield case(
        36,
        "three transactions that overlap, the middle one committed",
        *(data(0, 5), data(1, 6), data(2, 7), end(3, 1, 6), end(4, 0, 5), end(5, 0, 7)),
    )
    yield case(
        36,
        "an empty control batch between a transaction and its abort marker",
        data(0, 5),
        control(1, 1001, body=b"", producer_id=5, records_count=0),
        end(2, 0, 5),
    )
    yield case(36, "an abort before a torn tail", data(0, 5), end(1, 0, 5), data(2, 6)[:-1])
    yield case(
        36,
        "a transaction of several batches whose last offsets lie beyond its abort marker",
        *(data(0, 5, last_offset_delta=9), data(10, 5), end(11, 0, 5, last_offset_delta=3)),
    )
    yield case(37, "a gap in the sequence", data(0, 5), data(1, 5, base_sequence=900))
    yield case(
        37, "an older producer epoch", data(0, 5, producer_epoch=9), data(1, 5, producer_epoch=3)
    )
    yield case(
        37,
        "an older coordinator epoch",
        *(data(0, 5), end(1, 1, 5, coordinator_epoch=9)),
        *(data(2, 5), end(3, 1, 5, coordinator_epoch=2), data(4, 5)),
    )
    yield case(
        37,
        "a leader epoch that goes back",
        *(data(i, 5, leader_epoch=epoch) for i, epoch in enumerate((7, 8, 3, 3, 9))),
    )
    written = kafka.write(
        [
            {
                "magic": 2,
                "codec": codec,
                "base_offset": 3 * i,
                "records": [[3 * i + j, T + 3 * i + j, 4, 20] for j in range(2)],
                "transactional": True,
                "producer_id": 5,
                "producer_epoch": 0,
                "base_sequence": 2 * i,
                "leader_epoch": i,
            }
            if part == "data"
            else {
                "kind": "end_transaction",
                "marker": "ABORT" if i % 2 else "COMMIT",
                "base_offset": 3 * i + 2,
                "timestamp": T + 3 * i + 2,
                "producer_id": 5,
                "producer_epoch": 0,
                "leader_epoch": i,
            }
            for i, codec in enumerate(CODECS_OF_MAGIC[2])
            for part in ("data", "marker")
        ]
    )
    yield case(37, "transactions of every codec, with their markers", *written)


def offsets() -> Iterator[Case]:
    def case(
        row: int, meaning: str, placed: list[tuple[int, int]], base: int = 0, interval: int = 100
    ) -> Case:
        log = b"".join(batch(offset, t, size_bytes=98) for offset, t in placed)
        return Case(row, meaning, log, base_offset=base, index_interval_bytes=interval)

    yield case(38, "gaps between offsets", [(0, 1), (10, 2), (500, 3), (501, 4), (9000, 5)])
    yield case(39, "a first offset above the base", [(1007, 1), (1008, 2), (1009, 3)], base=1000)
    yield case(40, "a first offset below the base", [(999, 1), (1000, 2)], base=1000)
    yield case(40, "a later offset below the base", [(1000, 1), (1001, 2), (3, 3)], base=1000)
    yield case(40, "a negative offset", [(0, 1), (-4, 2), (1, 3)])
    yield Case(
        40,
        "a batch that begins below the base and ends above",
        batch(95, 1, last_offset_delta=9) + batch(105, 2),
        base_offset=100,
    )
    yield Case(
        40,
        "a negative first offset with a leader epoch and a last offset in range",
        batch(0, 1, leader_epoch=1) + batch(-5, 2, last_offset_delta=10, leader_epoch=2),
    )
    yield Case(
        40,
        "a negative first offset with an old leader epoch and a last offset in range",
        batch(0, 1, leader_epoch=1) + batch(-5, 2, last_offset_delta=10, leader_epoch=1),
    )
    for row, relative in ((41, MAX_INT32 - 1), (41, MAX_INT32), (42, MAX_INT32 + 1)):
        for base in (0, 5_000_000_000):
            yield case(
                row,
                f"relative offset {relative} above base {base}",
                [(base, 1), (base + 1, 2), (base + 2, 3), (base + relative, 4)],
                base=base,
            )
    yield case(
        42,
        "one offset beyond int32, the last one in range: no overflow to split at",
        [(0, 1), (1, 2), (2**31, 3), (2, 4)],
    )
    yield Case(
        42,
        "a last offset beyond int64",
        batch(0, 1) + batch(MAX_INT64, 2, last_offset_delta=MAX_INT32),
    )
    yield case(
        42, "an offset beyond int32 after a damaged one", [(0, 1), (1, 2), (2**40, 3)], interval=0
    )
    yield case(
        43,
        "an offset that goes back between index points",
        [(0, 1), (5, 5), (6, 6), (2, 2), (7, 7), (8, 8)],
        interval=150,
    )
    yield case(43, "an offset twice between index points", [(0, 1), (5, 5), (5, 5), (6, 6)])
    yield case(44, "an offset twice at index points", [(0, 1), (1, 2), (1, 2), (2, 3)], interval=0)
    yield case(
        44,
        "an offset that goes back at an index point",
        [(0, 1), (5, 2), (6, 3), (2, 2), (7, 4)],
        interval=0,
    )
    yield case(
        45,
        "the max at an offset that goes back, at the closing entry",
        [(0, 1), (5, 2), (6, 3), (2, 99)],
        interval=190,
    )
    yield case(
        45,
        "the max at an offset that goes back, before an index point",
        [(0, 1), (5, 2), (6, 3), (2, 99), (9, 4), (10, 5)],
        interval=190,
    )
    yield case(
        45,
        "an offset that goes back without a new max, at the closing entry",
        [(0, 1), (5, 2), (6, 3), (2, 3)],
        interval=190,
    )
    for delta in (-1, -3, -MAX_INT32 - 1):
        yield Case(
            46,
            f"a last offset delta of {delta}",
            run([1, 2, 3]) + batch(5, 9, last_offset_delta=delta) + run([4], first_offset=8),
            index_interval_bytes=190,
        )


def full_indexes() -> Iterator[Case]:
    ten = run([1000 + i for i in range(10)])
    flat = run([-1] * 10)
    for slots in (1, 2, 4, 8, 9, 10, 11):
        yield Case(
            47,
            f"a time index of {slots} slots for nine points and a closing entry",
            ten,
            index_interval_bytes=0,
            segment_index_bytes=12 * slots,
        )
    yield Case(
        47,
        "only the closing entry, in the reserved slot",
        run([1000]),
        segment_index_bytes=12,
    )
    yield Case(
        47,
        "the time index is full though nothing would be appended",
        run([1000] * 10),
        index_interval_bytes=0,
        segment_index_bytes=12,
    )
    for slots in (2, 3, 6):
        yield Case(
            47,
            f"an offset index of {slots * 12 // 8} slots without any timestamp",
            flat,
            index_interval_bytes=0,
            segment_index_bytes=12 * slots,
        )
    yield Case(
        47,
        "a full time index, then a bad CRC",
        ten + b"\0" * 18,
        index_interval_bytes=0,
        segment_index_bytes=120,
    )
    for size in (4, 8, 11, 12, 13, 23, 25, 119, 121, 131):
        yield Case(
            48,
            f"segment.index.bytes {size} and ten batches",
            ten,
            index_interval_bytes=0,
            segment_index_bytes=size,
        )
    yield Case(48, "segment.index.bytes 11 and an empty file", b"", segment_index_bytes=11)
    yield Case(49, "2^31 - 1 zero bytes", b"", sparse_bytes=MAX_INT32)
    yield Case(49, "2^31 zero bytes", b"", sparse_bytes=MAX_INT32 + 1)
    yield Case(
        50,
        "a batch above max.message.bytes",
        run([1]) + batch(1, 2, size_bytes=1_100_000) + run([3, 4], first_offset=2),
    )


def files_as_found() -> Iterator[Case]:
    ten = run([1000 + i for i in range(10)])
    torn = Case(52, "no index files and a torn tail", ten[:-9], index_interval_bytes=100)
    yield torn
    yield replace(torn, row=51, meaning="what recovery left, recovered again", log=ten[: 9 * 98])
    stale = struct.pack(">qiqi", 1002, 2, 9999, 9)
    found = replace(torn, log=ten)
    yield replace(
        found,
        row=53,
        meaning="a crashed time index with a stale tail",
        existing_time_index=stale + bytes(1200),
        existing_offset_index=struct.pack(">ii", 2, 196) + bytes(1200),
    )
    yield replace(
        found,
        row=53,
        meaning="a time index of 0xff",
        existing_time_index=b"\xff" * 300,
        existing_offset_index=b"\xff" * 80,
    )
    yield replace(
        found, row=54, meaning="a time index of 31 bytes", existing_time_index=bytes(range(31))
    )
    yield replace(found, row=54, meaning="a time index of 5 bytes", existing_time_index=b"short")


def every_format(kafka: Oracle) -> Iterator[Case]:
    """Segments that Kafka's builders wrote, one for each format, codec and timestamp type."""
    for magic, codecs in CODECS_OF_MAGIC.items():
        for codec in codecs:
            for kind in TIMESTAMP_TYPES[: 1 if magic == 0 else 2]:
                batches = []
                for i in range(12):
                    first = 100 + 4 * i
                    batches.append(
                        {
                            "magic": magic,
                            "codec": codec,
                            "timestamp_type": kind,
                            "log_append_time": T + 50 * i if kind == "LogAppendTime" else -1,
                            "base_offset": first,
                            "records": [
                                [first + j, T + 100 * i - 7 * j + 3 * (j % 2), 6, 60]
                                for j in range(3)
                            ],
                        }
                    )
                yield Case(
                    22 if magic == 2 else 26 if kind == "LogAppendTime" else 25,
                    f"twelve times three records, magic {magic}, {codec}, {kind}",
                    b"".join(kafka.write(batches)),
                    base_offset=100,
                    index_interval_bytes=300,
                )
