"""`read_arrow`: sources, selection, columns, and what happens to damage."""

import re
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import kip33
from kip33.errors import CorruptSegmentError, LocationError, UnreadableLogError
from kip33.formats import whole_bodies as decoded_records
from kip33.records import record_table
from tests.builders.log_file import write_log
from tests.builders.segment_builder import (
    Record,
    compress,
    end_txn_marker,
    record_bytes,
    v0_message,
    v1_message,
    v2_batch,
    with_broken_crc,
    wrapper,
)
from tests.cases import each_case
from tests.records.test_levels import build

T = 1_700_000_000_000


def read(source: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the rows without the columns that are null in all of them."""
    rows: list[dict[str, Any]] = (
        kip33.read_arrow(source, **({"on_error": "row"} | options)).read_all().to_pylist()
    )
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def offsets(source: Any, **options: Any) -> list[int]:
    return [row["offset"] for row in read(source, columns=["offset"], **options)]


def batch(base: int, count: int = 2, *, codec: str = "none", time: int | None = None) -> bytes:
    """Return a batch of records at T + offset, or all at one time."""
    times = [T + base + i if time is None else time for i in range(count)]
    return v2_batch(base, [Record(one, b"k", b"v") for one in times], codec=codec)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two brokers: `orders-0` on both, less of it on b2; `orders-1` and `clicks-0` on one."""
    write_log(tmp_path / "b1/orders-0", 0, batch(0), batch(2, codec="zstd"))
    write_log(tmp_path / "b1/orders-0", 4, batch(4, codec="lz4"))
    write_log(tmp_path / "b2/orders-0", 4, batch(4, codec="lz4"))
    write_log(tmp_path / "b2/orders-1", 0, batch(0))
    write_log(tmp_path / "b1/clicks-0", 7, batch(7, 1))
    return tmp_path


def test_all_columns_of_a_record(tmp_path: Path) -> None:
    sent = Record(T, b"key", b"value", (("h", b"1"), ("n", None)))
    write_log(tmp_path / "b1/orders-3", 40, v2_batch(41, [sent]), v0_message(42, None, b"old"))
    reader = kip33.read_arrow(tmp_path, on_error="row")
    assert reader.schema.names == [
        *("log_dir", "topic", "partition", "base_offset", "offset", "timestamp", "timestampType"),
        *("key", "value", "headers", "_corrupt"),
    ]
    assert reader.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    assert reader.read_all().to_pylist() == [
        {
            **{"log_dir": "b1", "topic": "orders", "partition": 3, "base_offset": 40},
            **{"offset": 41, "timestamp": datetime.fromtimestamp(T / 1000, UTC)},
            **{"timestampType": 0, "key": b"key", "value": b"value", "_corrupt": None},
            "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        },
        {
            **{"log_dir": "b1", "topic": "orders", "partition": 3, "base_offset": 40},
            **{"offset": 42, "timestamp": None, "timestampType": -1, "key": None},
            **{"value": b"old", "headers": None, "_corrupt": None},
        },
    ]


def test_columns_come_in_the_order_of_the_caller(archive: Path) -> None:
    reader = kip33.read_arrow(
        archive, topic="clicks", columns=["value", "topic", "offset"], on_error="row"
    )
    assert reader.read_all().to_pylist() == [{"value": b"v", "topic": "clicks", "offset": 7}]
    with pytest.raises(ValueError, match="'colour' found, expected some of log_dir, topic"):
        kip33.read_arrow(archive, columns=["offset", "colour"], on_error="row")


def test_each_partition_once_in_order(archive: Path) -> None:
    rows = read(archive, columns=["topic", "partition", "offset"])
    found = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert found == [
        ("clicks", 0, 7),
        *(("orders", 0, offset) for offset in range(6)),
        *(("orders", 1, offset) for offset in range(2)),
    ]


SELECTIONS = {
    "a topic": ({"topic": "clicks"}, [7]),
    "a glob": ({"topic": "o*"}, [0, 1, 2, 3, 4, 5, 0, 1]),
    "several globs": ({"topic": ["*", "!orders"]}, [7]),
    "a partition": ({"topic": "orders", "partition": 1}, [0, 1]),
    "several partitions": ({"partition": [0]}, [7, 0, 1, 2, 3, 4, 5]),
    "a replica": ({"log_dir": "b2", "partition": 0}, [4, 5]),
}


@each_case(("selection", "expected"), SELECTIONS)
def test_selected_partitions(selection: Any, expected: Any, archive: Path) -> None:
    assert offsets(archive, **selection) == expected


def test_nothing_of_that_name(archive: Path) -> None:
    with pytest.raises(LocationError, match="no segments of topics nothing found"):
        kip33.read_arrow(archive, topic="nothing", on_error="row")
    with pytest.raises(LocationError, match="no segments of partitions 8 found"):
        kip33.read_arrow(archive, partition=8, on_error="row")


def test_a_log_a_directory_a_segment(archive: Path) -> None:
    partition = archive / "b1/orders-0"
    assert offsets(partition) == [0, 1, 2, 3, 4, 5]
    assert offsets(partition / f"{4:020d}.log") == [4, 5]
    assert offsets(kip33.list_segments(partition)[0]) == [0, 1, 2, 3]
    assert read(partition / f"{4:020d}.log")[0]["topic"] == "orders"
    with pytest.raises(LocationError, match="no such segment file"):
        kip33.read_arrow(partition / f"{9:020d}.log", on_error="row")


LIMITS = [
    ({"start_offset": 3}, [3, 4, 5]),
    ({"end_offset": 3}, [0, 1, 2]),
    ({"start_offset": 1, "end_offset": 5}, [1, 2, 3, 4]),
    ({"start_offset": 6}, []),
    ({"start_time": T + 3}, [3, 4, 5]),
    ({"end_time": T + 3}, [0, 1, 2]),
    ({"start_time": T + 1, "end_time": T + 2, "start_offset": 1}, [1]),
    ({"end_time": T + 1, "disorder": "1h"}, [0]),
    ({"end_time": T + 1, "disorder": 0}, [0]),
]


@each_case(("limits", "expected"), LIMITS)
def test_limits_of_offsets_and_times(limits: Any, expected: Any, archive: Path) -> None:
    assert offsets(archive / "b1/orders-0", **limits) == expected


def test_records_without_a_timestamp_are_outside_of_times(tmp_path: Path) -> None:
    write_log(tmp_path, 0, v0_message(0), v1_message(1, -1), batch(2, 1))
    assert offsets(tmp_path, end_time=T + 10) == [2]
    assert offsets(tmp_path, start_time=0) == [2]


def test_an_old_record_in_a_later_segment_is_found(tmp_path: Path) -> None:
    write_log(tmp_path, 0, batch(0, 1, time=T))
    write_log(tmp_path, 1, batch(1, 1, time=T + 5_000))
    write_log(tmp_path, 2, batch(2, 1, time=T))
    assert offsets(tmp_path, end_time=T + 1) == [0, 2]
    assert offsets(tmp_path, end_time=T + 1, disorder="5s") == [0, 2]
    assert offsets(tmp_path, end_time=T + 1, disorder="4s") == [0]


def test_control_records(tmp_path: Path) -> None:
    marker = end_txn_marker(2, T, producer_id=9)
    write_log(tmp_path, 0, batch(0), marker, batch(3, 1))
    assert offsets(tmp_path) == [0, 1, 3]
    assert offsets(tmp_path, include_control=True) == [0, 1, 2, 3]


UNREADABLE = v2_batch(10, body=b"\xff" * 9, records_count=2)


def test_a_row_for_what_cannot_be_read(tmp_path: Path) -> None:
    log = write_log(tmp_path / "orders-0", 0, batch(0, 1), UNREADABLE, batch(20, 1), b"\x01" * 5)
    rows = read(tmp_path, columns=["topic", "offset", "key", "_corrupt"])
    uri = log.as_uri()
    at = len(batch(0, 1))
    end = log.stat().st_size
    assert rows == [
        {"topic": "orders", "offset": 0, "key": b"k"},
        {
            "topic": "orders",
            "_corrupt": f"{uri}: batch at position {at}: record 0 of 2: "
            "a varint too long for 32 bits",
        },
        {"topic": "orders", "offset": 20, "key": b"k"},
        {
            "topic": "orders",
            "_corrupt": f"{uri}: at byte {end - 5} of {end}: "
            "5 bytes left, too few for a batch header",
        },
    ]


def test_what_cannot_be_read_is_an_error_unless_the_caller_says_otherwise(tmp_path: Path) -> None:
    log = write_log(tmp_path, 0, batch(0, 1), with_broken_crc(batch(1, 1)))
    reader = kip33.read_arrow(tmp_path)
    assert "_corrupt" not in reader.schema.names
    with pytest.raises(CorruptSegmentError, match=f"{log.name}: .*do not match its CRC") as raised:
        reader.read_all()
    assert raised.value.valid_bytes == len(batch(0, 1))
    assert ['on_error="row"' in note for note in raised.value.__notes__] == [True]


def test_what_cannot_be_read_is_skipped_and_counted(tmp_path: Path) -> None:
    write_log(tmp_path, 0, batch(0, 1), UNREADABLE, batch(20, 1))
    write_log(tmp_path, 21, batch(21, 1)[:-1])
    skipped: list[str] = []
    assert offsets(tmp_path, on_error="skip", skipped=skipped) == [0, 20]
    assert len(skipped) == 2
    assert offsets(tmp_path, on_error="skip") == [0, 20]


@pytest.mark.parametrize(
    "read",
    [
        lambda source: kip33.read_arrow(source, on_error="skip").read_all(),
        lambda source: kip33.read_arrow(source, on_error="skip", workers=2).read_all(),
        lambda source: kip33.read_arrow(source, on_error="skip", level="batches").read_all(),
        lambda source: kip33.scan_polars(source, on_error="skip").collect(),
        lambda source: kip33.count_records(source, "1d"),
        lambda source: kip33.write_record_file(source, source.parent / "new.jsonl"),
    ],
)
def test_a_log_that_is_out_of_reach_is_no_damage(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    """It may be there again: what is skipped is not asked for a second time."""
    write_log(tmp_path / "archive/orders-0", 0, batch(0, 1))
    lost = write_log(tmp_path / "archive/orders-0", 1, batch(1, 1))
    catalog = build(tmp_path / "archive", tmp_path)
    lost.unlink()
    with pytest.raises(UnreadableLogError, match=r"0001\.log: cannot be read: ") as raised:
        read(catalog)
    assert raised.value.exit_code == 1
    assert [note for note in raised.value.__notes__ if "skip" in note] == []


def test_a_file_that_is_deleted_before_it_is_read(tmp_path: Path) -> None:
    write_log(tmp_path, 0, batch(0, 1))
    lost = write_log(tmp_path, 1, batch(1, 1))
    reader = kip33.read_arrow(tmp_path, columns=["offset", "_corrupt"], on_error="row")
    lost.unlink()
    first, second = reader.read_all().to_pylist()
    assert first == {"offset": 0, "_corrupt": None}
    assert second["_corrupt"].startswith(f"{lost.as_uri()}: cannot be read: ")
    with pytest.raises(LocationError, match="cannot be read"):
        failing = kip33.read_arrow(write_log(tmp_path, 1, batch(1, 1)), on_error="fail")
        lost.unlink()
        failing.read_all()


WRONG_ARGUMENTS = [
    ({"on_error": "ignore"}, "on_error 'ignore': expected one of row"),
    ({"start_offset": -1}, "start_offset -1: expected 0 to 2\\^63 - 1"),
    ({"end_time": -5}, "end_time: -5 found, expected ISO 8601"),
    ({"start_time": "noon"}, "'noon' found, expected ISO 8601"),
    ({"start_time": datetime(2024, 1, 1)}, "expected a datetime with a time zone"),
    ({"disorder": "soon"}, "'soon' found, expected 7d"),
    ({"layout": "other"}, "layout 'other': expected kafka"),
    ({"level": "files"}, "level 'files': expected one of records"),
    ({"isolation": "serializable"}, "isolation 'serializable': expected one of read_unc"),
    ({"workers": 0}, "workers 0: expected 1 to 1000"),
]


@each_case(("argument", "message"), WRONG_ARGUMENTS)
def test_wrong_arguments(argument: Any, message: str, archive: Path) -> None:
    with pytest.raises(ValueError, match=message):
        kip33.read_arrow(archive, **({"on_error": "row"} | argument))


def test_record_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_table, "MOST_PAYLOAD_BYTES", 100)
    values = [b"x" * size for size in (60, 40, 1, 250, 99, 1, 0, 0, 100)]
    headers = (("h", b""),)
    records = [Record(T, None, value, headers if not value else ()) for value in values]
    write_log(tmp_path, 0, v2_batch(0, records, codec="gzip"))
    read_batches = [one["value"].to_pylist() for one in kip33.read_arrow(tmp_path, on_error="row")]
    assert [[len(value) for value in one] for one in read_batches] == [
        *([60, 40], [1], [250], [99, 1], [0, 0], [100]),
    ]


def test_empty_headers_fill_a_record_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_table, "MOST_PAYLOAD_BYTES", 100)
    many = (("", None),) * 10
    write_log(tmp_path, 0, v2_batch(0, [Record(T, headers=many)] * 3, codec="gzip"))
    assert [one.num_rows for one in kip33.read_arrow(tmp_path, on_error="row")] == [1, 1, 1]


def test_a_batch_that_is_too_large_is_unreadable(tmp_path: Path) -> None:
    large = v2_batch(0, [Record(T, None, bytes(10_000))], codec="zstd")
    write_log(tmp_path, 0, large, v2_batch(1, [Record(T, None, bytes(10_000))]), batch(2, 1))
    first, second, third = read(tmp_path, columns=["offset", "_corrupt"], max_batch_bytes=9_999)
    assert "decompresses to more than 9999 bytes" in first["_corrupt"]
    assert "more than 9999 bytes" in second["_corrupt"]
    assert third == {"offset": 2}


def test_a_false_size_takes_no_memory(tmp_path: Path) -> None:
    claims = bytearray(batch(0, 1))
    claims[8:12] = (1 << 30).to_bytes(4)
    log = write_log(tmp_path, 0, bytes(claims))
    with log.open("r+b") as file:
        file.truncate((1 << 30) + 100)
    bomb = v2_batch(0, body=b"\x00" * 8, records_count=2**31 - 1)
    tracemalloc.start()
    (row,) = read(log, columns=["_corrupt"])
    (other,) = read(write_log(tmp_path / "other", 0, bomb), columns=["_corrupt"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "do not match its CRC" in row["_corrupt"]
    assert "record 0 of 2147483647" in other["_corrupt"]
    assert peak < 64 << 20


@pytest.mark.parametrize("plain_bytes", [0, 1 << 40], ids=["compiled", "plain"])
def test_headers_of_any_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_bytes: int
) -> None:
    """Their columns grow when they are full, with each number of them that is left."""
    monkeypatch.setattr(decoded_records, "PLAIN_BYTES", plain_bytes)
    random = Random(46)
    counts = [random.choice((0, 1, 1, 1, 2, 5)) for _ in range(9_000)]
    given = [
        tuple((f"h{at}", b"%d" % number) for at in range(n)) for number, n in enumerate(counts)
    ]
    entries = [
        v2_batch(first, [Record(T, headers=one) for one in given[first : first + 300]])
        for first in range(0, len(given), 300)
    ]
    write_log(tmp_path, 0, *entries)

    found = kip33.read_arrow(tmp_path, columns=["headers"], on_error="fail").read_all()

    expected = [[{"key": k, "value": v} for k, v in one] or None for one in given]
    assert found["headers"].to_pylist() == expected


def test_wrappers_and_header_keys_that_are_no_text(tmp_path: Path) -> None:
    inner = [v1_message(0, T, b"a"), v1_message(1, T + 1, b"b")]
    odd = v2_batch(9, body=bytes([20, 0, 0, 0, 1, 1, 2, 2, 0xFF, 2, 0x41]), records_count=1)
    write_log(tmp_path, 0, wrapper(6, inner), v2_batch(8, [Record(T, headers=(("é", b"v"),))]), odd)
    rows = read(tmp_path, columns=["offset", "key", "headers", "_corrupt"])
    assert rows[:2] == [{"offset": 5, "key": b"a"}, {"offset": 6, "key": b"b"}]
    assert rows[2]["headers"] == [{"key": "é", "value": b"v"}]
    assert rows[3]["headers"] == [{"key": "\ufffd", "value": b"A"}]


def with_a_wrong_offset(folder: Path) -> Path:
    """Return a partition whose log has one flipped bit in the base offset of its third batch."""
    data = bytearray(b"".join(batch(2 * number) for number in range(5)))
    data[2 * len(batch(0))] ^= 4
    return write_log(folder / "orders-0", 0, bytes(data)).parent


def test_the_records_of_an_invalid_log_come_with_a_warning(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    archive = with_a_wrong_offset(tmp_path / "archive").parent
    kip33.build_index(archive, index_dir=tmp_path / "indexes")
    third, fourth = (f"at byte {number * len(batch(0))}: its last offset" for number in (2, 3))
    for source, where, says in (
        (tmp_path / "indexes/_catalog", f"{third} is 2^31", "a broker would keep none"),
        (archive, f"{fourth}, 7, is not above the one before", ""),
    ):
        for level, rows in (("records", 10), ("batches", 5)):
            with subtests.test(source.name, level=level):
                options: dict[str, Any] = {"level": level}
                lines: list[str] = []
                skipping = kip33.read_arrow(source, on_error="skip", skipped=lines, **options)
                assert skipping.read_all().num_rows == rows
                assert len(lines) == 1 and where in lines[0] and says in lines[0]
                table = kip33.read_arrow(source, **({"on_error": "row"} | options)).read_all()
                assert table["_corrupt"].drop_null().to_pylist() == lines
                with pytest.raises(CorruptSegmentError, match=re.escape(where)):
                    kip33.read_arrow(source, on_error="fail", **options).read_all()


def test_a_catalog_tells_which_offsets_are_missing(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for base in (0, 2, 6):
        write_log(tmp_path / "archive/orders-0", base, batch(base))
    kip33.build_index(tmp_path / "archive", index_dir=tmp_path / "indexes")
    catalog = tmp_path / "indexes/_catalog"
    asked: dict[str, tuple[dict[str, Any], int]] = {
        "all": ({}, 1),
        "up to the hole": ({"end_offset": 4}, 0),
        "into it": ({"end_offset": 7, "start_offset": 3}, 1),
        "behind it": ({"start_offset": 6}, 0),
    }
    for name, (options, expected) in asked.items():
        with subtests.test(name):
            lines: list[str] = []
            kip33.read_arrow(catalog, on_error="skip", skipped=lines, **options).read_all()
            assert len(lines) == expected
            assert all("offsets 4 to 5 are missing before it" in line for line in lines)
    with pytest.raises(CorruptSegmentError, match="offsets 4 to 5 are missing"):
        kip33.read_arrow(catalog, on_error="fail").read_all()


def test_the_records_before_the_wrong_end_of_a_body_are_returned(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    sent = [Record(T + i, None, Random(i).randbytes(2_000)) for i in range(3)]
    plain = b"".join(record_bytes(one, i, T) for i, one in enumerate(sent))
    wrong_sum = bytearray(compress(plain, "gzip"))
    wrong_sum[-6] ^= 1
    cases = {
        "gzip with a wrong checksum": ("gzip", bytes(wrong_sum), 2),
        "gzip without its end": ("gzip", compress(plain, "gzip")[:-8], 2),
        "lz4 without the mark of its end": ("lz4", compress(plain, "lz4")[:-4], 2),
        "zstd of two frames, the second cut": (
            "zstd",
            compress(plain[:4_100], "zstd") + compress(plain[4_100:], "zstd")[:-9],
            2,
        ),
        "snappy, whose one block must be complete": ("snappy", compress(plain, "snappy")[:-1], 0),
    }
    for name, (codec, body, count) in cases.items():
        with subtests.test(name):
            log = write_log(
                tmp_path / codec, 0, v2_batch(0, sent, codec=codec, body=body), batch(3)
            )
            *before, wrong, first, last = read(log)
            assert [row["value"] for row in before] == [one.value for one in sent[:count]]
            assert f"{codec}: " in wrong["_corrupt"]
            assert (first["offset"], last["offset"]) == (3, 4)
