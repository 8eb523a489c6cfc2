"""Verify index files against their log, from files: readable and unreadable ones."""

from pathlib import Path

import pytest

from kip33 import verify_segment
from kip33.errors import LocationError, UnsupportedFormatError
from kip33.indexing.verification import SegmentVerdict, verify_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from tests.builders.segment_builder import Record, v2_batch, with_broken_crc
from tests.cases import each_case

BASE = 7
LOG = b"".join(v2_batch(BASE + i, [Record(1000 + i, None, bytes(30))]) for i in range(5))
TIME_INDEX = bytes.fromhex("00000000000003ea 00000002 00000000000003ec 00000004")
OFFSET_INDEX = bytes.fromhex("00000002 000000c4 00000004 00000188")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "orders-0" / f"{BASE:020d}.log"
    log.parent.mkdir()
    log.write_bytes(LOG)
    log.with_suffix(".timeindex").write_bytes(TIME_INDEX)
    log.with_suffix(".index").write_bytes(OFFSET_INDEX)
    return log


def verdict_on(log: Path, *, native: bool = False) -> SegmentVerdict:
    verdict, _ = verify_file(
        Location.of(log),
        Location.of(log.with_suffix(".timeindex")),
        Location.of(log.with_suffix(".index")),
        base_offset=BASE,
        topic="orders",
        settings=IndexSettings(index_interval_bytes=100),
        native=native,
    )
    return verdict


@each_case("native", [False, True])
def test_a_sound_segment(log: Path, native: bool) -> None:
    assert verdict_on(log, native=native).as_row() == {
        "log_uri": log.as_uri(), "index_uri": log.with_suffix(".timeindex").as_uri(),
        "verdict": "identical", "dialect": "recover", "entries": 2, "problems": [],
        "offset_index_verdict": "identical", "log_status": "ok", "log_error": None,
        "largest_gap_bytes": 196, "offset_index_largest_gap_bytes": 196,
        "transaction_index_verdict": None,
    }  # fmt: skip


def test_problems_of_the_offset_index_are_named_as_such(log: Path) -> None:
    log.with_suffix(".index").write_bytes(b"\0\0\0\1\0\0\0\1")
    seen = verdict_on(log)
    assert (seen.verdict, seen.offset_index_verdict) == ("identical", "wrong")
    assert seen.problems == (".index: entry 0: offset 8 at byte 1, but no batch begins there",)


def test_an_offset_index_is_missing_only_where_other_segments_have_one(log: Path) -> None:
    log.with_suffix(".index").unlink()
    assert verify_segment(str(log)).offset_index_verdict is None
    log.with_name(f"{BASE + 5:020d}.index").touch()
    seen = verify_segment(str(log))
    assert seen.offset_index_verdict == "missing"
    assert seen.problems == (".index: missing, but other segments here have one",)


def test_a_sparse_index_names_its_largest_gap(log: Path) -> None:
    log.write_bytes(b"".join(v2_batch(BASE + i, [Record(5, None, bytes(30))]) for i in range(20)))
    log.with_suffix(".timeindex").write_bytes(bytes.fromhex("0000000000000005 00000000"))
    log.with_suffix(".index").write_bytes(OFFSET_INDEX)
    seen = verdict_on(log)
    assert (seen.verdict, seen.offset_index_verdict) == ("identical", "sparse")
    assert seen.offset_index_largest_gap_bytes == log.stat().st_size - 5 * 98
    assert seen.problems[0].startswith(".index: at least 7 entries missing: ")
    assert verify_segment(str(log), index_interval_bytes=2000).offset_index_verdict == "consistent"


def test_malformed_files(log: Path) -> None:
    log.with_suffix(".timeindex").write_bytes(TIME_INDEX + b"1234567")
    log.with_suffix(".index").write_bytes(OFFSET_INDEX[:-1])
    seen = verdict_on(log)
    assert (seen.verdict, seen.offset_index_verdict) == ("malformed", "malformed")
    assert seen.entries == 2
    assert seen.problems == (
        "31 bytes found, expected a multiple of 12",
        ".index: 15 bytes found, expected a multiple of 8",
    )


LATER = b"".join(v2_batch(BASE + offset, [Record(1)]) for offset in (6, 9))


def test_a_damaged_log_is_reported_with_the_verdict(log: Path) -> None:
    lost = with_broken_crc(v2_batch(BASE + 5, [Record(1)]))
    for behind, ends in (
        (b"", "its CRC"),
        (LATER, "its CRC; behind it: 2 valid batches, see kip33 dump"),
    ):
        log.write_bytes(LOG + lost + behind)
        seen = verify_segment(log, index_interval_bytes=100)
        assert (seen.verdict, seen.log_status) == ("identical", "truncated")
        assert (seen.log_error or "").endswith(ends)


def test_a_log_that_cannot_be_read(log: Path) -> None:
    log.unlink()
    log.mkdir()
    seen = verdict_on(log)
    assert (seen.verdict, seen.log_status, seen.offset_index_verdict) == (
        "unreadable", "unreadable", None,
    )  # fmt: skip
    assert seen.problems[0].startswith("the log cannot be read: ")


def test_an_index_that_cannot_be_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kip33.stores.files.MOST_INDEX_BYTES", 23)
    seen = verdict_on(log)
    assert (seen.verdict, seen.log_status, seen.entries) == ("unreadable", "ok", None)
    assert "the index file cannot be read" in seen.problems[0]
    assert "24 bytes found, expected at most 23" in seen.problems[0]


def test_by_path(log: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / f"{BASE:020d}.timeindex"
    assert verify_segment(str(log), str(elsewhere)).verdict == "missing"
    elsewhere.write_bytes(TIME_INDEX[12:])
    assert verify_segment(str(log), str(elsewhere)).verdict == "identical"
    copy = tmp_path / "copy.log"
    copy.write_bytes(LOG)
    with pytest.raises(UnsupportedFormatError, match="give the base offset"):
        verify_segment(str(copy), str(elsewhere))
    assert verify_segment(str(copy), str(elsewhere), base_offset=BASE).verdict == "identical"
    with pytest.raises(LocationError, match="no such segment file"):
        verify_segment(str(tmp_path / "8.log"))
