"""The record at an offset and the last one before it, compared with a scan of all records."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kip33.archive.log_window import Meter
from kip33.search.offset_lookup import record_before, record_from
from kip33.search.searched_segment import SearchedSegment
from tests.builders.generated_segments import Written, plain_batch, record_pairs, segments, wire_of
from tests.builders.searched_segments import write_segment
from tests.builders.segment_builder import (
    Record,
    v1_message,
    v2_batch,
    wrapper,
)
from tests.cases import each_case


def data_of(written: list[Written]) -> list[tuple[int, int]]:
    """Return offset and timestamp of every record that a consumer sees."""
    return [pair for one in written if not one.control for pair in record_pairs([one])]


@given(segments(), segments(base_offset=300), st.sampled_from([0, 100, 4096]), st.booleans())
def test_every_offset_of_two_segments(
    first: list[Written], second: list[Written], interval_bytes: int, with_index: bool
) -> None:
    data = data_of(first) + data_of(second)
    with tempfile.TemporaryDirectory() as folder:
        how = {"interval_bytes": interval_bytes, "offset_index": with_index}
        rows = [
            write_segment(Path(folder), base, wire_of(written), **how)
            for base, written in ((0, first), (300, second))
        ]
        rows = [row for row in rows if row.status in ("ok", "empty")]
        if len(rows) < 2:
            return
        for offset in {0, 1, 299, 300, *(o + d for o, _ in data for d in (-1, 0, 1) if o + d >= 0)}:
            after = record_from(rows, offset, Meter()).record
            before = record_before(rows, offset, Meter()).record

            expected = [pair for pair in data if pair[0] >= offset][:1]
            assert ([(after.offset, after.timestamp)] if after else []) == expected, offset
            expected = [pair for pair in data if pair[0] < offset][-1:]
            assert ([(before.offset, before.timestamp)] if before else []) == expected, offset


def lying(folder: Path, entries: bytes) -> SearchedSegment:
    """A segment of twenty batches whose `.index` is somebody's mistake."""
    row = write_segment(folder, 0, wire_of([plain_batch(5 * i, [i] * 5) for i in range(20)]))
    (folder / f"{0:020d}.index").write_bytes(entries)
    return row


@each_case("position", [1200, 10**8])
def test_an_index_that_leads_too_far_is_not_followed(position: int, tmp_path: Path) -> None:
    row = lying(tmp_path, (3).to_bytes(4) + position.to_bytes(4))

    after, before = (find([row], 7, Meter()).record for find in (record_from, record_before))
    assert after and before and (after.offset, before.offset) == (7, 6)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    row = write_segment(tmp_path, 0, wire_of([plain_batch(0, [7] * 3)]))
    (tmp_path / f"{0:020d}.log").unlink()

    found = record_from([row], 1, Meter())

    assert found.record is None
    assert found.note and "cannot be read" in found.note


def test_a_header_is_used_only_if_the_batch_matches_its_crc(tmp_path: Path) -> None:
    row = write_segment(tmp_path, 0, wire_of([plain_batch(5 * i, [i] * 5) for i in range(20)]))
    (tmp_path / f"{0:020d}.index").unlink()
    log = tmp_path / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    size = len(data) // 20
    data[10 * size + 23 + 3] ^= 64  # the last offset delta: the batch seems to have more records
    log.write_bytes(data)

    after, before = (find([row], 60, Meter()) for find in (record_from, record_before))

    assert after.record is None
    assert before.record and before.record.offset == 49
    for found in (after, before):
        assert found.passed_over
        assert "do not match its CRC" in (found.note or "")


def test_a_wrapper_that_does_not_say_its_offsets_is_read(tmp_path: Path) -> None:
    """Some clients wrote compressed sets whose outer message has offset 0."""
    inner = [v1_message(i, 100 + i) for i in range(5)]
    row = write_segment(tmp_path, 0, wrapper(0, inner, codec="gzip"))

    after, before = (find([row], 3, Meter()).record for find in (record_from, record_before))

    assert after and (after.offset, after.timestamp) == (3, 103)
    assert before and (before.offset, before.timestamp) == (2, 102)


def test_a_batch_beyond_the_limit_is_named(tmp_path: Path) -> None:
    log = v2_batch(0, [Record(7, None, bytes(5_000))] * 3, codec="gzip")
    row = write_segment(tmp_path, 0, log)

    for find in (record_from, record_before):
        found = find([row], 1, Meter(1_000))
        assert found.record is None
        assert "give --max-batch-bytes" in (found.note or "")
        assert find([row], 1, Meter(100_000)).record
