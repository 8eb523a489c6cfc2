"""Shares of a segment, each read alone, give the segment's records once and in order."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kip33
from kip33.records import segment_reader as index_start
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Reading
from tests.builders.log_file import write_log
from tests.builders.record_questions import COLUMNS, plain_rows, random_archive, rows_of
from tests.builders.segment_builder import Record, v0_message, v2_batch
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long
from tests.records.test_levels import build

T = 1_700_000_000_000


OPTIONS: list[dict[str, int]] = [
    {},
    {"start_time": T + 300},
    {"end_offset": 40},
    {"end_time": T + 3000, "disorder": "500ms"},
]


def batches(first: int, last: int) -> list[bytes]:
    return [v2_batch(at, [Record(T + at, None, b"v" * 90)]) for at in range(first, last + 1)]


def catalog_of(folder: Path, *entries: bytes) -> Path:
    write_log(folder / "archive/orders-0", 0, *entries)
    return build(folder / "archive", folder, "--index-interval-bytes", "0")


def shared(reading: Reading, catalog: Path, share_bytes: int) -> list[PartitionSegments]:
    return reading.shared(reading.parts(reading.partitions(catalog)), share_bytes)


@pytest.mark.parametrize("archives", short_and_long(2, 80, "KIP33_SHARES"))
def test_random_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int) -> None:
    """Some of their indexes are wrong, and some of their logs are damaged."""
    monkeypatch.setattr(index_start, "_SMALL_LOG_BYTES", 0)
    divided: Counter[bool] = Counter()
    for seed in seeds(archives):
        random = Random(seed)
        _, catalog = random_archive(random, tmp_path / str(seed), disorder_ms=500)
        options = random.choice(OPTIONS)
        reading = Reading.of(columns=COLUMNS, **({"on_error": "row"} | options))
        parts = shared(reading, catalog, random.choice((60, 150, 400)))
        alone = [row for one in parts for row in plain_rows(reading.read([one]).read_all())]
        by_one_task = plain_rows(reading.read(parts).read_all())
        assert alone == by_one_task == rows_of(catalog, **options), f"seed {seed}"
        divided.update(segment.span is not None for part in parts for segment in part)
    assert min(divided[True], divided[False]) >= archives, divided


def test_shares_are_even_and_have_all_bytes(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, *batches(0, 999))
    (log,) = tmp_path.rglob("*.log")

    parts = shared(Reading.of(), catalog, log.stat().st_size // 4)

    sizes = [segment.listed_bytes for part in parts for segment in part]
    assert len(sizes) == 4
    assert sum(sizes) == log.stat().st_size
    assert max(sizes) < 1.1 * min(sizes)


NOT_DIVIDED = {
    "read_committed": (batches(0, 40), {"isolation": "read_committed"}),
    "a damaged end": ([*batches(0, 40), b"\1" * 20], {}),
    "about one share": (batches(0, 1), {}),
}


@each_case(("entries", "options"), NOT_DIVIDED)
def test_what_is_not_divided(entries: Any, options: Any, tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, *entries)
    reading = Reading.of(**({"on_error": "row"} | options))
    whole = reading.parts(reading.partitions(catalog))

    assert reading.shared(whole, 300) == whole


DIVIDED = {
    "batches": (batches(0, 40), {"level": "batches"}),
    "messages of v0": ([v0_message(at, None, b"v" * 90) for at in range(40)], {}),
}


@each_case(("entries", "options"), DIVIDED)
def test_spans_of_any_batches_give_their_rows_once(
    entries: Any, options: Any, tmp_path: Path
) -> None:
    catalog = catalog_of(tmp_path, *entries)
    reading = Reading.of(**({"on_error": "row"} | options))
    parts = shared(reading, catalog, 300)

    assert len(parts) > 5
    assert reading.read(parts).read_all() == reading.read(reading.partitions(catalog)).read_all()


def test_a_log_that_is_written_again_after_the_planning(tmp_path: Path) -> None:
    """As by a broker that compacts it: the spans give the offsets that are there now."""
    catalog = catalog_of(tmp_path, *batches(0, 40))
    reading = Reading.of(columns=["offset"])
    parts = shared(reading, catalog, 300)
    (log,) = tmp_path.rglob("*.log")
    log.write_bytes(b"".join(batches(0, 40)[1::3]))

    found = reading.read(parts).read_all()["offset"].to_pylist()

    assert found == list(range(41))[1::3]


def test_without_an_index_or_a_catalog_nothing_is_divided(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, *batches(0, 40))
    assert len(shared(Reading.of(), tmp_path / "archive", 300)) == 1

    for index in tmp_path.rglob("*.index"):
        index.unlink()
    assert len(shared(Reading.of(), catalog, 300)) == 1


def test_an_index_changed_after_the_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_start, "_SMALL_LOG_BYTES", 0)
    catalog = catalog_of(tmp_path, *batches(0, 40))
    reading = Reading.of(columns=["offset"])
    parts = shared(reading, catalog, 300)
    for index in tmp_path.rglob("*.index"):
        index.write_bytes(index.read_bytes()[:8] * 3)

    found = [one for part in parts for one in reading.read([part]).read_all()["offset"].to_pylist()]

    assert len(parts) > 5
    assert found == list(range(41))
    assert kip33.read_arrow(catalog, on_error="row").read_all().num_rows == 41
