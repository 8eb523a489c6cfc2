"""`search --emit delete-records` says which records, new enough to keep, would be deleted."""

import json
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import COPIED_MS, START_MS, write
from tests.builders.segment_builder import Record, v2_batch, with_broken_crc
from tests.cli.console import Command, Finished
from tests.faults.builds import build_here

BATCHES = 100
MINUTE_MS = 60_000


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A batch a minute, in segments of 20; in the fourth one a bit is wrong at the start."""
    archive, indexes = tmp_path / "made", tmp_path / "indexes"
    for first in range(0, BATCHES, 20):
        batches = [
            v2_batch(i, [Record(START_MS + i * MINUTE_MS, b"k", bytes(200))])
            for i in range(first, first + 20)
        ]
        if first == 60:
            batches[0] = with_broken_crc(batches[0])
        write(archive, "broker-1/orders-0", first, batches)
    build_here(archive, indexes, now_ms=COPIED_MS)
    return indexes / "_catalog"


@pytest.fixture
def delete_before(command: Command, catalog: Path) -> Command:
    def run(time: Any, *options: Any) -> Finished:
        search = ("search", catalog, "--time", time, "--topic", "orders")
        return command(*search, "--emit", "delete-records", *options)

    return run


def offset_in(done: Finished) -> int | None:
    partitions = json.loads(done.stdout)["partitions"]
    return partitions[0]["offset"] if partitions else None


def test_an_exact_answer_loses_nothing(delete_before: Command) -> None:
    done = delete_before(START_MS + 50 * MINUTE_MS)
    assert (done.exit_code, offset_in(done)) == (0, 50)
    assert done.stderr.startswith("Newer records before the offsets: 0, in 1 partition; ")


def test_records_that_cannot_be_read_would_be_lost(delete_before: Command) -> None:
    """Minute 70 is in the damaged segment, so the search finds the first record after it."""
    seventy = START_MS + 70 * MINUTE_MS

    refused = delete_before(seventy)
    allowed = delete_before(seventy, "--allow-unsafe")

    lost = "at most 20 records with timestamp 2023-11-14T23:23:20.000Z or later before"
    assert offset_in(refused) is None
    assert lost in refused.stderr and "the output leaves it out" in refused.stderr
    assert offset_in(allowed) == 80
    assert f"{lost} offset 80 would be deleted (" in allowed.stderr
    assert "Newer records before the offsets: at most 20, in 1 partition;" in allowed.stderr


@pytest.mark.parametrize("time", ["earliest", "latest"])
def test_without_a_time_nothing_is_counted(time: str, delete_before: Command) -> None:
    assert "Newer records" not in delete_before(time).stderr
