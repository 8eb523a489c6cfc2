"""The engine on Spark: how many workers it counts."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kip33.spark.jobs import cores
from kip33.spark.spark_engine import SparkEngine
from tests.cases import each_case

pytestmark = pytest.mark.spark


def number_of(number: int, files: pa.Table) -> Iterator[int]:
    yield number


@each_case(("parallelism", "expected"), ((1, 1), (50, None)))
def test_workers_are_cores_but_not_more_than_bins(
    parallelism: int, expected: int | None, spark: SparkSession
) -> None:
    engine = SparkEngine(lambda: spark, parallelism)
    files = pa.table({"path": [str(one) for one in range(50)], "size_bytes": [1] * 50})

    found = engine.run_on_bins(files, number_of)

    assert found == list(range(parallelism))
    assert engine.workers == (expected or cores(spark))
