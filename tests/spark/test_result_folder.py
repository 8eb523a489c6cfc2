"""Results as Spark writes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq
from pyspark.sql import functions as sf

from kip33.retention.evaluated_tables import (
    SUMMARY_FILE,
    remove_results,
    require_results_place,
    write_summary,
)
from kip33.spark.catalog import written
from kip33.stores.locations import Location
from tests.retention.test_output_folder import OURS

pytestmark = pytest.mark.spark


def rows(spark: Any, count: int) -> Any:
    """Return a table with every kind of column that results have."""
    return spark.range(count).select(
        "id",
        sf.concat(sf.lit("é-"), "id").alias("text"),
        sf.array(sf.col("id"), sf.lit(7)).alias("list"),
        sf.create_map(sf.lit("future"), "id").alias("map"),
        sf.lit(None).cast("bigint").alias("null"),
        (sf.col("id") > 1).alias("flag"),
    )


def plain(table: Any) -> list[Any]:
    return sorted(table.collect(), key=lambda row: row.id)


def test_a_table_is_written_where_it_was_asked_for(spark: Any, tmp_path: Path) -> None:
    table, name = rows(spark, 3), "a%20b x#y&z=1 é+,;d@e [1]{a,b} st*r wh?t back\\slash"

    found = written(spark, Location.of(tmp_path / name), "segments", table)

    assert plain(found) == plain(table)
    assert found.dtypes == table.dtypes
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert pq.read_table(tmp_path / name / "segments").num_rows == 3


def test_a_table_that_fails_leaves_no_summary(spark: Any, tmp_path: Path) -> None:
    """The order of a command: the summary goes, the tables come, the summary comes."""
    out = Location.of(tmp_path / "out")
    for table in (
        rows(spark, 3),
        rows(spark, 3).select(sf.raise_error(sf.lit("torn")).cast("long").alias("id")),
    ):
        require_results_place(out)
        remove_results(out)
        assert not (tmp_path / "out" / SUMMARY_FILE).exists()
        try:
            written(spark, out, "segments", table)
        except Exception as error:
            assert "torn" in str(error)
            assert not (tmp_path / "out" / SUMMARY_FILE).exists()
            break
        write_summary(out, json.loads(OURS))
        assert (tmp_path / "out" / SUMMARY_FILE).exists()
    else:
        pytest.fail("a table that fails was written")
