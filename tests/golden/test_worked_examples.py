"""Segments and entries typed by hand: worked examples that can be followed with paper and pencil.

Each was run once on the Kafka version its id names; none comes from the recorded vectors. The logs
are hex, or equal 98-byte v2 batches at offsets 0, 1, 2, ... that differ in their timestamps only.
"""

from pathlib import Path

from kip33 import build_time_index
from tests.cases import each_case
from tests.integration.kafka.batches import batch

TWO_RECORDS_V2 = (
    "0000000000000064 00000046 00000007 02 271282d4 0000 00000001 0000018bcfe56800"
    "0000018bcfe568fa ffffffffffffffff ffff ffffffff 00000002"
    "14 00 00 00 04 6b31 04 7631 00   12 00 f403 02 01 04 7632 00"
)
MESSAGE_V0 = "0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76"
MESSAGE_V1 = "0000000000000005 00000018 39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76"

# Offsets 100, 101, 102 with timestamps 5000, 5100, 5050: the max is in the middle.
THREE_PLAIN_RECORDS = (
    "0000000000000064 0000004a 00000000 02 c809767d 0000 00000002 0000000000001388"
    "00000000000013ec ffffffffffffffff ffff ffffffff 00000003"
    "0e 00 00 00 01 02 61 00   10 00 c801 02 01 02 62 00   0e 00 64 04 01 02 63 00"
)
THREE_LOG_APPEND_TIME_RECORDS = (
    "0000000000000064 0000004a 00000000 02 664a957e 0008 00000002 0000000000001388"
    "00000000000013ec ffffffffffffffff ffff ffffffff 00000003"
    "0e 00 00 00 01 02 61 00   10 00 c801 02 01 02 62 00   0e 00 64 04 01 02 63 00"
)
THREE_GZIP_RECORDS = (
    "0000000000000064 0000005e 00000000 02 4791e138 0001 00000002 0000000000001388"
    "00000000000013ec ffffffffffffffff ffff ffffffff 00000003"
    "1f8b08000000000000ffe363606060644a64106038c1c8c4c894c4c0c790c2c2c894cc0000dbc7ce7619000000"
)


def with_timestamps(*timestamps: int) -> bytes:
    """Return one 98-byte batch for each timestamp."""
    return b"".join(batch(i, t, size_bytes=98) for i, t in enumerate(timestamps))


@each_case(
    ("log", "base_offset", "dialect", "time_index", "offset_index"),
    {
        "4.1.0: index points at bytes 196 and 392, the closing entry is already there": (
            with_timestamps(1000, 1001, 1002, 1003, 1004),
            0,
            "recover",
            "00000000000003ea 00000002   00000000000003ec 00000004",
            "00000002 000000c4  00000004 00000188",
        ),
        "4.1.0: 500 belongs to the first batch that reached it": (
            with_timestamps(-1, -1, 500, -1, 500, 400),
            0,
            "recover",
            "00000000000001f4 00000002",
            "00000002 000000c4  00000004 00000188",
        ),
        "4.1.0: the max of batch 0 is written at the first index point, batch 2": (
            with_timestamps(900, 899, 898, 897, 896),
            0,
            "recover",
            "0000000000000384 00000000",
            "00000002 000000c4  00000004 00000188",
        ),
        "4.1.0: ten batches, four index points and a closing entry": (
            with_timestamps(*range(1000, 1010)),
            0,
            "recover",
            "00000000000003ea 00000002  00000000000003ec 00000004  00000000000003ee 00000006"
            "00000000000003f0 00000008  00000000000003f1 00000009",
            "00000002 000000c4  00000004 00000188  00000006 0000024c  00000008 00000310",
        ),
        "4.1.0: v0 has no timestamp": (bytes.fromhex(MESSAGE_V0), 5, "recover", "", ""),
        "4.1.0: a v1 message of 36 bytes": (
            bytes.fromhex(MESSAGE_V1),
            5,
            "recover",
            "0000018bcfe56800 00000000",
            "",
        ),
        "4.1.0: a v2 batch of 82 bytes, the entry has its last offset": (
            bytes.fromhex(TWO_RECORDS_V2),
            100,
            "recover",
            "0000018bcfe568fa 00000001",
            "",
        ),
        "4.1.0: recovery records offset 102, the last of the batch": (
            bytes.fromhex(THREE_PLAIN_RECORDS),
            100,
            "recover",
            "00000000000013ec 00000002",
            "",
        ),
        "3.6.2: a leader records offset 101, the record with the max timestamp": (
            bytes.fromhex(THREE_PLAIN_RECORDS),
            100,
            "live",
            "00000000000013ec 00000001",
            "",
        ),
        "3.6.2: a leader records offset 102 of a gzip batch": (
            bytes.fromhex(THREE_GZIP_RECORDS),
            100,
            "live",
            "00000000000013ec 00000002",
            "",
        ),
        "3.6.2: a leader records offset 102 of a LogAppendTime batch": (
            bytes.fromhex(THREE_LOG_APPEND_TIME_RECORDS),
            100,
            "live",
            "00000000000013ec 00000002",
            "",
        ),
    },
)
def test_worked_example(
    log: bytes, base_offset: int, dialect: str, time_index: str, offset_index: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{base_offset:020d}.log"
    path.write_bytes(log)

    result = build_time_index(str(path), dialect=dialect, index_interval_bytes=100)

    assert result.status == "ok"
    assert result.time_index_data == bytes.fromhex(time_index)
    assert result.offset_index_data == bytes.fromhex(offset_index)
