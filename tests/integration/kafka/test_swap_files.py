"""What Kafka makes of a cleaned segment that was not renamed and lost its `.timeindex.swap`."""

import os
from pathlib import Path

import pytest

from tests.builders.segment_builder import Record, v2_batch
from tests.integration.kafka.oracle import Oracle

# In the long form only: nothing of kip33 changes what Kafka does here.
pytestmark = [pytest.mark.kafka, pytest.mark.long]

SWAPPED, NEXT = 10, 20
TIMESTAMP, MODIFIED = 5_000, 9_000  # of the record; of the log file
LARGEST = {  # index files that lie there with the suffix .swap -> what Kafka takes for the largest
    ("index", "timeindex"): TIMESTAMP,
    ("index",): MODIFIED,
    ("timeindex",): TIMESTAMP,
    (): MODIFIED,
}


@pytest.mark.parametrize(
    "kinds", list(LARGEST), ids=lambda kinds: " and ".join(kinds) or "no index file"
)
def test_kafka_renames_the_log_and_never_builds_a_lost_time_index(
    kinds: tuple[str, ...], oracle: Oracle, tmp_path: Path
) -> None:
    directory = tmp_path / "oracle-0"
    directory.mkdir()
    log = directory / f"{SWAPPED:020d}.log.swap"
    log.write_bytes(v2_batch(SWAPPED, [Record(TIMESTAMP)]))
    os.utime(log, ns=(MODIFIED * 1_000_000,) * 2)
    entry = TIMESTAMP.to_bytes(8, "big") + bytes(4)
    for kind in kinds:
        data = entry if kind == "timeindex" else b""
        (directory / f"{SWAPPED:020d}.{kind}.swap").write_bytes(data)
    following = directory / f"{NEXT:020d}"
    following.with_suffix(".log").write_bytes(v2_batch(NEXT, [Record(TIMESTAMP)]))
    following.with_suffix(".timeindex").write_bytes(entry)
    following.with_suffix(".index").touch()

    found = oracle.expire(directory, now_ms=MODIFIED).largest_timestamps

    assert found == {SWAPPED: LARGEST[kinds], NEXT: TIMESTAMP}
    assert not list(directory.glob("*.swap"))
