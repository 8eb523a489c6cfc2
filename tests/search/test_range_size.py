"""Records and bytes between two offsets, against a count of every record."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kip33.search.range_size import range_size
from tests.builders.generated_segments import Written, plain_batch, record_pairs, segments, wire_of
from tests.builders.searched_segments import write_segment


def row_of(folder: Path, base_offset: int, entries: list[Written]) -> dict[str, Any]:
    """Write a segment; return its catalog row, with its records counted unless it has wrappers."""
    row = write_segment(folder, base_offset, wire_of(entries))._asdict()
    records = len(record_pairs(entries))
    return row | {"record_count": records if row["status"] == "ok" else None}


@given(segments(), st.integers(0, 200), st.integers(0, 200))
def test_as_many_records_as_a_count_of_all_finds(
    written: list[Written], one: int, other: int
) -> None:
    start, end = sorted((one, other))
    offsets = [offset for offset, _ in record_pairs(written)]
    with tempfile.TemporaryDirectory() as folder:
        row = row_of(Path(folder), 0, written) | {"record_count": None}  # nothing to believe

        size = range_size([row], start, end)

    assert size.records == sum(start <= offset < end for offset in offsets)
    assert size.size_bytes > 0 or size.records == 0


def test_segments_inside_are_counted_without_being_opened(tmp_path: Path) -> None:
    rows = [
        row_of(tmp_path, 10 * n, [plain_batch(10 * n + 5 * i, [1] * 5) for i in range(2)])
        for n in range(4)
    ]
    for inside in (tmp_path / f"{10 * n:020d}.log" for n in (1, 2)):
        inside.unlink()

    size = range_size(rows, 3, 37)

    assert (size.records, size.note) == (34, None)
    assert size.size_bytes == sum(row["valid_bytes"] for row in rows)


def test_what_another_segment_has_is_counted_once(tmp_path: Path) -> None:
    rows = [
        row_of(tmp_path, 0, [plain_batch(5 * i, [1] * 5) for i in range(4)]) | {"until_offset": 10},
        row_of(tmp_path, 10, [plain_batch(10, [1] * 5)]),
    ]
    assert [range_size(rows, start, 15)[::3] for start in (0, 7, 12)] == [
        (15, None),
        (8, None),
        (3, None),
    ]


def test_what_cannot_be_counted_is_named(tmp_path: Path) -> None:
    rows = [row_of(tmp_path, 0, [plain_batch(0, [1] * 5)])]
    (tmp_path / f"{0:020d}.log").unlink()

    size = range_size(rows, 1, 3)

    assert size.records is None
    assert size.note and "00000000000000000000.log: cannot be read" in size.note
