"""Dialects compared on logs: their sizes, what a search reads, and whether it finds the record."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kip33.audits.audited_logs import logs_below
from kip33.audits.dialect_tree import compare_partitions
from kip33.drafts.comparison import (
    COMPARED,
    ComparedPartition,
    DialectIndex,
    DialectQuestion,
    dialect_rows,
)
from kip33.drafts.designs import DESIGNS, DraftBuilder
from kip33.formats.batch import BATCH
from kip33.formats.time_index import OffsetIndex, TimeIndex
from kip33.local.local_engine import LocalEngine
from kip33.rules.index_builder import IndexBuilder, IndexSettings, TopicSettings
from kip33.rules.index_entries import DIALECTS, RECOVER
from tests.builders.generated_segments import (
    Written,
    plain_batch,
    random_segment,
    record_pairs,
    rows_of,
    wire_of,
)
from tests.builders.log_file import write_log
from tests.long_forms import short_and_long

MINUTE = 60_000
START = 1_700_000_000_000 // MINUTE * MINUTE


def question(interval: int = 0, **options: object) -> DialectQuestion:
    settings = TopicSettings(IndexSettings(index_interval_bytes=interval, check_crc=False))
    return DialectQuestion(settings)._replace(**options)


def compare(source: Path, asked: DialectQuestion) -> list[ComparedPartition]:
    return compare_partitions(logs_below(str(source)), asked, LocalEngine(1))[0]


def write_times(partition: Path, base_offset: int, times: Sequence[int]) -> Path:
    """Write batches of one record each, with a value of 100 bytes."""
    batches = [
        plain_batch(base_offset + number, [time], bytes(100)).wire
        for number, time in enumerate(times)
    ]
    return write_log(partition, base_offset, *batches)


def by_dialect(source: Path, asked: DialectQuestion) -> dict[str, dict[str, object]]:
    rows = dialect_rows(compare(source, asked), asked.dialects, partitions=10)
    return {str(row["dialect"]): row for row in rows}


def test_every_dialect_is_right_on_batches_in_order(tmp_path: Path) -> None:
    write_times(tmp_path / "orders-0", 0, range(START, START + 10 * MINUTE, 1_000))

    rows = by_dialect(tmp_path, question())

    assert list(rows) == list(COMPARED)
    assert {name: row["guarantee"] for name, row in rows.items()} == dict.fromkeys(COMPARED, True)
    entries = {name: row["entries"] for name, row in rows.items()}
    per_batch = dict.fromkeys(("recover", "live", "kip33", "inline"), 599)
    assert entries == per_batch | {"minute": 10, "minute-map": 10, "bucket": 11}
    assert rows["inline"]["bytes"] == 16 * 599
    assert rows["recover"]["bytes_with_offset_index"] == (12 + 8) * 599
    assert rows["inline"]["bytes_with_offset_index"] == 16 * 599
    assert rows["minute"]["memory_bytes"] == 10 * 10 * 12


def test_a_late_batch_is_missed_by_minute_and_inline_and_shown(tmp_path: Path) -> None:
    """The second batch is late enough, but the search begins at the third or later."""
    times = [START, START + 5 * MINUTE, START + MINUTE, START + 2 * MINUTE, START + 6 * MINUTE]
    log = write_times(tmp_path / "orders-0", 0, times)
    batch_bytes = log.stat().st_size // 5

    rows = by_dialect(tmp_path, question(interval=batch_bytes))

    right = {name for name, row in rows.items() if row["guarantee"]}
    assert right == set(COMPARED) - {"minute", "inline"}
    minute = rows["minute"]
    assert minute["counterexample_log"] == log.as_uri()
    assert minute["counterexample_target_ms"] == START + MINUTE + 1
    assert minute["counterexample_position"] == batch_bytes
    assert minute["counterexample_timestamp"] == START + 5 * MINUTE
    assert minute["counterexample_start"] == 2 * batch_bytes


def test_a_bucket_index_depends_on_the_segments_before(tmp_path: Path) -> None:
    """The second segment is earlier than the first, the third begins where the first ended."""
    partition = tmp_path / "orders-0"
    write_times(partition, 0, [START, START + 9 * MINUTE])
    write_times(partition, 10, [START + 3 * MINUTE, START + 4 * MINUTE])
    write_times(partition, 20, [START + 9 * MINUTE, START + 10 * MINUTE])
    write_times(tmp_path / "orders-1", 0, [START])

    alone = by_dialect(partition, question())["bucket"]["entries"]
    together = by_dialect(tmp_path, question())["bucket"]["entries"]

    assert alone == 2 + 0 + 1
    assert together == alone + 1


def test_a_log_that_kafka_refuses_is_named_and_left_out(tmp_path: Path) -> None:
    write_times(tmp_path / "orders-0", 0, [START])
    write_times(tmp_path / "orders-1", 0, [START])
    below_base = plain_batch(0, [START]).wire
    bad = write_log(tmp_path / "orders-1", 50, below_base)

    partitions = compare(tmp_path, question())

    assert [one.segments for one in partitions] == [1, 1]
    assert [line for one in partitions for line in one.skipped] == [
        f"{bad.as_uri()}: at byte 0: its last offset is below the segment's base offset; Kafka "
        "fails to load"
    ]


def test_segments_without_timestamps_have_entries_in_inline_only(tmp_path: Path) -> None:
    write_times(tmp_path / "orders-0", 0, [-1, -1, -1])

    rows = by_dialect(tmp_path, question())

    assert {name: row["entries"] for name, row in rows.items() if row["entries"]} == {"inline": 2}
    assert all(row["guarantee"] and row["searched_times"] == 0 for row in rows.values())


def test_bodies_of_large_batches_are_not_read(tmp_path: Path) -> None:
    batches = [plain_batch(n, [START + n], bytes(1_000_000)).wire for n in range(5)]
    write_log(tmp_path / "orders-0", 0, *batches)

    [headers_only] = compare(tmp_path, question(dialects=("recover", "minute")))

    assert headers_only.log_bytes > 5_000_000
    assert headers_only.bytes_read < headers_only.log_bytes / 2


def test_another_seed_searches_other_times(tmp_path: Path) -> None:
    write_times(tmp_path / "orders-0", 0, range(START, START + 100 * MINUTE, 10_000))

    one, same, other = (compare(tmp_path, question(seed=seed)) for seed in (1, 1, 2))

    assert one == same != other


def misses(entries: Sequence[Written], index: DialectIndex, floor: int) -> bool:
    """Return whether a search for any time begins after the first record that is late enough."""
    positions = [row[0] for row in rows_of(entries)]
    records = record_pairs(entries)
    of_offset = {
        offset: position
        for entry, position in zip(entries, positions, strict=True)
        for offset, _ in entry.records
    }
    near = {time + by for _, time in records for by in (-1, 0, 1, MINUTE)}
    for target in sorted(near | {time // MINUTE * MINUTE for time in near}):
        if target < 0 or target <= floor:
            continue
        first = next((offset for offset, time in records if time >= target), None)
        if first is None:
            continue
        if int(index.starts(np.array([target]))[0]) > of_offset[first]:
            return True
    return False


@pytest.mark.parametrize("logs", short_and_long(25, 400, "KIP33_DIALECT_LOGS"))
def test_the_guarantee_is_what_a_search_for_every_time_shows(tmp_path: Path, logs: int) -> None:
    random = Random("guarantee")
    seen = set()
    for number in range(logs):
        entries = random_segment(random, base_offset=0, entries=random.randrange(1, 40))
        interval = random.choice((0, 100, 400))
        source = tmp_path / f"{number}"
        write_log(source / "orders-0", 0, wire_of(entries))
        for name, row in by_dialect(source, question(interval)).items():
            index = index_of(name, entries, interval)
            assert row["guarantee"] == (not misses(entries, index, -1)), (number, name)
            seen.add((name, row["guarantee"]))
    assert {name for name, is_right in seen if not is_right} <= {"minute", "inline"}
    assert {("inline", False), ("inline", True), ("minute", True)} <= seen


def index_of(name: str, entries: Sequence[Written], interval: int) -> DialectIndex:
    batches = np.array(rows_of(entries, seek=True), BATCH)
    settings = IndexSettings(index_interval_bytes=interval)
    design = DESIGNS[name]
    builders = (DraftBuilder(design, base_offset=0),) if design.is_draft else ()
    dialect = DIALECTS.get(name, RECOVER)
    built = IndexBuilder(dialect, settings, base_offset=0, topic="orders", others=builders)
    built.append(batches)
    built.close(0)
    points = OffsetIndex.from_bytes(built.offset_index, base_offset=0)
    if builders:
        return DialectIndex(design, builders[0].rows, 0, points)
    times = TimeIndex.from_bytes(built.time_index, base_offset=0)
    return DialectIndex(design, np.column_stack((times.timestamps, times.offsets)), 0, points)
