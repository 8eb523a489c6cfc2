"""A session's settings of stores for a data source, whose instances workers pickle again.

Secrets are in a broadcast, never in the pickled source: plans and logs show that.
"""

from typing import Any, Self

from pyspark.sql import SparkSession

from kip33.spark.store_settings import use_session
from kip33.stores.filesystems import filesystems_for_tasks, use_stores


class SessionStores:
    """A broadcast that workers can pickle: as its number, by which other workers have it."""

    def __init__(self, broadcast: Any, number: int) -> None:
        """Take a broadcast, None in a worker, and its number."""
        self._broadcast, self._number = broadcast, number

    @classmethod
    def of(cls, spark: SparkSession) -> Self:
        """Return the settings and filesystems that the session has now."""
        broadcast = spark.sparkContext.broadcast((use_session(spark), filesystems_for_tasks()))
        number: int = broadcast._jbroadcast.id()
        return cls(broadcast, number)

    def use(self) -> None:
        """Use them for all stores of this process."""
        from pyspark.core.broadcast import _from_id  # PySpark 4

        broadcast = self._broadcast or _from_id(self._number)
        use_stores(*broadcast.value)

    def __reduce__(self) -> Any:
        """Pickle the broadcast on the driver, so that it is sent; else only its number."""
        return _in_worker, (self._broadcast, self._number)


def _in_worker(_: Any, number: int) -> SessionStores:
    """Return the stores in a worker, which has the broadcast by its number when it is needed."""
    return SessionStores(None, number)
