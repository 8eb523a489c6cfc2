"""The oracle itself: known bytes, known checksums, and two readers that others wrote."""

import pytest

from tests.builders import segment_builder as build
from tests.builders.segment_builder import Record, v0_message, v1_message, v2_batch, wrapper
from tests.cases import each_case

T = 1700000000000


@each_case(
    ("entry", "wire"),
    {
        "v0": (
            v0_message(5, b"k", b"v"),
            "0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76",
        ),
        "v1": (
            v1_message(5, T, b"k", b"v"),
            "0000000000000005 00000018 39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76",
        ),
        "v2": (
            v2_batch(100, [Record(T, b"k1", b"v1"), Record(T + 250, None, b"v2")], leader_epoch=7),
            "0000000000000064 00000046 00000007 02 271282d4 0000 00000001"
            "0000018bcfe56800 0000018bcfe568fa ffffffffffffffff ffff ffffffff 00000002"
            "14 00 00 00 04 6b31 04 7631 00   12 00 f403 02 01 04 7632 00",
        ),
    },
)
def test_bytes_that_kafka_writes(entry: bytes, wire: str) -> None:
    assert entry == bytes.fromhex(wire)


# Readers differ on little-endian framing versions (kafka-python#2414), so snappy-le is left out.
LEGACY_CODECS = [codec for codec in build.LEGACY_CODECS if codec != "snappy-le"]
V2_CODECS = [codec for codec in build.V2_CODECS if codec != "snappy-le"]
ENTRIES = {
    "v0": (v0_message(5, b"k", b"v"), [(5, None, b"k", b"v")]),
    "v1": (v1_message(5, T, None, b"v"), [(5, T, None, b"v")]),
    **{
        f"v1 wrapper {c}": (
            wrapper(8, [v1_message(0, T, value=b"a"), v1_message(1, T + 9, value=b"b")], codec=c),
            [(7, T, None, b"a"), (8, T + 9, None, b"b")],
        )
        for c in LEGACY_CODECS
    },
    **{
        f"v0 wrapper {c}": (
            wrapper(8, [v0_message(7, value=b"a"), v0_message(8, value=b"b")], codec=c, magic=0),
            [(7, None, None, b"a"), (8, None, None, b"b")],
        )
        for c in LEGACY_CODECS
    },
    **{
        f"v2 {c}": (
            v2_batch(
                7, [Record(T, b"k", b"a"), Record(T - 5, None, b"b", (("h", b"x"),))], codec=c
            ),
            [(7, T, b"k", b"a"), (8, T - 5, None, b"b")],
        )
        for c in V2_CODECS
    },
    "v2 LogAppendTime": (
        v2_batch(7, [Record(T, b"k", b"a")], log_append_time=T + 99),
        [(7, T + 99, b"k", b"a")],
    ),
}


@each_case("library", ["kafka", "aiokafka"])
@each_case(("entry", "expected"), ENTRIES)
def test_other_readers_agree(
    library: str, entry: bytes, expected: list[tuple[object, ...]]
) -> None:
    reason = f"{library} is not installed"
    reader = pytest.importorskip(f"{library}.record.memory_records", reason=reason)
    errors = pytest.importorskip(f"{library}.errors", reason=reason)
    try:
        batch = reader.MemoryRecords(entry).next_batch()
        valid = batch.validate_crc()
        records = [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    except errors.UnsupportedCodecError as error:
        pytest.skip(f"{library} has no library for this codec: {error}")
    except RuntimeError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(f"{library} has no library for this codec: {error}")
    assert valid
    assert [(o, t, k and bytes(k), v and bytes(v)) for o, t, k, v in records] == expected
