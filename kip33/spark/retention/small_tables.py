"""Send small tables from Python to the JVM."""

from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

_TAKES_ARROW: Final = int(pyspark.__version__.partition(".")[0]) >= 4


def small_table(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame whose rows are in the JVM.

    For a list of rows Spark starts Python workers, which takes seconds the first time (Spark 3.5
    has no other way).
    """
    if _TAKES_ARROW:
        with suppress(ImportError):  # this PySpark needs a newer pyarrow
            return spark.createDataFrame(table)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return spark.createDataFrame(rows, from_arrow_schema(table.schema))
