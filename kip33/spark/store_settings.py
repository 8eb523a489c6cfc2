"""A session's settings of remote stores, what tasks get of them, and places in arguments."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeGuard
from uuid import uuid4
from xml.etree import ElementTree

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    places_on,
    require_for_tasks,
    require_writable_store,
)
from kip33.stores.filesystems import filesystems_for_tasks, use_stores
from kip33.stores.settings import (
    PREFIXES,
    SPARK_PREFIX,
    configured,
    hadoop_keys,
    settings,
    use_settings,
)

Session: TypeAlias = SparkSession | SparkContext
"""What runs tasks: a user's session, or the context that a command has started without SQL."""
_DEFAULTS: Final = ("core-default.xml", "hdfs-default.xml")  # Hadoop's defaults
_SECRETS: Final = ("access.key", "secret.key", "session.token")
_PROVIDER_PATHS: Final = (
    "hadoop.security.credential.provider.path",
    "fs.s3a.security.credential.provider.path",
)


def use_session(spark: Session) -> Mapping[str, str]:
    """Use the session's settings for the stores of this process; return them.

    They are Hadoop's configuration in the JVM, including `spark.hadoop.*`, later changes and
    credential stores. For a session without a JVM (Connect) they are its `spark.hadoop.*`, from 4.3
    on without keys: those must be `storage_options`.
    """
    jvm = getattr(spark, "_jsc", None)
    found = _of_hadoop(jvm.hadoopConfiguration(), spark._jvm) if jvm else _of_connect(spark)
    use_settings(found)
    return settings()


def is_connect(spark: Session) -> TypeGuard[SparkSession]:
    """Return whether a session is a Connect session, without RDDs and JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def context_of(spark: Session) -> SparkContext:
    """Return the context of a session that is not a Connect session."""
    return spark if isinstance(spark, SparkContext) else spark.sparkContext


class SessionStores:
    """A session's settings of stores and filesystems, for its tasks and planning workers.

    Pickled, it has no secret, because plans and closures are displayed and logged: the settings are
    in a broadcast, of which a worker pickles the number alone. Connect has no broadcasts: there
    they are a file of the session's artifacts. A classic session has no such file, because all
    users of an executor's machine could read it.
    """

    def __init__(self, broadcast: Any, number: int, file: str | None = None) -> None:
        """Take a broadcast and its number, or the name of a file; an empty one: no settings."""
        self._broadcast, self._number, self._file = broadcast, number, file

    @classmethod
    def of(cls, spark: Session) -> Self:
        """Return the settings and filesystems that the session has now."""
        found = use_session(spark)
        if is_connect(spark):
            return cls(None, -1, _among_artifacts(spark, found) if found else "")
        broadcast = context_of(spark).broadcast((found, filesystems_for_tasks()))
        return cls(broadcast, broadcast._jbroadcast.id())

    def use(self) -> None:
        """Use them for all stores of this process."""
        if self._file is not None:
            text = Path(SparkFiles.get(self._file)).read_text() if self._file else "{}"
            use_stores(json.loads(text), {})
            return
        if self._broadcast is None:
            from pyspark.core.broadcast import _from_id  # PySpark 4, which alone asks for it

            self._broadcast = _from_id(self._number)
        use_stores(*self._broadcast.value)

    def destroy(self) -> None:
        """Remove the broadcast from the executors; nobody may use it afterwards."""
        if self._broadcast is not None:
            self._broadcast.destroy()

    def __reduce__(self) -> Any:
        """Pickle the broadcast on the driver, so that it is sent; else only its number."""
        is_sent = self._broadcast is not None and self._broadcast._jbroadcast is not None
        return SessionStores, (self._broadcast if is_sent else None, self._number, self._file)


def _among_artifacts(spark: SparkSession, settings: Mapping[str, str]) -> str:
    """Send settings to the workers of a Connect session in a file; return its name."""
    name = f"kip33-{uuid4().hex}.json"
    with tempfile.TemporaryDirectory(prefix="kip33-") as folder:
        file = Path(folder) / name
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(dict(settings), stream)
        spark.addArtifacts(str(file), file=True)
    return name


def submitted_settings(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that spark-submit was told, `conf` over them, without a SparkContext.

    The JVM of spark-submit runs already. Its `SparkHadoopUtil` makes the same Hadoop
    configuration as a SparkContext has.
    """
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    submitted = SparkConf().setAll(list(conf.items()))
    util = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    return _of_hadoop(util.newConfiguration(submitted._jconf), jvm)


def _of_connect(spark: Any) -> dict[str, str]:
    return configured() | hadoop_keys(
        {key: value for key, value in spark.conf.getAll.items() if key.startswith(SPARK_PREFIX)}
    )


def _of_hadoop(configuration: Any, jvm: Any) -> dict[str, str]:
    """Return the settings of a Hadoop `Configuration` except defaults, with one call to the JVM."""
    writer = jvm.java.io.StringWriter()
    configuration.writeXml(writer)
    found: dict[str, str] = {}
    for entry in ElementTree.fromstring(writer.toString()).iter("property"):
        key, value = entry.findtext("name") or "", entry.findtext("value") or ""
        sources = [source.text for source in entry.iter("source")]
        if key.startswith(PREFIXES) and not (sources and sources[-1] in _DEFAULTS):
            found[key] = str(configuration.get(key)) if "${" in value else value
    if any(found.get(path) for path in _PROVIDER_PATHS):
        found |= _of_credential_stores(configuration, found)
    return found


def _of_credential_stores(configuration: Any, found: Mapping[str, str]) -> dict[str, str]:
    """Return the S3 keys in Hadoop's credential stores (JCEKS), for each named bucket."""
    parts = (key.removeprefix("fs.s3a.bucket.") for key in found if "fs.s3a.bucket." in key)
    buckets = {part.partition(".")[0] for part in parts}
    prefixes = ["fs.s3a.", *(f"fs.s3a.bucket.{bucket}." for bucket in sorted(buckets))]
    keys = {}
    for key in (prefix + secret for prefix in prefixes for secret in _SECRETS):
        password = configuration.getPassword(key)
        if password is not None:
            keys[key] = "".join(password)
    return keys


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
