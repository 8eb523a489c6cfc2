"""A query for one topic of a catalog reads one row group, by the counters of DuckDB and Polars.

The counter of Spark is in `tests/spark/test_load_catalog.py`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.builders.snapshots import catalog_of_topics

QUERY = "topic = 'topic-07'"


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    catalog = catalog_of_topics(tmp_path, monkeypatch)
    folder = catalog.snapshot_folder(catalog.require_newest().name)
    return f"{folder.path}/*.parquet"


def test_duckdb_scans_one_row_group_of_twenty(parts: str) -> None:
    question = f"EXPLAIN ANALYZE SELECT sum(size_bytes) FROM '{parts}' WHERE {QUERY}"
    [(_, told)] = duckdb.sql(question).fetchall()
    assert "Row Groups Scanned: 1 / 20" in told


IN_POLARS = """
import sys
import polars as pl
rows = pl.scan_parquet(sys.argv[1]).filter(pl.col("topic") == "topic-07")
print(rows.select(pl.len()).collect().item())
"""


def test_polars_reads_one_row_group_of_twenty(parts: str) -> None:
    command = [sys.executable, "-c", IN_POLARS, parts]
    verbose = os.environ | {"POLARS_VERBOSE": "1"}
    done = subprocess.run(command, env=verbose, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10"
    told = re.findall(r"reading ([0-9]+) / ([0-9]+) row groups", done.stderr)
    assert [sum(map(int, one)) for one in zip(*told, strict=True)] == [1, 20]
