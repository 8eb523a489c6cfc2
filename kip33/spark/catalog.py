"""A catalog as a DataFrame."""

import re

from pyspark.sql import DataFrame, SparkSession

from kip33.storage.catalog import Catalog
from kip33.storage.locations import Location


def load_catalog(spark: SparkSession, catalog: str) -> DataFrame:
    """Return the newest snapshot's rows, one a segment file.

    Raises CatalogError where no snapshot is committed. A later build does not change the result:
    a snapshot is never rewritten.
    """
    opened = Catalog.at(catalog)
    snapshot = opened.require_newest()
    return spark.read.parquet(hadoop_path(opened.snapshot_folder(snapshot.name)))


def hadoop_path(location: Location) -> str:
    """Return a location as Spark takes it: nothing percent-encoded, and no character a glob."""
    plain = f"file://{location.path}" if location.is_local else location.uri
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", plain)
