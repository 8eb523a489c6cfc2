"""Results on disk: Parquet folders and a `summary.json` that is written last."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from kip33.errors import LocationError
from kip33.spark.catalog import hadoop_glob, hadoop_path
from kip33.storage.files import entries_of, publish_or_raise, reason, remove
from kip33.storage.locations import Location

SUMMARY: Final = "summary.json"
OURS: Final = ("part-", ".part-", "_SUCCESS", "._SUCCESS", "_temporary")  # of a table's folder


def require_results_place(folder: Location, names: tuple[str, ...]) -> None:
    """Raise LocationError unless `folder` is empty, new, or has results of before.

    Those are removed, the summary first: only a folder with a summary is whole.
    """
    try:
        found = {info.base_name for info in entries_of(folder)}
        others = sorted(found - {SUMMARY, *names})
        for name in sorted(found.intersection(names)):
            others += [f"{name}/{one}" for one in _foreign(folder.child(name))]
        if others:
            raise LocationError(
                f"{folder.uri}: holds {others[0]}, which is no result of this command; "
                "give a folder of its own"
            )
        remove(folder.child(SUMMARY))
        for name in sorted(found.intersection(names)):
            folder.filesystem().delete_dir(folder.child(name).path)
    except OSError as error:
        raise LocationError(
            f"{folder.uri}: cannot be written: {reason(error)}; mend that or choose another"
        ) from error


def _foreign(table: Location) -> list[str]:
    """Return what Spark did not put into a table's folder: an archive may be called segments."""
    infos = table.filesystem().get_file_info(fs.FileSelector(table.path))
    return sorted(info.base_name for info in infos if not info.base_name.startswith(OURS))


def written(spark: SparkSession, folder: Location, name: str, table: DataFrame) -> DataFrame:
    """Write a table to `folder/name`, in place of what is there; return it as it was written."""
    place = folder.child(name)
    table.write.mode("overwrite").parquet(hadoop_path(place))
    return spark.read.schema(table.schema).parquet(hadoop_glob(place))


def write_summary(folder: Location, summary: Mapping[str, Any]) -> None:
    """Publish `summary.json`: now the results are whole. PublishError where that fails."""
    data = (json.dumps(summary, indent=1) + "\n").encode()
    publish_or_raise(folder.child(SUMMARY), data, "the results lack their summary")
