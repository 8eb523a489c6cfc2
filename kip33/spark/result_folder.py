"""Results that Spark writes: one Parquet folder per table."""

from pyspark.sql import DataFrame, SparkSession

from kip33.spark.catalog import hadoop_glob, hadoop_path
from kip33.stores.locations import Location


def written(spark: SparkSession, folder: Location, name: str, table: DataFrame) -> DataFrame:
    """Write a table to `folder/name`, replacing its content; return the table that was written."""
    place = folder.child(name)
    table.write.mode("overwrite").parquet(hadoop_path(place))
    return spark.read.schema(table.schema).parquet(hadoop_glob(place))
