"""A slice of a log: only its records are read, whatever else is in the file."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kip33.archive.log_slice import LogSlice
from kip33.archive.log_window import Meter
from kip33.stores.locations import Location
from tests.builders.generated_segments import Written, record_pairs, segments, wire_of
from tests.builders.searched_segments import write_segment


@given(segments(), st.integers(0, 60), st.one_of(st.none(), st.integers(0, 60)), st.booleans())
def test_the_records_between_two_offsets_are_read(
    written: list[Written], start: int, end: int | None, has_index: bool
) -> None:
    expected = [
        (offset, timestamp)
        for offset, timestamp in record_pairs(written)
        if offset >= start and (end is None or offset < end)
    ]
    with tempfile.TemporaryDirectory() as folder:
        row = write_segment(Path(folder), 0, wire_of(written), offset_index=has_index)
        of_log = LogSlice(Location.of(row.log_uri), None, start, end)
        with of_log.opened(Meter(), check_crc=True) as log:
            headers = list(log.headers())
            found = [record for header in headers for record in log.window.records(header)]
            has_record = [log.window.has_record(header) for header in headers]

    assert [(record.offset, record.timestamp) for record in found] == expected
    assert any(has_record) == bool(expected)
