"""Small tables: the same rows whichever way they go to the JVM."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kip33.spark.retention import evaluate as small_tables
from kip33.spark.retention.evaluate import small_table

pytestmark = pytest.mark.spark

TABLE = pa.table(
    {
        "topic": pa.array(["orders", "it's", None], pa.string()),
        "partition": pa.array([0, 2**31 - 1, None], pa.int32()),
        "offset": pa.array([None, -(2**63), 2**63 - 1], pa.int64()),
    }
)


@pytest.mark.parametrize("takes_arrow", [True, False], ids=["as Arrow", "as rows"])
@pytest.mark.parametrize("table", [TABLE, TABLE.slice(0, 0)], ids=["three rows", "none"])
def test_a_small_table_arrives(
    takes_arrow: bool, table: pa.Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_arrow &= small_tables._TAKES_ARROW
    monkeypatch.setattr(small_tables, "_TAKES_ARROW", takes_arrow)
    found = small_table(spark, table)
    assert found.dtypes == [("topic", "string"), ("partition", "int"), ("offset", "bigint")]
    assert [row.asDict() for row in found.collect()] == table.to_pylist()
