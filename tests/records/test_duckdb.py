"""DuckDB reads the record batches of `read_arrow`."""

from pathlib import Path
from random import Random

import duckdb

import kip33
from tests.builders.record_questions import (
    random_archive,
    rows_of,
)


def test_events_per_minute(tmp_path: Path) -> None:
    archive, _ = random_archive(Random(1), tmp_path, disorder_ms=0)
    records = kip33.read_arrow(archive, topic="orders", start_time=0, columns=["timestamp"])
    query = "SELECT time_bucket(INTERVAL 1 MINUTE, timestamp) AS minute, count(*) FROM records"
    found = duckdb.sql(f"{query} GROUP BY minute ORDER BY minute").fetchall()
    times = [row[3] for row in rows_of(archive, topic="orders", start_time=0)]
    minutes = sorted({time // 60_000 for time in times})
    expected = [sum(time // 60_000 == minute for time in times) for minute in minutes]
    assert [count for _, count in found] == expected
    assert records.schema.names == ["timestamp"]
