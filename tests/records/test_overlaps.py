"""Segments that share offsets: each offset is read once, from the earliest segment that has it."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

import kip33
from kip33.records.reading import Reading
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.long_forms import seeds, short_and_long
from tests.records.test_levels import build
from tests.records.test_read_committed import committed, offsets, random_events

T = 1_700_000_000_000

Row = tuple[int, bytes]


def batches_of(first: int, last: int, *, name: str, size: int, codec: str = "none") -> list[bytes]:
    """Return batches with the offsets first to last; a value has the segment's name."""
    return [
        v2_batch(
            start,
            [
                Record(T + at, None, name.encode())
                for at in range(start, min(start + size, last + 1))
            ],
            codec=codec,
        )
        for start in range(first, last + 1, size)
    ]


def put(
    archive: Path, first: int, last: int, *, name: str, size: int = 1, codec: str = "none"
) -> None:
    write_log(
        *(archive / "orders-0", first),
        *batches_of(first, last, name=name, size=size, codec=codec),
    )


def read(source: Any, **options: Any) -> list[Row]:
    rows = kip33.read_arrow(source, columns=["offset", "value"], on_error="skip", **options)
    return [(row["offset"], row["value"]) for row in rows.read_all().to_pylist()]


def named(name: str, first: int, last: int) -> list[Row]:
    return [(offset, name.encode()) for offset in range(first, last + 1)]


def test_batches_of_which_an_earlier_segment_has_all_offsets(tmp_path: Path) -> None:
    put(tmp_path, 0, 9, name="a")
    put(tmp_path, 5, 14, name="b", size=4)

    rows = kip33.read_arrow(
        tmp_path, level="batches", columns=["base_offset", "first_offset"], on_error="row"
    )

    second = [row["first_offset"] for row in rows.read_all().to_pylist() if row["base_offset"] == 5]
    assert second == [9, 13]


def random_segments(random: Random, archive: Path) -> list[Row]:
    """Write segments, many of which begin before the last one ends; return the rows to read."""
    expected: list[Row] = []
    base, end = random.choice((0, 100)), -1
    for number in range(random.randrange(2, 6)):
        last = base + random.randrange(12)
        size, codec = random.choice((1, 2, 5)), random.choice(("none", "gzip", "zstd"))
        put(archive, base, last, name=str(number), size=size, codec=codec)
        expected += named(str(number), max(base, end + 1), last)
        end = max(end, last)
        base = random.choice((base + 1, (base + last) // 2 + 1, last + 1, last + 3, end + 1))
    return expected


@pytest.mark.parametrize("archives", short_and_long(6, 200, "KIP33_RECORD_LOGS"))
def test_random_segments_in_order(tmp_path: Path, archives: int) -> None:
    for seed in seeds(archives):
        random, place = Random(seed), tmp_path / str(seed)
        expected = random_segments(random, place)
        assert read(place) == expected, seed
        time = T + random.choice(expected)[0]
        assert read(place, start_time=time) == [row for row in expected if T + row[0] >= time]
        assert read(place, end_time=time) == [row for row in expected if T + row[0] < time]


def test_with_a_catalog_parts_are_read_alone(tmp_path: Path) -> None:
    """As a task of Spark reads them; and segments before --from are not opened."""
    random = Random(2)
    expected = random_segments(random, tmp_path / "archive")
    catalog = build(tmp_path / "archive", tmp_path)
    reading = Reading.of(columns=["offset", "value"], on_error="skip")

    parts = reading.parts(reading.partitions(catalog))
    alone = [row for part in parts for row in reading.read([part]).read_all().to_pylist()]

    assert [(row["offset"], row["value"]) for row in alone] == expected == read(catalog)
    for start in range(expected[0][0], expected[-1][0] + 2):
        wanted = [row for row in expected if row[0] >= start]
        assert read(catalog, start_offset=start) == wanted
        assert read(catalog, start_time=T + start) == wanted


@pytest.mark.filterwarnings("ignore:.*still open at the end of the log")
def test_an_overlap_is_no_gap_between_transactions(tmp_path: Path) -> None:
    for seed in range(5):
        random = Random(seed)
        events = random_events(random, 40)
        partition = tmp_path / str(seed) / "orders-0"
        for first, last in ((0, 15), (10, 25), (12, 20), (26, 39)):
            some = events[first : last + 1]
            write_log(partition, some[0].offset, *(event.wire for event in some))

        assert offsets(partition.parent) == committed(events)


def test_an_offset_that_no_segment_can_have_hides_nothing(tmp_path: Path) -> None:
    absurd = [v2_batch(2**63 - 1, [Record(T)]), v2_batch(2**40, [Record(T)])]
    write_log(tmp_path / "orders-0", 0, *batches_of(0, 3, name="a", size=1), *absurd)
    put(tmp_path, 4, 7, name="b")

    found = [offset for offset, _ in read(tmp_path)]
    assert found == [0, 1, 2, 3, 2**63 - 1, 2**40, 4, 5, 6, 7]
    assert [offset for offset, _ in read(tmp_path, isolation="read_committed")] == found
