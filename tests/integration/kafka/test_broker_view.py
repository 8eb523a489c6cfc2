"""What Kafka, after a clean shutdown, makes of the indexes beside a log, state by state."""

import os
from pathlib import Path

import pytest

from kip33.rules.broker_start import BrokerView
from tests.builders.segment_builder import Record, v2_batch
from tests.integration.kafka.oracle import Oracle
from tests.rules.test_broker_view import (
    EARLIER,
    LARGEST,
    MODIFIED,
    Beside,
    each_state,
    entries,
    view_of,
)

pytestmark = pytest.mark.kafka

FIRST, MIDDLE, LAST = 0, 10, 20


def write_segment(directory: Path, base_offset: int, timestamps: list[int], beside: Beside) -> None:
    """Write a log of one batch and what lies beside it; so small a log has an empty `.index`."""
    name = directory / f"{base_offset:020d}"
    log = name.with_suffix(".log")
    log.write_bytes(v2_batch(base_offset, [Record(timestamp) for timestamp in timestamps]))
    if beside.time_index is not None:
        name.with_suffix(".timeindex").write_bytes(beside.time_index)
    if beside.has_offset_index:
        name.with_suffix(".index").touch()
    os.utime(log, ns=(MODIFIED * 1_000_000,) * 2)


@pytest.mark.parametrize("place", [MIDDLE, LAST], ids=["a middle segment", "the last segment"])
@each_state
def test_kafka_takes_what_kip33_says(
    beside: Beside, view: BrokerView, place: int, oracle: Oracle, tmp_path: Path
) -> None:
    directory = tmp_path / "oracle-0"
    directory.mkdir()
    for base_offset in (FIRST, MIDDLE, LAST):
        write_segment(directory, base_offset, [base_offset], Beside(entries(base_offset)))
    timestamps = [EARLIER, LARGEST] if beside.max_timestamp == LARGEST else [beside.max_timestamp]
    for file in directory.glob(f"{place:020d}.*"):
        file.unlink()
    write_segment(directory, place, timestamps, beside)

    kafkas = oracle.expire(directory, now_ms=LARGEST).largest_timestamps

    others = {base: base for base in (FIRST, MIDDLE, LAST)}
    assert kafkas == others | {place: view.largest_timestamp}
    assert view_of(beside).largest_timestamp == view.largest_timestamp
