"""How many records DeleteRecords would delete although they are new, against a count of all."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kip33.search.range_size import NewerRecords, newer_records
from tests.builders.generated_segments import Written, plain_batch, segments, wire_of
from tests.builders.searched_segments import write_segment
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case

OLD, NEW, T = 10, 90, 50


def row_of(folder: Path, base_offset: int, log: bytes) -> dict[str, Any]:
    return write_segment(folder, base_offset, log)._asdict()


@given(segments(), st.integers(0, 120), st.one_of(st.integers(0, 31), st.integers(0, 2**63 - 1)))
def test_as_many_as_a_look_at_every_record_finds(
    written: list[Written], offset: int, target_ms: int
) -> None:
    late = [
        record
        for entry in written
        if entry.control == 0
        for record in entry.records
        if record[0] < offset and record[1] >= target_ms
    ]
    with tempfile.TemporaryDirectory() as folder:
        row = row_of(Path(folder), 0, wire_of(written))

        found = newer_records([row], offset, target_ms)

    assert (found.records, found.is_exact, found.note) == (len(late), True, None)


def test_what_another_segment_has_is_counted_once(tmp_path: Path) -> None:
    first = b"".join(plain_batch(at, [NEW] * 2).wire for at in (0, 2, 4))
    rows = [
        row_of(tmp_path, 0, first) | {"until_offset": 2},
        row_of(tmp_path, 2, plain_batch(2, [OLD, NEW]).wire),
    ]
    assert [newer_records(rows, offset, T).records for offset in range(5)] == [0, 1, 2, 2, 3]


def test_a_segment_without_a_late_timestamp_is_not_opened(tmp_path: Path) -> None:
    rows = [row_of(tmp_path, 0, plain_batch(0, [OLD] * 5).wire)]
    (tmp_path / f"{0:020d}.log").unlink()

    assert newer_records(rows, 5, T) == NewerRecords(0, True, 0, None)


def test_log_append_time_is_counted_from_the_header(tmp_path: Path) -> None:
    batch = v2_batch(0, [Record(OLD)] * 4, log_append_time=NEW, body=b"cannot be read")
    rows = [row_of(tmp_path, 0, batch)]
    assert newer_records(rows, 4, T)[:2] == (4, True)


def unreadable_body(_: Path) -> bytes:
    return v2_batch(0, [Record(NEW)] * 4, codec="gzip", body=b"cannot be read")


def torn(_: Path) -> bytes:
    return plain_batch(0, [NEW]).wire + plain_batch(1, [NEW] * 9).wire[:-1]


UNREADABLE = {
    "a body": (unreadable_body, 4, "the batch at byte 0 cannot be read"),
    "a torn end": (torn, 10, "points past the end of the file"),
}


@each_case(("log", "most", "says"), UNREADABLE)
def test_what_cannot_be_read_is_an_upper_limit(
    log: Any, most: int, says: str, tmp_path: Path
) -> None:
    found = newer_records([row_of(tmp_path, 0, log(tmp_path))], 10, T)
    assert (found.records, found.is_exact) == (most, False)
    assert found.note and says in found.note


def test_a_missing_log_is_an_upper_limit_that_ends_at_the_next_segment(tmp_path: Path) -> None:
    rows = [
        row_of(tmp_path, 0, plain_batch(0, [NEW] * 3).wire),
        row_of(tmp_path, 5, plain_batch(5, [OLD] * 3).wire),
    ]
    (tmp_path / f"{0:020d}.log").unlink()

    found = newer_records(rows, 8, T)

    assert found[:2] == (5, False)
    assert found.note and "cannot be read" in found.note


def test_figures_of_an_unverified_row_are_not_believed(tmp_path: Path) -> None:
    row = row_of(tmp_path, 0, plain_batch(0, [NEW] * 3).wire)
    row |= {"status": "unverified", "max_timestamp": OLD}
    assert newer_records([row], 3, T).records == 3
