"""The places in a job's arguments, and whether Spark's tasks can reach them."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from kip33.spark.tasks import is_connect
from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    places_on,
    require_for_tasks,
    require_writable_store,
)


def given_places(
    spark: SparkSession,
    source: str,
    targets: Sequence[str | None],
    storage_options: StorageOptions | None,
    filesystem: Filesystem | None,
    *,
    writes: bool = False,
) -> tuple[str, list[str | None]]:
    """Return a source and other places in the form that a job takes, None for missing ones.

    `storage_options` and `filesystem` apply from now on; with a filesystem, names become URIs.
    Raises ValueError for a filesystem that tasks cannot use, and with `writes` for one that cannot
    replace a file where the job writes.
    """
    named = [source, *(target for target in targets if target)]
    places = places_on(named, storage_options, filesystem)
    if filesystem is None:
        return source, list(targets)
    if is_connect(spark):
        raise ValueError(
            "filesystem: a session of Spark Connect cannot send it to tasks; expected "
            "storage_options"
        )
    require_for_tasks(places)
    if writes:
        require_writable_store(places[1:] or places)
    uris = iter(place.uri for place in places)
    return next(uris), [next(uris) if target else None for target in targets]
