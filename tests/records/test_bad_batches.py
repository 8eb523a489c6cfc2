"""What is behind a batch with a wrong CRC is read, and what is left out is said."""

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import kip33
from kip33.errors import CorruptSegmentError
from kip33.local.local_engine import LocalEngine
from kip33.records import parallel_reading, segment_reader
from kip33.records.parallel_reading import ParallelReading
from kip33.records.reading import Reading
from tests.builders.damaged_logs import damaged
from tests.builders.log_file import write_log
from tests.builders.segment_builder import (
    Record,
    end_txn_marker,
    v1_message,
    v2_batch,
    with_broken_crc,
    wrapper,
)
from tests.builders.whole_batches import Frame, whole_batches
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long
from tests.records.test_differential import one_batch
from tests.records.test_levels import build
from tests.records.test_pruning import T, random_entry

MOST = 1 << 30  # bytes of a batch


def random_entries(random: Random) -> list[bytes]:
    """Return batches and messages, some with offsets between them that compaction removed."""
    entries, offset, v2 = [], 1000, random.choice((0.7, 1))
    for _ in range(random.randrange(2, 25)):
        count = random.choice((1, 1, 2, 10))
        entries.append(random_entry(random, offset, [T + offset] * count, v2=v2))
        offset += count + random.choice((0, 0, 0, 3))
    return entries


def random_damage(random: Random, entries: list[bytes]) -> bytes:
    """Return their log, damaged at some places."""
    entries = [with_broken_crc(one) if random.random() < 0.1 else one for one in entries]
    log = b"".join(entries)
    for _ in range(random.choice((0, 1, 1, 3))):
        changed = damaged(random, log)
        log = changed if len(changed) == len(log) else log
    return log


def answer(source: Path, workers: int, **options: Any) -> tuple[pa.Table, list[str]]:
    """Return the rows, and the lines about what cannot be read."""
    lines: list[str] = []
    reading = Reading.of(**options)
    parallel = ParallelReading(reading, LocalEngine(workers), lambda batch: [batch])
    rows = [*parallel.read(reading.partitions(source), lines)]
    return pa.Table.from_batches(rows, reading.schema), lines


def offsets_in(log: bytes, batches: Iterable[Frame]) -> list[int]:
    """Return the offsets of the records in batches, without what cannot be read."""
    rows = (row for one in batches for row in one_batch(log, one.position, len(one.data), "", MOST))
    return [row[0] for row in rows if len(row) > 1]


@pytest.mark.parametrize("logs", short_and_long(12, 1000, "KIP33_BAD_BATCHES"))
def test_random_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: int) -> None:
    """One process and several read each whole batch once, in order, with indexes of any time."""
    monkeypatch.setattr(parallel_reading, "PART_BYTES", 150)
    monkeypatch.setattr(parallel_reading, "FILE_COST_BYTES", 16)
    monkeypatch.setattr(segment_reader, "_SMALL_LOG_BYTES", 0)
    left = 0
    for seed in seeds(logs):
        random = Random(seed)
        folder = tmp_path / str(seed)
        entries = random_entries(random)
        log = write_log(folder / "archive/orders-0", 1000, *entries)
        is_known = random.random() < 0.5  # the catalog and the index know of the damage
        data = random_damage(random, entries)
        if is_known:
            log.write_bytes(data)
        catalog = build(folder / "archive", folder, "--index-interval-bytes", "0")
        log.write_bytes(data)
        found = [*whole_batches(data, 1000)]
        batches = [one for one in found if isinstance(one, Frame)]
        gaps = [f"{log.as_uri()}: {one}" for one in found if isinstance(one, str)]

        alone, lines = answer(catalog, 1, on_error="skip")
        assert alone["offset"].to_pylist() == offsets_in(data, batches), seed
        assert [line for line in lines if "left out" in line] == gaps, seed
        headers, _ = answer(catalog, 2, on_error="skip", level="batches", include_control=True)
        assert headers["position"].to_pylist() == [one.position for one in batches], seed
        assert answer(catalog, 2, on_error="skip") == (alone, lines), seed
        rows = answer(catalog, 1, on_error="row")
        assert answer(catalog, 2, on_error="row") == rows, seed
        assert rows[0]["_corrupt"].drop_null().to_pylist() == lines, seed
        left += len(gaps)
    assert left > logs / 4


def one(offset: int, *, time: int = T) -> bytes:
    return v2_batch(offset, [Record(time + offset, None, b"v")])


def bad(offset: int) -> bytes:
    return with_broken_crc(one(offset))


LOGS = {
    "one bad batch": ([one(3), bad(4), one(5)], [3, 5], "bytes 69 to 137, at most offset 4"),
    "several": ([bad(3), bad(4), bad(5), one(7)], [7], "bytes 0 to 206, at most offsets 3 to 6"),
    "a wrapper follows": (
        [one(3), bad(4), wrapper(7, [v1_message(i, T) for i in range(3)], codec="gzip")],
        [3, 5, 6, 7],
        "bytes 69 to 137, at most offsets 4 to 6",
    ),
    "offsets that go back": (
        [one(3), bad(4), one(2), one(5)],
        [3, 5],
        "bytes 69 to 206, at most offset 4",
    ),
    "no batch is lost": ([one(3), bad(3), one(4)], [3, 4], "bytes 69 to 137, no offset"),
}


@each_case(("entries", "expected", "left_out"), LOGS)
def test_what_is_left_out(
    entries: list[bytes], expected: list[int], left_out: str, tmp_path: Path
) -> None:
    write_log(tmp_path / "orders-0", 3, *entries)
    rows, lines = answer(tmp_path, 1, on_error="skip")
    assert rows["offset"].to_pylist() == expected
    (line,) = lines
    assert line.partition("left out: ")[2] == left_out
    with pytest.raises(CorruptSegmentError, match=r"its CRC(\n|$)"):
        kip33.read_arrow(tmp_path, on_error="fail").read_all()


ENDS = {
    "offsets that go back": [one(3), bad(4), one(2), one(3)],
    "offsets of the bad batch": [one(3), with_broken_crc(v2_batch(4, 3 * [Record(T)])), one(6)],
    "a size that points past the end": [one(3), bad(4)[:8] + b"\1" + bad(4)[9:], one(5)],
    "a size that leads into a batch": [one(3), bad(4)[:11] + b"\x3f" + bad(4)[12:], one(5)],
}


@each_case("entries", ENDS)
def test_where_nothing_more_is_read(entries: list[bytes], tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", 3, *entries)
    rows, lines = answer(tmp_path, 1, on_error="skip")
    assert (rows["offset"].to_pylist(), len(lines)) == ([3], 1)
    assert "left out" not in lines[0]


SELECTIONS: dict[str, dict[str, Any]] = {
    "by time": {"start_time": T + 5},
    "by offset": {"start_offset": 5, "end_offset": 7},
}


@each_case("selection", SELECTIONS)
def test_a_catalog_leaves_nothing_out_that_it_does_not_know(
    selection: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row ends at the damage, with all its figures, and so do its indexes."""
    monkeypatch.setattr(segment_reader, "_SMALL_LOG_BYTES", 0)
    write_log(tmp_path / "archive/orders-0", 0, one(0), one(1), one(3), bad(4), one(5), one(6))
    write_log(tmp_path / "archive/orders-0", 7, one(7, time=0))
    catalog = build(tmp_path / "archive", tmp_path, "--index-interval-bytes", "0")
    assert answer(catalog, 1, **selection, on_error="skip")[0]["offset"].to_pylist() == [5, 6]


def test_a_marker_that_may_be_left_out(tmp_path: Path) -> None:
    """What is behind it is decided by later markers, as behind a gap."""

    def sent(offset: int, producer: int) -> bytes:
        producing = {"producer_id": producer, "producer_epoch": 0}
        return v2_batch(offset, [Record(T)], transactional=True, **producing)

    def marker(offset: int, producer: int, *, commit: bool) -> bytes:
        return end_txn_marker(offset, T, producer_id=producer, commit=commit)

    lost = with_broken_crc(marker(2, 7, commit=True))
    behind = [sent(3, 7), marker(4, 7, commit=False), sent(5, 8), marker(6, 8, commit=True)]
    write_log(tmp_path / "orders-0", 0, sent(0, 7), sent(1, 8), lost, *behind)
    rows, _ = answer(tmp_path, 1, isolation="read_committed", on_error="skip")
    undecided = rows["_undecided"].is_valid().to_pylist()
    found = dict(zip(rows["offset"].to_pylist(), undecided, strict=True))
    assert found == {0: True, 1: True, 5: False}
