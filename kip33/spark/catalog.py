"""A catalog as a DataFrame."""

from pyspark.sql import DataFrame, SparkSession

from kip33.storage.catalog import Catalog


def load_catalog(spark: SparkSession, catalog: str) -> DataFrame:
    """Return the newest snapshot's rows, one a segment file.

    Raises CatalogError where no snapshot is committed. A later build does not change the result:
    a snapshot is never rewritten.
    """
    opened = Catalog.at(catalog)
    snapshot = opened.require_newest()
    return spark.read.parquet(opened.snapshot_folder(snapshot.name).uri)
