"""The cost of reading records follows what is decoded, not what is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kip33
from kip33.formats import records
from kip33.formats import whole_bodies as decoded_records
from tests.builders.hostile_input import bomb, log_path, many_headers, many_messages, many_records
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.measured_command import measured

LARGE = {
    "records": (many_records(50_000), 50_000, True),
    "headers of one record": (many_headers(200_000), 1, True),
    "messages of magic 1": (many_messages(20_000), 20_000, True),
    "messages of magic 0": (many_messages(20_000, magic=0), 20_000, True),
    "several batches": (many_records(9_000) * 3, 27_000, True),
    "few records": (v2_batch(0, [Record(i) for i in range(500)], codec="zstd"), 500, False),
}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that were asked for as compiled code."""
    names: list[str] = []
    compiled = decoded_records.compiled

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        names.append(function.__name__)
        return compiled(function)

    monkeypatch.setattr(decoded_records, "compiled", noting)
    return names


def rows_of(log: Path) -> int:
    return sum(batch.num_rows for batch in kip33.read_arrow(log, on_error="row"))


@each_case(("log", "rows", "is_compiled"), LARGE)
def test_only_a_log_of_many_records_waits_for_compiled_code(
    log: bytes, rows: int, is_compiled: bool, tmp_path: Path, compiled: list[str]
) -> None:
    compiled.clear()
    place = tmp_path / "copies.log"  # some repeat a batch, so it has no base offset
    place.write_bytes(log)
    assert rows_of(place) == rows
    assert len(log) < 1 << 13
    assert ("add_records" in compiled) == bool(compiled) == is_compiled


DAMAGED = {
    "a count that the bytes cannot hold": (
        many_records(30_000, claimed=2**31 - 1),
        "record 30000 of 2147483647: a field runs past its end",
    ),
    "bytes after the last record": (
        many_records(30_000, claimed=29_000),
        "bytes are left after record 28999 of 29000",
    ),
    "a header without a key": (
        many_headers(40_000, last=b"\x01\x01"),
        "record 0 of 1: a header without a key",
    ),
}


def test_the_error_of_a_batch_reads_no_record_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    read: list[int] = []
    one = records._read_record
    monkeypatch.setattr(records, "_read_record", lambda *how: read.append(1) or one(*how))
    log = log_path(tmp_path)
    for kind, (data, message) in DAMAGED.items():
        with subtests.test(kind):
            read.clear()
            log.write_bytes(data)
            rows = kip33.read_arrow(log, columns=["_corrupt"], on_error="row").read_all()
            why = rows["_corrupt"].to_pylist()[-1]
            assert why and message in why, why
            assert len(read) == 1


READ = "import kip33; print(sum(batch.num_rows for batch in kip33.read_arrow({log!r})))"


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is in /proc")
@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_a_large_record_is_in_memory_once(tmp_path: Path, codec: str) -> None:
    size_bytes = 256 << 20
    peaks = []
    for name, data in (("small", many_records(50_000)), ("large", bomb(size_bytes, codec))):
        log = log_path(tmp_path / name)
        log.write_bytes(data)
        found = measured("-c", READ.format(log=str(log)))
        assert found.output == ("50000\n" if name == "small" else "1\n"), found
        peaks.append(found.peak_bytes)
    assert peaks[1] - peaks[0] < 1.2 * size_bytes, peaks


def test_large_records_beside_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kip33.records.record_table.MOST_PAYLOAD_BYTES", 1000)
    large = b"v" * 3000
    sent = [
        *(Record(1, b"a", large), Record(2, None, b""), Record(3, large, large), Record(4, b"b")),
        *(Record(5, b"c", b"d", (("h", large),)), Record(6, None, large, (("i", large),) * 2)),
    ]
    log = tmp_path / "copies.log"  # of one batch, so it has no base offset
    for codec in ("none", "zstd"):
        log.write_bytes(v2_batch(0, sent, codec=codec) * 3)
        read = list(kip33.read_arrow(log, columns=["key", "value", "headers"], on_error="row"))
        for batch in read:
            batch.validate(full=True)
        rows = [row for batch in read for row in batch.to_pylist()]
        pairs = [[(one["key"], one["value"]) for one in row["headers"] or ()] for row in rows]
        found = [
            (row["key"], row["value"], tuple(kept)) for row, kept in zip(rows, pairs, strict=False)
        ]
        assert found == [(one.key, one.value, tuple(one.headers)) for one in sent] * 3


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_the_largest_limit_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    monkeypatch.setattr(decoded_records, "_KEPT_BYTES", 1 << 20)  # a larger body is a large one
    log = log_path(tmp_path)
    log.write_bytes(v2_batch(0, [Record(0, None, b"x" * (3 << 20))], codec=codec))
    reader = kip33.read_arrow(log, columns=["value"], max_batch_bytes=2**63 - 1)
    assert [len(one.as_py()) for one in reader.read_all()["value"]] == [3 << 20]
