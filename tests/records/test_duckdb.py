"""DuckDB reads the record batches of `read_arrow`."""

from pathlib import Path
from random import Random

import duckdb

import kip33
from tests.builders.record_questions import (
    COLUMNS,
    plain_rows,
    random_archive,
    random_conditions,
    rows_of,
    those,
)


def test_random_questions(tmp_path: Path) -> None:
    random = Random(33)
    archive, catalog = random_archive(random, tmp_path, disorder_ms=500)
    for source in (archive, catalog):
        every = rows_of(source)
        for _ in range(10):
            asked = random_conditions(random, every)
            where = " AND ".join(one.sql("make_timestamptz({} * 1000)", '"') for one in asked)
            records = kip33.read_arrow(source, columns=COLUMNS)
            found = duckdb.sql(f"SELECT * FROM records WHERE {where}").to_arrow_table()
            assert plain_rows(found) == those(every, asked), asked
            assert records.schema.names == list(COLUMNS)


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
