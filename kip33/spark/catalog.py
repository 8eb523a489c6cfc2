"""A catalog as a DataFrame."""

import re
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.catalog.catalog import Catalog
from kip33.catalog.choosing import chosen
from kip33.catalog.schema import SEGMENTS
from kip33.spark.store_settings import use_session
from kip33.stores.locations import Location
from kip33.stores.settings import added_options
from kip33.stores.storage_options import StorageOptions, use_storage_options

_CHECKED: Final[set[str]] = set()
"""Folders of snapshots whose parts were what the commit says."""


def load_catalog(
    spark: SparkSession,
    catalog: str,
    snapshot: str | None = None,
    *,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Return a snapshot's rows, one a segment file: the newest one's unless `snapshot` names one.

    `snapshot` is a name, a sequence number or an id, as `kip33 catalog` shows them. Raises
    CatalogError where there is none, or it is not whole: its parts are read and their CRCs checked
    once in a process, because Spark does not check them. A later build does not change the result:
    a snapshot is never rewritten. `storage_options`: `kip33.stores.storage_options`.
    """
    use_storage_options(storage_options, [Location.of(catalog)])
    use_session(spark)
    opened = Catalog.at(catalog)
    found = chosen(opened, snapshot)
    folder = opened.snapshot_folder(found.name).uri
    if folder not in _CHECKED:
        opened.require_whole(found)
        _CHECKED.add(folder)
    read = spark.read.options(**added_options())  # also for files that the JVM reads
    read = read.schema(from_arrow_schema(SEGMENTS))  # inferring it is a job of its own
    return read.parquet(hadoop_glob(opened.snapshot_folder(found.name)))


def hadoop_path(location: Location) -> str:
    """Return a location as Spark writes to it: nothing percent-encoded."""
    return f"file://{location.path}" if location.is_local else location.uri


def hadoop_glob(location: Location) -> str:
    """Return a location as Spark reads it: no character means others."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", hadoop_path(location))
