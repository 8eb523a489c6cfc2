"""Indexes, catalogs and promises spare reading; they never change the rows."""

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import kip33
from kip33.cli.build import build as build_command
from kip33.formats.times import LEAST_MS
from kip33.formats.whole_bodies import RecordLimits
from kip33.records import segment_reader
from kip33.records import segment_reader as index_start
from kip33.records.partitions import Selection, partitions_of
from kip33.records.reading import Reading
from kip33.records.record_request import Comparison, FilterBounds
from kip33.stores.files import opened
from kip33.stores.locations import Location
from tests.builders.log_file import write_log
from tests.builders.segment_builder import (
    LEGACY_CODECS,
    V2_CODECS,
    Record,
    v1_message,
    v2_batch,
    wrapper,
)
from tests.long_forms import examples, seeds, short_and_long

T = 1_700_000_000_000
ALL = {"columns": ["offset", "timestamp"]}
Row = tuple[int, int]


def random_partition(random: Random, folder: Path, *, disorder_ms: int) -> None:
    """Write segments whose records are at most so much older than an earlier one."""
    folder.mkdir(parents=True)
    offset, latest, v2 = random.choice((0, 1000)), T, random.choice((0.7, 1))
    for _ in range(random.randrange(1, 5)):
        log, base = [], offset
        for _ in range(random.randrange(1, 25)):
            count = random.choice((1, 1, 2, 10))
            latest += random.choice((0, 1, 100, 1000))
            times = [latest - random.choice((0, 0, disorder_ms)) for _ in range(count)]
            latest = max(latest, *times)
            log.append(random_entry(random, offset, times, v2=v2))
            end = offset + count
            offset = end + random.choice((0, 0, 0, 3))
        offset = end  # the next segment begins here, so no offsets are missing between them
        (folder / f"{base:020d}.log").write_bytes(b"".join(log))


def random_entry(random: Random, offset: int, times: list[int], *, v2: float) -> bytes:
    value = b"v" * random.choice((0, 50))
    if random.random() < v2:
        codec = random.choice(V2_CODECS)
        return v2_batch(offset, [Record(time, None, value) for time in times], codec=codec)
    inner = [v1_message(i, time, None, value) for i, time in enumerate(times)]
    last = offset + len(times) - 1
    codec = random.choice(LEGACY_CODECS)
    return wrapper(last, inner, codec=codec) if last else v1_message(0, times[0], None, value)


def build(source: Path, random: Random) -> None:
    """Build the indexes beside the logs, or in a folder; the catalog is in the folder."""
    arguments = [str(source), "--offset-index", "--engine", "local"]
    arguments += ["--index-interval-bytes", random.choice(("0", "200", "1000"))]
    arguments += ["--index-dir", str(source.parent / "indexes")]
    arguments += ["--dialect", random.choice(("recover", "kip33"))]
    result = CliRunner().invoke(build_command, arguments)
    assert result.exit_code == 0, result.output
    for index in (source.parent / "indexes").rglob("*.*index"):
        shutil.copy(index, source / index.relative_to(source.parent / "indexes"))


def rows(source: Path, **question: Any) -> list[Row]:
    table = kip33.read_arrow(source, on_error="fail", **ALL, **question).read_all()
    stamps = table["timestamp"].cast("int64").to_pylist()
    return list(zip(table["offset"].to_pylist(), stamps, strict=True))


def random_question(random: Random, every: list[Row]) -> dict[str, int]:
    offsets, times = ([row[i] for row in every] for i in (0, 1))
    question: dict[str, int] = {}
    for name, numbers in (("offset", offsets), ("time", times)):
        low, high = sorted(random.choice(numbers) + random.randrange(-2, 3) for _ in range(2))
        if random.random() < 0.6:
            question[f"start_{name}"] = max(low, 0)
        if random.random() < 0.6:
            question[f"end_{name}"] = max(high, 0)
    return question


def expected(every: list[Row], question: dict[str, int]) -> list[Row]:
    first, end = question.get("start_offset", 0), question.get("end_offset", 1 << 62)
    since, until = question.get("start_time", 0), question.get("end_time", 1 << 62)
    return [row for row in every if first <= row[0] < end and since <= row[1] < until]


def damage(random: Random, index: Path) -> None:
    """Make an index wrong, shorter or empty, or remove it."""
    data = bytearray(index.read_bytes())
    kind = random.randrange(4)
    if kind == 0:
        index.unlink()
    elif kind == 1 or not data:
        index.write_bytes(data[: random.randrange(len(data) + 1)])
    else:
        for _ in range(3):
            data[random.randrange(len(data))] = random.randrange(256)
        index.write_bytes(data)


@pytest.mark.parametrize("archives", short_and_long(1, 40, "KIP33_PRUNED_ARCHIVES"))
def test_random_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int) -> None:
    monkeypatch.setattr(index_start, "_SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(segment_reader, "LOCAL_WINDOW_BYTES", 500)
    for seed in seeds(archives):
        random = Random(seed)
        here = tmp_path / str(seed)
        disorder_ms = random.choice((0, 500, 100_000))
        random_partition(random, here / "archive/orders-0", disorder_ms=disorder_ms)
        every = rows(here / "archive")
        build(here / "archive", random)
        if random.random() < 0.4:
            for index in here.rglob("*.*index"):
                damage(random, index)
        for _ in range(10):
            question = random_question(random, every)
            for source in (here / "archive", here / "indexes/_catalog"):
                found = rows(source, **question)
                assert found == expected(every, question), (seed, source.name, question)
                promised = rows(source, disorder=f"{disorder_ms}ms", **question)
                assert promised == found, (seed, source.name, question, disorder_ms)


def test_reading_begins_near_the_first_record(tmp_path: Path) -> None:
    partition = tmp_path / "archive/orders-0"
    partition.mkdir(parents=True)
    batch_bytes = len(v2_batch(0, [Record(T, None, bytes(1000))]))
    log = partition / f"{0:020d}.log"
    log.write_bytes(b"".join(v2_batch(n, [Record(T + n, None, bytes(1000))]) for n in range(2000)))
    build(tmp_path / "archive", Random(2))
    read = partitions_of(tmp_path / "archive", Selection())[0][0]
    size = log.stat().st_size
    with opened(Location.of(log)) as (read_into, _):
        for limits in (RecordLimits(first_offset=1500), RecordLimits(first_timestamp=T + 1500)):
            start = index_start.start_of(read, limits, read_into, size)
            assert 1490 * batch_bytes < start <= 1500 * batch_bytes
        assert index_start.start_of(read, RecordLimits(), read_into, size) == 0


ANY_TIME = st.sampled_from((-1, -1, 0, 1, T, T + 1)) | st.integers(-(10**14), 10**14)


@st.composite
def entries_of_any_time(draw: st.DrawFn) -> list[bytes]:
    """Return entries as a broker writes them: no header has a max timestamp below -1."""
    entries, offset = [], 0
    for times in draw(st.lists(st.lists(ANY_TIME, min_size=1, max_size=3), min_size=1, max_size=8)):
        if draw(st.booleans()):
            entries.append(v2_batch(offset, [Record(time) for time in times]))
        elif len(times) == 1:
            entries.append(v1_message(offset, times[0]))
        else:
            inner = [v1_message(number, time) for number, time in enumerate(times)]
            entries.append(wrapper(offset + len(times) - 1, inner))
        offset += len(times)
    return entries


def test_times_that_no_header_has_are_found_as_without_a_catalog(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    inner = [v1_message(1, T + 5), v1_message(2, T + 9)]
    logs = {
        "messages of v1 in a wrapper of v0": wrapper(2, inner, magic=0),
        "a base timestamp above the largest": v2_batch(1, [Record(T + 5)] * 2, max_timestamp=T),
    }
    for number, (name, late) in enumerate(logs.items()):
        with subtests.test(name):
            here = tmp_path / str(number)
            write_log(here / "archive/orders-0", 0, v2_batch(0, [Record(T)]), late)
            assert [offset for offset, _ in rows(here / "archive", start_time=T + 1)] == [1, 2]
            if "wrapper" in name:
                kip33.build_index(here / "archive", index_dir=here / "indexes")
                found = rows(here / "indexes/_catalog", start_time=T + 1)
                assert [offset for offset, _ in found] == [1, 2]


def timed_rows(reading: Reading, source: Path) -> list[Row]:
    """Return the rows that have a timestamp."""
    table = reading.read(reading.partitions(source)).read_all()
    stamps = table["timestamp"].cast("int64").to_pylist()
    pairs = zip(table["offset"].to_pylist(), stamps, strict=True)
    return [(offset, stamp) for offset, stamp in pairs if stamp is not None]


@given(entries_of_any_time(), ANY_TIME)
@settings(max_examples=examples(30))
def test_before_a_time_and_from_it_on_are_together_all_records_with_a_timestamp(
    entries: list[bytes], time: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive, indexes = Path(folder, "archive"), Path(folder, "indexes")
        write_log(archive / "orders-0", 0, *entries)
        kip33.build_index(archive, index_dir=indexes)
        for source in (archive, indexes / "_catalog"):
            every = timed_rows(Reading.of(on_error="row"), source)
            halves = {
                Comparison.LESS: [row for row in every if row[1] < time],
                Comparison.GREATER_OR_EQUAL: [row for row in every if row[1] >= time],
            }
            for comparison, expected in halves.items():
                bounds = FilterBounds().where("timestamp", comparison, time)
                found = timed_rows(Reading.of(on_error="row").inside(bounds), source)
                assert set(expected) <= set(found), "a query engine filters what it gets"
                if time == 0 or time >= LEAST_MS:
                    option = "end_time" if comparison == Comparison.LESS else "start_time"
                    table = kip33.read_arrow(
                        source, **ALL, **({"on_error": "row"} | {option: time})
                    ).read_all()
                    assert table["timestamp"].null_count == 0
                    assert (
                        timed_rows(Reading.of(**{option: time, "on_error": "row"}), source)
                        == expected
                    )
