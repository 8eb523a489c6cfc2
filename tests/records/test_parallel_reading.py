"""Several processes read the rows that one process reads, in their order, and all of them end."""

import gc
import multiprocessing
import os
import signal
import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import kip33
from kip33.errors import CorruptSegmentError, Kip33Error
from kip33.local import ordered_parts
from kip33.local.local_engine import LocalEngine
from kip33.records import parallel_reading, segment_reader
from kip33.records.parallel_reading import ParallelReading
from kip33.records.reading import Reading
from tests.builders.log_file import write_log
from tests.builders.record_questions import random_archive
from tests.builders.segment_builder import Record, v2_batch
from tests.long_forms import seeds, short_and_long
from tests.records.test_levels import build
from tests.records.test_overlaps import put
from tests.records.test_segment_shares import batches

T = 1_700_000_000_000
OPTIONS: list[dict[str, Any]] = [
    {},
    {"start_time": T + 300},
    {"end_offset": 40},
    {"start_offset": 30},
    {"end_time": T + 3000, "disorder": "500ms"},
    {"isolation": "read_committed"},
    {"on_error": "skip"},
    {"on_error": "fail"},
    {"level": "batches"},
]


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_reading, "PART_BYTES", 150)
    monkeypatch.setattr(parallel_reading, "FILE_COST_BYTES", 16)
    monkeypatch.setattr(segment_reader, "_SMALL_LOG_BYTES", 0)


Answer = tuple[pa.Table, list[str], str]


def answer(source: Path, workers: int, **options: Any) -> Answer:
    """Rows, lines, and the error that ends all."""
    rows: list[pa.RecordBatch] = []
    lines: list[str] = []
    reading = Reading.of(**({"on_error": "row"} | options))
    partitions = reading.partitions(source)
    error = ""
    try:
        parallel = ParallelReading(reading, LocalEngine(workers), lambda one: [one])
        rows += parallel.read(partitions, lines)
    except Kip33Error as found:
        error = f"{type(found).__name__} {found.exit_code} {found}"
    return pa.Table.from_batches(rows, reading.schema), lines, error


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("archives", short_and_long(2, 200, "KIP33_PARALLEL"))
def test_random_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int) -> None:
    """Some indexes are wrong, logs are damaged or share offsets, with and without a catalog."""
    spans: Counter[bool] = Counter()
    parts_of = parallel_reading._parts_of

    def counted(*arguments: Any) -> Iterator[Any]:
        for part in parts_of(*arguments):
            spans[part.segments[0].span is not None] += 1
            yield part

    monkeypatch.setattr(parallel_reading, "_parts_of", counted)
    for seed in seeds(archives):
        random = Random(seed)
        archive, catalog = random_archive(random, tmp_path / str(seed), disorder_ms=500)
        if random.random() < 0.5:  # the offsets of a later segment again
            log = random.choice(sorted(archive.rglob("*.log")))
            again = log.with_name(f"{int(log.stem) + random.choice((1, 5)):020d}.log")
            again.write_bytes(log.read_bytes())
        for options in random.sample(OPTIONS, 2 if archives > 2 else 1):
            source = random.choice((archive, catalog))
            expected = answer(source, 1, **options)
            assert answer(source, random.choice((2, 3)), **options) == expected, (seed, options)
    assert min(spans.values()) > 0, spans


def orders_with_index(folder: Path) -> tuple[Path, Path]:
    """Return a catalog of one log with an index entry for each batch, and the log."""
    log = write_log(folder / "archive/orders-0", 0, *batches(0, 40))
    build(folder / "archive", folder, "--index-interval-bytes", "0")
    return folder / "indexes/_catalog", log


@pytest.mark.usefixtures("_small_parts")
def test_an_entry_of_the_index_where_no_batch_begins(tmp_path: Path) -> None:
    catalog, _ = orders_with_index(tmp_path)
    (index,) = tmp_path.rglob("indexes/**/*.index")
    wrong = bytearray(index.read_bytes())
    wrong[7 + 8 * 10] ^= 1  # the position of an entry
    index.write_bytes(wrong)

    assert answer(catalog, 2) == answer(catalog, 1)


@pytest.mark.usefixtures("_small_parts")
def test_a_batch_whose_size_leads_over_the_start_of_the_next_span(tmp_path: Path) -> None:
    """One process skips both batches, so the second is not found by another process."""
    catalog, log = orders_with_index(tmp_path)
    sizes = [len(one) for one in batches(0, 40)]
    data = bytearray(log.read_bytes())
    for number in range(4, 40, 4):
        size_at = sum(sizes[:number]) + 8
        size = sizes[number] + sizes[number + 1] - 12
        data[size_at : size_at + 4] = size.to_bytes(4, "big")
    log.write_bytes(data)

    rows, *others = answer(catalog, 1)

    assert answer(catalog, 2) == (rows, *others)
    assert rows["offset"].drop_null().to_pylist() == [
        at for at in range(41) if at == 40 or at < 4 or at % 4 > 1
    ]


@pytest.mark.usefixtures("_small_parts")
def test_offsets_that_are_wrong_just_where_a_span_begins(tmp_path: Path) -> None:
    entries = [*batches(0, 20), *batches(20, 40)]  # 20 twice
    log = write_log(tmp_path / "orders-0", 0, *entries)
    at = sum(map(len, entries[:21]))
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 20, at))

    for on_error in ("fail", "skip"):
        told = answer(tmp_path, 1, on_error=on_error)[1:]
        assert "is not above the one before, 20" in f"{told}"
        assert answer(tmp_path, 2, on_error=on_error)[1:] == told


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("_small_parts")
def test_an_open_transaction_at_the_first_record_is_told(tmp_path: Path, workers: int) -> None:
    begun = v2_batch(
        0, [Record(T)], transactional=True, producer_id=6, producer_epoch=0, base_sequence=0
    )
    write_log(tmp_path / "orders-0", 0, begun)

    with pytest.warns(UserWarning, match="still open at the end of the log"):
        rows, *_ = answer(tmp_path, workers, isolation="read_committed")

    assert rows.num_rows == 0


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive whose parts have several messages of a worker."""
    monkeypatch.setattr(parallel_reading, "PART_BYTES", 1 << 20)
    entry = v2_batch(0, [Record(T + at, None, b"v" * 2000) for at in range(100)])
    for first in range(0, 12_000, 1000):
        entries = [at.to_bytes(8, "big") + entry[8:] for at in range(first, first + 1000, 100)]
        write_log(tmp_path / "archive/orders-0", first, *entries)
    return tmp_path / "archive"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_slow_consumer_stops_the_workers(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_parts, "MOST_UNREAD_BYTES", 1 << 21)
    reader = kip33.read_arrow(large, workers=2, on_error="row")

    first = reader.read_next_batch()
    rest = reader.read_all()

    assert first.num_rows + rest.num_rows == 12_000
    assert rest["offset"].to_pylist() == list(range(first.num_rows, 12_000))


def stop_by_close(reader: pa.RecordBatchReader) -> None:
    reader.close()


def stop_by_forgetting(reader: pa.RecordBatchReader) -> None:
    pass


@pytest.mark.parametrize("stop", [stop_by_close, stop_by_forgetting])
def test_a_consumer_that_stops_early_leaves_nothing(large: Path, stop: Any) -> None:
    kip33.read_arrow(
        large, workers=2, on_error="row"
    ).read_all()  # the first workers of a process open files, too
    gc.collect()  # those of tests before
    before = open_files()
    reader = kip33.read_arrow(large, workers=2, on_error="row")
    reader.read_next_batch()
    assert len(multiprocessing.active_children()) == 2

    stop(reader)
    del reader
    gc.collect()

    assert multiprocessing.active_children() == []
    assert open_files() == before


def test_an_error_ends_the_workers(large: Path) -> None:
    log = max(large.rglob("*.log"))
    log.write_bytes(log.read_bytes()[:-3])

    with pytest.raises(CorruptSegmentError, match=log.name):
        kip33.read_arrow(large, workers=2, on_error="fail").read_all()

    assert multiprocessing.active_children() == []


def killed_in(folder: Path, times: int, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Kill this worker in the middle of a part."""
    marks = len(list(folder.iterdir()))
    if batch["base_offset"][0].as_py() == 2000 and marks < times:
        (folder / str(marks)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [batch]


def test_a_part_whose_worker_is_killed_is_read_again(large: Path, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    reading = Reading.of(on_error="row")
    parallel = ParallelReading(reading, LocalEngine(2), partial(killed_in, tmp_path / "marks", 1))

    offsets = [
        offset
        for batch in parallel.read(reading.partitions(large))
        for offset in batch["offset"].to_pylist()
    ]

    assert offsets == list(range(12_000))


def test_small_archives_are_read_without_workers(tmp_path: Path) -> None:
    put(tmp_path, 0, 9, name="a")

    reader = kip33.read_arrow(tmp_path, workers=None, on_error="row")
    reader.read_next_batch()

    assert multiprocessing.active_children() == []


def test_who_may_stop_gets_the_first_rows_from_this_process(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_reading, "LEAST_BIN_COST", 3 << 20)
    reading = Reading.of(columns=["offset"], on_error="row")
    parallel = ParallelReading(reading, LocalEngine(2), lambda batch: [batch])
    rows = parallel.read(reading.partitions(large), may_stop=True)

    offsets = next(rows)["offset"].to_pylist()
    assert multiprocessing.active_children() == []
    workers = 0
    for batch in rows:
        offsets += batch["offset"].to_pylist()
        workers = max(workers, len(multiprocessing.active_children()))

    assert (offsets, workers) == (list(range(12_000)), 2)
