"""A catalog as a DataFrame, and tables that Spark writes as Parquet folders."""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.catalog.catalog import catalog_at, choose
from kip33.catalog.schema import PARTS
from kip33.catalog.snapshot_parts import URI_COLUMNS
from kip33.errors import CatalogError
from kip33.spark.store_settings import use_session
from kip33.stores.files import size_of
from kip33.stores.filesystem_option import StorageOptions, use_storage_options
from kip33.stores.locations import KEYS_IN_URI, Location
from kip33.stores.settings import added_options

_ALL_FILES: Final = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options of a read that fails rather than leave rows out, whatever the session's settings."""

_CHECKED: Final[dict[str, bool]] = {}
"""Whether rows have keys in URIs, by folder of a snapshot that was verified in this process."""


def load_catalog(
    spark: SparkSession,
    catalog: str,
    snapshot: str | None = None,
    *,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Return a snapshot's rows, one per segment file; without `snapshot`, those of the newest one.

    >>> load_catalog(spark, "indexes/_catalog").where("topic = 'orders'").count()
    6

    - `catalog`: its path or URI

    `snapshot` is a name, a sequence number or an id, as shown by `kip33 catalog`. Raises
    CatalogError if there is no such snapshot or it is damaged: its parts are read and their CRCs
    verified once per process, because Spark does not verify them. A later build does not change the
    result: a snapshot is never rewritten. The columns that end in `_time` are times, which Spark
    shows in the session's time zone. `storage_options`: `kip33.stores.filesystem_option`.
    """
    use_storage_options(storage_options, [Location.of(catalog)])
    use_session(spark)
    opened = catalog_at(Location.of(catalog), None)
    chosen = choose(opened, snapshot).snapshot
    place = opened.snapshot_folder(chosen.name)
    folder = place.uri
    if folder not in _CHECKED:
        pieces = opened.read_pieces(chosen, list(URI_COLUMNS))  # which checks each part's CRC
        _CHECKED[folder] = sum(map(_has_keys, pieces)) > 0
    read = spark.read.options(**added_options(), **_ALL_FILES)  # the JVM needs them, too
    read = read.schema(from_arrow_schema(PARTS))  # inferring it would be another job
    parts = [place.child(part.name) for part in chosen.parts]  # a listing may miss one
    try:
        rows = read.parquet(*map(hadoop_glob, parts or [place]))
    except AnalysisException as error:
        missing = next((part for part in parts if size_of(part) is None), None)
        if missing is None:
            raise
        raise CatalogError(
            f"{missing.uri}: this part is missing: the snapshot was removed while it was read; "
            "run the command again"
        ) from error
    if _CHECKED[folder]:
        for name in URI_COLUMNS:
            rows = rows.withColumn(name, sf.regexp_replace(name, KEYS_IN_URI, "$1$2***@"))
    return rows


def _has_keys(piece: pa.Table) -> bool:
    """Return whether keys in URIs are hidden in rows of the catalog."""
    return any(pc.any(pc.match_substring(piece[name], "://***@")).as_py() for name in URI_COLUMNS)


def hadoop_path(location: Location) -> str:
    """Return a location in the form to which Spark writes: not percent-encoded."""
    return f"file://{location.path}" if location.is_local else location.uri


def hadoop_glob(location: Location) -> str:
    """Return a location in the form that Spark reads: glob characters are escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", hadoop_path(location))


def written(spark: SparkSession, folder: Location, name: str, table: DataFrame) -> DataFrame:
    """Write a table to `folder/name`, replacing its content; return the table that was written."""
    place = folder.child(name)
    table.write.mode("overwrite").parquet(hadoop_path(place))
    return spark.read.schema(table.schema).parquet(hadoop_glob(place))
