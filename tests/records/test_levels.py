"""`read_arrow(level="batches")` and `level="segments"`, from an archive and from a catalog."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

import kip33
from kip33.cli.build import build as build_command
from kip33.errors import CorruptSegmentError
from kip33.formats.batch import decode_header
from kip33.records.columns import BATCHES
from tests.builders.log_file import write_log
from tests.builders.random_entries import random_log
from tests.builders.segment_builder import (
    Record,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    with_broken_crc,
    wrapper,
)

T = 1_700_000_000_000
AT_T = datetime.fromtimestamp(T / 1000, UTC)


def rows(source: Any, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        kip33.read_arrow(source, **({"on_error": "row"} | options)).read_all().to_pylist()
    )
    return found


def test_a_row_a_batch(tmp_path: Path) -> None:
    plain = v2_batch(
        *(7, [Record(T), Record(T - 5)]),
        codec="lz4",
        transactional=True,
        producer_id=9,
        producer_epoch=3,
        base_sequence=11,
        leader_epoch=4,
    )
    write_log(tmp_path / "orders-1", 7, plain, wrapper(20, [v1_message(0, T)]), v0_message(21))
    batch, packed, old = rows(tmp_path, level="batches")
    common = {"log_dir": "", "topic": "orders", "partition": 1, "base_offset": 7}
    assert batch == common | {
        **{"position": 0, "size_bytes": len(plain), "magic": 2, "codec": "lz4"},
        **{"timestampType": 0, "first_offset": 7, "last_offset": 8, "base_timestamp": AT_T},
        **{"max_timestamp": AT_T, "records_count": 2, "is_transactional": True},
        **{"is_control": False, "has_delete_horizon": False, "leader_epoch": 4},
        **{"producer_id": 9, "producer_epoch": 3, "base_sequence": 11, "_corrupt": None},
        "crc": int.from_bytes(plain[17:21]),
    }
    assert packed["records_count"] is packed["first_offset"] is None
    assert packed["codec"] == "gzip"
    assert (packed["last_offset"], packed["max_timestamp"]) == (20, AT_T)
    assert (old["timestampType"], old["max_timestamp"], old["base_timestamp"]) == (-1, None, None)
    assert old["producer_id"] is old["leader_epoch"] is old["base_sequence"] is None


def test_every_field_of_random_headers(tmp_path: Path) -> None:
    data = random_log(Random(0), entries=60)
    log = write_log(tmp_path, 0, data)
    names = [name for name in BATCHES.names if not name.endswith("_timestamp")]  # may be any number
    names.remove("_undecided")
    names.remove("_corrupt")  # the offsets are in no order
    found = rows(log, level="batches", include_control=True, columns=names, on_error="skip")
    for row in found:
        header = decode_header(data[row["position"] :], row["position"])
        sent = (header.size_bytes, header.magic, header.crc, header.codec, header.last_offset)
        assert tuple(row[n] for n in ("size_bytes", "magic", "crc", "codec", "last_offset")) == sent
        if header.magic >= 2:
            assert row["producer_epoch"] == header.producer_epoch
            assert row["base_sequence"] == header.base_sequence
            assert row["records_count"] == (
                header.records_count if header.records_count >= 0 else None
            )
    assert sum(row["size_bytes"] for row in found) == len(data)


def test_batches_are_not_decompressed(tmp_path: Path) -> None:
    write_log(tmp_path, 0, v2_batch(0, body=b"nothing", records_count=5, attributes=4))
    (row,) = rows(tmp_path, level="batches", columns=["records_count", "_corrupt"])
    assert row == {"records_count": 5, "_corrupt": None}


def test_batches_that_may_have_the_records(tmp_path: Path) -> None:
    batches = [v2_batch(n * 2, [Record(T + n), Record(T)]) for n in range(4)]
    write_log(tmp_path, 0, *batches, end_txn_marker(8, T, producer_id=1), b"\0")
    common = {"level": "batches", "columns": ["first_offset"], "on_error": "skip"}
    assert [row["first_offset"] for row in rows(tmp_path, **common)] == [0, 2, 4, 6]
    between = rows(tmp_path, start_offset=3, end_offset=5, **common)
    assert [row["first_offset"] for row in between] == [2, 4]
    assert [row["first_offset"] for row in rows(tmp_path, start_time=T + 2, **common)] == [4, 6]


def archive(tmp_path: Path) -> Path:
    source = tmp_path / "archive"
    write_log(
        source / "b1/orders-0", 0, v2_batch(0, [Record(T), Record(T - 1)]), v2_batch(2, [Record(7)])
    )
    write_log(source / "b1/orders-0", 3, v2_batch(3, [Record(T)]), with_broken_crc(v2_batch(4)))
    write_log(source / "b1/orders-0", 5)
    return source


def test_a_row_a_segment(tmp_path: Path) -> None:
    source = archive(tmp_path)
    first, second, empty = rows(source, level="segments")
    log = source / "b1/orders-0/00000000000000000000.log"
    assert first == {
        **{"log_dir": "b1", "topic": "orders", "partition": 0, "base_offset": 0},
        **{"log_uri": log.as_uri(), "size_bytes": log.stat().st_size, "batch_count": 2},
        **{"valid_bytes": log.stat().st_size, "record_count": 3, "last_offset": 2},
        **{"max_timestamp": AT_T, "_corrupt": None},
    }
    assert second["valid_bytes"] == len(v2_batch(3, [Record(T)]))
    assert second["_corrupt"].startswith(f"{second['log_uri']}: at byte ")
    assert (empty["batch_count"], empty["last_offset"], empty["max_timestamp"]) == (0, None, None)
    with pytest.raises(CorruptSegmentError, match="do not match its CRC"):
        rows(source, level="segments", on_error="fail")
    skipped: list[str] = []
    assert len(rows(source, level="segments", on_error="skip", skipped=skipped)) == 3
    assert skipped == [second["_corrupt"]]


def build(source: Path, tmp_path: Path, *options: str) -> Path:
    arguments = [str(source), "--index-dir", str(tmp_path / "indexes"), "--engine", "local"]
    arguments += ["--offset-index", *options]  # then the catalog has the open transactions
    result = CliRunner().invoke(build_command, arguments)
    assert result.exit_code in (0, 1), result.output
    return tmp_path / "indexes/_catalog"


def test_a_catalog_has_the_same_rows(tmp_path: Path) -> None:
    source = archive(tmp_path)
    catalog = build(source, tmp_path)
    for level in ("records", "batches"):
        assert rows(catalog, level=level) == rows(source, level=level)
        assert rows(kip33.open_catalog(catalog), level=level) == rows(source, level=level)
    of_catalog, of_archive = (rows(one, level="segments") for one in (catalog, source))
    for row in (*of_catalog, *of_archive):
        row["_corrupt"] = row["_corrupt"] is not None
        row["max_timestamp"] = row["batch_count"] and row["max_timestamp"]
    assert of_catalog == of_archive


def test_a_catalog_spares_segments_that_are_not_needed(tmp_path: Path) -> None:
    source = tmp_path / "archive"
    for base in range(5):
        write_log(source / "orders-0", base, v2_batch(base, [Record(T + 1000 * base)]))
    catalog = build(source, tmp_path)
    for base in (0, 1, 3, 4):
        (source / f"orders-0/{base:020d}.log").write_bytes(b"not read")
    between = {"start_time": T + 2000, "end_time": T + 3000}
    assert [row["offset"] for row in rows(catalog, **between)] == [2]
